//! Writers of one file who have met often go side by side, without its lock or its log; and each write is as it was promised.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Barrier};

use lode_engine::{
    FormatOptions, Handle, Ino, NewInode, OpenOptions, Pool, Protection, SetAttr, XattrChange,
    XattrWhen, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::rng::Rng;
use lode_testkit::{HostHooks, Memory, TestHost};

use crate::sectors_beside::{Stops, comes, counts_down};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const PAGE: usize = 4096;
/// As many as a handle knows the places of in one.
const PAGES: usize = 512;
const TICK_NS: i64 = 3_000_000;
const BEGIN_NS: i64 = 1_000 * TICK_NS;

struct Setting {
    host: TestHost,
    pool: TestPool,
    ino: Ino,
    file: Handle<TestHost>,
}

/// As [`setting_on`], a host of two processors; its writers go side by side from the third overwrite on, or once they have met so often.
fn setting(protection: Protection, meetings: Option<u8>, index_memory: Option<u64>) -> Setting {
    let host = TestHost::with_cpus(1, 2).with_meetings(meetings);
    setting_on(host, protection, index_memory)
}

/// A file of pages of ones.
fn setting_on(host: TestHost, protection: Protection, index_memory: Option<u64>) -> Setting {
    let memory = Memory::new(96 << 20);
    host.set_now(BEGIN_NS);
    let format = FormatOptions { lanes: 2, protection, ..FormatOptions::default() };
    Pool::format(memory.clone(), host.clone(), &format).unwrap();
    let options = OpenOptions { index_memory, ..OpenOptions::default() };
    let pool = Pool::open(memory, host.clone(), &options).unwrap();
    let ino = pool.create(pool.root(), b"a", &NEW).unwrap().ino;
    pool.write(ino, 0, &vec![1; PAGES * PAGE]).unwrap();
    let file = pool.hold(ino).unwrap();
    Setting { host, pool, ino, file }
}

impl Setting {
    fn write(&self, page: usize, fill: u8) {
        self.pool.write_held(&self.file, (page * PAGE) as u64, &[fill; PAGE]).unwrap();
    }

    /// Lines, fences and bytes of data.
    fn lines_and_fences_of(&self, write: impl FnOnce(&Self)) -> (u64, u64, u64) {
        let before = self.pool.stats().door;
        write(self);
        let spent = self.pool.stats().door - before;
        (spent.lines, spent.fences, spent.streamed_bytes)
    }

    fn mtime_ns(&self) -> i64 {
        self.pool.getattr(self.ino).unwrap().mtime_ns
    }

    fn byte(&self, at: usize) -> u8 {
        let mut byte = [0];
        self.pool.read(self.ino, at as u64, &mut byte).unwrap();
        byte[0]
    }
}

/// By the sector journal: the bytes twice, one line.
const BY_LANE: (u64, u64, u64) = (1, 3, 2 * PAGE as u64);

#[test]
fn who_has_met_often_goes_without_the_log() {
    let it = setting(Protection::None, Some(0), None);
    it.write(0, 2);
    it.write(1, 2);
    for page in [1, 0, 5, 0, 200] {
        assert_eq!(it.lines_and_fences_of(|it| it.write(page, 3)), BY_LANE, "page {page}");
        assert_eq!((it.byte(page * PAGE), it.byte(page * PAGE + PAGE - 1)), (3, 3));
    }
    // What is no part of a page, or none of the file, goes by the log; and so does the next one, behind which all goes on.
    for at in [100, 512 + 7, 3 * PAGE as u64 + 512] {
        it.pool.write_held(&it.file, at, &[4; PAGE]).unwrap();
        it.write(1, 3);
        assert_eq!(it.lines_and_fences_of(|it| it.write(1, 3)), BY_LANE);
    }
    // Behind an overwrite that waits to go home, too.
    let sectors = |it: &Setting| it.pool.write_held(&it.file, 9 * PAGE as u64, &[6; 512]).unwrap();
    it.pool.write_held(&it.file, 9 * PAGE as u64 + 3, &[4; 100]).unwrap();
    sectors(&it);
    assert_eq!(it.lines_and_fences_of(sectors), (1, 3, 2 * 512));
    it.pool.append_held(&it.file, &[5; PAGE]).unwrap();
    assert_ne!(it.lines_and_fences_of(|it| it.write(PAGES, 6)), BY_LANE);
    assert_eq!(it.lines_and_fences_of(|it| it.write(PAGES, 7)), BY_LANE, "the new page, too");
    assert_eq!((it.byte(PAGES * PAGE), it.byte(PAGES * PAGE - 1)), (7, 1));
}

#[test]
fn who_meets_nobody_or_has_no_sector_journal_goes_by_the_log() {
    for protection in Protection::ALL {
        let meetings = [Some(0), None].into_iter();
        for meetings in meetings.filter(|it| protection != Protection::None || it.is_none()) {
            let it = setting(protection, meetings, None);
            let by_log = |it: &Setting| it.lines_and_fences_of(|it| it.write(3, 2)).1 == 2;
            // (A few begin a page of the log.)
            let count = (0..200).filter(|_| by_log(&it)).count();
            assert!(count > 190, "{count} at {protection:?}, {meetings:?}");
        }
    }
}

#[test]
fn who_writes_what_is_plain_alone_goes_so_too() {
    let it = setting(Protection::None, Some(0), None);
    let plain = |it: &Setting, fill| {
        let page = [fill; PAGE];
        it.pool.write_plain(it.ino, PAGE as u64, &page, |mode| mode & 0o6000 == 0, b"user.a")
    };
    let by_lane = |it: &Setting, fill| {
        it.lines_and_fences_of(|it| assert_eq!(plain(it, fill), Ok(true))) == BY_LANE
    };
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    assert!(!by_lane(&it, 2) && !by_lane(&it, 3) && by_lane(&it, 4));
    it.pool.setattr(it.ino, &mode(0o4755)).unwrap();
    it.write(1, 5);
    it.write(1, 6);
    assert_eq!(it.lines_and_fences_of(|it| it.write(1, 7)), BY_LANE);
    assert_eq!((plain(&it, 8), it.byte(PAGE)), (Ok(false), 7));
    it.pool.setattr(it.ino, &mode(0o755)).unwrap();
    assert!(!by_lane(&it, 8) && by_lane(&it, 9));
    // Of one with such attributes as well the log knows.
    for (name, written) in [(b"user.b", Ok(true)), (b"user.a", Ok(false))] {
        let change = XattrChange { name, value: Some(b"b"), when: XattrWhen::Always };
        it.pool.setxattr(it.ino, &change).unwrap();
        it.write(1, 5);
        it.write(1, 6);
        let spent = it.lines_and_fences_of(|it| assert_eq!(plain(it, 7), written));
        assert_ne!(spent, BY_LANE);
        assert_eq!(it.byte(PAGE), if written == Ok(true) { 7 } else { 6 });
    }
}

thread_local! {
    /// How often this thread asks for the time until it stops then.
    static STOPS_IN: Cell<u32> = const { Cell::new(0) };
}

impl HostHooks for Stops {
    fn asks_time(&self) {
        if counts_down(&STOPS_IN) {
            self.stop();
        }
    }
}

#[test]
fn who_only_reads_is_met_by_nobody() {
    let stops = Stops::default();
    let host = TestHost::with_cpus(1, 2).telling(Arc::new(stops.clone()));
    let it = setting_on(host.with_meetings(Some(1)), Protection::None, None);
    it.write(0, 2);
    let free = it.pool.statfs().pages_free;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            STOPS_IN.set(1);
            it.byte(0)
        });
        assert!(comes(|| stops.is_there.load(SeqCst)), "never asked for the time");
        let writer = scope.spawn(|| it.write(0, 3));
        // It finds the file locked, most likely, and waits.
        (0..2_000).for_each(|_| std::thread::yield_now());
        stops.may_go.store(true, SeqCst);
        assert_eq!(reader.join().unwrap(), 2);
        writer.join().unwrap();
    });
    assert!(it.pool.statfs().pages_free + 16 > free, "a sector journal was made for one writer");
}

