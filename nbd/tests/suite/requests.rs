//! Each request with each of its flags does what the protocol says, and fails as it says.

use crate::common::memory::{Call, Memory};
use crate::common::*;
use lode_nbd::{BlockSizes, WriteZeroes};

const SIZE: u64 = 64 << 20;

#[test]
fn what_is_written_is_read() {
    let serving = Serving::of(Memory::new(SIZE));
    let mut client = serving.simple();
    let data: Vec<u8> = (0..3_000_001_u32).map(|at| (at * 7 % 253) as u8).collect();
    client.write(12_345, &data);
    assert!(client.simple(READ, 0, 12_345, data.len() as u32, b"") == (0, data.clone()));
    assert_eq!(client.simple(READ, 0, 12_343, 4, b"").1, [0, 0, data[0], data[1]]);
    assert_eq!(client.simple(READ, 0, SIZE - 1, 1, b""), (0, vec![0]));
    let statistics = serving.server().statistics("disk").unwrap();
    assert_eq!((statistics.reads, statistics.writes, statistics.errors), (3, 1, 0));
    assert_eq!(statistics.written_bytes, data.len() as u64);
    assert_eq!(statistics.read_bytes, data.len() as u64 + 5);
    assert_eq!((statistics.clients, serving.server().clients()), (1, 1));
}

#[test]
fn flags_reach_the_device() {
    let serving = Serving::of(Memory::recording(SIZE));
    let mut client = serving.simple();
    let mut called = |command, flags, len, data: &[u8]| {
        assert_eq!(client.simple(command, flags, 0, len, data).0, 0);
        serving.disk.calls()
    };
    assert_eq!(called(WRITE, 0, 3, b"abc"), [Call::Write(0, 3, false)]);
    assert_eq!(called(WRITE, FUA, 3, b"abc"), [Call::Write(0, 3, true)]);
    assert_eq!(called(FLUSH, FUA, 0, b""), [Call::Flush]);
    assert_eq!(called(TRIM, 0, 9, b""), [Call::Trim(0, 9, false)]);
    assert_eq!(called(TRIM, FUA, 9, b""), [Call::Trim(0, 9, true)]);
    assert_eq!(called(CACHE, 0, 9, b""), [Call::Cache(0, 9)]);
    assert_eq!(called(READ, FUA, 9, b""), [Call::Read(0, 9)]);
    for flags in [0, FUA, NO_HOLE, FAST_ZERO, FUA | NO_HOLE | FAST_ZERO] {
        let has = |flag| flags & flag != 0;
        let how = WriteZeroes { no_hole: has(NO_HOLE), fast_zero: has(FAST_ZERO), fua: has(FUA) };
        assert_eq!(called(ZERO, flags, 9, b""), [Call::Zero(0, 9, how)]);
    }
}

#[test]
fn long_ranges_come_in_pieces() {
    let serving = Serving::of(Memory::recording(SIZE));
    let mut client = serving.simple();
    const MIB: u64 = 1 << 20;
    let len = (40 * MIB) as u32;
    assert_eq!(client.simple(TRIM, FUA, MIB, len, b"").0, 0);
    let pieces = [(MIB, 15 * MIB), (16 * MIB, 16 * MIB), (32 * MIB, 9 * MIB)];
    assert_eq!(serving.disk.calls(), pieces.map(|(at, len)| Call::Trim(at, len, true)));
}

/// Zeros may be stored, and extents asked of somebody else, one by one: others wait for one such call.
#[test]
fn no_call_of_the_device_is_of_much_that_takes_long() {
    const MIB: u64 = 1 << 20;
    let serving = Serving::of(Memory::recording(SIZE));
    let mut writer = serving.simple();
    assert_eq!(writer.simple(ZERO, NO_HOLE, MIB, 5 << 20, b"").0, 0);
    let pieces = [(MIB, MIB), (2 * MIB, 2 * MIB), (4 * MIB, 2 * MIB)];
    let how = WriteZeroes { no_hole: true, fast_zero: false, fua: false };
    assert_eq!(serving.disk.calls(), pieces.map(|(at, len)| Call::Zero(at, len, how)));
    // Every second page.
    for page in 0..256 {
        writer.write(32 * MIB + page * 8192, &[7; 4096]);
    }
    serving.disk.calls();
    let chunks = serving.structured().chunks(STATUS, 0, 32 * MIB, 2 << 20, b"");
    let pages = (0..512).flat_map(|page| [wire(4096, 4), wire(page % 2 * 3, 4)]);
    assert_eq!(chunks[0].2, [vec![wire(1, 4)], pages.collect()].concat().concat());
    let calls = (0..8).map(|call| call * 64 * 4096);
    let calls = calls.map(|told| Call::Status(32 * MIB + told, 2 * MIB - told));
    assert_eq!(serving.disk.calls(), calls.collect::<Vec<_>>());
}

