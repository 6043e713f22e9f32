//! The independent reader in `tests/reader`, which knows nothing of the engine but what
//! `docs/format.md` says, sees the same tree in a pool's bytes as the pool itself shows:
//! in pools that were closed, and in pools that a crash left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lode_engine::{
    AccessTimes, Attr, Error, Fallocate, FormatOptions, Ino, NewInode, Op as Counted, OpenOptions,
    PageClass, Pool, SetAttr, XattrChange, XattrWhen, mode,
};
use lode_testkit::execute::{Handles, execute};
use lode_testkit::fs::TestPool;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Fill, Op, odd_name};
use lode_testkit::rng::Rng;
use lode_testkit::system::{PoolSystem, System};
use lode_testkit::{Memory, TestHost};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Larger files are compared by their pages that are not all zeros.
const LIMIT: u64 = MIB;

/// What is seen of one name, by the names of its fields.
type Tree = BTreeMap<String, Value>;

/// A pool to make, and how it ends.
struct Case {
    name: String,
    bytes: u64,
    format: FormatOptions,
    options: OpenOptions,
    work: Work,
    closed: bool,
}

/// What is done to a pool.
enum Work {
    Random { shape: Shape, count: usize },
    Tour,
    LongLogs,
}

#[test]
fn the_independent_reader_sees_what_the_pool_shows() {
    let python = Command::new("python3").arg("--version").output();
    assert!(python.is_ok(), "python3 is missing: the independent reader needs it");
    let cases = cases();
    assert!(cases.len() >= 30);
    each(&cases.iter().collect::<Vec<_>>(), &|seed, case| {
        let (image, tree) = case.make(seed);
        compare(&case.name, &image, &tree);
    });
}

/// Of the lines that one operation stores under its fence, any may be missing after a
/// crash: the reader judges such a pool as recovery does.
#[test]
fn the_independent_reader_judges_a_cut_off_operation_as_recovery_does() {
    let seeds: Vec<u64> = (0..60).collect();
    let happened = AtomicUsize::new(0);
    each(&seeds.iter().collect::<Vec<_>>(), &|_, &&seed| {
        let (before, after, op) = last_operation(seed);
        let lines: Vec<usize> = (0..before.len()).step_by(64).collect();
        let differs = |&at: &usize| before[at..at + 64] != after[at..at + 64];
        let lines: Vec<usize> = lines.into_iter().filter(differs).collect();
        assert!(!lines.is_empty() && lines.len() < 20, "{op} stored {} lines", lines.len());
        let mut rng = Rng::new(seed);
        let mut image = before.clone();
        for &at in &lines {
            if rng.once_in(2) {
                image[at..at + 64].copy_from_slice(&after[at..at + 64]);
            }
        }
        let options = OpenOptions { atime: AccessTimes::Never, ..OpenOptions::default() };
        let pool = Pool::open(Memory::from_image(&image), TestHost::new(1), &options);
        let pool = pool.unwrap_or_else(|error| panic!("seed {seed}: {op}: {error:?}"));
        happened.fetch_add(usize::from(pool.opening().aborted == 0), Relaxed);
        compare(&format!("seed {seed}: {op}"), &image, &tree(&pool));
    });
    let happened = happened.into_inner();
    assert!(0 < happened && happened < seeds.len(), "{happened} of {} happened", seeds.len());
}

/// A journalled overwrite counts from its record on; the bytes it goes to may be behind.
#[test]
fn the_independent_reader_sees_overwrites_that_wait_in_the_journal() {
    const OLD: [u8; 64] = [0xaa; 64];
    let seeds: Vec<u64> = (0..12).collect();
    each(&seeds.iter().collect::<Vec<_>>(), &|_, &&seed| {
        let mut rng = Rng::new(seed);
        let huge = seed % 4 == 3;
        let page_class = if huge { PageClass::Huge } else { PageClass::Small };
        let format = FormatOptions { lanes: 1, page_class, ..Default::default() };
        let (bytes, size) = if huge { (16 * MIB, 2 * MIB) } else { (2 * MIB, 3 * PAGE) };
        let host = TestHost::new(seed);
        let system = PoolSystem::new(bytes, host, &format, OpenOptions::default()).unwrap();
        let pool = system.pool();
        let new = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
        let file = pool.create(pool.root(), b"file", &new).unwrap().ino;
        pool.write(file, 0, &vec![OLD[0]; size as usize]).unwrap();
        pool.write(file, 100, b"an overwrite that is home").unwrap();
        let before = system.memory().image();
        let len = if huge { 1 + rng.below(20_000) } else { 1 + rng.below(2000) };
        let page = rng.below(2) * PAGE;
        let at = page + if huge { 300 } else { rng.below(PAGE - len) };
        pool.write(file, at, &Fill { len, fill: seed + 1 }.bytes()).unwrap();
        if rng.once_in(2) {
            let size = Some(at + rng.below(len + 1));
            pool.setattr(file, &SetAttr { size, ..Default::default() }).unwrap();
        }
        let attrs = attrs(pool);
        let mut image = system.memory().image();
        let mut behind = 0;
        for (now, was) in image.chunks_exact_mut(64).zip(before.chunks_exact(64)) {
            if was == OLD && now != OLD {
                now.copy_from_slice(was);
                behind += 1;
            }
        }
        assert!(behind > 0, "seed {seed}: nothing of {len} bytes at {at} was on its way home");
        compare(&format!("journal, seed {seed}"), &image, &seen(pool, attrs));
    });
}

