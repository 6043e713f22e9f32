//! The life of a mount: it answers when `lode mount` returns, is gone and closed when `lode
//! umount` returns, says who keeps it busy, and comes back after its server was killed.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::server::Server;
use crate::common::{Scratch, fsck, lode, text};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

fn mount(pool: &Path, dir: &Path, options: &[&str]) -> serde_json::Value {
    let args = [&["mount", text(pool), text(dir), "--json"], options].concat();
    lode(&args).expect(0).json()
}

/// Waits for the end of a process that is not a child.
fn wait_for_end(pid: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    // One that has ended and that nobody has asked about yet is in state Z.
    let alive =
        || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while alive() {
        assert!(Instant::now() < deadline, "process {pid} does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a mount without a server says, once its connection is down: until the last thread of the
/// killed server is gone, requests end with `ECONNABORTED`, by io_uring with `ECANCELED`, and nothing else.
fn answer_of_the_dead(dir: &Path) -> std::io::Error {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let error = fs::read_dir(dir).unwrap_err();
        let ends = [Errno::CONNABORTED, Errno::CANCELED].map(|end| Some(end.raw_os_error()));
        let aborted = ends.contains(&error.raw_os_error());
        if !aborted || Instant::now() > deadline {
            return error;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn kill(pid: u64, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[test]
fn a_mount_answers_at_once_and_an_unmounted_pool_is_closed_at_once() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    let session = || {
        let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
        assert_eq!(
            (&info["pool"]["clean"], &info["mount"]),
            (&true.into(), &serde_json::Value::Null)
        );
        info["pool"]["session"].as_u64().unwrap()
    };
    let before = session();
    for round in 0..5 {
        let mounted = mount(&pool, &dir, &[]);
        assert_eq!(mounted["opening"]["clean"], true, "round {round}");
        let file = dir.join(format!("file{round}"));
        fs::write(&file, "hello").unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), round + 1);
        lode(&["umount", text(&dir)]).expect(0);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "the mount is gone");
        fsck(&pool).expect(0);
    }
    assert_eq!(session(), before + 5, "each read-write mount is a session");
}

#[test]
fn a_busy_mount_says_who_uses_it() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    mount(&pool, &dir, &[]);
    fs::write(dir.join("file"), "x").unwrap();
    let mut user = Command::new("tail")
        .args(["-f", text(&dir.join("file"))])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It has opened the file when it has shown what is in it.
    user.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let refused = lode(&["umount", text(&dir)]).expect(6);
    assert!(refused.err.contains(&format!("{} (tail)", user.id())), "{}", refused.err);
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "x", "still mounted");
    user.kill().unwrap();
    user.wait().unwrap();
    lode(&["umount", text(&dir)]).expect(0);
}

#[test]
fn a_killed_server_leaves_a_mount_that_can_be_mounted_over_or_taken_away() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    let mut open = Vec::new();
    for round in 0..3 {
        let mounted = mount(&pool, &dir, &[]);
        assert_eq!(mounted["opening"]["clean"], round == 0);
        let path = dir.join(format!("file{round}"));
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(b"acknowledged").unwrap();
        open.push(file); // Held across the kill: an open file must not keep the mount point.
        kill(mounted["pid"].as_u64().unwrap(), Signal::KILL);
        wait_for_end(mounted["pid"].as_u64().unwrap());
        let error = answer_of_the_dead(&dir);
        let told = error.raw_os_error();
        assert_eq!(told, Some(Errno::NOTCONN.raw_os_error()), "ENOTCONN, not {error}");
        let gone = lode(&["info", text(&dir)]).expect(11);
        assert!(gone.err.contains("lode mount"), "{}", gone.err);
        lode(&["stats", text(&dir)]).expect(11);
    }
    mount(&pool, &dir, &[]);
    for round in 0..3 {
        let content = fs::read_to_string(dir.join(format!("file{round}"))).unwrap();
        assert_eq!(content, "acknowledged");
    }
    drop(open);
    let pid =
        lode(&["info", text(&dir), "--json"]).expect(0).json()["mount"]["pid"].as_u64().unwrap();
    kill(pid, Signal::KILL);
    wait_for_end(pid);
    let gone = lode(&["umount", text(&dir), "--json"]).expect(0).json();
    assert_eq!((&gone["clean"], &gone["pid"]), (&false.into(), &serde_json::Value::Null));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
    assert_eq!(info["opening"]["clean"], false);
    fsck(&pool).expect(0);
    lode(&["fsck", "-p", text(&pool)]).expect(0);
    let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
    assert_eq!(info["opening"]["clean"], true, "fsck -p recovers the pool");
}

#[test]
fn a_signal_unmounts_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        let scratch = Scratch::new();
        let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
        let server = Server::mount(&pool, &dir, &scratch.path("log"));
        fs::write(dir.join("file"), "x").unwrap();
        server.signal(signal);
        server.wait();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "{signal:?} did not unmount");
        let info = lode(&["info", text(&pool), "--json"]).expect(0).json();
        assert_eq!(info["opening"]["clean"], true, "{signal:?}");
    }
}