#[test]
fn a_long_write_is_stored_as_it_comes_in_whole_pages() {
    let serving = Serving::of(Memory::recording(SIZE));
    let mut client = serving.simple();
    const LEN: u64 = 3 << 20;
    assert_eq!(client.simple(WRITE, FUA, 5, LEN as u32, &[1; LEN as usize]).0, 0);
    let mut at = 5;
    let calls = serving.disk.calls();
    for call in &calls {
        let Call::Write(from, len, true) = *call else { panic!("{call:?}") };
        assert_eq!(from, at, "{calls:?}");
        at += len;
        let is_last = at == 5 + LEN;
        assert!(len <= 256 << 10 && (is_last || len > 60 << 10), "{calls:?}");
        assert!(is_last || at.is_multiple_of(4096), "{calls:?}");
    }
    assert_eq!(at, 5 + LEN);
}

#[test]
fn nothing_touches_what_is_not_there() {
    let serving = Serving::of(Memory::recording(SIZE));
    let mut client = serving.simple();
    for (at, len) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 9), (1 << 63, 1)] {
        for (command, beyond) in
            [(READ, EINVAL), (TRIM, EINVAL), (CACHE, EINVAL), (ZERO, ENOSPC), (WRITE, ENOSPC)]
        {
            let data = vec![7; if command == WRITE { len as usize } else { 0 }];
            assert_eq!(client.simple(command, 0, at, len, &data).0, beyond, "{command} {at}");
        }
    }
    assert_eq!(serving.disk.calls(), []);
    assert_eq!(serving.server().statistics("disk").unwrap().errors, 25);
    // And the connection lives.
    client.write(SIZE - 1, b"x");
}

#[test]
fn a_device_may_change_its_size() {
    let serving = Serving::of(Memory::new(SIZE));
    let mut client = serving.simple();
    assert_eq!(client.simple(READ, 0, SIZE, 1, b"").0, EINVAL);
    *serving.disk.size.write().unwrap() = SIZE + 1;
    assert_eq!(client.simple(READ, 0, SIZE, 1, b"").0, 0);
    *serving.disk.size.write().unwrap() = 10;
    assert_eq!(client.simple(WRITE, 0, 8, 3, b"abc").0, ENOSPC);
}

#[test]
fn blocks_are_whole() {
    let sizes = BlockSizes::new(512, 4096, 1 << 20).unwrap();
    let serving = Serving::of(Memory { sizes, ..Memory::recording(SIZE) });
    let mut client = serving.simple();
    for (at, len) in [(1, 512), (0, 100), (511, 1)] {
        for command in [READ, TRIM, CACHE, ZERO, WRITE] {
            let data = vec![7; if command == WRITE { len as usize } else { 0 }];
            assert_eq!(client.simple(command, 0, at, len, &data).0, EINVAL, "{command} {at}");
        }
    }
    assert_eq!(client.simple(READ, 0, 0, (1 << 20) + 512, b"").0, EINVAL, "too long");
    let data = vec![7; (1 << 20) + 512];
    assert_eq!(client.simple(WRITE, 0, 0, data.len() as u32, &data).0, EINVAL, "too long");
    assert_eq!(serving.disk.calls(), []);
}

#[test]
fn what_is_read_only_stays_as_it_is() {
    let serving = Serving::of(Memory { read_only: true, ..Memory::recording(SIZE) });
    let mut client = serving.simple();
    assert_eq!(client.simple(WRITE, 0, 0, 3, b"abc").0, EPERM);
    assert_eq!(client.simple(TRIM, 0, 0, 3, b"").0, EPERM);
    assert_eq!(client.simple(ZERO, 0, 0, 3, b"").0, EPERM);
    assert_eq!(serving.disk.calls(), []);
    assert_eq!(client.simple(READ, 0, 0, 3, b"").0, 0);
    assert_eq!(client.simple(FLUSH, 0, 0, 0, b"").0, 0);
}

