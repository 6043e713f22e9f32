//! Requests from any bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;

fn bytes_of(magic: u32, flags: u16, command: u16, cookie: u64, at: u64, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(U32::new(magic).as_bytes());
    bytes.extend(U16::new(flags).as_bytes());
    bytes.extend(U16::new(command).as_bytes());
    bytes.extend(U64::new(cookie).as_bytes());
    bytes.extend(U64::new(at).as_bytes());
    bytes.extend(U32::new(len).as_bytes());
    bytes
}

#[test]
fn flags_are_told_apart() {
    let all = Flags(0b1_1111);
    let known = Flags::FUA.with(Flags::DF);
    assert!(all.has(known) && !known.has(Flags::NO_HOLE));
    assert!(known.only(all) && !all.only(known));
    assert!(!Flags(1 << 15).only(all));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_request_or_not(bytes in vec(any::<u8>(), 0..60)) {
        let has_magic = bytes.starts_with(b"\x25\x60\x95\x13") && bytes.len() == REQUEST_BYTES;
        prop_assert_eq!(Request::parse(&bytes).is_ok(), has_magic);
    }

    #[test]
    fn what_was_asked_is_what_was_sent(
        flags: u16, command in 0_u16..9, cookie: u64, at: u64, len: u32,
    ) {
        let bytes = bytes_of(REQUEST_MAGIC, flags, command, cookie, at, len);
        let request = Request::parse(&bytes).unwrap();
        prop_assert_eq!((request.flags, request.cookie), (Flags(flags), cookie));
        prop_assert_eq!((request.at, request.len), (at, len));
        prop_assert_eq!(request.command == Command::Unknown, command == 8);
        prop_assert_eq!(Request::parse(&bytes[1..]), Err(BadMagic));
        let wrong = bytes_of(REQUEST_MAGIC ^ 1, flags, command, cookie, at, len);
        prop_assert_eq!(Request::parse(&wrong), Err(BadMagic));
    }
}