#[test]
fn a_read_only_mount_changes_not_a_byte() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let mounted = mount(&pool, &dir, &[]);
    fs::write(dir.join("file"), "content").unwrap();
    // Killed: a read-only mount of a pool that needs recovery writes nothing either.
    kill(mounted["pid"].as_u64().unwrap(), Signal::KILL);
    wait_for_end(mounted["pid"].as_u64().unwrap());
    lode(&["umount", text(&dir)]).expect(0);
    let before = fs::read(&pool).unwrap();
    let mounted = mount(&pool, &dir, &["-o", "ro"]);
    assert_eq!(mounted["read_only"], true);
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "content");
    for error in [
        fs::write(dir.join("file"), "y").unwrap_err(),
        fs::create_dir(dir.join("new")).unwrap_err(),
        fs::remove_file(dir.join("file")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    lode(&["info", text(&dir)]).expect(0);
    lode(&["umount", text(&dir)]).expect(0);
    assert!(fs::read(&pool).unwrap() == before, "a read-only mount wrote");
}

#[test]
fn of_several_unmounts_at_once_one_unmounts_and_the_others_say_that_nothing_is_mounted() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    for _ in 0..6 {
        mount(&pool, &dir, &[]);
        fs::write(dir.join("file"), "x").unwrap();
        let umount = || lode(&["umount", text(&dir)]);
        let all: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = (0..5).map(|_| scope.spawn(umount)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let done = all.iter().filter(|ran| ran.code == 0).count();
        let none = all.iter().filter(|ran| ran.code == 11).count();
        let said: Vec<_> = all.iter().map(|ran| (ran.code, &ran.err)).collect();
        assert_eq!((done, none), (1, 4), "{said:?}");
        fsck(&pool).expect(0);
    }
}

#[test]
fn a_remount_ends_changes_and_lets_them_go_on() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let remount =
        |options: &str| lode(&["mount", text(&pool), text(&dir), "--json", "-o", options]);
    let said = remount("remount,ro").expect(11);
    assert!(said.err.contains("no pool is mounted"), "{}", said.err);
    mount(&pool, &dir, &[]);
    fs::write(dir.join("file"), "x").unwrap();
    let open = fs::File::options().append(true).open(dir.join("file")).unwrap();
    let busy = remount("remount,ro").expect(6);
    assert!(busy.err.contains(&format!("{}", std::process::id())), "{}", busy.err);
    drop(open);
    assert_eq!(remount("remount,ro,noexec").expect(0).json()["read_only"], true);
    let refused = fs::write(dir.join("file"), "y").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "x");
    let info = || lode(&["info", text(&dir), "--json"]).expect(0).json();
    assert_eq!(info()["mount"]["read_only"], true);
    assert_eq!(remount("remount,rw").expect(0).json()["read_only"], false);
    fs::write(dir.join("file"), "y").unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let here = mounts.lines().find(|line| line.contains(text(&dir))).unwrap();
    assert!(here.contains("noexec") && here.contains("nosuid"), "what was not named stays: {here}");
    let flags = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let here = mounts.lines().find(|line| line.contains(text(&dir))).unwrap().to_owned();
        ["nodev", "nosuid"].map(|flag| here.contains(flag))
    };
    for (options, wanted) in [("dev", [false, true]), ("suid", [false, false])] {
        remount(&format!("remount,{options}")).expect(0);
        assert_eq!(flags(), wanted, "{options}");
    }
    remount("remount,nodev,nosuid").expect(0);
    assert_eq!(flags(), [true, true]);
    // What no remount changes is not said to be so.
    for (option, what) in [
        ("relaxed", "without relaxed"),
        ("noatime", "access times"),
        ("strictatime", "access times"),
        ("page-size=2M", "page size"),
        ("windows=mprotect", "windows"),
        ("noviews", ".lode"),
    ] {
        let refused = remount(&format!("remount,ro,{option}")).expect(2);
        assert!(refused.err.contains(what), "{option}: {}", refused.err);
        assert_eq!(info()["mount"]["read_only"], false, "{option}");
    }
    let same = "remount,relatime,page-size=4K,allow_other";
    assert_eq!(remount(same).expect(0).json()["read_only"], false);
    let other = scratch.pool("other", "16M");
    let refused = lode(&["mount", text(&other), text(&dir), "-o", "remount,ro"]).expect(2);
    assert!(refused.err.contains("is mounted here, not this"), "{}", refused.err);
    assert_eq!(info()["mount"]["read_only"], false);
    lode(&["umount", text(&dir)]).expect(0);
    mount(&pool, &dir, &["-o", "relaxed,noatime,noviews,windows=mprotect"]);
    let same = "remount,relaxed,noatime,noviews,windows=mprotect,ro";
    assert_eq!(remount(same).expect(0).json()["relaxed"], true);
    remount("remount,relatime").expect(2);
    lode(&["umount", text(&dir)]).expect(0);
    mount(&pool, &dir, &["-o", "ro"]);
    let refused = remount("remount,rw").expect(2);
    assert!(refused.err.contains("opened read-only"), "{}", refused.err);
    lode(&["umount", text(&dir)]).expect(0);
    fsck(&pool).expect(0);
}

#[test]
fn window_mode_and_flush_strategy_are_told_and_can_be_chosen() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    for (windows, flush) in [("none", "sse2+clflush"), ("mprotect", "msync")] {
        let mounted = mount(&pool, &dir, &["--windows", windows, "-o", &format!("flush={flush}")]);
        let info = lode(&["info", text(&dir), "--json"]).expect(0).json();
        for said in [&mounted, &info] {
            assert_eq!(
                (&said["region"]["windows"], &said["region"]["flush"]),
                (&windows.into(), &flush.into())
            );
        }
        fs::write(dir.join("file"), vec![1; 100_000]).unwrap();
        assert_eq!(fs::read(dir.join("file")).unwrap(), vec![1; 100_000]);
        lode(&["umount", text(&dir)]).expect(0);
    }
    fsck(&pool).expect(0);
}
