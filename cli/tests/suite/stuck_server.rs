//! A server that hangs with a question of the kernel's in its hands: nobody else may hang with it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{LODE, Scratch, text};
use lode_fuse::control::place;
use rustix::mount::{MountFlags, UnmountFlags, mount};

/// A mount whose server has taken a question and does not answer: this test is that server. Its
/// socket is there, and nobody listens to what is said on it.
struct Stuck {
    device: Option<File>,
    socket: PathBuf,
    _listener: UnixListener,
}

impl Stuck {
    fn mount(dir: &Path) -> Self {
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let data = std::ffi::CString::new(data).unwrap();
        mount("stuck", dir, "fuse.lode", MountFlags::empty(), data.as_c_str()).unwrap();
        // The kernel's first request is answered: version 7.31, and zeros.
        let mut request = [0; 8192];
        assert!((&device).read(&mut request).unwrap() >= 40);
        let mut answer = [0_u8; 80];
        answer[0] = 80;
        answer[8..16].copy_from_slice(&request[8..16]);
        (answer[16], answer[20]) = (7, 31);
        (&device).write_all(&answer).unwrap();
        let sockets = place::directory();
        place::prepare(&sockets).unwrap();
        let socket = place::socket(&sockets, dir);
        let listener = UnixListener::bind(&socket).unwrap();
        Self { device: Some(device), socket, _listener: listener }
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.device = None;
        let _ = fs::remove_file(&self.socket);
    }
}

#[test]
fn who_asks_a_stuck_server_can_end() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: to be a server of the kernel's needs root");
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let mut stuck = Stuck::mount(&dir);
    let device = stuck.device.as_ref().unwrap().try_clone().unwrap();
    // Takes every question. It ends with the connection.
    let takes = std::thread::spawn(move || while (&device).read(&mut [0; 8192]).is_ok() {});
    let mut info = Command::new(LODE).args(["info", text(&dir)]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut ended = None;
    while ended.is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        ended = info.try_wait().unwrap();
    }
    // Without the mount nobody waits for an answer of it.
    stuck.device = None;
    rustix::mount::unmount(&dir, UnmountFlags::DETACH | UnmountFlags::FORCE).unwrap();
    takes.join().unwrap();
    info.wait().unwrap();
    assert_eq!(ended.expect("`lode info` does not end").code(), Some(6));
}
