//! Opening a pool: by its checkpoint, or by recovery in the order of PROTOCOL.md.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use lode_pmem::{Door, Medium};

use super::checkpoint::{Ended, Loaded, load_checkpoint};
use super::judge::judge;
use super::losses::losses_since;
use super::repair::settle;
use super::scan::{DAMAGED_TAIL, Scan, Scanner};
use crate::inode::load_for_scan;
use crate::layout::Superblock;
use crate::log::{Walk, read_death, read_identity};
use crate::pool::Opening;
use crate::snapshot::{read_list, received_over};
use crate::space::{Claims, Run};
use crate::store::{
    BadChain, BadParts, Item, Kept, NO_WATERMARK, Piece, Store, read_superblock, read_watermark,
    repair_locator,
};
use crate::{Error, Host, Ino, OpenOptions, Pool, Result, Rule};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Opens a pool; recovers it when its last session did not end cleanly. A read-only
    /// opening writes nothing, and goes on over damage: what is damaged can't be read.
    pub fn open(medium: M, host: H, options: &OpenOptions) -> Result<Self> {
        let door = Door::new(medium);
        let door = if options.read_only { door } else { door.with_wear()? };
        Self::open_door(door, host, options)
    }

    pub(crate) fn open_door(door: Door<M>, host: H, options: &OpenOptions) -> Result<Self> {
        Self::open_beside(door, host, options, (&[], false))
    }

    /// The same, beside programs that have these chunks as memory, or are about to have them, besides those that the medium
    /// tells of; and by a salvage, or not.
    #[inline(never)]
    pub(crate) fn open_beside(
        door: Door<M>,
        host: H,
        options: &OpenOptions,
        (lent, salvages): (&[u64], bool),
    ) -> Result<Self> {
        let (superblock, bad) = read_superblock(&door, &host, options.read_only)?;
        let losses = losses_since(&door, &superblock);
        let (door, host) = Self::heed_losses(losses, door, host, options)?;
        let mut store = Store::new(door, host, &superblock)?;
        store.sectors.passes_over = salvages;
        // Before anything is free.
        lent.iter().for_each(|chunk| _ = store.lent.hold(*chunk));
        Self::open_store(store, superblock, options, (bad, losses))
    }

    #[inline(never)]
    fn open_store(
        mut store: Box<Store<M, H>>,
        mut superblock: Box<Superblock>,
        options: &OpenOptions,
        (bad, losses): (BadParts, u64),
    ) -> Result<Self> {
        let given_up = heed_receiving(&mut store, &mut superblock, options)?;
        let mut opening = Opening { losses, given_up, ..Opening::default() };
        opening.superblock_damage.try_reserve_exact(bad.len())?;
        opening.superblock_damage.extend(bad.into_iter().flatten());
        let Found { checkpoint, exempt } =
            find_state(&mut store, &superblock, options.read_only, &mut opening)?;
        if !options.read_only {
            store.space.keep_twins(store.kept_twins())?;
            store.set_writable(true);
        }
        if options.read_only {
            take_sectors_left(&mut store, &mut opening)?;
        }
        // (One place for the pool and the error: it is large.)
        let mut opened = Self::over(store, options, superblock.page_class, opening, checkpoint);
        if let Ok(pool) = &opened
            && let Err(error) = pool.end_what_began(&superblock, given_up, &exempt)
        {
            opened = Err(error);
        }
        opened
    }

    /// Ends what a crash has left half done that takes an open pool.
    #[inline(never)]
    fn end_what_began(
        &self,
        superblock: &Superblock,
        given_up: bool,
        exempt: &[Ino],
    ) -> Result<()> {
        if !self.options.read_only {
            self.bring_sectors_home()?;
        }
        match given_up {
            _ if self.options.read_only => {}
            true => self.end_given_up()?,
            false if superblock.rollback != 0 => self.end_rollback()?,
            false => {}
        }
        self.make_sound(exempt)
    }
}

