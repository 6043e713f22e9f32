//! Entries as a kernel fills them, and what it finds in them afterwards.

use fuse_abi::linux::{fuse_in_header, fuse_opcode as op, fuse_out_header};
use proptest::prelude::*;

use super::entry::Entry;
use super::layout::Heads;
use super::*;
use crate::wire::samples::{NODE, Sample, UNIQUE, all};
use crate::wire::{Answer, Errno, NodeId, Scratch};

const ROOM: usize = 4096;

/// An entry with a request in it, as the kernel parts it: header, structure, data.
fn filled(opcode: u32, own: &[u8], data: &[u8]) -> Entry {
    let mut entry = Entry::new(3, ROOM).unwrap();
    let len = (size_of::<fuse_in_header>() + own.len() + data.len()) as u32;
    let header = fuse_in_header { len, opcode, unique: UNIQUE, nodeid: NODE, ..Default::default() };
    *entry.heads = Heads::of_request(&header, own, data.len() as u32);
    entry.data.room(data.len()).unwrap().copy_from_slice(data);
    entry
}

fn of_sample(sample: &Sample) -> Entry {
    let (own, data) = sample.body.split_at(sample.own);
    filled(sample.opcode as u32, own, data)
}

/// What the kernel finds: the header, and the data.
fn found(entry: &mut Entry) -> (fuse_out_header, Vec<u8>) {
    let bytes = entry.heads.data_bytes as usize;
    (entry.heads.answered(), entry.data.room(bytes).unwrap().to_vec())
}

fn worked(
    entry: &mut Entry,
    answer: impl for<'s> Fn(&mut &'s mut Scratch) -> Result<Answer<'s>, Errno>,
) -> (fuse_out_header, Vec<u8>) {
    let mut spare = Spare::new(ROOM);
    entry.work(&mut spare, &mut |_, mut scratch, send| send(&answer(&mut scratch)));
    found(entry)
}

#[test]
fn requests_in_parts_mean_what_they_mean_in_one_piece() {
    for sample in all() {
        let mut seen = None;
        of_sample(&sample).work(&mut Spare::new(ROOM), &mut |incoming, _, send| {
            let request = incoming.request.unwrap();
            assert_eq!(request.operation, sample.operation, "{:?}", sample.opcode);
            seen = Some((incoming.unique, request.node));
            send(&Ok(Answer::Done));
        });
        assert_eq!(seen, Some((Some(UNIQUE), NodeId(NODE))), "{:?}", sample.opcode);
    }
}

#[test]
fn an_answer_is_in_the_entry_wherever_its_bytes_were() {
    let whole = |(header, data): (fuse_out_header, Vec<u8>)| {
        assert_eq!((header.unique, header.error), (UNIQUE, 0));
        assert_eq!(header.len as usize, size_of::<fuse_out_header>() + data.len());
        data
    };
    for sample in all() {
        let entry = || of_sample(&sample);
        assert!(whole(worked(&mut entry(), |_| Ok(Answer::Done))).is_empty());
        let written = whole(worked(&mut entry(), |_| Ok(Answer::written(7))));
        assert_eq!(written, [7, 0, 0, 0, 0, 0, 0, 0]);
        // From the memory that is given, all of it or a part; longer than what is copied on the way.
        for bytes in [1, 100, ROOM] {
            let data = whole(worked(&mut entry(), |scratch| {
                let room = std::mem::replace(scratch, Box::leak(Box::new(Scratch::new(0))));
                let room = room.room(bytes)?;
                room.fill(b'r');
                Ok(Answer::data(room))
            }));
            assert_eq!(data, vec![b'r'; bytes], "{:?}", sample.opcode);
        }
        let owned = || Ok(Answer::Data(vec![b'o'; 1000].into()));
        assert_eq!(whole(worked(&mut entry(), |_| owned())), vec![b'o'; 1000]);
        let (header, data) = worked(&mut entry(), |_| Err(Errno::ENOENT));
        assert_eq!((header.error, header.len, data.len()), (-libc::ENOENT, 16, 0));
    }
}

#[test]
fn an_answer_that_has_no_room_is_an_error() {
    let mut entry = filled(op::FUSE_READLINK as u32, &[], &[]);
    let (header, data) = worked(&mut entry, |_| Ok(Answer::Data(vec![0; ROOM + 1].into())));
    assert_eq!((header.unique, header.len, data.len()), (UNIQUE, 16, 0));
    assert!(header.error < 0);
}

#[test]
fn who_works_and_says_nothing_has_failed() {
    let mut entry = filled(op::FUSE_STATFS as u32, &[], &[]);
    entry.work(&mut Spare::new(ROOM), &mut |_, _, _| {});
    assert_eq!(found(&mut entry).0.error, -libc::EIO);
}

proptest! {
    /// Lengths that do not fit together, numbers that there are not: an answer, and nothing else.
    #[test]
    fn any_heads_are_answered(
        len in prop_oneof![any::<u32>(), 0..400_u32],
        opcode in prop_oneof![any::<u32>(), 0..60_u32],
        own in proptest::collection::vec(any::<u8>(), 0..128),
        data_bytes in prop_oneof![any::<u32>(), 0..200_u32],
    ) {
        let mut entry = Entry::new(0, ROOM).unwrap();
        let header = fuse_in_header { len, opcode, unique: UNIQUE, ..Default::default() };
        *entry.heads = Heads::of_request(&header, &own, data_bytes);
        let mut asked = 0;
        entry.work(&mut Spare::new(ROOM), &mut |_, _, send| {
            asked += 1;
            send(&Ok(Answer::Done));
        });
        let (header, data) = found(&mut entry);
        prop_assert!(asked <= 1 && data.is_empty());
        prop_assert!(asked == 1 || header.error < 0);
    }
}
