//! Who reads a volume, by a handle, takes no lock: under every schedule with few preemptions, of a reader, of who writes sectors and of who changes the
//! file's pages, each read gives what was there at some moment of it. Threads are stopped before loads and in the middle of them,
//! too. (What a cut of the power leaves of such a file is the explorer's to judge: reading changes nothing of it.)

use std::sync::{Arc, Mutex};

use lode_crash::schedule::{Chooser, Job, Plan, SchedHost, Schedules, Threads};
use lode_engine::{
    Error, Fallocate, FormatOptions, Handle, Ino, NewInode, OpenOptions, Pool, SetAttr, mode,
};
use lode_testkit::Memory;

use crate::pointed::Pointed;

type SchedPool = Pool<Pointed, SchedHost>;

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const SECTOR: usize = 512;
/// A file of one large page, whose place is known as one.
const FILE: u64 = 2 << 20;
/// What is read and written: the first sectors of it.
const SECTORS: usize = 2;
/// How much of it changes hands.
const PART: u64 = 64 << 10;
/// What is in other files.
const FOREIGN: u8 = 0xEE;

/// What is in a sector: bytes that are all the same, or nothing, where the file ends before it.
type Holds = Option<u8>;

/// What is done to the first sectors of the file.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Sectors from this one to that one are written.
    Sectors(usize, usize, u8),
    Write(u8),
    Punch,
    Truncate,
    Extend,
    Zero,
    /// Another file takes what is free.
    Take,
    Snapshot,
    Mode,
}

/// A change, or a read, of one sector: when it began and ended, and what it leaves or has seen.
#[derive(Clone, Copy, Debug)]
struct Event {
    sector: usize,
    began: usize,
    ended: usize,
    holds: Holds,
    is_read: bool,
}

/// What has happened; one thread runs at a time.
#[derive(Default)]
struct History {
    now: usize,
    events: Vec<Event>,
}

impl History {
    fn begin(history: &Mutex<Self>, sectors: std::ops::Range<usize>, holds: Holds) -> Vec<usize> {
        let mut history = history.lock().unwrap();
        history.now += 1;
        let (began, first) = (history.now, history.events.len());
        let ended = usize::MAX;
        let events = sectors.map(|sector| Event { sector, began, ended, holds, is_read: false });
        history.events.extend(events);
        (first..history.events.len()).collect()
    }

    fn end(history: &Mutex<Self>, all: &[usize]) {
        let mut history = history.lock().unwrap();
        history.now += 1;
        let now = history.now;
        all.iter().for_each(|number| history.events[*number].ended = now);
    }

    fn read(history: &Mutex<Self>, read: impl FnOnce() -> [Holds; SECTORS]) {
        let number = Self::begin(history, 0..SECTORS, None);
        let found = read();
        Self::end(history, &number);
        for (number, holds) in number.into_iter().zip(found) {
            let event = &mut history.lock().unwrap().events[number];
            (event.holds, event.is_read) = (holds, true);
        }
    }

    /// What a read can't have seen: what nobody has put there, what was gone before it began, or what is older than what another one had seen
    /// before.
    fn judge(&self) -> Result<(), String> {
        for sector in 0..SECTORS {
            let of = |reads| {
                let events = self.events.iter();
                events.filter(move |it| it.sector == sector && it.is_read == reads)
            };
            // What was there last when something began, at the earliest.
            let mut seen: Vec<(usize, usize)> = Vec::new();
            for read in of(true) {
                let oldest = seen.iter().filter(|it| it.0 < read.began).map(|it| it.1).max();
                let gone =
                    |it: &Event| of(false).any(|by| by.began > it.ended && by.ended < read.began);
                let legal = of(false).filter(|it| {
                    let is_new = oldest.is_none_or(|oldest| it.ended >= oldest);
                    it.holds == read.holds && it.began < read.ended && !gone(it) && is_new
                });
                // (Of several that leave the same, the one that says the least.)
                match legal.map(|it| it.began).min() {
                    Some(began) => seen.push((read.ended, began)),
                    None => return Err(format!("{read:?} of {:?}", of(false).collect::<Vec<_>>())),
                }
            }
        }
        Ok(())
    }
}

