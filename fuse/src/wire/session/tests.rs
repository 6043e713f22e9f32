//! Sessions with a kernel that is played by the test, at the other end of a socket.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

use fuse_abi::linux::{fuse_in_header, fuse_init_out, fuse_opcode as op, fuse_out_header};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::wire::samples::{NODE, UNIQUE, all, forgets, request};
use crate::wire::{InitError, Wish, shake_hands};

const PATIENCE: Duration = Duration::from_secs(10);

/// The kernel's end of a connection.
struct Kernel(OwnedFd);

impl Kernel {
    fn new() -> (Self, Channel) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        // An answer that does not come is a failure, not a test that hangs.
        sockopt::set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE)).unwrap();
        (Self(ours), Channel::new(theirs))
    }

    fn send(&self, bytes: &[u8]) {
        rustix::io::write(&self.0, bytes).unwrap();
    }

    /// The next answer: what its header says, and what follows.
    fn receive(&self) -> (i32, Vec<u8>) {
        let mut bytes = vec![0; 1 << 16];
        let read = rustix::io::read(&self.0, &mut bytes[..]).unwrap();
        let (header, rest) = fuse_out_header::read_from_prefix(&bytes[..read]).unwrap();
        assert_eq!(header.len as usize, read, "the length is what was written");
        assert_eq!(header.unique, UNIQUE);
        (header.error, rest.to_vec())
    }
}

/// A handler that notes what it was asked, and answers with a few bytes; a listing of
/// attributes makes it panic, and from then on it lets nobody in.
#[derive(Default)]
struct Notes {
    asked: Mutex<Vec<String>>,
    broken: Mutex<bool>,
}

impl Handler for Arc<Notes> {
    type Pass<'a> = ();

    fn enter(&self) -> Result<(), Errno> {
        if *self.broken.lock().unwrap() { Err(Errno::EIO) } else { Ok(()) }
    }

    fn answer<'s>(
        &self,
        (): &(),
        request: &Request<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        self.asked.lock().unwrap().push(format!("{:?}", request.operation));
        match request.operation {
            Operation::Listxattr { .. } => {
                *self.broken.lock().unwrap() = true;
                panic!("as it was told to");
            }
            Operation::Statfs => Err(Errno::ENXIO),
            _ => {
                let room = scratch.room(3)?;
                room.copy_from_slice(b"abc");
                Ok(Answer::data(room))
            }
        }
    }
}

/// A session of one thread.
fn serve() -> (Kernel, Arc<Notes>, JoinHandle<io::Result<()>>) {
    let (kernel, channel) = Kernel::new();
    let notes = Arc::new(Notes::default());
    let session = Session::new(channel, Arc::clone(&notes), 1 << 12);
    (kernel, notes, thread::spawn(move || session.run(1)))
}

#[test]
fn every_request_gets_one_answer_and_forgets_none() {
    let (kernel, notes, session) = serve();
    let mut expected = Vec::new();
    for sample in all() {
        if matches!(sample.opcode, op::FUSE_LISTXATTR | op::FUSE_DESTROY) {
            continue;
        }
        kernel.send(&sample.bytes());
        expected.push(format!("{:?}", sample.operation));
        match sample.opcode {
            // Were it answered the next answer would not be the next request's.
            op::FUSE_FORGET => {}
            op::FUSE_STATFS => assert_eq!(kernel.receive(), (-libc::ENXIO, vec![])),
            _ => assert_eq!(kernel.receive(), (0, b"abc".to_vec()), "{:?}", sample.opcode),
        }
    }
    kernel.send(&request(op::FUSE_BATCH_FORGET as u32, 0, &forgets(1, &[(3, 1)])));
    kernel.send(&request(op::FUSE_DESTROY as u32, 0, &[]));
    assert_eq!(kernel.receive(), (0, vec![]));
    session.join().unwrap().unwrap();
    let asked = notes.asked.lock().unwrap();
    assert_eq!(asked[..expected.len()], expected);
    assert_eq!(asked.len(), expected.len() + 1, "the forgets of many, and no end");
}

