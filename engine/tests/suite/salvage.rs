//! A salvage makes any damaged pool sound that has its tables, and loses nothing but what can't
//! be read.

use std::collections::{BTreeMap, BTreeSet};

use lode_engine::{
    Attr, Error, FormatOptions, Ino, NewInode, OpenOptions, Pool, Salvage, SetAttr, XattrChange,
    XattrWhen, mode,
};
use lode_testkit::damage::{damage_bytes, damage_structure};
use lode_testkit::execute::{Handles, execute};
use lode_testkit::format::{LINE, SLOT, Survey};
use lode_testkit::fs::TestPool;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::rng::Rng;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o751, uid: 5, gid: 6, rdev: 0 };

fn open(memory: &Memory) -> Result<TestPool, Error> {
    Pool::open(memory.clone(), TestHost::new(2), &OpenOptions::default())
}

/// Salvages, and returns what was told.
fn salvage(memory: &Memory) -> Result<Vec<String>, Error> {
    let mut told = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Pool::salvage(memory.clone(), TestHost::new(3), &mut |event| {
        told.push(match event {
            Salvage::Discarded { damage, entries } => {
                format!("lost {} {entries:?}", damage.ino)
            }
            Salvage::EntryRemoved { dir, name, .. } => {
                format!("removed {} in {}", text(name), text(dir))
            }
            Salvage::DirectoryMade { path, attributes, .. } => {
                let without: String =
                    attributes.iter().map(|it| " without ".to_owned() + &text(it)).collect();
                format!("made {}{without}", text(path))
            }
            Salvage::Attached { dir, name, .. } => {
                format!("attached {} in {}", text(name), text(dir))
            }
            Salvage::LinksSet { path, links, .. } => {
                format!("{} has {links} links", text(path.unwrap_or(b"?")))
            }
            Salvage::AttributeRemoved { path, name, group_cleared, .. } => {
                let group = if group_cleared { " and the group's rights" } else { "" };
                format!("removed {}{group} of {}", text(name), text(path.unwrap_or(b"?")))
            }
            other => format!("{other:?}"),
        });
    })?;
    Ok(told)
}

/// Opens a pool that must be sound, and is so after another salvage that has nothing to do.
fn sound(memory: &Memory, what: &str) -> TestPool {
    assert_eq!(salvage(memory), Ok(Vec::new()), "{what}: salvaged twice");
    let pool = open(memory).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert!(pool.opening().clean, "{what}");
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, [], "{what}");
    pool
}

/// All that can be reached, by path.
fn tree(pool: &TestPool) -> BTreeMap<String, Attr> {
    let mut all = BTreeMap::new();
    let mut todo = vec![(String::new(), pool.root())];
    while let Some((path, dir)) = todo.pop() {
        pool.readdir(dir, 0, &mut |entry| {
            let name = format!("{path}/{}", String::from_utf8_lossy(entry.name));
            if entry.kind == mode::DIRECTORY {
                todo.push((name.clone(), entry.ino));
            }
            all.insert(name, pool.getattr(entry.ino).unwrap());
            true
        })
        .unwrap();
    }
    all
}

