//! Names and inodes that fit each other again, in a pool that opens.

use alloc::vec::Vec;

use hashbrown::HashMap;
use lode_pmem::Medium;

use super::listing::{Listing, Lost, Named};
use crate::inode::{Mix, load_name, load_xattr_name, load_xattr_value};
use crate::layout::{Body as Record, tag_of};
use crate::{
    Error, Host, Ino, NAME_MAX, NewInode, Pool, Result, SetAttr, XattrChange, XattrWhen, mode,
};

/// Where what has no name is put.
const LOST_FOUND: &[u8] = b"lost+found";
/// The access list of a file. Where there is one, the mode's group bits are its mask.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// Names that are tried where one is taken.
const NAMES_MAX: u32 = 1000;

/// What an inode says of itself, and how many entries lead to it.
pub(super) struct Seen {
    pub(super) kind: u32,
    tag: u32,
    links: u32,
    pub(super) parent: Ino,
    found: u32,
}

/// An entry that leads nowhere.
pub(super) struct Wrong {
    pub(super) dir: Ino,
    pub(super) name: Vec<u8>,
    pub(super) child: Ino,
    /// What it led to was made again, and has this name.
    pub(super) is_back: bool,
}

/// Something that was done.
pub(super) enum Done {
    /// A directory of the number `was` is there again.
    Made { was: Ino, ino: Ino, attributes: Vec<Vec<u8>> },
    /// An inode was given a name.
    Attached { ino: Ino, dir: Ino, name: Vec<u8> },
    /// The link count of an inode was set.
    Links { ino: Ino, links: u32 },
    /// An attribute was removed, and the group's rights with an access list.
    Attribute { ino: Ino, name: Vec<u8>, group_cleared: bool },
}

/// The state of a salvage.
pub(super) struct Tree<'p, M: Medium, H: Host> {
    pub(super) pool: &'p Pool<M, H>,
    pub(super) seen: HashMap<Ino, Seen, Mix>,
    /// All inodes that are seen.
    pub(super) inos: Vec<Ino>,
    /// The directory for what has no name, once there is one.
    lost_found: Option<Ino>,
    /// Entries that are there no more.
    pub(super) removed: Vec<Wrong>,
    /// All else, in its order.
    pub(super) done: Vec<Done>,
}

/// What is done under a name.
type UnderName<'w, M, H, T> = &'w mut dyn FnMut(&Pool<M, H>, &[u8]) -> Result<T>;

/// A directory that was given up, and what stands for it now.
struct Again {
    listing: Listing,
    ino: Ino,
}

impl<'p, M: Medium, H: Host> Tree<'p, M, H> {
    pub(super) fn new(pool: &'p Pool<M, H>) -> Self {
        let seen = HashMap::with_hasher(Mix::default());
        let (inos, removed, done) = (Vec::new(), Vec::new(), Vec::new());
        Self { pool, seen, inos, lost_found: None, removed, done }
    }

    /// Makes the names of a pool right in which `lost` was given up.
    pub(super) fn mend(&mut self, lost: Lost) -> Result<()> {
        self.look()?;
        for entry in self.compare()? {
            self.remove(entry)?;
        }
        self.cut_circles()?;
        let again = self.make_again(lost.listings)?;
        self.name_again(again, &lost.inos)?;
        self.count_links()?;
        self.drop_attributes()
    }

    /// What every inode says of itself.
    fn look(&mut self) -> Result<()> {
        self.inos = self.pool.inodes()?;
        // (No entry leads to the list of snapshots.)
        let list = self.pool.store.snapshots.home();
        self.inos.retain(|ino| *ino != list);
        self.seen.try_reserve(self.inos.len())?;
        for at in 0..self.inos.len() {
            let Some(ino) = self.inos.get(at).copied() else { break };
            let node = self.pool.node(ino)?;
            let state = node.read(&self.pool.store)?;
            let seen = Seen {
                kind: state.kind(),
                tag: tag_of(state.log.nonce),
                links: state.links,
                parent: state.parent,
                found: 0,
            };
            drop(state);
            self.seen.insert(ino, seen);
        }
        Ok(())
    }

