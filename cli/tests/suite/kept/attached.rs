//! What a program can do with a kept heap of a pool that another process has open, and who else may.

use std::fs;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use lode::{Content, KeptHeap, Pool, ROOT};
use lode_loan::kept::{FRAME_BYTES, Frame, Hello, Kind};
use lode_testkit::rng::Rng;
use lode_testkit::until;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;

use super::program::{Program, expected, list, step, store};
use super::{DEADLINE, EBUSY, MIB, Serving, WORDS, errno, served};
use crate::common::program::socket;
use crate::common::server::Server;
use crate::common::{Scratch, fsck, lode, text};

#[test]
fn what_one_program_keeps_the_next_one_finds_and_so_does_the_library() {
    let scratch = Scratch::new();
    let (pool, mut serving) = served(&scratch);
    let heap = KeptHeap::attach(socket(&pool), "heap").unwrap();
    let root = heap.root().unwrap();
    (0..20).for_each(|number| step(&heap, root, number));
    // It grows.
    let large = heap.alloc_into(root + 24, 12 * MIB, Content::Zeros).unwrap();
    heap.store(large + 11 * MIB, b"far behind").unwrap();
    heap.persist(large + 11 * MIB..large + 12 * MIB).unwrap();
    // Another one that is open meanwhile is not in its place.
    let other = KeptHeap::attach(socket(&pool), "other").unwrap();
    heap.close().unwrap();
    let heap = KeptHeap::attach(socket(&pool), "/heap").unwrap();
    let found = |heap: &KeptHeap| {
        let root = heap.root().unwrap();
        assert_eq!(list(heap, root).0, expected(20));
        let mut bytes = [0; 10];
        heap.load(heap.word(root + 24).unwrap() + 11 * MIB, &mut bytes).unwrap();
        assert_eq!(&bytes, b"far behind");
    };
    found(&heap);
    assert_eq!(heap.offset(heap.pointer(root).unwrap()), Some(root));
    drop((heap, other));
    assert_eq!(serving.signal(Signal::TERM), Some(0));
    fsck(&pool).expect(0);
    let library = Pool::open(&pool).unwrap();
    assert!(library.opening().unwrap().clean);
    let heap = KeptHeap::open(&library, "heap").unwrap();
    found(&heap);
    heap.close().unwrap();
    library.close().unwrap();
    let _serving = Serving::start(&pool, "heap_ready=0");
    found(&KeptHeap::attach(socket(&pool), "heap").unwrap());
}

#[test]
fn its_file_is_nobody_elses_while_a_program_has_it() {
    let scratch = Scratch::new();
    let (pool, dir, log) = (scratch.pool("pool", "64M"), scratch.dir("mnt"), scratch.path("log"));
    let server = Server::mount(&pool, &dir, &log);
    let at = socket(&dir);
    lode(&["snapshot", "create", text(&dir), "before"]).expect(0);
    let heap = KeptHeap::attach(&at, "heap").unwrap();
    let root = heap.alloc_into(ROOT, 8 * WORDS, Content::Zeros).unwrap();
    (0..20).for_each(|number| step(&heap, root, number));
    let path = dir.join("heap");
    assert_eq!(errno(KeptHeap::attach(&at, "heap")), EBUSY);
    assert_eq!(errno(Pool::open(&pool)), EBUSY);
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let refused = [
        file.set_len(0),
        file.set_len(1 << 30),
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", 200),
        rustix::fs::fallocate(&file, punch(), 0, MIB).map_err(Into::into),
        fs::write(&path, "another"),
    ];
    let refused = refused.map(|result| result.map_err(|error| error.raw_os_error()));
    assert_eq!(refused, [Err(Some(EBUSY)); 5]);
    assert_ne!(lode(&["snapshot", "create", text(&dir), "now"]).code, 0);
    assert_ne!(lode(&["snapshot", "rollback", text(&dir), "before", "--force"]).code, 0);
    // What is removed is there until it is closed.
    fs::remove_file(&path).unwrap();
    drop(file);
    fs::write(dir.join("fills"), vec![7; 20 << 20]).unwrap();
    (20..40).for_each(|number| step(&heap, root, number));
    assert_eq!(list(&heap, root).0, expected(40));
    assert!(fs::read(dir.join("fills")).unwrap().iter().all(|byte| *byte == 7));
    heap.close().unwrap();
    lode(&["snapshot", "create", text(&dir), "now"]).expect(0);

    fs::write(dir.join("text"), vec![b'x'; 10_000]).unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    std::os::unix::fs::symlink("text", dir.join("link")).unwrap();
    let open = |path: &str| errno(KeptHeap::attach(&at, path));
    assert_eq!(
        ["text", "sub", "link", "", "/", "../heap", "sub/../heap", "sub/", "none/heap"].map(open),
        [22, 21, 40, 22, 22, 22, 22, 22, 2]
    );
    assert_eq!(fs::read(dir.join("text")).unwrap(), vec![b'x'; 10_000]);
    fs::write(dir.join("text"), "anew").unwrap();
    KeptHeap::attach(&at, "sub/h\"e\\ap\u{e9}").unwrap();
    assert!(dir.join("sub/h\"e\\ap\u{e9}").exists());
    drop(server);
}