fn format(bytes: u64, lanes: u32) -> Memory {
    let memory = Memory::new(bytes);
    let format = FormatOptions { lanes, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    memory
}

/// A pool with a directory of files in a directory, and a link across.
fn family() -> Memory {
    let memory = format(4 << 20, 1);
    let pool = open(&memory).unwrap();
    let dir = pool.create(pool.root(), b"dir", &NEW_DIR).unwrap().ino;
    let sub = pool.create(dir, b"sub", &NEW_DIR).unwrap().ino;
    for name in ["one", "two", "three"] {
        let ino = pool.create(dir, name.as_bytes(), &NEW).unwrap().ino;
        pool.append(ino, name.repeat(1000).as_bytes()).unwrap();
        pool.create(sub, name.as_bytes(), &NEW).unwrap();
    }
    let one = pool.lookup(dir, b"one").unwrap().ino;
    pool.link(one, pool.root(), b"linked").unwrap();
    pool.close().unwrap();
    memory
}

fn ino_of(memory: &Memory, path: &[&str]) -> Ino {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let pool = Pool::open(memory.clone(), TestHost::new(1), &options).unwrap();
    path.iter().fold(pool.root(), |dir, name| pool.lookup(dir, name.as_bytes()).unwrap().ino)
}

/// The image with a byte of record `number` of an inode's log changed.
fn with_bad_record(memory: &Memory, ino: Ino, number: usize) -> Memory {
    let mut image = memory.image();
    let survey = Survey::of(&image);
    let log = survey.logs.iter().find(|log| log.ino == ino).unwrap();
    let places: Vec<usize> =
        log.runs.iter().flat_map(|run| (0..run.valid).map(|line| run.at(line))).collect();
    image[places[number] + 20] ^= 1;
    Memory::from_image(&image)
}

fn names(pool: &TestPool) -> Vec<String> {
    tree(pool).into_keys().collect()
}

const FAMILY: [&str; 9] = [
    "/dir",
    "/dir/one",
    "/dir/sub",
    "/dir/sub/one",
    "/dir/sub/three",
    "/dir/sub/two",
    "/dir/three",
    "/dir/two",
    "/linked",
];

#[test]
fn a_sound_pool_is_left_as_it_is() {
    let memory = family();
    assert_eq!(names(&sound(&memory, "a family")), FAMILY);
}

#[test]
fn a_file_that_can_not_be_read_is_gone_and_all_others_stay() {
    let memory = family();
    let memory = with_bad_record(&memory, ino_of(&memory, &["dir", "two"]), 0);
    let told = salvage(&memory).unwrap();
    assert!(told[0].starts_with("lost "), "{told:?}");
    assert_eq!(told[1..], ["removed two in /dir"]);
    let pool = sound(&memory, "one file less");
    let left: Vec<&str> = FAMILY.into_iter().filter(|name| *name != "/dir/two").collect();
    assert_eq!(names(&pool), left);
    let one = tree(&pool)["/dir/one"];
    let mut bytes = [0; 3000];
    assert_eq!((pool.read(one.ino, 0, &mut bytes), one.links), (Ok(3000), 2));
    assert_eq!(bytes, *"one".repeat(1000).as_bytes());
}

#[test]
fn a_directory_that_can_not_be_read_keeps_the_names_that_can() {
    let memory = family();
    let dir = ino_of(&memory, &["dir"]);
    // 0 is its own record, 1 the entry of `sub`, 2 that of `one`.
    for (bad, lost) in [(0, None), (1, Some("/dir/sub")), (2, Some("/dir/one"))] {
        let memory = with_bad_record(&memory, dir, bad);
        let told = salvage(&memory).unwrap();
        let pool = sound(&memory, "a directory made again");
        let found = tree(&pool);
        for name in FAMILY.into_iter().filter(|name| !lost.is_some_and(|at| name.starts_with(at))) {
            assert!(found.contains_key(name), "record {bad}: {name}: {told:?}");
        }
        let in_lost_found = found.keys().filter(|name| name.starts_with("/lost+found/#"));
        let elsewhere = match lost {
            // `sub` and what is in it; `one` has another name.
            Some("/dir/sub") => 4,
            _ => 0,
        };
        assert_eq!(in_lost_found.count(), elsewhere, "record {bad}: {told:?}");
        assert!(told.contains(&"made /dir".to_owned()), "{told:?}");
        let attr = found["/dir"];
        // Mode and owner are in its own record; what was taken from others nobody knows.
        let known = (mode::DIRECTORY | 0o700, 5, 6);
        let unknown = (mode::DIRECTORY | 0o700, 0, 0);
        let wanted = if bad == 0 { unknown } else { known };
        assert_eq!((attr.mode, attr.uid, attr.gid), wanted);
        assert_eq!(found["/linked"].links, if lost == Some("/dir/one") { 1 } else { 2 });
    }
}

#[test]
fn a_root_that_can_not_be_read_is_made_again() {
    let memory = family();
    let root = ino_of(&memory, &[]);
    for bad in [0, 1, 2] {
        let memory = with_bad_record(&memory, root, bad);
        let told = salvage(&memory).unwrap();
        assert!(told.contains(&"RootMade".to_owned()), "{told:?}");
        let found = tree(&sound(&memory, "a root made again"));
        let kept = FAMILY.into_iter().filter(|name| found.contains_key(*name)).count();
        // `dir` is in `lost+found`, with all that is in it; `linked` has another name.
        let wanted = [(9, 9), (1, 10), (8, 8)][bad];
        assert_eq!((kept, found.len()), wanted, "record {bad}: {found:?}");
    }
    // Its identity.
    let mut image = memory.image();
    image[root as usize * SLOT + 3] ^= 1;
    let memory = Memory::from_image(&image);
    salvage(&memory).unwrap();
    let found = tree(&sound(&memory, "a root without its identity"));
    assert_eq!(found.values().filter(|attr| attr.mode & mode::TYPE == mode::FILE).count(), 6);
}

/// Whatever is lost with the directories above it.
#[test]
fn what_is_lost_in_lost_directories_is_told_by_its_whole_path() {
    let memory = family();
    let [dir, sub] = [&["dir"][..], &["dir", "sub"]].map(|path| ino_of(&memory, path));
    let two = ino_of(&memory, &["dir", "sub", "two"]);
    let lost_two = with_bad_record(&with_bad_record(&memory, two, 0), dir, 0);
    let told = salvage(&lost_two).unwrap();
    assert!(told.contains(&"removed two in /dir/sub".to_owned()), "{told:?}");
    assert!(!told.contains(&"removed dir in /".to_owned()), "it has that name: {told:?}");
    drop(sound(&lost_two, "a file and a directory above it"));
    // A directory of which not even the identity can be read.
    let mut image = with_bad_record(&memory, dir, 0).image();
    image[sub as usize * SLOT + 3] ^= 1;
    let lost_sub = Memory::from_image(&image);
    let told = salvage(&lost_sub).unwrap();
    assert!(told.contains(&"removed sub in /dir".to_owned()), "{told:?}");
    drop(sound(&lost_sub, "a directory and its name"));
    // A name that can't be read: the other one is left.
    let lost_link = with_bad_record(&memory, dir, 2);
    let told = salvage(&lost_link).unwrap();
    assert!(told.contains(&"/linked has 1 links".to_owned()), "{told:?}");
}

/// The access list of a file, as an extended attribute.
const ACCESS: &[u8] = b"system.posix_acl_access";

fn set_mode(pool: &TestPool, ino: Ino, mode: u32) {
    pool.setattr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
}

fn set_xattr(pool: &TestPool, ino: Ino, name: &[u8], value: Option<&[u8]>) {
    pool.setxattr(ino, &XattrChange { name, value, when: XattrWhen::Always }).unwrap();
}

/// The record that took rights away may be the one that is damaged.
#[test]
fn a_directory_made_again_gives_nobody_rights_that_were_taken_away() {
    for (mode_before, mode_after, wanted) in
        [(0o755, 0o700, 0o700), (0o1777, 0o500, 0o700), (0o2570, 0o750, 0o500)]
    {
        for more in [false, true] {
            let memory = format(4 << 20, 1);
            let pool = open(&memory).unwrap();
            let new = NewInode { mode: mode::DIRECTORY | mode_before, ..NEW_DIR };
            let private = pool.create(pool.root(), b"private", &new).unwrap().ino;
            pool.create(private, b"secret", &NEW).unwrap();
            set_mode(&pool, private, mode_after);
            if more {
                pool.create(private, b"another", &NEW).unwrap();
            }
            pool.close().unwrap();
            // Its own record, the entry of `secret`, the change of its mode.
            let memory = with_bad_record(&memory, private, 2);
            let told = salvage(&memory).unwrap();
            let found = tree(&sound(&memory, "a private directory"));
            assert!(found.contains_key("/private/secret"), "{told:?}");
            let private = found["/private"];
            let has = (private.mode, private.uid, private.gid);
            assert_eq!(has, (mode::DIRECTORY | wanted, 5, 6), "{told:?}");
        }
    }
}

/// Without the access list the mode's group bits, which were its mask, would be the group's rights.
#[test]
fn a_directory_made_again_without_its_attributes_is_its_owners_alone() {
    let memory = format(4 << 20, 1);
    let pool = open(&memory).unwrap();
    let new = NewInode { mode: mode::DIRECTORY | 0o775, ..NEW_DIR };
    let dir = pool.create(pool.root(), b"dir", &new).unwrap().ino;
    set_xattr(&pool, dir, b"user.gone", Some(b"1"));
    set_xattr(&pool, dir, b"user.x", Some(b"2"));
    set_xattr(&pool, dir, ACCESS, Some(b"mask::rwx, group::---"));
    set_xattr(&pool, dir, b"user.gone", None);
    pool.create(dir, b"one", &NEW).unwrap();
    pool.close().unwrap();
    // The last record, with which nothing of the attributes is damaged.
    let survey = Survey::of(&memory.image());
    let log = survey.logs.iter().find(|log| log.ino == dir).unwrap();
    let lines: usize = log.runs.iter().map(|run| run.valid).sum();
    let memory = with_bad_record(&memory, dir, lines - 1);
    let told = salvage(&memory).unwrap();
    let pool = sound(&memory, "a directory with an access list");
    let dir = tree(&pool)["/dir"];
    assert_eq!((dir.mode, dir.uid), (mode::DIRECTORY | 0o700, 5), "{told:?}");
    let made = "made /dir without user.x without system.posix_acl_access".to_owned();
    assert!(told.contains(&made), "{told:?}");
    assert_eq!(pool.listxattr(dir.ino), Ok(Vec::new()));
}

#[test]
fn a_root_made_again_is_its_owners_alone() {
    let memory = family();
    let pool = open(&memory).unwrap();
    let root = pool.root();
    let change = SetAttr { mode: Some(0o750), uid: Some(7), ..SetAttr::default() };
    pool.setattr(root, &change).unwrap();
    pool.create(root, b"more", &NEW).unwrap();
    pool.close().unwrap();
    let of_root = |memory: &Memory| {
        salvage(memory).unwrap();
        let pool = sound(memory, "a root made again");
        let root = pool.getattr(pool.root()).unwrap();
        (root.mode, root.uid)
    };
    // The last record, its first, and its identity: of that nothing can be read.
    let survey = Survey::of(&memory.image());
    let log = survey.logs.iter().find(|log| log.ino == root).unwrap();
    let lines: usize = log.runs.iter().map(|run| run.valid).sum();
    for bad in [lines - 1, 0] {
        let has = of_root(&with_bad_record(&memory, root, bad));
        assert_eq!(has, (mode::DIRECTORY | 0o700, 7), "record {bad}");
    }
    let mut image = memory.image();
    image[root as usize * SLOT + 3] ^= 1;
    assert_eq!(of_root(&Memory::from_image(&image)), (mode::DIRECTORY | 0o700, 0));
}

#[test]
fn an_access_list_that_can_not_be_read_leaves_the_group_nothing() {
    for name in [ACCESS, b"system.posix_acl_default", b"user.x"] {
        let memory = format(4 << 20, 1);
        let pool = open(&memory).unwrap();
        for (file, new) in [(&b"dir"[..], &NEW_DIR), (&b"file"[..], &NEW)] {
            let ino = pool.create(pool.root(), file, new).unwrap().ino;
            set_mode(&pool, ino, 0o674);
            set_xattr(&pool, ino, b"user.kept", Some(b"kept"));
            set_xattr(&pool, ino, name, Some(&[0xC3; 9000]));
        }
        pool.close().unwrap();
        let mut image = memory.image();
        let is_value = |page: &&mut [u8]| page.iter().all(|&byte| byte == 0xC3);
        for page in image.chunks_exact_mut(4096).filter(is_value) {
            page[77] ^= 4;
        }
        let memory = Memory::from_image(&image);
        let told = salvage(&memory).unwrap();
        let pool = sound(&memory, "an access list less");
        let (wanted, group) = match name {
            ACCESS => (0o604, " and the group's rights"),
            _ => (0o674, ""),
        };
        let name = String::from_utf8_lossy(name);
        assert_eq!(told, ["dir", "file"].map(|path| format!("removed {name}{group} of /{path}")));
        for (path, attr) in tree(&pool) {
            assert_eq!(attr.mode & 0o7777, wanted, "{path}: {told:?}");
            assert_eq!(pool.listxattr(attr.ino), Ok(vec![b"user.kept".to_vec()]), "{path}");
        }
    }
}

#[test]
fn identities_and_values_that_are_damaged_are_given_up() {
    let memory = family();
    let pool = open(&memory).unwrap();
    let one = tree(&pool)["/dir/one"].ino;
    let change =
        XattrChange { name: b"user.x", value: Some(&[0xC3; 9000]), when: XattrWhen::Always };
    pool.setxattr(one, &change).unwrap();
    pool.close().unwrap();
    drop(pool);
    let mut image = memory.image();
    let value = image.windows(4096).position(|page| page.iter().all(|&byte| byte == 0xC3)).unwrap();
    image[value + 77] ^= 4;
    image[ino_of(&memory, &["dir", "sub", "two"]) as usize * SLOT + 3] ^= 1;
    let memory = Memory::from_image(&image);
    let told = salvage(&memory).unwrap();
    assert!(told.contains(&"removed user.x of /linked".to_owned()), "{told:?}");
    let pool = sound(&memory, "a value less");
    assert_eq!(pool.getxattr(one, b"user.x"), Err(Error::NoAttribute));
    assert!(!tree(&pool).contains_key("/dir/sub/two"));
}

#[test]
fn watermarks_that_are_lost_are_found_and_written_anew() {
    for closed in [true, false] {
        let memory = family();
        if !closed {
            // A session that ends here.
            let pool = open(&memory).unwrap();
            pool.create(pool.root(), b"more", &NEW).unwrap();
        }
        let mut image = memory.image();
        let at = Survey::of(&image).superblock.lane_table;
        for copy in 0..2 {
            image[at + copy * LINE + 9] ^= 1;
        }
        let memory = Memory::from_image(&image);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let pool = Pool::open(memory.clone(), TestHost::new(2), &options).unwrap();
        let found = pool.check(&mut |_, _| ()).unwrap().damage;
        assert!(found.iter().any(|damage| damage.at == at as u64), "closed {closed}: {found:?}");
        let told = salvage(&memory).unwrap();
        assert_eq!(told, ["WatermarkReset { lane: 0 }"]);
        let found = names(&sound(&memory, "watermarks written anew"));
        assert_eq!(found.len(), FAMILY.len() + usize::from(!closed));
    }
}

/// Every name is looked at a few times, not once for each other one.
#[test]
fn a_large_directory_is_made_again_in_little_time() {
    let memory = format(192 << 20, 1);
    let pool = open(&memory).unwrap();
    let dir = pool.create(pool.root(), b"dir", &NEW_DIR).unwrap().ino;
    for number in 0..100_000 {
        pool.create(dir, format!("{number}").as_bytes(), &NEW).unwrap();
    }
    pool.close().unwrap();
    drop(pool);
    let memory = with_bad_record(&memory, dir, 500);
    let began = std::time::Instant::now();
    salvage(&memory).unwrap();
    println!("100,000 names: {:.1} s", began.elapsed().as_secs_f64());
    let pool = open(&memory).unwrap();
    let dir = pool.lookup(pool.root(), b"dir").unwrap().ino;
    let mut count = 0;
    pool.readdir(dir, 0, &mut |_| {
        count += 1;
        true
    })
    .unwrap();
    assert_eq!(count, 99_999);
    assert!(began.elapsed() < std::time::Duration::from_secs(60));
}

/// Some pool that was used, and was closed or not.
fn used(seed: u64) -> Memory {
    let memory = format(2 << 20, 1 + (seed % 3) as u32);
    let pool = open(&memory).unwrap();
    let shape = Shape { sparse: false, offset_max: 60_000, len_max: 9000, ..Shape::default() };
    let mut handles = Handles::new();
    for op in Generator::new(seed, shape).take(150) {
        let _ = execute(&pool, &mut handles, &op);
    }
    if seed.is_multiple_of(2) {
        pool.close().unwrap();
    }
    memory
}

/// What an inode is, and what of it no damage to file data changes.
type Known = BTreeMap<(Ino, u64), (u32, u32, u32, u64)>;

fn known(pool: &TestPool) -> Known {
    let all = tree(pool).into_values();
    all.map(|attr| {
        let is_dir = attr.mode & mode::TYPE == mode::DIRECTORY;
        let size = if is_dir { 0 } else { attr.size };
        ((attr.ino, attr.generation), (attr.mode, attr.uid, attr.gid, size))
    })
    .collect()
}

/// Inodes whose slots say who they are in other bytes now.
fn damaged_identities(before: &[u8], after: &[u8]) -> BTreeSet<Ino> {
    let slots = before.chunks_exact(512).zip(after.chunks_exact(512)).enumerate();
    slots.filter(|(_, (was, is))| was[..64] != is[..64]).map(|(ino, _)| ino as Ino).collect()
}

/// What damage does not reach, stays; whatever was damaged, the pool is sound in the end.
fn any_damage(seeds: std::ops::Range<u64>, damage: &dyn Fn(&mut Vec<u8>, &mut Rng) -> String) {
    let (mut salvaged, mut told_at_all) = (0, 0);
    for seed in seeds.clone() {
        let memory = used(seed);
        let before = known(&open(&Memory::from_image(&memory.image())).unwrap());
        let mut image = memory.image();
        let mut rng = Rng::new(seed);
        let what = format!("seed {seed}: {}", damage(&mut image, &mut rng));
        let unknown = damaged_identities(&memory.image(), &image);
        let memory = Memory::from_image(&image);
        let mut lost = BTreeSet::new();
        let mut told = 0;
        let result = Pool::salvage(memory.clone(), TestHost::new(3), &mut |event| {
            told += 1;
            match event {
                Salvage::Discarded { damage, .. } => lost.extend([damage.ino]),
                // Then nothing else says which inodes there were.
                Salvage::CheckpointLost { .. } => lost.extend(&unknown),
                _ => (),
            }
        });
        if result.is_err() {
            continue;
        }
        salvaged += 1;
        told_at_all += u32::from(told > 0);
        let pool = sound(&memory, &what);
        if !seed.is_multiple_of(2) {
            // The last record of a log that was not closed may be gone without a trace.
            continue;
        }
        let after = known(&pool);
        for (inode, was) in before.iter().filter(|((ino, _), _)| !lost.contains(ino)) {
            assert_eq!(after.get(inode), Some(was), "{what}: inode {inode:?}");
        }
    }
    let all = seeds.end - seeds.start;
    println!("{salvaged} of {all} pools salvaged, something to do in {told_at_all}");
    assert!(salvaged * 2 > all && u64::from(told_at_all) * 10 > all);
}

#[test]
fn pools_with_any_bytes_damaged_are_sound_in_the_end() {
    any_damage(0..400, &|image, rng| {
        let len = image.len();
        let what = damage_bytes(image, rng);
        image.resize(len, 0);
        what
    });
}

#[test]
fn pools_with_damaged_lines_are_sound_in_the_end_and_lose_only_those() {
    any_damage(1000..1400, &|image, rng| {
        let survey = Survey::of(image);
        let mut what = String::new();
        for _ in 0..1 + rng.below(3) {
            let log = &survey.logs[rng.below(survey.logs.len() as u64) as usize];
            let run = &log.runs[rng.below(log.runs.len() as u64) as usize];
            let line = rng.below(run.valid as u64 + 1) as usize;
            let at = if line == 0 { run.anchor } else { run.at(line - 1) };
            image[at + rng.below(LINE as u64) as usize] ^= 1 << rng.below(8);
            what += &format!("a bit at {at:#x}; ");
        }
        what
    });
}

/// Numbers that make no sense under right seals: no promise what is kept, but that it is sound.
#[test]
fn forged_pools_are_sound_in_the_end_or_refused() {
    for seed in 0..400 {
        let memory = used(seed);
        let mut image = memory.image();
        let survey = Survey::of(&image);
        let what = damage_structure(&mut image, &survey, &mut Rng::new(seed));
        let memory = Memory::from_image(&image);
        if salvage(&memory).is_ok() {
            drop(sound(&memory, &format!("seed {seed}: {what}")));
        }
    }
}
