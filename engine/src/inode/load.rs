//! Loading an inode from its log.

use alloc::boxed::Box;
use core::sync::atomic::AtomicI64;

use lode_pmem::Medium;

use super::replay::Replay;
use super::state::{Body, State};
use crate::layout::{Header, Txid, slot_at};
use crate::log::{Step, Walk, read_death, read_identity};
use crate::store::{Slot, Store};
use crate::{Error, Host, Result, Rule};

/// Loads a live inode. Its log must end with the seal that its slot remembers: damage
/// at the end of a log is never taken for the end.
pub(crate) fn load<M: Medium, H: Host>(store: &Store<M, H>, slot: &Slot) -> Result<Box<State>> {
    let ino = slot.ino();
    let Some((identity, head, atime, seal)) = read_identity(store, ino)? else {
        return Err(Error::corrupt_inode("identity of an inode is damaged", slot_at(ino), ino));
    };
    if let Some(death) = read_death(store, &identity)?
        && !store.host.leaves_out(Rule::DeathHonoured)
        && !store.aborted.contains(&death.header.txid)
    {
        return Err(Error::corrupt_inode("death of a live inode", slot_at(ino), ino));
    }
    let walk = Walk::new(store, &identity, head, seal)?;
    let Scanned { walk, state, cut } = run(store, walk, true, &mut |_| ())?;
    let is_end = walk.tail().last_seal == slot.tail() || store.host.leaves_out(Rule::TailKnown);
    if cut.is_some() || !is_end {
        let what = "log of an inode is damaged before its end";
        return Err(Error::corrupt_inode(what, walk.tail().at, ino));
    }
    let Some(mut state) = state else {
        return Err(Error::corrupt_inode("log without an INODE record", walk.tail().at, ino));
    };
    if atime as i64 > state.atime_set_ns {
        state.atime_ns = AtomicI64::new(atime as i64);
    }
    if let Body::File(file) = &mut state.body {
        file.journal.claim();
        if store.writable().is_ok() && !store.host.leaves_out(Rule::JournalReplayed) {
            file.journal.apply(store)?;
        }
    }
    Ok(state)
}

/// A log that was walked and replayed for recovery.
pub(crate) struct Scanned<'s, M: Medium, H: Host> {
    pub(crate) walk: Box<Walk<'s, M, H>>,
    pub(crate) state: Option<Box<State>>,
    /// The record that the log ends in the middle of.
    pub(crate) cut: Option<Header>,
}

/// Walks and replays a log without its directory entries, showing each record's header.
pub(crate) fn load_for_scan<'s, M: Medium, H: Host>(
    store: &'s Store<M, H>,
    walk: Box<Walk<'s, M, H>>,
    seen: &mut dyn FnMut((u64, Header)),
) -> Result<Scanned<'s, M, H>> {
    let mut scanned = run(store, walk, false, seen)?;
    if let Some(state) = &mut scanned.state
        && let Body::File(file) = &mut state.body
    {
        file.journal.claim();
    }
    Ok(scanned)
}

#[inline(never)]
fn run<'s, M: Medium, H: Host>(
    store: &'s Store<M, H>,
    mut walk: Box<Walk<'s, M, H>>,
    entries: bool,
    seen: &mut dyn FnMut((u64, Header)),
) -> Result<Scanned<'s, M, H>> {
    let mut replay = Replay::new(store, walk.ino, walk.nonce, entries);
    let mut last = Txid::default();
    loop {
        match walk.step()? {
            Step::Page { page, nonce, ordinal } => replay.page(page, nonce, ordinal)?,
            Step::Record(found) => {
                let txid = found.parsed.header.txid;
                seen((found.at, found.parsed.header));
                let passed = is_before(&txid, &last) && store.host.leaves_out(Rule::ReplayInOrder);
                if !passed {
                    last = txid;
                    replay.record(&found)?;
                }
            }
            Step::End => break,
        }
    }
    let cut = replay.cut();
    let state = replay.finish(walk.tail(), walk.inline_dead)?;
    Ok(Scanned { walk, state, cut })
}

/// Whether a transaction has the lower number, of whichever lanes the two are.
fn is_before(txid: &Txid, other: &Txid) -> bool {
    (txid.session, txid.sequence) < (other.session, other.sequence)
}