/// KiB of the mapping at this address that are mapped by huge pages of a file in memory.
fn huge_kib(address: u64) -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_inside = false;
    for line in smaps.lines() {
        let range = line.split(' ').next().unwrap().split_once('-');
        let ends = range.map(|(from, to)| [from, to].map(|end| u64::from_str_radix(end, 16)));
        if let Some([Ok(from), Ok(to)]) = ends {
            is_inside = (from..to).contains(&address);
        }
        if is_inside && let Some(rest) = line.strip_prefix("ShmemPmdMapped:") {
            return rest.trim().trim_end_matches(" kB").parse().unwrap();
        }
    }
    0
}

#[test]
fn a_heap_lies_in_huge_pages_where_the_pool_does() {
    let scratch = Scratch::new();
    let place = scratch.dir("huge");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "huge=always,size=100m", "lode-test", text(&place)])
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: no tmpfs of huge pages can be mounted here");
        return;
    }
    let pool = place.join("pool");
    lode(&["mkfs", text(&pool), "--size", "64M"]).expect(0);
    let mut serving = Serving::start(&pool, "heap_ready=0");
    let heap = KeptHeap::attach(socket(&pool), "heap").unwrap();
    let root = heap.alloc_into(ROOT, 8 * WORDS, Content::Zeros).unwrap();
    let large = heap.alloc_into(root + 24, 12 * MIB, Content::Zeros).unwrap();
    heap.store(large + 11 * MIB, b"far behind").unwrap();
    heap.persist(large + 11 * MIB..large + 12 * MIB).unwrap();
    let mapped = huge_kib(heap.pointer(large).unwrap() as u64);
    assert!(mapped >= 10 << 10, "{mapped} KiB of 12 MiB by huge pages");
    (0..20).for_each(|number| step(&heap, root, number));
    heap.close().unwrap();
    // At the next opening all of it is one piece; the owner is killed under it.
    let heap = KeptHeap::attach(socket(&pool), "heap").unwrap();
    let root = heap.root().unwrap();
    let word = heap.pointer(root + 24).unwrap().cast::<u64>();
    heap.load(large, &mut vec![0; 12 << 20]).unwrap();
    let mapped = huge_kib(word as u64);
    assert!(mapped >= 12 << 10, "{mapped} KiB by huge pages");
    assert_eq!(serving.signal(Signal::KILL), None);
    // (It sees that its owner is gone.)
    until(|| heap.persist(root..root + 8).is_err());
    assert_eq!(huge_kib(word as u64), 0, "private copies are of this process alone");
    store(word, 12345);
    let library = Pool::open(&pool).unwrap();
    let now = KeptHeap::open(&library, "heap").unwrap();
    assert_eq!((now.word(root + 24).unwrap(), list(&now, root).0), (large, expected(20)));
    let mut bytes = [0; 10];
    now.load(large + 11 * MIB, &mut bytes).unwrap();
    assert_eq!(&bytes, b"far behind");
    now.close().unwrap();
    drop(heap);
    library.close().unwrap();
    fsck(&pool).expect(0);
}

