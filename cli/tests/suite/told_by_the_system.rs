//! What the system knows of the memory below a pool, by a sysfs that this machine has not: what `lode info` says of it, and
//! what is done with it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ran, Scratch, lode, run, text};
use serde_json::Value;

const REGION: &str = "devices/ndbus0/region0";
const DISK: &str = "devices/ndbus0/region0/namespace0.0/block/pmem0";
const CHECKED: &str = "the whole pool was checked";

/// A sysfs in which the file system of `place` lies on a disk of persistent memory.
fn sysfs(root: &Path, place: &Path) {
    let put = |path: String, text: &str| {
        fs::create_dir_all(root.join(&path).parent().unwrap()).unwrap();
        fs::write(root.join(path), text).unwrap();
    };
    put(format!("{REGION}/persistence_domain"), "memory_controller\n");
    put(format!("{REGION}/mapping0"), "nmem0,0,1073741824,0\n");
    put("devices/ndbus0/nmem0/nfit/id".to_owned(), "8089-a2-01\n");
    put("devices/ndbus0/nmem0/nfit/dirty_shutdown".to_owned(), "3\n");
    put(format!("{DISK}/size"), &format!("{}\n", 1u64 << 40));
    put(format!("{DISK}/badblocks"), "\n");
    let number = fs::metadata(place).unwrap().dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    fs::create_dir_all(root.join("dev/block")).unwrap();
    symlink(root.join(DISK), root.join(format!("dev/block/{major}:{minor}"))).unwrap();
}

/// Runs the command with that sysfs.
fn with(root: &Path, args: &[&str]) -> Ran {
    lode(&[&["--sysfs-root", text(root)], args].concat())
}

fn shutdowns(root: &Path, count: u64) {
    fs::write(root.join("devices/ndbus0/nmem0/nfit/dirty_shutdown"), format!("{count}\n")).unwrap();
}

/// Mounts, and tells what was said; the log is read before the server ends.
fn mounted(root: &Path, pool: &Path, dir: &Path) -> (Value, String) {
    let said = with(root, &["mount", text(pool), text(dir), "--json"]).expect(0).json();
    let log = fs::read_to_string(said["log"].as_str().unwrap()).unwrap();
    (said, log)
}