fn options() -> OpenOptions {
    OpenOptions::default()
}

/// A pool with a file of one large page, and others in all the rest.
fn prepared() -> Memory {
    let memory = Memory::new(6 << 20);
    let medium = |memory| Pointed { memory, at_stores: false, at_loads: false };
    let format = FormatOptions { lanes: 3, ..FormatOptions::default() };
    Pool::format(medium(memory.clone()), SchedHost::with_cpus(3, 3), &format).unwrap();
    let pool = Pool::open(medium(memory.clone()), SchedHost::with_cpus(3, 3), &options()).unwrap();
    let ino = pool.create(pool.root(), b"v", &NEW).unwrap().ino;
    pool.fallocate(ino, Fallocate::Allocate { keep_size: false }, 0, FILE).unwrap();
    pool.write(ino, 0, &[1; SECTORS * SECTOR]).unwrap();
    // With more behind it elsewhere: so it gives its pages up in two parts, the first of which is another's before the change has ended.
    let between = pool.create(pool.root(), b"y", &NEW).unwrap().ino;
    pool.append(between, &[FOREIGN; PART as usize]).unwrap();
    pool.fallocate(ino, Fallocate::Allocate { keep_size: false }, FILE, PART).unwrap();
    // (The journal of sectors first: it needs room.)
    pool.write_sectors(ino, 0, &[1; SECTOR]).unwrap();
    pool.create(pool.root(), b"w", &NEW).unwrap();
    let full = pool.create(pool.root(), b"x", &NEW).unwrap().ino;
    for bytes in [PART as usize, 4096] {
        while pool.append(full, &vec![FOREIGN; bytes]).is_ok() {}
    }
    pool.close().unwrap();
    memory
}

fn holds(sector: &[u8], read: usize, number: usize) -> Holds {
    if read < (number + 1) * SECTOR {
        return None;
    }
    // (What is torn is nobody's.)
    Some(if sector.iter().all(|byte| *byte == sector[0]) { sector[0] } else { 0xDD })
}

fn read(pool: &SchedPool, file: &Handle<SchedHost>) -> [Holds; SECTORS] {
    let mut bytes = [0; SECTORS * SECTOR];
    let read = pool.read_held_quietly(file, 0, &mut bytes).unwrap();
    std::array::from_fn(|number| holds(&bytes[number * SECTOR..][..SECTOR], read, number))
}

fn change(pool: &SchedPool, ino: Ino, history: &Mutex<History>, change: Change) {
    let (sectors, holds) = match change {
        Change::Sectors(from, to, fill) => (from..to, Some(fill)),
        Change::Write(fill) => (0..SECTORS, Some(fill)),
        Change::Punch | Change::Zero | Change::Extend => (0..SECTORS, Some(0)),
        Change::Truncate => (0..SECTORS, None),
        Change::Take | Change::Snapshot | Change::Mode => (0..0, None),
    };
    let began = History::begin(history, sectors, holds);
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let done = match change {
        Change::Sectors(from, to, fill) => {
            pool.write_sectors(ino, (from * SECTOR) as u64, &vec![fill; (to - from) * SECTOR])
        }
        Change::Write(fill) => pool.write(ino, 0, &[fill; 4096]),
        Change::Punch => pool.fallocate(ino, Fallocate::Punch, 0, PART),
        Change::Zero => pool.fallocate(ino, Fallocate::Zero { keep_size: true }, 0, 4096),
        Change::Truncate => pool.setattr(ino, &size(0)).map(drop),
        Change::Extend => pool.setattr(ino, &size(FILE)).map(drop),
        Change::Snapshot => pool.create_snapshot(b"s"),
        Change::Mode => {
            let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            pool.setattr(ino, &mode).map(drop)
        }
        Change::Take => {
            let other = pool.lookup(pool.root(), b"w").unwrap().ino;
            for bytes in [FILE / 2, FILE / 4, PART, 4096] {
                while pool.append(other, &vec![FOREIGN; bytes as usize]).is_ok() {}
            }
            Ok(())
        }
    };
    // (What has changed nothing, for lack of room or as the file is longer already, goes on for ever: it takes nothing away.)
    match done {
        Ok(()) if !matches!(change, Change::Extend) => History::end(history, &began),
        Ok(()) | Err(Error::NoSpace) => {}
        Err(error) => panic!("{change:?}: {error:?}"),
    }
}

