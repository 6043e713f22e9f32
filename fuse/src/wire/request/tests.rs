//! Attacks on the reading of requests.

use fuse_abi::linux::{fuse_setattr_in, fuse_write_in};
use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::wire::samples::{NODE, UNIQUE, all, forgets, request};

const HEADER: usize = size_of::<fuse_in_header>();

/// The error that bytes behind a true header give.
fn error(opcode: op, body: &[u8]) -> Errno {
    parse(&request(opcode as u32, NODE, body)).unwrap().request.unwrap_err()
}

#[test]
fn every_request_is_understood() {
    for sample in all() {
        let bytes = sample.bytes();
        let incoming = parse(&bytes).unwrap();
        let silent = sample.opcode == op::FUSE_FORGET;
        assert_eq!(incoming.unique, (!silent).then_some(UNIQUE), "{:?}", sample.opcode);
        let request = incoming.request.unwrap();
        assert_eq!((request.node, request.who), (NodeId(NODE), Who { uid: 1, gid: 2, pid: 3 }));
        assert_eq!(request.operation, sample.operation);
    }
}

#[test]
fn what_was_cut_off_is_never_understood() {
    for sample in all() {
        let bytes = sample.bytes();
        // The header still tells the whole length.
        for cut in 0..bytes.len() {
            let expected = (cut >= HEADER).then_some(Err(Errno::EIO));
            let request = parse(&bytes[..cut]).map(|incoming| incoming.request);
            assert_eq!(request, expected, "{:?} cut at {cut}", sample.opcode);
        }
        // The header tells the length that is left.
        for cut in 0..sample.body.len() {
            let said = error(sample.opcode, &sample.body[..cut]);
            assert_eq!(said, Errno::EINVAL, "{:?} cut at {cut}", sample.opcode);
        }
    }
}

#[test]
fn a_length_that_lies_is_an_error() {
    for sample in all() {
        for lie in [0, 1, HEADER as u32 - 1, sample.bytes().len() as u32 + 1, u32::MAX] {
            let mut bytes = sample.bytes();
            bytes[..4].copy_from_slice(lie.as_bytes());
            assert_eq!(parse(&bytes).unwrap().request, Err(Errno::EIO), "{:?}", sample.opcode);
        }
    }
    for size in [0, 3, 5, u32::MAX] {
        let write = fuse_write_in { size, ..fuse_write_in::default() };
        let body = [write.as_bytes(), b"data"].concat();
        assert_eq!(error(op::FUSE_WRITE, &body), Errno::EINVAL);
        let body = [[size, 0].as_bytes(), b"user.n\0", b"data"].concat();
        assert_eq!(error(op::FUSE_SETXATTR, &body), Errno::EINVAL);
    }
}

#[test]
fn names_without_an_end_or_a_beginning_are_errors() {
    for sample in all() {
        if !matches!(sample.body.last(), Some(0)) || sample.opcode == op::FUSE_SYMLINK {
            continue;
        }
        let Some(cut) = sample.body.strip_suffix(b"n\0").or(sample.body.strip_suffix(b"new\0"))
        else {
            continue;
        };
        assert_eq!(error(sample.opcode, &[cut, b"name"].concat()), Errno::EINVAL);
        if !cut.ends_with(b"user.") {
            assert_eq!(error(sample.opcode, &[cut, b"\0"].concat()), Errno::EINVAL);
        }
    }
    assert_eq!(error(op::FUSE_SYMLINK, b"\0to\0"), Errno::EINVAL);
    assert_eq!(error(op::FUSE_SYMLINK, b"n\0to"), Errno::EINVAL);
}

#[test]
fn what_a_newer_kernel_adds_is_left_alone() {
    for sample in all() {
        let exact = matches!(sample.opcode, op::FUSE_WRITE | op::FUSE_SETXATTR);
        if !exact {
            let bytes = request(sample.opcode as u32, NODE, &[&sample.body, &b"more"[..]].concat());
            assert_eq!(parse(&bytes).unwrap().request.unwrap().operation, sample.operation);
        }
    }
}

#[test]
fn forgets_are_as_many_as_are_there() {
    let each = [(2, 1), (3, u64::MAX)];
    let bytes = request(op::FUSE_BATCH_FORGET as u32, 0, &forgets(2, &each));
    let incoming = parse(&bytes).unwrap();
    assert_eq!(incoming.unique, None, "nobody waits for an answer");
    let Operation::BatchForget(found) = incoming.request.unwrap().operation else {
        panic!("{incoming:?}");
    };
    let found: Vec<_> = found.each().collect();
    assert_eq!(found, [(NodeId(2), 1), (NodeId(3), u64::MAX)]);
    for count in [3, 1 << 28, u32::MAX] {
        let bytes = request(op::FUSE_BATCH_FORGET as u32, 0, &forgets(count, &each));
        let incoming = parse(&bytes).unwrap();
        assert_eq!((incoming.unique, incoming.request), (None, Err(Errno::EINVAL)));
    }
}

