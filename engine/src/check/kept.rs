//! What only snapshots see: inodes that have ended, and names and values of attributes that inodes have no more.
//!
//! Each of these is looked at once, as the latest snapshot has it that sees it, and damage of it bears the number that its inode has
//! there: who can't mend a snapshot knows by that number what is not of the pool as it is. So it takes no time that grows
//! with how many snapshots there are.

use alloc::vec::Vec;

use hashbrown::HashMap;
use lode_pmem::Medium;

use super::full::Check;
use crate::inode::{
    Mix, NO_IDENTITY, NameTarget, Past, PastName, Scanned, State, load_with_past, load_xattr_value,
};
use crate::layout::{DEATH_LINE, LINE, slot_at, tag_of};
use crate::log::{read_death, read_identity};
use crate::{Corruption, Error, Host, Ino, Result, VIEW, ino_beside};

const NO_INODE: &str = "entry of a snapshot leads to no inode";
const DAMAGED: &str = "log of an inode is damaged before its end";
const NO_END: &str = "end of a dead inode is damaged";

/// What is known of what only snapshots see.
#[derive(Default)]
pub(super) struct Kept {
    /// Names that have ended.
    names: Vec<PastName>,
    /// Inodes that have ended, and the tags of their lives; none of those that are damaged.
    inodes: HashMap<Ino, Option<u32>, Mix>,
    /// What they have lost.
    lost: Vec<Corruption>,
}

impl<M: Medium, H: Host> Check<'_, M, H> {
    /// Dead inodes that snapshots see, each by its number in the latest of these.
    pub(super) fn list_kept(&mut self) -> Result<Vec<Ino>> {
        let mut dead = Vec::new();
        if let Err(error) = self.pool.list_dead(&mut dead) {
            self.note(error)?;
        }
        Ok(dead)
    }

    /// What snapshots see of an inode that lives, and it has no more. Its log stays as it is meanwhile.
    #[inline(never)]
    pub(super) fn past_of(&mut self, state: &State) -> Result<()> {
        let (ino, store) = (state.log.ino, &self.pool.store);
        if store.snapshots.latest() == 0 || !store.sees_log(ino, state.log.born) {
            return Ok(());
        }
        let died = state.is_dead().then_some(state.died);
        let Scanned { state, past, .. } = load_with_past(store, ino, died)?;
        match (state, past) {
            (Some(state), Some(past)) => self.take_past(&state, *past),
            _ => Ok(()),
        }
    }

    /// Names are compared when all inodes are known.
    fn take_past(&mut self, state: &State, past: Past) -> Result<()> {
        self.kept.names.try_reserve(past.names.len())?;
        self.kept.names.extend(past.names);
        for (epoch, xattr) in &past.values {
            if let Err(error) = load_xattr_value(&self.pool.store, state, xattr) {
                self.note_in(error, state.log.ino, *epoch)?;
            }
        }
        Ok(())
    }

    /// Looks at these dead inodes.
    pub(super) fn kept_inodes(&mut self, dead: &[Ino], told: &mut dyn FnMut(usize)) -> Result<()> {
        for (done, seen) in dead.iter().enumerate() {
            told(done);
            let tag = match self.dead(*seen) {
                Ok(tag) => Some(tag),
                Err(error) => {
                    self.note_as(error, *seen)?;
                    None
                }
            };
            self.kept.inodes.try_reserve(1)?;
            self.kept.inodes.insert(ino_beside(*seen, 0), tag);
        }
        Ok(())
    }

    /// A dead inode at its end, and all that ended before; returns the tag of its life.
    #[inline(never)]
    fn dead(&mut self, seen: Ino) -> Result<u32> {
        let (ino, store) = (ino_beside(seen, 0), &self.pool.store);
        let lost = |what, at| Error::corrupt_inode(what, at, seen);
        let no_identity = lost(NO_IDENTITY, slot_at(ino));
        let (identity, ..) = read_identity(store, ino)?.ok_or(no_identity)?;
        let no_end = lost(NO_END, slot_at(ino) + DEATH_LINE * LINE);
        let died = read_death(store, &identity)?.ok_or(no_end)?.epoch;
        // (What it says behind the last snapshot that sees it may be gone.)
        let epoch = self.pool.epoch_of_view(seen)?;
        let node = self.pool.node(seen)?;
        self.pool.look_at_dead(&node, &*node.read(store)?, epoch)?;
        let Scanned { walk, state, past, .. } = load_with_past(store, ino, Some(died))?;
        let (Some(state), Some(past)) = (state, past) else {
            return Err(lost(DAMAGED, walk.tail().at));
        };
        for xattr in state.xattrs.iter().filter(|it| store.snapshots.sees(it.epoch, died)) {
            if let Err(error) = load_xattr_value(store, &state, xattr) {
                self.note_as(error, seen)?;
            }
        }
        self.take_past(&state, *past)?;
        Ok(tag_of(identity.nonce))
    }

    /// Every name that a snapshot sees leads to the inode that it means, as those do that there are now.
    pub(super) fn past_names(&mut self) -> Result<()> {
        for name in core::mem::take(&mut self.kept.names) {
            let NameTarget { ino, tag, kind } = name.target;
            let is_right = match self.kept.inodes.get(&ino) {
                // (It is lost, and that has been told.)
                Some(None) => true,
                Some(Some(kept)) => *kept == tag,
                None => self.is_alive(ino, u32::from(kind), tag),
            };
            if !is_right {
                let lost = Error::corrupt_inode(NO_INODE, name.at, 0);
                self.note_in(lost, ino, name.epoch)?;
            }
        }
        Ok(())
    }

    /// Notes damage of an inode as the snapshot of this epoch has it.
    fn note_in(&mut self, error: Error, ino: Ino, epoch: u32) -> Result<()> {
        match self.pool.view_of(epoch)? {
            Some(view) => self.note_as(error, ino | view),
            // It has ended meanwhile.
            None => Ok(()),
        }
    }

    fn note_as(&mut self, error: Error, seen: Ino) -> Result<()> {
        debug_assert!(seen >= VIEW);
        let damage = error.into_damage()?;
        self.kept.lost.try_reserve(1)?;
        self.kept.lost.push(Corruption { ino: seen, ..damage });
        Ok(())
    }

    /// Tells what snapshots have lost, behind all other damage.
    pub(super) fn tell_kept(&mut self) -> Result<()> {
        let lost = core::mem::take(&mut self.kept.lost);
        lost.into_iter().try_for_each(|damage| self.note(Error::Corrupt(damage)))
    }
}
