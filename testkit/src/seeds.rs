//! Seeds, shared out to threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::run::panic_text;

/// How many seeds are tried: what the variable of the environment says, else as many as usual.
pub fn count(variable: &str, usual: u64) -> u64 {
    let said = std::env::var(variable).ok();
    said.map_or(usual, |said| said.parse().unwrap_or_else(|_| panic!("{variable}: {said:?}")))
}

/// Tries each seed below `count` once, on all processors; the sum of what they come to. Who panics ends all, and is named.
pub fn sum(count: u64, of: impl Fn(u64) -> u64 + Sync) -> u64 {
    let (next, all) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= count {
                return;
            }
            match catch_unwind(AssertUnwindSafe(|| of(seed))) {
                Ok(one) => all.fetch_add(one, Relaxed),
                Err(payload) => {
                    // (Nobody begins another one.)
                    next.store(count, Relaxed);
                    panic!("seed {seed}: {}", panic_text(payload.as_ref()));
                }
            };
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            if let Err(payload) = worker.join() {
                std::panic::resume_unwind(payload);
            }
        }
    });
    all.into_inner()
}

/// The same, of what comes to nothing.
pub fn each(count: u64, of: impl Fn(u64) + Sync) {
    sum(count, |seed| {
        of(seed);
        0
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn each_seed_is_tried_once_and_one_that_fails_is_named() {
        let seen = Mutex::new(BTreeSet::new());
        let all = sum(1000, |seed| {
            assert!(seen.lock().insert(seed));
            seed
        });
        assert_eq!((all, seen.lock().len()), (999 * 1000 / 2, 1000));
        each(0, |seed| panic!("{seed}"));
        let failed = catch_unwind(|| each(1 << 40, |seed| assert!(seed != 77, "not this one")));
        let text = panic_text(failed.unwrap_err().as_ref());
        assert!(text.contains("seed 77") && text.contains("not this one"), "{text}");
        assert_eq!(count("LODE_NO_SUCH_VARIABLE", 7), 7);
    }
}