/// Runs the cases on two threads.
fn each<T: Sync>(cases: &[&T], run: &(dyn Fn(u64, &&T) + Sync)) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
            let seed = cases.iter().position(|other| std::ptr::eq(*other, *case)).unwrap();
            run(seed as u64, case);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

fn cases() -> Vec<Case> {
    let shapes = [
        ("random", Shape::default(), 500, 16, 4),
        (
            "sessions",
            Shape { remount_every: 25, maintain_every: 40, ..Shape::default() },
            500,
            16,
            1,
        ),
        (
            "few names",
            Shape {
                names: 2,
                depth: 2,
                offset_max: 30_000,
                len_max: 300,
                sparse: false,
                maintain_every: 100,
                remount_every: 300,
                ..Shape::default()
            },
            2500,
            16,
            2,
        ),
        (
            "nearly full",
            Shape { sparse: false, offset_max: 400_000, len_max: 200_000, ..Shape::default() },
            300,
            3,
            64,
        ),
    ];
    let mut cases = Vec::new();
    for closed in [true, false] {
        for (name, shape, count, mib, lanes) in &shapes {
            for relaxed in [false, true] {
                let name = format!("{name}, relaxed {relaxed}, closed {closed}");
                let work = Work::Random { shape: shape.clone(), count: *count };
                let options = OpenOptions {
                    relaxed,
                    atime: if relaxed { AccessTimes::Never } else { AccessTimes::Relative },
                    ..Default::default()
                };
                cases.push(case(name, mib * MIB, *lanes, options, work, closed));
            }
        }
        for relaxed in [false, true] {
            let shape = Shape {
                remount_every: 50,
                offset_max: 5 << 20,
                len_max: 100_000,
                sparse: false,
                ..Shape::default()
            };
            let name = format!("huge pages, relaxed {relaxed}, closed {closed}");
            let options = OpenOptions { relaxed, ..Default::default() };
            let work = Work::Random { shape, count: 250 };
            let mut huge = case(name, 64 * MIB, 4, options, work, closed);
            huge.format.page_class = PageClass::Huge;
            cases.push(huge);
        }
        for (log_lines, name_max) in [(4, 136), (7, 256)] {
            let shape = Shape { names: 3, name_max, remount_every: 150, ..Shape::default() };
            let work = Work::Random { shape, count: 500 };
            let name = format!("{log_lines} lines a log page, closed {closed}");
            let mut short = case(name, 16 * MIB, 2, OpenOptions::default(), work, closed);
            short.format.log_lines = log_lines;
            cases.push(short);
        }
        for lanes in [1, 16, 256] {
            let options = OpenOptions::default();
            let name = format!("tour, {lanes} lanes, closed {closed}");
            cases.push(case(name, 16 * MIB, lanes, options, Work::Tour, closed));
        }
        for lanes in [1, 3] {
            let options = OpenOptions { atime: AccessTimes::Never, ..Default::default() };
            let name = format!("long logs, {lanes} lanes, closed {closed}");
            cases.push(case(name, 16 * MIB, lanes, options, Work::LongLogs, closed));
        }
    }
    cases
}

fn case(
    name: String,
    bytes: u64,
    lanes: u32,
    options: OpenOptions,
    work: Work,
    closed: bool,
) -> Case {
    let format = FormatOptions { lanes, label: b"reader".to_vec(), ..Default::default() };
    Case { name, bytes, format, options, work, closed }
}

