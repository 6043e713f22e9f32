//! Each option of the handshake is answered as the protocol says, and what is no option ends it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::common::memory::Memory;
use crate::common::*;
use lode_nbd::{BlockSizes, Export};

const SIZE: u64 = 1 << 20;
/// Flags of a device that can be written, with simple replies.
const FLAGS: u64 = 0b1101_0110_1101;

#[test]
fn exports_are_listed() {
    let second = Export::new("second", Arc::new(Memory::new(5)));
    let serving = Serving::with(Memory::new(SIZE), |builder| builder.export(second));
    let mut client = serving.connect();
    let replies = client.option(LIST, b"");
    assert_eq!(replies.kinds(), [2, 2, ACK]);
    assert_eq!(replies.0[0].1, [text("disk"), b"what tests use".to_vec()].concat());
    assert_eq!(replies.0[1].1, text("second"));
    assert_eq!(client.option(LIST, b"x").kinds(), [ERR_INVALID]);
    assert_eq!(client.option(ABORT, b"").kinds(), [ACK]);
    assert!(client.is_closed());
}

#[test]
fn an_export_is_told_about_and_used() {
    let serving = Serving::of(Memory::new(SIZE));
    let mut client = serving.connect();
    let all = choice("disk", &[1, 2, 3, 0, 99]);
    for option in [INFO, GO] {
        let replies = client.option(option, &all);
        assert_eq!(replies.kinds(), [3, 3, 3, 3, ACK]);
        let export = [wire(0, 2), wire(SIZE, 8), wire(FLAGS, 2)].concat();
        assert_eq!(replies.0[0].1, export);
        assert_eq!(replies.0[1].1, b"\0\x01disk");
        assert_eq!(replies.0[2].1, b"\0\x02what tests use");
        let sizes = [wire(3, 2), wire(1, 4), wire(4096, 4), wire(32 << 20, 4)].concat();
        assert_eq!(replies.0[3].1, sizes);
    }
    assert_eq!(client.simple(READ, 0, 0, 4, b""), (0, vec![0; 4]));
}

#[test]
fn only_what_was_asked_is_told() {
    let second = Export::new("second", Arc::new(Memory::new(5)));
    let serving = Serving::with(Memory::new(SIZE), |builder| builder.export(second));
    let mut client = serving.connect();
    assert_eq!(client.option(INFO, &choice("", &[])).kinds(), [3, ACK]);
    let silent = client.option(INFO, &choice("second", &[1, 2]));
    assert_eq!(silent.kinds(), [3, 3, ACK], "it has no description");
    assert_eq!(client.option(INFO, &choice("", &[1])).0[1].1, b"\0\x01disk");
    assert_eq!(client.option(INFO, &choice("nowhere", &[])).kinds(), [ERR_UNKNOWN]);
    assert_eq!(client.option(GO, &choice("nowhere", &[])).kinds(), [ERR_UNKNOWN]);
    assert_eq!(client.option(GO, b"").kinds(), [ERR_INVALID]);
    let mut long = choice("", &[3]);
    long.push(0);
    assert_eq!(client.option(GO, &long).kinds(), [ERR_INVALID]);
    assert_eq!(client.option(GO, &choice("a\0b", &[])).kinds(), [ERR_INVALID]);
    // After all this, it still goes on.
    assert_eq!(client.go().simple(FLUSH, 0, 0, 0, b"").0, 0);
}

#[test]
fn the_old_option_leads_to_requests_or_ends() {
    let serving = Serving::of(Memory { read_only: true, ..Memory::new(SIZE) });
    for (flags, zeros) in [(3, 0), (1, 124), (0, 124), (2, 0)] {
        let mut client = Client::silent(UnixStream::connect(&serving.socket).unwrap());
        client.take(18);
        client.send(&wire(flags, 4));
        client.send_option(EXPORT_NAME, b"disk");
        let told = client.take(10 + zeros);
        assert_eq!(told[..10], [wire(SIZE, 8), wire(0b101_0000_1111, 2)].concat());
        assert!(told[10..].iter().all(|byte| *byte == 0));
        assert_eq!(client.simple(READ, 0, 0, 4, b"").0, 0);
    }
    for name in [&b"nowhere"[..], b"\xff", &[b'x'; 20_000]] {
        let mut client = serving.connect();
        client.send_option(EXPORT_NAME, name);
        assert!(client.is_closed(), "{name:?}");
    }
}

#[test]
fn options_that_are_not_known_are_refused_and_skipped() {
    let serving = Serving::of(Memory::new(SIZE));
    let mut client = serving.connect();
    for option in [4, 11, 12, 0, u32::MAX] {
        assert_eq!(client.option(option, b"").kinds(), [ERR_UNSUP]);
        assert_eq!(client.option(option, &[9; 100_000]).kinds(), [ERR_UNSUP]);
    }
    assert_eq!(client.option(STARTTLS, b"").kinds(), [ERR_UNSUP]);
    assert_eq!(client.option(STARTTLS, b"x").kinds(), [ERR_INVALID]);
    assert_eq!(client.option(GO, &[0; 100_000]).kinds(), [ERR_TOO_BIG]);
    assert_eq!(client.option(LIST, b"").kinds(), [2, ACK]);
}