/// Who asks for the time does so with the file locked, and others run meanwhile.
struct Slow;

impl HostHooks for Slow {
    fn asks_time(&self) {
        (0..100).for_each(|_| std::thread::yield_now());
    }
}

#[test]
fn who_meets_another_goes_side_by_side_and_who_meets_nobody_any_more_does_not() {
    let host = TestHost::with_cpus(1, 2).telling(Arc::new(Slow));
    let it = setting_on(host.with_meetings(Some(2)), Protection::None, None);
    let by_lane = |it: &Setting| it.lines_and_fences_of(|it| it.write(0, 3)) == BY_LANE;
    (0..20).for_each(|_| assert!(!by_lane(&it)));
    let begin = Barrier::new(2);
    // (Where others want the processors, too, they meet less often.)
    let has_met = comes(|| {
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (it, begin) = (&it, &begin);
                scope.spawn(move || {
                    begin.wait();
                    (0..40).for_each(|_| it.write(thread, 2));
                });
            }
        });
        by_lane(&it)
    });
    assert!(has_met, "two threads go by the log");
    let alone = (1..100).find(|tick| {
        it.host.set_now(BEGIN_NS + tick * TICK_NS);
        it.write(0, 3);
        !by_lane(&it)
    });
    assert!(alone.is_some(), "one thread alone goes by the sector journal for ever");
}

