//! Programs of every kind, and a source that knows what it has given.

mod wishes;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lode_loan::{CHUNK_BYTES, HEAD_BYTES, Head, Kind, Method, Refusal};
use lode_pmem::loan::locked_by_others;
use lode_testkit::until;
use parking_lot::Mutex;

use crate::ledger::READY_FROM;
use crate::source::Source;
use crate::{Limits, Service, Sources};

const DEADLINE: Duration = Duration::from_secs(20);

/// Chunks 100 and up, so many.
struct Fake {
    free: Mutex<BTreeSet<u64>>,
    locked: Mutex<BTreeSet<u64>>,
    zeroed: AtomicU64,
    wrong: AtomicU64,
    /// How long it takes to zero a chunk.
    zeroes_in_ms: AtomicU64,
    /// Who zeroes a chunk waits while this is locked.
    gate: Mutex<()>,
}

impl Source for Fake {
    fn take(&self) -> Result<u64, Refusal> {
        self.free.lock().pop_first().ok_or(Refusal::NoSpace)
    }

    fn give(&self, chunk: u64) {
        if self.locked.lock().contains(&chunk) || !self.free.lock().insert(chunk) {
            self.wrong.fetch_add(1, SeqCst);
        }
    }

    fn zero(&self, _: u64) {
        std::thread::sleep(Duration::from_millis(self.zeroes_in_ms.load(SeqCst)));
        drop(self.gate.lock());
        self.zeroed.fetch_add(1, SeqCst);
    }

    fn locked(&self, chunk: u64) -> bool {
        self.locked.lock().contains(&chunk)
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(rustix::fs::memfd_create("pool", rustix::fs::MemfdFlags::CLOEXEC)?)
    }
}

struct Fakes(Arc<Fake>);

impl Sources for Fakes {
    fn source(&self, _: Method) -> Result<Arc<dyn Source>, Refusal> {
        Ok(Arc::clone(&self.0) as Arc<dyn Source>)
    }
}

struct Owner {
    fake: Arc<Fake>,
    service: Arc<Service>,
    chunks: u64,
}

impl Owner {
    fn new(chunks: u64, limits: impl FnOnce(&mut Limits)) -> Self {
        Self::beside(chunks, &[], limits)
    }

    fn beside(chunks: u64, held: &[u64], change: impl FnOnce(&mut Limits)) -> Self {
        let free = (100..100 + chunks).filter(|chunk| !held.contains(chunk)).collect();
        let fake = Arc::new(Fake {
            free: Mutex::new(free),
            locked: Mutex::new(held.iter().copied().collect()),
            zeroed: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            zeroes_in_ms: AtomicU64::new(0),
            gate: Mutex::new(()),
        });
        let mut limits = Limits { ready: 0, ..Limits::of_pool(0) };
        change(&mut limits);
        let sources = Box::new(Fakes(Arc::clone(&fake)));
        let service = Service::start(sources, limits, chunks * CHUNK_BYTES, held).unwrap();
        Self { fake, service: Arc::new(service), chunks }
    }

    fn program(&self) -> Program {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.service.admit(&theirs, Method::Direct).unwrap();
        drop(theirs);
        ours.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut program = Program { stream: ours };
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(program.bytes::<1>()[0]);
        }
        assert!(String::from_utf8(line).unwrap().contains("\"ok\":true"));
        program
    }

    /// Waits until all is back, and nothing was given twice.
    #[track_caller]
    fn all_is_back(&self) {
        self.free_becomes(self.chunks);
        let facts = self.service.facts();
        assert_eq!((facts.lent, facts.apart), (0, 0));
    }

    #[track_caller]
    fn free_becomes(&self, chunks: u64) {
        until(|| self.fake.free.lock().len() as u64 == chunks);
        assert_eq!(self.fake.wrong.load(SeqCst), 0);
    }
}

struct Program {
    stream: UnixStream,
}

impl Program {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn say(&mut self, kind: Kind, count: u32, tag: u64, list: &[u64]) {
        let mut bytes = Head { kind, count, tag }.bytes().to_vec();
        bytes.extend(list.iter().flat_map(|chunk| chunk.to_le_bytes()));
        self.stream.write_all(&bytes).unwrap();
    }

    fn hear(&mut self) -> (Head, Vec<u64>) {
        let head = Head::parse(&self.bytes::<HEAD_BYTES>()).unwrap();
        let list = (0..head.list_bytes() / 8).map(|_| u64::from_le_bytes(self.bytes()));
        let list = list.collect();
        (head, list)
    }

