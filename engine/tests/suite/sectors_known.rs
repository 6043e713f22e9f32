//! Who writes sectors by a handle, where it has written before, takes no lock of the inode, and still never writes to pages that the file has
//! given up, or that a snapshot sees.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lode_engine::{
    Fallocate, FormatOptions, Handle, Host, Ino, NewInode, Op, OpenOptions, Pool, SetAttr, mode,
};
use lode_testkit::rng::Rng;
use lode_testkit::{Hooked, Hooks, Memory};
use parking_lot::lock_api::RawRwLock;

use super::sectors_beside::{LONG, Stops, comes, counts_down};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const PAGE: usize = 4096;
/// What places are noted of in one.
const CHUNK: u64 = 2 << 20;
/// Bytes of the file.
const BYTES: u64 = 2 * CHUNK;

thread_local! {
    /// The processor of this thread.
    static CPU: Cell<usize> = const { Cell::new(0) };
    /// How often it has locked an inode, or another thing that is looked at by many.
    static LOOKS: Cell<u32> = const { Cell::new(0) };
    /// The question of this thread for its processor, and the fence, in which it stops, counted down; none at 0.
    static STOPS_AT_CPU: Cell<u32> = const { Cell::new(0) };
    static STOPS_IN_FENCE: Cell<u32> = const { Cell::new(0) };
}

impl Hooks<Memory> for Stops {
    fn fences(&self, _: &Memory) {
        if counts_down(&STOPS_IN_FENCE) {
            self.stop();
        }
    }
}

/// A lock that counts who locks it to look.
struct Counted(parking_lot::RawRwLock);

// SAFETY: all is done by a lock that is one.
unsafe impl RawRwLock for Counted {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(parking_lot::RawRwLock::INIT);
    type GuardMarker = <parking_lot::RawRwLock as RawRwLock>::GuardMarker;

    fn lock_shared(&self) {
        LOOKS.set(LOOKS.get() + 1);
        self.0.lock_shared();
    }

    fn try_lock_shared(&self) -> bool {
        LOOKS.set(LOOKS.get() + 1);
        self.0.try_lock_shared()
    }

    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller's.
        unsafe { self.0.unlock_shared() }
    }

    fn lock_exclusive(&self) {
        self.0.lock_exclusive();
    }

    fn try_lock_exclusive(&self) -> bool {
        self.0.try_lock_exclusive()
    }

    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller's.
        unsafe { self.0.unlock_exclusive() }
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

/// A host that says to each thread which processor it runs on, and where it can stop when it asks.
#[derive(Clone, Default)]
struct Asked {
    stops: Stops,
    random: Arc<AtomicU64>,
}

impl Host for Asked {
    type Mutex = parking_lot::RawMutex;
    type RwLock = Counted;

    fn now_ns(&self) -> i64 {
        1_000_000_000
    }

    fn cpu(&self) -> usize {
        if counts_down(&STOPS_AT_CPU) {
            self.stops.stop();
        }
        CPU.get()
    }

    fn cpus(&self) -> usize {
        4
    }

    fn random(&self) -> u64 {
        self.random.fetch_add(1, SeqCst)
    }

    fn parallel(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..jobs).for_each(job);
    }
}

type AskedPool = Pool<Hooked<Memory, Stops>, Asked>;

/// A pool with a file of ones, which is ready to be written by sectors, and known to be, by the handle.
struct Setup {
    pool: AskedPool,
    file: Handle<Asked>,
    stops: Stops,
}

impl Setup {
    fn new() -> Self {
        let host = Asked::default();
        let medium = Hooked { memory: Memory::new(32 << 20), hooks: host.stops.clone() };
        let format = FormatOptions { lanes: 4, ..FormatOptions::default() };
        Pool::format(medium.clone(), host.clone(), &format).unwrap();
        let pool = Pool::open(medium, host.clone(), &OpenOptions::default()).unwrap();
        let ino = pool.create(pool.root(), b"v", &NEW).unwrap().ino;
        let whole = Fallocate::Allocate { keep_size: false };
        pool.fallocate(ino, whole, 0, BYTES).unwrap();
        pool.write(ino, 0, &vec![1; BYTES as usize]).unwrap();
        let file = pool.hold(ino).unwrap();
        let setup = Self { pool, file, stops: host.stops };
        setup.write(0, 1);
        setup
    }

