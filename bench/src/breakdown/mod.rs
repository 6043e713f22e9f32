//! `--breakdown`: what the time of an operation of the engine goes into.
//!
//! What the medium costs can't be seen by looking at where a thread is: stores go on while it does
//! other things, and a processor may wait for them anywhere. So fences are left out in every second
//! turn, and data too in every third: what the operation takes less is what they cost. What is left
//! is the engine's own work. Of that, a timer looks at the thread many thousand times a second: a
//! sample is of the part in whose code the instruction pointer is, which the program's line tables
//! tell, those of inlined functions too. Nothing is added to the engine. `levels` compares protection levels so.

pub mod levels;
mod parts;
mod sampler;

use std::cell::Cell as Slot;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use lode_pmem::{LINE_BYTES, Line, Mapped, MediaError, Medium, Profile, RegionOptions};

use rustix::time::{ClockId, clock_gettime};

use crate::calls::Calls;
use crate::medium::Way;
use crate::plan::Cell;
use crate::report::Breakdown;
use crate::stats::{Histogram, median};
use crate::subject::InEngine;
use crate::worker::{Until, Worker, watched};
use crate::workload::{Mode, Stage, Workload, by_id, workers};
use parts::{Part, part_at};
use sampler::{Sampler, count, marked, take};

/// The operations that are looked into.
pub const WORKLOADS: [&str; 8] = [
    "append-4k",
    "overwrite-4k",
    "overwrite-512",
    "read-4k",
    "create",
    "unlink",
    "create-unlink",
    "rename",
];

/// Bytes of the pool.
pub const POOL: u64 = 768 << 20;
/// Between two looks: no multiple of what else goes on, and so seldom that looking is a few hundredths.
const EVERY: Duration = Duration::from_micros(47);
/// Turns of each operation, each of one with all of it, one without fences, one without data, and one
/// of that kind that is looked at.
const ROUNDS: usize = 7;
/// How long a turn is.
const SLICE: Duration = Duration::from_millis(200);
/// In a quick run.
const SLICE_QUICK: Duration = Duration::from_millis(30);
/// Before it counts.
const WARM_UP: Duration = Duration::from_millis(20);

/// Only one can look at a time: marks and samples are the process's.
#[cfg(test)]
static ONE_AT_A_TIME: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// A medium that leaves out what it is told to, and marks what is a part of its own.
pub struct Spared;

/// What it leaves out: only one thread works on it, that which says so.
static LEVEL: AtomicU8 = AtomicU8::new(0);
/// Nothing; fences; fences and data.
const LEVELS: [u8; 3] = [0, 1, 2];

type Window = <Mapped as Medium>::Window;

/// Whether bytes are of those that workloads write: what the engine stores by itself in pieces
/// (tables that are made empty) is zeros, and has to be there.
#[inline]
fn is_data<const N: usize>(pieces: &[[u8; N]]) -> bool {
    pieces.first().and_then(|piece| piece.first()).is_some_and(|byte| *byte != 0)
}

#[inline]
fn no_data() -> bool {
    LEVEL.load(Relaxed) >= 2
}

impl Way for Spared {
    type Notes = ();

    #[inline]
    fn load(&self, under: &Mapped, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        if into.len() <= LINE_BYTES {
            // A name or a link: looking something up.
            return marked(Part::Index.mark(), || under.load(at, into));
        }
        if no_data() { Ok(()) } else { under.load(at, into) }
    }

    #[inline]
    fn store_line(&self, under: &Mapped, to: (&mut Window, &mut ()), at: u64, line: &Line) {
        marked(Part::Record.mark(), || under.store_line(to.0, at, line));
    }

    #[inline]
    fn store_lines(
        &self,
        under: &Mapped,
        to: (&mut Window, &mut ()),
        at: u64,
        lines: &[[u8; LINE_BYTES]],
    ) {
        if !(no_data() && is_data(lines)) {
            under.store_lines(to.0, at, lines);
        }
    }

    #[inline]
    fn store_words(&self, under: &Mapped, to: (&mut Window, &mut ()), at: u64, words: &[[u8; 8]]) {
        if !(no_data() && is_data(words)) {
            under.store_words(to.0, at, words);
        }
    }

    #[inline]
    fn write_back(&self, under: &Mapped, to: (&mut Window, &mut ()), at: u64) {
        if !no_data() {
            under.write_back(to.0, at);
        }
    }

    #[inline]
    fn fence(&self, under: &Mapped) -> Result<(), MediaError> {
        if LEVEL.load(Relaxed) == 0 { under.fence() } else { Ok(()) }
    }
}

/// How it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Be done soon.
    pub quick: bool,
    /// The medium to be emulated, if any.
    pub emulate: Option<Profile>,
}

impl Settings {
    /// How long a turn is.
    fn slice(&self) -> Duration {
        if self.quick { SLICE_QUICK } else { SLICE }
    }
}

