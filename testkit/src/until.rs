//! Waiting for what others do.

use std::time::{Duration, Instant};

const AT_MOST: Duration = Duration::from_secs(60);

/// Waits until something is so: a minute at most, then the test fails.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + AT_MOST;
    while !is_so() {
        assert!(Instant::now() < end, "it never came so");
        std::thread::sleep(Duration::from_millis(2));
    }
}