#[test]
fn data_without_measure_end_the_connection() {
    let serving = Serving::of(Memory::new(SIZE));
    for option in [77, GO, LIST] {
        let mut client = serving.connect();
        client.send(b"IHAVEOPT");
        client.send(&[wire(u64::from(option), 4), vec![0xff; 4]].concat());
        assert_eq!(client.replies(option).kinds(), [ERR_TOO_BIG]);
        assert!(client.is_closed());
    }
}

#[test]
fn what_is_no_option_ends_the_connection() {
    let serving = Serving::of(Memory::new(SIZE));
    let mut client = serving.connect();
    client.send(b"IHAVEOPS\0\0\0\x03\0\0\0\0");
    assert!(client.is_closed());
    let mut client = Client::silent(UnixStream::connect(&serving.socket).unwrap());
    client.take(18);
    client.send(&wire(7, 4));
    assert!(client.is_closed(), "a flag that was not offered");
    let mut client = Client::silent(UnixStream::connect(&serving.socket).unwrap());
    client.take(18);
    client.send(&wire(0, 4));
    client.send_option(LIST, b"");
    assert!(client.is_closed(), "a client that does not know replies");
}

#[test]
fn contexts_are_listed_and_chosen() {
    let second = Export::new("second", Arc::new(Memory::new(5)));
    let serving = Serving::with(Memory::new(SIZE), |builder| builder.export(second));
    let mut client = serving.connect();
    for option in [LIST_META, SET_META] {
        let early = client.option(option, &contexts("", &["base:allocation"]));
        assert_eq!(early.kinds(), [ERR_INVALID], "before chunks are agreed on");
    }
    assert_eq!(client.option(STRUCTURED, b"x").kinds(), [ERR_INVALID]);
    assert_eq!(client.option(STRUCTURED, b"").kinds(), [ACK]);
    for (queries, listed, chosen) in [
        (&[][..], true, false),
        (&["base:"][..], true, false),
        (&["x-else:all", "base:allocation"], true, true),
        (&["base:else"], false, false),
        (&["x-else:"], false, false),
    ] {
        for (option, found, id) in [(LIST_META, listed, 0), (SET_META, chosen, 1)] {
            let replies = client.option(option, &contexts("disk", queries));
            assert_eq!(
                replies.kinds(),
                if found { vec![4, ACK] } else { vec![ACK] },
                "{queries:?}"
            );
            if found {
                assert_eq!(replies.0[0].1, [&wire(id, 4)[..], b"base:allocation"].concat());
            }
        }
    }
    assert_eq!(client.option(LIST_META, &contexts("", &["none"])).kinds(), [ERR_INVALID]);
    assert_eq!(client.option(LIST_META, &contexts("nowhere", &[])).kinds(), [ERR_UNKNOWN]);
    // What was chosen for one export is not chosen for another, and what fails chooses nothing.
    let set = contexts("second", &["base:allocation"]);
    assert_eq!(client.option(SET_META, &set).kinds(), [4, ACK]);
    assert_eq!(client.go().error(STATUS, 0, 0, 1, b""), EINVAL);
    let mut client = serving.connect();
    client.option(STRUCTURED, b"");
    assert_eq!(client.option(SET_META, &contexts("", &["base:allocation"])).kinds(), [4, ACK]);
    assert_eq!(client.option(SET_META, &contexts("", &["none"])).kinds(), [ERR_INVALID]);
    assert_eq!(client.go().error(STATUS, 0, 0, 1, b""), EINVAL);
}

#[test]
fn large_blocks_are_told_to_anybody_and_kept_to() {
    let sizes = BlockSizes::new(4096, 4096, 1 << 20).unwrap();
    let serving = Serving::of(Memory { sizes, ..Memory::new(SIZE + 4095) });
    let expected = [wire(3, 2), wire(4096, 4), wire(4096, 4), wire(1 << 20, 4)].concat();
    for wishes in [&[][..], &[3]] {
        let mut client = serving.connect();
        for option in [INFO, GO] {
            let told = client.option(option, &choice("", wishes));
            assert_eq!(told.kinds(), [3, 3, ACK]);
            assert_eq!(told.0[0].1[2..10], wire(SIZE, 8), "whole blocks are served");
            assert_eq!(told.0[1].1, expected);
        }
    }
    // Who knows of no sizes is served as well: what it asks for in whole blocks.
    let mut old = serving.connect();
    old.send_option(EXPORT_NAME, b"");
    assert_eq!(old.take(10)[..8], wire(SIZE, 8));
    old.write(4096, &[7; 8192]);
    assert_eq!(old.simple(READ, 0, 4096, 8192, b""), (0, vec![7; 8192]));
    for (at, len) in [(512, 4096), (4096, 512), (4096, 1), (1, 8192)] {
        assert_eq!(old.simple(READ, 0, at, len, b"").0, EINVAL);
        assert_eq!(old.simple(WRITE, 0, at, len, &vec![9; len as usize]).0, EINVAL);
        assert_eq!(old.simple(TRIM, 0, at, len, b"").0, EINVAL);
        assert_eq!(old.simple(ZERO, 0, at, len, b"").0, EINVAL);
    }
    assert_eq!(old.simple(READ, 0, 4096, 8192, b""), (0, vec![7; 8192]), "none of it was stored");
}
