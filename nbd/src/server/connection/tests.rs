//! What a client can make the server hold, and that it gives it back.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::tls::Offer;
use super::*;
use crate::device::{Device, WriteZeroes};
use crate::errno::Errno;
use rustix::net::sockopt;

use crate::export::Export;

/// Takes anything, and reads as ones; how often zeros are written or all is flushed is known.
#[derive(Default)]
struct Ones(AtomicUsize);

impl Device for Ones {
    fn size(&self) -> u64 {
        1 << 40
    }

    fn read(&self, _: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.fill(1);
        Ok(())
    }

    fn write(&self, _: u64, from: &[u8], _: bool) -> Result<(), Errno> {
        assert!(from.iter().all(|byte| *byte == 7));
        Ok(())
    }

    fn flush(&self) -> Result<(), Errno> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn trim(&self, _: u64, _: u64, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn write_zeroes(&self, _: u64, _: u64, _: WriteZeroes) -> Result<(), Errno> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A client of the old option, and its end.
fn client(ones: &Arc<Ones>) -> (Connection, UnixStream) {
    let device: Arc<dyn Device> = Arc::<Ones>::clone(ones);
    let exports = Exports::new(vec![Export::new("ones", device)], Some("ones".into()));
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    theirs.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    let mut connection =
        Connection::new(Stream::new(ours.into(), Offer::Nothing), Arc::new(exports));
    // (A turn ends by time, too: who was kept from the processor takes another one.)
    let mut wants = connection.turn(false);
    while wants == Wants::Turn {
        wants = connection.turn(false);
    }
    assert_eq!(wants, Wants::Input);
    let mut told = [0; 28];
    theirs.read_exact(&mut told).unwrap();
    (connection, theirs)
}

fn request(command: u8, len: u32) -> Vec<u8> {
    let len = [24, 16, 8, 0].map(|shift| (len >> shift) as u8);
    [&b"\x25\x60\x95\x13\0\0\0"[..], &[command], &[0; 16], &len].concat()
}

fn held(connection: &Connection) -> usize {
    connection.input.capacity() + connection.output.capacity()
}

#[test]
fn a_client_holds_what_it_needs_and_gives_it_back() {
    let (mut connection, mut theirs) = client(&Arc::default());
    let mut most = 0;
    // Writes as long as they may be, one behind the other, and the replies not taken at once.
    for _ in 0..2 {
        let all = [request(1, 32 << 20), vec![7; 32 << 20]].concat();
        let mut sent = 0;
        while sent < all.len() {
            sent += theirs.write(&all[sent..]).unwrap_or(0);
            connection.turn(false);
            most = most.max(held(&connection));
        }
    }
    // And a read whose reply nobody takes.
    theirs.write_all(&request(0, 32 << 20)).unwrap();
    let mut wants = connection.turn(false);
    while wants == Wants::Turn {
        wants = connection.turn(false);
    }
    assert_eq!(wants, Wants::Output);
    most = most.max(held(&connection));
    assert!(most > 5 << 18 && most <= 7 << 18, "{most} bytes");
    // It is not idle, and holds what waits.
    connection.rest();
    connection.rest();
    assert!(held(&connection) > 0);
    let mut taken = 0;
    let mut bytes = vec![0; 1 << 20];
    while taken < 2 * 16 + 16 + (32 << 20) {
        taken += theirs.read(&mut bytes).unwrap_or(0);
        wants = connection.turn(false);
    }
    assert_eq!((wants, connection.is_idle()), (Wants::Input, true));
    connection.rest();
    assert!(held(&connection) > 0, "it has just been busy");
    connection.rest();
    assert_eq!(held(&connection), 0);
}

#[test]
fn a_turn_ends() {
    let ones = Arc::default();
    let (mut connection, mut theirs) = client(&ones);
    let many: Vec<u8> = (0..2000).flat_map(|_| request(6, u32::MAX)).collect();
    theirs.write_all(&many).unwrap();
    for turn in 1..5 {
        assert_eq!(connection.turn(false), Wants::Turn);
        assert_eq!(ones.0.load(Ordering::Relaxed), 2 * turn, "4 MiB of zeros are a turn");
    }
    // Many requests for little are one as well.
    for (command, len) in [(6, 1), (3, 0)] {
        let ones = Arc::default();
        let (mut connection, mut theirs) = client(&ones);
        let many: Vec<u8> = (0..2000).flat_map(|_| request(command, len)).collect();
        theirs.write_all(&many).unwrap();
        assert_eq!(connection.turn(false), Wants::Turn);
        assert!(ones.0.load(Ordering::Relaxed) < 100);
    }
}

#[test]
fn a_long_reply_goes_into_the_socket_whole() {
    let (mut connection, mut theirs) = client(&Arc::default());
    theirs.write_all(&request(0, 200_000)).unwrap();
    assert_eq!(connection.turn(false), Wants::Input);
    assert!(!connection.is_wide, "one that asks for little takes little of the kernel");
    let mut bytes = vec![0; 1 << 20];
    theirs.read_exact(&mut bytes[..16 + 200_000]).unwrap();
    theirs.write_all(&request(0, 1 << 20)).unwrap();
    let wants = connection.turn(false);
    assert!(connection.is_wide);
    // (Not everybody may.)
    if sockopt::socket_send_buffer_size(&connection).unwrap() >= 2 << 20 {
        assert_eq!((wants, connection.is_idle()), (Wants::Input, true));
    }
}
