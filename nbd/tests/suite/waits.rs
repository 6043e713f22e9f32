//! Whether the server's threads look on for who asks one request at a time.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::memory::Memory;
use crate::common::*;
use lode_nbd::Waits;

const REQUESTS: u64 = 2000;
/// Between two looks in vain are twice as many sleeps as between the last two: of so many waits so many are looks at least.
const LOOKS_LEAST: u64 = 10;

/// What came of a client's requests, each of which follows the reply to the last.
fn asked_one_at_a_time(serving: &Serving, client: &mut Client, requests: u64) -> Waits {
    for number in 0..requests {
        let (error, bytes) = client.simple(READ, 0, number % 16 * 4096, 4096, b"");
        assert_eq!((error, bytes.len()), (0, 4096));
    }
    serving.server().waits()
}

/// Not a matter of time: whatever comes late, so often is looked.
#[test]
fn who_asks_one_request_at_a_time_is_looked_for() {
    let serving = Serving::of(Memory::new(1 << 20));
    let before = serving.server().waits();
    assert_eq!((before.paid, before.in_vain), (0, 0), "nobody has asked for anything");
    let mut client = serving.simple();
    let waits = asked_one_at_a_time(&serving, &mut client, REQUESTS);
    let looks = waits.paid + waits.in_vain;
    assert!(looks >= LOOKS_LEAST, "{waits:?}");
    // (The last wait may not have begun; the handshake's are not of requests.)
    let all = looks + waits.slept;
    assert!((REQUESTS - 1..REQUESTS + 16).contains(&all), "{waits:?}");
}

/// What comes while it is looked for is found. (Beside other programs that may take a while.)
#[test]
fn looks_pay_where_there_is_a_processor_for_who_asks() {
    if thread::available_parallelism().is_ok_and(|all| all.get() < 2) {
        println!("skipped: there is one processor, on which nobody asks while others look");
        return;
    }
    let serving = Serving::of(Memory::new(1 << 20));
    let mut client = serving.simple();
    let begin = Instant::now();
    loop {
        let waits = asked_one_at_a_time(&serving, &mut client, REQUESTS);
        if waits.paid > 0 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{waits:?}");
    }
}
