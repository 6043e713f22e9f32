//! `lode snapshot`: what a pool was is kept, looked at and returned to; of a pool that is mounted and of one that
//! is not.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::server::Server;
use crate::common::{Scratch, fsck, lode, text};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const ESTALE: i32 = 116;

fn snapshot(command: &str, target: &Path, name: &str) -> crate::common::Ran {
    lode(&["snapshot", command, text(target), name])
}

/// The names of a pool's snapshots, as JSON tells them.
#[track_caller]
fn names(target: &Path) -> Vec<String> {
    let list = lode(&["snapshot", "list", text(target), "--json"]).expect(0).json();
    assert_eq!(list["command"], "snapshot list");
    let all = list["snapshots"].as_array().unwrap();
    all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

/// What protects a pool has nothing to do with what its snapshots hold.
const LEVELS: [&str; 3] = ["none", "metadata", "full"];

fn pool_at(scratch: &Scratch, level: &str, size: &str) -> PathBuf {
    let pool = scratch.path("pool");
    lode(&["mkfs", text(&pool), "--size", size, "--protect", level]).expect(0);
    pool
}

#[test]
fn of_a_pool_that_is_not_mounted() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    assert_eq!(names(&pool), Vec::<String>::new());
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    server.run_with(|| fs::write(dir.join("file"), vec![1; 1 << 20]).unwrap());
    let made = lode(&["snapshot", "create", text(&pool), "first", "--json"]).expect(0).json();
    let first = &made["snapshot"];
    assert_eq!((first["name"].as_str(), first["bytes_alone"].as_u64()), (Some("first"), Some(0)));
    assert!(first["created_ns"].as_i64().unwrap() > 1_700_000_000_000_000_000);
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    server.run_with(|| fs::write(dir.join("file"), vec![2; 1 << 20]).unwrap());
    snapshot("create", &pool, "second").expect(0);
    assert_eq!(names(&pool), ["first", "second"]);
    let list = lode(&["snapshot", "list", text(&pool), "--json"]).expect(0).json();
    assert!(list["snapshots"][0]["bytes_alone"].as_u64().unwrap() >= 1 << 20, "{list}");
    assert!(list["snapshots"][0]["epoch"].as_u64() < list["snapshots"][1]["epoch"].as_u64());
    snapshot("delete", &pool, "first").expect(0);
    assert_eq!(names(&pool), ["second"]);
    fsck(&pool).expect(0);
}

#[test]
fn of_a_pool_that_is_mounted_by_its_directory_and_by_its_name() {
    LEVELS
        .iter()
        .for_each(|level| of_a_pool_that_is_mounted_by_its_directory_and_by_its_name_at(level));
}