#[test]
fn what_is_not_known_is_not_done() {
    for opcode in [0, 7, 31, 32, 33, 36, 37, 40, 41, 48, 49, 50, 53, 1000, 4096, u32::MAX] {
        let bytes = request(opcode, NODE, &[0; 64]);
        let incoming = parse(&bytes).unwrap();
        assert_eq!((incoming.unique, incoming.request), (Some(UNIQUE), Err(Errno::ENOSYS)));
    }
    assert_eq!(error(op::FUSE_INIT, &[0; 64]), Errno::EIO);
}

#[test]
fn number_0_is_never_answered() {
    let mut bytes = request(op::FUSE_GETATTR as u32, NODE, &[0; 16]);
    bytes[8..16].fill(0);
    assert_eq!(parse(&bytes).unwrap().unique, None);
}

#[test]
fn times_have_less_than_a_second_of_nanoseconds() {
    let valid = FATTR_ATIME | FATTR_MTIME;
    let asked = |seconds: i64, mtimensec| {
        let mtime = seconds.cast_unsigned();
        changes(&fuse_setattr_in { valid, mtime, mtimensec, ..fuse_setattr_in::default() })
    };
    let time = |seconds, nanoseconds| asked(seconds, nanoseconds).map(|changes| changes.mtime);
    assert_eq!(time(0, 1_000_000_000), Err(Errno::EINVAL));
    assert_eq!(time(0, 999_999_999), Ok(Some(TimeOrNow::At(999_999_999))));
    assert_eq!(time(-2, 250_000_000), Ok(Some(TimeOrNow::At(-1_750_000_000))));
    assert_eq!(time(i64::MAX, 0), Ok(Some(TimeOrNow::At(i64::MAX))));
    assert_eq!(time(i64::MIN, 0), Ok(Some(TimeOrNow::At(i64::MIN))));
}

#[test]
fn modes_have_a_type_and_permissions_and_no_more() {
    for sample in all() {
        // Where the mode stands, among the structure's words.
        let at = match sample.operation {
            Operation::Mknod { .. } | Operation::Mkdir { .. } => 0,
            Operation::Create(_) | Operation::Tmpfile(_) => 4,
            Operation::Setattr(_) => 68,
            _ => continue,
        };
        let mut body = sample.body.clone();
        body[at..at + 4].copy_from_slice(0xffff_u32.as_bytes());
        assert!(parse(&request(sample.opcode as u32, NODE, &body)).unwrap().request.is_ok());
        body[at..at + 4].copy_from_slice(0x1_0000_u32.as_bytes());
        assert_eq!(error(sample.opcode, &body), Errno::EINVAL, "{:?}", sample.opcode);
    }
}

/// Names in an operation, if it has any.
fn names<'a>(operation: &Operation<'a>) -> Vec<&'a [u8]> {
    match *operation {
        Operation::Lookup { name }
        | Operation::Symlink { name, .. }
        | Operation::Mknod { name, .. }
        | Operation::Mkdir { name, .. }
        | Operation::Create(NewFile { name, .. })
        | Operation::Tmpfile(NewFile { name, .. })
        | Operation::Unlink { name }
        | Operation::Rmdir { name }
        | Operation::Link { name, .. }
        | Operation::Setxattr { name, .. }
        | Operation::Getxattr { name, .. }
        | Operation::Removexattr { name } => vec![name],
        Operation::Rename { name, new_name, .. } => vec![name, new_name],
        _ => vec![],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_request_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        let parsed = parse(&bytes);
        prop_assert_eq!(parsed.is_some(), bytes.len() >= HEADER);
    }

    /// Bytes with a true header reach the arguments. Zeros are likely, so that names end.
    #[test]
    fn any_arguments_are_right_or_an_error(
        opcode in 0_u32..60,
        body in vec(prop_oneof![Just(0_u8), 0_u8..20, any::<u8>()], 0..150),
    ) {
        let bytes = request(opcode, NODE, &body);
        let incoming = parse(&bytes).unwrap();
        if let Ok(request) = incoming.request {
            for name in names(&request.operation) {
                prop_assert!(!name.is_empty() && !name.contains(&0));
            }
            if let Operation::BatchForget(forgets) = request.operation {
                prop_assert!(forgets.each().count() * 16 <= body.len());
            }
        }
    }
}
