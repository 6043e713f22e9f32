//! How a server begins, who may come to it, and how it ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::memory::Memory;
use crate::common::*;
use lode_nbd::{Builder, Device, Errno, Export, Server, ServerError, WriteZeroes};
use rustix::fs::{FlockOperation, flock};

const SIZE: u64 = 1 << 20;

fn disk() -> Export {
    Export::new("disk", Arc::new(Memory::new(SIZE)))
}

fn error(builder: Builder) -> ServerError {
    match builder.start() {
        Ok(_) => panic!("it was started"),
        Err(error) => error,
    }
}

#[test]
fn a_socket_is_its_owners() {
    let serving = Serving::of(Memory::new(SIZE));
    let mode = std::fs::metadata(&serving.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_dead_servers_socket_is_replaced_and_a_living_ones_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nbd.sock");
    let builder = || Server::builder().export(disk()).unix(&socket);
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let first = builder().start().unwrap();
    let refused = error(builder());
    assert!(matches!(refused, ServerError::Served(_)), "{refused}");
    Client::greeted(UnixStream::connect(&socket).unwrap()).go();
    // Its file is not removed by who does not own it any more.
    std::fs::remove_file(&socket).unwrap();
    let second = builder().start().unwrap();
    drop(first);
    Client::greeted(UnixStream::connect(&socket).unwrap()).go();
    drop(second);
    assert!(!socket.exists());
    std::fs::write(&socket, "precious").unwrap();
    let refused = error(builder());
    assert!(matches!(refused, ServerError::NotASocket(_)), "{refused}");
    assert_eq!(std::fs::read(&socket).unwrap(), b"precious");
}

#[test]
fn of_many_that_begin_at_once_one_serves() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nbd.sock");
    for turn in 0..20 {
        drop(UnixListener::bind(&socket).unwrap());
        let start = || Server::builder().export(disk()).unix(&socket).start();
        let started: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(started.iter().filter(|one| one.is_ok()).count(), 1, "turn {turn}");
        Client::greeted(UnixStream::connect(&socket).unwrap()).go();
    }
}

#[test]
fn who_begins_waits_for_others_in_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nbd.sock");
    let other = std::fs::File::open(directory.path()).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    thread::scope(|scope| {
        let starting =
            scope.spawn(|| Server::builder().export(disk()).unix(&socket).start().unwrap());
        thread::sleep(Duration::from_millis(400));
        assert!(!starting.is_finished() && !socket.exists(), "it did not wait");
        drop(other);
        let server = starting.join().unwrap();
        Client::greeted(UnixStream::connect(&socket).unwrap()).go();
        drop(server);
    });
}

/// Anybody can lock a directory as `/tmp`.
#[test]
fn who_keeps_its_directory_locked_keeps_no_server_from_it() {
    let directory = tempfile::tempdir().unwrap();
    let other = std::fs::File::open(directory.path()).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let socket = directory.path().join("nbd.sock");
    let server = Server::builder().export(disk()).unix(&socket).start().unwrap();
    Client::greeted(UnixStream::connect(&socket).unwrap()).go();
    drop((server, other));
}

#[test]
fn only_this_machine_comes_by_tcp() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809"] {
        let refused = error(Server::builder().export(disk()).tcp(address.parse().unwrap()));
        assert!(matches!(refused, ServerError::NotLoopback(_)), "{refused}");
    }
    let builder = Server::builder().export(disk()).tcp("127.0.0.1:0".parse().unwrap());
    let server = builder.start().unwrap();
    let [address] = server.addresses() else { panic!("one address") };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&wire(3, 4)).unwrap();
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    let mut told = [0; 10];
    stream.read_exact(&mut told).unwrap();
    assert_eq!(told[..8], wire(SIZE, 8));
    stream.write_all(&request(READ, 0, 9, 0, 100, b"")).unwrap();
    let mut reply = [0; 116];
    stream.read_exact(&mut reply).unwrap();
    let taken = error(Server::builder().export(disk()).tcp(*address));
    assert!(matches!(taken, ServerError::Address { .. }), "{taken}");
}

#[test]
fn what_makes_no_sense_is_not_started() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nbd.sock");
    let builder = || Server::builder().unix(&socket);
    assert!(matches!(error(builder()), ServerError::Nothing));
    assert!(matches!(error(Server::builder().export(disk())), ServerError::Nothing));
    let twice = builder().export(disk()).export(disk());
    assert!(matches!(error(twice), ServerError::TwoExports(_)));
    let default = builder().export(disk()).default_export("else");
    assert!(matches!(error(default), ServerError::NoDefault(_)));
    let long = "x".repeat(4097);
    for name in ["", "a\0b", &long] {
        let named = builder().export(Export::new(name, Arc::new(Memory::new(SIZE))));
        assert!(matches!(error(named), ServerError::Name(_)));
    }
    let nowhere = Server::builder().export(disk()).unix(directory.path().join("no/where"));
    assert!(matches!(error(nowhere), ServerError::Socket { .. }));
    assert!(!socket.exists(), "nothing is left");
}

