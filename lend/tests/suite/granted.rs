//! What is granted is the program's before it hears of it, whatever becomes of the owner; and zeros.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lode_engine::{Error, FormatOptions, NewInode, OpenOptions, Pool, mode};
use lode_host::StdHost;
use lode_lend::source::{Source, of};
use lode_lend::{Limits, Service, Sources};
use lode_loan::{CHUNK_BYTES, HEAD_BYTES, Head, Kind, Method, Refusal};
use lode_pmem::loan::{lock, unlock};
use lode_pmem::{Mapped, RegionOptions};
use lode_testkit::until;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

const BYTES: u64 = 48 << 20;
const NEW: NewInode = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
const DEADLINE: Duration = Duration::from_secs(20);

type TestPool = Arc<Pool<Mapped, StdHost>>;

struct OfPool(TestPool);

impl Sources for OfPool {
    fn source(&self, method: Method) -> Result<Arc<dyn Source>, Refusal> {
        Ok(of(method, Arc::clone(&self.0), 0))
    }
}

struct Owner {
    pool: TestPool,
    service: Service,
}

impl Owner {
    fn open(path: &Path) -> Self {
        Self::with_ready(path, 0)
    }

    fn with_ready(path: &Path, ready: u64) -> Self {
        let region = Mapped::open(path, &RegionOptions::default()).unwrap();
        let pool = Pool::open(region, StdHost::with_cpus(1), &OpenOptions::default()).unwrap();
        let pool = Arc::new(pool);
        let held = pool.lent().unwrap();
        let limits = Limits { ready, ..Limits::of_pool(0) };
        let sources = Box::new(OfPool(Arc::clone(&pool)));
        Self { service: Service::start(sources, limits, BYTES, &held).unwrap(), pool }
    }

