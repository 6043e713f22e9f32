//! A process that works on databases in a pool is killed at any moment: each transaction that it had said
//! was committed is there, each is there wholly or not at all, with every journal that SQLite keeps
//! and every `synchronous`.

use std::time::Duration;

use crate::common::PoolFile;
use crate::common::bank::WAYS;
use crate::common::worker::{self, Worker};
use lode_testkit::rng::Rng;

/// Kills of each way.
const KILLS: usize = 12;

#[test]
fn what_was_committed_is_there_after_a_kill() {
    let kills =
        std::env::var("LODE_KILLS").map_or(KILLS * WAYS.len(), |text| text.parse().unwrap());
    let file = PoolFile::new(96);
    let place = file.open();
    worker::prepare(&place);
    place.close();
    let mut last: Vec<Vec<u64>> = WAYS.iter().map(|way| vec![0; way.writers() as usize]).collect();
    let mut bits = Rng::new(1);
    let (mut hot, mut unclean) = (0, 0);
    for kill in 0..kills {
        let way = kill % WAYS.len();
        let mut worker = Worker::start(&file.path, way, &last[way]);
        worker.run(Duration::from_micros(bits.below(30_000)));
        let said = worker.kill();

        let place = file.open();
        unclean += usize::from(!place.pool.opening().unwrap().clean);
        // What SQLite will have to undo.
        let journal = place.pool.read(format!("/{}-journal", worker::database(way)));
        hot += usize::from(journal.is_ok_and(|bytes| bytes.first() == Some(&0xd9)));
        last[way] = worker::judge(&place, way, &said, &format!("kill {kill}"));
        place.close();
    }
    println!("{kills} kills, {hot} of them with a hot journal; transactions: {last:?}");
    assert_eq!(unclean, kills);
    assert!(hot > 0, "no kill came in the middle of a transaction");
    // A second look at all of them: nothing that came later has harmed what was there.
    let place = file.open();
    for (way, last) in last.iter().enumerate() {
        assert_eq!(&worker::judge(&place, way, last, "at the end"), last);
    }
}
