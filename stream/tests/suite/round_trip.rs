//! What is received is what was sent: whole snapshots and differences, one after the other, whatever work lay between,
//! at every protection level of both pools.

use crate::common::{has, name, open, receive, source, stream, target};
use lode_testkit::rng::Rng;

/// A chain of snapshots, some of them left out.
fn chain(seed: u64, count: usize, steps: usize) {
    let (system, trees) = source(seed, count, steps);
    let memory = target(seed);
    let mut rng = Rng::new(seed);
    let mut older: Option<usize> = None;
    for (number, tree) in trees.iter().enumerate() {
        if number + 1 < count && rng.below(4) == 0 {
            continue;
        }
        let what = format!("seed {seed}: from {older:?} to {number}");
        let older_name = older.map(name);
        let bytes = stream(system.pool(), &name(number), older_name.as_deref());
        let again = stream(system.pool(), &name(number), older_name.as_deref());
        assert!(bytes == again, "{what}: another stream the second time");
        let pool = open(&memory, true).unwrap();
        assert!(!receive(&pool, &bytes, false).unwrap_or_else(|e| panic!("{what}: {e}")));
        has(&pool, &name(number), tree, &what);
        assert!(receive(&pool, &bytes, false).unwrap(), "{what}");
        if rng.below(2) == 0 {
            pool.close().unwrap();
        }
        older = Some(number);
    }
    // What was received can be sent on, and what was there before is kept.
    let pool = open(&memory, false).unwrap();
    let (last, first) = (count - 1, pool.snapshots().unwrap()[0].name.clone());
    let onward = target(seed + 1);
    let next = open(&onward, true).unwrap();
    receive(&next, &stream(&pool, &first, None), false).unwrap();
    if first != name(last) {
        receive(&next, &stream(&pool, &name(last), Some(&first)), false).unwrap();
    }
    has(&next, &name(last), &trees[last], &format!("seed {seed}: onward"));
    let ids = [&pool, &next, system.pool()].map(|pool| pool.snapshot_id(&name(last)).unwrap());
    assert!(ids.iter().all(|id| *id == ids[0]));
}

#[test]
fn snapshots_and_differences_arrive_as_they_were_sent() {
    let count = std::env::var("LODE_STREAM_SEEDS").ok().and_then(|it| it.parse().ok());
    let (count, next) = (count.unwrap_or(120), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= count {
                        return;
                    }
                    chain(seed, 5, [12, 40, 90][seed as usize % 3]);
                }
            });
        }
    });
}
