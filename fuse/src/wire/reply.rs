//! Answers: each kind with the structure that the kernel expects for it.

use std::borrow::Cow;
use std::time::Duration;

use fuse_abi::linux::{
    fuse_attr, fuse_attr_out, fuse_entry_out, fuse_getxattr_out, fuse_kstatfs, fuse_lseek_out,
    fuse_open_out, fuse_out_header, fuse_statfs_out, fuse_statx, fuse_statx_out, fuse_write_out,
};
use zerocopy::IntoBytes;

use super::errno::Errno;
use super::request::NodeId;

/// What a request that succeeds is answered with.
#[derive(Clone, Debug)]
pub enum Answer<'a> {
    /// It is done.
    Done,
    /// An inode, under a name.
    Entry(fuse_entry_out),
    /// Attributes.
    Attr(fuse_attr_out),
    /// Attributes, with the time of birth.
    Statx(fuse_statx_out),
    /// A file or directory is open.
    Opened(fuse_open_out),
    /// A file was made, and is open.
    Created(fuse_entry_out, fuse_open_out),
    /// How many bytes were written or copied.
    Written(fuse_write_out),
    /// How many bytes the data has that was not asked for.
    Size(fuse_getxattr_out),
    /// How much room there is.
    Space(fuse_statfs_out),
    /// A place in a file.
    Position(fuse_lseek_out),
    /// Data: of files, links, listings and attributes.
    Data(Cow<'a, [u8]>),
}

/// An inode that an answer names; the kernel counts it as one lookup.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The number by which the kernel will call it.
    pub node: NodeId,
    /// Its attributes, with the number that users see.
    pub attr: fuse_attr,
    /// Differs between the lives of one number.
    pub generation: u64,
    /// How long the attributes may be kept.
    pub attr_ttl: Duration,
    /// How long the name may be kept.
    pub entry_ttl: Duration,
}

impl From<Entry> for fuse_entry_out {
    fn from(entry: Entry) -> Self {
        Self {
            nodeid: entry.node.0,
            generation: entry.generation,
            entry_valid: entry.entry_ttl.as_secs(),
            attr_valid: entry.attr_ttl.as_secs(),
            entry_valid_nsec: entry.entry_ttl.subsec_nanos(),
            attr_valid_nsec: entry.attr_ttl.subsec_nanos(),
            attr: entry.attr,
        }
    }
}

impl<'a> Answer<'a> {
    /// An inode, under the name that was asked for.
    pub fn entry(entry: Entry) -> Self {
        Self::Entry(entry.into())
    }

    /// A new inode, whose file is open and treated by these `FOPEN_` flags.
    pub fn created(entry: Entry, open_flags: u32) -> Self {
        Self::Created(entry.into(), fuse_open_out { open_flags, ..fuse_open_out::default() })
    }

    /// There is no such name, and that may be kept for so long: an entry of inode number 0.
    pub fn absent(entry_ttl: Duration) -> Self {
        let attr = fuse_attr::default();
        let (node, attr_ttl) = (NodeId(0), Duration::ZERO);
        let nothing = Entry { node, attr, generation: 0, attr_ttl, entry_ttl };
        Self::entry(nothing)
    }

    /// Attributes, and how long they may be kept.
    pub fn attr(attr: fuse_attr, ttl: Duration) -> Self {
        let (attr_valid, attr_valid_nsec) = (ttl.as_secs(), ttl.subsec_nanos());
        Self::Attr(fuse_attr_out { attr_valid, attr_valid_nsec, dummy: 0, attr })
    }

    /// Attributes with the time of birth, and how long they may be kept.
    pub fn statx(stat: fuse_statx, ttl: Duration) -> Self {
        let (attr_valid, attr_valid_nsec) = (ttl.as_secs(), ttl.subsec_nanos());
        Self::Statx(fuse_statx_out { attr_valid, attr_valid_nsec, flags: 0, spare: [0; 2], stat })
    }

    /// What was opened is treated by these `FOPEN_` flags.
    pub fn opened(open_flags: u32) -> Self {
        Self::Opened(fuse_open_out { open_flags, ..fuse_open_out::default() })
    }

    /// The same, with the number by which the kernel will call it.
    pub fn opened_as(handle: u64, open_flags: u32) -> Self {
        Self::Opened(fuse_open_out { fh: handle, open_flags, ..fuse_open_out::default() })
    }

    /// So many bytes were written or copied.
    pub fn written(size: u32) -> Self {
        Self::Written(fuse_write_out { size, padding: 0 })
    }

    /// The data has so many bytes.
    pub fn size(size: u32) -> Self {
        Self::Size(fuse_getxattr_out { size, padding: 0 })
    }

    /// How much room there is.
    pub fn space(st: fuse_kstatfs) -> Self {
        Self::Space(fuse_statfs_out { st })
    }

    /// The place that was looked for.
    pub fn position(offset: u64) -> Self {
        Self::Position(fuse_lseek_out { offset })
    }

    /// Data that the thread's memory holds.
    pub fn data(bytes: &'a [u8]) -> Self {
        Self::Data(Cow::Borrowed(bytes))
    }

