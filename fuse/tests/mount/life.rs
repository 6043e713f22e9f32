//! Mounting, unmounting, being killed.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use lode_fuse::{MountError, mountpoint, unmount};
use rustix::process::Signal;

use crate::support::{Mount, Place, can_mount, errno, eventually};

#[test]
fn signals_unmount_cleanly() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let Some(mut mount) = Mount::new() else {
            return;
        };
        fs::write(mount.path("file"), "kept").unwrap();
        mount.signal(signal);
        assert!(mount.wait().success());
        assert_eq!(mountpoint::mounted_at(&mount.root).unwrap(), None);
        assert_eq!(fs::read_dir(mount.place.control()).unwrap().count(), 0, "no socket is left");
        let mount = mount.into_place().mount();
        assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "kept");
        assert_eq!(mount.client().ask("info").unwrap()["opening"]["clean"], true);
    }
}

#[test]
fn unmounting_ends_the_server() {
    let Some(mut mount) = Mount::new() else {
        return;
    };
    let mut client = mount.client();
    client.watch().unwrap();
    fs::write(mount.path("file"), "kept").unwrap();
    mount.take_off();
    client.ended(Duration::from_secs(10)).unwrap();
    assert!(mount.wait().success());
    assert!(!mount.path("file").exists());
    let mount = mount.into_place().mount();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "kept");
    assert_eq!(mount.client().ask("info").unwrap()["opening"]["clean"], true);
}

#[test]
fn a_mount_in_use_is_not_unmounted_but_ends_with_its_server() {
    let Some(mut mount) = Mount::new() else {
        return;
    };
    let mut file = File::create(mount.path("file")).unwrap();
    file.write_all(b"acknowledged").unwrap();
    assert_eq!(errno(mountpoint::unmount(&mount.root)), libc::EBUSY);
    let busy = unmount(&mount.root, false, Duration::from_secs(5));
    assert!(matches!(busy, Err(MountError::Unmount { .. })));
    let start = Instant::now();
    mount.signal(Signal::TERM);
    assert!(mount.wait().success());
    assert!(start.elapsed() < Duration::from_secs(8));
    assert_eq!(errno(file.write_all(b"more")), libc::ENOTCONN);
    let mount = mount.into_place().mount();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "acknowledged");
    assert_eq!(mount.client().ask("info").unwrap()["opening"]["clean"], true);
}

#[test]
fn writers_are_stopped_between_requests() {
    let Some(mut mount) = Mount::new() else {
        return;
    };
    let file = File::create(mount.path("file")).unwrap();
    let acknowledged = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0_u64;
            while file.write_all_at(&written.to_le_bytes(), written * 8).is_ok() {
                written += 1;
            }
            written
        });
        std::thread::sleep(Duration::from_millis(100));
        mount.signal(Signal::TERM);
        assert!(mount.wait().success());
        writer.join().unwrap()
    });
    assert!(acknowledged > 0);
    let mount = mount.into_place().mount();
    let bytes = fs::read(mount.path("file")).unwrap();
    assert!(bytes.len() as u64 >= acknowledged * 8);
    for (i, word) in bytes.chunks(8).enumerate() {
        assert_eq!(word, (i as u64).to_le_bytes());
    }
}

#[test]
fn a_killed_server_leaves_a_mount_point_that_says_so_and_can_be_used_again() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "acknowledged").unwrap();
    fs::read_dir(&mount.root).unwrap().for_each(drop);
    let (root, file) = (mount.root.clone(), mount.path("file"));
    let place = mount.kill();
    let start = Instant::now();
    eventually(|| fs::metadata(&root).is_err());
    assert!(start.elapsed() < Duration::from_millis(500), "at once");
    // (By io_uring, the kernel ends what comes while it takes the queues apart in the other way.)
    let gone = [libc::ENOTCONN, libc::ECONNABORTED];
    assert!(gone.contains(&errno(fs::metadata(&root))));
    assert!(gone.contains(&errno(fs::read_dir(&root))));
    assert!(gone.contains(&errno(fs::read(&file))));
    assert!(gone.contains(&errno(fs::write(root.join("new"), ""))));
    let mount = place.mount();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "acknowledged");
    let here = mountpoint::mounts().unwrap().into_iter().filter(|m| m.point == mount.root);
    assert_eq!(here.count(), 1, "the dead mount is gone");
    assert_eq!(mount.client().ask("info").unwrap()["opening"]["clean"], false);
}

#[test]
fn a_server_killed_while_it_starts_or_stops_leaves_nothing_hanging() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    for round in 0..30 {
        let mut server = place.spawn();
        std::thread::sleep(Duration::from_millis(round * 3));
        if round % 3 == 0 {
            // While it unmounts.
            let pid = rustix::process::Pid::from_child(&server);
            rustix::process::kill_process(pid, Signal::TERM).unwrap();
            std::thread::sleep(Duration::from_micros(300 * round));
        }
        server.kill().unwrap();
        // Ends for good: all its threads, so that the mount has no server any more.
        server.wait().unwrap();
        let gone = format!("/proc/{}/task", server.id());
        eventually(|| !std::path::Path::new(&gone).exists());
    }
    let mount = place.mount();
    fs::write(mount.path("file"), "works").unwrap();
}

#[test]
fn a_live_mount_is_never_covered() {
    let Some(mount) = Mount::new() else { return };
    let mut second = mount.place.spawn();
    assert!(!second.wait().unwrap().success());
    let busy = mountpoint::prepare(&mount.root);
    assert!(matches!(busy, Err(MountError::Busy(_))), "{busy:?}");
    fs::write(mount.path("file"), "still here").unwrap();
    assert_eq!(mount.client().ask("ping").unwrap()["ok"], true);
}

#[test]
fn unmount_waits_for_the_pool_to_be_closed_and_takes_dead_mounts_off() {
    let Some(mount) = Mount::new() else { return };
    let timeout = Duration::from_secs(10);
    unmount(&mount.root, false, timeout).unwrap();
    let not = unmount(&mount.root, false, timeout);
    assert!(matches!(not, Err(MountError::NotMounted(_))));
    let mount = mount.into_place().mount();
    let root = mount.root.clone();
    let _place = mount.kill();
    unmount(&root, false, timeout).unwrap();
    assert_eq!(mountpoint::mounted_at(&root).unwrap(), None);
}

#[test]
fn mount_points_with_odd_names_and_contents_work() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    // What a mount covers is there again afterwards.
    fs::write(place.point().join("below"), "covered").unwrap();
    let mount = place.mount();
    assert!(!mount.path("below").exists());
    let place = mount.unmount();
    assert_eq!(fs::read_to_string(place.point().join("below")).unwrap(), "covered");
}

#[test]
fn the_mount_table_names_the_pool() {
    let Some(mount) = Mount::new() else { return };
    let top = mountpoint::mounted_at(&mount.root).unwrap().unwrap();
    assert_eq!(top.fs_type, mountpoint::FS_TYPE);
    assert_eq!(top.source, mount.place.pool());
}
