//! What mount options change: access times, device nodes, set-user-id bits, programs, overwrites,
//! the pages of new files.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::common::{Scratch, lode, run, text};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;

/// A pool, mounted with options: done something to, and unmounted.
struct Mounts {
    _scratch: Scratch,
    pool: PathBuf,
    dir: PathBuf,
}

impl Mounts {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
        // Who is not root has to reach the mount point.
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(scratch.path("."), open).unwrap();
        Self { _scratch: scratch, pool, dir }
    }

    #[track_caller]
    fn with<T>(&self, options: &str, work: impl FnOnce(&Path) -> T) -> T {
        lode(&["mount", text(&self.pool), text(&self.dir), "-o", options]).expect(0);
        let result = work(&self.dir);
        lode(&["umount", text(&self.dir)]).expect(0);
        result
    }
}

/// Where each run of a file's pages lies: offset in the file, in the pool, bytes, page size.
fn extents(pool: &Path, file: &str) -> Vec<(u64, u64, u64, String)> {
    let dump = lode(&["dump", text(pool), file, "--json"]).expect(0).json();
    let extents = dump["inodes"][0]["extents"].as_array().unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    extents
        .iter()
        .map(|extent| {
            let page_size = extent["page_size"].as_str().unwrap().to_owned();
            let [at, from, bytes] = ["file_offset", "pool_offset", "bytes"].map(|key| &extent[key]);
            (number(at), number(from), number(bytes), page_size)
        })
        .collect()
}

/// Whether reading, on a mount that has not seen the file yet, makes it accessed just now.
fn read_counts(mounts: &Mounts, options: &str) -> bool {
    mounts.with(options, |dir| {
        let file = dir.join("file");
        let before = fs::metadata(&file).unwrap().accessed().unwrap();
        fs::read(&file).unwrap();
        let after = fs::metadata(&file).unwrap().accessed().unwrap();
        assert!(after == before || after.elapsed().unwrap() < Duration::from_secs(60));
        after != before
    })
}

#[test]
fn access_times_are_kept_as_relatime_has_it_and_not_with_noatime() {
    let mounts = Mounts::new();
    mounts.with("rw", |dir| fs::write(dir.join("file"), "text").unwrap());
    assert!(!read_counts(&mounts, "noatime"), "noatime");
    assert!(read_counts(&mounts, "relatime"), "changed since it was read");
    assert!(!read_counts(&mounts, "relatime"), "read since it was changed");
    // Setting a time is a change of its own, later than the time that is set.
    mounts.with("rw", |dir| {
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        let times = FileTimes::new().set_accessed(long_ago);
        File::options().write(true).open(dir.join("file")).unwrap().set_times(times).unwrap();
    });
    assert!(!read_counts(&mounts, "noatime"), "noatime");
    assert!(read_counts(&mounts, "rw"), "relatime where nothing is said");
    for _ in 0..3 {
        assert!(read_counts(&mounts, "strictatime"), "strictatime");
    }
    // In one mount, too, where the kernel would have the file in its cache.
    mounts.with("strictatime", |dir| {
        let file = dir.join("file");
        let mut last = fs::metadata(&file).unwrap().accessed().unwrap();
        for _ in 0..3 {
            fs::read(&file).unwrap();
            let now = fs::metadata(&file).unwrap().accessed().unwrap();
            assert!(now > last, "read, and the access time stays");
            last = now;
        }
    });
}

#[test]
fn access_times_of_directories_and_links_move_and_those_of_quiet_readers_and_copies_do_not() {
    let mounts = Mounts::new();
    let long_ago = "touch -h -a -d 2001-01-01";
    let sh = |dir: &Path, script: &str| {
        run(Command::new("sh").arg("-ec").arg(script).current_dir(dir)).expect(0).out
    };
    let year = |dir: &Path, name: &str| sh(dir, &format!("stat -c %x {name} | cut -c 1-4"));
    mounts.with("rw", |dir| {
        sh(dir, "mkdir full empty; echo text >full/file; ln -s full/file link; echo text >quiet");
        sh(dir, &format!("{long_ago} full empty link full/file quiet"));
    });
    let read = "ls full empty; readlink link; cat full/file >/dev/null";
    for (options, moved) in [("noatime", false), ("ro", false), ("relatime", true)] {
        mounts.with(options, |dir| {
            sh(dir, read);
            for name in ["full", "empty", "link", "full/file"] {
                assert_eq!(year(dir, name) != "2001\n", moved, "{name}, {options}");
            }
        });
    }
    let script = "import os; f = os.open('quiet', os.O_RDONLY | os.O_NOATIME); os.read(f, 9); \
                  t = os.open('copy', os.O_CREAT | os.O_WRONLY); os.copy_file_range(f, t, 4, 0)";
    mounts.with("strictatime", |dir| {
        sh(dir, &format!("python3 -c \"{script}\"; test $(cat copy) = text"));
        assert_eq!(year(dir, "quiet"), "2001\n");
        // Each time, in one mount.
        for (name, look) in [("full", "ls full"), ("empty", "ls empty"), ("link", "readlink link")]
        {
            let before = sh(dir, &format!("stat -c %x {name}"));
            sh(dir, look);
            assert_ne!(sh(dir, &format!("stat -c %x {name}")), before, "{name}");
        }
    });
    // As the medium has it, too.
    mounts.with("noatime", |dir| {
        assert_eq!(year(dir, "quiet"), "2001\n");
        assert_ne!(year(dir, "full"), "2001\n");
    });
}

