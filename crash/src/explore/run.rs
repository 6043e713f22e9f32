//! A pool and the model beside it: the same operations on both, results compared.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lode_engine::{Error, PAGE_BYTES, PageClass, Pool, Protection};
use lode_model::Model;
use lode_testkit::execute::{Handles, Value, execute};
use lode_testkit::fs::Fs;
use lode_testkit::op::Op;
use lode_testkit::receive::bring;
use lode_testkit::rng::Rng;
use lode_testkit::run::{panic_text, same, show, time_of};
use lode_testkit::snapshot::snapshot;

use super::{Setup, SimulatedPool};
use crate::case::Geometry;
use crate::judge::{Expected, Health, sound};
use crate::region::{Pages, Profile, Simulated, Watch};
use crate::schedule::SchedHost;
use crate::states::units_of;

/// A pool and its model.
pub(super) struct Run<'s> {
    pub(super) setup: &'s Setup,
    host: SchedHost,
    pub(super) pool: SimulatedPool,
    pub(super) model: Model,
    handles: Handles,
    model_handles: Handles,
    rng: Rng,
    /// CPUs of the next opening.
    cpus: usize,
    pub(super) no_space: u64,
    /// What memory has lost.
    pub(super) health: Health,
    /// The next scrub is to find something.
    pub(super) is_to_be_found: bool,
    /// The next scrub may: a crash leaves torn what is behind the end of a file, which is nothing yet.
    pub(super) may_be_torn: bool,
}

/// Free pages that a checkpoint of a small pool may need.
const CHECKPOINT_PAGES: u64 = 8;

impl<'s> Run<'s> {
    /// A new pool.
    pub(super) fn new(setup: &'s Setup) -> Result<Self, String> {
        let host = setup.host(0);
        host.set_cpu(0);
        // The model's root was born at 0.
        host.set_now(0);
        let bytes = setup.geometry.bytes;
        let made = setup.geometry.made.unwrap_or(bytes);
        let whole = Simulated::new(Pages::new(made), Default::default());
        Pool::format(whole.clone(), host.clone(), &setup.format())
            .map_err(|error| format!("format: {error:?}"))?;
        if let Some(store) = whole.point().pending.first() {
            return Err(format!("format leaves a store of {} in doubt", store.site));
        }
        let medium = setup.as_made(Simulated::new(whole.seen().grown(bytes), setup.rules));
        Self::over(setup, host, medium, Model::new())
    }

    /// The pool in `image`, recovered, which is to be what was found in it.
    /// What it loads is logged in `watches`, which it hands back.
    pub(super) fn resume(
        setup: &'s Setup,
        image: Pages,
        found: &Expected,
        watches: &mut Vec<Watch>,
    ) -> Result<Self, String> {
        let host = setup.host(9);
        host.set_cpu(0);
        let medium = setup.as_left(Simulated::new(image, setup.rules));
        medium.watch(std::mem::take(watches));
        let run = Self::over(setup, host, medium.clone(), found.model.clone())?;
        *watches = medium.take_watches();
        Ok(Self { health: found.health, may_be_torn: true, ..run })
    }

    fn over(
        setup: &'s Setup,
        host: SchedHost,
        medium: Simulated,
        model: Model,
    ) -> Result<Self, String> {
        let open = || Pool::open(medium.clone(), host.clone(), &setup.options());
        let mut pool = open();
        if pool.as_ref().err() == Some(&Error::Receiving) {
            // As the judge does.
            pool = Pool::abandon_receiving(medium.clone(), host.clone()).and_then(|()| open());
        }
        let pool = pool.map_err(|error| format!("open: {error:?}"))?;
        let (handles, model_handles) = (Handles::new(), Handles::new());
        let rng = Rng::new(setup.seed);
        let cpus = setup.geometry.lanes as usize;
        Ok(Self {
            setup,
            host,
            pool,
            model,
            handles,
            model_handles,
            rng,
            cpus,
            no_space: 0,
            health: Health::default(),
            is_to_be_found: false,
            may_be_torn: false,
        })
    }

    /// What is to be found after a crash now.
    pub(super) fn expected(&self) -> Result<Expected, String> {
        Ok(Self::expected_of(self.setup, &self.model)?.of(self.health))
    }

