//! Sessions and nonces: what makes every transaction and every life unique.

use core::sync::atomic::Ordering::Relaxed;

use lode_pmem::Medium;

use super::{Store, repair_locator, write_superblock};
use crate::{Error, Host, Result, Rule};

impl<M: Medium, H: Host> Store<M, H> {
    /// The session that new transactions belong to.
    #[inline]
    pub(crate) fn session(&self) -> u32 {
        self.session.load(Relaxed)
    }

    /// A number that no other life of a slot or log page has: of two pages of a log the later one has the higher.
    pub(crate) fn nonce(&self) -> u64 {
        let nonce = self.reuse.next_nonce.0.fetch_add(1, Relaxed);
        if nonce as u32 >= self.host.nonces_max() {
            self.raise_soon();
        }
        nonce
    }

    /// Asks for a raised session before the next operation.
    pub(super) fn raise_soon(&self) {
        self.raise_due.store(true, Relaxed);
    }

    /// To be called before an operation takes locks: raises the session when a counter
    /// of this one is nearly used up, and runs a round when recovery would have much to judge.
    #[inline]
    pub(crate) fn before_operation(&self) -> Result<()> {
        self.writable()?;
        if self.raise_due.load(Relaxed) {
            self.raise_quiesced()?;
        }
        if self.lanes.round_is_due(self.lane()) { self.round() } else { Ok(()) }
    }

    #[cold]
    fn raise_quiesced(&self) -> Result<()> {
        let _rounds = self.reuse.rounds.lock();
        if !self.raise_due.load(Relaxed) {
            // Another thread has done it: lanes that begin anew now would use sequences twice.
            if self.host.leaves_out(Rule::SequenceOnce) {
                return self.with_lanes_held(0, &mut || Ok(()));
            }
            return Ok(());
        }
        let mut raise = || {
            self.raise_session(|_| ())?;
            self.raise_due.store(false, Relaxed);
            Ok(())
        };
        if self.host.leaves_out(Rule::RaisedQuiet) {
            raise()
        } else {
            self.with_lanes_held(0, &mut raise)
        }
    }

    /// Runs `work` while no lane is inside a transaction; lanes begin anew after it.
    fn with_lanes_held(&self, from: usize, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let Some(lane) = self.lanes.iter().nth(from) else {
            return work();
        };
        let mut turn = lane.turn.lock();
        self.with_lanes_held(from + 1, work)?;
        turn.next = 1;
        lane.set_fenced(0);
        lane.set_settled(0);
        Ok(())
    }

    /// Stores both superblocks again, of which one is bad, and the locator.
    pub(crate) fn renew_superblocks(&self) -> Result<()> {
        let mut superblock = self.superblock.lock();
        repair_locator(self)?;
        superblock.update += 1;
        write_superblock(&self.door, &self.host, &superblock, self.counters())
    }

    /// Makes a higher session durable in both superblock copies (PROTOCOL I20) with
    /// what else `change` does. Nothing may be in flight.
    pub(crate) fn raise_session(
        &self,
        change: impl FnOnce(&mut crate::layout::Superblock),
    ) -> Result<()> {
        let mut superblock = self.superblock.lock();
        let session = superblock.session.checked_add(1).ok_or(Error::NotSupported)?;
        if !self.host.leaves_out(Rule::SessionRaised) {
            superblock.session = session;
        }
        superblock.epoch = superblock.epoch.max(self.epoch());
        // (What it has lost before was heeded by now.)
        superblock.losses = self.door.losses().or(superblock.losses);
        superblock.update += 1;
        change(&mut superblock);
        let session = superblock.session;
        write_superblock(&self.door, &self.host, &superblock, self.counters())?;
        self.session.store(session, Relaxed);
        self.reuse.next_nonce.0.store(u64::from(session) << 32 | 1, Relaxed);
        Ok(())
    }
}
