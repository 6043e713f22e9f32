//! A client that rests costs no processor time, however fast it has asked before. In a program of its own, whose time is counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::memory::Memory;
use common::{READ, Serving};

/// What this process has taken of all processors, in the system's ticks of 10 ms.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let behind_name = stat.rsplit(')').next().unwrap();
    // (User and system time are the 14th and the 15th field; the state, behind the name, is the third.)
    behind_name.split_whitespace().skip(11).take(2).map(|it| it.parse::<u64>().unwrap()).sum()
}

#[test]
fn who_has_asked_fast_and_rests_costs_no_time() {
    let serving = Serving::of(Memory::new(1 << 20));
    let mut client = serving.simple();
    for rest in [50, 1000] {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(100) {
            assert_eq!(client.simple(READ, 0, 0, 4096, b"").0, 0);
        }
        let before = ticks();
        std::thread::sleep(Duration::from_millis(rest));
        let taken = ticks() - before;
        assert!(taken <= 2, "{taken} ticks in {rest} ms");
    }
}