    fn take(&mut self, count: u32) -> Result<Vec<u64>, Refusal> {
        self.say(Kind::Take, count, 7, &[]);
        let (head, list) = self.hear();
        assert_eq!(head.tag, 7);
        match head.kind {
            Kind::Granted => Ok(list),
            _ => Err(Refusal::of_number(head.count).unwrap()),
        }
    }

    fn take_all(&mut self, count: usize) -> Vec<u64> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.take((count - all.len()) as u32).unwrap());
        }
        all
    }

    fn list(&mut self, kind: Kind, list: &[u64]) -> (Head, Vec<u64>) {
        self.say(kind, list.len() as u32, 9, list);
        self.hear()
    }

    fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn what_is_taken_comes_back_by_returning_and_by_ending() {
    let owner = Owner::new(40, |_| ());
    let (mut one, mut two) = (owner.program(), owner.program());
    let (first, second) = (one.take_all(20), two.take_all(20));
    let all: BTreeSet<u64> = first.iter().chain(&second).copied().collect();
    assert_eq!((all.len(), one.take(1)), (40, Err(Refusal::NoSpace)));
    assert_eq!(owner.fake.zeroed.load(SeqCst), 40);
    let (head, _) = one.list(Kind::Return, &first[..5]);
    assert_eq!((head.kind, head.count, head.tag), (Kind::Returned, 5, 9));
    owner.free_becomes(5);
    drop(one);
    owner.free_becomes(20);
    let facts = owner.service.facts();
    assert_eq!((facts.programs.len(), facts.lent), (1, 20 * CHUNK_BYTES));
    assert_eq!((facts.programs[0].chunks, facts.programs[0].pid), (20, std::process::id()));
    drop(two);
    owner.all_is_back();
}

#[test]
fn limits_are_exact_ready_chunks_or_not() {
    for ready in [0, 3, 100] {
        let owner = Owner::new(64, |limits| {
            limits.heap = Some(10 * CHUNK_BYTES + 1);
            limits.ready = ready;
        });
        let (mut one, mut two) = (owner.program(), owner.program());
        one.take_all(6);
        // (It asks for more than there is.)
        let mut got = 0;
        while let Ok(chunks) = two.take(9) {
            got += chunks.len();
        }
        assert_eq!(got, 4);
        assert_eq!((one.take(1), two.take(9)), (Err(Refusal::HeapLimit), Err(Refusal::HeapLimit)));
        assert!(owner.service.facts().lent == 10 * CHUNK_BYTES);
        drop((one, two));
        owner.all_is_back();
    }
    // (Both are sessions of one process.)
    let owner = Owner::new(64, |limits| limits.program = Some(3 * CHUNK_BYTES));
    let (mut one, mut two) = (owner.program(), owner.program());
    one.take_all(2);
    assert_eq!(two.take(5).unwrap().len(), 1);
    assert_eq!(
        (one.take(1), two.take(1)),
        (Err(Refusal::ProgramLimit), Err(Refusal::ProgramLimit))
    );
}

#[test]
fn what_no_program_says_is_refused_and_nothing_is_lost() {
    let owner = Owner::new(40, |_| ());
    let mut good = owner.program();
    let mine = good.take_all(8);
    let mut bad = owner.program();
    let its = bad.take_all(4);
    let refused = |heard: (Head, Vec<u64>), refusal: Refusal| {
        assert_eq!((heard.0.kind, heard.0.count), (Kind::Refused, refusal as u32));
    };
    // Another's, nobody's, one of both, one twice, none; then what was returned already.
    for list in [&mine[..2], &[5, u64::MAX], &[its[0], mine[0]], &[its[0], its[0]]] {
        refused(bad.list(Kind::Return, list), Refusal::NotYours);
    }
    refused(bad.list(Kind::Return, &[]), Refusal::Invalid);
    assert_eq!(bad.list(Kind::Return, &its[..1]).0.kind, Kind::Returned);
    refused(bad.list(Kind::Return, &its[..1]), Refusal::NotYours);
    assert_eq!(bad.take(0), Err(Refusal::Invalid));
    // To hold what is its own already, another's, or nobody's.
    let (held, list) = bad.list(Kind::Hold, &[its[1], mine[0], its[0], 1, 1]);
    assert_eq!((held.kind, list), (Kind::Held, vec![]));
    // Out of order, and not frames at all: the connection ends.
    for kind in [Kind::Granted, Kind::Refused, Kind::Returned, Kind::Held, Kind::Wish, Kind::Spared]
    {
        let mut other = owner.program();
        other.take_all(2);
        other.say(kind, 0, 1, &[]);
        assert!(other.is_closed(), "{kind:?}");
    }
    let too_many = Head { kind: Kind::Return, count: 513, tag: 0 }.bytes();
    for bytes in [[0xff; 16], [1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], too_many] {
        let mut other = owner.program();
        other.take_all(2);
        other.stream.write_all(&bytes).unwrap();
        assert!(other.is_closed());
    }
    assert!(owner.service.facts().hostile >= 16);
    owner.free_becomes(40 - 8 - 3);
    good.take_all(29);
    drop((good, bad));
    owner.all_is_back();
}

