//! The scheduler finds what can go wrong between threads, all of it, and again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lock_api::{Mutex, RwLock};
use lode_crash::schedule::{
    Chooser, Job, Outcome, Plan, SchedMutex, SchedRwLock, Schedule, Schedules, Threads, current,
    point, run_scoped,
};

fn plan(preemptions: u32) -> Plan {
    Plan { preemptions, ..Plan::default() }
}

fn twice<T: Send + Sync + 'static>(shared: &Arc<T>, job: fn(&T)) -> Vec<Job<'static>> {
    let job = || {
        let shared = shared.clone();
        Box::new(move || job(&shared)) as Job<'static>
    };
    vec![job(), job()]
}

/// Runs two threads of the same job under all schedules of a plan.
fn explore<T: Default + Send + Sync + 'static>(
    plan: Plan,
    job: fn(&T),
    mut judge: impl FnMut(&T, &Outcome),
) -> Schedules {
    let mut threads = Threads::new(2);
    let mut schedules = Schedules::new(plan);
    while let Some(chooser) = schedules.next_run() {
        let shared = Arc::new(T::default());
        let outcome = threads.run(chooser, twice(&shared, job));
        judge(&shared, &outcome);
    }
    schedules
}

fn increment_unprotected(counter: &AtomicUsize) {
    let value = counter.load(Relaxed);
    point();
    counter.store(value + 1, Relaxed);
}

fn increment_locked(counter: &Mutex<SchedMutex, usize>) {
    let mut guard = counter.lock();
    let value = *guard;
    point();
    *guard = value + 1;
}

#[test]
fn a_lost_update_is_found() {
    let mut lost = 0;
    let schedules = explore(plan(1), increment_unprotected, |counter, outcome| {
        assert_eq!(outcome.failure(), None);
        lost += usize::from(counter.load(Relaxed) == 1);
    });
    assert!(schedules.is_exhaustive());
    assert_eq!((schedules.runs(), lost), (4, 2));
}

#[test]
fn no_update_is_lost_under_a_mutex() {
    let plan = Plan { random: 200, ..plan(4) };
    let schedules = explore(plan, increment_locked, |counter, outcome| {
        assert_eq!(outcome.failure(), None);
        assert_eq!(*counter.lock(), 2);
    });
    assert!(schedules.is_exhaustive());
}

fn two_points(_: &()) {
    point();
    point();
}

#[test]
fn every_schedule_within_the_bound_is_run_once() {
    // Two threads of three steps each: 6 over 3 = 20 orders. Cut where the thread changes, an
    // order of p pieces has p - 2 preemptions; by hand, 2, 4, 8, 4, 2 orders of 2 to 6 pieces.
    for (preemptions, expected) in [(0, 2), (1, 6), (2, 14), (3, 18), (4, 20), (9, 20)] {
        let mut seen = HashSet::new();
        let schedules = explore(plan(preemptions), two_points, |_, outcome| {
            assert_eq!(outcome.failure(), None);
            assert!(outcome.preemptions <= preemptions);
            assert!(seen.insert(outcome.schedule.clone()), "twice: {}", outcome.schedule);
        });
        assert!(schedules.is_exhaustive());
        assert_eq!(schedules.runs(), expected, "with {preemptions} preemptions");
    }
}

#[test]
fn a_budget_is_kept_and_random_schedules_follow() {
    let plan = Plan { preemptions: 4, budget: 7, random: 5, seed: 3 };
    let mut runs = 0;
    let schedules = explore(plan, two_points, |_, outcome| {
        assert_eq!(outcome.failure(), None);
        runs += 1;
    });
    assert!(!schedules.is_exhaustive());
    assert_eq!((schedules.runs(), runs), (12, 12));
}

#[derive(Default)]
struct Pair {
    first: Mutex<SchedMutex, ()>,
    second: Mutex<SchedMutex, ()>,
}

fn lock_in_own_order(pair: &Pair) {
    let (first, second) = match current() {
        Some(0) => (&pair.first, &pair.second),
        _ => (&pair.second, &pair.first),
    };
    let _first = first.lock();
    let _second = second.lock();
}

#[test]
fn a_deadlock_is_found_and_says_who_waits_for_what() {
    let mut found = Vec::new();
    explore(plan(1), lock_in_own_order, |pair, outcome| {
        found.extend(outcome.deadlock.clone().map(|text| (text, outcome.schedule.clone())));
        // All has been given back, whatever happened.
        assert!(pair.first.try_lock().is_some() && pair.second.try_lock().is_some());
    });
    assert!(!found.is_empty());
    for (text, schedule) in &found {
        for part in ["thread 0 waits for mutex #0", "thread 1 waits for mutex #1"] {
            assert!(text.contains(part), "{schedule}: {text}");
        }
        for part in ["held by thread 0", "held by thread 1", "suite/schedule.rs"] {
            assert!(text.contains(part), "{schedule}: {text}");
        }
    }
}