    /// What is to be found where a model is like this one.
    pub(super) fn expected_of(setup: &Setup, model: &Model) -> Result<Expected, String> {
        let model = model.clone();
        let tree = snapshot(&model, setup.times(), None)?;
        model.release_all();
        Ok(Expected::new(tree, model))
    }

    /// Does an operation on the pool and on the model.
    pub(super) fn step(&mut self, number: usize, op: &Op) -> Result<(), String> {
        self.host.set_now(time_of(number));
        self.model.set_now(time_of(number));
        self.host.set_cpu(number);
        match op {
            Op::Remount | Op::Crash => return self.remount(*op == Op::Remount),
            Op::Grow => return self.grow(),
            Op::Protect(level, dead_zone) => return self.protect(*level, *dead_zone),
            Op::Rollback(name) => return self.rollback(name),
            Op::Receive(name) => return self.receive(name, true),
            Op::Abandon(name) => return self.receive(name, false),
            Op::Cpus(cpus) => self.cpus = *cpus,
            Op::Damage(harm) => return self.damage(harm),
            Op::Heal => self.pool.medium().heal(),
            Op::Scrub => return self.scrub(),
            // (It may be found by that.)
            _ => self.is_to_be_found = false,
        }
        let available = self.pool.statfs().pages_available;
        let found = self.guarded(op)?;
        // What the pool is too small for, and the model is not.
        let short_pages = self.setup.geometry.has_short_pages();
        if found == Err(Error::NoSpace) && available > pages_for(op, &self.setup.geometry) {
            return Err(format!("{op}: no space, with {available} pages available"));
        }
        if found == Err(Error::NoSpace) || short_pages && found == Err(Error::NameTooLong) {
            self.no_space += 1;
            // Nothing of it may be left, such as a page that nobody has.
            return sound(&self.pool, &format!("{op}: found no space; check"));
        }
        let wanted = execute(&self.model, &mut self.model_handles, op);
        if same(&wanted, &found) {
            return Ok(());
        }
        Err(format!("{op}: {} expected, {} found", show(&wanted), show(&found)))
    }

    fn guarded(&mut self, op: &Op) -> Result<lode_engine::Result<Value>, String> {
        let (pool, handles) = (&self.pool, &mut self.handles);
        let done = catch_unwind(AssertUnwindSafe(|| execute(pool, handles, op)));
        self.setup.fence_late(&self.pool);
        done.map_err(|payload| format!("{op}: {}", panic_text(payload.as_ref())))
    }

    /// Ends the session, cleanly or by a power cut; opens again.
    fn remount(&mut self, clean: bool) -> Result<(), String> {
        self.handles.clear();
        self.model_handles.clear();
        self.model.release_all();
        // A pool without space for a checkpoint is found as after a crash.
        let full = self.pool.statfs().pages_free < CHECKPOINT_PAGES;
        let medium = if clean {
            self.pool.close().map_err(|error| format!("close: {error:?}"))?;
            self.pool.medium().clone()
        } else {
            self.may_be_torn = true;
            self.cut_off()
        };
        self.host.set_cpus(self.cpus);
        self.is_to_be_found = false;
        self.pool = Pool::open(medium, self.host.clone(), &self.setup.options())
            .map_err(|error| format!("open: {error:?}"))?;
        let opening = self.pool.opening();
        let right = opening.clean == clean || full && !opening.clean;
        let damaged = opening.is_damaged() && self.health != Health::Hurt;
        if !right || damaged {
            return Err(format!("opened after clean={clean} as {opening:?}"));
        }
        Ok(())
    }

    /// Ends the session cleanly, lets the pool have the whole region, opens again.
    fn grow(&mut self) -> Result<(), String> {
        self.pool.close().map_err(|error| format!("close: {error:?}"))?;
        let before = self.pool.statfs().pages;
        let grown = Pool::grow(self.pool.medium().clone(), self.host.clone());
        if before * PAGE_BYTES < self.setup.geometry.bytes {
            grown.map_err(|error| format!("grow: {error:?}"))?;
        } else if grown != Err(Error::Invalid) {
            return Err(format!("a pool as large as its region grows: {grown:?}"));
        }
        self.remount(true)
    }

