//! What is easily wrong in a difference: moves into each other, names that change places, several names, last pages
//! that grow where they are, room without data, holes; and that what both have is not in it.

use crate::common::{
    TestPool, format, has, open, options, pages, receive, stream, target, tree_of,
};
use lode_engine::{Fallocate, Ino, NewInode, RenameMode, SetAttr, XattrChange, XattrWhen, mode};
use lode_testkit::{Memory, TestHost};

const MIB: u64 = 1 << 20;

fn pool(level: u64) -> TestPool {
    let memory = Memory::new(32 << 20);
    TestPool::format(memory.clone(), TestHost::new(9), &format(level)).unwrap();
    TestPool::open(memory, TestHost::new(10), &options(false)).unwrap()
}

fn new(bits: u32) -> NewInode {
    NewInode { mode: bits, uid: 1, gid: 2, rdev: 0 }
}

fn file(pool: &TestPool, dir: Ino, name: &str) -> Ino {
    pool.create(dir, name.as_bytes(), &new(mode::FILE | 0o640)).unwrap().ino
}

fn dir(pool: &TestPool, parent: Ino, name: &str) -> Ino {
    pool.create(parent, name.as_bytes(), &new(mode::DIRECTORY | 0o750)).unwrap().ino
}

fn resize(pool: &TestPool, ino: Ino, size: u64) {
    pool.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

fn rename(pool: &TestPool, from: (Ino, &str), to: (Ino, &str), how: RenameMode) {
    pool.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), how).unwrap();
}

/// Sends what `before` made, and then what `change` made of it, at each level; `change` gets what `before` gave.
/// Returns how long the difference was.
fn both<T>(before: impl Fn(&TestPool) -> T, change: impl Fn(&TestPool, T)) -> usize {
    let mut len = 0;
    for level in 0..3 {
        let pool = pool(level);
        let made = before(&pool);
        pool.create_snapshot(b"a").unwrap();
        change(&pool, made);
        pool.create_snapshot(b"b").unwrap();
        // What comes later is not in it.
        file(&pool, pool.root(), "later");
        let memory = target(level + 1);
        let there = open(&memory, true).unwrap();
        receive(&there, &stream(&pool, b"a", None), false).unwrap();
        let difference = stream(&pool, b"b", Some(b"a"));
        receive(&there, &difference, false).unwrap();
        for name in [b"a", b"b"] {
            let root = pool.snapshot_root(name).unwrap();
            let root_there = there.snapshot_root(name).unwrap();
            assert_eq!(
                pages(&pool, root),
                pages(&there, root_there),
                "level {level}: mapped pages of {name:?}"
            );
            let tree = tree_of(&pool, root, None);
            if name == b"b" {
                has(&there, name, &tree, &format!("level {level}"));
            }
        }
        len = difference.len();
    }
    len
}

#[test]
fn last_pages_that_grow_where_they_are() {
    both(
        |pool| {
            let ino = file(pool, pool.root(), "f");
            pool.write(ino, 0, &[1; 5000]).unwrap();
            let room = file(pool, pool.root(), "room");
            pool.write(room, 0, &[1; 100]).unwrap();
            pool.fallocate(room, Fallocate::Allocate { keep_size: true }, 0, MIB).unwrap();
            (ino, room)
        },
        |pool, (ino, room)| {
            pool.append(ino, &[2; 500]).unwrap();
            pool.append(room, &[3; 9000]).unwrap();
        },
    );
}

#[test]
fn room_without_data_and_holes_stay_what_they_are() {
    both(
        |pool| {
            let names = ["shrinks", "grows", "gets room", "loses room", "gets holes", "sparse"];
            let inos = names.map(|name| {
                let ino = file(pool, pool.root(), name);
                pool.write(ino, 0, &[1; 20_000]).unwrap();
                ino
            });
            pool.fallocate(inos[0], Fallocate::Allocate { keep_size: true }, 0, MIB).unwrap();
            pool.fallocate(inos[3], Fallocate::Allocate { keep_size: true }, 0, MIB).unwrap();
            pool.write(inos[5], 1 << 40, b"far away").unwrap();
            inos
        },
        |pool, inos| {
            resize(pool, inos[0], 6000);
            pool.fallocate(inos[0], Fallocate::Allocate { keep_size: true }, 40_960, 8192).unwrap();
            resize(pool, inos[1], 900_000);
            pool.fallocate(inos[2], Fallocate::Allocate { keep_size: true }, 0, MIB).unwrap();
            pool.fallocate(inos[3], Fallocate::Punch, 24_576, MIB).unwrap();
            pool.fallocate(inos[4], Fallocate::Punch, 3000, 11_000).unwrap();
            pool.fallocate(inos[4], Fallocate::Zero { keep_size: true }, 16_384, 4096).unwrap();
            pool.write(inos[5], 1 << 41, b"farther").unwrap();
        },
    );
}

