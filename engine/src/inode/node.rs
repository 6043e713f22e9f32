//! An inode in memory, and the rights to look at it and to change it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU64, fence};

use lock_api::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use lode_pmem::{Medium, prefetch_bytes};
use once_cell::race::OnceBox;

use super::beside::Beside;
use super::opens::Opens;
use super::queue::Queue;
use super::state::{Body, State};
use crate::store::{Room, Slot, Store};
use crate::{Error, Host, IndexMemory, Ino, Result};

/// Where an inode is in its life in memory.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are read, and who looks at one has it in the next line"
)]
enum Life {
    /// Not read from its log yet.
    Unloaded,
    /// Read.
    Live(State),
    /// Ended; its slot may already be another inode's.
    Gone,
}

/// An inode in memory, in one piece.
#[repr(C)]
pub(crate) struct Node<H: Host> {
    pub(crate) slot: Slot,
    /// How often it is open.
    pub(crate) opens: Opens,
    /// Somebody wanted it again since the hand came by.
    touched: AtomicBool,
    /// Who waits to write to it.
    queue: Queue,
    /// Odd while somebody has the right to change it, and another number afterwards: while it stays, so
    /// does all that was found.
    version: AtomicU64,
    /// Of an inode as a snapshot has it: what its number has besides that of the inode as it is now; else 0.
    view: Ino,
    /// What those know who write to it side by side.
    pub(super) beside: OnceBox<Beside>,
    life: RwLock<H::RwLock, Life>,
}

/// What is in front of the value in an `Arc`: two counts.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// The right to look at an inode.
pub(crate) type Shared<'n, H> = MappedRwLockReadGuard<'n, <H as Host>::RwLock, State>;

/// The right to change an inode. When it ends, what the inode has grown by is counted, and it has
/// another version.
pub(crate) struct Exclusive<'n, H: Host> {
    state: MappedRwLockWriteGuard<'n, H::RwLock, State>,
    room: &'n Room,
    version: &'n AtomicU64,
}

impl<H: Host> Deref for Exclusive<'_, H> {
    type Target = State;
    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl<H: Host> DerefMut for Exclusive<'_, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl<H: Host> Exclusive<'_, H> {
    /// The version that the inode has as long as this right lasts: one more than before, and one less than behind it.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }
}

impl<H: Host> Drop for Exclusive<'_, H> {
    #[inline]
    fn drop(&mut self) {
        self.state.weigh_again(self.room);
        advance(self.version);
    }
}

/// Whether something is to be done when it is closed for the last time: it is dead, or has no name. (Such a one stays loaded.)
fn ends(state: &State) -> bool {
    state.is_dead() || state.is_nameless()
}

/// The next version, by who alone has the right to change the inode.
#[inline]
fn advance(version: &AtomicU64) {
    version.store(version.load(Relaxed) + 1, Release);
}

impl<H: Host> Node<H> {
    /// What each takes, with its state.
    pub(super) const BYTES: u64 = (COUNTS_BYTES + size_of::<Self>()) as u64;

    /// An inode that is open so often, and was not read from its log where there is no `state`.
    pub(crate) fn new(slot: Slot, state: Option<State>, opens: u32) -> Self {
        let opens = Opens::new(opens);
        if state.as_ref().is_some_and(ends) {
            opens.note_end();
        }
        let life = RwLock::new(state.map_or(Life::Unloaded, Life::Live));
        let (touched, version) = (AtomicBool::new(false), AtomicU64::new(0));
        let (queue, beside) = (Queue::default(), OnceBox::new());
        Self { slot, life, opens, touched, queue, version, view: 0, beside }
    }

    /// The state of one that is only being made, and nobody else's yet.
    pub(crate) fn newborn(node: &mut Arc<Self>) -> Result<&mut State> {
        match Arc::get_mut(node).map(|node| node.life.get_mut()) {
            Some(Life::Live(state)) => Ok(state),
            _ => Err(Error::Stale),
        }
    }

    /// An inode as a snapshot has it, to be loaded by [`Node::load_as_of`].
    pub(super) fn of_view(slot: Slot, view: Ino, opens: u32) -> Self {
        Self { view, ..Self::new(slot, None, opens) }
    }