impl Case {
    /// The pool's bytes, and what it showed of them.
    fn make(&self, seed: u64) -> (Vec<u8>, Tree) {
        let host = TestHost::new(seed);
        let mut system = PoolSystem::new(self.bytes, host, &self.format, self.options).unwrap();
        match &self.work {
            Work::Random { shape, count } => random(&mut system, seed, shape, *count),
            Work::Tour => tour(&mut system),
            Work::LongLogs => long_logs(&mut system),
        }
        let attrs = attrs(system.pool());
        if self.closed {
            system.pool().close().unwrap();
        }
        // Before anything is read, which may set access times.
        let image = system.memory().image();
        (image, seen(system.pool(), attrs))
    }
}

fn random(system: &mut PoolSystem, seed: u64, shape: &Shape, count: usize) {
    let mut handles = Handles::new();
    for (step, op) in Generator::new(seed, shape.clone()).take(count).iter().enumerate() {
        system.set_now(1_000_000_007 * (step as i64 + 1));
        if matches!(op, Op::Remount | Op::Crash) {
            handles.clear();
            system.remount(*op == Op::Remount).unwrap();
        } else if let Err(error) = execute(system.fs(), &mut handles, op) {
            assert!(!matches!(error, Error::Corrupt(_)), "{op}: {error:?}");
        }
    }
}

/// A bit of everything, with all the lengths at which the format changes its mind.
fn tour(system: &mut PoolSystem) {
    let pool = system.pool();
    let new = |mode: u32| NewInode { mode: mode | 0o640, uid: 7, gid: 8, rdev: 0x12_0000_0034 };
    let root = pool.root();
    let dir = pool.create(root, b"dir", &new(mode::DIRECTORY)).unwrap().ino;
    let deep = pool.create(dir, b"deep", &new(mode::DIRECTORY)).unwrap().ino;
    for kind in [mode::FIFO, mode::SOCKET, mode::CHARACTER, mode::BLOCK] {
        pool.create(dir, format!("{kind:o}").as_bytes(), &new(kind)).unwrap();
    }
    for len in [1, 15, 16, 17, 55, 56, 57, 95, 96, 97, 254, 255] {
        pool.create(deep, &odd_name(1, len), &new(mode::FILE)).unwrap();
    }
    for len in [1, 16, 17, 56, 57, 136, 137, 4095] {
        let name = format!("link {len}");
        pool.symlink(dir, name.as_bytes(), &odd_name(2, len), 1, 2).unwrap();
    }
    let file = |name: &[u8]| pool.create(root, name, &new(mode::FILE)).unwrap().ino;
    let fill = |len, fill| Fill { len, fill }.bytes();
    let holes = file(b"holes");
    for at in [0, 3 * PAGE + 5, 40 * PAGE, MIB * MIB] {
        pool.write(holes, at, &fill(5000, at + 1)).unwrap();
    }
    pool.fallocate(holes, Fallocate::Punch, 2 * PAGE - 9, 40 * PAGE).unwrap();
    let behind = file(b"behind the size");
    pool.write(behind, 0, &fill(100, 3)).unwrap();
    pool.fallocate(behind, Fallocate::Allocate { keep_size: true }, 0, 10 * PAGE).unwrap();
    let cut = file(b"cut");
    pool.write(cut, 0, &fill(9000, 4)).unwrap();
    pool.write(cut, 4000, &fill(60, 5)).unwrap();
    for size in [4030, 9000, 4100] {
        pool.setattr(cut, &SetAttr { size: Some(size), ..Default::default() }).unwrap();
    }
    let over = file(b"overwritten");
    pool.write(over, 0, &fill(20_000, 6)).unwrap();
    for step in 0..9 {
        pool.write(over, step * 1000 + 1, &fill(100 * step + 1, 7 + step)).unwrap();
    }
    pool.link(over, deep, b"another name").unwrap();
    let gone = file(b"gone");
    pool.write(gone, 0, &fill(70_000, 8)).unwrap();
    pool.acquire(gone).unwrap();
    pool.unlink(root, b"gone").unwrap();
    pool.write(gone, 0, b"still open").unwrap();
    let replaced = file(b"replaced");
    pool.write(replaced, 0, &fill(10_000, 9)).unwrap();
    pool.rename(root, b"cut", root, b"replaced", lode_engine::RenameMode::Replace).unwrap();
    pool.rename(dir, b"deep", root, b"risen", lode_engine::RenameMode::Replace).unwrap();
    for (name, len) in [("user.a", 0), ("user.b", 33), ("user.c", 634), ("user.d", 635)] {
        let value = fill(len, len + 1);
        let change =
            XattrChange { name: name.as_bytes(), value: Some(&value), when: XattrWhen::Always };
        for ino in [dir, over] {
            pool.setxattr(ino, &change).unwrap();
        }
    }
    let gone = XattrChange { name: b"user.b", value: None, when: XattrWhen::Present };
    pool.setxattr(over, &gone).unwrap();
    let long = odd_name(1, 255);
    let most = XattrChange { name: &long, value: Some(&fill(65_536, 9)), when: XattrWhen::Always };
    pool.setxattr(over, &most).unwrap();
    system.set_now(77_000_000_000);
    system.pool().read(holes, 0, &mut [0; 10]).unwrap();
}

