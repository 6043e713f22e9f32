//! Removing entries; the end of inodes (PROTOCOL F4, I9, I10).

use lode_pmem::Medium;

use crate::inode::{Body as Kind, Name, Node, State, entry_lines};
use crate::layout::{Body, DEATH_LINE, LINE, Parsed, Txid, slot_at};
use crate::log::{INLINE, Placed, Plan};
use crate::pool::Found;
use crate::space::Run;
use crate::store::{Item, Kept, Purpose, Tx};
use crate::{Error, Host, Ino, Op, Pool, Result, Rule, mode};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Removes an entry that is not a directory.
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.remove(&*self.node_to_change(dir)?, name, false)
    }

    /// The same, in a directory that was found.
    pub fn unlink_in(&self, dir: &Found<H>, name: &[u8]) -> Result<()> {
        self.store.before_operation()?;
        self.remove(&dir.node, name, false)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.remove(&*self.node_to_change(dir)?, name, true)
    }

    /// The same, in a directory that was found.
    pub fn rmdir_in(&self, dir: &Found<H>, name: &[u8]) -> Result<()> {
        self.store.before_operation()?;
        self.remove(&dir.node, name, true)
    }

    fn remove(&self, node: &Node<H>, name: &[u8], directory: bool) -> Result<()> {
        self.count(if directory { Op::Rmdir } else { Op::Unlink });
        if matches!(name, b"." | b"..") {
            node.read(&self.store)?.directory()?;
            return Err(if name == b"." { Error::Invalid } else { Error::NotEmpty });
        }
        let child = self.with_child(node, name, |parent, state, child| {
            match (&state.body, directory) {
                (Kind::Directory(_), false) => return Err(Error::IsDirectory),
                (Kind::Directory(entries), true) if !entries.entries.is_empty() => {
                    return Err(Error::NotEmpty);
                }
                (Kind::Directory(_), true) => {}
                (_, true) => return Err(Error::NotDirectory),
                (_, false) => {}
            }
            let plans = [parent.log.plan([1]), self.plan_drop(state)];
            self.reserve_both(parent, state, &plans, Purpose::Frees)?;
            let time_ns = self.now_ns();
            let mut tx = self.begin_plans(&plans, self.death_lines(state))?;
            tx.split(Rule::UnlinkInOne, plans[0].lines);
            let placed = self.store_del(&mut tx, parent, &child.add, time_ns);
            let dropped = self.store_drop(&mut tx, state, time_ns);
            let epoch = tx.epoch();
            tx.commit_while(|| {
                self.remove_entry(parent, (name, child.entry.cookie), placed.ordinal, time_ns);
                note_drop(&child.node, state, dropped, (epoch, time_ns));
                Ok(())
            })?;
            node.slot.set_tail(parent.log.tail.last_seal);
            self.tidy_dropped(&child.node, state);
            self.tidy(&node.slot, parent);
            Ok(child.node.clone())
        })?;
        self.bury_if_dead(&child);
        Ok(())
    }

    /// Stores the DEL of the entry that `add` made.
    pub(crate) fn store_del(
        &self,
        tx: &mut Tx<'_, M, H>,
        parent: &mut State,
        add: &Parsed,
        time_ns: i64,
    ) -> Placed {
        let Txid { session, lane, sequence } = add.header.txid;
        let del =
            Body::Del { txid: Txid { session, lane, sequence }, part: add.header.part, time_ns };
        parent.log.append(tx, &self.store, &del)
    }

    /// Makes memory say what [`Pool::store_del`] stored.
    pub(crate) fn remove_entry(
        &self,
        parent: &mut State,
        (name, cookie): (&[u8], u64),
        ordinal: u32,
        time_ns: i64,
    ) {
        parent.remove_entry(cookie, entry_lines(name.len()), ordinal, time_ns);
        if let Some(noted) = Name::of(parent.log.ino, name) {
            self.dentries.forget(&noted);
        }
    }

    /// Lines that the end of one link needs in the inode's log (a death has its own slot).
    pub(crate) fn plan_drop(&self, state: &State) -> Plan {
        if self.death_lines(state) > 0 { Plan::default() } else { state.log.plan([1]) }
    }

    /// Lines that the end of one link needs in the place of deaths.
    pub(crate) fn death_lines(&self, state: &State) -> u32 {
        u32::from(last_link(state) && !self.store.host.leaves_out(Rule::DeathApart))
    }

    /// Stores the end of one link: DEATH or LINKS. `None` for a death.
    pub(crate) fn store_drop(
        &self,
        tx: &mut Tx<'_, M, H>,
        state: &mut State,
        time_ns: i64,
    ) -> Option<Placed> {
        if !last_link(state) {
            let links = state.links - 1;
            let record = Body::Links { links, parent: 0, ctime_ns: time_ns };
            return Some(state.log.append(tx, &self.store, &record));
        }
        let at = slot_at(state.log.ino) + DEATH_LINE * LINE;
        let born = if state.is_nameless() { tx.epoch() } else { state.log.born };
        let death = Body::Death { born, ctime_ns: time_ns };
        if self.store.host.leaves_out(Rule::DeathApart) {
            state.log.append(tx, &self.store, &death);
        } else if let Some(seed) = state.log.seed_of(&self.store, INLINE) {
            tx.record(at, &seed, &death);
        }
        None
    }

    /// What is left to be done with the log of an inode that has a link less, once that is durable.
    pub(crate) fn tidy_dropped(&self, node: &Node<H>, state: &mut State) {
        if !state.is_dead() {
            node.slot.set_tail(state.log.tail.last_seal);
            self.tidy(&node.slot, state);
        }
    }

    /// Frees what a dead inode had: data at once, slot and log pages after a round.
    pub(crate) fn bury(&self, node: &Node<H>, state: &State) {
        let store = &self.store;
        // No snapshot sees a file that never had a name.
        let nameless = state.links == 0 && state.kind() != mode::DIRECTORY;
        let (born, died) = (if nameless { state.died } else { state.log.born }, state.died);
        let is_kept = |item| born < died && store.snapshots.keep(item, died);
        state.for_each_data(&mut |data| match nameless {
            true => store.give(data.run),
            false => store.release(data, died),
        });
        for page in &state.log.pages {
            let run = Run { page: page.page, pages: 1 };
            if !is_kept(Item::new(Kept::Log, run, born)) {
                store.quarantine_pages(run);
            }
        }
        node.slot.set_tail(0);
        // Only now: who finds neither node nor tail knows that the inode is gone; who found the
        // tail alone would load what is dead.
        self.nodes.remove(&store.room, node.ino());
        store.table.count_used(&node.slot, false);
        if !is_kept(Item::slot(node.ino(), born)) {
            store.quarantine_slot(node.ino());
        }
    }

    /// Whether an entry's child is an empty directory or none at all.
    pub(crate) fn may_be_replaced(&self, by: &State, victim: &State) -> Result<()> {
        match (by.kind() == mode::DIRECTORY, &victim.body) {
            (true, Kind::Directory(directory)) if directory.entries.is_empty() => Ok(()),
            (true, Kind::Directory(_)) => Err(Error::NotEmpty),
            (true, _) => Err(Error::NotDirectory),
            (false, Kind::Directory(_)) => Err(Error::IsDirectory),
            (false, _) => Ok(()),
        }
    }
}

/// Makes memory say what [`Pool::store_drop`] stored.
pub(super) fn note_drop<H: Host>(
    node: &Node<H>,
    state: &mut State,
    placed: Option<Placed>,
    (epoch, time_ns): (u32, i64),
) {
    match placed {
        Some(placed) => state.set_links(placed.ordinal, state.links - 1, 0, time_ns),
        None => {
            node.opens.note_end();
            state.died = epoch;
            state.ctime_ns = time_ns;
        }
    }
}

/// Whether the next link to go is the last one.
fn last_link(state: &State) -> bool {
    state.kind() == mode::DIRECTORY || state.links <= 1
}
