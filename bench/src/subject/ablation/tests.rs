//! What each way does, instruction by instruction, and that the engine works with it.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::plan::cells;
use crate::stats::Histogram;
use crate::worker::Until;
use crate::workload::Mode;

/// Writes down what it is asked for.
#[derive(Default)]
struct Noted(Mutex<String>);

impl Noted {
    fn note(&self, letter: char) {
        self.0.lock().unwrap().push(letter);
    }
}

impl Medium for Noted {
    type Window = ();
    fn bytes(&self) -> u64 {
        BYTES + TAILS
    }
    fn open(&self) {}
    fn close(&self, _window: &mut ()) {}
    fn load_word(&self, _at: u64) -> std::result::Result<u64, MediaError> {
        Ok(0)
    }
    fn load(&self, _at: u64, _into: &mut [u8]) -> std::result::Result<(), MediaError> {
        Ok(())
    }
    fn store_word(&self, _window: &mut (), _at: u64, _value: u64) {
        self.note('c');
    }
    fn store_bytes(&self, _window: &mut (), _at: u64, _bytes: &[u8]) {
        self.note('b');
    }
    fn store_line(&self, _window: &mut (), _at: u64, _line: &Line) {
        self.note('L');
    }
    fn store_lines(&self, _window: &mut (), _at: u64, _lines: &[[u8; LINE_BYTES]]) {
        self.note('D');
    }
    fn stream_word(&self, _window: &mut (), at: u64, _value: u64) {
        self.note(if at >= BYTES { 't' } else { 'w' });
    }
    fn write_back(&self, _window: &mut (), _at: u64) {
        self.note('B');
    }
    fn fence(&self) -> std::result::Result<(), MediaError> {
        self.note('F');
        Ok(())
    }
}

/// Some operations of each.
fn slice(workers: &mut [Box<dyn Worker>]) -> u64 {
    let mut operations = 0;
    for worker in workers {
        for busy in [0, 20] {
            let (stop, busy) = (AtomicBool::new(busy == 0), Duration::from_millis(busy));
            let until = Until { busy, every: 1, clock_ns: 0, stop: &stop };
            operations += worker.slice(&until, &mut Histogram::new()).unwrap().operations;
        }
    }
    operations
}

/// The instructions of one operation.
fn of(workload: &str, how: How) -> String {
    let noted = Arc::new(Noted::default());
    let way = Another { how, tails: BYTES };
    let door = Arc::new(Door::new(Wrapped::new(&noted, BYTES, way)));
    let mut worker = looping(&door, by_id(workload).unwrap(), 0).unwrap();
    let stop = AtomicBool::new(true);
    let until = Until { busy: Duration::ZERO, every: 1, clock_ns: 0, stop: &stop };
    assert_eq!(worker.slice(&until, &mut Histogram::new()).unwrap().operations, 1);
    std::mem::take(&mut noted.0.lock().unwrap())
}

#[test]
fn an_append_takes_as_many_fences_as_its_way_says() {
    assert_eq!(of("append-4k", How::AsItIs), "DFLF");
    assert_eq!(of("append-4k", How::DataWithRecord), "DLF");
    assert_eq!(of("append-4k", How::Tail), "DFLFtF");
}

#[test]
fn a_line_is_stored_whole_or_all_but_its_last_word_first() {
    assert_eq!(of("create-unlink", How::AsItIs), "LLLFLLF");
    let body = "w".repeat(7);
    let last = |lines: usize| format!("{}F{}F", body.repeat(lines), "w".repeat(lines));
    assert_eq!(of("create-unlink", How::SealLast), last(3) + &last(2));
}

#[test]
fn the_engine_works_in_every_way_and_what_it_stored_is_read_in_the_usual_one() {
    for how in [How::AsItIs, How::DataWithRecord, How::Tail, How::SealLast] {
        let bytes = 192 << 20;
        let region = Mapped::anonymous(bytes + TAILS, &RegionOptions::new()).unwrap();
        let region = Arc::new(region);
        let pool = InEngine::new(&region, bytes, Another { how, tails: bytes }).unwrap();
        let mut stage = Stage::new(pool);
        for id in ["append-4k", "create-unlink"] {
            let workload = by_id(id).unwrap();
            let cell = Cell { workload, threads: 2, mode: Mode::Private };
            assert!(slice(&mut workers(&mut stage, &cell).unwrap().unwrap()) > 10);
        }
        drop(stage);
        // As after a crash: all is in the logs.
        let plain = Wrapped::new(&region, bytes, Another { how: How::AsItIs, tails: bytes });
        let options = lode_engine::OpenOptions::default();
        let pool = lode_engine::Pool::open(plain, lode_host::StdHost::new(), &options).unwrap();
        assert!(!pool.opening().is_damaged() && !pool.opening().clean, "{how:?}");
        let mut names = 0;
        let dir = pool.lookup(pool.root(), b"n0").unwrap().ino;
        let mut count = |_: lode_engine::DirEntry<'_>| {
            names += 1;
            true
        };
        pool.readdir(dir, 0, &mut count).unwrap();
        assert!(names >= 10_000, "{how:?}: {names}");
    }
}

#[test]
fn both_have_rows_named_by_their_ways() {
    for (id, rows) in [("ablation-fence", 6), ("ablation-line", 4)] {
        let workload = by_id(id).unwrap();
        let mut memory = Memory { options: RegionOptions::new(), region: None };
        let cell = cells(&[workload], &[1], true)[0];
        let mut found = memory.variants(&cell).unwrap();
        assert_eq!(found.len(), rows, "{id}");
        for (way, workers) in &mut found {
            assert!(slice(workers) >= 2, "{way}");
        }
    }
}
