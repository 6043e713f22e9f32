//! What is received is what was sent: whole snapshots and differences, one after the other, whatever work lay between,
//! at every protection level of both pools.

use crate::common::{TestPool, has, name, open, receive, source, stream, target};
use lode_engine::Protection;
use lode_testkit::rng::Rng;
use lode_testkit::system::PoolSystem;
use lode_testkit::{TestHost, seeds};

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
    seeds::each(seeds::count("LODE_STREAM_SEEDS", 120), |seed| {
        chain(seed, 5, [12, 40, 90][seed as usize % 3]);
    });
}

/// Gives a pool the level `full`.
fn raise(system: &mut PoolSystem) {
    system.pool().close().unwrap();
    let memory = system.memory().copy();
    let raised =
        TestPool::protect(memory.clone(), TestHost::new(5), Protection::Full, 0, &mut |_, _| ());
    assert_eq!(raised, Ok(true));
    system.take(memory).unwrap();
}

/// Whoever has an older snapshot from before gets what differs, and not all that lies elsewhere now.
#[test]
fn a_pool_that_got_a_higher_level_sends_the_differences_that_it_would_have_sent() {
    let (mut raised, count) = (0, 4);
    for seed in 0..40 {
        let (mut system, trees) = source(seed, count, 40);
        if system.pool().info().unwrap().protection == Protection::Full {
            continue;
        }
        let streams = |system: &PoolSystem| -> Vec<Vec<u8>> {
            let older = |number: usize| number.checked_sub(1).map(name);
            let of = |number| stream(system.pool(), &name(number), older(number).as_deref());
            (0..count).map(of).collect()
        };
        let before = streams(&system);
        raise(&mut system);
        raised += 1;
        let after = streams(&system);
        let pool = open(&target(seed), true).unwrap();
        for (number, tree) in trees.iter().enumerate() {
            let what = format!("seed {seed}, snapshot {number}");
            // The first half came before.
            let bytes = if number < count / 2 { &before[number] } else { &after[number] };
            assert!(!receive(&pool, bytes, false).unwrap_or_else(|e| panic!("{what}: {e}")));
            has(&pool, &name(number), tree, &what);
            assert!(
                before[number] == after[number],
                "{what}: {} bytes, now {}",
                before[number].len(),
                after[number].len()
            );
        }
    }
    assert!(raised > 10, "{raised}");
}