/// What a crash has left in the sector journal is read from there, as nothing is stored.
#[inline(never)]
fn take_sectors_left<M: Medium, H: Host>(
    store: &mut Store<M, H>,
    opening: &mut Opening,
) -> Result<()> {
    match store.sector_lines() {
        Ok(left) => store.sectors.left = left,
        Err(error) => note_damage(opening, error)?,
    }
    Ok(())
}

/// What is known of a pool besides what its store knows.
struct Found {
    /// The pages of the checkpoint that a read-only opening goes by.
    checkpoint: Vec<Run>,
    /// Files with pages that programs had mapped: they are not whole.
    exempt: Vec<Ino>,
}

/// What the pool's state is: by its checkpoint, or by its logs.
#[inline(never)]
fn find_state<M: Medium, H: Host>(
    store: &mut Store<M, H>,
    superblock: &Superblock,
    read_only: bool,
    opening: &mut Opening,
) -> Result<Found> {
    match load_checkpoint(store, superblock)? {
        Ended::Closed(loaded) => {
            let checkpoint = from_checkpoint(store, superblock, loaded, read_only, opening)?;
            Ok(Found { checkpoint, exempt: Vec::new() })
        }
        ended => {
            if let Ended::Damaged(damage) = ended {
                opening.checkpoint_damage = Some(damage);
            }
            let exempt = recover(store, superblock, read_only, opening)?;
            Ok(Found { checkpoint: Vec::new(), exempt })
        }
    }
}

/// Heeds what is being received into the pool. Says whether it is being given up: then the pool is to be what it was.
#[inline(never)]
fn heed_receiving<M: Medium, H: Host>(
    store: &mut Store<M, H>,
    superblock: &mut Superblock,
    options: &OpenOptions,
) -> Result<bool> {
    match received_over(store, superblock)? {
        Some(over) if over.is_abandoned || over.before == superblock.rollback => Ok(true),
        None => Ok(false),
        Some(_) if options.receiving => Ok(false),
        Some(_) if !options.read_only => Err(Error::Receiving),
        Some(over) => {
            store.look_back(superblock, over.before);
            Ok(false)
        }
    }
}

/// Step 1: a checkpoint of the superblock's session is all there is to know.
#[inline(never)]
fn from_checkpoint<M: Medium, H: Host>(
    store: &Store<M, H>,
    superblock: &Superblock,
    loaded: Loaded,
    read_only: bool,
    opening: &mut Opening,
) -> Result<Vec<Run>> {
    let bad_chains = store.bad_chains(&loaded.pieces)?;
    opening.chain_damage.try_reserve_exact(bad_chains.len())?;
    opening.chain_damage.extend(bad_chains.iter().map(BadChain::damage));
    for piece in loaded.pieces {
        store.table.add_piece(Arc::new(piece))?;
    }
    for run in loaded.free {
        store.add_free(run)?;
    }
    opening.clean = true;
    opening.inodes = store.table.used();
    check_root(store, superblock, read_only, opening)?;
    take_manifests(store, superblock, loaded.manifests, read_only, opening)?;
    if read_only {
        return Ok(loaded.own);
    }
    repair_locator(store)?;
    store.mend_watermarks();
    store.mend_chains(&bad_chains)?;
    raise(store)?;
    for run in loaded.own {
        store.add_free(run)?;
    }
    Ok(Vec::new())
}