    /// What follows the header; what is empty is not there.
    fn parts(&self) -> [&[u8]; 2] {
        match self {
            Self::Done => [&[], &[]],
            Self::Entry(entry) => [entry.as_bytes(), &[]],
            Self::Attr(attr) => [attr.as_bytes(), &[]],
            Self::Statx(attr) => [attr.as_bytes(), &[]],
            Self::Opened(opened) => [opened.as_bytes(), &[]],
            Self::Created(entry, opened) => [entry.as_bytes(), opened.as_bytes()],
            Self::Written(written) => [written.as_bytes(), &[]],
            Self::Size(size) => [size.as_bytes(), &[]],
            Self::Space(space) => [space.as_bytes(), &[]],
            Self::Position(position) => [position.as_bytes(), &[]],
            Self::Data(data) => [data, &[]],
        }
    }
}

/// An answer with its header: what is written to the device.
#[derive(Debug)]
pub struct Reply<'a> {
    header: fuse_out_header,
    body: [&'a [u8]; 2],
}

impl<'a> Reply<'a> {
    /// The answer to the request `unique`.
    pub fn new(unique: u64, answer: &'a Result<Answer<'_>, Errno>) -> Self {
        let none: [&[u8]; 2] = [&[], &[]];
        let (error, body) = match answer {
            Ok(answer) => (0, answer.parts()),
            Err(error) => (-error.code(), none),
        };
        let [one, other] = body;
        let bytes = size_of::<fuse_out_header>() + one.len() + other.len();
        match u32::try_from(bytes) {
            Ok(len) => Self { header: fuse_out_header { len, error, unique }, body },
            Err(_) => {
                let len = size_of::<fuse_out_header>() as u32;
                let error = -Errno::EIO.code();
                Self { header: fuse_out_header { len, error, unique }, body: none }
            }
        }
    }

    /// The bytes, in order.
    pub fn parts(&self) -> [&[u8]; 3] {
        let [one, other] = self.body;
        [self.header.as_bytes(), one, other]
    }

    /// The header.
    pub fn header(&self) -> fuse_out_header {
        self.header
    }

    /// What follows the header.
    pub fn body(&self) -> [&'a [u8]; 2] {
        self.body
    }
}

#[cfg(test)]
mod tests {
    use fuse_abi::linux::fuse_out_header;
    use zerocopy::FromBytes;

    use super::*;

    /// All bytes of a reply, and its header.
    fn sent(answer: &Result<Answer<'_>, Errno>) -> (Vec<u8>, fuse_out_header) {
        let bytes = Reply::new(77, answer).parts().concat();
        let (header, _) = fuse_out_header::read_from_prefix(&bytes).unwrap();
        (bytes, header)
    }

    /// The sizes that the kernel's header gives for every minor version from the oldest that
    /// is served, 31, to the newest that is known. (It has smaller ones for those below 23.)
    #[test]
    fn each_kind_has_the_size_the_kernel_expects() {
        let attr = fuse_attr::default();
        let (attr_ttl, entry_ttl) = (Duration::ZERO, Duration::ZERO);
        let entry = Entry { node: NodeId(1), attr, generation: 1, attr_ttl, entry_ttl };
        let kinds = [
            (Answer::Done, 0),
            (Answer::entry(entry), 128),
            (Answer::absent(Duration::ZERO), 128),
            (Answer::attr(attr, Duration::ZERO), 104),
            (Answer::statx(fuse_statx::default(), Duration::ZERO), 288),
            (Answer::opened(1), 16),
            (Answer::opened_as(1, 1), 16),
            (Answer::created(entry, 1), 144),
            (Answer::written(1), 8),
            (Answer::size(1), 8),
            (Answer::space(fuse_kstatfs::default()), 80),
            (Answer::position(1), 8),
            (Answer::data(b""), 0),
            (Answer::data(b"twelve bytes"), 12),
        ];
        for (answer, size) in kinds {
            let name = format!("{answer:?}");
            let (bytes, header) = sent(&Ok(answer));
            assert_eq!(bytes.len(), 16 + size, "{name}");
            assert_eq!((header.len as usize, header.error, header.unique), (16 + size, 0, 77));
        }
    }

    #[test]
    fn an_error_is_a_header_with_a_negative_number() {
        let (bytes, header) = sent(&Err(Errno::ENOENT));
        assert_eq!((bytes.len(), header.len, header.error), (16, 16, -libc::ENOENT));
    }

    #[test]
    fn times_to_live_keep_their_parts() {
        let attr = fuse_attr { ino: 9, ..fuse_attr::default() };
        let (attr_ttl, entry_ttl) = (Duration::new(3, 4), Duration::new(5, 6));
        let entry = Entry { node: NodeId(11), attr, generation: 7, attr_ttl, entry_ttl };
        let entry = fuse_entry_out::from(entry);
        assert_eq!((entry.nodeid, entry.attr.ino, entry.generation), (11, 9, 7));
        assert_eq!((entry.attr_valid, entry.attr_valid_nsec), (3, 4));
        assert_eq!((entry.entry_valid, entry.entry_valid_nsec), (5, 6));
    }
}
