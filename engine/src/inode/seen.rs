//! What an inode has that snapshots see, and what it has now: pages of data, pages of its log, and bytes that wait in
//! its journal.
//!
//! Its log is replayed as recovery does it. Between the last record of one epoch and the first of a later one it is
//! what the snapshots have that were made between.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::load::NO_IDENTITY;
use super::replay::Replay;
use super::state::{Body, State};
use crate::layout::{Parsed, slot_at};
use crate::log::{Step, Walk, read_death, read_identity};
use crate::rule::Rule;
use crate::space::{Ended, Run};
use crate::store::Store;
use crate::{Error, Host, Ino, Result};

const CUT: &str = "log of an inode is damaged before its end";

/// What was found.
#[derive(Default)]
pub(crate) struct Seen {
    /// Pages of data that the inode has, or snapshots see, in order.
    pub(crate) data: Vec<Run>,
    /// Pages of its log.
    pub(crate) pages: Vec<u64>,
    /// In a snapshot, or now, bytes wait in its journal.
    pub(crate) waits: bool,
    /// The session of its last record.
    pub(crate) session: u32,
    /// The seal of that.
    pub(crate) end: u64,
}

/// Looks at an inode that snapshots see, dead or alive; where it `comes_home`, all bytes that wait in its journal are stored
/// in their places (and durable with the next fence).
#[inline(never)]
pub(crate) fn look_at_seen<M: Medium, H: Host>(
    store: &Store<M, H>,
    ino: Ino,
    comes_home: bool,
) -> Result<Seen> {
    let lost = Error::corrupt_inode(NO_IDENTITY, slot_at(ino), ino);
    let (identity, head, _, seal) = read_identity(store, ino)?.ok_or(lost)?;
    let died = read_death(store, &identity)?.map(|death| death.epoch);
    let mut walk = Walk::new(store, &identity, head, seal)?;
    let mut replay = Replay::new(store, ino, identity.nonce, false);
    replay.set_died(died);
    let mut seen = Seen::default();
    let mut epoch = 0;
    loop {
        match walk.step()? {
            Step::Page { page, nonce, ordinal } => {
                replay.page(page, nonce, ordinal)?;
                seen.pages.try_reserve(1)?;
                seen.pages.push(page);
            }
            Step::Record(found) => {
                let Parsed { header, body, epoch: born } = found.parsed;
                if body.has_epoch() && born > epoch {
                    let ended = (epoch, born.min(died.unwrap_or(born)));
                    seen.heed_journal(store, &replay, ended, comes_home)?;
                    epoch = born;
                }
                seen.session = header.txid.session;
                replay.record(&found)?;
            }
            Step::End => break,
        }
    }
    seen.end = walk.tail().last_seal;
    let mut is_cut = replay.cut().is_some();
    walk.beyond(&mut |_| is_cut = true)?;
    if is_cut || died.is_none() && !is_known_end(store, ino, seen.end) {
        return Err(Error::corrupt_inode(CUT, walk.tail().at, ino));
    }
    // (What is there now is wanted, too.)
    let ended = if died.is_some() { (epoch, died.unwrap_or(epoch)) } else { (0, u32::MAX) };
    seen.heed_journal(store, &replay, ended, comes_home)?;
    let state = replay.finish(walk.tail(), walk.inline_dead)?;
    let mut state = state.ok_or(Error::corrupt_inode(CUT, walk.tail().at, ino))?;
    if let Body::File(file) = &mut state.body {
        file.journal.claim();
    }
    seen.take_data(store, &state, died, &replay.seen)?;
    Ok(seen)
}

/// Whether the log of a live inode ends with this seal.
fn is_known_end<M: Medium, H: Host>(store: &Store<M, H>, ino: Ino, end: u64) -> bool {
    store.table.find(ino).is_some_and(|slot| slot.tail() == end)
}

impl Seen {
    /// Heeds what waits in the journal of a file that was so from one epoch on, and ceased to be in another, if a snapshot
    /// sees it.
    #[inline(never)]
    fn heed_journal<M: Medium, H: Host>(
        &mut self,
        store: &Store<M, H>,
        replay: &Replay<'_, M, H>,
        (born, died): (u32, u32),
        comes_home: bool,
    ) -> Result<()> {
        let Some(state) = replay.so_far() else { return Ok(()) };
        let State { body: Body::File(file), log, .. } = state else { return Ok(()) };
        if file.journal.pending().is_empty() || !store.snapshots.sees(born, died) {
            return Ok(());
        }
        self.waits = true;
        if comes_home && !store.host.leaves_out(Rule::SeenComesHome) {
            // (Where it goes to has to be the file's.)
            replay.check_journal(state)?;
            file.journal.apply(log.ino, store)?;
            file.journal.flush(store, store.counters());
        }
        Ok(())
    }

    /// Takes in the pages of data, as recovery finds whose they are.
    fn take_data<M: Medium, H: Host>(
        &mut self,
        store: &Store<M, H>,
        state: &State,
        died: Option<u32>,
        kept: &[(Ended, u32)],
    ) -> Result<()> {
        let data = &mut self.data;
        data.try_reserve(kept.len())?;
        data.extend(kept.iter().map(|(ended, _)| ended.run));
        let mut result = Ok(());
        state.for_each_data(&mut |Ended { run, born }| {
            let is_wanted = died.is_none_or(|died| store.snapshots.sees(born, died));
            match data.try_reserve(1) {
                Ok(()) if is_wanted => data.push(run),
                Ok(()) => {}
                Err(error) => result = Err(Error::from(error)),
            }
        });
        data.sort_unstable_by_key(|run| run.page);
        result
    }
}