/// Steps 2 to 10. Step 9 is done file by file when it is first touched (`inode::load`). A rollback is ended later: until then the
/// superblock says so. Returns the files with pages that are exempt from checksums.
#[inline(never)]
fn recover<M: Medium, H: Host>(
    store: &mut Store<M, H>,
    superblock: &Superblock,
    read_only: bool,
    opening: &mut Opening,
) -> Result<Vec<Ino>> {
    let geometry = store.geometry;
    let claims = Claims::new(geometry.pages)?;
    store.compare_twins();
    let listed = read_list(store, superblock);
    let (mut scan, pieces) = survey(store, &claims)?;
    opening.aborted = store.aborted.len() as u64;
    opening.inodes = scan.inodes;
    opening.log_pages = scan.log_pages;
    opening.orphans = scan.nameless;
    opening.exempt_pages = scan.exempt_pages;
    let damage = scan.damage.first().copied();
    opening.damage = core::mem::take(&mut scan.damage);
    if let Err(error) = listed {
        note_damage(opening, error)?;
    }
    let damage = damage.or(opening.damage.first().copied());
    if let Some(damage) = damage.filter(|_| !read_only) {
        return Err(Error::Corrupt(damage));
    }
    for piece in pieces {
        store.table.add_piece(piece)?;
    }
    check_root(store, superblock, read_only, opening)?;
    // Step 6: a read-only opening keeps the verdicts in memory.
    if !read_only {
        settle(store, &scan, &raise)?;
        store.counted = u32::MAX;
    }
    store.end_comparing(false);
    // The slots of dead inodes that snapshots see are nobody's.
    store.snapshots.for_each_item(&mut |item| {
        if item.kind() == Kept::Slot {
            store.table.keep_slot(item.place().page);
        }
        Ok(())
    })?;
    // Step 10.
    store.bad.forget_kept();
    let (first, end) = (geometry.first_page(), geometry.end_page());
    claims.for_each_unclaimed(first, end, &mut |run| store.add_free(run))?;
    Ok(scan.exempt)
}

/// Steps 2 to 5: what there is, and what of it happened.
#[inline(never)]
pub(crate) fn survey<M: Medium, H: Host>(
    store: &mut Store<M, H>,
    claims: &Claims,
) -> Result<(Scan, Vec<Arc<Piece>>)> {
    let mut scan = Scan::new(store.geometry.lanes)?;
    for (page, pages) in store.geometry.reserved() {
        // (Nothing else is claimed yet.)
        let _ = claims.claim(Run { page, pages });
    }
    if let Some(run) = store.sector_run() {
        let _ = claims.claim(run);
    }
    let watermarks = watermarks(store, &mut scan)?;
    let scanner = Scanner { store, claims, watermarks: &watermarks };
    let pieces = scanner.pieces(&mut scan)?;
    scanner.inodes(&pieces, &mut scan)?;
    let mut aborted = judge(&mut scan, &store.host)?;
    if store.host.leaves_out(Rule::PartCount) {
        aborted.clear();
    }
    let too_early = store.host.leaves_out(Rule::JudgeBeforeRebuild);
    if !too_early {
        store.aborted = core::mem::take(&mut aborted);
    }
    let scanner = Scanner { store, claims, watermarks: &watermarks };
    settle_deferred(&scanner, &pieces, &mut scan)?;
    if too_early {
        store.aborted = aborted;
    }
    Ok((scan, pieces))
}

/// Step 2: the watermarks of this session, by lane.
#[inline(never)]
fn watermarks<M: Medium, H: Host>(store: &Store<M, H>, scan: &mut Scan) -> Result<Vec<u64>> {
    let geometry = store.geometry;
    let mut watermarks = Vec::new();
    watermarks.try_reserve_exact(geometry.lanes as usize)?;
    for lane in 0..geometry.lanes {
        let watermark = read_watermark(&store.door, &store.host, &store.seed, &geometry, lane)?;
        if watermark.is_none() {
            let at = geometry.lane_at(lane);
            scan.note(Error::corrupt(NO_WATERMARK, at), 0)?;
        }
        let any_session = store.host.leaves_out(Rule::WatermarkSession);
        let any_later = store.host.leaves_out(Rule::LaterSequence);
        let watermark = watermark.filter(|_| !any_later);
        let ours = watermark.filter(|mark| any_session || mark.session == store.session());
        watermarks.push(ours.map_or(0, |watermark| watermark.sequence));
    }
    Ok(watermarks)
}

/// Begins the session that no checkpoint speaks of.
fn raise<M: Medium, H: Host>(store: &Store<M, H>) -> Result<()> {
    store.raise_session(|superblock| superblock.checkpoint = no_checkpoint(store, superblock))
}