/// Looks into these operations until nobody wants more.
///
/// # Errors
/// Where the engine fails, or the system has no timer for it.
pub fn measure(
    ids: &[&'static Workload],
    settings: &Settings,
    is_over: &dyn Fn(&str) -> bool,
) -> io::Result<Vec<Breakdown>> {
    let options = RegionOptions { emulate: settings.emulate, ..RegionOptions::new() };
    let region = Arc::new(Mapped::anonymous(POOL, &options).map_err(io::Error::other)?);
    let mut stage = Stage::new(InEngine::new(&region, POOL, Spared)?);
    let mut parts = HashMap::new();
    let mut all = Vec::new();
    for workload in ids {
        if is_over(workload.id) {
            break;
        }
        let Some(mut worker) = one_thread(&mut stage, workload)? else { continue };
        let how = (settings.slice(), &LEVELS[..]);
        all.push(look_into((workload, ENGINE), worker.as_mut(), how, &mut parts)?);
    }
    Ok(all)
}

/// Whose operations are looked into.
const ENGINE: &str = "lode-engine";

/// One thread that does this, ready to start; none where nobody does.
fn one_thread<C: Calls>(
    stage: &mut Stage<C>,
    workload: &'static Workload,
) -> io::Result<Option<Box<dyn Worker>>> {
    let cell = Cell { workload, threads: 1, mode: Mode::Private };
    Ok(workers(stage, &cell)?.and_then(|threads| threads.into_iter().next()))
}

/// What can be looked into of what was asked for: all of it where nothing was.
pub fn chosen(asked: &[&'static Workload]) -> Vec<&'static Workload> {
    let is_asked =
        |one: &&Workload| asked.is_empty() || asked.iter().any(|other| other.id == one.id);
    WORKLOADS.iter().filter_map(|id| by_id(id)).filter(is_asked).collect()
}

thread_local! {
    /// Processor time that this thread had when what is timed began, and had in all of it.
    static BEGAN: Slot<Duration> = const { Slot::new(Duration::ZERO) };
    static BUSY: Slot<Duration> = const { Slot::new(Duration::ZERO) };
}

/// Told when what is timed begins, and when it ends.
fn clock(on: bool) {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let now = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32);
    if on {
        BEGAN.set(now);
    } else {
        BUSY.set(BUSY.get() + now.saturating_sub(BEGAN.get()));
    }
}

/// Works for a while, somebody being told of what is timed; returns the operations.
fn work(worker: &mut dyn Worker, busy: Duration, told: fn(bool)) -> io::Result<u64> {
    let stop = AtomicBool::new(false);
    // None is timed by itself: that would be a part of what is looked into.
    let until = Until { busy, every: 1024, clock_ns: 0, stop: &stop };
    let slice = watched(told, || worker.slice(&until, &mut Histogram::new()))?;
    Ok(slice.operations.max(1))
}

/// The processor time of an operation: differences are small, and others may want the processor.
fn time_of_one(worker: &mut dyn Worker, busy: Duration) -> io::Result<f64> {
    BUSY.set(Duration::ZERO);
    let operations = work(worker, busy, clock)?;
    Ok(BUSY.get().as_secs_f64() * 1e9 / operations as f64)
}

/// Looks into an operation of somebody: turns of so long, with more and more left out. Samples are taken where all
/// of that is.
fn look_into(
    (workload, subject): (&Workload, &str),
    worker: &mut dyn Worker,
    (slice, left_out): (Duration, &[u8]),
    known: &mut HashMap<usize, Part>,
) -> io::Result<Breakdown> {
    time_of_one(worker, WARM_UP)?;
    take();
    let mut times = vec![Vec::new(); left_out.len()];
    let last = left_out.last().copied().unwrap_or_default();
    for _ in 0..ROUNDS {
        for (level, times) in left_out.iter().zip(&mut times) {
            times.push(at_level(*level, || time_of_one(worker, slice))?);
        }
        let sampler = Sampler::start(EVERY)?;
        at_level(last, || work(worker, slice, count))?;
        drop(sampler);
    }
    let seen = take();
    let mut counts = [0_u64; Part::ALL.len()];
    for (part, found) in Part::ALL.iter().zip(&mut counts) {
        *found = seen.marks.get(usize::from(part.mark())).copied().unwrap_or_default();
    }
    for pointer in &seen.pointers {
        let part = *known.entry(*pointer).or_insert_with(|| part_at(*pointer));
        if let Some(found) = counts.get_mut(part as usize) {
            *found += 1;
        }
    }
    let times: Vec<f64> = times.iter().map(|times| median(times)).collect();
    Ok(told((workload, subject), &times, &counts))
}

/// Does `work` while that is left out.
fn at_level<R>(level: u8, work: impl FnOnce() -> R) -> R {
    LEVEL.store(level, Relaxed);
    let done = work();
    LEVEL.store(0, Relaxed);
    done
}

/// Times are those of all of it, of it without fences, and without data where that was left out, too.
fn told(
    (workload, subject): (&Workload, &str),
    times: &[f64],
    counts: &[u64; Part::ALL.len()],
) -> Breakdown {
    let [whole, no_fences, least] =
        [0, 1, times.len().max(1) - 1].map(|at| times.get(at).copied().unwrap_or_default());
    // (Noise can make the less the more.)
    let fences_ns = (whole - no_fences).max(0.0);
    let copy_ns = (whole - fences_ns - least).max(0.0);
    let own = whole - fences_ns - copy_ns;
    let samples: u64 = counts.iter().sum();
    let [copied, _, allocation_ns, index_ns, record_ns, checksums_ns, second_copies_ns, _] =
        counts.map(|count| own * count as f64 / samples.max(1) as f64);
    let known = copied + allocation_ns + index_ns + record_ns + checksums_ns + second_copies_ns;
    Breakdown {
        workload: workload.id.to_owned(),
        subject: subject.to_owned(),
        ns_per_op: whole,
        samples,
        copy_ns: copy_ns + copied,
        fences_ns,
        allocation_ns,
        index_ns,
        record_ns,
        checksums_ns,
        second_copies_ns,
        rest_ns: own - known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: &'static str, medium: Profile) -> Breakdown {
        let settings = Settings { quick: true, emulate: Some(medium) };
        let all = measure(&[by_id(id).unwrap()], &settings, &|_| false).unwrap();
        let [one] = <[Breakdown; 1]>::try_from(all).unwrap();
        let sum: f64 = one.parts().iter().map(|(_, ns)| ns).sum();
        assert!((sum / one.ns_per_op - 1.0).abs() < 1e-6, "{one:?}");
        assert!(one.samples > 100, "{one:?}");
        one
    }

    #[test]
    fn the_engines_work_goes_into_what_it_is_made_of() {
        let _alone = ONE_AT_A_TIME.lock();
        let append = found("append-4k", Profile::default());
        assert!(append.allocation_ns > 0.0 && append.index_ns > 0.0, "{append:?}");
        assert!(append.record_ns > append.ns_per_op * 0.01, "{append:?}");
        let rename = found("rename", Profile::default());
        assert!(rename.index_ns > rename.ns_per_op * 0.01, "{rename:?}");
        assert!(rename.record_ns > rename.ns_per_op * 0.01, "{rename:?}");
    }

    #[test]
    fn a_slow_medium_is_seen_where_it_is_waited_for() {
        let _alone = ONE_AT_A_TIME.lock();
        let rename = found("rename", Profile { fence_ns: 500_000, ..Profile::default() });
        assert!(rename.fences_ns > rename.ns_per_op * 0.9, "{rename:?}");
        let read = found("read-4k", Profile { read_ns: 2000, ..Profile::default() });
        assert!(read.copy_ns > read.ns_per_op * 0.8, "{read:?}");
        assert!(read.fences_ns < read.ns_per_op * 0.1, "{read:?}");
    }

    #[test]
    fn noise_makes_no_part_negative() {
        let workload = by_id("append-4k").unwrap();
        for times in [[100.0, 110.0, 90.0], [100.0, 60.0, 70.0], [100.0, 120.0, 130.0]] {
            let one = told((workload, ENGINE), &times, &[0, 0, 1, 2, 3, 0, 0, 4]);
            let sum: f64 = one.parts().iter().map(|(_, ns)| ns).sum();
            assert!((sum - 100.0).abs() < 1e-6, "{one:?}");
            assert!(one.parts().iter().all(|(_, ns)| *ns >= 0.0), "{one:?}");
        }
        let one = told((workload, ENGINE), &[100.0, 70.0, 20.0], &[0, 0, 1, 1, 1, 0, 0, 1]);
        assert_eq!(one.parts().map(|(_, ns)| ns), [50.0, 30.0, 5.0, 5.0, 5.0, 0.0, 0.0, 5.0]);
        let one = told((workload, ENGINE), &[100.0, 80.0], &[3, 0, 0, 0, 1, 2, 1, 1]);
        assert_eq!(one.parts().map(|(_, ns)| ns), [30.0, 20.0, 0.0, 0.0, 10.0, 20.0, 10.0, 10.0]);
    }

    #[test]
    fn who_wants_no_more_gets_what_there_is() {
        let settings = Settings { quick: true, emulate: None };
        assert_eq!(measure(&chosen(&[]), &settings, &|_| true).unwrap(), []);
        assert_eq!(chosen(&[]).len(), WORKLOADS.len());
        let asked = chosen(&[by_id("rename").unwrap(), by_id("stat").unwrap()]);
        assert_eq!(asked.iter().map(|one| one.id).collect::<Vec<_>>(), ["rename"]);
    }
}