    /// Counts the entries that lead to each inode; returns those that lead nowhere.
    fn compare(&mut self) -> Result<Vec<Wrong>> {
        let mut wrong = Vec::new();
        let mut name = [0; NAME_MAX];
        for at in 0..self.inos.len() {
            let Some(dir) = self.inos.get(at).copied() else { break };
            let node = self.pool.node(dir)?;
            let state = node.read(&self.pool.store)?;
            let Ok(directory) = state.directory() else { continue };
            for entry in directory.entries.iter() {
                let (parsed, len) = load_name(&self.pool.store, &state, &entry, &mut name)?;
                let Record::Add { tag, .. } = parsed.body else { continue };
                if self.is_right(dir, entry.ino, u32::from(entry.kind) << 12, tag) {
                    continue;
                }
                wrong.try_reserve(1)?;
                let name = copied(name.get(..len).unwrap_or_default())?;
                wrong.push(Wrong { dir, name, child: entry.ino, is_back: false });
            }
        }
        Ok(wrong)
    }

    /// Whether an entry leads to what it says; if so it counts.
    fn is_right(&mut self, dir: Ino, child: Ino, kind: u32, tag: u32) -> bool {
        let root = self.pool.store.root;
        let Some(seen) = self.seen.get_mut(&child) else { return false };
        let mut right = child != root && seen.kind == kind && seen.tag == tag;
        if kind == mode::DIRECTORY {
            right &= seen.parent == dir && seen.found == 0;
        }
        seen.found += u32::from(right);
        right
    }

    fn remove(&mut self, wrong: Wrong) -> Result<()> {
        self.removed.try_reserve(1)?;
        self.pool.remove_wrong_entry(wrong.dir, &wrong.name)?;
        self.removed.push(wrong);
        Ok(())
    }

    /// Directories that lead to each other and not to the root: one of each circle loses its name.
    fn cut_circles(&mut self) -> Result<()> {
        for at in 0..self.inos.len() {
            let Some(ino) = self.inos.get(at).copied() else { break };
            let is_named = |seen: &Seen| seen.kind == mode::DIRECTORY && seen.found > 0;
            if !self.seen.get(&ino).is_some_and(is_named) || !self.is_in_circle(ino) {
                continue;
            }
            let parent = self.seen.get(&ino).map_or(0, |seen| seen.parent);
            if let Some(name) = self.name_of(parent, ino)? {
                self.remove(Wrong { dir: parent, name, child: ino, is_back: false })?;
            }
            if let Some(seen) = self.seen.get_mut(&ino) {
                seen.found = 0;
            }
        }
        Ok(())
    }

    fn is_in_circle(&self, ino: Ino) -> bool {
        let mut at = ino;
        for _ in 0..self.seen.len() {
            match self.seen.get(&at).filter(|seen| seen.found > 0) {
                Some(seen) => at = seen.parent,
                None => return false,
            }
            if at == ino {
                return true;
            }
        }
        false
    }

    /// The name under which a directory has a child.
    pub(super) fn name_of(&self, dir: Ino, child: Ino) -> Result<Option<Vec<u8>>> {
        let node = match self.pool.node(dir) {
            Err(Error::Stale) => return Ok(None),
            result => result?,
        };
        let state = node.read(&self.pool.store)?;
        let Ok(directory) = state.directory() else { return Ok(None) };
        let mut name = [0; NAME_MAX];
        let Some(entry) = directory.entries.iter().find(|entry| entry.ino == child) else {
            return Ok(None);
        };
        let (_, len) = load_name(&self.pool.store, &state, &entry, &mut name)?;
        copied(name.get(..len).unwrap_or_default()).map(Some)
    }

    /// The directories that were given up, empty, in `lost+found`; the root is where it was.
    fn make_again(&mut self, lost: Vec<Listing>) -> Result<Vec<Again>> {
        let mut again = Vec::new();
        again.try_reserve_exact(lost.len())?;
        for listing in lost {
            let root = self.pool.store.root;
            let ino = if listing.ino == root {
                root
            } else {
                let (mode, uid, gid) = listing.owner;
                let new = NewInode { mode, uid, gid, rdev: 0 };
                let lost_found = self.lost_found()?;
                self.make(lost_found, &numbered(listing.ino)?, &new)?
            };
            again.push(Again { listing, ino });
        }
        Ok(again)
    }

    /// Makes a directory under a name, or one like it, if it is taken.
    fn make(&mut self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        let made = self.untaken(name, &mut |pool, name| pool.create(dir, name, new))?.0;
        self.know(made.ino, made.generation, dir)?;
        Ok(made.ino)
    }

