//! What can't be read is given up, on the medium, before the pool is opened.
//!
//! The verdicts on what a crash has cut off come first, as in any recovery, and the session is raised:
//! from then on every line that holds counts, and giving one inode up changes no verdict on another. In a
//! closed pool, where nothing is in doubt, inodes are given up first: what its checkpoint knows of the
//! ends of logs is gone with the session.
//! An inode is given up by the seal of its identity, in one word.

use alloc::vec::Vec;

use lode_pmem::{Door, Line, Medium};

use super::listing::{Listing, Lost, UNKNOWN, read_listing};
use super::{Salvage, report::Told, tables::find_tables};
use crate::layout::{
    Anchor, Body, Header, Identity, LINE, SEAL_AT, Superblock, Txid, Watermark, put_seal, slot_at,
};
use crate::log::read_identity;
use crate::recovery::{DAMAGED_TAIL, Ended, erase, load_checkpoint, survey};
use crate::snapshot::{read_list, received_over};
use crate::space::Claims;
use crate::store::{Piece, Snapshots, Store, read_superblock, read_watermark};
use crate::{Corruption, Error, Host, Ino, PAGE_BYTES, Result};

/// Looks at most; each gives something up.
const LOOKS_MAX: u32 = 64;

/// Gives up all that can't be read; returns what that was.
///
/// # Errors
/// [`Error::Corrupt`] where that does not help: the table with the root directory can't be read.
pub(super) fn discard<M: Medium, H: Host>(
    door: Door<M>,
    host: H,
    told: Told<'_>,
) -> Result<(Door<M>, H, Lost)> {
    let (mut superblock, _) = read_superblock(&door, &host, false)?;
    let mut store = Store::new(door, host, &superblock)?;
    // What was being received is given up.
    let mut received = received_over(&store, &superblock)?.map(|over| over.before);
    if let Some(before) = received {
        store.look_back(&mut superblock, before);
    }
    let mut tails = match load_checkpoint(&store, &superblock)? {
        Ended::Not => Vec::new(),
        Ended::Closed(loaded) => {
            let bad = store.bad_chains(&loaded.pieces)?;
            bad.iter().for_each(|one| told(Salvage::ChainMended { damage: one.damage() }));
            store.mend_chains(&bad)?;
            loaded.tails()?
        }
        Ended::Damaged(damage) => {
            told(Salvage::CheckpointLost { damage });
            Vec::new()
        }
    };
    find_tables(&store, told)?;
    store.give_up_sector_lines(&mut |damage| told(Salvage::SectorsLost { damage }));
    if let Err(error) = read_list(&store, &superblock) {
        let damage = error.into_damage()?;
        told(Salvage::SnapshotsLost { damage });
        drop_snapshots(&mut store)?;
        received = None;
    }
    if received.is_some() {
        // Before any of it is erased: nobody goes on with the rest, should this be cut off.
        store.change_superblock(&mut store.superblock.lock(), |_| ())?;
    }
    let mut all = Lost::default();
    for look in 0..LOOKS_MAX {
        store.aborted.clear();
        reset_watermarks(&store, told)?;
        let claims = Claims::new(store.geometry.pages)?;
        let (mut scan, pieces) = survey(&mut store, &claims)?;
        let lost = lost(&store, &pieces, &scan.damage, &tails)?;
        if lost.is_empty() && scan.damage.is_empty() {
            erase(&store, &scan)?;
            break;
        }
        // Impossible transactions are none any more once the session is raised.
        if let Some(damage) = scan.damage.first().filter(|_| lost.is_empty() && look > 0) {
            return Err(Error::Corrupt(*damage));
        }
        // An identity without a life may be evidence as long as anything is in doubt: the next look
        // finds it again.
        scan.lifeless.clear();
        erase(&store, &scan)?;
        if let Some(damage) = lost.iter().find(|lost| lost.ino == store.snapshots.home()) {
            told(Salvage::SnapshotsLost { damage: *damage });
            drop_snapshots(&mut store)?;
            received = None;
        }
        for damage in &lost {
            let listing = read_listing(&store, damage.ino)?;
            let entries = listing.as_ref().map(|listing| listing.entries.len());
            told(Salvage::Discarded { damage: *damage, entries });
            all.inos.try_reserve(1)?;
            all.inos.push(damage.ino);
            all.listings.try_reserve(1)?;
            all.listings.extend(listing);
        }
        if !tails.is_empty() {
            // Only the checkpoint may know of them. (In a closed pool nothing is in doubt.)
            erase_identities(&store, &lost);
            store.door.fence(store.counters())?;
        }
        store.raise_session(|superblock| superblock.checkpoint = 0)?;
        if tails.is_empty() {
            erase_identities(&store, &lost);
        }
        tails.clear();
    }
    // What a checkpoint says of free space is not believed. What was to be rolled back is erased, and what was received is given
    // up: the opening that follows ends both, and until then only what is born in that epoch counts.
    let back = received.or(Some(store.superblock.lock().rollback).filter(|epoch| *epoch != 0));
    let rollback = back.unwrap_or(0);
    store
        .raise_session(|superblock| (superblock.checkpoint, superblock.rollback) = (0, rollback))?;
    store.counted = u32::MAX;
    let epoch = back.unwrap_or(store.epoch());
    make_root(&store, epoch, all.listings.iter().find(|listing| listing.ino == store.root), told)?;
    all.inos.sort_unstable();
    let Store { door, host, .. } = *store;
    Ok((door, host, all))
}

