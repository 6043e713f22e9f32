//! Waiting for some nanoseconds, precisely.
//!
//! What this file guarantees: a wait never ends early, and ends a few nanoseconds late, unless the
//! thread lost its processor meanwhile; times of all threads can be compared.

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use std::sync::OnceLock;
use std::time::Duration;

/// Counts ticks: the time-stamp counter where it goes evenly and alike on all processors, else nanoseconds of
/// the system's monotonic clock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Clock {
    source: Source,
    pub(super) ticks_per_ns: f64,
    /// A wait that is longer looks less often, and leaves more to the other half of the core.
    long_ticks: u64,
    /// What is left of a wait when to look once more could take more than that: turns of an empty loop take it.
    near_ticks: u64,
    /// Of such turns, in [`TURN_TICKS`] ticks.
    turns: u64,
    /// What a delay takes more than it is told to.
    surplus_ticks: u64,
}

/// A power of two.
const TURN_TICKS: u64 = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    TimeStampCounter,
    System,
}

impl Clock {
    /// The best that this machine has; measured once, for some milliseconds.
    pub(crate) fn get() -> Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(|| match counter_is_steady() {
            true => Self::calibrated(Source::TimeStampCounter, counter_ticks_per_ns()),
            false => Self::calibrated(Source::System, 1.0),
        })
    }

    /// The same, its own looks and turns measured now, for less than a millisecond: a processor that shares its core
    /// with somebody else's changes its speed, and what was measured once while it was slow is wrong for good.
    pub(super) fn measured_anew() -> Self {
        let once = Self::get();
        Self::calibrated(once.source, once.ticks_per_ns)
    }

    /// Ticks of so many nanoseconds.
    pub(super) fn ticks(self, ns: f64) -> u64 {
        (ns * self.ticks_per_ns) as u64
    }

    /// For [`Clock::delay`], so that it takes `ns` nanoseconds with all that it does itself; `None` where
    /// no delay at all is nearer to that.
    pub(super) fn ticks_to_delay(self, ns: f64) -> Option<u64> {
        let ticks = self.ticks(ns);
        (ticks > self.surplus_ticks / 2).then(|| ticks.saturating_sub(self.surplus_ticks))
    }

    /// Now, more or less: the processor may look while instructions before this are under way.
    #[inline]
    pub(crate) fn now(self) -> u64 {
        match self.source {
            Source::TimeStampCounter => counter(),
            Source::System => system_ns(),
        }
    }

    /// Now that all instructions before this are done, loads among them.
    #[inline]
    fn now_after_all(self) -> u64 {
        // SAFETY: every x86-64 CPU has it; it touches nothing.
        unsafe { asm!("lfence", options(nostack, preserves_flags)) };
        self.now()
    }

    /// Waits for so many ticks, once all instructions before this are done.
    #[inline(never)]
    pub(super) fn delay(self, ticks: u64) {
        self.wait(self.now_after_all().saturating_add(ticks));
    }

    /// Returns at `until`, or at once if that was before.
    #[inline]
    pub(crate) fn wait(self, until: u64) {
        loop {
            let now = self.now();
            if now >= until {
                return;
            }
            let left = until - now;
            if left > self.long_ticks {
                core::hint::spin_loop();
            } else if left <= self.near_ticks {
                // (A little more, or another look would be needed for a tick or two.)
                turn((left + left / 16 + 2) * self.turns / TURN_TICKS);
            }
        }
    }

    /// With what a look takes, and a turn.
    fn knowing_its_looks(self) -> Self {
        const ROUNDS: u64 = 40;
        const LOOKS: u64 = 20;
        const TURNS: u64 = 4000;
        let least = |work: &dyn Fn()| {
            let round = |_| {
                let start = self.now_after_all();
                work();
                self.now_after_all().saturating_sub(start)
            };
            (0..ROUNDS).map(round).min().unwrap_or(0)
        };
        let look = |_| {
            std::hint::black_box(self.now());
        };
        let look_ticks = least(&|| (0..LOOKS).for_each(look)) / LOOKS;
        let turns = TURNS * TURN_TICKS / least(&|| turn(TURNS)).max(1);
        Self { near_ticks: look_ticks * 3 / 2, turns, ..self }
    }

    fn calibrated(source: Source, ticks_per_ns: f64) -> Self {
        const ROUNDS: usize = 40;
        const WAITS: u64 = 20;
        const WAIT_NS: f64 = 200.0;
        const LONG_WAIT_NS: f64 = 1000.0;
        let long_ticks = (LONG_WAIT_NS * ticks_per_ns) as u64;
        let looking =
            Self { source, ticks_per_ns, long_ticks, near_ticks: 0, turns: 0, surplus_ticks: 0 };
        let clock = looking.knowing_its_looks();
        let wait_ticks = clock.ticks(WAIT_NS);
        let mut rounds = [0; ROUNDS];
        for round in &mut rounds {
            let start = clock.now_after_all();
            for _ in 0..WAITS {
                clock.delay(wait_ticks);
            }
            *round = clock.now_after_all().saturating_sub(start) / WAITS;
        }
        rounds.sort_unstable();
        // Among the rounds that nothing disturbed: on a busy machine they are the fewest.
        let typical = rounds.get(ROUNDS / 8).copied().unwrap_or(0);
        Self { surplus_ticks: typical.saturating_sub(wait_ticks), ..clock }
    }
}

