//! Conversations cut at any byte, and of any bytes: nothing panics, nothing grows, and it does not matter where they
//! are cut.

use std::ops::ControlFlow;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::IntoBytes;
use zerocopy::network_endian::{U16, U32, U64};

use super::super::turn::{PIECE_BYTES, SHORT_PIECE_BYTES};
use super::*;
use crate::device::{BlockSizes, Device, Extent, WriteZeroes};
use crate::errno::Errno;
use crate::export::Export;

mod corpus;

const SIZE: usize = 3 << 20;

/// Bytes, of which the second MiB can't be read and the second half of a page is a hole.
struct Bytes {
    bytes: Mutex<Vec<u8>>,
    bad: bool,
}

impl Device for Bytes {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::default()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        let at = at as usize;
        if self.bad && at < 2 << 20 && at + into.len() > 1 << 20 {
            // As memory that fails half way.
            into.fill(0xee);
            return Err(Errno::EIO);
        }
        into.copy_from_slice(&self.bytes.lock().unwrap()[at..at + into.len()]);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8], _: bool) -> Result<(), Errno> {
        assert!(!from.is_empty() && from.len() <= SHORT_PIECE_BYTES as usize);
        self.bytes.lock().unwrap()[at as usize..at as usize + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn trim(&self, _: u64, len: u64, _: bool) -> Result<(), Errno> {
        assert!(len > 0);
        Ok(())
    }

    fn write_zeroes(&self, at: u64, len: u64, _: WriteZeroes) -> Result<(), Errno> {
        self.bytes.lock().unwrap()[at as usize..(at + len) as usize].fill(0);
        Ok(())
    }

    fn status(
        &self,
        mut at: u64,
        len: u64,
        found: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let end = at + len;
        while at < end {
            // More than was asked for, too.
            let next = (at / 8192 + 1) * 8192;
            let hole = at / 8192 % 2 == 1;
            if found(Extent { len: next - at, hole, zero: hole }).is_break() {
                break;
            }
            at = next;
        }
        Ok(())
    }
}

fn exports(bad: bool) -> Arc<Exports> {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| (0..SIZE as u64).map(byte_at).collect());
    let device = Bytes { bytes: Mutex::new(BYTES.clone()), bad };
    Arc::new(Exports::new(vec![Export::new("e", Arc::new(device))], Some("e".into())))
}