#[test]
fn who_does_nothing_is_left_soon() {
    let mut serving = Serving::of(Memory::new(SIZE));
    let mut chosen = serving.simple();
    let mut haggling = serving.connect();
    haggling.option(LIST, b"");
    let began = Instant::now();
    serving.server.take().unwrap().shutdown(Duration::MAX);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(chosen.is_closed() && haggling.is_closed());
    assert!(UnixStream::connect(&serving.socket).is_err() && !serving.socket.exists());
}

#[test]
fn what_is_under_way_is_answered_and_what_comes_later_refused() {
    let mut serving = Serving::of(Memory::new(SIZE));
    let mut client = serving.simple();
    let cookie = client.send_request(WRITE, 0, 0, 6, b"abc");
    let writes = || serving.server().statistics("disk").unwrap().writes;
    eventually("the write is under way", || writes() == 1);
    let server = serving.server.take().unwrap();
    let ending = thread::spawn(move || server.shutdown(Duration::MAX));
    eventually("nobody is let in", || UnixStream::connect(&serving.socket).is_err());
    // Longer than anybody is listened to who does nothing.
    thread::sleep(Duration::from_millis(500));
    let later = [request(WRITE, 0, 7, 0, 3, b"xyz"), request(READ, 0, 8, 0, 3, b"")].concat();
    client.send(&[&b"def"[..], &later].concat());
    assert_eq!(client.simple_reply(cookie), 0);
    assert_eq!(client.simple_reply(7), ESHUTDOWN);
    assert_eq!(client.simple_reply(8), ESHUTDOWN);
    assert!(client.is_closed());
    ending.join().unwrap();
    let mut stored = [0; 6];
    serving.disk.read(0, &mut stored).unwrap();
    assert_eq!(&stored, b"abcdef");
}

#[test]
fn an_end_is_in_time_whoever_does_not_finish() {
    let mut serving = Serving::of(Memory::new(64 << 20));
    let mut half = serving.simple();
    half.send_request(WRITE, 0, 0, 6, b"abc");
    let mut slow = serving.simple();
    slow.send_request(READ, 0, 0, 32 << 20, b"");
    let asked = || serving.server().statistics("disk").unwrap();
    eventually("both are under way", || (asked().writes, asked().reads) == (1, 1));
    let began = Instant::now();
    serving.server.take().unwrap().shutdown(Duration::from_millis(700));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(600) && took < Duration::from_secs(5), "{took:?}");
    assert!(half.is_closed());
}

#[test]
fn an_end_under_load_loses_nothing_that_was_answered() {
    let mut serving = Serving::of(Memory::new(64 << 20));
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8_u64)
        .map(|writer| {
            let mut client = serving.simple();
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    let (at, data) = ((writer << 23) + done * 512, [1 + (done % 200) as u8; 512]);
                    let sent = request(WRITE, 0, done, at, 512, &data);
                    if client.stream.write_all(&sent).is_err() {
                        break;
                    }
                    let mut reply = [0; 16];
                    if client.stream.read_exact(&mut reply).is_err() || reply[7] != 0 {
                        // Refused, or closed: in either case not stored for certain.
                        assert!([0, ESHUTDOWN as u8].contains(&reply[7]));
                        break;
                    }
                    done = (done + 1) % 16_000;
                    if done == 0 {
                        break;
                    }
                }
                (writer, done)
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(150));
    serving.server.take().unwrap().shutdown(Duration::from_secs(10));
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        let (writer, done) = writer.join().unwrap();
        assert!(done > 0);
        for block in 0..done {
            let mut stored = [0; 512];
            serving.disk.read((writer << 23) + block * 512, &mut stored).unwrap();
            assert_eq!(stored, [1 + (block % 200) as u8; 512], "writer {writer} block {block}");
        }
    }
}

/// A device that breaks its word.
struct Panics;

impl Device for Panics {
    fn size(&self) -> u64 {
        SIZE
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        panic!("as a device should not")
    }

    fn write(&self, _: u64, _: &[u8], _: bool) -> Result<(), Errno> {
        Err(Errno::ENOMEM)
    }

    fn flush(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn trim(&self, _: u64, _: u64, _: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn write_zeroes(&self, _: u64, _: u64, _: WriteZeroes) -> Result<(), Errno> {
        Ok(())
    }
}

#[test]
fn a_device_that_panics_takes_its_client_alone() {
    let panics = Export::new("panics", Arc::new(Panics));
    let serving = Serving::with(Memory::new(SIZE), |builder| builder.export(panics));
    let mut others: Vec<Client> = (0..4).map(|_| serving.simple()).collect();
    for _ in 0..4 {
        let mut client = serving.connect();
        client.option(GO, &choice("panics", &[]));
        assert_eq!(client.simple(WRITE, 0, 0, 1, b"x").0, 12);
        client.send_request(READ, 0, 0, 1, b"");
        assert!(client.is_closed());
    }
    for other in &mut others {
        assert_eq!(other.simple(READ, 0, 0, 1, b"").0, 0);
    }
    eventually("they are forgotten", || serving.server().clients() == 4);
}