#[test]
fn nothing_is_done_with_nothing() {
    let serving = Serving::of(Memory::recording(SIZE));
    let mut client = serving.simple();
    for command in [READ, WRITE, TRIM, CACHE, ZERO] {
        assert_eq!(client.simple(command, 0, SIZE, 0, b"").0, 0, "{command}");
        assert_ne!(client.simple(command, 0, SIZE + 1, 0, b"").0, 0, "{command}");
    }
    assert_eq!(serving.disk.calls(), []);
    let mut client = serving.structured();
    assert_eq!(client.chunks(READ, 0, 0, 0, b""), [Chunk(true, 0, vec![])]);
    assert_eq!(client.error(STATUS, 0, 0, 0, b""), EINVAL);
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    let serving = Serving::of(Memory::recording(SIZE));
    let mut client = serving.simple();
    for (command, flags) in [
        (READ, DF),
        (READ, NO_HOLE),
        (WRITE, FAST_ZERO),
        (TRIM, REQ_ONE),
        (FLUSH, 1 << 15),
        (ZERO, DF),
        (CACHE, 32),
        (STATUS, 0),
    ] {
        let len = if command == FLUSH { 0 } else { 3 };
        let data = if command == WRITE { &b"abc"[..] } else { b"" };
        assert_eq!(client.simple(command, flags, 0, len, data).0, EINVAL, "{command} {flags}");
    }
    assert_eq!(client.simple(FLUSH, 0, 0, 1, b"").0, EINVAL);
    assert_eq!(client.simple(9, 0, 0, 0, b"").0, EINVAL);
    assert_eq!(serving.disk.calls(), []);
}

#[test]
fn zeros_are_fast_or_not_at_all() {
    let serving = Serving::of(Memory { slow_zeroes: true, ..Memory::new(SIZE) });
    let mut client = serving.simple();
    client.write(0, b"abc");
    assert_eq!(client.simple(ZERO, FAST_ZERO, 0, 3, b"").0, ENOTSUP);
    assert_eq!(client.simple(READ, 0, 0, 3, b"").1, b"abc");
    assert_eq!(client.simple(ZERO, 0, 0, 3, b"").0, 0);
    assert_eq!(client.simple(READ, 0, 0, 3, b"").1, [0; 3]);
}

#[test]
fn holes_are_told_as_such() {
    let serving = Serving::of(Memory::new(SIZE));
    let mut client = serving.structured();
    client.write(8192, &[7; 4096]);
    let chunks = client.chunks(READ, 0, 0, 16384, b"");
    let hole = |at, len, done| Chunk(done, 2, [wire(at, 8), wire(len, 4)].concat());
    let data = |at, bytes: &[u8], done| Chunk(done, 1, [&wire(at, 8)[..], bytes].concat());
    let expected = [hole(0, 8192, false), data(8192, &[7; 4096], false), hole(12288, 4096, true)];
    assert!(chunks == expected, "{chunks:?}");
    // Not to be fragmented: one chunk with the zeros in it.
    let bytes = [[0; 8192].as_slice(), &[7; 4096], &[0; 4096]].concat();
    assert!(client.chunks(READ, DF, 0, 16384, b"") == [data(0, &bytes, true)]);
    // A short hole is not worth a chunk.
    let bytes = [[7; 10].as_slice(), &[0; 10]].concat();
    assert!(client.chunks(READ, 0, 12278, 20, b"") == [data(12278, &bytes, true)]);
    // Longer than a piece.
    let whole = client.chunks(READ, DF, 0, 3 << 20, b"");
    assert_eq!(whole.len(), 2);
    assert_eq!((whole[0].2.len(), &whole[1]), (8 + (3 << 20), &Chunk(true, 0, vec![])));
}

