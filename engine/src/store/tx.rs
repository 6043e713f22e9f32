//! A transaction: lines in any number of logs, one fence (PROTOCOL I1 to I4).
//!
//! Everything a transaction needs is reserved before it begins; from its first
//! store to the end of its fence nothing can fail.
//!
//! A fence waits for what was stored: what can be computed meanwhile costs no time. So the records of
//! streamed bytes are composed while those are on their way ([`Store::begin_in`]), and memory may
//! follow while the records are ([`Tx::send`], [`Tx::land`]): nobody sees it before its lock is free.

use lock_api::MutexGuard;
use lode_pmem::{Line, MediaError, Medium, Window};

use super::Store;
use super::lanes::{Held, Lane, SEQUENCE_MAX, Turn};
use crate::layout::{Body, Header, LINE, LogSeed, Txid, put_seal};
use crate::{Error, Host, Result, Rule};

/// Sequences left when the session is raised.
const SEQUENCE_RESERVE: u64 = 1 << 20;

/// How far a transaction is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Lines are stored, or wait for streamed bytes.
    Open,
    /// All is stored.
    Sent,
    /// All is durable, or given up.
    Ended,
    /// A fence failed.
    Failed(MediaError),
}

/// A transaction that is being stored.
#[must_use]
pub(crate) struct Tx<'s, M: Medium, H: Host> {
    store: &'s Store<M, H>,
    lane: &'s Lane<H>,
    /// Open from the first store on that need not wait for streamed bytes. (It ends before the lane is free: it counts there. And it is
    /// not moved between streamed bytes and lines behind them: loads of what was stored in smaller pieces just before wait until
    /// all that was streamed has left the processor.)
    window: Option<Window<'s, M>>,
    /// Lines wait for streamed bytes.
    waits: bool,
    turn: MutexGuard<'s, H::Mutex, Turn>,
    stage: Stage,
    /// What the window is for.
    bytes: u64,
    header: Header,
    /// The epoch that all its records are born in.
    epoch: u32,
    /// Lines of the next transaction, where one is split in two.
    rest: u16,
}

impl<M: Medium, H: Host> Store<M, H> {
    /// Begins a transaction of `parts` record lines, and `extra_bytes` of other stores.
    pub(crate) fn begin(&self, parts: u32, extra_bytes: u64) -> Result<Tx<'_, M, H>> {
        self.begin_in(self.hold_lane(), parts, extra_bytes, false)
    }

    /// Holds a free lane. Who holds one waits for nothing but the medium.
    pub(crate) fn hold_lane(&self) -> Held<'_, H> {
        self.lanes.hold(self.lane(), &self.epoch)
    }

    /// As [`Store::begin`], in a lane that is held already. With `behind_data` all lines wait until
    /// bytes that were streamed before are durable.
    #[inline]
    pub(crate) fn begin_in<'s>(
        &'s self,
        held: Held<'s, H>,
        parts: u32,
        extra_bytes: u64,
        behind_data: bool,
    ) -> Result<Tx<'s, M, H>> {
        let parts = u16::try_from(parts).map_err(|_| Error::NoSpace)?;
        let Held { number, lane, mut turn, epoch } = held;
        turn.waits = 0;
        // Asked with the lane held: who ends the session waits for lanes.
        self.writable()?;
        let sequence = turn.next;
        if sequence >= SEQUENCE_MAX {
            return Err(Error::NoSpace);
        }
        if sequence >= SEQUENCE_MAX - SEQUENCE_RESERVE {
            self.raise_soon();
        }
        let txid = Txid { session: self.session(), lane: number, sequence };
        let bytes = u64::from(parts) * LINE + extra_bytes;
        if self.host.leaves_out(Rule::WatermarkFenced) {
            lane.set_fenced(sequence);
        }
        Ok(Tx {
            store: self,
            lane,
            turn,
            stage: Stage::Open,
            window: None,
            waits: behind_data,
            bytes,
            header: Header { txid, part: 0, parts },
            epoch,
            rest: 0,
        })
    }
}

impl<'s, M: Medium, H: Host> Tx<'s, M, H> {
    /// The transaction's name.
    pub(crate) fn txid(&self) -> Txid {
        self.header.txid
    }

    /// The epoch that its records are born in.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Stores the next record line at offset `at`. Returns its seal.
    #[inline(never)]
    pub(crate) fn record(&mut self, at: u64, seed: &LogSeed, body: &Body) -> u64 {
        if self.header.part == self.header.parts {
            self.go_on();
        }
        let mut own = Line::ZERO;
        let waiting = if self.waits { self.turn.place(at) } else { None };
        let waits = waiting.is_some();
        let line = waiting.unwrap_or(&mut own);
        body.encode_in(&self.header, self.epoch, line);
        let seal = seed.seal(at, line);
        put_seal(line, seal);
        self.header.part += 1;
        if !waits {
            self.line(at, &own);
        }
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
        if self.waits {
            if let Some(place) = self.turn.place(at) {
                *place = *line;
                return;
            }
            self.fence_data_early();
        }
        if self.stage == Stage::Open {
            self.window().store_line(at, line);
        }
    }