    /// Counts a new directory in.
    fn know(&mut self, ino: Ino, generation: u64, parent: Ino) -> Result<()> {
        let kind = mode::DIRECTORY;
        let tag = tag_of(generation);
        self.seen.try_reserve(1)?;
        self.inos.try_reserve(1)?;
        self.seen.insert(ino, Seen { kind, tag, links: 1, parent, found: 1 });
        self.inos.push(ino);
        Ok(())
    }

    /// For what is told in the end.
    fn note(&mut self, done: Done) -> Result<()> {
        self.done.try_reserve(1)?;
        self.done.push(done);
        Ok(())
    }

    /// Does something with a name, or with one like it where that is taken.
    fn untaken<T>(&self, name: &[u8], work: UnderName<'_, M, H, T>) -> Result<(T, Vec<u8>)> {
        for number in 0..NAMES_MAX {
            let mut name = copied(name)?;
            if number > 0 {
                append_number(&mut name, b'~', u64::from(number))?;
            }
            match work(self.pool, &name) {
                Err(Error::Exists) => {}
                result => return result.map(|done| (done, name)),
            }
        }
        Err(Error::Exists)
    }

    /// The directory for what has no name: the one that is there, or a new one, root's alone.
    fn lost_found(&mut self) -> Result<Ino> {
        if let Some(ino) = self.lost_found {
            return Ok(ino);
        }
        let root = self.pool.store.root;
        let there = self.pool.lookup(root, LOST_FOUND);
        let ino = match there {
            Ok(attr) if attr.mode & mode::TYPE == mode::DIRECTORY => attr.ino,
            _ => {
                let new = NewInode { mode: mode::DIRECTORY | 0o700, uid: 0, gid: 0, rdev: 0 };
                self.make(root, LOST_FOUND, &new)?
            }
        };
        self.lost_found = Some(ino);
        Ok(ino)
    }

    /// Gives what was in lost directories its names again, then these theirs: when nothing is left that no name leads
    /// to, for a directory is moved only to where the way to the root is whole.
    fn name_again(&mut self, again: Vec<Again>, lost: &[Ino]) -> Result<()> {
        let mut made: HashMap<Ino, Ino, Mix> = HashMap::with_hasher(Mix::default());
        made.try_reserve(again.len())?;
        made.extend(again.iter().map(|again| (again.listing.ino, again.ino)));
        let mut moves: Vec<(Ino, Ino, Vec<u8>)> = Vec::new();
        for Again { mut listing, ino } in again {
            let attributes = core::mem::take(&mut listing.attributes);
            self.note(Done::Made { was: listing.ino, ino, attributes })?;
            for entry in listing.entries {
                match made.get(&entry.child) {
                    None => self.name_child(listing.ino, ino, entry, lost)?,
                    Some(child) => {
                        moves.try_reserve(1)?;
                        moves.push((*child, ino, entry.name));
                    }
                }
            }
        }
        self.attach_orphans()?;
        for (child, dir, name) in moves {
            self.move_made(child, dir, &name)?;
        }
        for at in 0..self.removed.len() {
            let Some(entry) = self.removed.get(at) else { break };
            let Some(child) = made.get(&entry.child) else { continue };
            let (dir, name) = (entry.dir, copied(&entry.name)?);
            let is_back = self.move_made(*child, dir, &name)?;
            self.removed.get_mut(at).into_iter().for_each(|entry| entry.is_back = is_back);
        }
        Ok(())
    }

    /// What is done with an entry that the directory `was` had, which is `dir` now. Names that lead to
    /// nothing may be old ones, whose end can't be read: they count where what they led to was given up.
    fn name_child(&mut self, was: Ino, dir: Ino, entry: Named, lost: &[Ino]) -> Result<()> {
        if self.is_right(was, entry.child, entry.kind << 12, entry.tag) {
            let links = self.seen.get(&entry.child).map_or(1, |seen| seen.found);
            return self.attach(entry.child, links, dir, &entry.name);
        }
        if lost.binary_search(&entry.child).is_ok() {
            let Named { name, child, .. } = entry;
            self.removed.try_reserve(1)?;
            self.removed.push(Wrong { dir, name, child, is_back: false });
        }
        Ok(())
    }