#[test]
fn a_file_that_is_written_as_a_volume_is_stays_one() {
    let it = setting(Protection::None, Some(0), None);
    it.pool.write_sectors_held(&it.file, 0, &[2; PAGE]).unwrap();
    for _ in 0..5 {
        assert_ne!(it.lines_and_fences_of(|it| it.write(3, 2)), BY_LANE);
    }
}

#[test]
fn where_there_was_no_room_for_a_journal_it_is_made_when_there_is() {
    let it = setting(Protection::None, Some(0), None);
    let by_lane = |it: &Setting| {
        (0..3).for_each(|page| it.write(page, 3));
        it.lines_and_fences_of(|it| it.write(0, 4)) == BY_LANE
    };
    let other = it.pool.create(it.pool.root(), b"b", &NEW).unwrap().ino;
    while it.pool.append(other, &[9; 16 * PAGE]).is_ok() {}
    while it.pool.append(other, &[9; PAGE]).is_ok() {}
    let size = it.pool.getattr(other).unwrap().size - 12 * PAGE as u64;
    let shorter = SetAttr { size: Some(size), ..SetAttr::default() };
    it.pool.setattr(other, &shorter).unwrap();
    assert!(!by_lane(&it));
    assert!(!by_lane(&it));
    it.pool.unlink(it.pool.root(), b"b").unwrap();
    assert!(by_lane(&it));
}

#[test]
fn times_are_a_tick_old_at_most() {
    let it = setting(Protection::None, Some(0), None);
    it.host.set_now(BEGIN_NS + 1);
    it.write(0, 2);
    it.write(1, 2);
    assert_eq!(it.mtime_ns(), BEGIN_NS + 1);
    it.host.set_now(BEGIN_NS + TICK_NS);
    assert_eq!(it.lines_and_fences_of(|it| it.write(2, 2)), BY_LANE);
    assert_eq!(it.mtime_ns(), BEGIN_NS + 1, "a tick has not passed");
    it.host.set_now(BEGIN_NS + 1 + TICK_NS);
    it.write(2, 3);
    assert_eq!(it.mtime_ns(), BEGIN_NS + 1 + TICK_NS);
    assert_eq!(it.lines_and_fences_of(|it| it.write(2, 4)), BY_LANE, "they go on");
    // Also of a clock that was set back.
    it.host.set_now(BEGIN_NS);
    it.write(2, 5);
    assert_eq!((it.mtime_ns(), it.byte(2 * PAGE)), (BEGIN_NS, 5));
}

#[test]
fn pages_that_were_given_up_are_not_written_to() {
    let it = setting(Protection::None, Some(0), None);
    let size = |pages: usize| SetAttr { size: Some((pages * PAGE) as u64), ..SetAttr::default() };
    it.write(0, 2);
    it.write(1, 2);
    it.write(9, 2);
    it.pool.setattr(it.ino, &size(4)).unwrap();
    let other = it.pool.create(it.pool.root(), b"b", &NEW).unwrap().ino;
    it.pool.write(other, 0, &vec![8; 2 * PAGES * PAGE]).unwrap();
    it.pool.setattr(it.ino, &size(PAGES)).unwrap();
    // (Holes now.)
    for page in 0..PAGES {
        it.write(page, 3);
        it.write(page, 4);
    }
    let mut bytes = vec![0; 2 * PAGES * PAGE];
    it.pool.read(other, 0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 8), "another file's page was written to");
    it.pool.read(it.ino, 0, &mut bytes).unwrap();
    assert!(bytes[..PAGES * PAGE].iter().all(|byte| *byte == 4));
}

