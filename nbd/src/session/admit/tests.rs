//! What is served, and what is refused with which error.

use proptest::prelude::*;
use zerocopy::IntoBytes;
use zerocopy::network_endian::{U16, U32, U64};

use super::*;

fn access() -> Access {
    let sizes = BlockSizes::new(512, 4096, 1 << 16).unwrap();
    Access { structured: true, allocation: true, read_only: false, size: 1 << 20, sizes }
}

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DF: u16 = 4;
const REQ_ONE: u16 = 8;
const FAST_ZERO: u16 = 16;

fn request(command: u16, flags: u16, at: u64, len: u32) -> Request {
    let mut bytes = b"\x25\x60\x95\x13".to_vec();
    bytes.extend(U16::new(flags).as_bytes());
    bytes.extend(U16::new(command).as_bytes());
    bytes.extend([7; 8]);
    bytes.extend(U64::new(at).as_bytes());
    bytes.extend(U32::new(len).as_bytes());
    Request::parse(&bytes).unwrap()
}

fn errno(access: Access, request: Request) -> Option<Errno> {
    access.admit(&request).err().map(|refusal| refusal.errno)
}

#[test]
fn each_command_has_its_flags() {
    let all = [FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO, 32, 1 << 15];
    let allowed: [(u16, &[u16]); 7] = [
        (0, &[FUA, DF]),
        (1, &[FUA]),
        (3, &[FUA]),
        (4, &[FUA]),
        (5, &[FUA]),
        (6, &[FUA, NO_HOLE, FAST_ZERO]),
        (7, &[FUA, REQ_ONE]),
    ];
    for (command, allowed) in allowed {
        let len = if command == 3 { 0 } else { 512 };
        for flag in all {
            let refused = errno(access(), request(command, flag, 0, len));
            let expected = (!allowed.contains(&flag)).then_some(Errno::EINVAL);
            assert_eq!(refused, expected, "command {command} flag {flag}");
        }
    }
    let simple = Access { structured: false, ..access() };
    assert_eq!(errno(simple, request(0, DF, 0, 512)), Some(Errno::EINVAL));
    for command in [8, 9, u16::MAX] {
        assert_eq!(errno(access(), request(command, 0, 0, 0)), Some(Errno::EINVAL));
    }
}

#[test]
fn nothing_lies_behind_the_end() {
    for (command, beyond) in [
        (0, Errno::EINVAL),
        (1, Errno::ENOSPC),
        (4, Errno::EINVAL),
        (5, Errno::EINVAL),
        (6, Errno::ENOSPC),
        (7, Errno::EINVAL),
    ] {
        let end = access().size;
        assert_eq!(errno(access(), request(command, 0, end - 512, 512)), None);
        for at in [end - 512, end, u64::MAX - 511, u64::MAX - 1023, 1 << 63] {
            assert_eq!(
                errno(access(), request(command, 0, at, 1024)),
                Some(beyond),
                "{command} {at}"
            );
        }
    }
}

#[test]
fn blocks_are_whole_and_not_too_long() {
    for command in [0, 1, 4, 5, 6, 7] {
        for (at, len) in [(1, 512), (512, 511), (256, 256)] {
            assert_eq!(errno(access(), request(command, 0, at, len)), Some(Errno::EINVAL));
        }
    }
    let long = (1 << 16) + 512;
    assert_eq!(errno(access(), request(0, 0, 0, long)), Some(Errno::EINVAL));
    assert_eq!(errno(access(), request(0, DF, 0, long)), Some(Errno::EOVERFLOW));
    assert_eq!(errno(access(), request(1, 0, 0, long)), Some(Errno::EINVAL));
    for command in [4, 5, 6, 7] {
        assert_eq!(errno(access(), request(command, 0, 0, long)), None, "carries no bytes");
    }
}

#[test]
fn what_is_read_only_is_not_written() {
    let frozen = Access { read_only: true, ..access() };
    for command in [1, 4, 6] {
        assert_eq!(errno(frozen, request(command, 0, 0, 512)), Some(Errno::EPERM));
        assert_eq!(errno(frozen, request(command, 0, 0, 0)), Some(Errno::EPERM));
    }
    for command in [0, 5, 7] {
        assert_eq!(errno(frozen, request(command, 0, 0, 512)), None);
    }
    assert_eq!(errno(frozen, request(3, 0, 0, 0)), None);
}

#[test]
fn status_has_to_be_agreed_on_and_be_of_something() {
    let without = Access { allocation: false, ..access() };
    assert_eq!(errno(without, request(7, 0, 0, 512)), Some(Errno::EINVAL));
    assert_eq!(errno(access(), request(7, 0, 0, 0)), Some(Errno::EINVAL));
    assert_eq!(errno(access(), request(3, 0, 0, 512)), Some(Errno::EINVAL), "a flush has no range");
    assert_eq!(errno(access(), request(3, 0, 512, 0)), Some(Errno::EINVAL));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_admitted_lies_within(
        command in 0_u16..9, flags in 0_u16..64, at in prop_oneof![0..(3_u64 << 19), any::<u64>()],
        len in prop_oneof![0_u32..200_000, any::<u32>()], size in 0_u64..(1 << 20), min in 0_u32..13,
    ) {
        let sizes = BlockSizes::new(1 << min, 4096, 1 << 20).unwrap();
        let access = Access { size: size & !((1 << min) - 1), sizes, ..access() };
        let admitted = access.admit(&request(command, flags, at, len));
        let span = match admitted {
            Ok(Action::Read { span, .. } | Action::Write { span, .. } | Action::Ranged { span, .. }) => span,
            _ => return Ok(()),
        };
        prop_assert_eq!((span.at(), span.len()), (at, len));
        let end = at.checked_add(u64::from(len));
        prop_assert!(end.is_some_and(|end| end <= access.size));
        prop_assert!(at % (1 << min) == 0 && len % (1 << min) == 0);
    }
}
