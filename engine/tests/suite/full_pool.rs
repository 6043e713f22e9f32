//! A full pool loses nothing, and deleting gives back all space, to the page.

use lode_engine::{
    Error, Fallocate, FormatOptions, Ino, NewInode, OpenOptions, PageClass, Pool, Protection,
    SetAttr, XattrChange, XattrWhen, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::rng::Rng;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

fn pool(bytes: u64, class: PageClass) -> TestPool {
    let (memory, host) = (Memory::new(bytes), TestHost::new(bytes));
    let format = FormatOptions { lanes: 4, page_class: class, ..FormatOptions::default() };
    Pool::format(memory.clone(), host.clone(), &format).unwrap();
    Pool::open(memory, host, &OpenOptions::default()).unwrap()
}

/// The same with metadata twice.
fn pool_with_twins(bytes: u64) -> TestPool {
    let (memory, host) = (Memory::new(bytes), TestHost::new(bytes));
    let (protection, dead_zone) = (Protection::Metadata, 60_000);
    let format = FormatOptions { lanes: 4, protection, dead_zone, ..FormatOptions::default() };
    Pool::format(memory.clone(), host.clone(), &format).unwrap();
    Pool::open(memory, host, &OpenOptions::default()).unwrap()
}

fn reopen(pool: TestPool, clean: bool) -> TestPool {
    if clean {
        pool.close().unwrap();
    }
    let memory = pool.medium().copy();
    drop(pool);
    Pool::open(memory, TestHost::new(9), &OpenOptions::default()).unwrap()
}

fn assert_sound(pool: &TestPool, when: &str) {
    let report = pool.check(&mut |_, _| ()).unwrap();
    assert_eq!(report.damage, [], "{when}");
    let statfs = pool.statfs();
    assert!(report.pages_used + report.pages_free <= statfs.pages, "{when}: {report:?}");
}

/// How a file is made, from small to large.
#[derive(Clone, Copy, Debug)]
enum ShapeOfFile {
    Empty,
    Small,
    Sparse,
    Large,
    Fallocated,
    Overwritten,
    Truncated,
    LongLog,
    LongName,
    Symlink,
    Directory,
}

const SHAPES: [ShapeOfFile; 11] = [
    ShapeOfFile::Empty,
    ShapeOfFile::Small,
    ShapeOfFile::Sparse,
    ShapeOfFile::Large,
    ShapeOfFile::Fallocated,
    ShapeOfFile::Overwritten,
    ShapeOfFile::Truncated,
    ShapeOfFile::LongLog,
    ShapeOfFile::LongName,
    ShapeOfFile::Symlink,
    ShapeOfFile::Directory,
];

fn make(pool: &TestPool, dir: Ino, number: usize, shape: ShapeOfFile) -> Result<(), Error> {
    let mut name = format!("{number}").into_bytes();
    match shape {
        ShapeOfFile::LongName => name.resize(255, b'n'),
        ShapeOfFile::Symlink => {
            let target = vec![b't'; 1 + number * 97 % 4095];
            return pool.symlink(dir, &name, &target, 1, 1).map(|_| ());
        }
        ShapeOfFile::Directory => return pool.create(dir, &name, &NEW_DIR).map(|_| ()),
        _ => {}
    }
    let ino = pool.create(dir, &name, &NEW)?.ino;
    match shape {
        ShapeOfFile::Small => pool.write(ino, 0, &[1; 300])?,
        ShapeOfFile::Sparse => {
            for place in 0..20 {
                pool.write(ino, place * 1_000_003, &[2; 10])?;
            }
        }
        ShapeOfFile::Large => pool.write(ino, 0, &vec![3; 150_000])?,
        ShapeOfFile::Fallocated => {
            pool.fallocate(ino, Fallocate::Allocate { keep_size: true }, 5000, 100_000)?;
            pool.fallocate(ino, Fallocate::Punch, 20_000, 30_000)?;
        }
        ShapeOfFile::Overwritten => {
            for round in 0..10u8 {
                pool.write(ino, 100, &vec![round; 20_000])?;
                pool.write(ino, 9000, &[round; 512])?;
            }
        }
        ShapeOfFile::Truncated => {
            pool.write(ino, 0, &vec![4; 50_000])?;
            for size in [20_001, 90_000, 4096, 0, 777] {
                pool.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
            }
        }
        ShapeOfFile::LongLog => {
            for step in 0..200 {
                let changes = SetAttr { mode: Some(step % 512), ..SetAttr::default() };
                pool.setattr(ino, &changes)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Removes everything in a directory, deepest first.
fn empty(pool: &TestPool, dir: Ino) {
    let mut entries = Vec::new();
    let mut visit = |entry: lode_engine::DirEntry<'_>| {
        entries.push((entry.name.to_vec(), entry.ino, entry.kind));
        true
    };
    pool.readdir(dir, 0, &mut visit).unwrap();
    for (name, ino, kind) in entries {
        if kind == mode::DIRECTORY {
            empty(pool, ino);
            pool.rmdir(dir, &name).unwrap();
        } else {
            pool.unlink(dir, &name).unwrap();
        }
    }
}

/// Free pages when background work has nothing more to give back.
fn settled_free(pool: &TestPool) -> u64 {
    let mut free = pool.statfs().pages_free;
    for _ in 0..8 {
        pool.maintain().unwrap();
        let now = pool.statfs().pages_free;
        if now == free {
            break;
        }
        free = now;
    }
    free
}

fn cycle(class: PageClass, bytes: u64) {
    let mut pool = pool(bytes, class);
    let mut rng = Rng::new(bytes);
    // The first cycle may grow the inode tables, which stay.
    let mut start = None;
    for round in 0..5 {
        for shape in SHAPES {
            for number in 0..40 {
                make(&pool, pool.root(), number, shape).unwrap();
            }
            if rng.once_in(3) {
                pool = reopen(pool, rng.once_in(2));
            }
            empty(&pool, pool.root());
            if round == 0 {
                continue;
            }
            let free = settled_free(&pool);
            let wanted = *start.get_or_insert(free);
            assert_eq!(free, wanted, "round {round}, {shape:?}, {class:?}: pages are lost");
        }
        assert_sound(&pool, "all deleted");
    }
}

#[test]
fn free_pages_after_deleting_everything_equal_those_at_the_start() {
    cycle(PageClass::Small, 64 << 20);
}

#[test]
fn free_pages_come_back_with_huge_pages_too() {
    cycle(PageClass::Huge, 256 << 20);
}

#[test]
fn free_pages_of_a_new_pool_come_back_to_the_page_without_table_growth() {
    let mut pool = pool(32 << 20, PageClass::Small);
    // One file, so that a table piece is there.
    pool.create(pool.root(), b"one", &NEW).unwrap();
    pool.unlink(pool.root(), b"one").unwrap();
    let start = settled_free(&pool);
    for round in 0..20 {
        for number in 0..3 {
            make(&pool, pool.root(), number, SHAPES[round % SHAPES.len()]).unwrap();
        }
        empty(&pool, pool.root());
        assert_eq!(settled_free(&pool), start, "round {round}: {:?}", SHAPES[round % SHAPES.len()]);
        pool = reopen(pool, round % 2 == 0);
        assert_eq!(settled_free(&pool), start, "round {round}, reopened");
    }
}

/// Fills a pool with files of `len` bytes until it says that it is full; returns what is in it.
fn fill(pool: &TestPool, len: usize) -> Vec<(Vec<u8>, u8)> {
    let mut made = Vec::new();
    for number in 0.. {
        let (name, byte) = (format!("f{number}").into_bytes(), number as u8);
        let created = pool.create(pool.root(), &name, &NEW);
        match created.and_then(|attr| pool.write(attr.ino, 0, &vec![byte; len])) {
            Ok(()) => made.push((name, byte)),
            Err(Error::NoSpace) => return made,
            Err(error) => panic!("file {number}: {error:?}"),
        }
    }
    made
}

fn assert_holds(pool: &TestPool, made: &[(Vec<u8>, u8)], len: usize) {
    for (name, byte) in made {
        let attr = pool.lookup(pool.root(), name).unwrap();
        let mut found = vec![0; len + 1];
        assert_eq!(pool.read(attr.ino, 0, &mut found).unwrap(), len);
        assert!(found[..len].iter().all(|found| found == byte), "{name:?} has other contents");
    }
}

#[test]
fn a_full_pool_holds_all_that_was_returned_and_takes_more_after_deleting() {
    for len in [0usize, 100, 5000, 100_000] {
        let mut pool = pool(8 << 20, PageClass::Small);
        let made = fill(&pool, len);
        println!("8 MiB hold {} files of {len} bytes", made.len());
        let least = ((8 << 20) / (len as u64 + 4096 + 512)) * 6 / 10;
        assert!(made.len() as u64 >= least, "only {} files of {len} bytes", made.len());
        assert_holds(&pool, &made, len);
        for clean in [true, false] {
            pool = reopen(pool, clean);
            assert_holds(&pool, &made, len);
            assert_sound(&pool, "full");
        }
        // Deleting works in a full pool, and what it frees can be used at once.
        for (name, _) in &made {
            pool.unlink(pool.root(), name).unwrap();
        }
        let _ = pool.unlink(pool.root(), format!("f{}", made.len()).as_bytes());
        let again = fill(&pool, len);
        assert!(
            again.len() * 100 >= made.len() * 98,
            "{} files of {len} bytes at first, then {}",
            made.len(),
            again.len()
        );
        assert_holds(&pool, &again, len);
        assert_sound(&pool, "full again");
    }
}

#[test]
fn a_write_that_does_not_fit_changes_nothing() {
    let pool = pool(8 << 20, PageClass::Small);
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    pool.write(ino, 0, &vec![1; 10_000]).unwrap();
    let (attr, free) = (pool.getattr(ino).unwrap(), pool.statfs().pages_free);
    for offset in [0, 5000, 10_000] {
        assert_eq!(pool.write(ino, offset, &vec![2; 9 << 20]), Err(Error::NoSpace));
        assert_eq!(pool.append(ino, &vec![2; 9 << 20]), Err(Error::NoSpace));
        let allocate = Fallocate::Allocate { keep_size: false };
        assert_eq!(pool.fallocate(ino, allocate, offset, 9 << 20), Err(Error::NoSpace));
        assert_eq!(pool.getattr(ino).unwrap(), attr);
        assert_eq!(pool.statfs().pages_free, free, "pages leak");
    }
    let mut bytes = vec![0; 20_000];
    assert_eq!(pool.read(ino, 0, &mut bytes).unwrap(), 10_000);
    assert!(bytes[..10_000].iter().all(|&byte| byte == 1));
    assert_sound(&pool, "after writes that did not fit");
}

/// Fills a pool to the last page that a file may take.
fn fill_up(pool: &TestPool) {
    let ino = pool.create(pool.root(), b"filler", &NEW).unwrap().ino;
    for len in [1 << 20, 4096] {
        while pool.append(ino, &vec![9; len]).is_ok() {}
    }
    assert_eq!(pool.statfs().pages_available, 0);
}

/// A file holds this; and the pool can be emptied.
fn assert_holds_and_empties(pool: &TestPool, ino: Ino, wanted: &[u8]) {
    let mut found = vec![0; wanted.len()];
    pool.read(ino, 0, &mut found).unwrap();
    assert!(found == wanted);
    assert_sound(pool, "overwritten");
    empty(pool, pool.root());
    assert_sound(pool, "emptied");
}

/// What `fallocate` has promised holds as long as the reserve can hold the pages of a write, and
/// the log of a file that is cut into many extents; small overwrites and changes of attributes are
/// possible for ever.
#[test]
fn what_is_allocated_can_be_overwritten_in_a_full_pool() {
    overwrite_what_is_allocated(&pool(64 << 20, PageClass::Small));
    overwrite_what_is_allocated(&pool_with_twins(64 << 20));
}

fn overwrite_what_is_allocated(pool: &TestPool) {
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    let len = 8u64 << 20;
    pool.fallocate(ino, Fallocate::Allocate { keep_size: false }, 0, len).unwrap();
    fill_up(pool);
    assert_eq!(pool.write(ino, len, &[1]), Err(Error::NoSpace));
    let mut wanted = vec![0; len as usize];
    let mut rng = Rng::new(3);
    for step in 0..20_000u32 {
        let bytes =
            vec![step as u8; if step % 2 == 0 { 8192 } else { 1 + rng.below(300_000) as usize }];
        let at = rng.below(len - bytes.len() as u64);
        let at = if step % 2 == 0 { at / 8192 * 8192 } else { at };
        pool.write(ino, at, &bytes).unwrap_or_else(|error| panic!("step {step}: {error}"));
        wanted[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        let changes = SetAttr { mode: Some(step % 512), ..SetAttr::default() };
        pool.setattr(ino, &changes).unwrap();
        pool.rename(pool.root(), b"f", pool.root(), b"g", lode_engine::RenameMode::Replace)
            .unwrap();
        pool.rename(pool.root(), b"g", pool.root(), b"f", lode_engine::RenameMode::Replace)
            .unwrap();
    }
    assert_holds_and_empties(pool, ino, &wanted);
}

/// A file of which every page is an extent of its own: what the reserve cannot hold is refused,
/// but not what goes through the file's journal page.
#[test]
fn small_overwrites_are_possible_in_a_full_pool_for_ever() {
    overwrite_little(&pool(64 << 20, PageClass::Small));
    overwrite_little(&pool_with_twins(64 << 20));
}

fn overwrite_little(pool: &TestPool) {
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    let len = 50u64 << 20;
    // In pieces, so that its pages are small ones.
    for piece in 0..len >> 20 {
        let allocate = Fallocate::Allocate { keep_size: false };
        pool.fallocate(ino, allocate, piece << 20, 1 << 20).unwrap();
    }
    fill_up(pool);
    let mut wanted = vec![0; len as usize];
    let mut refused = 0;
    // In an order that leaves no two pages behind each other.
    let mut rng = Rng::new(5);
    for _ in 0..20_000 {
        let page = rng.below(len / 4096);
        let bytes = vec![1 + page as u8 % 200; 4096];
        match pool.write(ino, page * 4096, &bytes) {
            Ok(()) => {}
            Err(Error::NoSpace) => {
                refused += 1;
                for half in [0, 2048] {
                    pool.write(ino, page * 4096 + half, &bytes[..2048]).unwrap();
                }
            }
            Err(error) => panic!("page {page}: {error}"),
        }
        wanted[page as usize * 4096..][..4096].copy_from_slice(&bytes);
    }
    println!("{refused} pages went through the journal");
    assert!(refused > 0, "the reserve was never short");
    assert_holds_and_empties(pool, ino, &wanted);
}

/// Pages in which overwrites waited are given back at once where space is short: no file keeps some, so
/// that it is not the number of files that counts.
#[test]
fn many_files_are_overwritten_in_a_full_pool() {
    // Files of large pages, then of small ones.
    for (files, len, allocated) in [(28, 60_000, 2 << 20), (1000, 100, 8192)] {
        let pool = pool(64 << 20, PageClass::Small);
        let inos: Vec<Ino> = (0..files)
            .map(|number| {
                let ino = pool.create(pool.root(), format!("{number}").as_bytes(), &NEW).unwrap();
                let allocate = Fallocate::Allocate { keep_size: false };
                pool.fallocate(ino.ino, allocate, 0, allocated).unwrap();
                ino.ino
            })
            .collect();
        fill_up(&pool);
        for (number, ino) in inos.iter().enumerate() {
            pool.write(*ino, 10, &vec![7; len])
                .unwrap_or_else(|error| panic!("{len} bytes, file {number}: {error}"));
        }
        for ino in &inos {
            let mut found = vec![0; len];
            pool.read(*ino, 10, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == 7));
        }
        assert_sound(&pool, "overwritten");
        empty(&pool, pool.root());
        assert_sound(&pool, "emptied");
    }
}

/// Where the log can't be written anew for want of pages, those of it in which nothing lives are still
/// given back.
#[test]
fn overwrites_of_any_size_leave_room_for_small_ones_for_ever() {
    let refused: u32 = [3, 4, 5, 6, 8].into_iter().map(overwrite_at_random).sum();
    assert!(refused > 0, "the reserve was never short");
}

/// Overwrites a file of so many MiB in a full pool of 16; says how often not all at once.
fn overwrite_at_random(mib: u64) -> u32 {
    let pool = pool(16 << 20, PageClass::Small);
    let ino = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    for piece in 0..mib {
        pool.write(ino, piece << 20, &vec![1; 1 << 20]).unwrap();
    }
    fill_up(&pool);
    let mut rng = Rng::new(mib);
    let mut refused = 0;
    for step in 0..20_000u32 {
        let bytes = [step as u8; 6000];
        let len = if rng.once_in(2) { 1000 } else { 6000 };
        let at = rng.below((mib << 20) - 6000);
        if pool.write(ino, at, &bytes[..len as usize]).is_ok() {
            continue;
        }
        refused += 1;
        let mut from = at;
        while from < at + len {
            let to = (from / 2048 * 2048 + 2048).min(at + len);
            pool.write(ino, from, &bytes[..(to - from) as usize])
                .unwrap_or_else(|error| panic!("{mib} MiB, step {step}: {error}"));
            from = to;
        }
        let changes = SetAttr { mode: Some(step % 512), ..SetAttr::default() };
        pool.setattr(ino, &changes).unwrap();
    }
    assert_sound(&pool, "overwritten");
    refused
}

/// A removal that frees no page must not take those that others need for their removal.
#[test]
fn small_attributes_removed_from_many_files_leave_room_to_remove_the_files() {
    let pool = pool(16 << 20, PageClass::Small);
    let name = |number: usize| format!("{number}").into_bytes();
    let count = 1500;
    for number in 0..count {
        // The lines that an inode has of its own are full with some of these. (A file would not keep its log page.)
        let fifo = NewInode { mode: mode::FIFO | 0o644, ..NEW };
        let ino = pool.create(pool.root(), &name(number), &fifo).unwrap().ino;
        for value in ["a", "b", "c", "d", "e"].into_iter().take(1 + number % 5) {
            let change = XattrChange {
                name: b"user.x",
                value: Some(value.as_bytes()),
                when: XattrWhen::Always,
            };
            pool.setxattr(ino, &change).unwrap();
        }
    }
    // The same of directories with five names.
    let dirs: Vec<Ino> = (0..12)
        .map(|dir| pool.create(pool.root(), format!("d{dir}").as_bytes(), &NEW_DIR).unwrap().ino)
        .collect();
    for (dir, number) in dirs.iter().flat_map(|dir| (0..5).map(move |number| (*dir, number))) {
        pool.create(dir, &name(number), &NEW).unwrap();
    }
    fill_up(&pool);
    let mut refused = 0;
    for number in 0..count {
        let ino = pool.lookup(pool.root(), &name(number)).unwrap().ino;
        let gone = XattrChange { name: b"user.x", value: None, when: XattrWhen::Always };
        refused += usize::from(pool.setxattr(ino, &gone).is_err());
    }
    assert!(refused > 0, "no removal needed a page");
    for dir in dirs {
        pool.unlink(dir, b"0").unwrap();
    }
    for number in 0..count {
        pool.unlink(pool.root(), &name(number)).unwrap();
    }
    assert_sound(&pool, "emptied");
}

/// In a small pool, too, names can be taken out of every directory, each of which then needs a
/// log page of its own.
#[test]
fn a_small_full_pool_is_emptied_directory_by_directory() {
    empty_directory_by_directory(&pool(192 << 10, PageClass::Small));
    empty_directory_by_directory(&pool_with_twins(192 << 10));
}

fn empty_directory_by_directory(pool: &TestPool) {
    let root = pool.root();
    let dirs: Vec<Ino> = (0..6)
        .map(|dir| pool.create(root, format!("d{dir}").as_bytes(), &NEW_DIR).unwrap().ino)
        .collect();
    // An inode's own lines are full with five entries.
    for (dir, number) in dirs.iter().flat_map(|dir| (0..5).map(move |number| (*dir, number))) {
        pool.create(dir, format!("{number}").as_bytes(), &NEW).unwrap();
    }
    let big = pool.create(root, b"big", &NEW).unwrap().ino;
    while pool.append(big, &[1; 4096]).is_ok() {}
    for number in 0..5 {
        for dir in &dirs {
            pool.unlink(*dir, format!("{number}").as_bytes()).unwrap();
        }
    }
    assert_sound(pool, "emptied");
}