    fn program(&self, method: Method) -> Program {
        let (stream, theirs) = UnixStream::pair().unwrap();
        self.service.admit(&theirs, method).unwrap();
        drop(theirs);
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let (mut bytes, mut space) =
            ([0; 4096], [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
        recvmsg(&stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let pool = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        Program { stream, pool: pool.unwrap().into() }
    }

    /// Ends; what it lends has to be given back or left alone by then. The pool is as after a crash.
    fn end(self) {
        self.service.stop();
        drop(self.service);
        assert!(Arc::into_inner(self.pool).is_some(), "somebody has the pool still");
    }
}

struct Program {
    stream: UnixStream,
    pool: File,
}

impl Program {
    fn say(&self, kind: Kind, list: &[u64], count: u32) {
        let mut bytes = Head { kind, count, tag: 7 }.bytes().to_vec();
        bytes.extend(list.iter().flat_map(|chunk| chunk.to_le_bytes()));
        (&self.stream).write_all(&bytes).unwrap();
    }

    fn hear(&self) -> (Kind, Vec<u64>) {
        let mut head = [0; HEAD_BYTES];
        (&self.stream).read_exact(&mut head).unwrap();
        let head = Head::parse(&head).unwrap();
        let number = |_| {
            let mut bytes = [0; 8];
            (&self.stream).read_exact(&mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        (head.kind, (0..head.list_bytes() / 8).map(number).collect())
    }

    fn unlock(&self, chunk: u64) {
        unlock(self.pool.as_fd(), range(chunk)).unwrap();
    }
}

fn range(chunk: u64) -> std::ops::Range<u64> {
    chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES
}

fn made() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pool");
    let region = Mapped::create(&path, BYTES, &RegionOptions::default(), false).unwrap();
    Pool::format(&region, StdHost::with_cpus(1), &FormatOptions::default()).unwrap();
    (directory, path)
}

#[test]
fn what_a_program_has_not_heard_of_yet_is_its_own_when_the_owner_ends() {
    for method in Method::ALL {
        let (_directory, path) = made();
        let owner = Owner::open(&path);
        let late = owner.program(method);
        late.say(Kind::Take, &[], 3);
        until(|| owner.service.facts().granted == 3 * CHUNK_BYTES);
        owner.end();
        let owner = Owner::open(&path);
        let held: BTreeSet<u64> = owner.pool.lent().unwrap().into_iter().collect();
        assert_eq!(held.len(), 3, "{method:?}");
        // Another one takes all that can be had.
        let greedy = owner.program(Method::Direct);
        loop {
            greedy.say(Kind::Take, &[], 512);
            match greedy.hear() {
                (Kind::Granted, list) => assert!(list.iter().all(|chunk| !held.contains(chunk))),
                refused => break assert_eq!(refused.0, Kind::Refused),
            }
        }
        // Now it hears of them: they are locked by its descriptor alone.
        let (kind, mine) = late.hear();
        assert_eq!((kind, mine.iter().copied().collect()), (Kind::Granted, held), "{method:?}");
        assert!(mine.iter().all(|chunk| lock(late.pool.as_fd(), range(*chunk)).unwrap()));
        assert!(!lock(greedy.pool.as_fd(), range(mine[0])).unwrap());
        let again = owner.program(method);
        again.say(Kind::Hold, &mine, 3);
        assert_eq!(again.hear(), (Kind::Held, mine.clone()), "{method:?}");
        late.unlock(mine[0]);
        again.say(Kind::Return, &mine[..1], 1);
        assert_eq!(again.hear().0, Kind::Returned);
        drop((late, again, greedy));
        until(|| owner.service.facts().lent == 0);
        assert_eq!(owner.pool.check(&mut |_, _| ()).unwrap().damage, []);
        owner.end();
    }
}

#[test]
fn what_is_returned_while_it_is_locked_comes_back_when_it_is_not() {
    let (_directory, path) = made();
    let owner = Owner::open(&path);
    let program = owner.program(Method::Direct);
    program.say(Kind::Take, &[], 2);
    let (_, mine) = program.hear();
    // (Until the owner has looked for what it found locked when it began: nothing.)
    std::thread::sleep(Duration::from_millis(300));
    program.say(Kind::Return, &mine, 2);
    assert_eq!(program.hear().0, Kind::Returned);
    assert_eq!(owner.pool.lent().unwrap().len(), 2);
    program.unlock(mine[0]);
    until(|| owner.pool.lent().unwrap() == mine[1..]);
    // It has the description still when the session is over.
    let Program { stream, pool } = program;
    drop(stream);
    until(|| owner.service.facts().programs.is_empty());
    assert_eq!(owner.pool.lent().unwrap(), mine[1..]);
    drop(pool);
    until(|| owner.pool.lent().unwrap().is_empty());
    owner.end();
}

#[test]
fn what_a_program_can_not_be_told_of_is_locked_no_more() {
    let (_directory, path) = made();
    let owner = Owner::open(&path);
    // It has gone on without its session, which is just being served, and has the description.
    for _ in 0..50 {
        let Program { stream, pool } = owner.program(Method::Direct);
        let take = Head { kind: Kind::Take, count: 2, tag: 7 }.bytes();
        (&stream).write_all(&take).unwrap();
        drop(stream);
        // (What it unlocks then is what it has not heard of; what is locked later is not sent.)
        unlock(pool.as_fd(), 0..BYTES).unwrap();
        until(|| owner.service.facts().programs.is_empty() && owner.service.facts().lent == 0);
        drop(pool);
    }
    owner.end();
}

/// Whether there is no byte but zeros in a chunk, as a program sees it.
fn is_zeros(program: &Program, chunk: u64) -> bool {
    let mut bytes = vec![1; CHUNK_BYTES as usize];
    program.pool.read_exact_at(&mut bytes, chunk * CHUNK_BYTES).unwrap();
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn what_files_and_other_programs_had_there_is_zeros_to_a_program() {
    let (_directory, path) = made();
    for (method, ready) in Method::ALL.into_iter().flat_map(|it| [(it, 0), (it, 8)]) {
        let owner = Owner::with_ready(&path, ready);
        let ino = owner.pool.create(owner.pool.root(), b"file", &NEW).unwrap().ino;
        let full = (0..1000).find_map(|_| owner.pool.append(ino, &[0xaa; 1 << 18]).err());
        assert_eq!(full, Some(Error::NoSpace));
        owner.pool.unlink(owner.pool.root(), b"file").unwrap();
        owner.pool.maintain().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let at = |chunk| (chunk * CHUNK_BYTES) as usize..((chunk + 1) * CHUNK_BYTES) as usize;
        let was_full = |chunk: &u64| bytes[at(*chunk)].iter().all(|byte| *byte == 0xaa);
        let (mut of_files, mut of_programs, mut stored) = (0, 0, BTreeSet::new());
        for _ in 0..3 {
            let program = owner.program(method);
            let mut mine = Vec::new();
            while mine.len() < 12 {
                program.say(Kind::Take, &[], 3);
                mine.extend(program.hear().1);
            }
            for chunk in &mine {
                assert!(is_zeros(&program, *chunk), "{method:?}, {ready} ready: chunk {chunk}");
                of_files += u32::from(was_full(chunk));
                of_programs += u32::from(!stored.insert(*chunk));
                let stores = vec![0xbb; CHUNK_BYTES as usize];
                program.pool.write_all_at(&stores, chunk * CHUNK_BYTES).unwrap();
                program.unlock(*chunk);
            }
            program.say(Kind::Return, &mine, mine.len() as u32);
            assert_eq!(program.hear().0, Kind::Returned);
            drop(program);
            until(|| owner.service.facts().lent == 0);
        }
        // (Else nothing has been looked at.)
        assert!(of_files >= 8 && of_programs >= 8, "{method:?}: {of_files}, {of_programs}");
        owner.end();
    }
}