fn of_a_pool_that_is_mounted_by_its_directory_and_by_its_name_at(level: &str) {
    let scratch = Scratch::new();
    let (pool, dir) = (pool_at(&scratch, level, "32M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    fs::write(dir.join("file"), vec![1; 1 << 20]).unwrap();
    snapshot("create", &dir, "first").expect(0);
    fs::write(dir.join("file"), vec![2; 1 << 20]).unwrap();
    snapshot("create", &pool, "second").expect(0);
    assert_eq!((names(&dir), names(&pool)), (vec!["first".into(), "second".into()], names(&dir)));
    for (name, byte) in [("first", 1), ("second", 2)] {
        let old = dir.join(".lode/snapshots").join(name);
        assert_eq!(fs::read(old.join("file")).unwrap(), vec![byte; 1 << 20]);
    }
    let list = lode(&["snapshot", "list", text(&dir), "--json"]).expect(0).json();
    assert!(list["snapshots"][0]["bytes_alone"].as_u64().unwrap() >= 1 << 20, "{list}");
    assert!(lode(&["snapshot", "list", text(&dir)]).expect(0).out.contains("first "));
    let kept = || {
        let stats = lode(&["stats", text(&dir), "--json"]).expect(0).json();
        (stats["snapshots"]["count"].as_u64().unwrap(), stats["snapshots"]["bytes"].clone())
    };
    assert_eq!(kept(), (2, list["bytes"].clone()));
    let metrics = lode(&["stats", text(&dir), "--prometheus"]).expect(0).out;
    let sample = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(sample("lode_snapshots"), "2");
    assert_eq!(sample("lode_snapshot_bytes"), list["bytes"].to_string());
    snapshot("delete", &dir, "first").expect(0);
    assert_eq!(kept(), (1, 0.into()));
    assert!(!dir.join(".lode/snapshots/first").exists());
    server.umount();
    assert_eq!(names(&pool), ["second"]);
    fsck(&pool).expect(0);
}

/// Each time the server is slow to take what the kernel has written out: it is a few pages, which the kernel's own counts
/// need not show.
#[test]
fn what_was_stored_through_a_mapping_is_in_a_snapshot() {
    LEVELS.iter().for_each(|level| what_was_stored_through_a_mapping_is_in_a_snapshot_at(level));
}

fn what_was_stored_through_a_mapping_is_in_a_snapshot_at(level: &str) {
    const LEN: usize = 64 << 10;
    let scratch = Scratch::new();
    let (pool, dir) = (pool_at(&scratch, level, "16M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    fs::write(dir.join("file"), vec![1; LEN]).unwrap();
    let file = fs::File::options().read(true).write(true).open(dir.join("file")).unwrap();
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place the kernel chooses, as long as the file.
    #[allow(unsafe_code)]
    let map = unsafe { mmap(std::ptr::null_mut(), LEN, rights, MapFlags::SHARED, &file, 0) };
    let map = map.unwrap().cast::<u8>();
    let store = |byte| {
        for at in 0..LEN {
            // SAFETY: inside the mapping, which nobody else uses and which stays to the end.
            #[allow(unsafe_code)]
            unsafe {
                map.add(at).write_volatile(byte);
            }
        }
    };
    for round in 0..20 {
        let (byte, name) = (2 + 2 * round, format!("mapped-{round}"));
        store(byte);
        let made = server.slowly(|| snapshot("create", &dir, &name));
        made.expect(0);
        store(byte + 1);
        let kept = fs::read(dir.join(".lode/snapshots").join(name).join("file")).unwrap();
        let wrong = kept.iter().position(|found| *found != byte);
        assert_eq!(wrong, None, "{round}: it has {}", kept[wrong.unwrap_or(0)]);
    }
    // SAFETY: nobody uses it from here on.
    #[allow(unsafe_code)]
    unsafe {
        munmap(map.cast(), LEN).unwrap();
    }
    drop(file);
    server.umount();
}

#[test]
fn names_that_can_not_be_are_refused_and_change_nothing() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let long = "x".repeat(129);
    let refusals = |target: &Path| {
        snapshot("create", target, "one").expect(0);
        let again = snapshot("create", target, "one").expect(10);
        assert!(again.err.contains("there is a snapshot one already"), "{}", again.err);
        let none = snapshot("delete", target, "two").expect(8);
        assert!(none.err.contains("there is no snapshot two"), "{}", none.err);
        for name in ["", ".", "..", "a/b", "a\nb", &long] {
            snapshot("create", target, name).expect(2);
        }
        let error = lode(&["snapshot", "delete", text(target), "two", "--json"]).expect(8);
        let error = error.error_json();
        assert_eq!(
            (&error["command"], &error["error"]["kind"]),
            (&"snapshot delete".into(), &"not_found".into())
        );
        assert_eq!(names(target), ["one"]);
        snapshot("delete", target, "one").expect(0);
    };
    refusals(&pool);
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    refusals(&dir);
    server.umount();
    lode(&["snapshot", "create", text(&pool)]).expect(2);
    lode(&["snapshot", "list", "/no/such/pool"]).expect(8);
    lode(&["snapshot", "list", text(&dir)]).expect(11);
    lode(&["snapshot", "list", "/dev/null"]).expect(3);
}

#[test]
fn a_pool_that_is_mounted_read_only_keeps_the_snapshots_it_has() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    snapshot("create", &pool, "one").expect(0);
    lode(&["mount", text(&pool), text(&dir), "-o", "ro"]).expect(0);
    snapshot("create", &dir, "two").expect(9);
    snapshot("delete", &dir, "one").expect(9);
    assert_eq!(names(&dir), ["one"]);
    lode(&["umount", text(&dir)]).expect(0);
    // A remount to read-only counts, too.
    lode(&["mount", text(&pool), text(&dir)]).expect(0);
    lode(&["mount", text(&pool), text(&dir), "-o", "remount,ro"]).expect(0);
    snapshot("delete", &dir, "one").expect(9);
    lode(&["umount", text(&dir)]).expect(0);
    assert_eq!(names(&pool), ["one"]);
}

#[test]
fn a_rollback_brings_back_what_was() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    fs::write(dir.join("changed"), vec![1; 1 << 20]).unwrap();
    fs::write(dir.join("removed"), "here").unwrap();
    snapshot("create", &dir, "older").expect(0);
    snapshot("create", &dir, "before").expect(0);
    fs::write(dir.join("changed"), vec![2; 1 << 20]).unwrap();
    fs::remove_file(dir.join("removed")).unwrap();
    fs::write(dir.join("new"), "new").unwrap();
    snapshot("create", &dir, "later").expect(0);
    server.umount();
    snapshot("rollback", &pool, "none").expect(8);
    let rolled = lode(&["snapshot", "rollback", text(&pool), "before", "--json"]).expect(0).json();
    assert_eq!(rolled["deleted"], serde_json::json!(["later"]));
    assert_eq!(names(&pool), ["older", "before"]);
    fsck(&pool).expect(0);
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    server.run_with(|| {
        assert_eq!(fs::read(dir.join("changed")).unwrap(), vec![1; 1 << 20]);
        assert_eq!(fs::read_to_string(dir.join("removed")).unwrap(), "here");
        assert!(!dir.join("new").exists());
    });
}

#[test]
fn a_rollback_of_a_mount_leaves_it_mounted() {
    LEVELS.iter().for_each(|level| a_rollback_of_a_mount_leaves_it_mounted_at(level));
}

fn a_rollback_of_a_mount_leaves_it_mounted_at(level: &str) {
    let scratch = Scratch::new();
    let (pool, dir) = (pool_at(&scratch, level, "32M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    for (round, target) in [&dir, &pool].into_iter().enumerate() {
        let name = format!("before {round}");
        fs::write(dir.join("file"), "before").unwrap();
        snapshot("create", &dir, &name).expect(0);
        fs::write(dir.join("file"), "changed").unwrap();
        snapshot("create", &dir, "later").expect(0);
        snapshot("rollback", target, "none").expect(8);
        let file = File::options().append(true).open(dir.join("file")).unwrap();
        let busy = snapshot("rollback", target, &name).expect(6);
        let (path, pid) = (dir.join("file"), std::process::id());
        let says = format!("({pid}) has {} open for writing", path.display());
        assert!(busy.err.contains(&says) && busy.err.contains("--force"), "{}", busy.err);
        assert_eq!(fs::read_to_string(&path).unwrap(), "changed");
        let forced = ["snapshot", "rollback", text(target), &name, "--force", "--json"];
        let rolled = lode(&forced).expect(0).json();
        assert_eq!(rolled["deleted"], serde_json::json!(["later"]));
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        assert_eq!((&file).write(b"more").unwrap_err().raw_os_error(), Some(ESTALE));
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
    }
    assert_eq!(names(&dir), ["before 0", "before 1"]);
    // Nobody uses it.
    fs::write(dir.join("new"), "new").unwrap();
    assert!(snapshot("rollback", &dir, "before 1").expect(0).out.contains("is what it was"));
    assert!(!dir.join("new").exists());
    lode(&["mount", text(&pool), text(&dir), "-o", "remount,ro"]).expect(0);
    snapshot("rollback", &dir, "before 1").expect(9);
    server.umount();
    fsck(&pool).expect(0);
}
