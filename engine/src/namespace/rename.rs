//! Renaming: any case is one transaction of two to four lines (and those of a long name).
//!
//! A name that is renamed over, or exchanged, is not deleted: the new ADD replaces it.

use core::ops::{Deref, DerefMut};

use lode_pmem::Medium;

use super::remove::note_drop;
use crate::index::hash;
use crate::inode::{Exclusive, Node, State, entry_lines};
use crate::layout::{Body, tag_of};
use crate::log::{Placed, Plan};
use crate::pool::{Child, Found, Look};
use crate::store::{Purpose, Tx};
use crate::{Error, Host, Ino, Op, Pool, RenameMode, Result, Rule, mode};

/// How often the names may change under a rename before it gives up.
const TRIES: usize = 64;
/// Places of the locked inodes.
const FROM: usize = 0;
const TO: usize = 1;
const MOVED: usize = 2;
const VICTIM: usize = 3;

/// What is renamed, found but not locked yet.
struct Move<'a, H: Host> {
    from: &'a Node<H>,
    to: &'a Node<H>,
    moved: &'a Child<H>,
    victim: Option<&'a Child<H>>,
    /// What the two names led to.
    looks: [&'a Look<H>; 2],
    name: &'a [u8],
    to_name: &'a [u8],
    how: RenameMode,
}

/// An entry that a rename makes.
struct NewEntry<'a, H: Host> {
    name: &'a [u8],
    child: &'a Child<H>,
    /// Tag of the child's nonce.
    tag: u32,
    /// An entry of this name is there, and ends.
    replaces: bool,
}

type Locked<'n, H> = [Option<Exclusive<'n, H>>; 4];

