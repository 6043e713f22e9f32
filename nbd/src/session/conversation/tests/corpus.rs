//! Where fuzzing begins (nbd/fuzz): the conversations of these tests, as files. With LODE_WRITE_CORPUS=1 they are
//! written anew.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// What is served, of which the fuzzer knows the bits: sectors of 512 or 4096 bytes, encryption, and so on.
const MODES: [(&str, u8); 8] = [
    ("plain", 0),
    ("sectors-512", 1),
    ("sectors-4096", 2),
    ("tls-possible", 4),
    ("tls-required", 8),
    ("read-only", 16),
    ("large", 32 | 64),
    ("bad", 32 | 128),
];

/// Size of the device that the fuzzer serves where it is small.
const FUZZED: u64 = (96 << 10) + 77;

type Files = BTreeMap<String, Vec<u8>>;

/// The bytes that say how a client's come: at once or in pieces.
fn with_setup(mode: u8, pieces: u8, conversation: &[u8]) -> Vec<u8> {
    [&[mode, pieces, 0, 13][..], conversation].concat()
}

fn aligned_requests() -> Vec<u8> {
    let data = [7; 8192];
    let asked = [(1, 0, 4096, 8192), (0, 0, 0, 16384), (6, 2, 8192, 4096), (7, 0, 0, 65536)];
    let bytes = asked.map(|(command, flags, at, len)| {
        request(command, flags, at, len, if command == 1 { &data } else { b"" })
    });
    bytes.concat()
}

/// Ranges that end at the end, before and behind it.
fn edges() -> Vec<u8> {
    let mut all = Vec::new();
    for command in [0, 1, 4, 5, 6, 7] {
        for (at, len) in
            [(FUZZED - 4, 4), (FUZZED - 4, 5), (FUZZED, 1), (u64::MAX, 1), (FUZZED + 9, 0)]
        {
            let data = &[7; 9][..if command == 1 { len as usize } else { 0 }];
            all.extend(request(command, 0, at, len, data));
        }
    }
    all
}

fn conversations() -> Files {
    let start_tls = [vec![0, 0, 0, 3], option(3, b""), option(5, b"")].concat();
    let old = [vec![0, 0, 0, 1], option(1, b"e"), requests()].concat();
    let mut files = Files::new();
    for (name, mode) in MODES {
        for structured in [false, true] {
            let behind = [handshake(structured), aligned_requests(), requests()].concat();
            let encrypted = [&start_tls[..], &behind[4..]].concat();
            let all = if mode & 12 != 0 { encrypted } else { behind };
            let kind = if structured { "chunks" } else { "simple" };
            files.insert(format!("{name}-{kind}"), with_setup(mode, 0, &all));
            files.insert(format!("{name}-{kind}-pieces"), with_setup(mode, 9, &all));
        }
        files.insert(format!("{name}-old"), with_setup(mode, 0, &old));
    }
    for structured in [false, true] {
        let all = [handshake(structured), edges()].concat();
        files.insert(format!("edges-{structured}"), with_setup(0, 0, &all));
    }
    // What was agreed on before encryption is not asked for again.
    let forgets = [&[0, 0, 0, 3][..], &option(8, b""), &option(5, b""), &handshake(false)[4..]];
    let forgets = [&forgets.concat()[..], &requests()].concat();
    files.insert("tls-forgets".into(), with_setup(4, 0, &forgets));
    let closing = [handshake(true), aligned_requests()].concat();
    files.insert("closing".into(), [&[0, 200, 9, 13][..], &closing].concat());
    let long =
        [handshake(true), request(0, 4, 1, 2_500_000, b""), request(0, 0, 0, 2_600_000, b"")];
    files.insert("long-reads".into(), with_setup(32, 0, &long.concat()));
    let write = [handshake(false), request(1, 1, 0, 2_600_000, b"x")].concat();
    files.insert("long-write".into(), with_setup(32 | 64, 0, &write));
    files
}

fn structures() -> Files {
    let options = [
        ("header", 0, option(7, b"")),
        ("choice", 1, b"\0\0\0\x01e\0\x03\0\x01\0\x02\0\x03".to_vec()),
        ("name", 2, b"e".to_vec()),
        ("contexts", 3, b"\0\0\0\x01e\0\0\0\x01\0\0\0\x0fbase:allocation".to_vec()),
        ("request", 4, request(7, 8, 1 << 40, 4096, b"")),
        ("flags", 5, vec![0, 0, 0, 3]),
    ];
    options.map(|(name, kind, bytes)| (name.into(), [vec![kind], bytes].concat())).into()
}

fn found(directory: &Path) -> Files {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let name = |entry: &std::fs::DirEntry| entry.file_name().into_string().unwrap();
    entries.map(|entry| (name(&entry), std::fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn the_corpus_is_these_conversations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (target, files) in [("conversation", conversations()), ("parsers", structures())] {
        let directory = corpus.join(target);
        if std::env::var_os("LODE_WRITE_CORPUS").is_some() {
            let _ = std::fs::remove_dir_all(&directory);
            std::fs::create_dir_all(&directory).unwrap();
            for (name, bytes) in &files {
                std::fs::write(directory.join(name), bytes).unwrap();
            }
        }
        let there = found(&directory);
        assert!(there == files, "{target}: LODE_WRITE_CORPUS=1 writes what is to be there");
    }
}