#[test]
fn what_is_malformed_is_answered_and_never_handled() {
    let (kernel, notes, session) = serve();
    kernel.send(b"no header");
    kernel.send(&forgets(9, &[]));
    for sample in all() {
        let silent = sample.opcode == op::FUSE_FORGET;
        for cut in 0..sample.body.len() {
            kernel.send(&request(sample.opcode as u32, NODE, &sample.body[..cut]));
            if !silent {
                assert_eq!(kernel.receive(), (-libc::EINVAL, vec![]), "{:?}", sample.opcode);
            }
        }
    }
    for opcode in [op::FUSE_INTERRUPT, op::FUSE_BMAP, op::FUSE_SETLK] {
        kernel.send(&request(opcode as u32, NODE, &[0; 48]));
        assert_eq!(kernel.receive(), (-libc::ENOSYS, vec![]));
    }
    drop(kernel);
    session.join().unwrap().unwrap();
    assert!(notes.asked.lock().unwrap().is_empty());
}

#[test]
fn who_waits_for_a_request_that_panics_gets_an_error() {
    let (kernel, notes, session) = serve();
    kernel.send(&request(op::FUSE_LISTXATTR as u32, NODE, &[0; 8]));
    assert_eq!(kernel.receive(), (-libc::EIO, vec![]));
    // The thread still answers, though the handler lets nobody in.
    kernel.send(&request(op::FUSE_READLINK as u32, NODE, &[]));
    assert_eq!(kernel.receive(), (-libc::EIO, vec![]));
    drop(kernel);
    session.join().unwrap().unwrap();
    assert_eq!(notes.asked.lock().unwrap().len(), 1);
}

fn introduction(major: u32, minor: u32) -> Vec<u8> {
    request(op::FUSE_INIT as u32, 0, [major, minor, 1 << 17, 0].as_bytes())
}

fn meet(channel: &Channel) -> Result<u32, InitError> {
    let wish = Wish { groups: vec![], max_write: 4096, max_readahead: 0, max_background: 1 };
    shake_hands(channel, &wish).map(|agreed| agreed.minor)
}

#[test]
fn a_kernel_of_another_major_version_is_asked_again() {
    let (kernel, channel) = Kernel::new();
    kernel.send(&introduction(8, 1));
    kernel.send(&introduction(7, 33));
    assert_eq!(meet(&channel).unwrap(), 33);
    for minor in [fuse_abi::linux::FUSE_KERNEL_MINOR_VERSION, 33] {
        let (error, body) = kernel.receive();
        let out = fuse_init_out::read_from_bytes(&body).unwrap();
        assert_eq!((error, out.major, out.minor), (0, 7, minor));
    }
}

#[test]
fn a_kernel_that_is_too_old_is_told() {
    let (kernel, channel) = Kernel::new();
    kernel.send(&introduction(7, 30));
    assert!(matches!(meet(&channel), Err(InitError::TooOld { major: 7, minor: 30 })));
    assert_eq!(kernel.receive(), (-libc::EPROTO, vec![]));
}

#[test]
fn a_first_request_that_is_no_introduction_is_refused() {
    let (kernel, channel) = Kernel::new();
    for sample in all() {
        kernel.send(&sample.bytes());
        assert!(matches!(meet(&channel), Err(InitError::NoOffer)), "{:?}", sample.opcode);
    }
    let whole = introduction(7, 33);
    let header = size_of::<fuse_in_header>();
    for cut in 0..whole.len() - header {
        kernel.send(&request(op::FUSE_INIT as u32, 0, &whole[header..header + cut]));
        assert!(matches!(meet(&channel), Err(InitError::NoOffer)), "cut at {cut}");
    }
    kernel.send(b"no header");
    assert!(matches!(meet(&channel), Err(InitError::NoOffer)));
    drop(kernel);
    assert!(matches!(meet(&channel), Err(InitError::Gone)));
}