    fn write(&self, page: usize, fill: u8) {
        self.pool.write_sectors_held(&self.file, (page * PAGE) as u64, &[fill; PAGE]).unwrap();
    }

    fn has(&self, ino: Ino, page: usize, fill: u8) -> bool {
        let mut bytes = [0; PAGE];
        let read = self.pool.read_quietly(ino, (page * PAGE) as u64, &mut bytes).unwrap();
        bytes[..read].iter().all(|byte| *byte == fill) && read > 0
    }

    /// How many times a write has locked something that others look at, too.
    fn looks(&self, page: usize, fill: u8) -> u32 {
        let before = LOOKS.get();
        self.write(page, fill);
        LOOKS.get() - before
    }

    /// A thread writes twos to the page with this number, and stops when it knows where that is, with no lane; then something happens.
    fn where_it_is_known(&self, page: usize, then: impl FnOnce()) {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                assert_eq!(self.looks(page, 1), 0, "where it is was not known");
                // (It asks first whether there is much to be judged.)
                STOPS_AT_CPU.set(2);
                self.write(page, 2);
            });
            assert!(comes(|| self.stops.is_there.load(SeqCst)), "never asked for its processor");
            then();
            self.stops.may_go.store(true, SeqCst);
            writer.join().unwrap();
        });
    }

    /// Another file that has all that is free, in which all is `fill`.
    fn other(&self, fill: u8) -> Ino {
        let ino = self.pool.create(self.pool.root(), b"w", &NEW).unwrap().ino;
        let mut at = 0;
        while self.pool.write(ino, at, &vec![fill; 64 << 10]).is_ok() {
            at += 64 << 10;
        }
        assert!(at >= CHUNK, "no room for another file");
        ino
    }

    fn is_all(&self, ino: Ino, fill: u8) -> bool {
        let pages = self.pool.getattr(ino).unwrap().size as usize / PAGE;
        (0..pages).all(|page| self.has(ino, page, fill))
    }
}

#[test]
fn who_writes_sectors_where_it_wrote_before_locks_no_inode() {
    let it = Setup::new();
    assert!(it.looks(700, 2) > 0, "of the second part nothing is known");
    for page in [0, 1, 511, 700, 1023] {
        assert_eq!(it.looks(page, 3), 0, "page {page}");
        assert!(it.has(it.file.ino(), page, 3));
    }
    // After a change it is to be found once more.
    it.pool.write(it.file.ino(), 100, &[4; 100]).unwrap();
    assert!(it.looks(5, 5) > 0);
    assert_eq!(it.looks(5, 6), 0);
    // What a snapshot sees goes another way, each time, until all of it is elsewhere.
    it.pool.create_snapshot(b"s").unwrap();
    assert!(it.looks(5, 7) > 0 && it.looks(6, 7) > 0);
    assert!(it.has(it.file.ino(), 5, 7) && it.has(it.file.ino(), 6, 7));
}

#[test]
fn what_is_not_all_inside_is_not_written_where_it_is_known_either() {
    let it = Setup::new();
    let write = |size| it.pool.write_sectors_within(&it.file, 0, &[7; PAGE], size);
    assert_eq!(write(BYTES + 512), Ok(false));
    assert!(it.has(it.file.ino(), 0, 1));
    assert_eq!(write(BYTES), Ok(true));
    assert!(it.has(it.file.ino(), 0, 7));
}

#[test]
fn who_knew_where_to_write_does_not_write_to_pages_of_another_file() {
    let it = Setup::new();
    let mut other = 0;
    it.where_it_is_known(5, || {
        let size = SetAttr { size: Some(0), ..SetAttr::default() };
        it.pool.setattr(it.file.ino(), &size).unwrap();
        it.pool.setattr(it.file.ino(), &SetAttr { size: Some(PAGE as u64), ..size }).unwrap();
        other = it.other(9);
    });
    assert!(it.is_all(other, 9), "written to pages that are another file's");
}

#[test]
fn who_knew_where_to_write_does_not_write_what_a_snapshot_sees() {
    let it = Setup::new();
    it.where_it_is_known(5, || it.pool.create_snapshot(b"s").unwrap());
    assert!(it.has(it.file.ino(), 5, 2));
    let root = it.pool.snapshot_root(b"s").unwrap();
    let seen = it.pool.lookup(root, b"v").unwrap();
    assert!(it.has(seen.ino, 5, 1), "written to what a snapshot sees");
}