#[test]
fn what_is_named_by_offsets_is_found_at_whatever_address() {
    let scratch = Scratch::new();
    let (pool, _serving) = served(&scratch);
    let heap = KeptHeap::attach(socket(&pool), "heap").unwrap();
    let root = heap.root().unwrap();
    (0..30).for_each(|number| step(&heap, root, number));
    let large = heap.alloc_into(root + 24, 5 * MIB, Content::Zeros).unwrap();
    let addresses = |heap: &KeptHeap| [root, large].map(|at| heap.pointer(at).unwrap() as u64);
    let before = addresses(&heap);
    heap.close().unwrap();
    // Others are where it was.
    let _taken = before.map(|at| Taken::at(at & !0xfff, 1 << 16));
    let heap = KeptHeap::attach(socket(&pool), "heap").unwrap();
    let now = addresses(&heap);
    assert!(now.iter().zip(&before).all(|(now, before)| now != before), "{now:x?} {before:x?}");
    assert_eq!((heap.root().unwrap(), heap.word(root + 24).unwrap()), (root, large));
    assert_eq!(list(&heap, root).0, expected(30));
    assert_eq!(now.map(|at| heap.offset(at as *const u8)), [Some(root), Some(large)]);
    assert_eq!(before.map(|at| heap.offset(at as *const u8)), [None, None]);
}

/// Address space that is taken.
struct Taken(*mut std::ffi::c_void, usize);

impl Taken {
    #[allow(unsafe_code)]
    fn at(address: u64, bytes: usize) -> Self {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let (wanted, none) = (address as *mut _, ProtFlags::empty());
        // SAFETY: no mapping that is there is replaced.
        let found = unsafe {
            mmap_anonymous(wanted, bytes, none, MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE)
        };
        Self(found.unwrap_or(wanted), if found.is_ok() { bytes } else { 0 })
    }
}

impl Drop for Taken {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        if self.1 > 0 {
            // SAFETY: what was mapped above, which nobody uses.
            let _ = unsafe { rustix::mm::munmap(self.0, self.1) };
        }
    }
}

#[test]
fn who_has_which_heap_is_shown_until_it_has_let_go() {
    let scratch = Scratch::new();
    let (pool, _serving) = served(&scratch);
    let shown =
        || lode(&["heap", "stats", text(&pool), "--json"]).expect(0).json()["pools"][0].clone();
    let nobody = shown();
    assert_eq!((&nobody["kept_heaps"], &nobody["kept_bytes"]), (&0.into(), &0.into()));
    assert_eq!(nobody["kept"], serde_json::json!([]));
    let mine = KeptHeap::attach(socket(&pool), "/other").unwrap();
    let small = shown();
    assert_eq!(small["kept"][0]["path"], "/other");
    let bytes = |shown: &serde_json::Value, at: usize| shown["kept"][at]["bytes"].as_u64().unwrap();
    // It grows.
    mine.alloc_into(ROOT, 9 * MIB, Content::Stale).unwrap();
    let program = Program::start("scribbles", &socket(&pool), &scratch.path("notes"), 0);
    let both = shown();
    assert!(bytes(&both, 0) >= 9 * MIB && bytes(&small, 0) < 9 * MIB, "{small} {both}");
    assert!(bytes(&both, 1) < 9 * MIB);
    assert_eq!(
        (&both["kept_heaps"], both["kept_bytes"].as_u64()),
        (&2.into(), Some(bytes(&both, 0) + bytes(&both, 1)))
    );
    let one = &both["kept"][1];
    assert_eq!(
        (&one["path"], &one["pid"], &one["uid"]),
        (&"heap".into(), &program.child.id().into(), &rustix::process::getuid().as_raw().into())
    );
    let comm = fs::read_to_string(format!("/proc/{}/comm", program.child.id())).unwrap();
    assert_eq!(one["name"], comm.trim_end());
    assert!(one["since_ns"].as_u64() > both["kept"][0]["since_ns"].as_u64());
    let people = lode(&["heap", "stats", text(&pool)]).expect(0).out;
    let is_it = |line: &&str| {
        line.contains(&program.child.id().to_string()) && line.trim_end().ends_with("heap")
    };
    assert!(people.lines().any(|line| is_it(&line)), "{people}");
    let counted = lode(&["stats", text(&pool), "--json"]).expect(0).json();
    assert_eq!(
        (&counted["heap"]["kept_heaps"], &counted["heap"]["kept_bytes"]),
        (&both["kept_heaps"], &both["kept_bytes"])
    );
    let metrics = lode(&["stats", text(&pool), "--prometheus"]).expect(0).out;
    let metrics = crate::common::prometheus::parse(&metrics).unwrap();
    assert_eq!(metrics["lode_heap_kept"].value(), 2.0);
    assert_eq!(metrics["lode_heap_kept_bytes"].value(), both["kept_bytes"].as_f64().unwrap());
    mine.close().unwrap();
    assert_eq!(shown()["kept_heaps"], 1);
    drop(program);
    until(|| shown()["kept_heaps"] == 0);
}