    /// The window, which is opened where it is not.
    #[inline]
    fn window(&mut self) -> &mut Window<'s, M> {
        let (store, lane, bytes) = (self.store, self.lane, self.bytes);
        self.window.get_or_insert_with(|| store.door.window(bytes, lane.held()))
    }

    /// The fence of streamed bytes, where there are more lines than can wait for it.
    #[cold]
    fn fence_data_early(&mut self) {
        if self.stage != Stage::Open {
            return;
        }
        self.waits = false;
        if let Err(error) = self.store.door.fence(self.lane.held()) {
            self.stage = Stage::Failed(error);
            return;
        }
        for at in 0..core::mem::take(&mut self.turn.waits) {
            if let Some((at, line)) = self.turn.waiting.get(at).copied() {
                self.window().store_line(at, &line);
            }
        }
    }

    /// Stores the lines that waited for streamed bytes, which are durable now; there are no others.
    #[inline]
    fn store_waiting(&mut self) {
        let mut window = self.store.door.window(self.bytes, self.lane.held());
        for (at, line) in self.turn.waiting.iter().take(self.turn.waits) {
            window.store_line(*at, line);
        }
        self.turn.waits = 0;
    }

    /// Stores a link word.
    pub(crate) fn word(&mut self, at: u64, value: u64) {
        if self.waits {
            self.fence_data_early();
        }
        if self.stage != Stage::Open {
            return;
        }
        let store = self.store;
        let window = self.window();
        if store.host.leaves_out(Rule::LinkWhole) {
            return super::halves(window, at, value);
        }
        store.store_word(window, at, value);
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
        self.turn.next = self.header.txid.sequence + 1;
        self.stage = Stage::Ended;
    }

    /// Stores all lines, those first that wait for streamed bytes to be fenced. From here on memory may follow,
    /// but for what others see: pages become free only once the transaction has landed. (Where that may fail,
    /// it has by now. The place of a fence is its caller's: each operation has its own.)
    ///
    /// # Errors
    /// Those of the medium. Nothing may be published then, and no more is written.
    #[track_caller]
    #[inline]
    pub(crate) fn send(&mut self) -> Result<()> {
        assert!(self.header.part == self.header.parts, "transaction has fewer lines than it said");
        if let Stage::Failed(error) = self.stage {
            return Err(error.into());
        }
        if core::mem::take(&mut self.waits) {
            if let Err(error) = self.store.door.fence(self.lane.held()) {
                self.stage = Stage::Failed(error);
                return Err(error.into());
            }
            self.store_waiting();
        }
        self.window = None;
        self.stage = Stage::Sent;
        if self.store.door.medium().fence_can_fail() { self.land() } else { Ok(()) }
    }

    /// The fence of what was sent: with the first `Ok` the transaction is durable. After an error no
    /// more is written.
    #[track_caller]
    #[inline]
    pub(crate) fn land(&mut self) -> Result<()> {
        match self.stage {
            Stage::Ended => return Ok(()),
            Stage::Failed(error) => return Err(error.into()),
            Stage::Open | Stage::Sent => {}
        }
        assert!(self.stage == Stage::Sent, "transaction was not sent");
        if !self.store.host.leaves_out(Rule::LocksToFence)
            && let Err(error) = self.store.door.fence(self.lane.held())
        {
            self.stage = Stage::Failed(error);
            return Err(error.into());
        }
        let sequence = self.header.txid.sequence;
        self.turn.next = sequence + 1;
        self.lane.set_fenced(sequence);
        self.stage = Stage::Ended;
        Ok(())
    }

    /// What is left of [`Tx::send`] and [`Tx::land`]; the lane is free then. After an error nothing may be
    /// published that was not yet.
    #[track_caller]
    #[inline]
    pub(crate) fn commit(mut self) -> Result<()> {
        if self.stage == Stage::Open {
            self.send()?;
        }
        self.land()
    }
}

impl<M: Medium, H: Host> Tx<'_, M, H> {
    /// As [`Tx::commit`], and while the lines are on their way memory follows, but for what others see. An error of
    /// `follow` leaves the pool as a failed fence does: what may be stored and is not known of.
    #[track_caller]
    #[inline]
    pub(crate) fn commit_while(mut self, follow: impl FnOnce() -> Result<()>) -> Result<()> {
        self.send()?;
        follow()?;
        self.land()
    }
}

impl<M: Medium, H: Host> Drop for Tx<'_, M, H> {
    fn drop(&mut self) {
        if self.stage != Stage::Ended {
            // I3: no failure path exists here; if one is met all the same, no more writes.
            self.store.set_writable(false);
        }
    }
}
