//! Whether the server's threads look on for who asks one request at a time. Not by time: however late they run, as often is looked.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::memory::Memory;
use crate::common::*;
use lode_nbd::{Device, Errno, Export, Limits, Server, Waits, WriteZeroes};

const REQUESTS: u64 = 2000;
/// Between two looks in vain are twice as many sleeps as between the last two: of so many waits so many are looks at least.
const LOOKS_LEAST: u64 = 10;

fn all(waits: Waits) -> u64 {
    waits.paid + waits.in_vain + waits.slept
}

/// Waits until a server has waited so often.
fn waited(server: &Server, times: u64) {
    let begin = Instant::now();
    while all(server.waits()) < times {
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", server.waits());
        thread::yield_now();
    }
}

#[test]
fn who_asks_one_request_at_a_time_is_looked_for() {
    let serving = Serving::of(Memory::new(1 << 20));
    let mut client = serving.simple();
    // (The handshake asks for one thing.)
    waited(serving.server(), 1);
    let before = serving.server().waits();
    assert_eq!((before.paid, before.in_vain, before.slept), (0, 1, 0));
    for number in 0..REQUESTS {
        let (error, bytes) = client.simple(READ, 0, number % 16 * 4096, 4096, b"");
        assert_eq!((error, bytes.len()), (0, 4096));
        // (Or else some come in one turn, as of who asks many at a time.)
        waited(serving.server(), all(before) + number + 1);
    }
    let waits = serving.server().waits();
    assert!(waits.paid + waits.in_vain >= LOOKS_LEAST, "{waits:?}");
    assert_eq!(all(waits), all(before) + REQUESTS, "{waits:?}");
}

/// Where it is read, somebody else asks for something.
struct Chain {
    memory: Memory,
    next: Mutex<Option<(UnixStream, Vec<u8>)>>,
}

impl Device for Chain {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        if let Some((mut stream, request)) = self.next.lock().unwrap().take() {
            stream.write_all(&request).unwrap();
        }
        self.memory.read(at, into)
    }

    fn write(&self, at: u64, from: &[u8], fua: bool) -> Result<(), Errno> {
        self.memory.write(at, from, fua)
    }

    fn flush(&self) -> Result<(), Errno> {
        self.memory.flush()
    }

    fn trim(&self, at: u64, len: u64, fua: bool) -> Result<(), Errno> {
        self.memory.trim(at, len, fua)
    }

    fn write_zeroes(&self, at: u64, len: u64, how: WriteZeroes) -> Result<(), Errno> {
        self.memory.write_zeroes(at, len, how)
    }
}

#[test]
fn what_has_come_when_it_is_looked_for_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nbd.sock");
    let chain = Arc::new(Chain { memory: Memory::new(1 << 20), next: Mutex::default() });
    let limits = Limits { workers: 1, ..Limits::default() };
    let builder = Server::builder().export(Export::new("disk", chain.clone())).unix(&socket);
    let server = builder.limits(limits).start().unwrap();
    let connect = || Client::greeted(UnixStream::connect(&socket).unwrap()).go();
    let (mut one, mut other) = (connect(), connect());
    for turn in 0..100 {
        let request = request(READ, 0, turn, 0, 4096, b"");
        *chain.next.lock().unwrap() = Some((other.stream.try_clone().unwrap(), request));
        assert_eq!(one.simple(READ, 0, 0, 4096, b"").0, 0);
        assert_eq!(other.simple_reply(turn), 0);
        assert_eq!(other.take(4096).len(), 4096);
    }
    let waits = server.waits();
    assert!(waits.paid > 0, "{waits:?}");
}