#[test]
fn status_says_what_lies_where() {
    let serving = Serving::of(Memory::new(SIZE));
    let mut client = serving.structured();
    client.write(8192, &[7; 4096]);
    let told = |extents: &[(u64, u64)]| {
        let mut data = wire(1, 4);
        extents
            .iter()
            .for_each(|(len, flags)| data.extend([wire(*len, 4), wire(*flags, 4)].concat()));
        [Chunk(true, 5, data)]
    };
    let all = told(&[(8192, 3), (4096, 0), (SIZE - 12288, 3)]);
    assert_eq!(client.chunks(STATUS, 0, 0, SIZE as u32, b""), all, "through pieces, too");
    assert_eq!(client.chunks(STATUS, REQ_ONE, 100, 20_000, b""), told(&[(8092, 3)]));
    assert_eq!(client.chunks(STATUS, 0, 8200, 8, b""), told(&[(8, 0)]));
    assert_eq!(client.chunks(STATUS, REQ_ONE, 1 << 20, 32 << 20, b""), told(&[(32 << 20, 3)]));
    assert_eq!(client.error(STATUS, 0, SIZE, 1, b""), EINVAL);
    // More than a reply has: the rest is asked for again.
    for page in 0..6000 {
        client.write(page * 8192, &[1]);
    }
    let many = client.chunks(STATUS, 0, 0, SIZE as u32, b"");
    assert_eq!(many[0].2.len(), 4 + 8 * 4096);
}

#[test]
fn errors_of_the_device_are_told() {
    let serving = Serving::of(Memory::new(SIZE));
    let bad = 3 << 20;
    let mut client = serving.simple();
    client.write(bad - 4096, &[7; 8192]);
    *serving.disk.bad.write().unwrap() = bad..bad + 1;
    assert_eq!(client.simple(READ, 0, bad - 9, 20, b"").0, EIO);
    // A write of several pieces whose second one fails is taken to its end.
    let data = vec![1; 3 << 20];
    assert_eq!(client.simple(WRITE, 0, (2 << 20) - 5, data.len() as u32, &data).0, EIO);
    assert_eq!(client.simple(TRIM, 0, bad, 1, b"").0, EIO);
    assert_eq!(client.simple(READ, 0, 0, 5, b"").0, 0);
    // Bytes that are announced and can't be read: the protocol has no other word than the end.
    client.send_request(READ, 0, 0, 8 << 20, b"");
    let reply = client.take(16 + (3 << 20));
    assert_eq!(reply[4..8], [0; 4]);
    assert!(client.is_closed());
    let mut client = serving.structured();
    let chunks = client.chunks(READ, 0, bad - 4096, 8192, b"");
    assert_eq!((chunks.len(), chunks[0].error(), chunks[0].1), (1, EIO, 0x8002), "nothing of it");
    assert_eq!(client.error(WRITE, 0, bad, 1, b"x"), EIO);
    assert_eq!(client.chunks(READ, DF, bad - 4096, 8192, b"").len(), 1, "before it is announced");
    let chunks = client.chunks(READ, DF, 0, 8 << 20, b"");
    assert_eq!((chunks.len(), chunks[0].2.len()), (2, 8 + (8 << 20)));
    assert_eq!(chunks[1].error(), EIO);
}

#[test]
fn too_much_at_once_is_refused() {
    let serving = Serving::of(Memory::recording(SIZE));
    let too_long = (32 << 20) + 1;
    let mut client = serving.structured();
    assert_eq!(client.error(READ, 0, 0, too_long, b""), EINVAL);
    assert_eq!(client.error(READ, DF, 0, too_long, b""), EOVERFLOW);
    assert_eq!(serving.disk.calls(), []);
    // Nobody waits for data that won't be stored.
    assert_eq!(client.error(WRITE, 0, 0, too_long, b""), EINVAL);
    assert!(client.is_closed());
    let mut client = serving.simple();
    let cookie = client.send_request(WRITE, 0, 0, u32::MAX, b"");
    assert_eq!(client.simple_reply(cookie), EINVAL);
    assert!(client.is_closed());
    assert_eq!(serving.disk.calls(), []);
}

#[test]
fn who_says_goodbye_gets_the_replies_before() {
    let serving = Serving::of(Memory::new(SIZE));
    let mut client = serving.simple();
    let cookie = client.send_request(WRITE, 0, 0, 3, b"abc");
    client.send_request(DISC, 0, 0, 0, b"");
    assert_eq!(client.simple_reply(cookie), 0);
    assert!(client.is_closed());
    eventually("the client is forgotten", || serving.server().clients() == 0);
    assert_eq!(serving.server().statistics("disk").unwrap().clients, 0);
}
