//! What lies in a directory and is no file: FIFOs, sockets, device nodes.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::support::{Mount, errno};

fn make(mount: &Mount, name: &str, kind: FileType, device: (u32, u32)) {
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, mount.path(name), kind, mode, makedev(device.0, device.1)).unwrap();
}

#[test]
fn what_goes_into_a_fifo_comes_out_and_stays_nowhere() {
    let Some(mount) = Mount::new() else { return };
    make(&mount, "fifo", FileType::Fifo, (0, 0));
    let mount = mount.unmount().mount();
    let path = mount.path("fifo");
    let read = std::thread::scope(|scope| {
        scope.spawn(|| File::options().write(true).open(&path).unwrap().write_all(b"through"));
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(read, "through");
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn a_socket_is_listened_on_and_connected_to() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"hello").unwrap();
    drop(client);
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    assert_eq!(errno(UnixListener::bind(&path).map(drop)), libc::EADDRINUSE);
    drop(listener);
    // Nobody listens: the name stays, until somebody removes it. (A server that another test starts has what this process
    // has open, until it is another program.)
    let until = Instant::now() + Duration::from_secs(10);
    let refused = loop {
        match UnixStream::connect(&path) {
            Ok(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            connected => break errno(connected.map(drop)),
        }
    };
    assert_eq!(refused, libc::ECONNREFUSED);
    let mount = mount.unmount().mount();
    assert!(fs::symlink_metadata(mount.path("socket")).unwrap().file_type().is_socket());
    fs::remove_file(mount.path("socket")).unwrap();
}

#[test]
fn a_device_node_is_the_device_where_the_mount_allows_it() {
    let Some(mount) = Mount::new() else { return };
    make(&mount, "zero", FileType::CharacterDevice, (1, 5));
    make(&mount, "full", FileType::CharacterDevice, (1, 7));
    let mut bytes = [1; 100];
    File::open(mount.path("zero")).unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [0; 100]);
    let full = File::options().write(true).open(mount.path("full"));
    assert_eq!(errno(full.unwrap().write(b"x")), libc::ENOSPC);
}