/// Logs of many pages, rewritten again and again, over several sessions.
fn long_logs(system: &mut PoolSystem) {
    let new = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
    for session in 0..4u64 {
        let pool = system.pool();
        let root = pool.root();
        let busy = match pool.lookup(root, b"busy") {
            Ok(attr) => attr.ino,
            Err(_) => pool.create(root, b"busy", &new).unwrap().ino,
        };
        for step in 0..2000u64 {
            let data = Fill { len: 100 + step, fill: session * 1000 + step + 1 }.bytes();
            pool.write(busy, step * 97 % 40 * PAGE, &data).unwrap();
            let name = format!("{} {}", step % 90, "n".repeat((step % 50) as usize));
            match pool.unlink(root, name.as_bytes()) {
                Ok(()) => {}
                Err(_) => drop(pool.create(root, name.as_bytes(), &new).unwrap()),
            }
        }
        pool.maintain().unwrap();
        let done = pool.stats().ops;
        assert!(done[Counted::CollectThorough as usize] > 0, "logs were rewritten");
        if session < 3 {
            system.remount(session % 2 == 0).unwrap();
        }
    }
}

/// The bytes of a pool before and after an operation of one fence.
fn last_operation(seed: u64) -> (Vec<u8>, Vec<u8>, Op) {
    let format = FormatOptions { lanes: 2, ..Default::default() };
    let host = TestHost::new(seed);
    let system = PoolSystem::new(2 * MIB, host, &format, OpenOptions::default()).unwrap();
    let shape = Shape { len_max: 500, sparse: false, slots: 2, ..Shape::default() };
    let mut generator = Generator::new(seed, shape);
    let mut handles = Handles::new();
    let mut found = None;
    for step in 0..2000 {
        let op = generator.op();
        let one_fence = matches!(
            op,
            Op::Create { .. }
                | Op::Link { .. }
                | Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::Rename { .. }
        );
        system.set_now(1_000_000_007 * (step + 1));
        let before = (one_fence && step > 100).then(|| system.memory().image());
        let fences = system.pool().stats().door.fences;
        let done = execute(system.fs(), &mut handles, &op);
        if let (Some(before), Ok(_)) = (before, done)
            && system.pool().stats().door.fences == fences + 1
        {
            found = Some((before, system.memory().image(), op));
            break;
        }
    }
    found.expect("an operation of one fence")
}

/// The attributes of every path, without reading any content but listings.
fn attrs(pool: &TestPool) -> BTreeMap<Vec<u8>, Attr> {
    let mut found = BTreeMap::new();
    let mut todo: Vec<(Vec<u8>, Ino)> = vec![(Vec::new(), pool.root())];
    while let Some((path, ino)) = todo.pop() {
        let mut attr = pool.getattr(ino).unwrap();
        if attr.mode & mode::TYPE == mode::DIRECTORY {
            let list = |entry: lode_engine::DirEntry<'_>| {
                todo.push(([&path, b"/".as_slice(), entry.name].concat(), entry.ino));
                true
            };
            pool.readdir(ino, 0, &mut { list }).unwrap();
            // That was a read, whose time is its own.
            attr = pool.getattr(ino).unwrap();
        }
        found.insert(if path.is_empty() { b"/".to_vec() } else { path }, attr);
    }
    found
}

fn tree(pool: &TestPool) -> Tree {
    seen(pool, attrs(pool))
}

fn seen(pool: &TestPool, attrs: BTreeMap<Vec<u8>, Attr>) -> Tree {
    let mut hashes: BTreeMap<Ino, String> = BTreeMap::new();
    let mut tree = Tree::new();
    for (path, attr) in attrs {
        let hash = hashes.entry(attr.ino).or_insert_with(|| hash(pool, &attr));
        let mut value = value(&attr, hash);
        value["xattrs"] = xattrs(pool, attr.ino);
        tree.insert(escape(&path), value);
    }
    tree
}

