//! Loading an inode from its log.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicI64;

use lode_pmem::Medium;

use super::past::Past;
use super::replay::Replay;
use super::state::{Body, State};
use crate::layout::{Header, Txid, slot_at};
use crate::log::{Holds, Step, Walk, read_death, read_identity};
use crate::space::Ended;
use crate::store::{Slot, Store};
use crate::{Error, Host, Ino, Result, Rule};

/// What is wrong with an inode of which nothing says whose it is.
pub(crate) const NO_IDENTITY: &str = "identity of an inode is damaged";

/// Loads a live inode. Its log must end with the seal that its slot remembers: damage
/// at the end of a log is never taken for the end.
pub(crate) fn load<M: Medium, H: Host>(store: &Store<M, H>, slot: &Slot) -> Result<Box<State>> {
    let ino = slot.ino();
    let Some((identity, head, atime, seal)) = read_identity(store, ino)? else {
        return Err(Error::corrupt_inode(NO_IDENTITY, slot_at(ino), ino));
    };
    if let Some(death) = read_death(store, &identity)?
        && !store.host.leaves_out(Rule::DeathHonoured)
        && !store.aborted.contains(&death.header.txid)
    {
        return Err(Error::corrupt_inode("death of a live inode", slot_at(ino), ino));
    }
    let walk = Walk::new(store, &identity, head, seal)?;
    let replay = Replay::new(store, ino, identity.nonce, true);
    let Scanned { walk, state, cut, .. } = run(walk, replay, &mut |_| ())?;
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
            file.journal.apply(ino, store)?;
        }
    }
    if !store.sectors.left.is_empty() {
        state.take_sectors(&store.sectors.left)?;
    }
    Ok(state)
}

/// Loads an inode as it was at the end of `epoch`, which is kept; `view` is what its number has besides, and so have
/// those that it leads to. Nobody may collect its log meanwhile. Like that of a live inode, its log is seen up to the
/// epoch's end, or has the end that its slot remembers.
///
/// # Errors
/// [`Error::Stale`] if it was not there then.
pub(crate) fn load_as_of<M: Medium, H: Host>(
    store: &Store<M, H>,
    slot: &Slot,
    epoch: u32,
    view: Ino,
) -> Result<Box<State>> {
    let ino = slot.ino();
    let Some((identity, head, _, seal)) = read_identity(store, ino)? else {
        return Err(why_nothing(store, slot, NO_IDENTITY));
    };
    let death = read_death(store, &identity)?;
    let death = death.filter(|death| !store.aborted.contains(&death.header.txid));
    if death.is_some_and(|death| death.epoch <= epoch) {
        return Err(Error::Stale);
    }
    let mut walk = Walk::new(store, &identity, head, seal)?;
    walk.stop_after(epoch);
    let replay = Replay::new(store, ino, identity.nonce, true);
    let Scanned { mut walk, state, cut, .. } = run(walk, replay, &mut |_| ())?;
    let mut damaged = cut.is_some();
    if !walk.has_passed() {
        // (Of one that has ended nobody remembers the end.)
        let known = if store.host.leaves_out(Rule::TailKnown) { 0 } else { slot.tail() };
        damaged |= known != 0 && known != walk.tail().last_seal;
        // (Behind an end that is known is nothing, and room in bad memory is no loss.)
        damaged |= known == 0 && goes_on(store, &mut walk)?;
    }
    if damaged {
        let what = "log of an inode is damaged before its end";
        return Err(Error::corrupt_inode(what, walk.tail().at, ino));
    }
    let Some(mut state) = state else {
        // (Who was made later begins with a record that does not count yet.)
        let is_later = walk.has_passed();
        let lost = || why_nothing(store, slot, "log without an INODE record");
        return Err(if is_later { Error::Stale } else { lost() });
    };
    state.view = view;
    state.parent |= view;
    match &mut state.body {
        Body::File(file) => file.journal.claim(),
        Body::Directory(directory) => {
            directory.entries.for_each_mut(&mut |_, entry| entry.ino |= view);
        }
        _ => {}
    }
    // (Of one that was made just when power failed, its pages may be those of the file still.)
    if !store.sectors.left.is_empty() {
        state.take_sectors(&store.sectors.left)?;
    }
    Ok(state)
}

/// Whether something follows the end of a log that nothing explains. Where nobody knows the end, neither must a link be lost that
/// led on: behind one that led to the first page, records would count that were written anew there.
fn goes_on<M: Medium, H: Host>(store: &Store<M, H>, walk: &mut Walk<'_, M, H>) -> Result<bool> {
    // (For a reader, what a crash has left is there as it was.)
    let reads_only = store.writable().is_err();
    let may_be_torn = |holds| reads_only && !matches!(holds, Holds::Several);
    let mut goes_on = false;
    walk.beyond(&mut |line| {
        let is_explained = line.is_void(store) || line.is_stale(may_be_torn);
        goes_on |= !is_explained && !store.aborted.contains(&line.header().txid);
    })?;
    let is_lost = |holds| !matches!(holds, Holds::Nothing) && !may_be_torn(holds);
    Ok(goes_on || walk.bad_link().is_some_and(|link| is_lost(link.holds)))
}

/// Why there is nothing to load where nothing says whose slot it is: of an inode that lives or that a snapshot keeps that is
/// lost; else it was not there.
#[cold]
#[inline(never)]
fn why_nothing<M: Medium, H: Host>(store: &Store<M, H>, slot: &Slot, what: &'static str) -> Error {
    let ino = slot.ino();
    let mut is_kept = slot.tail() != 0;
    let told = store.snapshots.for_each_slot(&mut |_, kept| {
        is_kept |= kept == ino;
        Ok(())
    });
    // (Where not all that is kept is known any more, it may be this one.)
    if is_kept || told.is_err() {
        return Error::corrupt_inode(what, slot_at(ino), ino);
    }
    Error::Stale
}

