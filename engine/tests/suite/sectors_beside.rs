//! Who is stopped in the middle of a write by sectors, as by a processor that is taken away, holds up only those who want its bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use lode_engine::{
    Error, FormatOptions, Handle, NewInode, OpenOptions, Pool, Result, SetAttr, mode,
};
use lode_testkit::{Healing, Hooks, Memory, Poisoned, TestHost, Told};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const PAGE: u64 = 4096;
/// Pages of the file.
const PAGES: u64 = 1100;
/// No wait is longer.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// The fences of a write: of its data in the journal, of its line, of its data at home.
const OF_LINE: u32 = 2;
const OF_HOME: u32 = 3;

thread_local! {
    /// The fence of this thread in which it stops, counted down; none at 0.
    static STOPS_IN: Cell<u32> = const { Cell::new(0) };
}

/// A thread stops until it may go on.
#[derive(Clone, Default)]
pub(crate) struct Stops {
    pub(crate) is_there: Arc<AtomicBool>,
    pub(crate) may_go: Arc<AtomicBool>,
}

impl Stops {
    pub(crate) fn stop(&self) {
        self.is_there.store(true, SeqCst);
        // (Who was never let go fails by what it finds.)
        comes(|| self.may_go.load(SeqCst));
    }
}

/// Says whether this is where a thread is to stop.
pub(crate) fn counts_down(left: &'static std::thread::LocalKey<Cell<u32>>) -> bool {
    let now = left.get();
    left.set(now.saturating_sub(1));
    now == 1
}

/// Whether it came to be in time.
pub(crate) fn comes(what: impl Fn() -> bool) -> bool {
    let end = Instant::now() + LONG;
    while !what() {
        if Instant::now() > end {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

impl Hooks<Poisoned<Memory>> for Stops {
    fn fences(&self, _: &Poisoned<Memory>) {
        if counts_down(&STOPS_IN) {
            self.stop();
        }
    }
}

type StoppingPool = Pool<Told, TestHost>;

/// A pool with a file of [`PAGES`] pages that is ready to be written by sectors.
fn pool() -> (StoppingPool, Handle<TestHost>, Stops) {
    pool_in(Memory::new(16 << 20))
}

fn pool_in(memory: Memory) -> (StoppingPool, Handle<TestHost>, Stops) {
    let (stops, memory) = (Stops::default(), Poisoned::new(memory, Healing::Never));
    let medium = Told { memory, hooks: Arc::new(stops.clone()) };
    let host = TestHost::with_cpus(1, 4);
    let format = FormatOptions { lanes: 4, ..FormatOptions::default() };
    Pool::format(medium.clone(), host.clone(), &format).unwrap();
    let pool = Pool::open(medium, host, &OpenOptions::default()).unwrap();
    let ino = pool.create(pool.root(), b"v", &NEW).unwrap().ino;
    pool.write(ino, 0, &vec![1; (PAGES * PAGE) as usize]).unwrap();
    let file = pool.hold(ino).unwrap();
    pool.write_sectors_held(&file, 0, &[1; 512]).unwrap();
    (pool, file, stops)
}

/// A thread writes pages, one after the other, and stops in this fence of the last; another one does `meanwhile`. Says whether that
/// ended before the first went on.
fn beside(
    (pool, file, stops): &(StoppingPool, Handle<TestHost>, Stops),
    pages: &[u64],
    fence: u32,
    meanwhile: impl FnOnce() -> Result<()> + Send,
) -> bool {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(move || {
            let (last, before) = pages.split_last().unwrap();
            for page in before {
                pool.write_sectors_held(file, page * PAGE, &[2; PAGE as usize])?;
            }
            STOPS_IN.set(fence);
            pool.write_sectors_held(file, last * PAGE, &[2; PAGE as usize])
        });
        assert!(comes(|| stops.is_there.load(SeqCst)), "never came to its fence");
        let is_done = &is_done;
        let second = scope.spawn(move || {
            let result = meanwhile();
            is_done.store(true, SeqCst);
            result
        });
        let in_time = comes(|| is_done.load(SeqCst));
        stops.may_go.store(true, SeqCst);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
        in_time
    })
}

/// As it was when there were a thousand locks.
#[test]
fn who_writes_other_pages_does_not_wait_for_who_is_stopped_in_a_write() {
    for fence in [OF_LINE, OF_HOME] {
        let pool = pool();
        let write = || pool.0.write_sectors_held(&pool.1, 1024 * PAGE, &[3; PAGE as usize]);
        assert!(beside(&pool, &[0], fence, write), "fence {fence}");
    }
}

/// Two writes before, the line of that lane told of them; it has told of another one since, and that is durable.
#[test]
fn who_writes_where_a_lane_wrote_long_ago_does_not_wait_for_who_is_stopped_in_that_lane() {
    for fence in [OF_LINE, OF_HOME] {
        let pool = pool();
        let write = || {
            // (Of the stopped one's lanes this is the first; so the other one takes another.)
            pool.0.write_sectors_held(&pool.1, 9 * PAGE, &[3; PAGE as usize])
        };
        assert!(beside(&pool, &[9, 7, 5], fence, write), "fence {fence}");
        let mut read = [0; PAGE as usize];
        pool.0.read_held_quietly(&pool.1, 9 * PAGE, &mut read).unwrap();
        assert!(read == [3; PAGE as usize]);
    }
}

/// It was written when the first had not gone on, and so might be when it does: whoever changes the inode waits for that.
#[test]
fn who_gets_the_right_to_change_a_file_waits_for_who_writes_its_sectors() {
    let pool = pool();
    let (stops, ino) = (&pool.2, pool.1.ino());
    let (start, was_let_go) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            STOPS_IN.set(OF_HOME);
            pool.0.write_sectors_held(&pool.1, 5 * PAGE, &[2; PAGE as usize])
        });
        assert!(comes(|| stops.is_there.load(SeqCst)), "never came to its fence");
        let changer = scope.spawn(|| {
            start.wait();
            let size = SetAttr { size: Some(PAGE), ..SetAttr::default() };
            let changed = pool.0.setattr(ino, &size).map(|_| ());
            (changed, was_let_go.load(SeqCst))
        });
        start.wait();
        // It is about to wait: the more often this thread stands back, the likelier it does. (Where others want the processors, too, that takes long.)
        let end = Instant::now() + LONG / 10;
        for _ in (0..20_000).take_while(|_| Instant::now() < end) {
            std::thread::yield_now();
        }
        was_let_go.store(true, SeqCst);
        stops.may_go.store(true, SeqCst);
        writer.join().unwrap().unwrap();
        let (changed, waited) = changer.join().unwrap();
        changed.unwrap();
        assert!(waited, "the file was changed under a writer");
    });
}

