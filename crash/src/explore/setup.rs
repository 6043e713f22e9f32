//! The shape of the pool, the rules of its memory, and how far to look.

use std::sync::Arc;

use lode_engine::{AccessTimes, FormatOptions, LENT_BYTES, OpenOptions, PAGE_BYTES, Pool, Rule};
use lode_pmem::Medium;
use lode_testkit::snapshot::Times;
use lode_testkit::{Asked, TestHost};

use super::Stop;
use crate::case::Geometry;
use crate::region::{Pages, Rules, Simulated};
use crate::schedule::SchedHost;
use crate::states::Budget;

/// A pool on a simulated medium.
pub type SimulatedPool = Pool<Simulated, SchedHost>;

/// What a case runs on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The pool's shape.
    pub geometry: Geometry,
    /// How the memory behaves.
    pub rules: Rules,
    /// A rule that the engine leaves out.
    pub left_out: Option<Rule>,
    /// Decides everything random.
    pub seed: u64,
    /// The rules that the engine has come to.
    pub asked: Arc<Asked>,
    /// Says when to look no further.
    pub stop: Stop,
}

/// How far to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// States of each point.
    pub points: Budget,
    /// The same of large pools, each state of which takes long.
    pub large: Budget,
    /// States of each point inside a recovery.
    pub inside: Budget,
    /// The recovery of one state in so many is itself cut off; 0 for none.
    pub inside_every: u64,
    /// States of each point of the operations after a recovery.
    pub then: Budget,
    /// After one state in so many, operations go on, and the power fails again; 0 for none.
    pub then_every: u64,
    /// Of one state in so many, some memory can't be loaded; 0 for none. (One in an eighth of that where something
    /// is there to restore it from.)
    pub poisoned_every: u64,
    /// Of flipped bits, each so many-th is salvaged, too.
    pub salvaged_every: usize,
    /// Schedules of two threads, at most, of those with two preemptions at most.
    pub schedules: u64,
    /// The same where a pool is large: each takes a second or two, and one of a small pool some milliseconds.
    pub large_schedules: u64,
}

impl Limits {
    /// States of each point of such a pool.
    pub fn points_of(&self, pool: &Geometry) -> Budget {
        if pool.is_large() { self.large } else { self.points }
    }

    /// Schedules of two threads with such a pool.
    pub fn schedules_of(&self, pool: &Geometry) -> u64 {
        if pool.is_large() { self.large_schedules } else { self.schedules }
    }

    /// For mutants, most of which hardly need a look.
    pub const GLANCE: Limits = Limits {
        points: Budget { whole: 12, torn: 3 },
        large: Budget { whole: 12, torn: 3 },
        inside: Budget { whole: 4, torn: 1 },
        inside_every: 8,
        then: Budget { whole: 2, torn: 1 },
        then_every: 24,
        poisoned_every: 64,
        salvaged_every: 16,
        schedules: 16,
        large_schedules: 8,
    };
    /// For runs of under a minute.
    pub const QUICK: Limits = Limits {
        points: Budget { whole: 40, torn: 10 },
        large: Budget { whole: 40, torn: 10 },
        inside: Budget { whole: 10, torn: 3 },
        inside_every: 8,
        then: Budget { whole: 5, torn: 1 },
        then_every: 24,
        poisoned_every: 32,
        salvaged_every: 16,
        schedules: 60,
        large_schedules: 8,
    };
    /// For single operations: of forty points, one has more states that look different.
    pub const ALONE: Limits = Limits { points: Budget { whole: 128, torn: 12 }, ..Limits::QUICK };
    /// For mutants that a quick look has missed.
    pub const DEEP: Limits = Limits {
        points: Budget { whole: 240, torn: 160 },
        large: Budget { whole: 40, torn: 10 },
        inside: Budget { whole: 10, torn: 4 },
        inside_every: 4,
        then: Budget { whole: 6, torn: 2 },
        then_every: 1,
        poisoned_every: 8,
        salvaged_every: 16,
        schedules: 4000,
        large_schedules: 600,
    };
    /// For runs of everything there is.
    pub const FULL: Limits = Limits {
        points: Budget { whole: 96, torn: 24 },
        large: Budget { whole: 96, torn: 24 },
        inside: Budget { whole: 16, torn: 5 },
        inside_every: 4,
        then: Budget { whole: 6, torn: 2 },
        then_every: 16,
        poisoned_every: 8,
        salvaged_every: 1,
        schedules: 4000,
        large_schedules: 100,
    };
}

impl Setup {
    /// How the pool is opened.
    pub fn options(&self) -> OpenOptions {
        let Geometry { relaxed, atime, forgetful, .. } = self.geometry;
        let index_memory = forgetful.then_some(0);
        let atime = if atime { AccessTimes::Relative } else { AccessTimes::Never };
        OpenOptions { relaxed, atime, index_memory, ..OpenOptions::default() }
    }

    /// How the pool is made.
    pub fn format(&self) -> FormatOptions {
        self.geometry.format()
    }

    /// What is on the medium while operations run says this of its memory.
    pub(super) fn as_made(&self, medium: Simulated) -> Simulated {
        if self.geometry.lossy {
            medium.tell_losses(1);
        }
        self.held(medium)
    }

    /// A program outlives whoever has the pool open.
    fn held(&self, medium: Simulated) -> Simulated {
        if self.geometry.held {
            medium.hold(LENT_BYTES, LENT_BYTES);
        }
        medium
    }

    /// What a crash has left says this of its memory.
    pub(crate) fn as_left(&self, medium: Simulated) -> Simulated {
        if self.geometry.lossy {
            medium.tell_losses(2);
            medium.list_bad(self.geometry.bytes * 5 / 8 / PAGE_BYTES * PAGE_BYTES);
        }
        self.held(medium)
    }

    /// What a crash has left, for whoever looks at it.
    pub(crate) fn left(&self, image: &Pages) -> Simulated {
        self.as_left(Simulated::plain(image))
    }

    /// Data is in place.
    pub fn in_place(&self) -> bool {
        self.geometry.relaxed || self.geometry.mapped
    }

    /// A host; equal salts give equal random bits.
    pub fn host(&self, salt: u64) -> SchedHost {
        let seed = self.seed.wrapping_mul(1000) + salt;
        self.on_cpus(seed, self.geometry.lanes as usize)
    }

    /// A host of one CPU, as the machine may be that recovers.
    pub fn lone_host(&self) -> SchedHost {
        self.on_cpus(self.seed, 1)
    }

    fn on_cpus(&self, seed: u64, cpus: usize) -> SchedHost {
        SchedHost::from(
            TestHost::in_order(seed, cpus)
                .leaving_out(self.left_out)
                .noting(self.asked.clone())
                .with_nonces(self.geometry.nonces)
                .with_meetings(self.geometry.side_by_side.then_some(0)),
        )
    }

    /// What an operation owes when it has let go of everything: the fence of its transaction,
    /// where the rule that it fences first is left out.
    pub(super) fn fence_late(&self, pool: &SimulatedPool) {
        if self.left_out == Some(Rule::LocksToFence) {
            let fenced = pool.medium().fence();
            debug_assert_eq!(fenced, Ok(()), "a simulated fence does not fail");
        }
    }

    /// The times that are compared.
    pub fn times(&self) -> Times {
        // (Who writes side by side with others, or might, leaves the times as they are for a tick.)
        Times { changes: !self.geometry.side_by_side, access: !self.geometry.atime }
    }
}