impl<M: Medium, H: Host> Pool<M, H> {
    /// Renames an entry: within a directory or between two, over a target or not.
    pub fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        to_dir: Ino,
        to_name: &[u8],
        how: RenameMode,
    ) -> Result<()> {
        let (from, to) = (self.node_to_change(dir)?, self.node(to_dir)?);
        self.rename_node((&from, name), (&to, to_name), how)
    }

    /// The same, between directories that were found.
    pub fn rename_in(
        &self,
        (dir, name): (&Found<H>, &[u8]),
        (to_dir, to_name): (&Found<H>, &[u8]),
        how: RenameMode,
    ) -> Result<()> {
        self.store.before_operation()?;
        self.rename_node((&dir.node, name), (&to_dir.node, to_name), how)
    }

    fn rename_node(
        &self,
        (from, name): (&Node<H>, &[u8]),
        (to, to_name): (&Node<H>, &[u8]),
        how: RenameMode,
    ) -> Result<()> {
        self.count(Op::Rename);
        if from.is_view() || to.is_view() {
            return Err(Error::ReadOnly);
        }
        to.read(&self.store)?.directory()?;
        let mut still = None;
        for _ in 0..TRIES {
            let source = match self.look(from, name) {
                Err(Error::Stale) => continue,
                result => result?,
            };
            let moved = source.child.as_ref().ok_or(Error::NotFound)?;
            let target = match self.look(to, to_name) {
                Err(Error::Stale) => continue,
                result => result?,
            };
            let victim = target.child.as_ref();
            let mut ends = [Some(moved), victim].into_iter().flatten();
            let reshapes = from.ino() != to.ino() && ends.any(Child::is_directory);
            if reshapes && still.is_none() {
                // A directory that changes its parent: nobody else may, meanwhile.
                still = Some(self.tree.lock());
                continue;
            }
            let looks = [&source, &target];
            let plan = Move { from, to, moved, victim, looks, name, to_name, how };
            match self.try_rename(&plan, reshapes) {
                Err(Error::Stale) => continue,
                result => {
                    result?;
                    if let Some(victim) = victim {
                        self.bury_if_dead(&victim.node);
                    }
                    return Ok(());
                }
            }
        }
        Err(Error::NotFound)
    }

    /// One try; `Stale` when the names have changed since they were looked up.
    #[inline(never)]
    fn try_rename(&self, plan: &Move<'_, H>, reshapes: bool) -> Result<()> {
        if let Some(victim) = plan.victim {
            if plan.how == RenameMode::NoReplace {
                return Err(Error::Exists);
            }
            if victim.entry.ino == plan.moved.entry.ino {
                return Ok(());
            }
        } else if plan.how == RenameMode::Exchange {
            return Err(Error::NotFound);
        }
        self.check_ancestors(plan, reshapes)?;
        let mut locked = self.lock_all(nodes_of(plan))?;
        self.check_same(plan, &locked)?;
        match plan.how {
            RenameMode::Exchange => self.exchange(plan, &mut locked),
            _ => self.replace(plan, &mut locked),
        }
    }

    /// A directory can't be moved into itself or below.
    fn check_ancestors(&self, plan: &Move<'_, H>, reshapes: bool) -> Result<()> {
        let (from, to) = (plan.from.ino(), plan.to.ino());
        if !reshapes {
            let own = plan.moved.entry.ino == to;
            return if own { Err(Error::Invalid) } else { Ok(()) };
        }
        self.check_not_above(plan.moved.entry.ino, to)?;
        if let Some(victim) = &plan.victim {
            if plan.how == RenameMode::Exchange {
                self.check_not_above(victim.entry.ino, from)?;
            } else {
                // A directory above the moved entry is not empty, whatever is moved.
                let above = self.check_not_above(victim.entry.ino, from);
                above.map_err(|error| match error {
                    Error::Invalid => Error::NotEmpty,
                    other => other,
                })?;
            }
        }
        Ok(())
    }

    fn check_not_above(&self, directory: Ino, mut below: Ino) -> Result<()> {
        let mut steps = self.store.table.used() + 1;
        while below != self.store.root {
            if below == directory {
                return Err(Error::Invalid);
            }
            below = self.parent(below)?;
            steps = steps.checked_sub(1).ok_or(Error::corrupt("parents form a circle", 0))?;
        }
        if below == directory { Err(Error::Invalid) } else { Ok(()) }
    }

    fn check_same(&self, plan: &Move<'_, H>, locked: &Locked<'_, H>) -> Result<()> {
        let (from, to) = (state(locked, FROM)?, state(locked, to_of(plan))?);
        if from.is_dead() || to.is_dead() {
            return Err(Error::NotFound);
        }
        let [source, target] = plan.looks;
        let same = source.holds(&self.store, (plan.from, from), plan.name)?
            && target.holds(&self.store, (plan.to, to), plan.to_name)?;
        if !same {
            return Err(Error::Stale);
        }
        let right = plan.moved.means(state(locked, MOVED)?)
            && match plan.victim {
                Some(victim) => victim.means(state(locked, VICTIM)?),
                None => true,
            };
        let what = "entry leads to another inode than it says";
        if right {
            Ok(())
        } else {
            Err(Error::corrupt_inode(what, plan.moved.entry.at, plan.from.ino()))
        }
    }

    #[inline(never)]
    fn replace(&self, plan: &Move<'_, H>, locked: &mut Locked<'_, H>) -> Result<()> {
        let to = to_of(plan);
        let mut more = 0;
        let mut victim_plan = Plan::default();
        if plan.victim.is_some() {
            let victim = state(locked, VICTIM)?;
            self.may_be_replaced(state(locked, MOVED)?, victim)?;
            victim_plan = self.plan_drop(victim);
            more = self.death_lines(victim);
        }
        let add_lines = entry_lines(plan.to_name.len());
        let plans = if to == FROM {
            [state(locked, FROM)?.log.plan([1, add_lines]), Plan::default()]
        } else {
            [state(locked, FROM)?.log.plan([1]), state(locked, TO)?.log.plan([add_lines])]
        };
        let plans = [plans[0], plans[1], state(locked, MOVED)?.log.plan([1]), victim_plan];
        self.reserve_all(locked, &plans)?;
        let time_ns = self.now_ns();
        let mut tx = self.begin_plans(&plans, more)?;
        let lines = plans.iter().map(|plan| plan.lines).sum::<u32>();
        tx.split(Rule::RenameInOne, state(locked, FROM)?.log.plan([1]).lines);
        tx.split(Rule::VictimInOne, lines - victim_plan.lines);
        let del = self.store_del(&mut tx, state_mut(locked, FROM)?, &plan.moved.add, time_ns);
        let tag = tag_of(state(locked, MOVED)?.log.nonce);
        let replaces = plan.victim.is_some();
        let entry = NewEntry { name: plan.to_name, child: plan.moved, tag, replaces };
        let added = self.store_entry(&mut tx, state_mut(locked, to)?, &entry, time_ns);
        let links = self.store_moved(&mut tx, state_mut(locked, MOVED)?, plan.to.ino(), time_ns);
        let dropped = match plan.victim {
            Some(_) => self.store_drop(&mut tx, state_mut(locked, VICTIM)?, time_ns),
            None => None,
        };
        let epoch = tx.epoch();
        tx.commit_while(|| {
            let gone = (plan.name, plan.moved.entry.cookie);
            self.remove_entry(state_mut(locked, FROM)?, gone, del.ordinal, time_ns);
            self.note_entry(state_mut(locked, to)?, &entry, plan.victim, &added, time_ns)?;
            self.note_moved(state_mut(locked, MOVED)?, plan.to.ino(), &links, time_ns);
            if let Some(victim) = plan.victim {
                note_drop(&victim.node, state_mut(locked, VICTIM)?, dropped, (epoch, time_ns));
            }
            Ok(())
        })?;
        self.set_tails(plan, locked);
        self.tidy_all(plan, locked);
        Ok(())
    }

    #[inline(never)]
    fn exchange(&self, plan: &Move<'_, H>, locked: &mut Locked<'_, H>) -> Result<()> {
        let to = to_of(plan);
        let Some(victim) = plan.victim else { return Err(Error::NotFound) };
        let (lines, to_lines) = (entry_lines(plan.name.len()), entry_lines(plan.to_name.len()));
        let from_state = state(locked, FROM)?;
        let plans = if to == FROM {
            [from_state.log.plan([lines, to_lines]), Plan::default()]
        } else {
            [from_state.log.plan([lines]), state(locked, TO)?.log.plan([to_lines])]
        };
        let from_lines = from_state.log.plan([lines]).lines;
        let own = [state(locked, MOVED)?.log.plan([1]), state(locked, VICTIM)?.log.plan([1])];
        let plans = [plans[0], plans[1], own[0], own[1]];
        self.reserve_all(locked, &plans)?;
        let time_ns = self.now_ns();
        let tag = tag_of(state(locked, MOVED)?.log.nonce);
        let victim_tag = tag_of(state(locked, VICTIM)?.log.nonce);
        let mut tx = self.begin_plans(&plans, 0)?;
        tx.split(Rule::ExchangeInOne, from_lines);
        let back = NewEntry { name: plan.name, child: victim, tag: victim_tag, replaces: true };
        let there = NewEntry { name: plan.to_name, child: plan.moved, tag, replaces: true };
        let back_at = self.store_entry(&mut tx, state_mut(locked, FROM)?, &back, time_ns);
        let there_at = self.store_entry(&mut tx, state_mut(locked, to)?, &there, time_ns);
        let links = self.store_moved(&mut tx, state_mut(locked, MOVED)?, plan.to.ino(), time_ns);
        let victim_state = state_mut(locked, VICTIM)?;
        let victim_links = self.store_moved(&mut tx, victim_state, plan.from.ino(), time_ns);
        tx.commit_while(|| {
            let moved = Some(plan.moved);
            self.note_entry(state_mut(locked, FROM)?, &back, moved, &back_at, time_ns)?;
            self.note_entry(state_mut(locked, to)?, &there, Some(victim), &there_at, time_ns)?;
            self.note_moved(state_mut(locked, MOVED)?, plan.to.ino(), &links, time_ns);
            let victim_state = state_mut(locked, VICTIM)?;
            self.note_moved(victim_state, plan.from.ino(), &victim_links, time_ns);
            Ok(())
        })?;
        self.set_tails(plan, locked);
        self.tidy_all(plan, locked);
        Ok(())
    }

    fn reserve_all(&self, locked: &mut Locked<'_, H>, plans: &[Plan; 4]) -> Result<()> {
        let mut result = Ok(());
        for (state, plan) in locked.iter_mut().zip(plans) {
            if let (Some(state), Ok(())) = (state, &result) {
                result = state.log.reserve(&self.store, plan, Purpose::Replaces);
            }
        }
        if result.is_err() {
            for state in locked.iter_mut().flatten() {
                state.log.unreserve(&self.store);
            }
        }
        result
    }

    fn store_entry(
        &self,
        tx: &mut Tx<'_, M, H>,
        parent: &mut State,
        entry: &NewEntry<'_, H>,
        time_ns: i64,
    ) -> Placed {
        let add = Body::Add {
            name_len: entry.name.len() as u8,
            replaces: entry.replaces,
            tag: entry.tag,
            time_ns,
            ino: entry.child.entry.ino,
            kind: entry.child.entry.kind,
            head: Body::head_of(entry.name),
        };
        parent.log.append_text(tx, &self.store, &add, entry.name)
    }

    /// Makes memory say what [`Pool::store_entry`] stored, in the order of a later replay.
    fn note_entry(
        &self,
        parent: &mut State,
        entry: &NewEntry<'_, H>,
        replaced: Option<&Child<H>>,
        placed: &Placed,
        time_ns: i64,
    ) -> Result<()> {
        let lines = entry_lines(entry.name.len());
        if let Some(replaced) = replaced {
            self.remove_entry(parent, (entry.name, replaced.entry.cookie), placed.ordinal, time_ns);
        }
        let hash = hash(self.store.secret, entry.name);
        let place = (placed.at, placed.ordinal);
        let child = (entry.child.entry.ino, entry.child.entry.kind);
        parent.add_entry(hash, child, place, lines, time_ns).map(|_| ())
    }

    /// The moved inode's change time, and a directory's parent.
    fn store_moved(
        &self,
        tx: &mut Tx<'_, M, H>,
        moved: &mut State,
        parent: Ino,
        time_ns: i64,
    ) -> Placed {
        let parent = if moved.kind() == mode::DIRECTORY { parent } else { 0 };
        let stays = self.store.host.leaves_out(Rule::MovedParent);
        let parent = if stays { moved.parent } else { parent };
        let links = moved.links;
        let record = Body::Links { links, parent, ctime_ns: time_ns };
        moved.log.append(tx, &self.store, &record)
    }

    fn note_moved(&self, moved: &mut State, parent: Ino, placed: &Placed, time_ns: i64) {
        let links = moved.links;
        moved.set_links(placed.ordinal, links, parent, time_ns);
    }

    fn set_tails(&self, plan: &Move<'_, H>, locked: &Locked<'_, H>) {
        for (node, state) in nodes_of(plan).into_iter().zip(locked) {
            if let (Some(node), Some(state)) = (node, state) {
                node.slot.set_tail(state.log.tail.last_seal);
            }
        }
    }

    fn tidy_all(&self, plan: &Move<'_, H>, locked: &mut Locked<'_, H>) {
        for (node, state) in nodes_of(plan).into_iter().zip(locked) {
            if let (Some(node), Some(state)) = (node, state) {
                self.tidy(&node.slot, state);
            }
        }
    }
}

fn nodes_of<'p, H: Host>(plan: &'p Move<'_, H>) -> [Option<&'p Node<H>>; 4] {
    let victim = plan.victim.map(|victim| &*victim.node);
    [Some(plan.from), Some(plan.to), Some(&*plan.moved.node), victim]
}

fn to_of<H: Host>(plan: &Move<'_, H>) -> usize {
    if plan.from.ino() == plan.to.ino() { FROM } else { TO }
}

fn state<S: Deref<Target = State>>(locked: &[Option<S>; 4], at: usize) -> Result<&State> {
    locked.get(at).and_then(|state| state.as_deref()).ok_or(Error::Invalid)
}

fn state_mut<S: DerefMut<Target = State>>(
    locked: &mut [Option<S>; 4],
    at: usize,
) -> Result<&mut State> {
    locked.get_mut(at).and_then(|state| state.as_deref_mut()).ok_or(Error::Invalid)
}
