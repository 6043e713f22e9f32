//! Clients that do what they should not: they harm nobody but themselves, and nothing is stored that they did not
//! finish.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use common::memory::{Call, Memory};
use common::*;
use lode_nbd::{Builder, Device, Limits};

const SIZE: u64 = 64 << 20;

/// How long a request of another client takes.
fn round_trip(client: &mut Client) -> Duration {
    let began = Instant::now();
    assert_eq!(client.simple(READ, 0, 0, 512, b"").0, 0);
    began.elapsed()
}

#[test]
fn half_a_write_is_not_stored() {
    let serving = Serving::of(Memory::recording(SIZE));
    for cut in [0, 1, 511, 512, 4095, 99_999] {
        let mut client = serving.simple();
        client.send_request(WRITE, 0, 0, 100_000, &vec![9; cut]);
        drop(client);
        eventually("the client is forgotten", || serving.server().clients() == 0);
        assert_eq!(serving.disk.calls(), [], "cut at {cut}");
    }
    // Of one that is longer than a piece, whole pages from its beginning on.
    let mut client = serving.simple();
    client.send_request(WRITE, 0, 0, 3 << 20, &vec![9; (2 << 20) - 1]);
    drop(client);
    eventually("the client is forgotten", || serving.server().clients() == 0);
    let end = serving.disk.calls().iter().fold(0, |end, call| match *call {
        Call::Write(at, len, false) if at == end && len.is_multiple_of(4096) => end + len,
        _ => panic!("{call:?} behind {end}"),
    });
    let missing = (2 << 20) - end;
    assert!(0 < missing && missing <= (64 << 10) + 4096, "{missing}");
}

#[test]
fn half_a_request_waits_and_stalls_nobody() {
    let serving = Serving::of(Memory::recording(SIZE));
    let mut other = serving.simple();
    let whole = request(WRITE, 0, 5, 0, 3, b"abc");
    let mut waiting: Vec<Client> = (0..whole.len()).map(|_| serving.simple()).collect();
    for (cut, client) in waiting.iter_mut().enumerate() {
        client.send(&whole[..cut]);
    }
    round_trip(&mut other);
    assert!(serving.disk.calls().iter().all(|call| matches!(call, Call::Read(..))));
    for (cut, mut client) in waiting.into_iter().enumerate() {
        client.send(&whole[cut..]);
        assert_eq!(client.simple_reply(5), 0, "cut at {cut}");
    }
}

#[test]
fn bytes_that_come_one_by_one_are_a_request() {
    let serving = Serving::of(Memory::new(SIZE));
    let mut client = serving.simple();
    for byte in request(WRITE, 0, 5, 0, 3, b"abc") {
        client.send(&[byte]);
    }
    assert_eq!(client.simple_reply(5), 0);
    assert_eq!(client.simple(READ, 0, 0, 3, b"").1, b"abc");
}

#[test]
fn a_wrong_magic_ends_the_connection_alone() {
    let serving = Serving::of(Memory::recording(SIZE));
    let mut other = serving.simple();
    let mut client = serving.simple();
    let mut wrong = request(WRITE, 0, 5, 0, 3, b"abc");
    wrong[0] ^= 1;
    client.send(&wrong);
    assert!(client.is_closed());
    // An unknown command is refused; what is behind it, if that is no request, is the end.
    let mut client = serving.simple();
    let cookie = client.send_request(77, 0, 0, 64, &[0; 64]);
    assert_eq!(client.simple_reply(cookie), EINVAL);
    assert!(client.is_closed());
    round_trip(&mut other);
    assert_eq!(serving.disk.calls(), [Call::Read(0, 512)]);
}

#[test]
fn a_handshake_that_does_not_end_is_ended() {
    let limits = Limits { workers: 1, handshake: Duration::from_millis(700), ..Limits::default() };
    let serving = Serving::with(Memory::new(SIZE), |builder| builder.limits(limits));
    let mut chosen = serving.simple();
    let mut silent = Client::silent(UnixStream::connect(&serving.socket).unwrap());
    let mut talking = serving.connect();
    let began = Instant::now();
    loop {
        // Options by the dozen choose no export.
        let header = [&b"IHAVEOPT\0\0\0\x06"[..], &wire(6, 4), &choice("", &[])].concat();
        if talking.stream.write_all(&header).is_err() || talking.is_closed() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(50));
    }
    assert!(began.elapsed() >= Duration::from_millis(500));
    silent.take(18);
    assert!(silent.is_closed());
    round_trip(&mut chosen);
    assert_eq!(serving.server().clients(), 1);
}

#[test]
fn who_has_said_all_and_takes_nothing_is_left() {
    let limits = Limits { workers: 1, handshake: Duration::from_millis(700), ..Limits::default() };
    let serving = Serving::with(Memory::new(SIZE), |builder| builder.limits(limits));
    let mut client = serving.simple();
    // At once: what comes behind a reply that nobody takes is not read.
    let all = [request(READ, 0, 1, 0, 250_000, b""), request(DISC, 0, 2, 0, 0, b"")].concat();
    client.send(&all);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(serving.server().clients(), 1, "its reply waits");
    eventually("the client is forgotten", || serving.server().clients() == 0);
}