fn value(attr: &Attr, hash: &str) -> Value {
    let kind = attr.mode & mode::TYPE;
    let (letter, sized) = match kind {
        mode::FILE => ("f", true),
        mode::SYMLINK => ("l", true),
        mode::DIRECTORY => ("d", false),
        mode::CHARACTER => ("c", false),
        mode::BLOCK => ("b", false),
        mode::FIFO => ("p", false),
        _ => ("s", false),
    };
    let device = matches!(kind, mode::CHARACTER | mode::BLOCK);
    let rdev = if device { [attr.rdev >> 32, attr.rdev & 0xffff_ffff] } else { [0, 0] };
    json!({
        "type": letter,
        "mode": format!("{:04o}", attr.mode & 0o7777),
        "links": attr.links,
        "size": if sized { attr.size } else { 0 },
        "hash": hash,
        "uid": attr.uid,
        "gid": attr.gid,
        "mtime": attr.mtime_ns,
        "ctime": attr.ctime_ns,
        "atime": attr.atime_ns,
        "btime": attr.btime_ns,
        "inode": attr.ino,
        "rdev": rdev,
    })
}

/// Hashes of the values, by name.
fn xattrs(pool: &TestPool, ino: Ino) -> Value {
    let names = pool.listxattr(ino).unwrap().into_iter();
    let hashed = names.map(|name| {
        let value = pool.getxattr(ino, &name).unwrap();
        (escape(&name), format!("{:x}", Sha256::digest(value)).into())
    });
    Value::Object(hashed.collect())
}

/// As the reader's help describes it.
fn hash(pool: &TestPool, attr: &Attr) -> String {
    let mut digest = Sha256::new();
    let kind = attr.mode & mode::TYPE;
    if kind == mode::SYMLINK {
        digest.update(pool.readlink(attr.ino).unwrap());
    }
    if kind != mode::FILE || attr.size <= LIMIT {
        let size = if kind == mode::FILE { attr.size } else { 0 };
        let mut bytes = vec![0; size as usize];
        if size > 0 {
            assert_eq!(pool.read(attr.ino, 0, &mut bytes).unwrap() as u64, size);
        }
        digest.update(bytes);
        return format!("{:x}", digest.finalize());
    }
    let mut at = 0;
    while let Ok(start) = pool.seek(attr.ino, at, true) {
        let end = pool.seek(attr.ino, start, false).unwrap();
        for page in start / PAGE..end.div_ceil(PAGE) {
            let mut bytes = vec![0; PAGE as usize];
            pool.read(attr.ino, page * PAGE, &mut bytes).unwrap();
            if bytes.iter().any(|&byte| byte != 0) {
                digest.update(page.to_le_bytes());
                digest.update(bytes);
            }
        }
        at = end;
        if at >= attr.size {
            break;
        }
    }
    format!("sparse:{:x}", digest.finalize())
}

fn escape(path: &[u8]) -> String {
    let mut text = String::new();
    for &byte in path {
        match byte {
            b'\\' => text.push_str("\\\\"),
            0x20..0x7f => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

/// Runs the reader over a pool's bytes, and compares what it says.
fn compare(name: &str, image: &[u8], wanted: &Tree) {
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reader/lode_reader.py");
    let file = File::with(image);
    let output = Command::new("python3")
        .arg("-B")
        .arg(reader)
        .args(["--json", "--limit", &LIMIT.to_string()])
        .arg(&file.0)
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{name}: {said}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found = Tree::new();
    for one in answer["files"].as_array().unwrap() {
        let mut one = one.clone();
        let path = one.as_object_mut().unwrap().remove("path").unwrap();
        found.insert(path.as_str().unwrap().to_owned(), one);
    }
    for (path, want) in wanted {
        let have = found.remove(path);
        assert_eq!(have.as_ref(), Some(want), "{name}: {path}: the reader's, the pool's");
    }
    assert!(found.is_empty(), "{name}: only the reader sees {:?}", found.keys());
}

/// A file that goes when it is dropped.
struct File(PathBuf);

impl File {
    fn with(bytes: &[u8]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("lode-reader-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let file = Self(std::env::temp_dir().join(name));
        std::fs::write(&file.0, bytes).unwrap();
        file
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