/// Who changes the file has waited for the first lane; the writer takes it then.
#[test]
fn nobody_begins_to_write_what_it_knows_of_while_another_gets_the_right_to_change_the_file() {
    let it = Setup::new();
    let (is_done, was_let_go) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // There is a line in the lanes of two processors, of which the second's are looked at last.
        let second = scope.spawn(|| {
            CPU.set(1);
            it.write(9, 1);
        });
        second.join().unwrap();
        let changer = scope.spawn(|| {
            // (Each line that it ends takes a fence.)
            STOPS_IN_FENCE.set(2);
            let size = SetAttr { size: Some(PAGE as u64), ..SetAttr::default() };
            it.pool.setattr(it.file.ino(), &size).unwrap();
        });
        assert!(comes(|| it.stops.is_there.load(SeqCst)), "never ended a line");
        let writer = scope.spawn(|| {
            it.write(5, 2);
            is_done.store(true, SeqCst);
            was_let_go.load(SeqCst)
        });
        // It is about to wait: the more often this thread stands back, the likelier it does. (Where others want the processors, too, that takes long.)
        let end = Instant::now() + LONG / 10;
        for _ in (0..20_000).take_while(|_| Instant::now() < end) {
            std::thread::yield_now();
        }
        was_let_go.store(true, SeqCst);
        it.stops.may_go.store(true, SeqCst);
        changer.join().unwrap();
        assert!(writer.join().unwrap(), "it wrote to a file that is being changed");
    });
    assert!(is_done.load(SeqCst));
}

/// One thread gives pages of the file to another file and takes others, again and again, while others write its sectors.
#[test]
fn who_writes_sectors_never_writes_to_pages_of_another_file() {
    let it = Setup::new();
    let other = it.pool.create(it.pool.root(), b"w", &NEW).unwrap().ino;
    let (ino, stop, written) = (it.file.ino(), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (it, stop, written) = (&it, &stop, &written);
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    CPU.set(thread);
                    let mut random = Rng::new(thread as u64);
                    while !stop.load(SeqCst) {
                        // (What is in a hole goes another way: so there is one only for a while.)
                        it.write(random.below(CHUNK / PAGE as u64) as usize, 3);
                        written.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        let mut wrong = false;
        // (Until all have written for a while; each round is some milliseconds.)
        for round in 0..400 {
            if wrong || round > 100 && written.load(SeqCst) > 5000 {
                break;
            }
            it.pool.fallocate(ino, Fallocate::Punch, 0, CHUNK).unwrap();
            it.pool.fallocate(other, Fallocate::Allocate { keep_size: false }, 0, CHUNK).unwrap();
            it.pool.write(other, 0, &vec![9; CHUNK as usize]).unwrap();
            wrong = !it.is_all(other, 9);
            it.pool.setattr(other, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
            it.pool.write(ino, 0, &vec![1; CHUNK as usize]).unwrap();
        }
        stop.store(true, SeqCst);
        assert!(writers.into_iter().all(|writer| writer.join().is_ok()));
        assert!(!wrong, "written to pages that are another file's");
    });
}

/// What is read by a place that is known is counted before it is there.
#[test]
fn who_reads_what_is_being_written_waits_and_is_counted_once() {
    let it = Setup::new();
    let reads = || it.pool.stats().ops[Op::Read as usize];
    let read = || {
        let mut bytes = [0; PAGE];
        assert_eq!(it.pool.read_held_quietly(&it.file, 0, &mut bytes).unwrap(), PAGE);
        bytes
    };
    assert_eq!((read(), read()), ([1; PAGE], [1; PAGE]));
    let before = reads();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // (The fence behind what goes home.)
            STOPS_IN_FENCE.set(3);
            it.write(0, 2);
        });
        assert!(comes(|| it.stops.is_there.load(SeqCst)), "never wrote home");
        let reader = scope.spawn(read);
        assert!(comes(|| reads() > before), "never began to read");
        std::thread::sleep(Duration::from_millis(20));
        assert!(!reader.is_finished(), "read what was not all there");
        it.stops.may_go.store(true, SeqCst);
        writer.join().unwrap();
        assert_eq!(reader.join().unwrap(), [2; PAGE]);
    });
    assert_eq!(reads() - before, 1);
}