#[test]
fn who_does_not_read_is_not_read_from() {
    // One thread: it does not turn round and round for this client either.
    let limits = Limits { workers: 1, ..Limits::default() };
    let serving = Serving::with(Memory::recording(SIZE), |builder| builder.limits(limits));
    serving.disk.write(0, &vec![7; 1 << 20], false).unwrap();
    let mut other = serving.simple();
    let mut client = serving.simple();
    serving.disk.calls();
    // A GiB is asked for, and nothing of it taken.
    let requests: Vec<u8> = (0..1024).flat_map(|n| request(READ, 0, n, 0, 1 << 20, b"")).collect();
    client.stream.set_nonblocking(true).unwrap();
    let mut sent = client.stream.write(&requests).unwrap();
    eventually("a first read", || !serving.disk.calls().is_empty());
    for _ in 0..20 {
        round_trip(&mut other);
        thread::sleep(Duration::from_millis(5));
    }
    let reads = serving.disk.calls().iter().filter(|call| **call == Call::Read(0, 1 << 20)).count();
    assert!(reads < 8, "{reads} MiB were read for who takes none");
    // When it reads, it gets all of it.
    client.stream.set_nonblocking(false).unwrap();
    for cookie in 0..1024 {
        if sent < requests.len() {
            let more = (sent + 28).min(requests.len());
            client.send(&requests[sent..more]);
            sent = more;
        }
        assert_eq!(client.simple_reply(cookie), 0);
        assert!(client.take(1 << 20).iter().all(|byte| *byte == 7));
    }
}

#[test]
fn who_writes_to_a_slow_medium_keeps_others_waiting_for_one_write() {
    let limits = Limits { workers: 1, ..Limits::default() };
    let slow = Memory { write_time: Duration::from_millis(5), ..Memory::recording(SIZE) };
    let serving = Serving::with(slow, |builder| builder.limits(limits));
    let (mut writer, mut other) = (serving.simple(), serving.simple());
    let writes: Vec<u8> =
        (0..64).flat_map(|n| request(WRITE, 0, n, n << 12, 4096, &[1; 4096])).collect();
    writer.send(&writes);
    eventually("a first write", || !serving.disk.calls().is_empty());
    for _ in 0..5 {
        serving.disk.calls();
        assert_eq!(other.simple(READ, 0, 0, 512, b"").0, 0);
        let writes =
            serving.disk.calls().iter().filter(|call| matches!(call, Call::Write(..))).count();
        assert!(writes <= 4, "{writes} writes of another client were done before a read");
    }
    (0..64).for_each(|cookie| assert_eq!(writer.simple_reply(cookie), 0));
}

#[test]
fn many_who_do_nothing_cost_nothing() {
    let serving = Serving::of(Memory::new(SIZE));
    let idle: Vec<Client> = (0..200).map(|_| serving.simple()).collect();
    let mut busy = serving.simple();
    let began = Instant::now();
    for turn in 0..2000_u64 {
        busy.write(turn * 512, &[turn as u8; 512]);
        round_trip(&mut busy);
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(serving.server().clients(), 201);
    for mut client in idle {
        assert_eq!(client.simple(READ, 0, 0, 1, b"").0, 0);
    }
    eventually("all are forgotten", || serving.server().clients() == 1);
}

#[test]
fn one_who_wants_everything_stalls_nobody() {
    let limits = Limits { workers: 1, ..Limits::default() };
    let serving = Serving::with(Memory::new(4 << 30), |builder| builder.limits(limits));
    let mut other = serving.simple();
    let mut greedy = serving.simple();
    let mut requests = Vec::new();
    for cookie in 0..20_000 {
        requests.extend(request(ZERO, 0, cookie, 0, u32::MAX, b""));
    }
    greedy.stream.set_nonblocking(true).unwrap();
    let _ = greedy.stream.write(&requests);
    let worst = (0..50).map(|_| round_trip(&mut other)).max().unwrap();
    // All that it asked for takes many times as long.
    assert!(worst < Duration::from_secs(1), "{worst:?}");
}

#[test]
fn there_are_only_so_many_clients() {
    let limits = Limits { workers: 2, max_clients: 5, ..Limits::default() };
    let serving = Serving::with(Memory::new(SIZE), |builder| builder.limits(limits));
    let mut clients: Vec<Client> = (0..5).map(|_| serving.simple()).collect();
    let mut refused = Client::silent(UnixStream::connect(&serving.socket).unwrap());
    assert!(refused.is_closed());
    for client in &mut clients {
        round_trip(client);
    }
    clients.pop();
    eventually("there is room again", || serving.server().clients() == 4);
    round_trip(&mut serving.simple());
}

#[test]
fn who_comes_by_tcp_leaves_places_to_the_owner() {
    let limits = Limits { workers: 2, max_clients: 8, ..Limits::default() };
    let here = "127.0.0.1:0".parse().unwrap();
    let with = |builder: Builder| builder.limits(limits).tcp(here);
    let serving = Serving::with(Memory::new(SIZE), with);
    let [address] = serving.server().addresses() else { panic!("one address") };
    let come = || TcpStream::connect(address).unwrap();
    let crowd: Vec<TcpStream> = (0..20).map(|_| come()).collect();
    eventually("as many are let in as may be", || serving.server().clients() == 6);
    let mut owner = serving.simple();
    round_trip(&mut owner);
    drop(crowd);
    eventually("they are gone", || serving.server().clients() == 1);
    round_trip(&mut owner);
}

#[test]
fn noise_is_survived() {
    let serving = Serving::of(Memory::recording(SIZE));
    let mut random = 1_u64;
    let mut noise = |bytes: usize| -> Vec<u8> {
        let byte = |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        };
        (0..bytes).map(byte).collect()
    };
    for turn in 0..60 {
        let mut client = match turn % 3 {
            0 => Client::silent(UnixStream::connect(&serving.socket).unwrap()),
            1 => serving.connect(),
            _ => serving.structured(),
        };
        // The server may be gone before all is sent.
        let _ = client.stream.write_all(&noise(100 + turn * 31));
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let _ = client.stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(serving.disk.calls(), []);
    round_trip(&mut serving.simple());
}