#[test]
fn info_says_what_the_system_tells_of_the_memory() {
    let scratch = Scratch::new();
    let (root, pool, dir) = (scratch.dir("sys"), scratch.path("pool"), scratch.dir("mnt"));
    sysfs(&root, &root);
    with(&root, &["mkfs", text(&pool), "--size", "16M"]).expect(0);
    for is_mounted in [false, true] {
        if is_mounted {
            mounted(&root, &pool, &dir);
        }
        let target = if is_mounted { &dir } else { &pool };
        let info = with(&root, &["info", text(target), "--json"]).expect(0).json();
        let memory = &info["region"]["memory"];
        assert_eq!(memory["device"], "pmem0", "{memory}");
        assert_eq!(memory["persistence_domain"], "memory_controller");
        assert_eq!(memory["dirty_shutdowns"], 3);
        assert_eq!((&memory["page_bytes"], &memory["listed_bad_bytes"]), (&4096.into(), &0.into()));
        assert_eq!(info["opening"]["losses"], 0);
        let said = with(&root, &["info", text(target)]).expect(0).out;
        for part in [", on pmem0", "memory_controller: of the memory below", "3 so far"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    lode(&["umount", text(&dir)]).expect(0);
    let refused = with(&scratch.path("nowhere"), &["info", text(&pool)]).expect(2);
    assert!(refused.err.contains("no such directory"), "{}", refused.err);
    // This machine's own sysfs tells nothing of that.
    let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
    assert_eq!(info["region"]["memory"]["dirty_shutdowns"], Value::Null);
}

#[test]
fn a_dirty_shutdown_has_the_next_mount_check_the_whole_pool() {
    let scratch = Scratch::new();
    let (root, pool, dir) = (scratch.dir("sys"), scratch.path("pool"), scratch.dir("mnt"));
    sysfs(&root, &root);
    with(&root, &["mkfs", text(&pool), "--size", "16M"]).expect(0);
    for (count, moved) in [(3, 0), (5, 2), (5, 0)] {
        shutdowns(&root, count);
        let (said, log) = mounted(&root, &pool, &dir);
        assert_eq!(said["opening"]["losses"], moved);
        assert_eq!(log.contains(CHECKED), moved > 0, "{log}");
        fs::write(dir.join("file"), count.to_string()).unwrap();
        let info = with(&root, &["info", text(&dir), "--json"]).expect(0).json();
        assert_eq!(info["opening"]["losses"], moved);
        lode(&["umount", text(&dir)]).expect(0);
    }
    // A line of the file's log is lost. Its checkpoint has a mount of the pool see nothing of that.
    let dump = lode(&["dump", text(&pool), "/file", "--json"]).expect(0).json();
    let at = dump["inodes"][0]["records"][0]["at"].as_u64().unwrap();
    let file = File::options().write(true).open(&pool).unwrap();
    file.write_all_at(&[0x5a; 8], at + 8).unwrap();
    shutdowns(&root, 6);
    let said = with(&root, &["info", text(&pool)]).expect(0).out;
    assert!(said.contains("memory lost"), "{said}");
    let refused = with(&root, &["mount", text(&pool), text(&dir)]).expect(4);
    for part in ["lost some of what it had been given", "lode fsck"] {
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    with(&root, &["fsck", "-n", text(&pool)]).expect(4);
    with(&root, &["fsck", "-y", text(&pool)]).expect(1);
    let (said, log) = mounted(&root, &pool, &dir);
    assert_eq!((&said["opening"]["losses"], log.contains(CHECKED)), (&0.into(), false));
    lode(&["umount", text(&dir)]).expect(0);
}

/// Where a byte of a file is on the disk of its file system, in sectors, if that tells.
fn sector(file: &Path, at: u64) -> Option<u64> {
    let told = Command::new("filefrag").args(["-v", "-b512", text(file)]).output().ok()?;
    let told = String::from_utf8(told.stdout).unwrap();
    told.lines().find_map(|line| {
        let mut fields = line.split(':').skip(1).map(|field| field.split_once(".."));
        let (logical, physical) = (fields.next()??, fields.next()??);
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let range = number(logical.0)?..=number(logical.1)?;
        range.contains(&(at / 512)).then_some(number(physical.0)? + at / 512 - range.start())
    })
}

#[test]
fn blocks_that_the_system_lists_as_bad_are_poison() {
    let scratch = Scratch::new();
    let (root, dir) = (scratch.dir("sys"), scratch.dir("mnt"));
    // On a disk: what is in memory alone has no place on one.
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    sysfs(&root, on_disk.path());
    for level in ["none", "full"] {
        let pool: PathBuf = on_disk.path().join(level);
        with(&root, &["mkfs", text(&pool), "--size", "16M", "--protect", level]).expect(0);
        mounted(&root, &pool, &dir);
        fs::write(dir.join("file"), vec![7; 64 << 10]).unwrap();
        lode(&["umount", text(&dir)]).expect(0);
        let dump = lode(&["dump", text(&pool), "/file", "--json"]).expect(0).json();
        let data = dump["inodes"][0]["extents"][0]["pool_offset"].as_u64().unwrap();
        run(Command::new("sync").arg(&pool)).expect(0);
        let Some(sector) = sector(&pool, data + 8192) else {
            println!("skipped: this file system does not tell where files are");
            return;
        };
        fs::write(root.join(DISK).join("badblocks"), format!("{sector} 1\n")).unwrap();
        mounted(&root, &pool, &dir);
        let info = with(&root, &["info", text(&dir), "--json"]).expect(0).json();
        assert_eq!(info["region"]["memory"]["listed_bad_bytes"], 512);
        let file = File::open(dir.join("file")).unwrap();
        let read = |at, bytes| file.read_at(&mut vec![0; bytes], at);
        assert_eq!(read(0, 8192).unwrap(), 8192);
        assert_eq!(read(12288, 4096).unwrap(), 4096);
        let lost = read(8192, 4096);
        match level {
            "full" => assert_eq!(lost.unwrap(), 4096),
            _ => assert_eq!(lost.unwrap_err().raw_os_error(), Some(5)),
        }
        drop(file);
        let info = with(&root, &["info", text(&dir), "--json"]).expect(0).json();
        assert_eq!(info["bad_memory"]["pages"], 1, "{info}");
        lode(&["umount", text(&dir)]).expect(0);
        // Read-only it is poison, too; another sysfs knows nothing of it.
        let info = with(&root, &["info", text(&pool), "--json"]).expect(0).json();
        assert_eq!(info["region"]["memory"]["listed_bad_bytes"], 512);
        fs::write(root.join(DISK).join("badblocks"), "\n").unwrap();
    }
}

#[test]
fn a_pool_is_not_made_where_what_it_needs_is_bad() {
    let scratch = Scratch::new();
    let root = scratch.dir("sys");
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    sysfs(&root, on_disk.path());
    let pool = on_disk.path().join("pool");
    fs::write(&pool, [1; 4096]).unwrap();
    run(Command::new("sync").arg(&pool)).expect(0);
    if sector(&pool, 0).is_none() {
        println!("skipped: this file system does not tell where files are");
        return;
    }
    fs::remove_file(&pool).unwrap();
    for (list, code) in [("0 2147483648\n", 1), ("\n", 0)] {
        fs::write(root.join(DISK).join("badblocks"), list).unwrap();
        let made = with(&root, &["mkfs", text(&pool), "--size", "16M"]).expect(code);
        let is_refused = made.err.contains("the memory there is bad, by the system's list");
        assert_eq!((is_refused, pool.exists()), (code != 0, code == 0), "{}", made.err);
    }
}

#[test]
fn where_sysfs_is_may_be_said_from_here() {
    let scratch = Scratch::new();
    let (root, pool, dir) = (scratch.dir("sys"), scratch.path("pool"), scratch.dir("mnt"));
    sysfs(&root, &root);
    let from_here = |args: &[&str]| {
        let args = [&["--sysfs-root", "sys"], args].concat();
        run(Command::new(crate::common::LODE).current_dir(root.parent().unwrap()).args(args))
            .expect(0)
    };
    from_here(&["mkfs", text(&pool), "--size", "16M"]);
    from_here(&["mount", text(&pool), text(&dir)]);
    let info = lode(&["info", text(&dir), "--json"]).expect(0).json();
    assert_eq!(info["region"]["memory"]["device"], "pmem0", "{info}");
    lode(&["umount", text(&dir)]).expect(0);
}
