//! Options from any bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A 32-bit number as it is on the wire.
fn u32(number: usize) -> [u8; 4] {
    let number = number as u32;
    [24, 16, 8, 0].map(|shift| (number >> shift) as u8)
}

fn prefixed(text: &str) -> Vec<u8> {
    [&u32(text.len())[..], text.as_bytes()].concat()
}

#[test]
fn a_header_has_its_magic() {
    let mut bytes = b"IHAVEOPT\0\0\0\x07\0\0\x01\x02".to_vec();
    let header = OptionHeader { option: Opt::Go, number: 7, len: 0x102 };
    assert_eq!(OptionHeader::parse(&bytes), Some(header));
    bytes[11] = 99;
    assert_eq!(OptionHeader::parse(&bytes).unwrap().option, Opt::Unknown);
    bytes[0] = b'J';
    assert_eq!(OptionHeader::parse(&bytes), None);
    assert_eq!(OptionHeader::parse(&bytes[..15]), None);
}

#[test]
fn a_choice_takes_all_of_its_data() {
    let mut bytes = [&prefixed("disk")[..], &[0, 3, 0, 1, 0, 3, 0, 77]].concat();
    let choice = Choice::parse(&bytes).unwrap();
    assert_eq!(choice.name, "disk");
    assert!(choice.wants_name && choice.wants_block_sizes && !choice.wants_description);
    bytes.push(0);
    assert_eq!(Choice::parse(&bytes), None, "something is left over");
    for cut in 0..bytes.len() - 1 {
        assert_eq!(Choice::parse(&bytes[..cut]), None, "cut off at {cut}");
    }
}

#[test]
fn names_are_text_without_nul_and_not_too_long() {
    assert_eq!(Choice::parse_name(b"").unwrap().name, "");
    assert_eq!(Choice::parse_name(b"a\0b"), None);
    assert_eq!(Choice::parse_name(b"\xff"), None);
    assert!(Choice::parse_name(&[b'x'; MAX_STRING_BYTES]).is_some());
    assert_eq!(Choice::parse_name(&[b'x'; MAX_STRING_BYTES + 1]), None);
}

#[test]
fn queries_have_namespaces() {
    let query = |queries: &[&str]| {
        let mut bytes = [prefixed("e"), u32(queries.len()).to_vec()].concat();
        queries.iter().for_each(|query| bytes.extend(prefixed(query)));
        bytes
    };
    let bytes = query(&["base:", "x-mine:all"]);
    let parsed = MetaQuery::parse(&bytes).unwrap();
    assert_eq!(parsed, MetaQuery { name: "e", queries: vec!["base:", "x-mine:all"] });
    assert_eq!(MetaQuery::parse(&query(&["base"])), None);
    assert_eq!(MetaQuery::parse(&query(&[""])), None);
    let many = [prefixed("e"), vec![0xff; 4]].concat();
    assert_eq!(MetaQuery::parse(&many), None, "four thousand million queries of nothing");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_an_option_or_not(bytes in vec(any::<u8>(), 0..200)) {
        let _ = (OptionHeader::parse(&bytes), Choice::parse(&bytes), MetaQuery::parse(&bytes));
        let _ = Choice::parse_name(&bytes);
    }

    #[test]
    fn what_was_chosen_is_what_was_sent(name in "[^\0]{0,40}", wishes in vec(0_u16..6, 0..9)) {
        let mut bytes = prefixed(&name);
        bytes.extend([0, wishes.len() as u8]);
        wishes.iter().for_each(|wish| bytes.extend([0, *wish as u8]));
        let choice = Choice::parse(&bytes).unwrap();
        prop_assert_eq!(choice.name, &name[..]);
        prop_assert_eq!(choice.wants_name, wishes.contains(&1));
        prop_assert_eq!(choice.wants_description, wishes.contains(&2));
        prop_assert_eq!(choice.wants_block_sizes, wishes.contains(&3));
    }

    #[test]
    fn what_was_asked_is_what_was_sent(name in "[^\0]{0,40}", queries in vec("[a-z]{0,5}:[^\0]{0,9}", 0..9)) {
        let mut bytes = prefixed(&name);
        bytes.extend(u32(queries.len()));
        queries.iter().for_each(|query| bytes.extend(prefixed(query)));
        let parsed = MetaQuery::parse(&bytes).unwrap();
        prop_assert_eq!(parsed.name, &name[..]);
        prop_assert_eq!(parsed.queries, queries);
    }
}
