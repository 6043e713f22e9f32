//! Files whose pages a program has mapped: they stay where they are, nobody else gets them, and
//! what is staged becomes the file's wholly or not at all.

use lode_engine::{
    Error, Fallocate, FormatOptions, Handle, MapExtent, NewInode, OpenOptions, Pool, Protection,
    SetAttr, Staging, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const PAGE: u64 = 4096;

fn pool() -> TestPool {
    let (memory, host) = (Memory::new(4 << 20), TestHost::new(5));
    Pool::format(memory.clone(), host.clone(), &FormatOptions::default()).unwrap();
    Pool::open(memory, host, &OpenOptions::default()).unwrap()
}

/// How a file gives up its pages.
type Cut = fn(&TestPool, u64);

/// A file `name` that holds `bytes`, open.
fn file(pool: &TestPool, name: &str, bytes: &[u8]) -> Handle<TestHost> {
    let ino = pool.create(pool.root(), name.as_bytes(), &NEW).unwrap().ino;
    pool.write(ino, 0, bytes).unwrap();
    pool.hold(ino).unwrap()
}

fn read(pool: &TestPool, file: &Handle<TestHost>) -> Vec<u8> {
    let mut bytes = vec![0; pool.getattr_held(file).unwrap().size as usize];
    assert_eq!(pool.read_held(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Where byte `offset` of what was mapped is in the pool.
fn place(extents: &[MapExtent], offset: u64) -> u64 {
    let holds = |e: &&MapExtent| (e.file_offset..e.file_offset + e.bytes).contains(&offset);
    let extent = extents.iter().find(holds).unwrap();
    extent.pool_offset + (offset - extent.file_offset)
}

/// What a program does through its map: a store that becomes durable.
fn store(pool: &TestPool, at: u64, bytes: &[u8]) {
    pool.medium().put(at, bytes);
}

fn sound(pool: &TestPool) {
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
}

/// The pool as it is after a crash now.
fn crashed(pool: &TestPool) -> TestPool {
    Pool::open(pool.medium().copy(), TestHost::new(9), &OpenOptions::default()).unwrap()
}

fn crashed_read(pool: &TestPool, name: &str) -> Vec<u8> {
    let after = crashed(pool);
    sound(&after);
    let ino = after.lookup(after.root(), name.as_bytes()).unwrap().ino;
    let file = after.hold(ino).unwrap();
    read(&after, &file)
}

#[test]
fn both_sides_see_each_others_bytes_at_once() {
    let pool = pool();
    let f = file(&pool, "f", &[1; 3 * PAGE as usize]);
    let extents = pool.map(&f, 0, 3 * PAGE).unwrap();
    store(&pool, place(&extents, 5000), b"mapped");
    assert_eq!(&read(&pool, &f)[4999..5007], b"\x01mapped\x01");
    // Small, whole pages, unaligned: all in place.
    for (offset, len) in [(100, 512), (PAGE, PAGE), (10, 2 * PAGE), (3 * PAGE - 1, 1)] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + offset) as u8).collect();
        pool.write_held(&f, offset, &bytes).unwrap();
        for (i, byte) in (0..).zip(&bytes) {
            assert_eq!(pool.medium().get(place(&extents, offset + i), 1), [*byte]);
        }
        assert_eq!(crashed_read(&pool, "f"), read(&pool, &f), "{offset} +{len}");
    }
    assert_eq!(pool.map(&f, 0, 3 * PAGE).unwrap(), extents);
}

#[test]
fn no_journalled_overwrite_returns_over_a_stored_byte() {
    let pool = pool();
    let f = file(&pool, "f", &[1; PAGE as usize]);
    pool.write_held(&f, 10, &[2; 100]).unwrap();
    let extents = pool.map(&f, 0, PAGE).unwrap();
    store(&pool, place(&extents, 20), b"later");
    assert_eq!(&crashed_read(&pool, "f")[18..27], b"\x02\x02later\x02\x02");
    assert_eq!(&read(&pool, &f)[18..27], b"\x02\x02later\x02\x02");
}

#[test]
fn pages_that_are_given_up_are_nobodys_until_the_last_map_ends() {
    let cuts: [(&str, Cut); 3] = [
        ("truncated", |pool, ino| {
            pool.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
        }),
        ("punched", |pool, ino| pool.fallocate(ino, Fallocate::Punch, 0, 8 * PAGE).unwrap()),
        ("removed", |pool, _| pool.unlink(pool.root(), b"f").unwrap()),
    ];
    for (what, cut) in cuts {
        let pool = pool();
        let f = file(&pool, "f", &[1; 8 * PAGE as usize]);
        let extents = pool.map(&f, 0, 8 * PAGE).unwrap();
        assert_eq!(pool.map(&f, PAGE, PAGE).unwrap().len(), 1);
        let free = pool.statfs().pages_free;
        cut(&pool, f.ino());
        assert_eq!(pool.statfs().pages_free, free, "{what}");
        sound(&pool);
        // Others take all there is; the program goes on storing.
        let other = file(&pool, "other", &[]);
        while pool.append_held(&other, &[9; PAGE as usize]).is_ok() {}
        for extent in &extents {
            store(&pool, extent.pool_offset, &vec![7; extent.bytes as usize]);
        }
        assert!(
            read(&pool, &other).iter().all(|byte| *byte == 9),
            "{what}: a store reached another file"
        );
        pool.unmap(&f);
        let still = pool.statfs().pages_free;
        pool.unmap(&f);
        pool.let_go(f);
        assert!(pool.statfs().pages_free >= still + 8, "{what}: pages are kept for ever");
        sound(&pool);
        sound(&crashed(&pool));
        pool.close().unwrap();
    }
}

#[test]
fn what_is_staged_becomes_the_files_at_its_commit_and_not_before() {
    let pool = pool();
    let f = file(&pool, "f", &[1; 6 * PAGE as usize - 100]);
    pool.map(&f, 0, 6 * PAGE - 100).unwrap();
    let before = read(&pool, &f);
    let free = pool.statfs().pages_free;
    let copied = pool.stage(&f, PAGE, 2 * PAGE, Staging::Copied).unwrap();
    let zeroed = pool.stage(&f, 4 * PAGE, 2 * PAGE, Staging::Zeroed).unwrap();
    assert_eq!(pool.medium().get(place(&copied, PAGE), 3), [1; 3]);
    assert_eq!(pool.medium().get(place(&zeroed, 5 * PAGE), 3), [0; 3]);
    store(&pool, place(&copied, PAGE + 5), b"one");
    store(&pool, place(&copied, 2 * PAGE), b"two");
    store(&pool, place(&zeroed, 4 * PAGE), b"three");
    assert_eq!((read(&pool, &f), crashed_read(&pool, "f")), (before.clone(), before.clone()));
    // Part of one and all of the other: one transaction.
    let lines = pool.stats().door.lines;
    let fences = pool.stats().door.fences;
    pool.commit_staged(&f, &[(4 * PAGE, 2 * PAGE), (PAGE, PAGE)]).unwrap();
    let door = pool.stats().door;
    assert!(door.lines - lines <= 4 && door.fences - fences == 2, "{door:?}");
    let mut expected = before;
    expected[PAGE as usize + 5..][..3].copy_from_slice(b"one");
    expected[4 * PAGE as usize..].fill(0);
    expected[4 * PAGE as usize..][..5].copy_from_slice(b"three");
    assert_eq!((read(&pool, &f), crashed_read(&pool, "f")), (expected.clone(), expected.clone()));
    sound(&pool);
    // What became the file's is mapped; what is left staged goes back.
    store(&pool, place(&zeroed, 5 * PAGE), b"in place");
    assert_eq!(&read(&pool, &f)[5 * PAGE as usize..][..8], b"in place");
    pool.unstage(&f).unwrap();
    assert_eq!(pool.commit_staged(&f, &[(2 * PAGE, PAGE)]), Err(Error::Invalid));
    assert_eq!(pool.statfs().pages_free, free);
    pool.unmap(&f);
    sound(&pool);
}

#[test]
fn what_is_staged_behind_the_end_never_becomes_the_files() {
    for protection in [Protection::None, Protection::Metadata, Protection::Full] {
        let (memory, host) = (Memory::new(16 << 20), TestHost::new(5));
        let format = FormatOptions { protection, ..FormatOptions::default() };
        Pool::format(memory.clone(), host.clone(), &format).unwrap();
        let pool = Pool::open(memory, host, &OpenOptions::default()).unwrap();
        let resize = |size| {
            let changes = SetAttr { size: Some(size), ..SetAttr::default() };
            pool.setattr(pool.lookup(pool.root(), b"f").unwrap().ino, &changes).unwrap();
        };
        let f = file(&pool, "f", &[1; 3 * PAGE as usize]);
        pool.map(&f, 0, 3 * PAGE).unwrap();
        let staged = pool.stage(&f, 0, 3 * PAGE, Staging::Copied).unwrap();
        for offset in [0, PAGE, 2 * PAGE] {
            store(&pool, place(&staged, offset), &[0xaa; PAGE as usize]);
        }
        resize(100);
        for ranges in [[(0, 3 * PAGE); 1], [(PAGE, PAGE); 1], [(2 * PAGE, PAGE); 1]] {
            assert_eq!(pool.commit_staged(&f, &ranges), Err(Error::Invalid), "{ranges:?}");
        }
        assert_eq!(read(&pool, &f), [1; 100]);
        // Of the page with the end in it what is in front of that does.
        pool.commit_staged(&f, &[(0, PAGE)]).unwrap();
        pool.unmap(&f);
        resize(3 * PAGE);
        let mut expected = [0; 3 * PAGE as usize];
        expected[..100].fill(0xaa);
        assert!(read(&pool, &f) == expected, "{protection:?}: bytes that never were in the file");
        assert!(crashed_read(&pool, "f") == expected, "{protection:?}");
        sound(&pool);
    }
}

#[test]
fn staged_pages_that_a_map_still_shows_are_nobodys_until_it_ends() {
    let pool = pool();
    let f = file(&pool, "f", &[1; 4 * PAGE as usize]);
    pool.map(&f, 0, 4 * PAGE).unwrap();
    let free = pool.statfs().pages_free;
    let staged = pool.stage(&f, 0, 4 * PAGE, Staging::Copied).unwrap();
    for (offset, len) in [(0, 5 * PAGE), (4 * PAGE, PAGE), (1, PAGE), (PAGE, 10)] {
        assert_eq!(pool.discard_staged(&f, offset, len), Err(Error::Invalid));
    }
    pool.fallocate(f.ino(), Fallocate::Punch, PAGE, 2 * PAGE).unwrap();
    pool.discard_staged(&f, PAGE, 2 * PAGE).unwrap();
    assert_eq!(pool.discard_staged(&f, PAGE, PAGE), Err(Error::Invalid));
    assert_eq!(pool.commit_staged(&f, &[(PAGE, PAGE)]), Err(Error::Invalid));
    assert_eq!(pool.staged(&f), Ok(vec![(0, PAGE), (3 * PAGE, PAGE)]));
    pool.discard_staged(&f, 3 * PAGE, PAGE).unwrap();
    pool.discard_staged(&f, 0, 0).unwrap();
    assert_eq!(pool.statfs().pages_free, free - 3);
    sound(&pool);
    let other = file(&pool, "other", &[]);
    while pool.append_held(&other, &[9; PAGE as usize]).is_ok() {}
    store(&pool, place(&staged, PAGE), &[7; 2 * PAGE as usize]);
    assert!(read(&pool, &other).iter().all(|byte| *byte == 9), "a store reached another file");
    let full = pool.statfs().pages_free;
    pool.unmap(&f);
    assert_eq!(pool.statfs().pages_free, full + 5);
    sound(&pool);
}

#[test]
fn what_can_not_be_staged_is_refused_and_changes_nothing() {
    let pool = pool();
    let f = file(&pool, "f", &[1; 4 * PAGE as usize]);
    let refused = |offset, len| {
        let free = pool.statfs().pages_free;
        assert_eq!(pool.stage(&f, offset, len, Staging::Copied), Err(Error::Invalid));
        assert_eq!(pool.statfs().pages_free, free);
    };
    refused(0, PAGE);
    pool.map(&f, 0, 4 * PAGE).unwrap();
    for (offset, len) in [(0, 0), (1, PAGE), (0, 10), (3 * PAGE, 2 * PAGE), (u64::MAX - 4095, PAGE)]
    {
        refused(offset, len);
    }
    pool.stage(&f, PAGE, 2 * PAGE, Staging::Zeroed).unwrap();
    refused(0, 2 * PAGE);
    refused(2 * PAGE, PAGE);
    for ranges in
        [[(0, PAGE); 2], [(PAGE, PAGE); 2], [(PAGE, PAGE), (2 * PAGE, 2 * PAGE)], [(PAGE, 10); 2]]
    {
        assert_eq!(pool.commit_staged(&f, &ranges), Err(Error::Invalid), "{ranges:?}");
    }
    assert_eq!(read(&pool, &f), [1; 4 * PAGE as usize]);
    // A second map would keep pages that a commit frees, and not see what it puts there.
    assert_eq!(pool.map(&f, 0, PAGE), Err(Error::Invalid));
    pool.unstage(&f).unwrap();
    pool.map(&f, 0, PAGE).unwrap();
    refused(3 * PAGE, PAGE);
    sound(&pool);
}

#[test]
fn holes_are_backed_and_what_is_behind_the_end_is_zero() {
    let pool = pool();
    let f = file(&pool, "f", &[1; 100]);
    for (offset, len) in [(0, 0), (1, 10), (0, 2 * PAGE), (PAGE, 1), (u64::MAX, 2), (0, u64::MAX)] {
        assert_eq!(pool.map(&f, offset, len), Err(Error::Invalid), "{offset} +{len}");
    }
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    pool.setattr(f.ino(), &size(10 * PAGE + 5)).unwrap();
    let extents = pool.map(&f, 0, 10 * PAGE + 5).unwrap();
    assert_eq!(extents.iter().map(|extent| extent.bytes).sum::<u64>(), 11 * PAGE);
    assert_eq!(pool.medium().get(place(&extents, 10 * PAGE + 5), 4000), [0; 4000]);
    // What a file was cut off is not shown.
    let g = file(&pool, "g", &[1; PAGE as usize]);
    pool.setattr(g.ino(), &size(100)).unwrap();
    let tail = pool.map(&g, 0, 100).unwrap();
    assert_eq!(pool.medium().get(place(&tail, 99), 4), [1, 0, 0, 0]);
    // A program may store there, and nobody sees it, also when the file grows.
    store(&pool, place(&extents, 10 * PAGE + 5), b"beyond");
    pool.setattr(f.ino(), &size(11 * PAGE)).unwrap();
    assert!(read(&pool, &f)[100..].iter().all(|byte| *byte == 0));
    sound(&pool);
}

#[test]
fn what_was_stored_behind_the_end_is_in_no_file_that_grows_after_its_maps() {
    let pool = pool();
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    // Of what was just made, and of what was just cut off, the engine knew it all to be zero.
    for (name, cut) in [("made", 100), ("cut", 50)] {
        let f = file(&pool, name, &[1; 100]);
        pool.setattr(f.ino(), &size(cut)).unwrap();
        let extents = pool.map(&f, 0, cut).unwrap();
        store(&pool, place(&extents, 200), b"beyond");
        pool.unmap(&f);
        pool.setattr(f.ino(), &size(PAGE)).unwrap();
        assert!(read(&pool, &f)[cut as usize..].iter().all(|byte| *byte == 0), "{name}");
        assert_eq!(crashed_read(&pool, name), read(&pool, &f), "{name}");
    }
    sound(&pool);
}

#[test]
fn a_pool_closes_with_maps_and_is_sound() {
    let pool = pool();
    let f = file(&pool, "f", &[1; 4 * PAGE as usize]);
    pool.map(&f, 0, 4 * PAGE).unwrap();
    pool.stage(&f, 0, PAGE, Staging::Copied).unwrap();
    pool.fallocate(f.ino(), Fallocate::Punch, PAGE, PAGE).unwrap();
    pool.close().unwrap();
    let after = crashed(&pool);
    assert!(after.opening().clean);
    sound(&after);
    // Whole pages free: three are the file's.
    let ino = after.lookup(after.root(), b"f").unwrap().ino;
    assert_eq!(after.getattr(ino).unwrap().pages, 3);
}

#[test]
fn a_pool_that_is_open_read_only_can_be_mapped_where_nothing_waits() {
    let pool = pool();
    let f = file(&pool, "f", &[1; PAGE as usize]);
    let size = SetAttr { size: Some(3 * PAGE), ..SetAttr::default() };
    pool.setattr(f.ino(), &size).unwrap();
    let open = |memory: Memory| {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        Pool::open(memory, TestHost::new(2), &options).unwrap()
    };
    let readers = open(pool.medium().copy());
    let g = readers.hold(f.ino()).unwrap();
    let extents = readers.map(&g, 0, 3 * PAGE).unwrap();
    assert_eq!(extents.len(), 1, "the hole is left out");
    assert_eq!(readers.stage(&g, 0, PAGE, Staging::Copied), Err(Error::ReadOnly));
    pool.write_held(&f, 5, b"journalled").unwrap();
    let readers = open(pool.medium().copy());
    let g = readers.hold(f.ino()).unwrap();
    assert_eq!(readers.map(&g, 0, PAGE), Err(Error::ReadOnly));
}
