//! A transaction: lines in any number of logs, one fence (PROTOCOL I1 to I4).
//!
//! Everything a transaction needs is reserved before it begins; from its first
//! store to the end of its fence nothing can fail.

use lock_api::MutexGuard;
use lode_pmem::{Line, Medium, Window};

use super::Store;
use super::lanes::{Held, Lane, SEQUENCE_MAX};
use crate::layout::{Body, Header, LINE, LogSeed, Txid, put_seal};
use crate::{Error, Host, Result, Rule};

/// Sequences left when the session is raised.
const SEQUENCE_RESERVE: u64 = 1 << 20;

/// A transaction that is being stored.
#[must_use]
pub(crate) struct Tx<'s, M: Medium, H: Host> {
    store: &'s Store<M, H>,
    lane: &'s Lane<H>,
    next: MutexGuard<'s, H::Mutex, u64>,
    window: Option<Window<'s, M>>,
    header: Header,
    /// Lines of the next transaction, where one is split in two.
    rest: u16,
    committed: bool,
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Begins a transaction of `parts` record lines, and `extra_bytes` of other stores.
    pub(crate) fn begin(&self, parts: u32, extra_bytes: u64) -> Result<Tx<'_, M, H>> {
        self.begin_in(self.hold_lane(), parts, extra_bytes)
    }

    /// Holds a free lane. Who holds one waits for nothing but the medium.
    pub(crate) fn hold_lane(&self) -> Held<'_, H> {
        self.lanes.hold(self.lane())
    }

    /// As [`Store::begin`], in a lane that is held already.
    pub(crate) fn begin_in<'s>(
        &'s self,
        held: Held<'s, H>,
        parts: u32,
        extra_bytes: u64,
    ) -> Result<Tx<'s, M, H>> {
        let parts = u16::try_from(parts).map_err(|_| Error::NoSpace)?;
        let Held { number, lane, next } = held;
        // Asked with the lane held: who ends the session waits for lanes.
        self.writable()?;
        let sequence = *next;
        if sequence >= SEQUENCE_MAX {
            return Err(Error::NoSpace);
        }
        if sequence >= SEQUENCE_MAX - SEQUENCE_RESERVE {
            self.raise_soon();
        }
        let txid = Txid { session: self.session(), lane: number, sequence };
        if self.host.leaves_out(Rule::WatermarkFenced) {
            lane.set_fenced(sequence);
        }
        let bytes = u64::from(parts) * LINE + extra_bytes;
        Ok(Tx {
            store: self,
            lane,
            next,
            window: Some(self.door.window(bytes, lane.held())),
            header: Header { txid, part: 0, parts },
            rest: 0,
            committed: false,
        })
    }
}

impl<M: Medium, H: Host> Tx<'_, M, H> {
    /// The transaction's name.
    pub(crate) fn txid(&self) -> Txid {
        self.header.txid
    }

    /// Stores the next record line at offset `at`. Returns its seal.
    #[inline(never)]
    pub(crate) fn record(&mut self, at: u64, seed: &LogSeed, body: &Body) -> u64 {
        if self.header.part == self.header.parts {
            self.go_on();
        }
        let mut line = body.encode(&self.header);
        let seal = seed.seal(at, &line);
        put_seal(&mut line, seal);
        self.header.part += 1;
        self.line(at, &line);
        seal
    }

    /// Makes the lines behind the first `parts` ones another transaction, where a rule that
    /// keeps them together is left out.
    #[inline]
    pub(crate) fn split(&mut self, rule: Rule, parts: u32) {
        if self.store.host.leaves_out(rule) && parts > 0 && parts < u32::from(self.header.parts) {
            self.rest = self.header.parts - parts as u16;
            self.header.parts = parts as u16;
        }
    }

    #[cold]
    fn go_on(&mut self) {
        assert!(self.rest > 0, "transaction has more lines than it said");
        let rest = core::mem::take(&mut self.rest);
        self.next(u32::from(rest));
    }

    /// Stores an anchor line.
    pub(crate) fn line(&mut self, at: u64, line: &Line) {
        if let Some(window) = &mut self.window {
            window.store_line(at, line);
        }
    }

    /// Stores a link word.
    pub(crate) fn word(&mut self, at: u64, value: u64) {
        if let Some(window) = &mut self.window {
            if self.store.host.leaves_out(Rule::LinkWhole) {
                return super::halves(window, at, value);
            }
            window.store_word(at, value);
        }
    }

    /// Goes on with another transaction under the same fence, of `parts` lines: for
    /// records that no other record depends on.
    pub(crate) fn next(&mut self, parts: u32) {
        assert!(self.header.part == self.header.parts, "transaction has fewer lines than it said");
        self.header.txid.sequence += 1;
        self.header.part = 0;
        self.header.parts = parts as u16;
    }

    /// Gives up what was stored where nothing links to.
    pub(crate) fn abandon(mut self) {
        *self.next = self.header.txid.sequence + 1;
        self.committed = true;
    }

    /// The fence. When this returns `Ok` the transaction is durable; an error means that nothing
    /// may be published, and no more is written. (Its place is its caller's: each operation has its own.)
    #[track_caller]
    pub(crate) fn commit(mut self) -> Result<()> {
        assert!(self.header.part == self.header.parts, "transaction has fewer lines than it said");
        self.window = None;
        if !self.store.host.leaves_out(Rule::LocksToFence) {
            self.store.door.fence(self.lane.held())?;
        }
        let sequence = self.header.txid.sequence;
        *self.next = sequence + 1;
        self.lane.set_fenced(sequence);
        self.committed = true;
        Ok(())
    }
}

impl<M: Medium, H: Host> Drop for Tx<'_, M, H> {
    fn drop(&mut self) {
        if !self.committed {
            // I3: no failure path exists here; if one is met all the same, no more writes.
            self.store.set_writable(false);
        }
    }
}