#[test]
fn what_a_snapshot_sees_is_not_written_to() {
    let it = setting(Protection::None, Some(0), None);
    it.write(0, 2);
    it.write(1, 2);
    it.write(7, 2);
    it.pool.create_snapshot(b"s").unwrap();
    for fill in [3, 4, 5] {
        for page in [7, 0, 1, 8] {
            it.write(page, fill);
        }
    }
    assert_eq!(it.lines_and_fences_of(|it| it.write(7, 6)), BY_LANE, "the page is younger now");
    let snapshot = it.pool.snapshot_root(b"s").unwrap();
    let ino = it.pool.lookup(snapshot, b"a").unwrap().ino;
    for (page, fill) in [(7, 2), (0, 2), (1, 2), (8, 1)] {
        let mut bytes = [0; PAGE];
        it.pool.read(ino, (page * PAGE) as u64, &mut bytes).unwrap();
        assert!(bytes == [fill; PAGE], "page {page}: {} of {fill}", bytes[0]);
    }
}

#[test]
fn a_read_of_many_pages_sees_no_later_write_without_an_earlier_one() {
    const ROUNDS: u8 = 250;
    const AT: [usize; 4] = [0, 19, 130, 511];
    let it = setting(Protection::None, Some(0), None);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                AT.iter().for_each(|page| it.write(*page, round));
                // (So that each way of a read has its turn.)
                if round % 50 == 0 {
                    it.host.set_now(BEGIN_NS + i64::from(round) * TICK_NS);
                }
            }
            ended.store(true, Relaxed);
        });
        for by_handle in [true, false] {
            let (it, ended) = (&it, &ended);
            scope.spawn(move || {
                let mut bytes = vec![0; PAGES * PAGE];
                while !ended.load(Relaxed) {
                    let read = match by_handle {
                        true => {
                            // (Who reads little notes where all of it is, and reads it without any right then.)
                            it.pool.read_held(&it.file, 0, &mut [0; 512]).unwrap();
                            it.pool.read_held(&it.file, 0, &mut bytes)
                        }
                        false => it.pool.read(it.ino, 0, &mut bytes),
                    };
                    assert_eq!(read, Ok(bytes.len()));
                    let seen = AT.map(|page| bytes[page * PAGE]);
                    assert!(seen.is_sorted_by(|a, b| a >= b) && seen[0] <= seen[3] + 1, "{seen:?}");
                }
            });
        }
    });
}

#[test]
fn each_of_many_writes_what_it_writes() {
    const THREADS: usize = 4;
    const OWN: usize = PAGES / THREADS;
    for meetings in [Some(0), Some(3), None] {
        let it = setting(Protection::None, meetings, None);
        let begin = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (it, begin) = (&it, &begin);
                scope.spawn(move || {
                    let mut random = Rng::new(thread as u64);
                    let mut known = vec![1_u8; OWN * 8];
                    begin.wait();
                    for round in 0..3000 {
                        let sector = random.below(OWN as u64 * 8) as usize;
                        let most = if random.once_in(20) { 16 } else { 8 - sector % 8 };
                        let len = (1 + random.below(most as u64) as usize).min(OWN * 8 - sector);
                        let at = ((thread * OWN * 8 + sector) * 512) as u64;
                        let fill = random.below(256) as u8;
                        it.pool.write_held(&it.file, at, &vec![fill; len * 512]).unwrap();
                        known[sector..sector + len].fill(fill);
                        let mut bytes = vec![0; len * 512];
                        it.pool.read_held(&it.file, at, &mut bytes).unwrap();
                        assert!(bytes.iter().all(|byte| *byte == fill), "its own write, at once");
                        if thread == 0 && round % 100 == 0 {
                            it.host.set_now(BEGIN_NS + round * TICK_NS / 100);
                        }
                    }
                    let mut bytes = vec![0; OWN * PAGE];
                    it.pool.read(it.ino, (thread * OWN * PAGE) as u64, &mut bytes).unwrap();
                    for (sector, fill) in known.iter().enumerate() {
                        let bytes = &bytes[sector * 512..][..512];
                        assert!(bytes.iter().all(|byte| byte == fill), "sector {sector}");
                    }
                });
            }
        });
        assert_eq!(it.pool.check(&mut |_, _| ()).unwrap().damage, vec![]);
    }
}

#[test]
fn what_it_takes_is_counted_as_memory() {
    let it = setting(Protection::None, Some(0), Some(64 << 20));
    let used = |it: &Setting| it.pool.gauges().unwrap().memory.inodes;
    let before = used(&it);
    it.write(0, 2);
    it.write(1, 2);
    assert_eq!(it.lines_and_fences_of(|it| it.write(1, 2)), BY_LANE);
    let taken = used(&it) - before;
    assert!((PAGES as u64 * 8..PAGES as u64 * 8 + 1024).contains(&taken), "{taken} bytes");
}
