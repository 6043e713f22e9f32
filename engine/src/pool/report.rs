//! What opening, checking and dumping a pool tell.

use alloc::vec::Vec;

use crate::{Attr, Corruption, SuperblockDamage};

/// How the pool was found when it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Opening {
    /// A checkpoint was loaded: the last unmount was clean.
    pub clean: bool,
    /// Inodes found.
    pub inodes: u64,
    /// Log pages walked by recovery.
    pub log_pages: u64,
    /// Transactions that a crash had cut off and that did not happen.
    pub aborted: u64,
    /// Files without a name that were open: they end with the crash.
    pub orphans: u64,
    /// Pages that programs had mapped to store into, at level `full`, when the pool was left: what is kept of them was
    /// made again of what they hold. (Read-only: what they hold is compared with nothing.)
    pub exempt_pages: u64,
    /// What was damaged of the superblocks, of the lists behind them, and of the line that tells where the second one is
    /// (and is repaired, unless read-only).
    pub superblock_damage: Vec<SuperblockDamage>,
    /// Links to inode tables that were damaged, in a pool that was closed: its checkpoint knows them
    /// (and they are repaired, unless read-only).
    pub chain_damage: Vec<Corruption>,
    /// The last unmount was clean, but its checkpoint is damaged: the pool was recovered as after
    /// a crash, and a log that lost its end since is not noticed. (A read-write session ends with
    /// a new one.)
    pub checkpoint_damage: Option<Corruption>,
    /// How often the memory has lost what was stored since the pool was opened for writing before: all of it was
    /// checked (read-only: it is still to be).
    pub losses: u64,
    /// What was being received is given up: what had begun that was cut off. (Read-only: that is still to be ended.)
    pub given_up: bool,
    /// Damage found by recovery; only a read-only open goes on with any.
    pub damage: Vec<Corruption>,
}

impl Opening {
    /// Whether anything was damaged, be it repaired or not.
    pub fn is_damaged(&self) -> bool {
        let repaired = !self.superblock_damage.is_empty() || !self.chain_damage.is_empty();
        repaired || self.checkpoint_damage.is_some() || !self.damage.is_empty()
    }
}

/// What a full check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, devices, FIFOs and sockets.
    pub others: u64,
    /// Pages reachable from metadata (metadata itself included).
    pub pages_used: u64,
    /// Free pages.
    pub pages_free: u64,
    /// Lines and words of metadata whose two copies differed, and were made the same: in a pool that is
    /// open for writes.
    pub mended: u64,
    /// Those that would be made the same, in a pool that was closed and is open read-only (the first
    /// 10,000). What a crash leaves is no damage.
    pub differing: Vec<Corruption>,
    /// All damage, in the order found (the first 10,000).
    pub damage: Vec<Corruption>,
}

/// One line of an inode's log, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordDump {
    /// Offset of the line in the pool.
    pub at: u64,
    /// Name of the kind, as in the format description.
    pub kind: &'static str,
    /// Session of its transaction.
    pub session: u32,
    /// Lane of its transaction.
    pub lane: u8,
    /// Sequence of its transaction.
    pub sequence: u64,
    /// Which line of the transaction this is.
    pub part: u16,
    /// Lines of the transaction.
    pub parts: u16,
    /// The body's fields by name, in the order of the format description.
    pub fields: Vec<(&'static str, u64)>,
    /// Name or text bytes, where the kind has any.
    pub text: Vec<u8>,
}

/// A run of a file's pages in the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentDump {
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Offset in the pool, in bytes.
    pub pool_offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// 0 4 KiB, 1 2 MiB, 2 1 GiB.
    pub class: u8,
}

/// All there is to see of an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeDump {
    /// What `stat` says.
    pub attr: Attr,
    /// Nonce of this life.
    pub nonce: u64,
    /// Offset of the inode's slot.
    pub slot_at: u64,
    /// Offsets of the pages of its log.
    pub log_pages: Vec<u64>,
    /// Its records in order.
    pub records: Vec<RecordDump>,
    /// Where its data is.
    pub extents: Vec<ExtentDump>,
}
