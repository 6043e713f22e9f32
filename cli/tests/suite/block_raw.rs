//! Whole regions and volumes of mounted pools, served by NBD.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::common::nbd::Serving;
use crate::common::server::Server;
use crate::common::{Scratch, lode, text};
use lode_testkit::nbd::Client;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;
/// As the protocol has it.
const EIO: u32 = 5;
const ENOSPC: u32 = 28;

fn region(path: &Path) {
    fs::write(path, vec![0; 4 * MIB as usize]).unwrap();
}

#[test]
fn a_region_is_served_in_each_way_and_has_what_was_flushed_though_the_server_is_killed() {
    let scratch = Scratch::new();
    let (file, socket) = (scratch.path("region"), scratch.path("socket"));
    let ways: [&[&str]; 8] = [
        &[],
        &["--protect-io", "none", "--write-scheme", "clflush"],
        &["--protect-io", "mprotect"],
        &["--protect-io", "mprotect-batch"],
        &[
            "--protect-io",
            "mprotect-batch",
            "--buffers",
            "16",
            "--buffer-size",
            "64K",
            "--watermark",
            "100",
            "--syncers",
            "2",
        ],
        &["--protect-io", "private-map", "--write-scheme", "cached"],
        &["--write-scheme", "cached", "--slow-read", "2", "--slow-write", "10"],
        &["--sector", "4096"],
    ];
    for way in ways {
        region(&file);
        let words = [&["--raw", text(&file), "--socket", text(&socket)][..], way].concat();
        let mut serving = Serving::start(&words);
        let mut client = Client::connect(&socket, "").unwrap();
        assert_eq!(client.size, 4 * MIB);
        client.write(1, 4096, &[7; 8192], false).unwrap();
        client.answer().unwrap();
        client.flush(2).unwrap();
        client.answer().unwrap();
        client.write(3, 3 * MIB, &[9; 4096], true).unwrap();
        client.answer().unwrap();
        assert_eq!(client.read(4096, 8192).unwrap(), vec![7; 8192], "{way:?}");
        assert_eq!(serving.signal(Signal::KILL), -1);
        let held = fs::read(&file).unwrap();
        assert!(held[4096..12288].iter().all(|byte| *byte == 7), "{way:?}: what was flushed");
        let fua = &held[3 * MIB as usize..3 * MIB as usize + 4096];
        assert!(fua.iter().all(|byte| *byte == 9), "{way:?}: what was written with FUA");
        fs::remove_file(&socket).unwrap();
    }
}

/// A request of what is gone fails, and so does none of what is left; the server goes on, and says what to do.
#[test]
fn a_region_that_is_made_shorter_fails_where_it_is_gone_and_is_served_on() {
    let scratch = Scratch::new();
    let (file, socket, log) = (scratch.path("region"), scratch.path("socket"), scratch.path("log"));
    let ways: [&[&str]; 6] = [
        &[],
        &["--protect-io", "none", "--write-scheme", "clwb"],
        &["--protect-io", "none", "--write-scheme", "cached"],
        &["--protect-io", "mprotect"],
        &["--protect-io", "private-map"],
        &["--protect-io", "mprotect-batch"],
    ];
    for way in ways {
        region(&file);
        let words = [&["--raw", text(&file), "--socket", text(&socket)][..], way].concat();
        let mut serving = Serving::start_logging(&words, fs::File::create(&log).unwrap().into());
        let mut client = Client::connect(&socket, "").unwrap();
        client.write(1, MIB - 4096, &[7; 4096], true).unwrap();
        client.answer().unwrap();
        // (In the caches, as far as it waits there, and lost with what is cut off.)
        if !way.contains(&"mprotect-batch") {
            client.write(2, 3 * MIB, &[7; 4096], false).unwrap();
            client.answer().unwrap();
        }
        fs::File::options().write(true).open(&file).unwrap().set_len(MIB).unwrap();
        assert!(client.read(2 * MIB, 4096).is_err(), "{way:?}");
        for at in [3 * MIB, MIB - 4096, 2 * MIB] {
            client.write(3, at, &[9; 8192], true).unwrap();
            assert_eq!(client.refusal().unwrap(), EIO, "{way:?} at {at}");
        }
        assert!(client.read(2 * MIB, 512).is_err(), "{way:?}");
        assert!(client.read(0, MIB as usize - 4096).unwrap() == vec![0; MIB as usize - 4096]);
        // (What was deferred and could not be written has lost the rest of its buffer, so that nothing is taken any more.)
        if !way.contains(&"mprotect-batch") {
            client.flush(4).unwrap();
            match way.contains(&"cached") {
                true => assert_eq!(client.refusal().unwrap(), EIO),
                false => drop(client.answer().unwrap()),
            }
            client.write(4, 0, &[5; 4096], true).unwrap();
            client.answer().unwrap();
            client.flush(5).unwrap();
            client.answer().unwrap();
            assert_eq!(serving.signal(Signal::TERM), 0, "{way:?}");
            assert_eq!(fs::read(&file).unwrap()[..4096], [5; 4096], "{way:?}");
        }
        let said = fs::read_to_string(&log).unwrap();
        assert!(said.contains("made shorter") && said.contains(text(&file)), "{way:?}: {said}");
        assert_eq!(fs::metadata(&file).unwrap().len(), MIB, "{way:?}");
        drop(serving);
        let _ = fs::remove_file(&socket);
    }
}

