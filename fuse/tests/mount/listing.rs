//! Listings: complete, stable, while the directory changes.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};

use rustix::fs::{Dir, Mode, OFlags, open};

use crate::support::Mount;

const MANY: usize = 10_000;

fn fill(mount: &Mount) -> HashSet<String> {
    fs::create_dir(mount.path("dir")).unwrap();
    let names: HashSet<String> = (0..MANY).map(|i| format!("file-{i}")).collect();
    names.iter().for_each(|name| fs::write(mount.path("dir").join(name), "").unwrap());
    names
}

fn dir(mount: &Mount) -> Dir {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    Dir::new(open(mount.path("dir"), flags, Mode::empty()).unwrap()).unwrap()
}

#[test]
fn all_names_are_listed_once_with_number_and_type() {
    let Some(mount) = Mount::new() else { return };
    let names = fill(&mount);
    for _ in 0..2 {
        // The second time from the kernel's cache.
        let mut left = names.clone();
        for entry in fs::read_dir(mount.path("dir")).unwrap() {
            let entry = entry.unwrap();
            assert!(left.remove(entry.file_name().to_str().unwrap()));
            assert!(entry.file_type().unwrap().is_file());
            assert_eq!(entry.metadata().unwrap().ino(), entry.ino());
        }
        assert!(left.is_empty(), "{} missing", left.len());
    }
}

#[test]
fn dots_are_listed_first() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir_all(mount.path("dir/sub")).unwrap();
    let numbers: Vec<(String, u64)> = dir(&mount)
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_str().unwrap().to_owned(), entry.ino()))
        .collect();
    let of = |path: &str| fs::metadata(mount.path(path)).unwrap().ino();
    let expected = [(".", of("dir")), ("..", of("dir/..")), ("sub", of("dir/sub"))];
    assert_eq!(numbers, expected.map(|(name, ino)| (name.to_owned(), ino)));
    assert_eq!(of("dir/.."), fs::metadata(&mount.root).unwrap().ino());
}

#[test]
fn ten_thousand_files_are_deleted_while_they_are_listed() {
    let Some(mount) = Mount::new() else { return };
    let mut left = fill(&mount);
    for entry in fs::read_dir(mount.path("dir")).unwrap() {
        let entry = entry.unwrap();
        assert!(left.remove(entry.file_name().to_str().unwrap()), "listed twice");
        fs::remove_file(entry.path()).unwrap();
    }
    assert!(left.is_empty(), "{} were not listed", left.len());
    assert_eq!(fs::read_dir(mount.path("dir")).unwrap().count(), 0);
    fs::remove_dir(mount.path("dir")).unwrap();
}

#[test]
fn names_that_stay_are_listed_once_whatever_comes_and_goes() {
    let Some(mount) = Mount::new() else { return };
    let names = fill(&mount);
    let mut seen = Vec::new();
    for (i, entry) in dir(&mount).enumerate() {
        seen.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
        if i % 10 == 0 {
            let new = mount.path("dir").join(format!("new-{i}"));
            fs::write(&new, "").unwrap();
            if i % 20 == 0 {
                fs::remove_file(&new).unwrap();
            }
        }
    }
    let unique: HashSet<&String> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "a name was listed twice");
    assert!(names.iter().all(|name| unique.contains(name)));
}

#[test]
fn a_position_stays_while_other_names_go() {
    let Some(mount) = Mount::new() else { return };
    fill(&mount);
    let mut listing = dir(&mount);
    let mut entries: Vec<(String, i64)> = Vec::new();
    while let Some(entry) = listing.read() {
        let entry = entry.unwrap();
        entries.push((entry.file_name().to_str().unwrap().to_owned(), entry.offset()));
    }
    let middle = entries.len() / 2;
    for (name, _) in &entries[2..middle] {
        fs::remove_file(mount.path("dir").join(name)).unwrap();
    }
    // Behind the middle: what came after it then comes after it now.
    listing.seek(entries[middle].1).unwrap();
    let next = listing.read().unwrap().unwrap();
    assert_eq!(next.file_name().to_str().unwrap(), entries[middle + 1].0);
    listing.rewind();
    assert_eq!(listing.count(), entries.len() - (middle - 2));
}

#[test]
fn the_root_lists_like_any_directory() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "").unwrap();
    let listed: Vec<_> = fs::read_dir(&mount.root).unwrap().map(|e| e.unwrap().ino()).collect();
    assert_eq!(listed, [fs::metadata(mount.path("file")).unwrap().ino()]);
}