    /// Number of the inode.
    pub(crate) fn ino(&self) -> Ino {
        self.slot.ino() | self.view
    }

    /// Asks for its memory, nearly all of which who looks at one looks at. (The next thing done is to count a user, and behind that nothing
    /// is loaded until the line of the counts is there.)
    #[inline]
    pub(super) fn expect(&self) {
        prefetch_bytes(self, size_of::<Self>());
    }

    /// Whether it is one as a snapshot has it.
    #[inline]
    pub(crate) fn is_view(&self) -> bool {
        self.view != 0
    }

    /// Loads it as it was at the end of `epoch`, if that was not done before.
    pub(crate) fn load_as_of<M: Medium>(&self, store: &Store<M, H>, epoch: u32) -> Result<()> {
        let mut life = self.life.write();
        if matches!(*life, Life::Unloaded) {
            let mut state = super::load_as_of(store, &self.slot, epoch, self.view)?;
            state.put_in(&store.room);
            *life = Life::Live(*state);
        }
        Ok(())
    }

    /// Loads it anew as it was at the end of `epoch`: what was loaded before says nothing of what is on the medium.
    pub(crate) fn look_as_of<M: Medium>(
        &self,
        store: &Store<M, H>,
        epoch: u32,
    ) -> Result<Box<State>> {
        super::load_as_of(store, &self.slot, epoch, self.view)
    }

    /// Ends it: its snapshot has ended. Waits for those who look at it.
    pub(crate) fn end_view(&self, room: &Room) {
        if let Life::Live(mut state) = core::mem::replace(&mut *self.life.write(), Life::Gone) {
            state.take_out(room);
        }
    }