#[test]
fn who_says_half_a_frame_or_does_not_listen_keeps_nobody_waiting() {
    let owner = Owner::new(2000, |_| ());
    let mut half = owner.program();
    half.stream.write_all(&Head { kind: Kind::Return, count: 9, tag: 0 }.bytes()[..7]).unwrap();
    let flood = owner.program();
    flood.stream.set_nonblocking(true).unwrap();
    let frame = Head { kind: Kind::Take, count: 512, tag: 0 }.bytes().repeat(64);
    let (mut sent, mut last) = (0, Instant::now());
    // (What is sent and not read is the kernel's, which takes some.)
    while last.elapsed() < Duration::from_millis(500) {
        match (&flood.stream).write(&frame) {
            Ok(bytes) => (sent, last) = (sent + bytes, Instant::now()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(sent < 4 << 20, "it takes whatever comes");
    }
    let mut good = owner.program();
    for _ in 0..100 {
        // (The flood may have taken all there is.)
        if let Ok(chunks) = good.take(1) {
            assert_eq!(good.list(Kind::Return, &chunks).0.kind, Kind::Returned);
        }
    }
    drop((half, flood, good));
    owner.all_is_back();
}

#[test]
fn a_thousand_sessions_are_served_by_one_thread() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let owner = Owner::new(1000, |_| ());
    let before = threads();
    let mut programs: Vec<Program> = (0..1000).map(|_| owner.program()).collect();
    for program in &mut programs {
        program.take_all(1);
    }
    // (Those of other tests come and go.)
    assert!(threads() < before + 100);
    assert_eq!(owner.service.facts().lent, 1000 * CHUNK_BYTES);
    drop(programs);
    owner.all_is_back();
}

#[test]
fn what_is_locked_comes_back_later() {
    let owner = Owner::new(10, |_| ());
    let mut one = owner.program();
    let chunks = one.take_all(6);
    owner.fake.locked.lock().extend(&chunks[..2]);
    // Returned while it is locked, and left behind while it is locked.
    assert_eq!(one.list(Kind::Return, &chunks[..1]).0.kind, Kind::Returned);
    drop(one);
    owner.free_becomes(8);
    assert_eq!(owner.service.facts().apart, 2 * CHUNK_BYTES);
    let mut other = owner.program();
    assert_eq!(other.take_all(8).len(), 8);
    assert_eq!(other.take(1), Err(Refusal::NoSpace));
    owner.fake.locked.lock().clear();
    owner.free_becomes(2);
    drop(other);
    owner.all_is_back();
}

#[test]
fn what_programs_of_a_former_owner_have_is_theirs_once() {
    let owner = Owner::beside(10, &[100, 101, 102], |_| ());
    let (mut one, mut two) = (owner.program(), owner.program());
    assert_eq!(one.list(Kind::Hold, &[100, 101, 100, 105, 1 << 60]).1, [100, 101]);
    assert_eq!(two.list(Kind::Hold, &[101, 102]).1, [102]);
    assert_eq!(owner.service.facts().apart, 0);
    assert_eq!(two.list(Kind::Return, &[101]).0.kind, Kind::Refused);
    owner.fake.locked.lock().clear();
    assert_eq!(two.list(Kind::Return, &[102]).0.kind, Kind::Returned);
    drop((one, two));
    owner.all_is_back();
    // Nobody says anything, and the lock ends.
    let owner = Owner::beside(10, &[107], |_| ());
    assert_eq!(owner.service.facts().lent, CHUNK_BYTES);
    owner.fake.locked.lock().clear();
    owner.all_is_back();
}

#[test]
fn a_chunk_that_is_just_being_made_ready_is_no_reason_to_refuse() {
    for limit in [None, Some(4 * CHUNK_BYTES)] {
        let owner = Owner::new(4, |limits| (limits.ready, limits.heap) = (1, limit));
        let mut program = owner.program();
        let all = program.take_all(4);
        owner.fake.zeroes_in_ms.store(50, SeqCst);
        assert_eq!(program.list(Kind::Return, &all[..1]).0.kind, Kind::Returned);
        until(|| owner.fake.free.lock().is_empty());
        program.say(Kind::Take, 1, 1, &[]);
        let (head, chunks) = program.hear();
        assert_eq!((head.kind, &chunks[..]), (Kind::Granted, &all[..1]), "{limit:?}");
        drop(program);
        until(|| owner.service.facts().lent == 0);
    }
}

#[test]
fn who_waits_for_a_chunk_that_is_made_ready_keeps_nobody_waiting() {
    let owner = Owner::new(READY_FROM, |limits| limits.ready = 1);
    let (mut one, mut two) = (owner.program(), owner.program());
    let all = one.take_all(READY_FROM as usize);
    // The only one that is left is being made ready, and is not until it may be.
    let shut = owner.fake.gate.lock();
    assert_eq!(one.list(Kind::Return, &all[..1]).0.kind, Kind::Returned);
    until(|| owner.fake.free.lock().is_empty());
    two.say(Kind::Take, 1, 1, &[]);
    let began = Instant::now();
    // (Behind it: not before it is answered.)
    two.say(Kind::Hold, 0, 2, &[]);
    let (head, _) = one.list(Kind::Hold, &[]);
    assert!(head.kind == Kind::Held && began.elapsed() < Duration::from_millis(1500));
    // A third one goes while it waits.
    let mut three = owner.program();
    three.say(Kind::Take, 1, 1, &[]);
    until(|| owner.service.facts().programs.len() == 3);
    drop(three);
    until(|| owner.service.facts().programs.len() == 2);
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
    drop(shut);
    let opened = Instant::now();
    let (head, chunks) = two.hear();
    assert!(opened.elapsed() < Duration::from_secs(1), "as soon as it is there");
    assert_eq!((head.kind, head.tag, &chunks[..]), (Kind::Granted, 1, &all[..1]));
    assert_eq!(two.hear().0.tag, 2);
    // What does not come is refused in time.
    let shut = owner.fake.gate.lock();
    assert_eq!(two.list(Kind::Return, &chunks).0.kind, Kind::Returned);
    until(|| owner.fake.free.lock().is_empty());
    let began = Instant::now();
    assert_eq!(two.take(1), Err(Refusal::NoSpace));
    assert!(began.elapsed() < Duration::from_secs(10));
    drop(shut);
    drop((one, two));
    owner.all_is_back();
}

#[test]
fn a_frame_that_does_not_come_to_its_end_ends_its_session() {
    let owner = Owner::new(10, |limits| limits.frame_within = Duration::from_millis(400));
    let mut programs = [(); 3].map(|()| owner.program());
    let [half, list, good] = &mut programs;
    for program in [&mut *half, list, good] {
        program.take_all(2);
    }
    // Of a head, and of a list.
    half.stream.write_all(&[1, 0, 0]).unwrap();
    let head = Head { kind: Kind::Return, count: 2, tag: 0 }.bytes();
    list.stream.write_all(&[&head[..], &[0; 9]].concat()).unwrap();
    assert!(half.is_closed() && list.is_closed());
    owner.free_becomes(8);
    assert_eq!(owner.service.facts().hostile, 2);
    // Who says nothing, or all of a frame in parts in time, stays.
    std::thread::sleep(Duration::from_millis(500));
    let whole = Head { kind: Kind::Take, count: 1, tag: 7 }.bytes();
    for bytes in whole.chunks(4) {
        good.stream.write_all(bytes).unwrap();
    }
    assert_eq!(good.hear().0.kind, Kind::Granted);
    drop(programs);
    owner.all_is_back();
}

/// A pair of sockets whose peer is a process of this user, as far as can be told by it; none where only root could.
fn pair_of_user(uid: u32) -> Option<(UnixStream, UnixStream)> {
    let user = rustix::process::Uid::from_raw(uid);
    let own = rustix::process::getuid();
    // (By the system call, for the one thread: libc's function is for all.)
    let made = std::thread::spawn(move || {
        rustix::thread::set_thread_res_uid(own, user, own).ok()?;
        UnixStream::pair().ok()
    });
    made.join().unwrap()
}

#[test]
fn another_users_program_is_refused_and_logged() {
    let Some((mut ours, theirs)) = pair_of_user(65_534) else {
        println!("skipped: only root can be another user");
        return;
    };
    let owner = Owner::new(10, |_| ());
    let refused = owner.service.admit(&theirs, Method::Direct).unwrap_err();
    assert!(refused.contains("the pool's user alone"), "{refused}");
    let facts = owner.service.facts();
    assert_eq!((facts.hostile, facts.sessions, facts.programs.len()), (1, 0, 0));
    // Nothing was said to it, and no descriptor sent.
    ours.set_nonblocking(true).unwrap();
    let none = ours.read(&mut [0]).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    assert!(owner.program().take(1).is_ok());
}

#[test]
fn for_a_program_that_wants_little_nothing_is_made_ready() {
    let owner = Owner::new(40, |limits| limits.ready = 32);
    let mut small = owner.program();
    let some = small.take_all(READY_FROM as usize - 1);
    small.list(Kind::Return, &some);
    owner.free_becomes(40);
    assert_eq!(owner.fake.zeroed.load(SeqCst), READY_FROM - 1);
    // For one that has had more, as much as that, while it is there.
    let mut large = owner.program();
    let all = large.take_all(12);
    owner.free_becomes(40 - 24);
    assert_eq!(owner.service.facts().ready, 12 * CHUNK_BYTES);
    large.list(Kind::Return, &all);
    owner.free_becomes(40 - 12);
    drop(large);
    owner.free_becomes(40);
    assert_eq!(owner.service.facts().ready, 0);
    drop(small);
    owner.all_is_back();
}

#[test]
fn stopping_ends_sessions_soon_and_leaves_alone_what_is_locked() {
    let owner = Owner::new(10, |limits| limits.ready = 2);
    let mut one = owner.program();
    let chunks = one.take_all(5);
    owner.fake.locked.lock().extend(&chunks[..2]);
    let began = Instant::now();
    owner.service.stop();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(one.is_closed());
    owner.free_becomes(8);
    assert!(!owner.service.spare(1));
    let (_ours, theirs) = UnixStream::pair().unwrap();
    assert!(owner.service.admit(&theirs, Method::Direct).is_err());
}

/// What was sent is the program's, whatever waits behind it to be sent when the session ends.
#[test]
fn what_a_program_was_told_of_stays_locked_whatever_waits_behind_it() {
    let owner = Owner::new(8, |_| ());
    let pool = owner.fake.descriptor().unwrap();
    let own = std::fs::File::from(pool.try_clone().unwrap());
    own.set_len(200 * CHUNK_BYTES).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_read_timeout(Some(DEADLINE)).unwrap();
    let source = Arc::clone(&owner.fake) as Arc<dyn Source>;
    let mut session = crate::session::Session::new((1, 1), Method::Direct, source, (ours, pool));
    let mut wishes = 0;
    while !session.has_output() {
        session.say_count(Kind::Wish, 1, 0).unwrap();
        wishes += 1;
        assert!(wishes < 1_000_000, "a connection that takes everything");
    }
    assert!(session.lock(101).unwrap());
    session.grant(7, &[101]).unwrap();
    for _ in 0..400_000 {
        session.say_count(Kind::Wish, 1, 0).unwrap();
    }
    // It hears of it, and of not all that follows.
    let mut frame = [0; HEAD_BYTES];
    for _ in 0..=wishes {
        theirs.read_exact(&mut frame).unwrap();
        session.flush().unwrap();
    }
    assert_eq!(Head::parse(&frame).unwrap().kind, Kind::Granted);
    assert!(session.has_output());
    drop(session);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&own));
    let other = std::fs::File::open(path).unwrap();
    let mut locked = Vec::new();
    let all = 0..200 * CHUNK_BYTES;
    let looked = locked_by_others(other.as_fd(), all, &mut |part| locked.push(part));
    looked.unwrap();
    let granted = 101 * CHUNK_BYTES..102 * CHUNK_BYTES;
    assert_eq!(locked.as_slice(), std::slice::from_ref(&granted));
}
