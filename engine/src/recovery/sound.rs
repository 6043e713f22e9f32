//! Whether a pool would stand a recovery: asked before something that needs one is written.

use alloc::sync::Arc;
use alloc::vec::Vec;

use lode_pmem::{Door, Medium};

use super::checkpoint::{Ended, load_checkpoint};
use super::open::{check_root, survey};
use crate::layout::{Superblock, slot_at};
use crate::pool::Opening;
use crate::snapshot::{read_list, received_over};
use crate::space::Claims;
use crate::store::{Piece, Store, read_superblock};
use crate::{Error, Host, Ino, Result};

/// Reads a pool as the next recovery will, whatever its checkpoint says, and writes nothing; tells how
/// many pages the pool has.
///
/// # Errors
/// [`Error::Corrupt`] for the first damage. A pool that was closed has no ends of logs that a crash
/// could explain: there, a log that ends elsewhere than its checkpoint says is damage, too.
pub(crate) fn stands_recovery<M: Medium, H: Host>(
    door: Door<M>,
    host: H,
) -> Result<(Door<M>, H, u64)> {
    let (superblock, _) = read_superblock(&door, &host, false)?;
    let mut store = Store::new(door, host, &superblock)?;
    if received_over(&store, &superblock)?.is_some() {
        return Err(Error::Receiving);
    }
    let tails = match load_checkpoint(&store, &superblock)? {
        Ended::Not => Vec::new(),
        Ended::Closed(loaded) => loaded.tails()?,
        Ended::Damaged(damage) => return Err(Error::Corrupt(damage)),
    };
    stands(&mut store, &superblock, &tails)?;
    let Store { door, host, .. } = *store;
    Ok((door, host, superblock.pages))
}

/// Reads a pool as the recovery will that makes it what it was at the end of an epoch, which a snapshot keeps, and writes nothing.
///
/// # Errors
/// [`Error::Corrupt`] for the first damage.
pub(crate) fn stands_rollback<M: Medium, H: Host>(
    door: Door<M>,
    host: H,
    epoch: u32,
) -> Result<(Door<M>, H)> {
    let (mut superblock, _) = read_superblock(&door, &host, false)?;
    let mut store = Store::new(door, host, &superblock)?;
    store.look_back(&mut superblock, epoch);
    stands(&mut store, &superblock, &[])?;
    let Store { door, host, .. } = *store;
    Ok((door, host))
}

fn stands<M: Medium, H: Host>(
    store: &mut Store<M, H>,
    superblock: &Superblock,
    tails: &[(Ino, u64)],
) -> Result<()> {
    let claims = Claims::new(store.geometry.pages)?;
    read_list(store, superblock)?;
    let (scan, pieces) = survey(store, &claims)?;
    if let Some(damage) = scan.damage.first() {
        return Err(Error::Corrupt(*damage));
    }
    for piece in &pieces {
        same_tails(piece, tails)?;
        store.table.add_piece(Arc::clone(piece))?;
    }
    check_root(store, superblock, false, &mut Opening::default())
}

/// The logs end where the checkpoint says, if there is one.
fn same_tails(piece: &Piece, tails: &[(Ino, u64)]) -> Result<()> {
    if tails.is_empty() {
        return Ok(());
    }
    for index in 1..piece.slots() {
        let ino = piece.ino(index);
        let known = tails.binary_search_by_key(&ino, |(ino, _)| *ino).ok();
        let known = known.and_then(|at| tails.get(at)).map_or(0, |(_, tail)| *tail);
        if known != piece.tail(index) {
            let what = "log of an inode is damaged before its end";
            return Err(Error::corrupt_inode(what, slot_at(ino), ino));
        }
    }
    Ok(())
}