    /// A number that is another one from the beginning of each change on.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// Whether it has ended: a look that holds nobody up. (Those of snapshots don't tell.)
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.opens.is_gone()
    }

    /// Whether its log has been read.
    pub(crate) fn is_loaded(&self) -> bool {
        matches!(*self.life.read(), Life::Live(_))
    }

    /// Whether it is a file without a name. (Such a one stays loaded.)
    pub(crate) fn is_nameless(&self) -> bool {
        matches!(&*self.life.read(), Life::Live(state) if state.is_nameless())
    }

    /// Locks the inode for reading, loading it when this is its first touch.
    pub(crate) fn read<M: Medium>(&self, store: &Store<M, H>) -> Result<Shared<'_, H>> {
        loop {
            let guard = self.life.read();
            let loaded = RwLockReadGuard::try_map(guard, |life| match life {
                Life::Live(state) => Some(state),
                _ => None,
            });
            match loaded {
                Ok(state) => return Ok(state),
                Err(guard) if matches!(*guard, Life::Gone) => return Err(Error::Stale),
                // (Those of snapshots are loaded by who finds them.)
                Err(_) if self.is_view() => return Err(Error::Stale),
                Err(guard) => drop(guard),
            }
            drop(self.write(store)?);
        }
    }

    /// Locks the inode for changes, loading it when this is its first touch.
    pub(crate) fn write<'n, M: Medium>(
        &'n self,
        store: &'n Store<M, H>,
    ) -> Result<Exclusive<'n, H>> {
        self.in_exclusive(store, self.life.write())
    }

    /// The same, if nobody has it locked.
    pub(crate) fn try_write<'n, M: Medium>(
        &'n self,
        store: &'n Store<M, H>,
    ) -> Result<Option<Exclusive<'n, H>>> {
        self.life.try_write().map(|guard| self.in_exclusive(store, guard)).transpose()
    }

    /// Whether somebody has it locked just now, or waits to write to it: a look that holds nobody up.
    pub(crate) fn is_wanted(&self) -> bool {
        self.life.is_locked() || self.queue.is_used()
    }

    /// Whether somebody has the right to change it just now, or waits to write to it: as [`Node::is_wanted`].
    pub(crate) fn is_written(&self) -> bool {
        self.life.is_locked_exclusive() || self.queue.is_used()
    }

    /// As [`Node::write`], by who holds it for less time than it takes to fall asleep and to be woken: looks so often before it sleeps, and
    /// comes behind those who did so before.
    pub(crate) fn write_soon<'n, M: Medium>(
        &'n self,
        store: &'n Store<M, H>,
        looks: u32,
    ) -> Result<Exclusive<'n, H>> {
        if !self.is_wanted()
            && let Some(state) = self.try_write(store)?
        {
            return Ok(state);
        }
        let turn = self.queue.join();
        for _ in 0..looks {
            if turn.is_next()
                && !self.life.is_locked()
                && let Some(state) = self.try_write(store)?
            {
                return Ok(state);
            }
            core::hint::spin_loop();
        }
        self.write(store)
    }

    #[inline]
    fn in_exclusive<'n, M: Medium>(
        &'n self,
        store: &'n Store<M, H>,
        mut guard: RwLockWriteGuard<'n, H::RwLock, Life>,
    ) -> Result<Exclusive<'n, H>> {
        if self.is_view() {
            return Err(Error::ReadOnly);
        }
        if matches!(*guard, Life::Unloaded) {
            let mut state = super::load(store, &self.slot)?;
            state.put_in(&store.room);
            if ends(&state) {
                self.opens.note_end();
            }
            *guard = Life::Live(*state);
        }
        let state = RwLockWriteGuard::try_map(guard, |life| match life {
            Life::Live(state) => Some(state),
            _ => None,
        });
        let state = state.map_err(|_| Error::Stale)?;
        // From the beginning: who changes two inodes gives back the right to one before the other.
        advance(&self.version);
        let mut exclusive = Exclusive { state, room: &store.room, version: &self.version };
        if let Body::File(file) = &mut exclusive.body
            && *file.sector_lines.get_mut()
        {
            // (Who writes by what it knew of the version before is waited for, and nobody begins to.)
            fence(SeqCst);
            file.end_sector_lines(store, self.slot.ino())?;
        }
        Ok(exclusive)
    }

    /// Ends the life in memory of an inode whose last link is gone and that nobody has
    /// open, and hands out what it was.
    pub(crate) fn end_if_dead(&self, room: &Room) -> Option<State> {
        let mut life = self.life.write();
        let ended = match &*life {
            Life::Live(state) => state.is_dead() && self.opens.end(),
            _ => false,
        };
        if !ended {
            return None;
        }
        match core::mem::replace(&mut *life, Life::Gone) {
            Life::Live(mut state) => {
                state.take_out(room);
                Some(state)
            }
            _ => None,
        }
    }

    /// Notes that somebody wants it.
    #[inline]
    pub(crate) fn touch(&self) {
        if !self.touched.load(Relaxed) {
            self.touched.store(true, Relaxed);
        }
    }

    /// Whether somebody has wanted it since this was last asked.
    pub(super) fn take_touch(&mut self) -> bool {
        core::mem::take(self.touched.get_mut())
    }

    /// Whether what is known of it can go: its log tells it again. Its journal page, if nothing in
    /// it is wanted, becomes free.
    pub(super) fn may_drop<M: Medium>(&mut self, store: &Store<M, H>) -> bool {
        let view = self.is_view();
        let Life::Live(state) = self.life.get_mut() else { return true };
        if view {
            return true;
        }
        if ends(state) {
            return false;
        }
        // (Twice, as nobody changes it: should it stay after all, nobody writes by what was known of it when its lines ended.)
        advance(&self.version);
        advance(&self.version);
        match &mut state.body {
            Body::File(file) => {
                !file.is_mapped()
                    && file.end_sector_lines(store, self.slot.ino()).is_ok()
                    && file.journal.release_idle(store).is_ok()
            }
            _ => true,
        }
    }

    /// Takes its state out of the room for inodes.
    pub(super) fn take_out(&mut self, room: &Room) {
        if let Life::Live(state) = self.life.get_mut() {
            state.take_out(room);
        }
    }

    /// Adds what its state takes to `memory`; says whether it was in use.
    pub(super) fn weigh(&self, memory: &mut IndexMemory) -> bool {
        match self.life.try_read().as_deref() {
            Some(Life::Live(state)) => state.weigh(memory),
            Some(Life::Unloaded | Life::Gone) => {}
            None => return true,
        }
        false
    }
}
