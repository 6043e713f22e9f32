//! What the engine asks of the world it runs in.

use lock_api::{RawMutex, RawRwLock};

use crate::{Ino, Rule};

/// Nonces of a session, of the 32 bits that their counter has: what is left is for those who are in
/// the middle of something when it is raised.
pub const NONCES_MAX: u32 = u32::MAX - (1 << 24);

/// Meetings of writers of a file before they go side by side: what that needs is more than it gives two who met by chance.
pub const MEETINGS: u8 = 64;

/// Bytes of a file, in whole pages, that are exempt from checksums, or were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExemptRange {
    /// The file.
    pub ino: Ino,
    /// Where in it they begin.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
}

/// What becomes of checksums of a file that a program has mapped to store into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exemption {
    /// There are none from now on.
    Begins,
    /// There are again, as the last map has ended.
    Ends,
    /// There are again, as a snapshot is made; each page that is stored to again has none from then on.
    EndsForSnapshot,
    /// There are again, of what a crash has left.
    EndsAfterCrash,
    /// There are none still, as there was no room for them, though the last map has ended, or a snapshot is made.
    Stays,
    /// There are none of what a crash has left: there was no room for them, or the pool is open read-only.
    StaysAfterCrash,
}

/// The world around the engine: std in a server, a scheduler in a test, a kernel.
///
/// Nothing here may call back into the pool, except the jobs of [`Host::parallel`].
pub trait Host: Send + Sync + 'static {
    /// A sleeping mutual exclusion lock.
    type Mutex: RawMutex + Send + Sync + 'static;
    /// A sleeping readers-writer lock.
    type RwLock: RawRwLock + Send + Sync + 'static;

    /// Wall-clock time in nanoseconds since 1970, UTC.
    fn now_ns(&self) -> i64;

    /// The same, some milliseconds late if that is cheaper.
    fn coarse_now_ns(&self) -> i64 {
        self.now_ns()
    }

    /// The CPU this thread runs on now; a hint, any number is right.
    fn cpu(&self) -> usize;

    /// How many CPUs there are: how many lanes are worth using.
    fn cpus(&self) -> usize;

    /// Random bits: for identifiers and secrets, from a good source.
    fn random(&self) -> u64;

    /// Runs `job(0) .. job(jobs - 1)`, each once, in parallel where the world has
    /// threads, and returns when all have ended.
    fn parallel(&self, jobs: usize, job: &(dyn Fn(usize) + Sync));

    /// Has programs that memory is lent to ([`Pool::lend`](crate::Pool::lend)) give back about `pages` pages, as far as they
    /// have them unused: files are short of them. Whoever gets them gives them back to the pool, from other threads, before
    /// this returns; whether any have come is what it returns. It has to return soon: inodes are locked meanwhile, though
    /// nothing that [`Pool::give_back`](crate::Pool::give_back) needs.
    fn spare(&self, pages: u64) -> bool {
        let _ = pages;
        false
    }

    /// Checksums of these bytes come or go, for a log. Who has a large file mapped in many pieces is told of the first ones, and of
    /// the others as if they were one. An inode is locked meanwhile, and while a snapshot is made, who stores into maps waits.
    fn exemption(&self, what: Exemption, of: ExemptRange) {
        let _ = (what, of);
    }

    /// How often who has to wait to write to an inode looks whether it is free before sleeping: a small
    /// write holds it for less time than it takes to fall asleep and to be woken. None where the locks do so themselves.
    #[inline(always)]
    fn spins(&self) -> u32 {
        0
    }

    /// How often writers of a file meet, more or less in a row, before they go side by side. A crash tester's host has them do so at once.
    #[inline(always)]
    fn meetings(&self) -> u8 {
        MEETINGS
    }

    /// Lives of inodes and log pages (nonces) that begin in a session before it is raised: their
    /// counter has 32 bits. A crash tester's host has sessions end sooner.
    #[inline(always)]
    fn nonces_max(&self) -> u32 {
        NONCES_MAX
    }

    /// Whether the engine is to break this rule. A real host never says so, and the question
    /// costs nothing; a crash tester's host leaves out one rule at a time, and must be noticed.
    #[inline(always)]
    fn leaves_out(&self, _rule: Rule) -> bool {
        false
    }
}