/// What goes out when `input` comes in pieces of these sizes, over and over.
fn converse(exports: &Arc<Exports>, input: &[u8], pieces: &[usize]) -> (Vec<u8>, Step) {
    let (mut incoming, mut outgoing) = (Buffer::default(), Buffer::default());
    let mut session = Session::new(Arc::clone(exports), Encryption::Impossible, &mut outgoing);
    let mut all = Vec::new();
    let (mut rest, mut pieces) = (input, pieces.iter().copied().cycle());
    loop {
        let step = session.advance(
            &mut incoming,
            &mut outgoing,
            &mut Turn::new(100_000, Duration::MAX),
            false,
        );
        assert!(outgoing.len() <= OUTPUT_HIGH_BYTES + PIECE_BYTES as usize + 4096);
        all.extend(outgoing.filled());
        outgoing.consume(usize::MAX);
        match step {
            Step::End => return (all, step),
            Step::Input(needed) => {
                assert!(needed > incoming.len() && needed <= PIECE_BYTES as usize);
                if rest.is_empty() {
                    return (all, step);
                }
                let piece = pieces.next().unwrap().clamp(1, rest.len());
                incoming.append(&rest[..piece]);
                rest = &rest[piece..];
            }
            Step::Output | Step::Turn => {}
            Step::Encrypt => panic!("there is no encryption"),
        }
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let len = U32::new(data.len() as u32);
    [b"IHAVEOPT", U32::new(number).as_bytes(), len.as_bytes(), data].concat()
}

fn request(command: u16, flags: u16, at: u64, len: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x25\x60\x95\x13".to_vec();
    bytes.extend(U16::new(flags).as_bytes());
    bytes.extend(U16::new(command).as_bytes());
    bytes.extend([command as u8; 8]);
    bytes.extend(U64::new(at).as_bytes());
    bytes.extend(U32::new(len).as_bytes());
    bytes.extend(data);
    bytes
}

/// A handshake with everything in it.
fn handshake(structured: bool) -> Vec<u8> {
    let mut all = vec![0, 0, 0, 3];
    all.extend(option(3, b""));
    all.extend(option(77, b"unknown"));
    all.extend(option(5, b""));
    all.extend(option(3, &[b'x'; 20_000]));
    if structured {
        all.extend(option(8, b""));
        all.extend(option(9, b"\0\0\0\x01e\0\0\0\0"));
        all.extend(option(10, b"\0\0\0\x01e\0\0\0\x01\0\0\0\x0fbase:allocation"));
    }
    all.extend(option(6, b"\0\0\0\0\0\x03\0\x01\0\x02\0\x03"));
    all.extend(option(7, b"\0\0\0\x01e\0\x01\0\x03"));
    all
}

fn requests() -> Vec<u8> {
    let mut all = Vec::new();
    all.extend(request(1, 0, 5, 6, b"abcdef"));
    all.extend(request(0, 0, 0, 100, b""));
    all.extend(request(0, 0, 4096, 40_000, b""));
    all.extend(request(1, 1, SIZE as u64 - 1, 9, b"behind it"));
    all.extend(request(99, 0, 0, 0, b""));
    all.extend(request(0, 4, 0, 20_000, b""));
    all.extend(request(7, 0, 0, 50_000, b""));
    all.extend(request(7, 8, 0, 50_000, b""));
    all.extend(request(6, 16, 0, 4096, b""));
    all.extend(request(4, 0, 0, 4096, b""));
    all.extend(request(5, 0, 0, 4096, b""));
    all.extend(request(3, 0, 0, 0, b""));
    all.extend(request(0, 0, 9, 0, b""));
    all.extend(request(1, 0, 9, 0, b""));
    all.extend(request(2, 0, 0, 0, b""));
    all
}

#[test]
fn it_does_not_matter_where_bytes_are_cut() {
    for structured in [false, true] {
        let input = [handshake(structured), requests()].concat();
        let exports = exports(false);
        // From here on, what is written is there already.
        converse(&exports, &input, &[usize::MAX]);
        let (expected, end) = converse(&exports, &input, &[usize::MAX]);
        assert_eq!(end, Step::End);
        for size in [1, 2, 3, 7, 28, 1000] {
            let (output, end) = converse(&exports, &input, &[size]);
            assert!(output == expected && end == Step::End, "pieces of {size}");
        }
        for cut in (0..input.len()).filter(|cut| *cut < 400 || input.len() - cut < 1000) {
            let (output, _) = converse(&exports, &input, &[cut, usize::MAX]);
            assert!(output == expected, "cut at {cut}");
        }
    }
}

#[test]
fn a_conversation_that_is_cut_off_stops_there() {
    let input = [handshake(true), requests()].concat();
    let exports = exports(false);
    for end in (0..input.len() - 1).step_by(13) {
        let (_, step) = converse(&exports, &input[..end], &[usize::MAX]);
        assert!(matches!(step, Step::Input(_)), "cut off at {end}");
    }
}

/// A client that sends slowly does not keep memory, nor the memory idle: what is there of a write is stored.
#[test]
fn a_write_is_stored_while_the_rest_of_it_is_on_its_way() {
    let device = Arc::new(Bytes { bytes: Mutex::new(vec![0; SIZE]), bad: false });
    let export = Export::new("e", Arc::clone(&device) as Arc<dyn Device>);
    let exports = Arc::new(Exports::new(vec![export], Some("e".into())));
    let (mut incoming, mut outgoing) = (Buffer::default(), Buffer::default());
    let mut session = Session::new(exports, Encryption::Impossible, &mut outgoing);
    let mut say = |bytes: &[u8]| {
        incoming.append(bytes);
        loop {
            let mut turn = Turn::new(100_000, Duration::MAX);
            let step = session.advance(&mut incoming, &mut outgoing, &mut turn, false);
            outgoing.consume(usize::MAX);
            if let Step::Input(wanted) = step {
                return (wanted, incoming.len());
            }
        }
    };
    let stored = || device.bytes.lock().unwrap().iter().filter(|byte| **byte == 7).count();
    say(&[handshake(false), request(1, 0, 100, 300 << 10, b"")].concat());
    // Little is waited for more of, up to a piece.
    assert_eq!(say(&[7; 60 << 10]), (256 << 10, 60 << 10));
    assert_eq!(stored(), 0);
    // What is over a whole page stays.
    assert_eq!(say(&[7; 5 << 10]), ((236 << 10) + 100, (1 << 10) + 100));
    assert_eq!(stored(), (64 << 10) - 100);
    assert_eq!(say(&[7; 234 << 10]), ((4 << 10) + 100, (3 << 10) + 100));
    assert_eq!(stored(), (296 << 10) - 100);
    say(&[7; 1 << 10]);
    assert_eq!(stored(), 300 << 10);
}

/// The bytes of a structured read, and whether there was an error.
fn reassemble(mut output: &[u8], at: u64, len: usize) -> (Vec<Option<u8>>, Option<(u32, u64)>) {
    let mut bytes = vec![None; len];
    let mut error = None;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    loop {
        assert_eq!(&output[..4], b"\x66\x8e\x33\xef");
        let (done, kind) = (output[5] == 1, number(&output[6..8]));
        let (payload, rest) = output[20..].split_at(number(&output[16..20]) as usize);
        match kind {
            0 => assert!(done && payload.is_empty()),
            1 => {
                let from = (number(&payload[..8]) - at) as usize;
                for (place, byte) in bytes[from..].iter_mut().zip(&payload[8..]) {
                    assert_eq!(place.replace(*byte), None, "told twice");
                }
            }
            2 => {
                let from = (number(&payload[..8]) - at) as usize;
                let len = number(&payload[8..]) as usize;
                for place in &mut bytes[from..from + len] {
                    assert_eq!(place.replace(0), None, "told twice");
                }
            }
            0x8002 => error = Some((number(&payload[..4]) as u32, number(&payload[6..14]))),
            other => panic!("chunk {other}"),
        }
        output = rest;
        if done {
            assert!(output.is_empty());
            return (bytes, error);
        }
    }
}

fn read_of(bad: bool, flags: u16, at: u64, len: u32) -> (Vec<Option<u8>>, Option<(u32, u64)>) {
    let exports = exports(bad);
    let before = converse(&exports, &handshake(true), &[usize::MAX]).0;
    let input = [handshake(true), request(0, flags, at, len, b"")].concat();
    let output = converse(&exports, &input, &[usize::MAX]).0;
    reassemble(&output[before.len()..], at, len as usize)
}

fn byte_at(at: u64) -> u8 {
    if at / 8192 % 2 == 1 { 0 } else { (at % 251) as u8 }
}

#[test]
fn reads_have_each_byte_once_in_chunks_and_in_one() {
    for flags in [0, 4] {
        for (at, len) in [(0, SIZE as u32), (1, 1), (8191, 2), (100, 2_500_000), (8192, 8192)] {
            let (bytes, error) = read_of(false, flags, at, len);
            assert_eq!(error, None);
            for (place, byte) in bytes.iter().enumerate() {
                assert_eq!(*byte, Some(byte_at(at + place as u64)), "{flags} {at} {len} {place}");
            }
        }
    }
}

#[test]
fn a_read_that_fails_says_where_and_shows_nothing_of_it() {
    for (flags, begun) in [(0, true), (4, true), (4, false)] {
        let (at, len) = if begun { (0, SIZE as u32) } else { (1 << 20, 1 << 20) };
        let (bytes, error) = read_of(true, flags, at, len);
        let (errno, place) = error.unwrap();
        assert_eq!(errno, 5);
        assert!((1 << 20..2 << 20).contains(&place), "{place}");
        let bad = &bytes[(place - at) as usize..];
        // In one chunk all bytes are there, as zeros; else none are.
        let expected = if flags == 4 && begun { Some(0) } else { None };
        assert!(bad[..4096].iter().all(|byte| *byte == expected));
        if begun {
            assert!((0..1 << 20).all(|at| bytes[at] == Some(byte_at(at as u64))));
        }
    }
}

#[test]
fn a_simple_read_fails_as_a_whole_or_ends_the_conversation() {
    let before = converse(&exports(true), &handshake(false), &[usize::MAX]).0.len();
    let asked = |at, len| {
        let input = [handshake(false), request(0, 0, at, len, b"")].concat();
        let (output, step) = converse(&exports(true), &input, &[usize::MAX]);
        (output[before..].to_vec(), step)
    };
    let (output, step) = asked((1 << 20) - 5, 10);
    assert_eq!(output, b"\x67\x44\x66\x98\0\0\0\x05\0\0\0\0\0\0\0\0");
    assert_ne!(step, Step::End);
    let (output, step) = asked(0, 2 << 20);
    assert_eq!((output.len(), step), (16 + (1 << 20), Step::End), "nothing of what failed");
}

#[test]
fn who_closes_takes_nobody_in() {
    for (asked, answer) in
        [(option(3, b""), Some(7)), (option(2, b""), None), (option(1, b""), None)]
    {
        let (mut incoming, mut outgoing) = (Buffer::default(), Buffer::default());
        let mut session = Session::new(exports(false), Encryption::Impossible, &mut outgoing);
        incoming.append(&[&[0, 0, 0, 3][..], &asked].concat());
        let mut turn = Turn::new(1 << 20, Duration::MAX);
        let step = session.advance(&mut incoming, &mut outgoing, &mut turn, true);
        let refused = outgoing.filled().get(18 + 12..18 + 16);
        match answer {
            Some(last) => assert_eq!(refused, Some(&[0x80, 0, 0, last][..])),
            None => assert_eq!(step, Step::End),
        }
    }
}

#[test]
fn who_closes_refuses_what_is_not_under_way() {
    let exports = exports(false);
    let (mut incoming, mut outgoing) = (Buffer::default(), Buffer::default());
    let mut session = Session::new(Arc::clone(&exports), Encryption::Impossible, &mut outgoing);
    incoming.append(&handshake(false));
    incoming.append(&request(1, 0, 0, 4, b"ab"));
    let mut advance = |incoming: &mut Buffer, closing| {
        outgoing.consume(usize::MAX);
        let step = session.advance(
            incoming,
            &mut outgoing,
            &mut Turn::new(1 << 20, Duration::MAX),
            closing,
        );
        (step, outgoing.filled().to_vec())
    };
    assert_eq!(advance(&mut incoming, false).0, Step::Input(4));
    incoming.append(b"cd");
    incoming.append(&request(1, 0, 0, 2, b"xy"));
    incoming.append(&request(0, 0, 0, 2, b""));
    let (step, output) = advance(&mut incoming, true);
    assert_eq!(step, Step::Input(28));
    let errors: Vec<u8> = output.chunks(16).map(|reply| reply[7]).collect();
    assert_eq!(errors, [0, 108, 108]);
    let bytes = exports.find("e").unwrap();
    let mut stored = [0; 4];
    bytes.device.read(0, &mut stored).unwrap();
    assert_eq!(&stored, b"abcd");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(
        begun in 0_usize..3, bytes in vec(any::<u8>(), 0..300), pieces in vec(1_usize..40, 1..5),
    ) {
        let start = [vec![], vec![0, 0, 0, 3], handshake(true)][begun].clone();
        converse(&exports(false), &[start, bytes].concat(), &pieces);
    }

    #[test]
    fn any_options_are_survived(
        options in vec((0_u32..13, vec(any::<u8>(), 0..40)), 0..9), pieces in vec(1_usize..40, 1..5),
    ) {
        let mut input = vec![0, 0, 0, 3];
        options.iter().for_each(|(number, data)| input.extend(option(*number, data)));
        converse(&exports(false), &input, &pieces);
    }

    #[test]
    fn any_requests_are_survived(
        asked in vec((0_u16..9, 0_u16..32, any::<u64>(), any::<u32>()), 0..20), shift in 0_u32..60,
        structured: bool, pieces in vec(1_usize..4000, 1..5),
    ) {
        let mut input = handshake(structured);
        for (command, flags, at, len) in asked {
            let (at, len) = (at >> shift, len >> (shift % 32));
            let data = if command == 1 { vec![9; (len as usize).min(50_000)] } else { vec![] };
            input.extend(request(command, flags, at, len, &data));
        }
        converse(&exports(true), &input, &pieces);
    }
}
