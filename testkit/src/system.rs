//! A file system that can be mounted again, and whose clock can be set.

use lode_engine::{FormatOptions, Host, Op, OpenOptions, Pool};
use lode_model::Model;

use crate::fs::{Fs, TestPool};
use crate::{Memory, TestHost};

/// What sequences of operations run on.
pub trait System {
    /// The file system, mounted.
    fn fs(&self) -> &dyn Fs;
    /// Sets the clock.
    fn set_now(&self, now_ns: i64);
    /// Mounts again, after a clean unmount or without one. Nothing is open afterwards.
    fn remount(&mut self, clean: bool) -> Result<(), String>;
    /// From the next mount on, the host has so many CPUs.
    fn set_cpus(&mut self, _cpus: usize) {}
    /// Checks what can be checked of the medium.
    fn check(&self) -> Result<(), String>;
}

impl System for Model {
    fn fs(&self) -> &dyn Fs {
        self
    }

    fn set_now(&self, now_ns: i64) {
        Model::set_now(self, now_ns);
    }

    fn remount(&mut self, _clean: bool) -> Result<(), String> {
        self.release_all();
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A pool in memory.
pub struct PoolSystem {
    memory: Memory,
    host: TestHost,
    options: OpenOptions,
    /// CPUs of the host from the next opening on.
    cpus: usize,
    pool: TestPool,
    /// Fast and thorough collections of logs before the pool was last opened.
    collected: [u64; 2],
}

impl PoolSystem {
    /// A new pool of `bytes`.
    pub fn new(
        bytes: u64,
        host: TestHost,
        format: &FormatOptions,
        options: OpenOptions,
    ) -> Result<Self, String> {
        let memory = Memory::new(bytes);
        let say = |what: &str| format!("{what} of a pool of {bytes} bytes");
        // The model's root was born at 0.
        host.set_now(0);
        Pool::format(memory.clone(), host.clone(), format)
            .map_err(|e| format!("{}: {e:?}", say("format")))?;
        let pool = Pool::open(memory.clone(), host.clone(), &options)
            .map_err(|e| format!("{}: {e:?}", say("open")))?;
        let cpus = host.cpus();
        Ok(Self { memory, host, options, cpus, pool, collected: [0; 2] })
    }

    /// The pool.
    pub fn pool(&self) -> &TestPool {
        &self.pool
    }

    /// Fast and thorough collections of logs so far.
    pub fn collected(&self) -> [u64; 2] {
        let done = self.pool.stats().ops;
        let [fast, thorough] = self.collected;
        [fast + done[Op::CollectFast as usize], thorough + done[Op::CollectThorough as usize]]
    }

    /// What the pool lies in.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Goes on with what lies here, which was cleanly unmounted.
    ///
    /// # Errors
    /// What opening it says, and damage.
    pub fn take(&mut self, memory: Memory) -> Result<(), String> {
        self.collected = self.collected();
        self.memory = memory;
        self.pool = Pool::open(self.memory.clone(), self.host.clone(), &self.options)
            .map_err(|error| format!("open: {error:?}"))?;
        let opening = self.pool.opening();
        if opening.is_damaged() { Err(format!("opened as {opening:?}")) } else { Ok(()) }
    }

    /// The host.
    pub fn host(&self) -> &TestHost {
        &self.host
    }

    /// Options of the next opening.
    pub fn set_options(&mut self, options: OpenOptions) {
        self.options = options;
    }
}

impl System for PoolSystem {
    fn fs(&self) -> &dyn Fs {
        &self.pool
    }

    fn set_now(&self, now_ns: i64) {
        self.host.set_now(now_ns);
    }

    fn remount(&mut self, clean: bool) -> Result<(), String> {
        if clean {
            self.pool.close().map_err(|error| format!("close: {error:?}"))?;
        }
        self.collected = self.collected();
        // A copy, so that what the old pool does when it is dropped can't help.
        self.memory = self.memory.copy();
        self.host.set_cpus(self.cpus);
        self.pool = Pool::open(self.memory.clone(), self.host.clone(), &self.options)
            .map_err(|error| format!("open after clean={clean}: {error:?}"))?;
        let opening = self.pool.opening();
        if opening.is_damaged() || opening.clean != clean {
            return Err(format!("opened after clean={clean} as {opening:?}"));
        }
        Ok(())
    }

    fn set_cpus(&mut self, cpus: usize) {
        self.cpus = cpus;
    }

    fn check(&self) -> Result<(), String> {
        let report = self.pool.check(&mut |_, _| ()).map_err(|e| format!("check: {e:?}"))?;
        match report.damage.first() {
            Some(damage) => Err(format!("check: {damage} (of {})", report.damage.len())),
            None => Ok(()),
        }
    }
}