    /// Ends the session cleanly, gives the pool another level, opens again.
    fn protect(&mut self, level: Protection, dead_zone: u64) -> Result<(), String> {
        self.pool.close().map_err(|error| format!("close: {error:?}"))?;
        let (medium, host) = (self.pool.medium().clone(), self.host.clone());
        let changed = Pool::protect(medium, host, level, dead_zone, &mut |_, _| ());
        match changed {
            Ok(_) => {}
            Err(Error::NoSpace) => self.no_space += 1,
            Err(error) => return Err(format!("protect: {error:?}")),
        }
        self.remount(true)
    }

    /// Ends the session cleanly, makes all what a snapshot has, opens again.
    fn rollback(&mut self, name: &[u8]) -> Result<(), String> {
        self.pool.close().map_err(|error| format!("close: {error:?}"))?;
        let (medium, host) = (self.pool.medium().clone(), self.host.clone());
        match Pool::rollback(medium, host, name) {
            Err(Error::NoSpace) => self.no_space += 1,
            found => {
                let wanted = self.model.rollback(name);
                if found.as_ref().err() != wanted.as_ref().err() {
                    return Err(format!("rollback: {wanted:?} expected, {found:?} found"));
                }
            }
        }
        self.remount(true)
    }

    fn has_snapshot(&self, name: &[u8]) -> Result<bool, String> {
        let all = Fs::snapshots(&self.model).map_err(|error| format!("the model: {error:?}"))?;
        Ok(all.iter().any(|(other, _)| other == name))
    }

    /// Ends the session cleanly, receives a snapshot, wholly or not, opens again.
    fn receive(&mut self, name: &[u8], wholly: bool) -> Result<(), String> {
        self.pool.close().map_err(|error| format!("close: {error:?}"))?;
        let medium = self.pool.medium().clone();
        let received = crate::judge::receive(&medium, &self.host, self.setup, (name, wholly));
        if received? {
            let brought = bring(&self.model, 0, &mut |_| Ok(()));
            let made = brought.and_then(|()| self.model.create_snapshot(name));
            made.map_err(|error| format!("the model: receive: {error:?}"))?;
        } else if wholly && !self.has_snapshot(name)? {
            self.no_space += 1;
        }
        self.remount(true)
    }

    /// Between operations nothing is in doubt that shows, whatever is kept.
    fn cut_off(&mut self) -> Simulated {
        let old = self.pool.medium();
        if self.setup.rules.profile == Profile::Eadr {
            old.settle();
        }
        let point = old.point();
        let units = units_of(&point, self.setup.rules.profile, false);
        let mut pick = |unit: &crate::states::Unit| self.rng.below(unit.whole as u64) as u16;
        let choice: Vec<u16> = units.units.iter().map(&mut pick).collect();
        old.crash(units.image(&point.durable, &choice));
        old.clone()
    }
}

/// Pages of metadata that an operation may need at most: a log page each for what it changes, a
/// piece of table.
const METADATA_PAGES: u64 = 6;

/// With more pages available than this, an operation finds space.
pub(super) fn pages_for(op: &Op, geometry: &Geometry) -> u64 {
    let class = geometry.class;
    let data = match op {
        Op::SetXattr { value: Some(value), .. }
        | Op::CreateWith { value, .. }
        | Op::Tmpfile { xattr: Some((_, value)), .. }
        | Op::SetAttrWith { value, .. } => {
            // In short log pages there may be no room to say where so many pieces of it are.
            let pieces = geometry.has_short_pages() && value.len > PAGE_BYTES;
            if pieces { u64::MAX / 8 } else { value.len }
        }
        Op::Write { data, .. } | Op::Append { data, .. } | Op::Sectors { data, .. } => data.len,
        Op::Fallocate { len, .. } => *len,
        Op::SetAttr { .. } => PAGE_BYTES,
        Op::Symlink { target, .. } => target.len() as u64,
        _ => 0,
    };
    // Unaligned at both ends, journalled and at home, in chunks.
    let chunks = if class == PageClass::Small { 0 } else { 3 * class.pages() };
    METADATA_PAGES + 2 * (data.div_ceil(PAGE_BYTES) + 2) + chunks
}