#[test]
fn holes_of_large_files_stay_holes() {
    for level in 0..3 {
        let pool = pool(level);
        let sparse = file(&pool, pool.root(), "sparse");
        pool.write(sparse, MIB, b"here").unwrap();
        resize(&pool, sparse, 4 * MIB);
        pool.create_snapshot(b"a").unwrap();
        // There is room for all of it, in large pages.
        let memory = Memory::new(64 << 20);
        TestPool::format(memory.clone(), TestHost::new(9), &format(level)).unwrap();
        let there = open(&memory, true).unwrap();
        receive(&there, &stream(&pool, b"a", None), false).unwrap();
        assert_eq!(pages(&there, there.root()), [("/sparse".to_owned(), 1)], "level {level}");
        has(&there, b"a", &tree_of(&pool, pool.root(), None), "sparse");
    }
}

#[test]
fn what_both_have_is_not_sent() {
    let len = both(
        |pool| {
            let ino = file(pool, pool.root(), "large");
            pool.write(ino, 0, &vec![7; 4 << 20]).unwrap();
            (0..50).for_each(|n| {
                file(pool, pool.root(), &format!("f{n}"));
            });
            ino
        },
        |pool, ino| pool.write(ino, MIB + 10, b"changed").unwrap(),
    );
    assert!(len < 5000, "{len} bytes for a page");
    // Nor is what only moved.
    let len = both(
        |pool| {
            let (one, two) = (dir(pool, pool.root(), "one"), dir(pool, pool.root(), "two"));
            pool.write(file(pool, one, "large"), 0, &vec![7; 4 << 20]).unwrap();
            (one, two)
        },
        |pool, (one, two)| rename(pool, (one, "large"), (two, "moved"), RenameMode::Replace),
    );
    assert!(len < 1000, "{len} bytes for a rename");
}

#[test]
fn directories_that_move_into_each_other() {
    both(
        |pool| {
            let a = dir(pool, pool.root(), "a");
            let b = dir(pool, a, "b");
            let c = dir(pool, b, "c");
            pool.write(file(pool, c, "deep"), 0, b"deep").unwrap();
            (a, b, c)
        },
        |pool, (a, b, c)| {
            // c/b/a, where a/b/c was; a new directory between, and one that is gone.
            let between = dir(pool, pool.root(), "between");
            rename(pool, (b, "c"), (between, "c"), RenameMode::Replace);
            rename(pool, (a, "b"), (c, "b"), RenameMode::Replace);
            rename(pool, (pool.root(), "a"), (b, "a"), RenameMode::Replace);
        },
    );
    both(
        |pool| {
            let gone = dir(pool, pool.root(), "gone");
            let inner = dir(pool, gone, "inner");
            let kept = dir(pool, inner, "kept");
            file(pool, kept, "x");
            file(pool, inner, "y");
            (gone, inner)
        },
        |pool, (gone, inner)| {
            rename(pool, (inner, "kept"), (pool.root(), "gone2"), RenameMode::Replace);
            pool.unlink(inner, b"y").unwrap();
            pool.rmdir(gone, b"inner").unwrap();
            pool.rmdir(pool.root(), b"gone").unwrap();
            // Its name is a file's now.
            file(pool, pool.root(), "gone");
        },
    );
}

#[test]
fn names_that_change_places_and_files_with_several() {
    both(
        |pool| {
            let (d, e) = (dir(pool, pool.root(), "d"), dir(pool, pool.root(), "e"));
            let (f, g) = (file(pool, d, "f"), file(pool, d, "g"));
            pool.write(f, 0, b"f").unwrap();
            pool.link(f, e, b"f2").unwrap();
            pool.link(f, pool.root(), b"f3").unwrap();
            pool.link(g, e, b"g2").unwrap();
            (d, e, f)
        },
        |pool, (d, e, f)| {
            rename(pool, (d, "f"), (d, "g"), RenameMode::Exchange);
            rename(pool, (pool.root(), "d"), (pool.root(), "e"), RenameMode::Exchange);
            pool.unlink(pool.root(), b"f3").unwrap();
            pool.link(f, pool.root(), b"f4").unwrap();
            pool.unlink(e, b"g2").unwrap();
            let h = file(pool, d, "h");
            pool.link(h, e, b"h2").unwrap();
            pool.write(h, 0, b"h").unwrap();
            pool.unlink(d, b"f").unwrap();
        },
    );
    // All names go but one that is new; a name is another inode's.
    both(
        |pool| {
            let f = file(pool, pool.root(), "f");
            pool.link(f, pool.root(), b"g").unwrap();
            f
        },
        |pool, f| {
            pool.link(f, pool.root(), b"h").unwrap();
            pool.unlink(pool.root(), b"f").unwrap();
            pool.unlink(pool.root(), b"g").unwrap();
            file(pool, pool.root(), "f");
        },
    );
}