/// What a superblock says of its checkpoint when the session after it begins.
fn no_checkpoint<M: Medium, H: Host>(store: &Store<M, H>, superblock: &Superblock) -> u64 {
    if store.host.leaves_out(Rule::CheckpointSession) { superblock.checkpoint } else { 0 }
}

/// Takes in the inodes that waited for the verdicts.
fn settle_deferred<M: Medium, H: Host>(
    scanner: &Scanner<'_, M, H>,
    pieces: &[Arc<Piece>],
    scan: &mut Scan,
) -> Result<()> {
    for (number, index) in core::mem::take(&mut scan.deferred) {
        let Some(piece) = pieces.get(number) else { continue };
        if let Err(error) = settle_one(scanner, piece, index, scan) {
            piece.set_tail(index, DAMAGED_TAIL);
            scan.note(error, piece.ino(index))?;
        }
    }
    Ok(())
}

#[inline(never)]
fn settle_one<M: Medium, H: Host>(
    scanner: &Scanner<'_, M, H>,
    piece: &Piece,
    index: u32,
    scan: &mut Scan,
) -> Result<()> {
    let store = scanner.store;
    let Some((identity, head, _, seal)) = read_identity(store, piece.ino(index))? else {
        return Ok(());
    };
    if let Some(death) = read_death(store, &identity)?
        && !store.host.leaves_out(Rule::DeathHonoured)
        && !store.aborted.contains(&death.header.txid)
    {
        return scanner.settle_dead((&identity, head, seal), &death, scan);
    }
    let walk = Walk::new(store, &identity, head, seal)?;
    let mut scanned = load_for_scan(store, walk, None, &mut |_| ())?;
    scanner.settle(piece, index, &mut scanned, scan)
}

/// What a checkpoint says that is kept for snapshots, which are those of the list.
#[inline(never)]
fn take_manifests<M: Medium, H: Host>(
    store: &Store<M, H>,
    superblock: &Superblock,
    manifests: Vec<(u32, Vec<Item>)>,
    read_only: bool,
    opening: &mut Opening,
) -> Result<()> {
    let listed = read_list(store, superblock).and_then(|()| {
        let epochs = store.snapshots.epochs()?;
        match manifests.iter().map(|(epoch, _)| *epoch).eq(epochs) {
            true => Ok(()),
            false => Err(Error::corrupt("checkpoint has other snapshots than there are", 0)),
        }
    });
    if let Err(error) = listed {
        if !read_only {
            return Err(error);
        }
        return note_damage(opening, error);
    }
    for (epoch, items) in manifests {
        for item in items.iter().filter(|item| item.kind() == Kept::Slot) {
            let ino = item.place().page;
            if store.table.find(ino).is_none_or(|slot| slot.tail() != 0) {
                let at = crate::layout::slot_at(ino);
                return Err(Error::corrupt_inode("slot kept for snapshots is in use", at, ino));
            }
            store.table.keep_slot(ino);
        }
        store.snapshots.fill(epoch, items);
    }
    Ok(())
}

/// Notes damage that a read-only opening goes on over.
fn note_damage(opening: &mut Opening, error: Error) -> Result<()> {
    let damage = error.into_damage()?;
    opening.damage.try_reserve(1)?;
    opening.damage.push(damage);
    Ok(())
}

/// Without a root there is nothing to show. (Asked before anything is written.)
#[inline(never)]
pub(super) fn check_root<M: Medium, H: Host>(
    store: &Store<M, H>,
    superblock: &Superblock,
    read_only: bool,
    opening: &mut Opening,
) -> Result<()> {
    let there = store.table.find(superblock.root).is_some_and(|slot| slot.tail() != 0);
    let identity = read_identity(store, superblock.root)?;
    let right = identity.is_some_and(|(identity, ..)| identity.nonce == superblock.root_nonce);
    if there && right {
        return Ok(());
    }
    let at = crate::layout::slot_at(superblock.root);
    let error = Error::corrupt_inode("the root directory is lost", at, superblock.root);
    if !read_only {
        return Err(error);
    }
    note_damage(opening, error)
}
