//! Records byte by byte.

use super::*;

/// As the format has it, byte by byte: what stands at which offset, the rest zero.
fn line(kind: u8, aux: u8, fields: &[(usize, &[u8])]) -> [u8; 64] {
    let mut raw = [0; 64];
    let header: [&[u8]; 8] = [
        &[kind, aux],
        &0x0201u16.to_le_bytes(),
        &0x0403u16.to_le_bytes(),
        &[5],
        &[6],
        &0x0a09_0807u32.to_le_bytes(),
        &0x0e0d_0c0bu32.to_le_bytes(),
        &[],
    ];
    let mut at = 0;
    for part in header {
        raw[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    for (at, field) in fields {
        raw[*at..*at + field.len()].copy_from_slice(field);
    }
    raw
}

#[test]
fn each_record_is_as_the_format_has_it_whatever_was_in_its_place() {
    let txid = Txid { session: 0x0e0d_0c0b, lane: 5, sequence: 0x06_0a09_0807 };
    let header = Header { txid, part: 0x0201, parts: 0x0403 };
    let (time_ns, long) = (-2i64, 0x1122_3344_5566_7788u64);
    let (time, long_bytes) = (time_ns.to_le_bytes(), long.to_le_bytes());
    let text: [u8; TEXT_BYTES] = core::array::from_fn(|at| at as u8 + 1);
    let head: [u8; HEAD_TEXT] = core::array::from_fn(|at| at as u8 + 101);
    let epoch = 0xa1b2_c3d4u32.to_le_bytes();
    let four = |number: u32| number.to_le_bytes();
    let class = PageClass::Huge;
    let of = |kind, aux, fields: &[(usize, &[u8])]| {
        let mut raw = line(kind, aux, fields);
        raw[16..20].copy_from_slice(&epoch);
        raw
    };
    let (mode, links, uid, gid) = (0x8102, 0x9304, 0xdead_0001, 0xbeef_0002);
    let owner = {
        let mut both = [0; 8];
        both[..4].copy_from_slice(&four(uid));
        both[4..].copy_from_slice(&four(gid));
        both
    };
    let mode_links = [0x02, 0x81, 0x04, 0x93];
    let third = four(0xfeed_0003);
    let replaced = (long >> 8 | 0x18 << 56).to_le_bytes();
    let pages: [(usize, &[u8]); 2] = [(24, &long_bytes), (32, &time)];
    let end = u64::from_le_bytes(time);
    let all = [
        (
            Body::Inode { mode, links, uid, gid, time_ns, extra: head, text: 7 },
            of(INODE, 7, &[(20, &mode_links), (24, &owner), (32, &time), (40, &head)]),
        ),
        (Body::Text { len: 40, bytes: text }, line(TEXT, 40, &[(16, &text)])),
        (
            Body::Attr { mode, uid, gid, mtime_ns: time_ns, ctime_ns: 3, atime_ns: 4 },
            of(
                ATTR,
                0,
                &[(20, &mode_links[..2]), (24, &owner), (32, &time), (40, &[3]), (48, &[4])],
            ),
        ),
        (
            Body::Links { links: 0xfeed_0003, parent: long, ctime_ns: time_ns },
            of(LINKS, 0, &[(20, &third), (24, &long_bytes), (32, &time)]),
        ),
        (
            Body::Death { born: 0xfeed_0003, ctime_ns: time_ns },
            of(DEATH, 0, &[(20, &third), (32, &time)]),
        ),
        (
            Body::Add {
                name_len: 9,
                replaces: true,
                tag: 0xfeed_0003,
                time_ns,
                ino: long >> 8,
                kind: 8,
                head,
            },
            of(ADD, 9, &[(20, &third), (24, &time), (32, &replaced), (40, &head)]),
        ),
        (
            Body::Del {
                txid: Txid { session: 0xfeed_0003, lane: 4, sequence: 9 },
                part: 0x1413,
                time_ns,
            },
            of(
                DEL,
                0,
                &[(20, &third), (24, &time), (32, &[9, 0, 0, 0, 0, 4]), (40, &[0x13, 0x14])],
            ),
        ),
        (
            Body::Map { class, pages: 0xfeed_0003, file_page: long, page: 5, time_ns, size: 6 },
            of(
                MAP,
                class as u8,
                &[(20, &third), (24, &long_bytes), (32, &[5]), (40, &time), (48, &[6])],
            ),
        ),
        (
            Body::Size { class, truncate: true, size: long, time_ns },
            of(SIZE, class as u8, &[(20, &[1]), (24, &long_bytes), (32, &time)]),
        ),
        (
            Body::Unmap { file_page: long, pages: 5, time_ns, size: 6 },
            of(UNMAP, 0, &[(24, &long_bytes), (32, &[5]), (40, &time), (48, &[6])]),
        ),
        (
            Body::Journal {
                len: 0xfeed_0003,
                file_offset: long,
                journal_at: 5,
                time_ns,
                home_at: 6,
            },
            of(JOURNAL, 0, &[(20, &third), (24, &long_bytes), (32, &[5]), (40, &time), (48, &[6])]),
        ),
        (Body::Retire, of(RETIRE, 0, &[])),
        (Body::Pad, line(PAD, 0, &[])),
        (
            Body::Xattr { name_len: 9, runs: 2, value_len: 0xfeed_0003, crc: uid, time_ns },
            of(XATTR, 9, &[(20, &third), (24, &time), (32, &owner[..4]), (36, &[2])]),
        ),
        (Body::Xdel { name_len: 9, time_ns }, of(XDEL, 9, &[(24, &time)])),
        (Body::Exempt { file_page: long, pages: end }, of(EXEMPT, 0, &pages)),
        (Body::Whole { file_page: long, pages: end }, of(WHOLE, 0, &pages)),
    ];
    for (body, expected) in all {
        let mut line = Line([0xff; 64]);
        body.encode_in(&header, 0xa1b2_c3d4, &mut line);
        assert_eq!(line.0, expected, "{body:?}");
    }
}
