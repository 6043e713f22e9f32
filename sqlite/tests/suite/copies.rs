//! Images of a pool as a power failure would leave it where the CPU's caches survive: copies that are made
//! while its process is stopped, at any instruction. Each is a pool whose databases are whole, with all
//! that had been said to be committed.

use std::fs;
use std::time::Duration;

use crate::common::bank::WAYS;
use crate::common::worker::{self, Worker};
use crate::common::{Place, PoolFile};
use lode::Pool;
use lode_testkit::rng::Rng;

/// Copies of each way.
const COPIES: usize = 6;

#[test]
fn a_copy_of_a_stopped_pool_has_all_that_was_committed() {
    let copies = std::env::var("LODE_COPIES")
        .map_or(COPIES, |text| text.parse::<usize>().unwrap().div_ceil(WAYS.len()));
    let file = PoolFile::new(64);
    let place = file.open();
    worker::prepare(&place);
    place.close();
    let copy = file.dir.path().join("copy");
    let mut bits = Rng::new(2);
    for (number, way) in WAYS.iter().enumerate() {
        let last = vec![0; way.writers() as usize];
        let mut worker = Worker::start(&file.path, number, &last);
        for at in 0..copies {
            worker.run(Duration::from_micros(bits.below(20_000)));
            worker.stop();
            fs::copy(&file.path, &copy).unwrap();
            let place = Place::over(Pool::open(&copy).unwrap());
            assert!(!place.pool.opening().unwrap().clean);
            worker::judge(&place, number, &worker.said, &format!("copy {at}"));
            place.close();
            worker.go_on();
        }
        worker.kill();
        // Its end is a crash, too: the next way begins with what that left.
        file.open().close();
    }
}