#[test]
fn device_nodes_and_programs_work_where_the_options_say_so() {
    let mounts = Mounts::new();
    mounts.with("rw", |dir| {
        let mode = Mode::from_raw_mode(0o666);
        let null = makedev(1, 5);
        mknodat(CWD, dir.join("zero"), FileType::CharacterDevice, mode, null).unwrap();
        fs::copy("/usr/bin/id", dir.join("id")).unwrap();
        fs::set_permissions(dir.join("id"), Permissions::from_mode(0o4755)).unwrap();
        let refused = File::open(dir.join("zero")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ACCESS.raw_os_error()), "{refused}");
    });
    // The program says as whom it runs, started by somebody who is not root.
    let who = |dir: &Path| {
        use std::os::unix::process::CommandExt;
        run(Command::new(dir.join("id")).arg("-u").uid(1234).gid(1234)).expect(0).out
    };
    assert_eq!(mounts.with("rw", who), "1234\n", "set-user-id bits do nothing");
    assert_eq!(mounts.with("suid", who), "0\n");
    mounts.with("dev,noexec", |dir| {
        let mut byte = [1];
        File::open(dir.join("zero")).unwrap().read_exact(&mut byte).unwrap();
        assert_eq!(byte, [0]);
        let refused = Command::new(dir.join("id")).output().unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    });
}

#[test]
fn relaxed_overwrites_lie_where_the_old_bytes_did() {
    let mounts = Mounts::new();
    mounts.with("rw", |dir| fs::write(dir.join("file"), vec![1; 8 * 4096]).unwrap());
    let overwrite = |options, relaxed: bool| {
        let before = extents(&mounts.pool, "/file");
        mounts.with(options, |dir| {
            let info = lode(&["info", text(dir), "--json"]).expect(0).json();
            assert_eq!(info["mount"]["relaxed"], relaxed, "{options}");
            let file = File::options().write(true).open(dir.join("file")).unwrap();
            file.write_all_at(&[2; 4096], 4096).unwrap();
        });
        let after = extents(&mounts.pool, "/file");
        assert_eq!(before == after, relaxed, "{options}: {before:?}, then {after:?}");
    };
    overwrite("rw", false);
    overwrite("relaxed", true);
    overwrite("rw", false);
}

#[test]
fn a_snapshot_is_mounted_read_only_where_the_options_name_it() {
    let mounts = Mounts::new();
    let (pool, dir) = (text(&mounts.pool), text(&mounts.dir));
    mounts.with("rw", |dir| {
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/file"), "then").unwrap();
        lode(&["snapshot", "create", text(dir), "before"]).expect(0);
        fs::write(dir.join("sub/file"), "now").unwrap();
        fs::write(dir.join("new"), "new").unwrap();
    });
    let refused = lode(&["mount", pool, dir, "-o", "snapshot=before"]).expect(2);
    assert!(refused.err.contains("needs ro"), "{}", refused.err);
    lode(&["mount", pool, dir, "-o", "ro,snapshot="]).expect(2);
    let none = lode(&["mount", pool, dir, "-o", "ro,snapshot=after"]).expect(8);
    assert!(none.err.contains("there is no snapshot after"), "{}", none.err);
    mounts.with("ro,snapshot=before", |root| {
        assert_eq!(fs::read_to_string(root.join("sub/file")).unwrap(), "then");
        assert!(!root.join("new").exists());
        let listed = run(Command::new("sh").args(["-c", "find . | sort"]).current_dir(root));
        assert_eq!(listed.out, ".\n./sub\n./sub/file\n");
        let up = run(Command::new("sh").args(["-c", "cd -P sub/..; pwd -P"]).current_dir(root));
        assert_eq!(up.out.trim_end(), dir);
        let error = fs::write(root.join("sub/file"), "no").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
        lode(&["mount", pool, dir, "-o", "remount,ro,snapshot=before"]).expect(0);
        lode(&["mount", pool, dir, "-o", "remount,ro,snapshot=other"]).expect(2);
        lode(&["snapshot", "delete", dir, "before"]).expect(9);
    });
    // It is told which one it is, also where its name has a comma.
    lode(&["snapshot", "create", pool, r"with, a \ comma"]).expect(0);
    for (option, name) in [("before", "before"), (r"with\, a \\ comma", r"with, a \ comma")] {
        let option = format!("ro,snapshot={option},noexec");
        let mounted = lode(&["mount", pool, dir, "-o", &option, "--json"]).expect(0).json();
        let info = lode(&["info", dir, "--json"]).expect(0).json();
        assert_eq!(
            (&mounted["snapshot"], &info["mount"]["snapshot"]),
            (&name.into(), &name.into())
        );
        let said = lode(&["info", dir]).expect(0).out;
        assert!(said.contains(&format!("read-only, snapshot {name}, by")), "{said}");
        lode(&["umount", dir]).expect(0);
    }
    mounts.with("ro", |root| {
        let info = lode(&["info", dir, "--json"]).expect(0).json();
        assert!(info["mount"]["snapshot"].is_null());
        assert_eq!(fs::read_to_string(root.join("sub/file")).unwrap(), "now");
        let then = fs::read_to_string(root.join(".lode/snapshots/before/sub/file")).unwrap();
        assert_eq!(then, "then");
    });
}