/// From now on there are no snapshots. (The inode with their list is nobody's: the next look erases it.)
fn drop_snapshots<M: Medium, H: Host>(store: &mut Store<M, H>) -> Result<()> {
    let mut superblock = store.superblock.lock();
    store.change_superblock(&mut superblock, |superblock| {
        (superblock.snapshots, superblock.snapshots_nonce, superblock.rollback) = (0, 0, 0);
    })?;
    drop(superblock);
    *store.snapshots = Snapshots::default();
    store.counted = u32::MAX;
    Ok(())
}

/// Inodes that are damaged, or are there by the checkpoint and not by themselves.
fn lost<M: Medium, H: Host>(
    store: &Store<M, H>,
    pieces: &[alloc::sync::Arc<Piece>],
    damage: &[Corruption],
    tails: &[(Ino, u64)],
) -> Result<Vec<Corruption>> {
    let mut lost: Vec<Corruption> = Vec::new();
    for piece in pieces {
        for index in 1..piece.slots() {
            let (ino, tail) = (piece.ino(index), piece.tail(index));
            let known = tails.binary_search_by_key(&ino, |(ino, _)| *ino);
            let known = known.ok().and_then(|at| tails.get(at)).map_or(tail, |(_, tail)| *tail);
            let what = match tail {
                DAMAGED_TAIL => damage.iter().find(|damage| damage.ino == ino).copied(),
                tail if tail != known => None,
                _ => continue,
            };
            let otherwise = Corruption {
                what: "log of an inode is damaged before its end",
                at: slot_at(ino),
                ino,
            };
            lost.try_reserve(1)?;
            lost.push(what.unwrap_or(otherwise));
        }
    }
    debug_assert!(lost.iter().all(|damage| slot_at(damage.ino) < store.door.bytes()));
    Ok(lost)
}

fn erase_identities<M: Medium, H: Host>(store: &Store<M, H>, lost: &[Corruption]) {
    let counters = store.counters();
    for damage in lost {
        let at = slot_at(damage.ino);
        let mut window = store.door.window(LINE, counters);
        // (Less than a line must not be stored to memory that has gone bad. Nothing of it is left there.)
        let copies = [Some(at), store.door.twin_of(at)];
        let is_bad = |at: &u64| store.door.load_line(*at).is_err();
        match copies.iter().flatten().any(is_bad) {
            true => window.store_line(at, &Line::ZERO),
            false => window.store_word(at + SEAL_AT, 0),
        }
    }
}

/// Watermarks of which both copies are damaged say nothing: no transaction of a lane counts
/// by them. (The fence is that of the next session.)
fn reset_watermarks<M: Medium, H: Host>(store: &Store<M, H>, told: Told<'_>) -> Result<()> {
    let (geometry, counters) = (store.geometry, store.counters());
    for lane in 0..geometry.lanes {
        if read_watermark(&store.door, &store.host, &store.seed, &geometry, lane)?.is_some() {
            continue;
        }
        let mut window = store.door.window(2 * LINE, counters);
        for copy in 0..2 {
            let at = geometry.lane_at(lane) + copy * LINE;
            let mark = Watermark { session: store.session(), sequence: 0, version: 2 - copy };
            window.store_line(at, &mark.line(&store.seed, at));
        }
        told(Salvage::WatermarkReset { lane });
    }
    Ok(())
}

/// Makes a new root directory, where there is none: it counts when the superblock has its nonce.
fn make_root<M: Medium, H: Host>(
    store: &Store<M, H>,
    epoch: u32,
    listing: Option<&Listing>,
    told: Told<'_>,
) -> Result<()> {
    let ino = store.root;
    let wanted = store.superblock.lock().root_nonce;
    let found = read_identity(store, ino)?;
    if found.is_some_and(|(identity, ..)| identity.nonce == wanted) {
        return Ok(());
    }
    let (bits, uid, gid) = listing.map_or(UNKNOWN, |listing| listing.owner);
    // The session, and with it the nonces, is one that no inode has.
    store.raise_session(|superblock| superblock.checkpoint = 0)?;
    let (at, nonce) = (slot_at(ino), store.nonce());
    let identity = Identity { ino, nonce }.line(&store.seed, at, None);
    let first = Body::Inode {
        mode: bits as u16,
        links: 1,
        uid,
        gid,
        time_ns: store.host.now_ns(),
        extra: crate::inode::head_of_word(ino),
        text: 0,
    };
    let txid = Txid { session: store.session(), lane: 0, sequence: 1 };
    let mut line = first.encode(&Header { txid, part: 0, parts: 1 }, epoch);
    let seed = store.seed.log(ino, nonce, at / PAGE_BYTES, 0);
    let seal = seed.seal(at + LINE, &line);
    put_seal(&mut line, seal);
    let counters = store.counters();
    let mut window = store.door.window(2 * LINE, counters);
    window.store_line(at, &identity);
    window.store_line(at + LINE, &line);
    drop(window);
    // (The fence is that of the superblock. An identity without a record is erased by the next salvage.)
    store.raise_session(|superblock: &mut Superblock| superblock.root_nonce = nonce)?;
    told(Salvage::RootMade);
    Ok(())
}
