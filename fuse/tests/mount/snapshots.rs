//! The directory `.lode/snapshots`: the pool as it was.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, XattrFlags, openat, setxattr};
use serde_json::{Value, json};

use crate::support::{Mount, errno, shell};

fn ask(mount: &Mount, op: &str, name: &str) -> Value {
    mount.client().request(&json!({ "op": op, "name": name.as_bytes() })).unwrap()
}

/// Makes a snapshot; returns where it is to be seen.
pub fn create(mount: &Mount, name: &str) -> PathBuf {
    let made = ask(mount, "snapshot-create", name);
    assert!(made["refused"].is_null(), "{made}");
    mount.path(".lode/snapshots").join(name)
}

fn delete(mount: &Mount, name: &str) {
    let deleted = ask(mount, "snapshot-delete", name);
    assert!(deleted["refused"].is_null(), "{deleted}");
}

pub fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_is_the_pool_as_it_was() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/changed"), vec![1; 300_000]).unwrap();
    fs::write(mount.path("dir/removed"), "here").unwrap();
    symlink("dir/removed", mount.path("link")).unwrap();
    setxattr(mount.path("dir/removed"), "user.why", b"because", XattrFlags::empty()).unwrap();
    let before = fs::metadata(mount.path("dir/changed")).unwrap();
    let old = create(&mount, "old");
    fs::write(mount.path("dir/changed"), vec![2; 100_000]).unwrap();
    fs::set_permissions(mount.path("dir/changed"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(mount.path("dir/removed")).unwrap();
    fs::rename(mount.path("dir"), mount.path("moved")).unwrap();
    fs::write(mount.path("new"), "new").unwrap();

    assert_eq!(names(&old), ["dir", "link"]);
    assert_eq!(names(&old.join("dir")), ["changed", "removed"]);
    assert_eq!(fs::read(old.join("dir/changed")).unwrap(), vec![1; 300_000]);
    assert_eq!(fs::read_to_string(old.join("link")).unwrap(), "here");
    let script = "cd .lode/snapshots/old; cat dir/removed; getfattr --only-values -n user.why dir/removed || true";
    assert!(shell(&mount.root, 1000, script).starts_with("here"));
    let then = fs::metadata(old.join("dir/changed")).unwrap();
    assert_eq!((then.mode(), then.len()), (before.mode(), before.len()));
    assert_eq!((then.mtime_nsec(), then.ctime_nsec()), (before.mtime_nsec(), before.ctime_nsec()));
    // Another file to programs that tell files apart by their numbers.
    assert!(then.dev() == before.dev() && then.ino() != before.ino());
    // And the live pool is what it is.
    assert_eq!(names(&mount.root), ["link", "moved", "new"]);
    assert_eq!(fs::read(mount.path("moved/changed")).unwrap(), vec![2; 100_000]);
    assert_eq!(fs::metadata(mount.path("moved/changed")).unwrap().ino(), before.ino());
    // Views of a snapshot from within.
    let up = shell(&old.join("dir"), 0, "cd ..; pwd -P; cd ..; pwd -P; cd ..; pwd -P");
    let root = mount.root.display();
    let expected = format!("{root}/.lode/snapshots/old\n{root}/.lode/snapshots\n{root}/.lode\n");
    assert_eq!(up, expected);
}

#[test]
fn snapshots_are_listed_and_come_and_go_under_the_kernels_cache() {
    let Some(mount) = Mount::new() else { return };
    let dir = mount.path(".lode/snapshots");
    let meta = fs::metadata(&dir).unwrap();
    assert_eq!((meta.mode(), names(&dir)), (0o40_555, vec![]));
    let none = fs::metadata(dir.join("one")).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    fs::write(mount.path("file"), "first").unwrap();
    let one = create(&mount, "one");
    // The kernel knew that there is none of this name, and the empty listing.
    assert_eq!(
        (names(&dir), fs::read_to_string(one.join("file")).unwrap()),
        (vec!["one".into()], "first".into())
    );
    let listed = shell(&dir, 0, "ls -lai");
    assert!(listed.contains(&fs::metadata(&one).unwrap().ino().to_string()), "{listed}");
    let two = create(&mount, "two");
    assert_eq!(names(&dir), ["one", "two"]);
    let (open, cwd) = (File::open(one.join("file")).unwrap(), File::open(&one).unwrap());
    delete(&mount, "one");
    // (What is read first is what the kernel has all of in its cache.)
    assert_eq!(fs::read(one.join("file")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(names(&dir), ["two"]);
    for gone in [one.join("file"), one.clone()] {
        assert_eq!(fs::metadata(&gone).unwrap_err().kind(), ErrorKind::NotFound, "{gone:?}");
    }
    // Who is inside meets its end, but for what the kernel has cached.
    let inside = openat(&cwd, "none", OFlags::RDONLY, Mode::empty());
    assert_eq!(inside.unwrap_err(), rustix::io::Errno::STALE);
    let read = open.read_at(&mut [0; 8], 0).map_err(|error| error.raw_os_error());
    assert!(matches!(read, Ok(5) | Err(Some(libc::ESTALE))), "{read:?}");
    // One of the same name is another one, also for who has the old one in its cache.
    fs::write(mount.path("file"), "other").unwrap();
    let again = create(&mount, "one");
    assert_eq!(fs::read_to_string(again.join("file")).unwrap(), "other");
    assert_eq!(fs::read_to_string(two.join("file")).unwrap(), "first");
    drop((open, cwd));
    delete(&mount, "one");
    delete(&mount, "two");
    assert_eq!(names(&dir), Vec::<String>::new());
    mount.unmount();
}

#[test]
fn nothing_in_a_snapshot_can_be_changed() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/file"), "text").unwrap();
    let old = create(&mount, "old");
    let (dir, file, live) = (old.join("dir"), old.join("dir/file"), mount.path("dir/file"));
    let rights = fs::metadata(&live).unwrap().permissions();
    let errors = [
        errno(fs::write(&file, "1")),
        errno(File::options().append(true).open(&file)),
        errno(File::options().read(true).write(true).open(&file)),
        errno(fs::write(dir.join("new"), "1")),
        errno(fs::create_dir(dir.join("new"))),
        errno(symlink("file", dir.join("new"))),
        errno(fs::remove_file(&file)),
        errno(fs::remove_dir(&dir)),
        errno(fs::rename(&file, mount.path("moved"))),
        errno(fs::rename(&live, dir.join("moved"))),
        errno(fs::hard_link(&file, mount.path("linked"))),
        errno(fs::hard_link(&live, dir.join("linked"))),
        errno(fs::set_permissions(&file, rights)),
        errno(setxattr(&file, "user.a", b"1", XattrFlags::empty()).map_err(Into::into)),
        errno(File::create(&file)),
        // The directory of all, and what is in it.
        errno(fs::create_dir(old.with_file_name("new"))),
        errno(fs::remove_dir(&old)),
        errno(fs::rename(&old, old.with_file_name("new"))),
        errno(fs::rename(&live, old.with_file_name("new"))),
        errno(fs::hard_link(&live, old.with_file_name("new"))),
    ];
    assert_eq!(errors, [libc::EROFS; 20]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    assert_eq!(
        (names(&dir), names(&mount.path("dir"))),
        (vec!["file".to_owned()], vec!["file".to_owned()])
    );
    // What was answered there says nothing of other files, and what only looks like a change is none.
    File::open(&file).unwrap().sync_all().unwrap();
    fs::write(&live, "changed").unwrap();
    File::open(&live).unwrap().sync_all().unwrap();
    assert_eq!(
        shell(&mount.root, 0, "cp -a .lode/snapshots/old/dir back; cat back/file dir/file"),
        "textchanged"
    );
}

#[test]
fn what_the_kernel_keeps_of_live_files_it_keeps() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/file"), "text").unwrap();
    let asked = || {
        let stats = mount.client().ask("stats").unwrap();
        let of = |kind: &str| stats["ops"][kind].as_u64().unwrap();
        [of("lookup"), of("getattr"), of("read")]
    };
    let look = || {
        fs::metadata(mount.path("dir/file")).unwrap();
        let mut file = File::open(mount.path("dir/file")).unwrap();
        file.read_to_string(&mut String::new()).unwrap();
    };
    look();
    let old = create(&mount, "old");
    fs::read(old.join("dir/file")).unwrap();
    let (mut least, mut tries) = (u64::MAX, 0);
    // (The root's attributes are asked for every now and then.)
    while least > 0 && tries < 50 {
        let before = asked();
        look();
        let after = asked();
        least = least.min(after.iter().zip(before).map(|(after, before)| after - before).sum());
        tries += 1;
    }
    assert_eq!(least, 0);
    // In a snapshot, too: but for its name.
    let before = asked();
    for _ in 0..10 {
        fs::read(old.join("dir/file")).unwrap();
    }
    let after = asked();
    assert_eq!((after[0] - before[0], after[2] - before[2]), (0, 0));
}
