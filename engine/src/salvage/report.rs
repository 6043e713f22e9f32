//! What a salvage tells while it works.

use alloc::vec::Vec;

use crate::{Corruption, Ino};

/// Something that a salvage did. Names and paths are bytes as in directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Salvage<'a> {
    /// Both watermarks of a lane were damaged, and are written anew.
    WatermarkReset {
        /// The lane.
        lane: u32,
    },
    /// The header of an inode table was damaged, or a link to one; the checkpoint says what it was.
    ChainMended {
        /// What was damaged, and where.
        damage: Corruption,
    },
    /// Nothing leads from there to the next inode tables of a lane any more, and no checkpoint says
    /// where they are: they were searched for. Inodes of those that were not found are lost.
    TablesFound {
        /// What is damaged, and where.
        damage: Corruption,
        /// Tables found.
        tables: usize,
    },
    /// The checkpoint of a pool that was closed can't be read: what the logs say is kept, and
    /// whether one of them has lost its end nobody can tell.
    CheckpointLost {
        /// What is damaged, and where.
        damage: Corruption,
    },
    /// The list of snapshots can't be read: they are given up, all of them.
    SnapshotsLost {
        /// What is damaged, and where.
        damage: Corruption,
    },
    /// A line of the sector journal can't be read: a write that it told of may be torn.
    SectorsLost {
        /// Where it is.
        damage: Corruption,
    },
    /// An inode can't be read: it is given up, with its contents. Of a directory, the
    /// entries that could be read are kept.
    Discarded {
        /// What is damaged, and where.
        damage: Corruption,
        /// It is a directory, and so many entries could be read.
        entries: Option<usize>,
    },
    /// There is a new root directory, in place of one that was given up, with its owner's rights alone.
    RootMade,
    /// An entry led to no inode, or to another than it said: it is removed, or was in a directory that
    /// was given up.
    EntryRemoved {
        /// The directory's path.
        dir: &'a [u8],
        /// The entry's name.
        name: &'a [u8],
        /// Where it led.
        ino: Ino,
    },
    /// A directory that was given up is there again, without extended attributes, and with its owner's
    /// rights alone: which ones others had, and had lost, nobody knows.
    DirectoryMade {
        /// The number it had.
        ino: Ino,
        /// Where it is now.
        path: &'a [u8],
        /// Names of attributes that it had, as far as they can be read (64 at most).
        attributes: &'a [Vec<u8>],
    },
    /// An inode that nothing led to has a name again.
    Attached {
        /// The inode.
        ino: Ino,
        /// The directory's path.
        dir: &'a [u8],
        /// Its name there.
        name: &'a [u8],
    },
    /// The link count of an inode was wrong.
    LinksSet {
        /// The inode.
        ino: Ino,
        /// A path of it, if there is one.
        path: Option<&'a [u8]>,
        /// Its links.
        links: u32,
    },
    /// The value of an extended attribute can't be read: it is removed.
    AttributeRemoved {
        /// The inode.
        ino: Ino,
        /// A path of it, if there is one.
        path: Option<&'a [u8]>,
        /// The attribute's name.
        name: &'a [u8],
        /// It was the access list: without it the mode's bits of the group, which were its mask, would
        /// be the group's rights, and are cleared with it.
        group_cleared: bool,
    },
}

/// Who is told.
pub(super) type Told<'t> = &'t mut dyn FnMut(Salvage<'_>);