/// Where a fence has failed, the line of that lane may be the one before, which a recovery would heed. (Nobody begins to write then, but who is in
/// the middle of it goes on.)
#[test]
fn who_writes_what_a_line_told_of_before_a_failing_fence_ends_it() {
    let memory = Memory::new(16 << 20);
    let (pool, file, stops) = pool_in(memory.clone());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            STOPS_IN.set(1);
            pool.write_sectors_held(&file, 9 * PAGE, &[2; PAGE as usize])
        });
        assert!(comes(|| stops.is_there.load(SeqCst)), "never came to its fence");
        let write = |page| pool.write_sectors_held(&file, page * PAGE, &[3; PAGE as usize]);
        write(9).unwrap();
        memory.fail_fences_after(u64::from(OF_LINE) - 1);
        assert!(write(7).is_err() && pool.is_read_only());
        assert_eq!(write(7), Err(Error::ReadOnly));
        memory.fail_fences_after(u64::MAX);
        let before = pool.stats().door.fences;
        stops.may_go.store(true, SeqCst);
        first.join().unwrap().unwrap();
        assert_eq!(pool.stats().door.fences - before, 3, "the other's line, its own, and home");
    });
}

/// What a write has stored of a page whose last fence failed may be a part of it, and its line alone makes that whole.
#[test]
fn a_line_whose_bytes_did_not_come_home_is_not_ended() {
    let memory = Memory::new(16 << 20);
    let (pool, file, stops) = pool_in(memory.clone());
    let at = 9 * PAGE;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            STOPS_IN.set(1);
            pool.write_sectors_held(&file, at, &[2; 512])
        });
        assert!(comes(|| stops.is_there.load(SeqCst)), "never came to its fence");
        memory.fail_fences_after(u64::from(OF_HOME) - 1);
        assert!(pool.write_sectors_held(&file, at, &[3; PAGE as usize]).is_err());
        memory.fail_fences_after(u64::MAX);
        let lines = pool.stats().door.lines;
        stops.may_go.store(true, SeqCst);
        assert_eq!(first.join().unwrap(), Err(Error::ReadOnly), "of the same page");
        let size = SetAttr { size: Some(PAGE), ..SetAttr::default() };
        assert_eq!(pool.setattr(file.ino(), &size).map(|_| ()), Err(Error::ReadOnly));
        assert_eq!(pool.stats().door.lines, lines, "a line was ended");
    });
}

#[test]
fn what_is_not_all_inside_is_not_written_where_that_is_asked_for() {
    let (pool, file, _) = pool();
    let end = PAGES * PAGE;
    let write = |at, len: usize, size| pool.write_sectors_within(&file, at, &vec![7; len], size);
    assert_eq!(write(end - 512, 1024, end + 512), Ok(false));
    assert_eq!(write(end, 512, end + 512), Ok(false));
    assert_eq!(write(end - 512, 512, end), Ok(true));
    assert_eq!(write(end - 100, 512, end), Err(Error::Invalid));
    assert_eq!(pool.size_held(&file), Ok(end));
    let mut read = [0; 1024];
    pool.read_held_quietly(&file, end - 1024, &mut read).unwrap();
    assert!(read[..512] == [1; 512] && read[512..] == [7; 512]);
}