#[test]
fn all_kinds_of_inodes_with_all_that_they_have() {
    let value = vec![5; 60_000];
    let set = |pool: &TestPool, ino, name: &[u8], value: &[u8]| {
        let change = XattrChange { name, value: Some(value), when: XattrWhen::Always };
        pool.setxattr(ino, &change).unwrap();
    };
    both(
        |pool| {
            let root = pool.root();
            let kinds = [mode::FIFO, mode::SOCKET, mode::CHARACTER, mode::BLOCK];
            for (number, kind) in kinds.into_iter().enumerate() {
                let rdev = if number > 1 { 7 << 32 | 9 } else { 0 };
                let new = NewInode { rdev, ..new(kind | 0o600) };
                pool.create(root, format!("special{number}").as_bytes(), &new).unwrap();
            }
            pool.symlink(root, b"short", b"target", 3, 4).unwrap();
            pool.symlink(root, b"long", &[b'x'; 4000], 3, 4).unwrap();
            let f = file(pool, root, "f");
            set(pool, f, b"user.goes", b"1");
            set(pool, f, b"user.stays", b"2");
            set(pool, f, b"user.changes", b"3");
            set(pool, root, b"user.root", &value);
            let times = SetAttr { atime_ns: Some(-5), mtime_ns: Some(7), ..SetAttr::default() };
            pool.setattr(f, &SetAttr { mode: Some(0o6755), uid: Some(8), ..times }).unwrap();
            (f, dir(pool, root, "d"))
        },
        |pool, (f, d)| {
            let change = XattrChange { name: b"user.goes", value: None, when: XattrWhen::Present };
            pool.setxattr(f, &change).unwrap();
            set(pool, f, b"user.changes", &value);
            set(pool, d, b"user.new", b"");
            pool.unlink(pool.root(), b"long").unwrap();
            pool.symlink(pool.root(), b"long", b"now short", 0, 0).unwrap();
            // An old time that is set again, in a directory that has changed.
            let mtime_ns = Some(pool.getattr(d).unwrap().mtime_ns);
            file(pool, d, "new");
            pool.setattr(d, &SetAttr { mtime_ns, ..SetAttr::default() }).unwrap();
            let mtime_ns = Some(3);
            pool.setattr(pool.root(), &SetAttr { mtime_ns, ..SetAttr::default() }).unwrap();
        },
    );
}

#[test]
fn files_that_had_no_name_and_get_one() {
    both(
        |pool| {
            let made = pool.create_nameless(pool.root(), &new(mode::FILE | 0o600), &[]).unwrap();
            pool.write(made.ino, 0, b"in peace").unwrap();
            let gone = file(pool, pool.root(), "gone");
            pool.acquire(gone).unwrap();
            pool.unlink(pool.root(), b"gone").unwrap();
            made.ino
        },
        |pool, ino| {
            pool.link(ino, pool.root(), b"named").unwrap();
        },
    );
}

#[test]
fn names_like_that_of_the_directory_for_what_moves() {
    both(
        |pool| {
            let d = dir(pool, pool.root(), ".lode-receive");
            file(pool, d, "1f");
            d
        },
        |pool, d| {
            rename(pool, (pool.root(), ".lode-receive"), (pool.root(), "x"), RenameMode::Replace);
            rename(pool, (d, "1f"), (pool.root(), ".lode-receive"), RenameMode::Replace);
        },
    );
}

#[test]
fn very_deep_directories() {
    both(
        |pool| {
            let deep = (0..400).fold(pool.root(), |parent, _| dir(pool, parent, "d"));
            file(pool, deep, "f")
        },
        |pool, ino| pool.write(ino, 0, b"x").unwrap(),
    );
    let pool = pool(0);
    let long = "d".repeat(250);
    (0..300).fold(pool.root(), |parent, _| dir(&pool, parent, &long));
    pool.create_snapshot(b"a").unwrap();
    let mut sender = lode_stream::Sender::new(&pool, b"a", None).unwrap();
    let mut bytes = Vec::new();
    let sent = std::iter::from_fn(|| match sender.next(&pool, &mut bytes) {
        Ok(true) => Some(Ok(())),
        Ok(false) => None,
        Err(error) => Some(Err(error)),
    });
    let failed = sent.filter_map(Result::err).next();
    assert!(
        matches!(failed, Some(lode_stream::Error::PathTooLong { bytes: 65_761, .. })),
        "{failed:?}"
    );
}