/// A file system in memory that has little of it, taken off with all that is in it.
struct Small(PathBuf);

impl Small {
    fn mounted_at(dir: PathBuf) -> Self {
        let options = c"size=6m,huge=never";
        mount("small", &dir, "tmpfs", MountFlags::empty(), options).unwrap();
        Self(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// What has lost its space, and finds none, is told so; all the rest is served on.
#[test]
fn a_region_whose_space_somebody_has_taken_fails_there_and_is_served_on() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: to mount a small file system needs root");
        return;
    }
    let scratch = Scratch::new();
    let small = Small::mounted_at(scratch.dir("small"));
    let (file, socket, log) = (small.0.join("region"), scratch.path("socket"), scratch.path("log"));
    let ways: [&[&str]; 6] = [
        &[],
        &["--protect-io", "none", "--write-scheme", "clflush"],
        &["--protect-io", "none", "--write-scheme", "cached"],
        &["--protect-io", "mprotect"],
        &["--protect-io", "private-map"],
        &["--protect-io", "mprotect-batch"],
    ];
    for way in ways {
        let is_batch = way.contains(&"mprotect-batch");
        region(&file);
        let words = [&["--raw", text(&file), "--socket", text(&socket)][..], way].concat();
        let mut serving = Serving::start_logging(&words, fs::File::create(&log).unwrap().into());
        let mut client = Client::connect(&socket, "").unwrap();
        client.write(1, MIB, &[7; 4096], true).unwrap();
        client.answer().unwrap();
        let waits = way.contains(&"cached");
        if waits {
            client.write(6, 2 * MIB + MIB / 2, &[7; 4096], false).unwrap();
            client.answer().unwrap();
        }
        let opened = fs::File::options().write(true).open(&file).unwrap();
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&opened, hole, 2 * MIB, MIB).unwrap();
        let other = small.0.join("other");
        assert!(fs::write(&other, vec![1; 8 * MIB as usize]).is_err(), "it is not small");
        if waits {
            // What was answered is gone, and nobody was told: the flush tells, once.
            client.flush(7).unwrap();
            assert_eq!(client.refusal().unwrap(), ENOSPC);
            client.flush(8).unwrap();
            client.answer().unwrap();
        }
        for at in [2 * MIB, 3 * MIB - 4096, 2 * MIB - 4096] {
            client.write(2, at, &[9; 8192], false).unwrap();
            match is_batch {
                false => assert_eq!(client.refusal().unwrap(), ENOSPC, "{way:?} at {at}"),
                true => drop(client.answer().unwrap()),
            }
        }
        if is_batch {
            client.flush(3).unwrap();
            assert_eq!(client.refusal().unwrap(), EIO);
        } else {
            // (What was not stored because of another page may be there.)
            client.write(4, 0, &[5; 4096], true).unwrap();
            client.answer().unwrap();
            client.flush(5).unwrap();
            client.answer().unwrap();
            assert!(client.read(2 * MIB, 4096).is_err(), "{way:?}");
            let said = fs::read_to_string(&log).unwrap();
            assert!(said.contains("no space") && said.contains(text(&file)), "{way:?}: {said}");
        }
        assert!(client.read(MIB, 4096).unwrap() == [7; 4096], "{way:?}");
        let ended = serving.signal(Signal::TERM);
        assert_eq!(ended, i32::from(is_batch), "{way:?}");
        fs::remove_file(&other).unwrap();
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn what_waits_in_buffers_is_written_when_the_server_ends() {
    let scratch = Scratch::new();
    let (file, socket) = (scratch.path("region"), scratch.path("socket"));
    region(&file);
    let words = ["--raw", text(&file), "--socket", text(&socket), "--protect-io", "mprotect-batch"];
    let mut serving = Serving::start(&words);
    assert!(
        serving.lines[0].contains("mprotect-batch") && serving.lines[0].contains("when flushed"),
        "{:?}",
        serving.lines
    );
    let mut client = Client::connect(&socket, "raw").unwrap();
    client.write(1, 0, &[5; 4096], false).unwrap();
    client.answer().unwrap();
    assert_eq!(serving.signal(Signal::TERM), 0);
    assert_eq!(fs::read(&file).unwrap()[..4096], [5; 4096]);
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    let scratch = Scratch::new();
    let (pool, file) = (scratch.pool("pool", "32M"), scratch.path("region"));
    region(&file);
    let (socket, nothing) = (scratch.path("socket"), scratch.path("nothing"));
    let at = ["--socket", text(&socket)];
    let refusals: [(&[&str], i32, &str); 10] = [
        (&["--raw", text(&pool)], 10, "--force"),
        (&["--raw", text(&file), "volume"], 2, "no volumes"),
        (&[text(&pool), "--protect-io", "private-map"], 2, "--raw"),
        (&[text(&pool), "--protect-io", "keys"], 2, "mprotect-batch"),
        (&[text(&pool), "--write-scheme", "nt"], 2, "--raw"),
        (&["--raw", text(&file), "--protect-io", "none", "--buffers", "2"], 2, "mprotect-batch"),
        (&["--raw", text(&file), "--protect-io", "mprotect-batch", "--buffers", "17"], 2, "16"),
        (&["--raw", text(&file), "--slow-read", "0"], 2, "1 to 1000"),
        (&["--raw", text(&file), "--write-scheme", "wbinvd"], 2, "clflush"),
        (&["--raw", text(&nothing)], 8, "nothing"),
    ];
    for (words, code, says) in refusals {
        let ran = lode(&[&["block", "serve"], words, &at].concat());
        let is_so = ran.code == code && ran.err.contains(says);
        assert!(is_so, "{words:?}: {}: {}", ran.code, ran.err);
    }
    assert!(!socket.exists());
    lode(&["fsck", text(&pool)]).expect(0);
}

/// Three options choose it.
#[test]
fn a_protection_that_is_not_there_is_told_without_the_name_of_another_option() {
    if fs::read_to_string("/proc/cpuinfo").unwrap().contains(" ospke") {
        eprintln!("skipped: this machine has protection keys");
        return;
    }
    let scratch = Scratch::new();
    let (pool, dir, socket) =
        (scratch.pool("pool", "32M"), scratch.dir("mnt"), scratch.path("socket"));
    let serve = ["block", "serve", text(&pool), "--protect-io", "key", "--socket", text(&socket)];
    let mount = ["mount", text(&pool), text(&dir), "-o", "windows=key"];
    for words in [&serve[..], &mount] {
        let ran = lode(words);
        let is_told = ran.code == 2 && ran.err.contains("the best one is chosen");
        assert!(is_told && !ran.err.contains("--windows"), "{words:?}: {}: {}", ran.code, ran.err);
    }
}

#[test]
fn a_region_that_is_in_use_is_told_as_what_it_is() {
    let scratch = Scratch::new();
    let (file, socket) = (scratch.path("region"), scratch.path("socket"));
    region(&file);
    let _serving = Serving::start(&["--raw", text(&file), "--socket", text(&socket)]);
    let other = scratch.path("other");
    let busy = lode(&["block", "serve", "--raw", text(&file), "--socket", text(&other)]);
    assert!(busy.code == 6 && busy.err.contains("the region is in use by process"), "{}", busy.err);
    assert!(!busy.err.contains("pool"), "{}", busy.err);
}

/// The server of the mount has it: what an NBD client writes is in the mount's file at once, and the other way round.
#[test]
fn a_volume_of_a_mounted_pool_is_served_and_is_the_same_as_its_file() {
    let scratch = Scratch::new();
    let socket = scratch.path("socket");
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    let _mount = Server::mount(&pool, &dir, &scratch.path("log"));
    lode(&["block", "create", text(&dir), "v", "--size", "2M", "--thin", "--sector", "512"])
        .expect(0);
    let mut serving = Serving::start(&[text(&dir), "v", "--socket", text(&socket)]);
    let mut client = Client::connect(&socket, "v").unwrap();
    assert_eq!(client.size, 2 * MIB);
    client.write(1, 512, &[7; 1024], true).unwrap();
    client.answer().unwrap();
    let file = dir.join(".lode/volumes/v");
    assert_eq!(fs::read(&file).unwrap()[512..1536], [7; 1024]);
    {
        use std::os::unix::fs::FileExt;
        let opened = fs::File::options().write(true).open(&file).unwrap();
        opened.write_all_at(&[9; 512], 512).unwrap();
    }
    assert_eq!(client.read(512, 1024).unwrap(), [[9; 512], [7; 512]].concat());
    assert_eq!(serving.signal(Signal::TERM), 0);
    let refused = lode(&[
        "block",
        "serve",
        text(&dir),
        "v",
        "--protect-io",
        "none",
        "--socket",
        text(&socket),
    ]);
    assert!(refused.code == 2 && refused.err.contains("-o windows="), "{}", refused.err);
    let missing = lode(&["block", "serve", text(&dir), "w", "--socket", text(&socket)]);
    assert!(missing.code == 8 && missing.err.contains("no volume w"), "{}", missing.err);
}

/// What a client has asked for waits in the mount, and the server's thread with it: whoever ends the command does not.
#[test]
fn a_signal_ends_who_serves_a_volume_of_a_mount_whose_server_is_stopped() {
    let scratch = Scratch::new();
    let (socket, log) = (scratch.path("socket"), scratch.path("serving"));
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    // (By io_uring a server has a request at once, and one that it has can't be broken off.)
    let mount = Server::mount_with(&pool, &dir, &scratch.path("log"), "noio_uring");
    lode(&["block", "create", text(&dir), "v", "--size", "2M"]).expect(0);
    for signal in [Signal::TERM, Signal::INT] {
        let words = [text(&dir), "v", "--socket", text(&socket)];
        let mut serving = Serving::start_logging(&words, fs::File::create(&log).unwrap().into());
        let mut client = Client::connect(&socket, "v").unwrap();
        client.write(1, 0, &[7; 4096], true).unwrap();
        client.answer().unwrap();
        mount.freeze();
        client.write(2, 4096, &[8; 4096], true).unwrap();
        sleep(Duration::from_millis(200));
        serving.tell(signal);
        let ended = serving.ended_within(Duration::from_secs(10));
        mount.thaw();
        // (A request was left without an answer.)
        assert_eq!(ended, Some(1), "{signal:?}");
        assert!(!socket.exists(), "{signal:?}");
        let said = fs::read_to_string(&log).unwrap();
        assert!(said.contains("does not answer") && said.contains(text(&dir)), "{said}");
    }
    // And where it answers it is waited for.
    let mut serving = Serving::start(&[text(&dir), "v", "--socket", text(&socket)]);
    assert_eq!(serving.signal(Signal::TERM), 0);
    assert_eq!(fs::read(dir.join(".lode/volumes/v")).unwrap()[..4096], [7; 4096]);
}

/// QEMU pauses a machine whose disk is full, and tells others that theirs has failed.
#[test]
fn a_volume_whose_mount_is_gone_fails_and_is_not_full() {
    let scratch = Scratch::new();
    let socket = scratch.path("socket");
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    let mount = Server::mount(&pool, &dir, &scratch.path("log"));
    lode(&["block", "create", text(&dir), "v", "--size", "2M"]).expect(0);
    let _serving = Serving::start(&[text(&dir), "v", "--socket", text(&socket)]);
    let mut client = Client::connect(&socket, "v").unwrap();
    client.write(1, 0, &[7; 4096], true).unwrap();
    client.answer().unwrap();
    mount.kill();
    client.write(2, 4096, &[8; 4096], true).unwrap();
    assert_eq!(client.refusal().unwrap(), EIO);
    assert_eq!(Client::connect(&socket, "v").unwrap().size, 2 * MIB);
}
