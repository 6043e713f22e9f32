//! What a file's log says in few records goes back to where its inode is, and its log page to free space: it
//! says the same there, after a crash, too.

use lode_engine::{
    Attr, FormatOptions, Ino, NewInode, Op, OpenOptions, Pool, Protection, SetAttr, Use,
    XattrChange, XattrWhen, mode,
};
use lode_testkit::{Memory, TestHost};

type TestPool = Pool<Memory, TestHost>;

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 2, rdev: 0 };
const PIECE: u64 = 16 << 10;
/// So many pieces are more records than the inode has places for.
const PIECES: u64 = 9;

fn name(number: u64) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

fn formatted(protection: Protection) -> Memory {
    let memory = Memory::new(64 << 20);
    let format = FormatOptions { protection, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    memory
}

fn open(memory: &Memory, host: &TestHost) -> TestPool {
    Pool::open(memory.clone(), host.clone(), &OpenOptions::default()).unwrap()
}

/// A file in pieces, as copying one writes it.
fn written(pool: &TestPool, host: &TestHost, number: u64) -> Ino {
    let ino = pool.create(pool.root(), &name(number), &FILE).unwrap().ino;
    for piece in 0..PIECES {
        host.set_now((1000 * (number + 1) + piece) as i64);
        let bytes = vec![(number * PIECES + piece) as u8 | 1; PIECE as usize];
        pool.write(ino, piece * PIECE, &bytes).unwrap();
    }
    ino
}

/// What is done to some of the files besides.
fn changed(pool: &TestPool, number: u64, ino: Ino) {
    let none = SetAttr::default();
    let set = |changes: &SetAttr| pool.setattr(ino, changes).map(|_| ()).unwrap();
    match number % 10 {
        1 => set(&SetAttr { mode: Some(0o4711), uid: Some(7), gid: Some(8), ..none }),
        2 => set(&SetAttr { atime_ns: Some(5), mtime_ns: Some(6), ..none }),
        3 => set(&SetAttr { size: Some(5000), ..none }),
        4 => set(&SetAttr { size: Some(0), ..none }),
        5 => {
            pool.link(ino, pool.root(), format!("l{number}").as_bytes()).unwrap();
        }
        6 => {
            let when = XattrWhen::Always;
            let change = XattrChange { name: b"user.a", value: Some(b"b"), when };
            pool.setxattr(ino, &change).unwrap();
        }
        7 => {
            set(&SetAttr { size: Some(0), ..none });
            set(&SetAttr { size: Some(1 << 20), ..none });
        }
        8 => pool.write(ino, 100, b"some bytes in place").unwrap(),
        9 => pool.write(ino, 1 << 30, b"far behind").unwrap(),
        _ => {}
    }
}

/// What can be seen of a file: attributes, bytes at its head and far behind, an extended attribute.
type Shown = (Attr, Vec<u8>, Vec<u8>, Option<Vec<u8>>);

fn shown(pool: &TestPool, files: &[Ino]) -> Vec<Shown> {
    let mut all = Vec::new();
    for ino in files {
        let mut head = vec![0; (PIECE * PIECES) as usize];
        let read = pool.read_quietly(*ino, 0, &mut head).unwrap();
        head.truncate(read);
        let mut tail = vec![0; 100];
        let read = pool.read_quietly(*ino, 1 << 30, &mut tail).unwrap();
        tail.truncate(read);
        let xattr = pool.getxattr(*ino, b"user.a").ok();
        all.push((pool.getattr(*ino).unwrap(), head, tail, xattr));
    }
    all
}

fn log_pages(pool: &TestPool) -> u64 {
    let mut pages = 0;
    pool.for_each_use(&mut |run| {
        if run.used_for == Use::Logs {
            pages += run.pages;
        }
    })
    .unwrap();
    pages
}

#[test]
fn what_a_file_of_few_records_says_is_the_same_inline_and_after_a_crash() {
    for protection in Protection::ALL {
        let memory = formatted(protection);
        let host = TestHost::new(1);
        let pool = open(&memory, &host);
        let files: Vec<Ino> = (0..60)
            .map(|number| {
                let ino = written(&pool, &host, number);
                changed(&pool, number, ino);
                ino
            })
            .collect();
        let wanted = shown(&pool, &files);
        assert!(pool.stats().ops[Op::CollectThorough as usize] >= 40, "{protection:?}");
        let crashed = memory.copy();
        pool.close().unwrap();
        drop(pool);
        for image in [memory, crashed] {
            let pool = open(&image, &host);
            assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "{protection:?}");
            for (at, (is, was)) in shown(&pool, &files).iter().zip(&wanted).enumerate() {
                assert_eq!(is, was, "{protection:?}, file {at}");
            }
            // They go on where they are.
            for (at, ino) in files.iter().enumerate() {
                pool.append(*ino, &[at as u8; 5000]).unwrap();
            }
            assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "{protection:?}");
        }
    }
}