fn punch() -> rustix::fs::FallocateFlags {
    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE
}

/// A conversation of one who has read the protocol, and the descriptor that came with it.
struct Raw(UnixStream, Option<OwnedFd>);

impl Raw {
    fn new(at: &Path, path: &str) -> Self {
        let stream = UnixStream::connect(at).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        (&stream).write_all(Hello(path).to_string().as_bytes()).unwrap();
        let (mut bytes, mut space) =
            ([0; 4096], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(&stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let mut pool = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut files) = message {
                pool = files.next();
            }
        }
        let line = String::from_utf8(bytes[..got.bytes].to_vec()).unwrap();
        assert!(line.contains("\"ok\":true") && line.ends_with('\n') && pool.is_some(), "{line}");
        Self(stream, pool)
    }

    fn ask(&mut self, kind: Kind, value: u64) -> Option<Frame> {
        self.0.write_all(&Frame::of(kind, value).bytes()).ok()?;
        let mut bytes = [0; FRAME_BYTES];
        self.0.read_exact(&mut bytes).ok()?;
        let frame = Frame::parse(&bytes).unwrap();
        let mut list = vec![0; 16 * frame.count as usize];
        if frame.kind == Kind::Extents {
            self.0.read_exact(&mut list).unwrap();
        }
        Some(frame)
    }

    fn refused(&mut self, kind: Kind, value: u64) -> u32 {
        let answer = self.ask(kind, value).unwrap();
        assert_eq!(answer.kind, Kind::Refused);
        answer.count
    }
}

#[test]
fn who_asks_for_what_is_not_its_own_is_refused_and_noted() {
    let scratch = Scratch::new();
    let (pool, dir, log) = (scratch.pool("pool", "64M"), scratch.dir("mnt"), scratch.path("log"));
    let server = Server::mount(&pool, &dir, &log);
    let at = socket(&dir);
    fs::write(dir.join("five"), "bytes").unwrap();
    let free =
        || lode(&["info", text(&dir), "--json"]).expect(0).json()["space"]["pages_free"].as_u64();
    let before = free();
    let mut raw = Raw::new(&at, "new");
    assert_eq!(raw.refused(Kind::Map, 4096), 22);
    assert_eq!(raw.refused(Kind::Grow, 1 << 40), 27);
    assert_eq!(raw.refused(Kind::Grow, u64::MAX), 27);
    assert_eq!(raw.refused(Kind::Grow, 63 << 20), 28);
    assert_eq!(raw.ask(Kind::Grow, 2 << 20).unwrap().kind, Kind::Done);
    assert_eq!(raw.refused(Kind::Map, 100), 22);
    assert_eq!(raw.refused(Kind::Map, (2 << 20) + 4096), 22);
    assert_eq!(raw.ask(Kind::Map, 1 << 20).unwrap().kind, Kind::Extents);
    assert_eq!(raw.refused(Kind::Map, 4096), 22);
    assert!(raw.ask(Kind::Done, 0).is_none());
    drop(raw);
    let mut raw = Raw::new(&at, "five");
    assert_eq!(raw.refused(Kind::Map, 4096), 22);
    assert_eq!(raw.refused(Kind::Name, 0), 22);
    // Who ends the conversation and keeps what may be stored to by it keeps the file.
    let Raw(stream, descriptor) = raw;
    drop(stream);
    assert_eq!(errno(KeptHeap::attach(&at, "five")), EBUSY);
    drop(descriptor);
    assert_eq!(errno(KeptHeap::attach(&at, "five")), 22);
    let mut bits = Rng::new(7);
    for _ in 0..60 {
        let mut raw = Raw::new(&at, "new");
        for _ in 0..bits.below(4) {
            let kinds = [Kind::Grow, Kind::Map, Kind::Extents, Kind::Refused];
            let kind = kinds[bits.below(4) as usize];
            raw.ask(kind, bits.below(40) * 65_536 + bits.below(2));
        }
        let junk: Vec<u8> = (0..bits.below(40)).map(|_| bits.below(256) as u8).collect();
        let _ = raw.0.write_all(&junk);
    }
    // (No space is lost.)
    until(|| free() == before);
    assert!(!dir.join("new").exists());
    assert_eq!(fs::read(dir.join("five")).unwrap(), b"bytes");
    let logged = server.log_tail();
    assert!(logged.contains("of a kept heap: Grow"), "{logged}");
}