#[test]
fn a_thread_that_waits_for_itself_is_a_deadlock() {
    let twice = |lock: &RwLock<SchedRwLock, ()>| {
        let _read = lock.read();
        let _write = lock.write();
    };
    explore(plan(0), twice, |_, outcome| assert!(outcome.deadlock.is_some()));
}

#[test]
fn a_reader_that_reads_again_behind_a_writer_is_a_deadlock() {
    let job = |lock: &RwLock<SchedRwLock, ()>| {
        if current() == Some(1) {
            drop(lock.write());
        } else {
            let _outer = lock.read();
            let _inner = lock.read();
        }
    };
    let mut found = 0;
    explore(plan(1), job, |_, outcome| found += usize::from(outcome.deadlock.is_some()));
    assert!(found > 0);
}

#[test]
fn a_loop_without_end_is_given_up() {
    let job = |_: &()| {
        while current() == Some(0) {
            point();
        }
    };
    let mut threads = Threads::new(2);
    let outcome = threads.run(&mut Chooser::usual(), twice(&Arc::new(()), job));
    assert!(outcome.deadlock.unwrap().contains("no end after"));
}

#[test]
fn a_panic_is_reported_and_the_other_thread_goes_on() {
    let job = |lock: &Mutex<SchedMutex, usize>| {
        let mut count = lock.lock();
        *count += 1;
        assert!(current() != Some(0), "thread 0 fails");
    };
    explore(plan(2), job, |count, outcome| {
        assert_eq!(*count.lock(), 2);
        assert_eq!(outcome.panics.len(), 1);
        assert_eq!(outcome.panics[0].0, 0);
        assert!(outcome.panics[0].1.contains("thread 0 fails"));
    });
}

#[test]
fn the_same_schedule_gives_the_same_trace() {
    let mut runs = Vec::new();
    let plan = Plan { random: 20, ..plan(3) };
    explore(plan, increment_locked, |_, outcome| runs.push(outcome.clone()));
    let mut threads = Threads::new(2);
    for run in runs {
        let text = run.schedule.to_string();
        let mut chooser = Chooser::replay(text.parse::<Schedule>().unwrap());
        let shared = Arc::default();
        assert_eq!(threads.run(&mut chooser, twice(&shared, increment_locked)), run, "{text}");
        let borrowed = Mutex::new(0);
        let job = || Box::new(|| increment_locked(&borrowed)) as Job<'_>;
        let mut chooser = Chooser::replay(run.schedule.clone());
        assert_eq!(run_scoped(&mut chooser, vec![job(), job()]), run, "{text}, scoped");
    }
}

#[test]
fn a_schedule_of_another_program_is_noticed() {
    let mut threads = Threads::new(2);
    for text in ["0x3.1x70.0", "7"] {
        let mut chooser = Chooser::replay(text.parse().unwrap());
        let outcome = threads.run(&mut chooser, twice(&Arc::new(()), two_points));
        assert!(outcome.diverged && outcome.failure().is_some(), "{text}");
    }
}

#[derive(Default)]
struct Room {
    lock: RwLock<SchedRwLock, ()>,
    readers: AtomicUsize,
    writers: AtomicUsize,
    most: AtomicUsize,
}

/// Thread 2 writes, the others read; each tries once more without waiting.
fn visit(room: &Room) {
    let writes = current() == Some(2);
    let mine = if writes { &room.writers } else { &room.readers };
    let stay = || {
        mine.fetch_add(1, Relaxed);
        point();
        let (readers, writers) = (room.readers.load(Relaxed), room.writers.load(Relaxed));
        assert!(writers == 0 || (writers == 1 && readers == 0), "{readers} and {writers}");
        room.most.fetch_max(readers, Relaxed);
        mine.fetch_sub(1, Relaxed);
    };
    match writes {
        true => drop((room.lock.write(), stay())),
        false => drop((room.lock.read(), stay())),
    }
    match writes {
        true => drop(room.lock.try_write().map(|_guard| stay())),
        false => drop(room.lock.try_read().map(|_guard| stay())),
    }
}

#[test]
fn readers_share_and_writers_exclude() {
    let mut threads = Threads::new(3);
    let mut schedules = Schedules::new(plan(2));
    let mut most = 0;
    while let Some(chooser) = schedules.next_run() {
        let room = Arc::new(Room::default());
        let mut jobs = twice(&room, visit);
        jobs.extend(twice(&room, visit).pop());
        let outcome = threads.run(chooser, jobs);
        assert_eq!(outcome.failure(), None);
        most = most.max(room.most.load(Relaxed));
    }
    assert!(schedules.is_exhaustive());
    assert_eq!(most, 2);
}
