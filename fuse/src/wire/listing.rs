//! Listings: entries, one behind the other, as many as there is room for.

use fuse_abi::linux::{fuse_dirent, fuse_entry_out};
use zerocopy::IntoBytes;

use super::reply::Answer;
use super::request::NodeId;

/// Entries begin at multiples of this.
const STEP: usize = 8;
/// The bytes of an entry before its name.
const HEAD: usize = size_of::<fuse_dirent>();

/// Whether a listing goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// There may be room for more.
    Left,
    /// The entry did not fit; it is not in the listing.
    Full,
}

/// An answer that grows entry by entry.
#[derive(Debug)]
pub struct Listing<'a> {
    room: &'a mut [u8],
    used: usize,
}

impl<'a> Listing<'a> {
    /// No entries yet, in `room`.
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, used: 0 }
    }

    /// Adds the name of an inode. `behind` is the place behind the entry, where the next
    /// listing begins; of `mode` the bits of the type count.
    pub fn add(&mut self, node: NodeId, behind: u64, mode: u32, name: &[u8]) -> Room {
        self.put(&[], node, behind, mode, name)
    }

    /// As [`Listing::add`], with what a lookup of the name would answer.
    pub fn add_entry(
        &mut self,
        entry: &fuse_entry_out,
        behind: u64,
        mode: u32,
        name: &[u8],
    ) -> Room {
        self.put(entry.as_bytes(), NodeId(entry.attr.ino), behind, mode, name)
    }

    /// The answer.
    pub fn finish(self) -> Answer<'a> {
        let (room, used) = (self.room, self.used);
        Answer::data(room.get(..used).unwrap_or_default())
    }

    fn put(&mut self, entry: &[u8], node: NodeId, behind: u64, mode: u32, name: &[u8]) -> Room {
        let Ok(namelen) = u32::try_from(name.len()) else {
            return Room::Full;
        };
        let bytes = (entry.len() + HEAD + name.len()).next_multiple_of(STEP);
        let end = self.used.saturating_add(bytes);
        let Some(place) = self.room.get_mut(self.used..end) else {
            return Room::Full;
        };
        let type_ = (mode & libc::S_IFMT) >> 12;
        let head =
            fuse_dirent { ino: node.0, off: behind, namelen, type_, name: Default::default() };
        // The room is used again and again: what is between entries is made empty.
        place.fill(0);
        let mut place = place;
        for part in [entry, head.as_bytes(), name] {
            let Some((here, rest)) = place.split_at_mut_checked(part.len()) else {
                return Room::Full;
            };
            here.copy_from_slice(part);
            place = rest;
        }
        self.used = end;
        Room::Left
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;

    fn bytes(listing: Listing<'_>) -> Vec<u8> {
        match listing.finish() {
            Answer::Data(bytes) => bytes.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn entries_are_as_the_kernel_reads_them() {
        let mut room = [0xff; 100];
        let mut listing = Listing::new(&mut room);
        assert_eq!(listing.add(NodeId(7), 3, libc::S_IFDIR | 0o755, b"name"), Room::Left);
        assert_eq!(listing.add(NodeId(8), 4, libc::S_IFREG, b"eight678"), Room::Left);
        assert_eq!(listing.add(NodeId(9), 5, libc::S_IFREG, b"123456789"), Room::Full);
        assert_eq!(listing.add(NodeId(9), 5, libc::S_IFREG, b"12345678"), Room::Left);
        let bytes = bytes(listing);
        assert_eq!(bytes.len(), 32 * 3);
        let (words, _) = <[u64; 2]>::read_from_prefix(&bytes).unwrap();
        let (halves, _) = <[u32; 2]>::read_from_prefix(&bytes[16..]).unwrap();
        assert_eq!((words, halves), ([7, 3], [4, u32::from(libc::DT_DIR)]));
        assert_eq!(&bytes[24..32], b"name\0\0\0\0");
        assert_eq!(&bytes[56..64], b"eight678");
    }

    #[test]
    fn an_entry_with_attributes_begins_with_them() {
        let mut room = [0xff; 160];
        let mut listing = Listing::new(&mut room);
        let mut entry = fuse_entry_out { nodeid: 5, ..fuse_entry_out::default() };
        entry.attr.ino = 5;
        assert_eq!(listing.add_entry(&entry, 1, libc::S_IFREG, b"x"), Room::Left);
        assert_eq!(listing.add_entry(&entry, 2, libc::S_IFREG, b"y"), Room::Full);
        let bytes = bytes(listing);
        assert_eq!(bytes.len(), 128 + 24 + 8);
        assert_eq!(&bytes[..128], entry.as_bytes());
        assert_eq!(bytes[128], 5);
        assert_eq!(&bytes[152..], b"x\0\0\0\0\0\0\0");
    }

    #[test]
    fn no_room_is_no_entry() {
        let mut listing = Listing::new(&mut []);
        assert_eq!(listing.add(NodeId(1), 1, 0, b"."), Room::Full);
        assert!(bytes(listing).is_empty());
    }
}