#[test]
fn a_pool_whose_snapshot_is_mounted_is_mounted_beside_it_by_who_only_reads() {
    let mounts = Mounts::new();
    let other = mounts.dir.with_file_name("other");
    fs::create_dir(&other).unwrap();
    let (pool, beside) = (text(&mounts.pool), text(&other));
    mounts.with("rw", |dir| {
        fs::write(dir.join("file"), "then").unwrap();
        lode(&["snapshot", "create", text(dir), "before"]).expect(0);
        fs::write(dir.join("file"), "now").unwrap();
        lode(&["mount", pool, beside, "-o", "ro,snapshot=before"]).expect(6);
    });
    mounts.with("ro,snapshot=before", |root| {
        let refused = lode(&["mount", pool, beside, "-o", "rw"]).expect(6);
        assert!(refused.err.contains("the pool is mounted at"), "{}", refused.err);
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        lode(&["mount", pool, beside, "-o", "ro"]).expect(0);
        assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "now");
        assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "then");
        lode(&["umount", beside]).expect(0);
        assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "then");
    });
    lode(&["fsck", pool]).expect(0);
}

#[test]
fn large_pages_are_for_files_made_where_the_options_say_so() {
    const LARGE: u64 = 2 << 20;
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    let made = |name: &str, options: &[&str]| {
        lode(&[&["mount", text(&pool), text(&dir)], options].concat()).expect(0);
        fs::write(dir.join(name), vec![7; 4 << 20]).unwrap();
        let info = lode(&["info", text(&dir), "--json"]).expect(0).json();
        assert_eq!(info["pool"]["page_size"], "4K", "the pool's own stays");
        lode(&["umount", text(&dir)]).expect(0);
        extents(&pool, &format!("/{name}"))
    };
    let small = made("small", &[]);
    assert!(small.iter().all(|extent| extent.3 == "4K"), "{small:?}");
    for (name, options) in [
        ("option", ["-o", "page-size=2M"]),
        ("argument", ["--page-size", "2M"]),
        ("both", ["--page-size=2M", "-opage-size=4K"]),
    ] {
        let large = made(name, &options);
        let aligned = |extent: &(u64, u64, u64, String)| {
            extent.3 == "2M" && [extent.0, extent.1, extent.2].iter().all(|at| at % LARGE == 0)
        };
        assert!(!large.is_empty() && large.iter().all(aligned), "{options:?}: {large:?}");
        assert_eq!(large.iter().map(|extent| extent.2).sum::<u64>(), 4 << 20, "{options:?}");
    }
}

/// Whether the server with this process id keeps processors awake.
fn keeps_awake(pid: u64) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    // (Others of its files may be closed meanwhile.)
    let leads = open.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    leads.into_iter().any(|to| to == Path::new("/dev/cpu_dma_latency"))
}

#[test]
fn processors_are_kept_awake_while_requests_come_if_that_is_asked_for() {
    if File::options().write(true).open("/dev/cpu_dma_latency").is_err() {
        eprintln!("skipped: nobody here may keep processors awake");
        return;
    }
    let mounts = Mounts::new();
    for (options, asked) in [("awake", true), ("awake,noawake", false), ("relatime", false)] {
        mounts.with(options, |dir| {
            let info = lode(&["info", text(dir), "--json"]).expect(0).json();
            let pid = info["mount"]["pid"].as_u64().unwrap();
            // Asked again and again, or not at all, until it is so, or for so long.
            let seen = |awake: bool, asks: bool, most: Duration| {
                let end = Instant::now() + most;
                while keeps_awake(pid) != awake && Instant::now() < end {
                    if asks {
                        fs::write(dir.join("file"), "asked").unwrap();
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                keeps_awake(pid) == awake
            };
            let (long, short) = (Duration::from_secs(10), Duration::from_millis(300));
            assert!(seen(false, false, long), "{options}: nobody asks for anything");
            for _ in 0..2 {
                assert_eq!(seen(true, true, if asked { long } else { short }), asked, "{options}");
                assert!(seen(false, false, long), "{options}: until a second after");
            }
            let other = if asked { "remount,noawake" } else { "remount,awake" };
            lode(&["mount", text(&mounts.pool), text(dir), "-o", other]).expect(2);
        });
    }
}
