//! What can be told of memory that is lent.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use lode_loan::{CHUNK_BYTES, Method};

use crate::ledger::Ledger;
use crate::limits::Limits;

/// What has happened since the service began.
#[derive(Default)]
pub(crate) struct Counts {
    /// Sessions that began.
    pub(crate) sessions: AtomicU64,
    /// Chunks that were granted, given back, refused by requests, and got back by wishes.
    pub(crate) granted: AtomicU64,
    pub(crate) returned: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) wished: AtomicU64,
    pub(crate) wishes: AtomicU64,
    /// Messages and connections that were refused as nobody well-behaved sends them.
    pub(crate) hostile: AtomicU64,
}

/// Now, nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Relaxed);
}

/// A session, to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramFacts {
    /// Process id.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Name of the process when the session began.
    pub name: String,
    /// Where its memory comes from.
    pub method: Method,
    /// Chunks that it has now.
    pub chunks: u64,
    /// The most it has had.
    pub chunks_most: u64,
    /// When the session began, nanoseconds since 1970.
    pub since_ns: u64,
}

/// A program with a kept heap, to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptFacts {
    /// Process id.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Name of the process when it opened the heap.
    pub name: String,
    /// The file: names from the root on, as the program said them.
    pub path: String,
    /// Bytes that the file has.
    pub bytes: u64,
    /// When it was opened, nanoseconds since 1970.
    pub since_ns: u64,
}

/// All that is lent, to be shown; bytes where nothing else is said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The limits.
    pub limits: Limits,
    /// What programs have, with a session or without.
    pub lent: u64,
    /// What of it has no session: its program has ended it, or has another owner's, and holds it locked.
    pub apart: u64,
    /// What is kept zeroed.
    pub ready: u64,
    /// What was granted since the service began.
    pub granted: u64,
    /// What came back.
    pub returned: u64,
    /// Requests for memory that a limit, or the pool's space, has refused.
    pub refused: u64,
    /// Times that programs were asked to give back what they can spare.
    pub wishes: u64,
    /// What came back by that.
    pub wished: u64,
    /// Messages and connections that were refused for what they are.
    pub hostile: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Those that there are, the one that has most first.
    pub programs: Vec<ProgramFacts>,
}

impl Facts {
    pub(crate) fn of(ledger: &Ledger, counts: &Counts) -> Self {
        let mut programs: Vec<ProgramFacts> = ledger
            .programs()
            .map(|(_, program)| ProgramFacts {
                pid: program.pid,
                uid: program.uid,
                name: program.name.clone(),
                method: program.method,
                chunks: program.chunks.len() as u64,
                chunks_most: program.most,
                since_ns: program.since_ns,
            })
            .collect();
        programs.sort_by_key(|program| (std::cmp::Reverse(program.chunks), program.since_ns));
        let bytes = |chunks: u64| chunks.saturating_mul(CHUNK_BYTES);
        Self {
            limits: *ledger.limits(),
            lent: bytes(ledger.lent()),
            apart: bytes(ledger.apart().len() as u64),
            ready: bytes(ledger.ready()),
            granted: bytes(counts.granted.load(Relaxed)),
            returned: bytes(counts.returned.load(Relaxed)),
            refused: counts.refused.load(Relaxed),
            wishes: counts.wishes.load(Relaxed),
            wished: bytes(counts.wished.load(Relaxed)),
            hostile: counts.hostile.load(Relaxed),
            sessions: counts.sessions.load(Relaxed),
            programs,
        }
    }
}