/// Replays the log of a live inode up to where page `end` begins.
#[inline(never)]
pub(super) fn load_pages<M: Medium, H: Host>(
    store: &Store<M, H>,
    ino: Ino,
    end: u64,
) -> Result<Replay<'_, M, H>> {
    let lost = Error::corrupt_inode(NO_IDENTITY, slot_at(ino), ino);
    let (identity, head, _, seal) = read_identity(store, ino)?.ok_or(lost)?;
    let mut walk = Walk::new(store, &identity, head, seal)?;
    let mut replay = Replay::new(store, ino, identity.nonce, true);
    loop {
        match walk.step()? {
            Step::Page { page, .. } if page == end => return Ok(replay),
            Step::Page { page, nonce, ordinal } => replay.page(page, nonce, ordinal)?,
            Step::Record(found) => replay.record(&found)?,
            Step::End => {
                let what = "log of an inode is damaged before its end";
                return Err(Error::corrupt_inode(what, walk.tail().at, ino));
            }
        }
    }
}

/// A log that was walked and replayed for recovery.
pub(crate) struct Scanned<'s, M: Medium, H: Host> {
    pub(crate) walk: Box<Walk<'s, M, H>>,
    pub(crate) state: Option<Box<State>>,
    /// The record that the log ends in the middle of.
    pub(crate) cut: Option<Header>,
    /// What has ended and is seen by snapshots, and the epoch of its end.
    pub(crate) seen: Vec<(Ended, u32)>,
    /// Pages that the file ended in since it became shorter, with that epoch, where somebody asks.
    pub(crate) cuts: Option<Vec<(Ended, u32)>>,
    /// Names and values of which the same is true, where somebody asks.
    pub(crate) past: Option<Box<Past>>,
}

/// Walks and replays a log without its directory entries, showing each record's header. The inode `died` in an
/// epoch, or did not.
pub(crate) fn load_for_scan<'s, M: Medium, H: Host>(
    store: &'s Store<M, H>,
    walk: Box<Walk<'s, M, H>>,
    died: Option<u32>,
    seen: &mut dyn FnMut((u64, Header)),
) -> Result<Scanned<'s, M, H>> {
    let mut replay = Replay::new(store, walk.ino, walk.nonce, false);
    replay.set_died(died);
    scan(walk, replay, seen)
}

/// As [`load_for_scan`], of an inode that nobody changes meanwhile, with the pages that it ended in since it became shorter.
pub(crate) fn load_with_cuts<M: Medium, H: Host>(
    store: &Store<M, H>,
    ino: Ino,
    died: Option<u32>,
) -> Result<Scanned<'_, M, H>> {
    let (walk, mut replay) = replay_of(store, ino, died, false)?;
    replay.cuts = Some(Vec::new());
    scan(walk, replay, &mut |_| ())
}

/// Walks and replays the log of an inode, which nobody changes meanwhile, for a check of what snapshots see: with directory entries, and
/// what has ended of these.
pub(crate) fn load_with_past<M: Medium, H: Host>(
    store: &Store<M, H>,
    ino: Ino,
    died: Option<u32>,
) -> Result<Scanned<'_, M, H>> {
    let (walk, mut replay) = replay_of(store, ino, died, true)?;
    replay.past = Some(Box::default());
    run(walk, replay, &mut |_| ())
}

/// A walk and a replay that have come to nothing yet.
type Begun<'s, M, H> = (Box<Walk<'s, M, H>>, Replay<'s, M, H>);

/// The log of an inode, before its first record, with directory entries or without.
fn replay_of<M: Medium, H: Host>(
    store: &Store<M, H>,
    ino: Ino,
    died: Option<u32>,
    entries: bool,
) -> Result<Begun<'_, M, H>> {
    let lost = Error::corrupt_inode(NO_IDENTITY, slot_at(ino), ino);
    let (identity, head, _, seal) = read_identity(store, ino)?.ok_or(lost)?;
    let walk = Walk::new(store, &identity, head, seal)?;
    let mut replay = Replay::new(store, walk.ino, walk.nonce, entries);
    replay.set_died(died);
    Ok((walk, replay))
}

fn scan<'s, M: Medium, H: Host>(
    walk: Box<Walk<'s, M, H>>,
    replay: Replay<'s, M, H>,
    seen: &mut dyn FnMut((u64, Header)),
) -> Result<Scanned<'s, M, H>> {
    let mut scanned = run(walk, replay, seen)?;
    if let Some(state) = &mut scanned.state
        && let Body::File(file) = &mut state.body
    {
        file.journal.claim();
    }
    Ok(scanned)
}

#[inline(never)]
fn run<'s, M: Medium, H: Host>(
    mut walk: Box<Walk<'s, M, H>>,
    mut replay: Replay<'s, M, H>,
    seen: &mut dyn FnMut((u64, Header)),
) -> Result<Scanned<'s, M, H>> {
    let host = replay.host();
    let mut last = Txid::default();
    loop {
        match walk.step()? {
            Step::Page { page, nonce, ordinal } => replay.page(page, nonce, ordinal)?,
            Step::Record(found) => {
                let txid = found.parsed.header.txid;
                seen((found.at, found.parsed.header));
                let passed = is_before(&txid, &last) && host.leaves_out(Rule::ReplayInOrder);
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
    let (seen, cuts, past) = (replay.seen, replay.cuts, replay.past);
    Ok(Scanned { walk, state, cut, seen, cuts, past })
}

/// Whether a transaction has the lower number, of whichever lanes the two are.
fn is_before(txid: &Txid, other: &Txid) -> bool {
    (txid.session, txid.sequence) < (other.session, other.sequence)
}