#[test]
fn files_written_once_in_pieces_need_no_log_pages() {
    let host = TestHost::new(1);
    let pool = open(&formatted(Protection::None), &host);
    let files = 100;
    (0..files).for_each(|number| {
        written(&pool, &host, number);
    });
    let waiting = pool.gauges().unwrap().waiting_pages;
    // The root's, and those of the last few files.
    assert!(log_pages(&pool) <= waiting + 8, "{} log pages, {waiting} wait", log_pages(&pool));
}

/// A log that grows for ever is not written anew for ever.
#[test]
fn a_log_that_grows_again_and_again_keeps_its_page() {
    let host = TestHost::new(1);
    let pool = open(&formatted(Protection::None), &host);
    let files: Vec<Ino> =
        (0..8).map(|number| pool.create(pool.root(), &name(number), &FILE).unwrap().ino).collect();
    for _ in 0..50 {
        for ino in &files {
            pool.write(*ino, 0, &[7; PIECE as usize]).unwrap();
        }
    }
    let inline = pool.stats().ops[Op::CollectThorough as usize];
    assert!((8 * 4..=8 * 8).contains(&inline), "{inline} times in 400 writes");
}

/// What a snapshot has seen of a file is in its log.
#[test]
fn a_log_that_a_snapshot_sees_stays() {
    let host = TestHost::new(1);
    let pool = open(&formatted(Protection::None), &host);
    let files: Vec<Ino> = (0..20).map(|number| written(&pool, &host, number)).collect();
    let wanted = shown(&pool, &files);
    pool.create_snapshot(b"s").unwrap();
    for (number, ino) in files.iter().enumerate() {
        pool.append(*ino, &[number as u8; 40_000]).unwrap();
        written(&pool, &host, 100 + number as u64);
    }
    let root = pool.snapshot_root(b"s").unwrap();
    let views: Vec<Ino> =
        (0..20).map(|number| pool.lookup(root, &name(number)).unwrap().ino).collect();
    for ((_, head, ..), (_, was, ..)) in shown(&pool, &views).iter().zip(&wanted) {
        assert!(head == was);
    }
}

/// In a pool whose free space is in pieces, too.
#[test]
fn a_file_that_grows_in_pieces_lies_in_few() {
    let host = TestHost::new(1);
    let pool = open(&formatted(Protection::None), &host);
    // Pieces of four pages are free everywhere, and some of more.
    let piece = vec![1; PIECE as usize];
    let older: Vec<Ino> = (0..1500)
        .map(|number| {
            let ino = pool.create(pool.root(), &name(number), &FILE).unwrap().ino;
            let pieces = if number % 20 == 0 { 16 } else { 1 };
            (0..pieces).for_each(|at| pool.write(ino, at * PIECE, &piece).unwrap());
            ino
        })
        .collect();
    (0..older.len() as u64).step_by(2).for_each(|number| {
        pool.unlink(pool.root(), &name(number)).unwrap();
    });
    let count = |ino| {
        let held = pool.hold(ino).unwrap();
        let count = pool.extents(&held, 0, PIECES * PIECE).unwrap().len();
        pool.let_go(held);
        count
    };
    let most = (2000..2030).map(|number| count(written(&pool, &host, number))).max();
    assert!(most <= Some(2), "{most:?} pieces");
}