    /// Moves a directory that was made again from `lost+found` to where its name was; says whether it has
    /// that now.
    fn move_made(&mut self, made: Ino, dir: Ino, name: &[u8]) -> Result<bool> {
        if made == self.pool.store.root {
            return Ok(false);
        }
        let lost_found = self.lost_found()?;
        if self.seen.get(&made).is_none_or(|seen| seen.parent != lost_found) {
            // It has its place.
            return Ok(false);
        }
        let Some(from) = self.name_of(lost_found, made)? else { return Ok(false) };
        let moved = self.pool.rename(lost_found, &from, dir, name, crate::RenameMode::NoReplace);
        match moved {
            // Below itself, or taken: it stays.
            Err(Error::Exists | Error::Invalid) => Ok(false),
            result => {
                result?;
                if let Some(seen) = self.seen.get_mut(&made) {
                    seen.parent = dir;
                }
                Ok(true)
            }
        }
    }

    fn attach(&mut self, ino: Ino, links: u32, dir: Ino, name: &[u8]) -> Result<()> {
        let attach = &mut |pool: &Pool<M, H>, name: &[u8]| pool.attach(ino, links, dir, name);
        let ((), name) = self.untaken(name, attach)?;
        if let Some(seen) = self.seen.get_mut(&ino) {
            (seen.links, seen.found) = (links, links);
            seen.parent = dir;
        }
        self.note(Done::Attached { ino, dir, name })
    }

    /// Puts what no entry leads to into `lost+found`.
    fn attach_orphans(&mut self) -> Result<()> {
        for at in 0..self.inos.len() {
            let Some(ino) = self.inos.get(at).copied() else { break };
            let found = self.seen.get(&ino).map_or(1, |seen| seen.found);
            if found == 0 && ino != self.pool.store.root {
                let lost_found = self.lost_found()?;
                self.attach(ino, 1, lost_found, &numbered(ino)?)?;
            }
        }
        Ok(())
    }

    fn count_links(&mut self) -> Result<()> {
        for at in 0..self.inos.len() {
            let Some(ino) = self.inos.get(at).copied() else { break };
            let Some(seen) = self.seen.get(&ino) else { continue };
            if seen.kind != mode::DIRECTORY && seen.found != seen.links {
                let links = seen.found;
                self.pool.set_links(ino, links, 0)?;
                self.note(Done::Links { ino, links })?;
            }
        }
        Ok(())
    }

    /// Removes attributes whose values can't be read.
    fn drop_attributes(&mut self) -> Result<()> {
        for at in 0..self.inos.len() {
            let Some(ino) = self.inos.get(at).copied() else { break };
            for name in self.bad_attributes(ino)? {
                let change = XattrChange { name: &name, value: None, when: XattrWhen::Always };
                let group_cleared = name == ACCESS_LIST;
                let mut changes = SetAttr::default();
                if group_cleared {
                    // What the list gave the group nobody knows: not its mask.
                    changes.mode = Some(self.pool.getattr(ino)?.mode & !0o070);
                }
                self.pool.setattr_with(ino, &changes, core::slice::from_ref(&change))?;
                self.note(Done::Attribute { ino, name, group_cleared })?;
            }
        }
        Ok(())
    }

    fn bad_attributes(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut bad = Vec::new();
        let store = &self.pool.store;
        let node = self.pool.node(ino)?;
        let state = node.read(store)?;
        for xattr in state.xattrs.iter() {
            match load_xattr_value(store, &state, xattr) {
                Ok(_) => {}
                Err(Error::Corrupt(_) | Error::Media { .. }) => {
                    bad.try_reserve(1)?;
                    bad.push(load_xattr_name(store, &state, xattr)?);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bad)
    }
}

pub(super) fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// The name of something of which only the number is known: `#12`.
pub(super) fn numbered(ino: Ino) -> Result<Vec<u8>> {
    let mut name = Vec::new();
    append_number(&mut name, b'#', ino)?;
    Ok(name)
}

fn append_number(name: &mut Vec<u8>, sign: u8, number: u64) -> Result<()> {
    let digits = number.checked_ilog10().unwrap_or(0);
    name.try_reserve(digits as usize + 2)?;
    name.push(sign);
    name.extend((0..=digits).rev().map(|place| b'0' + (number / 10u64.pow(place) % 10) as u8));
    Ok(())
}