/// What the others do while one reads.
const PROGRAMS: [(&str, &[Change], &[Change]); 6] = [
    (
        "a write of sectors",
        &[Change::Sectors(0, 2, 2), Change::Sectors(0, 1, 3)],
        &[Change::Sectors(1, 2, 4)],
    ),
    ("a hole", &[Change::Sectors(0, 1, 2), Change::Take], &[Change::Punch, Change::Mode]),
    (
        "an end and a new beginning",
        &[Change::Sectors(0, 2, 2), Change::Take],
        &[Change::Truncate, Change::Extend],
    ),
    ("another file's pages", &[Change::Take], &[Change::Truncate]),
    ("pages that move", &[Change::Sectors(0, 1, 2)], &[Change::Snapshot, Change::Write(3)]),
    ("zeros", &[Change::Sectors(0, 1, 2)], &[Change::Zero, Change::Mode]),
];

fn run(
    memory: &Memory,
    threads: &mut Threads,
    chooser: &mut Chooser,
    others: [&'static [Change]; 2],
) -> Result<(), String> {
    let medium = Pointed { memory: memory.copy(), at_stores: false, at_loads: true };
    let pool = Arc::new(Pool::open(medium, SchedHost::with_cpus(7, 3), &options()).unwrap());
    let ino = pool.lookup(pool.root(), b"v").unwrap().ino;
    let file = Arc::new(pool.hold(ino).unwrap());
    let history = Arc::new(Mutex::new(History::default()));
    change(&pool, ino, &history, Change::Sectors(0, SECTORS, 1));
    // From the second time on its place is known.
    (0..2).for_each(|_| assert_eq!(read(&pool, &file), [Some(1); SECTORS]));
    let mut jobs: Vec<Job<'static>> = Vec::new();
    let (by, of, what) = (Arc::clone(&pool), Arc::clone(&file), Arc::clone(&history));
    jobs.push(Box::new(move || {
        for _ in 0..2 {
            History::read(&what, || read(&by, &of));
        }
    }));
    for changes in others {
        let (by, what) = (Arc::clone(&pool), Arc::clone(&history));
        jobs.push(Box::new(move || changes.iter().for_each(|it| change(&by, ino, &what, *it))));
    }
    let outcome = threads.run(chooser, jobs);
    if let Some(failure) = outcome.failure() {
        return Err(failure);
    }
    history
        .lock()
        .unwrap()
        .judge()
        .map_err(|what| format!("schedule {}: {what}", outcome.schedule))?;
    pool.let_go(Arc::into_inner(file).unwrap());
    Ok(())
}

#[test]
fn who_reads_by_a_handle_reads_what_is_there_in_every_schedule() {
    let (memory, mut threads) = (prepared(), Threads::new(3));
    let mut wrong = Vec::new();
    for (name, writes, changes) in PROGRAMS {
        let plan = Plan { preemptions: 2, budget: 800, random: 200, seed: 5 };
        let (mut schedules, mut count) = (Schedules::new(plan), 0);
        while let Some(chooser) = schedules.next_run() {
            count += 1;
            if let Err(what) = run(&memory, &mut threads, chooser, [writes, changes]) {
                wrong.push(format!("{name}: {what}"));
                break;
            }
        }
        println!("{name}: {count} schedules, exhaustive: {}", schedules.is_exhaustive());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
