//! Processors that do not fall asleep while requests come.
//!
//! A program waits for each answer, and its processor has nothing else to do meanwhile: it falls asleep. To wake it may take, in a
//! virtual machine whose host takes the processor away, more than all else of a small request. The kernel can be asked
//! to let none of its processors sleep, by root, for as long as a file is open; so it ends with the process at the latest.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::{MountError, Result};
use crate::wire::{Answer, Errno, Handler, Request, Scratch};

/// The file that says how long a processor may take to wake.
const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";

/// How often is looked whether there were requests.
const PERIOD: Duration = Duration::from_millis(100);
/// After so many periods without any processors may sleep again.
const QUIET: u32 = 10;

/// As long as this is there, no processor of the machine falls asleep: they look for work instead.
#[derive(Debug)]
pub struct Awake(#[expect(dead_code, reason = "it is open, that is all")] File);

impl Awake {
    /// Keeps processors awake.
    ///
    /// # Errors
    /// Where this may not be asked for (root may), or the kernel does not know it.
    pub fn keep() -> io::Result<Self> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{LATENCY_DEVICE}: {error}"));
        let mut device = OpenOptions::new().write(true).open(LATENCY_DEVICE).map_err(named)?;
        // Microseconds, as 32 bits: none.
        device.write_all(&[0; 4]).map_err(named)?;
        Ok(Self(device))
    }
}

/// Who keeps processors awake while there are requests, and for a second after.
#[derive(Debug)]
struct Vigil<K> {
    /// There were some in this period.
    asked: AtomicBool,
    ended: Mutex<bool>,
    /// Who watches waits here for the first request.
    told: Condvar,
    /// And here, where no request wakes it, for the end of a period.
    over: Condvar,
    keep: fn() -> io::Result<K>,
}

impl<K: 'static> Vigil<K> {
    fn of(keep: fn() -> io::Result<K>) -> Self {
        let (asked, ended) = (AtomicBool::new(false), Mutex::new(false));
        Self { asked, ended, told: Condvar::new(), over: Condvar::new(), keep }
    }

    /// Takes note of a request.
    fn asked(&self) {
        // (Ten times a second at most somebody has to be told; the others only look.)
        if !self.asked.load(Relaxed) {
            let _ended = self.ended.lock();
            self.asked.store(true, Relaxed);
            self.told.notify_one();
        }
    }

    /// Begins to watch.
    ///
    /// # Errors
    /// Where no thread can be started.
    fn watch(self: Arc<Self>) -> io::Result<Watched<K>> {
        let vigil = Arc::clone(&self);
        let builder = thread::Builder::new().name("lode-awake".to_owned());
        let thread = builder.spawn(move || vigil.keep_watch())?;
        Ok(Watched(self, Some(thread)))
    }

    fn keep_watch(&self) {
        let mut ended = self.ended.lock();
        while !*ended {
            if !self.asked.load(Relaxed) {
                self.told.wait(&mut ended);
                continue;
            }
            let kept = (self.keep)();
            if let Err(error) = &kept {
                // It was allowed when the mount began.
                tracing::warn!(%error, "processors can't be kept awake any more");
            }
            let mut quiet = 0;
            while !*ended && quiet < QUIET {
                let asked = self.asked.swap(false, Relaxed);
                quiet = if asked { 0 } else { quiet + 1 };
                self.over.wait_for(&mut ended, PERIOD);
            }
        }
    }
}

/// A watch, until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched<K>(Arc<Vigil<K>>, Option<JoinHandle<()>>);

impl<K> Drop for Watched<K> {
    fn drop(&mut self) {
        *self.0.ended.lock() = true;
        self.0.told.notify_all();
        self.0.over.notify_all();
        let _ = self.1.take().map(JoinHandle::join);
    }
}

/// Whoever keeps this machine's processors awake for a mount, if that is `wanted`.
///
/// # Errors
/// Where that may not be asked for, or no thread can be started.
pub(crate) fn watch(wanted: bool) -> Result<Option<Watched<Awake>>> {
    let start = || {
        drop(Awake::keep()?);
        Arc::new(Vigil::of(Awake::keep)).watch()
    };
    wanted.then(start).transpose().map_err(MountError::Asleep)
}

/// A handler for whose requests processors are kept awake, if they are.
pub(crate) struct Wakeful<H> {
    pub(crate) handler: H,
    pub(crate) watched: Option<Watched<Awake>>,
}

impl<H: Handler> Handler for Wakeful<H> {
    type Pass<'a> = H::Pass<'a>;

    fn enter(&self) -> std::result::Result<Self::Pass<'_>, Errno> {
        if let Some(Watched(vigil, _)) = &self.watched {
            vigil.asked();
        }
        self.handler.enter()
    }

    fn answer<'s>(
        &self,
        pass: &Self::Pass<'_>,
        request: &Request<'_>,
        scratch: &'s mut Scratch,
    ) -> std::result::Result<Answer<'s>, Errno> {
        self.handler.answer(pass, request, scratch)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Instant;

    use super::*;

    static KEPT: AtomicUsize = AtomicUsize::new(0);

    struct Held;

    impl Drop for Held {
        fn drop(&mut self) {
            KEPT.fetch_sub(1, SeqCst);
        }
    }

    fn hold() -> io::Result<Held> {
        KEPT.fetch_add(1, SeqCst);
        Ok(Held)
    }

    fn until(kept: usize) -> bool {
        let end = Instant::now() + Duration::from_secs(10);
        while KEPT.load(SeqCst) != kept && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        KEPT.load(SeqCst) == kept
    }

    /// How often threads that watch have gone to sleep.
    fn sleeps() -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let mut ours = tasks.filter(|task| read(task.join("comm")).trim() == "lode-awake");
        let status = ours.by_ref().map(|task| read(task.join("status"))).collect::<String>();
        let counts =
            status.lines().filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        counts.map(|count| count.trim().parse::<u64>().unwrap()).sum()
    }

    #[test]
    fn requests_do_not_wake_who_watches() {
        let vigil = Arc::new(Vigil::of(|| Ok(())));
        let _watched = Arc::clone(&vigil).watch().unwrap();
        vigil.asked();
        thread::sleep(PERIOD);
        let before = sleeps();
        let end = Instant::now() + 4 * PERIOD;
        while Instant::now() < end {
            vigil.asked();
            thread::sleep(Duration::from_micros(50));
        }
        // (Whoever else watches in this process sleeps as rarely.)
        let slept = sleeps() - before;
        assert!((2..100).contains(&slept), "{slept}");
    }

    #[test]
    fn processors_are_kept_awake_while_requests_come_and_no_longer() {
        let vigil = Arc::new(Vigil::of(hold));
        let watched = Arc::clone(&vigil).watch().unwrap();
        thread::sleep(2 * PERIOD);
        assert_eq!(KEPT.load(SeqCst), 0, "nobody asked");
        for _ in 0..2 {
            vigil.asked();
            assert!(until(1), "somebody asked");
            // As long as requests come now and then it stays so.
            for _ in 0..15 {
                thread::sleep(PERIOD);
                vigil.asked();
                assert_eq!(KEPT.load(SeqCst), 1);
            }
            assert!(until(0), "nobody asked for a second");
        }
        vigil.asked();
        assert!(until(1));
        drop(watched);
        assert_eq!(KEPT.load(SeqCst), 0, "the mount has ended");
    }
}