/// Does nothing so many times: takes about a cycle each.
#[inline(never)]
fn turn(turns: u64) {
    // SAFETY: it touches nothing but its own register.
    unsafe {
        asm!("2: dec {n}", "jnz 2b", n = inout(reg) turns.max(1) => _, options(nostack, nomem));
    }
}

#[inline]
fn counter() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: every x86-64 CPU has it; Linux lets programs use it unless they asked to be stopped.
    unsafe {
        asm!("rdtsc", out("eax") low, out("edx") high,
             options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

fn system_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: takes a pointer to a value that it fills.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Whether the CPU says that the counter goes evenly, and the kernel has not found it out of step.
fn counter_is_steady() -> bool {
    const LEAF_EXTENDED_MOST: u32 = 0x8000_0000;
    const LEAF_POWER: u32 = 0x8000_0007;
    const POWER_EDX_INVARIANT_TSC: u32 = 1 << 8;
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 CPU has cpuid and its first extended leaf; the other if that says so.
    let is_invariant = unsafe {
        __cpuid(LEAF_EXTENDED_MOST).eax >= LEAF_POWER
            && __cpuid(LEAF_POWER).edx & POWER_EDX_INVARIANT_TSC != 0
    };
    const SOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    is_invariant
        && std::fs::read_to_string(SOURCES)
            .is_ok_and(|sources| sources.split_whitespace().any(|source| source == "tsc"))
}

/// How fast the counter goes, by the system's clock.
fn counter_ticks_per_ns() -> f64 {
    const MEASURED_FOR: Duration = Duration::from_millis(4);
    let (ticks, ns) = both();
    std::thread::sleep(MEASURED_FOR);
    let (ticks_later, ns_later) = both();
    let (ticks, ns) = (ticks_later.wrapping_sub(ticks), ns_later.wrapping_sub(ns));
    ticks as f64 / ns.max(1) as f64
}

/// Counter and clock at one time: the pair that took least to read.
fn both() -> (u64, u64) {
    const TRIES: usize = 20;
    let pairs = (0..TRIES).map(|_| {
        let before = counter();
        let ns = system_ns();
        let took = counter().wrapping_sub(before);
        (took, before.wrapping_add(took / 2), ns)
    });
    pairs.min().map_or((0, 0), |(_, ticks, ns)| (ticks, ns))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// The least that a wait of so many ticks took, by the system's clock; none at all where there are none.
    fn took_ns(clock: Clock, wait_ticks: Option<u64>) -> f64 {
        const WAITS: u32 = 100;
        let Some(wait_ticks) = wait_ticks else { return 0.0 };
        let rounds = (0..200).map(|_| {
            let start = Instant::now();
            for _ in 0..WAITS {
                clock.delay(wait_ticks);
            }
            (start.elapsed() / WAITS).as_nanos() as f64
        });
        rounds.fold(f64::MAX, f64::min)
    }

    /// How a clock waits otherwise than it was told to, if it does.
    fn wrong_wait(clock: Clock) -> Option<String> {
        assert_eq!(clock.ticks_to_delay(0.0), None);
        // A delay asks twice, which the system's clock takes 15 ns each for, or 45 on some days: what is nearer to none than to that is none.
        let least_ns = took_ns(clock, Some(0));
        [40.0, 150.0, 1000.0, 20_000.0].into_iter().find_map(|ns| {
            let took = took_ns(clock, clock.ticks_to_delay(ns));
            let most = f64::max(30.0, least_ns / 2.0 + 10.0) + ns / 100.0;
            let words = || format!("{clock:?}: {ns} ns took {took} ns, and {least_ns} at least");
            ((took - ns).abs() > most).then(words)
        })
    }

    #[test]
    fn waits_by_either_clock_are_right_to_some_nanoseconds() {
        /// A processor that shares its core with somebody else's may be half as fast a moment after it was measured.
        const TRIES: usize = 20;
        let counter = || Clock::calibrated(Source::TimeStampCounter, counter_ticks_per_ns());
        let system = || Clock::calibrated(Source::System, 1.0);
        let clocks: [&dyn Fn() -> Clock; 2] =
            [if counter_is_steady() { &counter } else { &system }, &system];
        for measured in clocks {
            let wrong: Vec<String> = (0..TRIES).map_while(|_| wrong_wait(measured())).collect();
            assert!(wrong.len() < TRIES, "{wrong:#?}");
        }
    }

    #[test]
    fn a_wait_never_ends_early() {
        let clock = Clock::get();
        for ticks in [0, 1, 100, 1000, 10_000] {
            let until = clock.now() + ticks;
            clock.wait(until);
            assert!(clock.now() >= until);
        }
    }
}
