//! A mounted pool becomes what it was: the mount stays, and nothing of what came later is to be seen through it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use lode_engine::Pool;
use lode_host::StdHost;
use rustix::fs::{Mode, OFlags, XattrFlags, fstat, getxattr, openat, setxattr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use serde_json::{Value, json};

use crate::snapshots::{create, names};
use crate::support::{FileMedium, Mount, can_mount, errno};

const PAGE: usize = 4096;

fn ask(mount: &Mount, name: &str, force: bool) -> Value {
    let request = json!({ "op": "snapshot-rollback", "name": name.as_bytes(), "force": force });
    mount.client().request(&request).unwrap()
}

#[track_caller]
fn roll_back(mount: &Mount, name: &str) {
    let done = ask(mount, name, true);
    assert!(done["refused"].is_null() && done["busy"].is_null(), "{done}");
}

/// All that is to be seen of a tree, by paths.
fn seen(root: &Path) -> BTreeMap<PathBuf, String> {
    let (mut all, mut left) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = left.pop() {
        let attr = fs::symlink_metadata(&path).unwrap();
        let what = match attr.file_type() {
            kind if kind.is_dir() => {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                "directory".to_owned()
            }
            kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
            _ => format!("{:?}", fs::read(&path).unwrap()),
        };
        let mut value = [0; 100];
        let bytes = getxattr(&path, "user.what", &mut value[..]).unwrap_or(0);
        let (mode, ino, size, mtime) = (attr.mode(), attr.ino(), attr.size(), attr.mtime_nsec());
        let kept = format!("{mode:o} {ino} {size} {mtime} {:?} {what}", &value[..bytes]);
        all.insert(path, kept);
    }
    all
}

/// A tree with something of each kind.
fn fill(mount: &Mount) {
    fs::create_dir_all(mount.path("dir/deep/deeper")).unwrap();
    fs::create_dir(mount.path("empty")).unwrap();
    for (name, len) in [("changed", 300_000), ("dir/removed", 10), ("dir/deep/moved", 5000)] {
        fs::write(mount.path(name), vec![1; len]).unwrap();
    }
    for name in ["kept", "dir/kept", "dir/deep/deeper/kept"] {
        fs::write(mount.path(name), name).unwrap();
    }
    for name in ["gone", "dir/gone"] {
        fs::write(mount.path(name), name).unwrap();
    }
    symlink("changed", mount.path("link")).unwrap();
    setxattr(mount.path("kept"), "user.what", b"old", XattrFlags::empty()).unwrap();
}

/// Changes something of each kind.
fn change(mount: &Mount, round: u8) {
    let path = |name: &str| mount.path(name);
    let file = File::options().write(true).open(path("changed")).unwrap();
    file.write_all_at(&[round; 100], 4000).unwrap();
    file.set_len(200_000).unwrap();
    fs::remove_file(path("dir/removed")).unwrap();
    fs::rename(path("dir/deep/moved"), path("moved")).unwrap();
    fs::write(path("new"), "new").unwrap();
    fs::write(path("empty/new"), "new").unwrap();
    fs::remove_file(path("gone")).unwrap();
    fs::remove_file(path("dir/gone")).unwrap();
    // In the places of what is not there any more.
    fs::write(path("dir/removed"), vec![round; 20]).unwrap();
    fs::remove_dir_all(path("dir/deep")).unwrap();
    fs::write(path("dir/deep"), "a file").unwrap();
    fs::remove_file(path("link")).unwrap();
    symlink("new", path("link")).unwrap();
    fs::set_permissions(path("dir"), PermissionsExt::from_mode(0o700)).unwrap();
    setxattr(path("kept"), "user.what", b"new", XattrFlags::empty()).unwrap();
}

#[test]
fn all_is_what_it_was_whatever_the_kernel_has_kept() {
    let Some(mount) = Mount::new() else { return };
    fill(&mount);
    let before = seen(&mount.root);
    create(&mount, "before");
    for round in 2..6 {
        change(&mount, round);
        create(&mount, "later");
        // The kernel keeps all of it, and what is not there.
        let changed = seen(&mount.root);
        assert_ne!(changed, before);
        assert_eq!(errno(fs::metadata(mount.path("dir/deep/moved"))), libc::ENOTDIR);
        for name in ["gone", "dir/gone"] {
            assert_eq!(errno(fs::metadata(mount.path(name))), libc::ENOENT);
        }
        let later = seen(&mount.path(".lode/snapshots/later"));
        assert!(later.len() == changed.len());
        assert_eq!(names(&mount.path(".lode/snapshots")), ["before", "later"]);
        roll_back(&mount, "before");
        // Before a listing tells the kernel what there is.
        assert_eq!(fs::read_to_string(mount.path("gone")).unwrap(), "gone");
        assert_eq!(fs::read_to_string(mount.path("dir/gone")).unwrap(), "dir/gone");
        for name in ["new", "empty/new"] {
            fs::create_dir(mount.path(name)).unwrap();
            fs::remove_dir(mount.path(name)).unwrap();
        }
        roll_back(&mount, "before");
        assert_eq!(seen(&mount.root), before);
        assert_eq!(errno(fs::metadata(mount.path("new"))), libc::ENOENT);
        assert_eq!(names(&mount.path(".lode/snapshots")), ["before"]);
        assert_eq!(errno(fs::metadata(mount.path(".lode/snapshots/later"))), libc::ENOENT);
    }
    // It goes on from there.
    change(&mount, 9);
    let changed = seen(&mount.root);
    let place = mount.unmount();
    let mount = place.mount();
    assert_eq!(seen(&mount.root), changed);
    whole(mount);
}

/// Ends a mount, whose pool has to be sound.
fn whole(mount: Mount) {
    let place = mount.unmount();
    let pool = Pool::open(FileMedium::open(&place.pool()), StdHost::new(), &Default::default());
    let pool = pool.unwrap();
    assert_eq!(pool.check(&mut |_, _| ()).unwrap().damage, []);
    pool.close().unwrap();
}

#[test]
fn what_is_open_is_stale_and_nothing_stored_through_it_is_to_be_seen() {
    let Some(mount) = Mount::new() else { return };
    fill(&mount);
    let before = seen(&mount.root);
    create(&mount, "before");
    let (read, dir) =
        (File::open(mount.path("kept")).unwrap(), File::open(mount.path("dir")).unwrap());
    read.read_at(&mut [0; 4], 0).unwrap();
    let mut options = File::options();
    let written = options.read(true).write(true).open(mount.path("changed")).unwrap();
    let (len, rights) = (4 * PAGE, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping.
    #[allow(unsafe_code)]
    let map = unsafe { mmap(std::ptr::null_mut(), len, rights, MapFlags::SHARED, &written, 0) };
    let map: *mut u8 = map.unwrap().cast();
    // SAFETY: it is that long.
    #[allow(unsafe_code)]
    unsafe {
        *map = 7;
    }
    roll_back(&mount, "before");
    let stale = rustix::io::Errno::STALE;
    assert_eq!(errno(read.metadata()), libc::ESTALE);
    assert_eq!(fstat(&dir).unwrap_err(), stale);
    for name in ["kept", "none", "deep/deeper"] {
        assert_eq!(openat(&dir, name, OFlags::RDONLY, Mode::empty()).unwrap_err(), stale);
    }
    let made = openat(&dir, "made", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU);
    assert_eq!(made.unwrap_err(), stale);
    assert_eq!(errno(written.set_len(0)), libc::ESTALE);
    // (Of pages the kernel tells in its own words.)
    is_stale(&written.write_at(b"x", 0).unwrap_err());
    is_stale(&read.read_at(&mut [0; 4], 0).unwrap_err());
    // What was mapped is not there any more; who loads from it himself gets a SIGBUS.
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: it is mapped, and only the kernel looks at it.
    #[allow(unsafe_code)]
    let gone = unsafe { libc::write(std::os::fd::AsRawFd::as_raw_fd(&writer), map.cast(), 1) };
    assert_eq!((gone, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
    drop((reader, writer));
    // SAFETY: nobody uses it from here on.
    #[allow(unsafe_code)]
    unsafe {
        munmap(map.cast(), len).unwrap();
    }
    assert_eq!(seen(&mount.root), before);
    drop((read, dir, written));
    assert_eq!(seen(&mount.root), before);
    whole(mount);
}

#[test]
fn who_writes_or_maps_a_file_is_asked_first() {
    let Some(mount) = Mount::new() else { return };
    fill(&mount);
    create(&mount, "before");
    fs::write(mount.path("new"), "new").unwrap();
    let uses = |how: &str, name: &str| {
        let answer = ask(&mount, "before", false);
        let busy = answer["busy"].as_array().unwrap_or_else(|| panic!("{answer}"));
        let path = mount.path(name);
        let own = busy.iter().find(|one| one["pid"] == std::process::id()).unwrap();
        assert_eq!((&own["how"], &own["path"]), (&json!(how), &json!(path.to_str().unwrap())));
        assert!(!own["command"].as_str().unwrap().is_empty());
        assert!(fs::read(mount.path("new")).is_ok());
    };
    let mut file = File::options().append(true).open(mount.path("kept")).unwrap();
    uses("write", "kept");
    file.write_all(b"more").unwrap();
    drop(file);
    let file = File::open(mount.path("changed")).unwrap();
    // SAFETY: a new mapping, which nobody looks at.
    #[allow(unsafe_code)]
    let map = unsafe {
        mmap(std::ptr::null_mut(), PAGE, ProtFlags::READ, MapFlags::PRIVATE, &file, 0).unwrap()
    };
    uses("map", "changed");
    // SAFETY: nobody uses it from here on.
    #[allow(unsafe_code)]
    unsafe {
        munmap(map, PAGE).unwrap();
    }
    // Who only reads is not asked. (Children that other tests start have all files for a moment.)
    crate::support::eventually(|| ask(&mount, "before", false)["busy"].is_null());
    assert_eq!(errno(fs::metadata(mount.path("new"))), libc::ENOENT);
    let none = ask(&mount, "none", true);
    assert_eq!(none["refused"]["errno"], libc::ENOENT);
    drop(file);
    whole(mount);
}

#[track_caller]
fn is_stale(error: &std::io::Error) {
    assert!(matches!(error.raw_os_error(), Some(libc::EIO | libc::ESTALE)), "{error}");
}

#[test]
fn programs_that_work_meanwhile_wait_and_see_one_state_or_the_other() {
    let Some(mount) = Mount::new() else { return };
    fill(&mount);
    fs::write(mount.path("state"), "old").unwrap();
    fs::create_dir(mount.path("own")).unwrap();
    create(&mount, "before");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (over, mount) = (&over, &mount);
            scope.spawn(move || {
                let mut round = 0_u64;
                while !over.load(SeqCst) {
                    round += 1;
                    let name = mount.path(&format!("own/{number}-{}", round % 50));
                    // (What is open meanwhile is stale.)
                    match fs::write(&name, [number; 9000]).and_then(|()| fs::read(&name)) {
                        Ok(read) => assert_eq!(read, [number; 9000]),
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(error) => is_stale(&error),
                    }
                    match fs::read_to_string(mount.path("kept")) {
                        Ok(text) => assert_eq!(text, "kept"),
                        Err(error) => is_stale(&error),
                    }
                }
            });
        }
        for round in 0..10 {
            fs::write(mount.path("state"), format!("new {round}")).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            roll_back(&mount, "before");
            assert_eq!(fs::read_to_string(mount.path("state")).unwrap(), "old");
        }
        over.store(true, SeqCst);
    });
    roll_back(&mount, "before");
    assert_eq!(names(&mount.path("own")), Vec::<String>::new());
    whole(mount);
}

#[test]
fn what_the_control_socket_is_at_ends_or_goes_on() {
    let Some(mount) = Mount::new() else { return };
    fill(&mount);
    create(&mount, "before");
    let mut client = mount.client();
    let sent = client.request(&json!({ "op": "send", "name": b"before" })).unwrap();
    let scrub = client.request(&json!({ "op": "scrub", "start": true, "bytes": 4096 })).unwrap();
    assert_eq!(scrub["over"], false);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for op in ["stats", "info", "snapshots", "wear"] {
            let (over, mount) = (&over, &mount);
            scope.spawn(move || {
                let mut client = mount.client();
                while !over.load(SeqCst) {
                    client.ask(op).unwrap();
                    fs::read_to_string(mount.path(".lode/fences")).unwrap();
                }
            });
        }
        for _ in 0..10 {
            roll_back(&mount, "before");
        }
        over.store(true, SeqCst);
    });
    let piece = json!({ "op": "send", "number": sent["number"] });
    assert!(client.request(&piece).unwrap_err().to_string().contains("no such stream"));
    let step = json!({ "op": "scrub", "scrub": scrub["scrub"] });
    assert!(client.request(&step).unwrap_err().to_string().contains("another scrub"));
    assert_eq!(client.ask("stats").unwrap()["scrub"]["running"], false);
    // New ones begin.
    client.request(&json!({ "op": "scrub", "start": true })).unwrap();
    client.request(&json!({ "op": "send", "name": b"before" })).unwrap();
    whole(mount);
}

#[test]
fn a_server_that_is_killed_meanwhile_leaves_one_state_or_the_other() {
    if !can_mount() {
        return;
    }
    let mut mount = Mount::new().unwrap();
    fill(&mount);
    let before = seen(&mount.root);
    create(&mount, "before");
    let (mut undone, mut done) = (0, 0);
    for round in 0..24 {
        change(&mount, round);
        let changed = seen(&mount.root);
        let mut client = mount.client();
        let name = b"before";
        let asking = std::thread::spawn(move || {
            let request = json!({ "op": "snapshot-rollback", "name": name, "force": true });
            client.request(&request)
        });
        std::thread::sleep(Duration::from_micros(1500 * u64::from(round)));
        let place = mount.kill();
        let told = asking.join().unwrap().is_ok();
        mount = place.mount();
        let now = seen(&mount.root);
        assert!(now == before || !told && now == changed, "{round}, told: {told}");
        if now == before {
            done += 1;
        } else {
            undone += 1;
            roll_back(&mount, "before");
            assert_eq!(seen(&mount.root), before);
        }
    }
    eprintln!("{done} done, {undone} not");
    whole(mount);
}
