//! Bytes of single structures: what is parsed is within what was given, and says the same.

use crate::bytes::Bytes;
use crate::wire::{
    CLIENT_FLAGS_BYTES, Choice, ClientFlags, MetaQuery, OPTION_HEADER_BYTES, OptionHeader,
    REQUEST_BYTES, Request,
};

/// Longest string of the protocol.
const MAX_STRING: usize = 4096;

/// Parses what stands behind the first byte, which says as what.
pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    match kind % 6 {
        0 => header(data),
        1 => choice(data),
        2 => {
            if let Some(choice) = Choice::parse_name(data) {
                assert!(choice.name.as_bytes() == data && is_text(choice.name));
            }
        }
        3 => meta(data),
        4 => request(data),
        _ => {
            let parsed = ClientFlags::parse(data);
            assert!(parsed.is_none() || data.len() == CLIENT_FLAGS_BYTES);
        }
    }
}

fn is_text(text: &str) -> bool {
    text.len() <= MAX_STRING && !text.contains('\0')
}

fn header(data: &[u8]) {
    let Some(header) = OptionHeader::parse(data) else {
        return;
    };
    assert!(data.len() == OPTION_HEADER_BYTES && data.starts_with(b"IHAVEOPT"));
    let mut rest = Bytes(&data[8..]);
    assert_eq!(rest.number(4), Some(u64::from(header.number)));
    assert_eq!(rest.number(4), Some(u64::from(header.len)));
}

fn choice(data: &[u8]) {
    let Some(choice) = Choice::parse(data) else {
        return;
    };
    let mut rest = Bytes(data);
    let len = rest.number(4).expect("it was parsed");
    assert_eq!(rest.take(len as usize), Some(choice.name.as_bytes()));
    assert!(is_text(choice.name));
    let count = rest.number(2).expect("it was parsed");
    let wishes: Vec<u64> = (0..count).filter_map(|_| rest.number(2)).collect();
    assert!(wishes.len() as u64 == count && rest.0.is_empty());
    assert_eq!(choice.wants_name, wishes.contains(&1));
    assert_eq!(choice.wants_description, wishes.contains(&2));
    assert_eq!(choice.wants_block_sizes, wishes.contains(&3));
}

fn meta(data: &[u8]) {
    let Some(query) = MetaQuery::parse(data) else {
        return;
    };
    let mut again = Vec::new();
    let put = |into: &mut Vec<u8>, text: &str| {
        assert!(is_text(text));
        into.extend((text.len() as u32).to_be_bytes());
        into.extend(text.as_bytes());
    };
    put(&mut again, query.name);
    again.extend((query.queries.len() as u32).to_be_bytes());
    for one in &query.queries {
        assert!(one.contains(':'));
        put(&mut again, one);
    }
    assert_eq!(again, data);
}

fn request(data: &[u8]) {
    let Ok(request) = Request::parse(data) else {
        return;
    };
    assert_eq!(data.len(), REQUEST_BYTES);
    let mut rest = Bytes(&data[8..]);
    assert_eq!(rest.number(8), Some(request.cookie));
    assert_eq!(rest.number(8), Some(request.at));
    assert_eq!(rest.number(4), Some(u64::from(request.len)));
}
