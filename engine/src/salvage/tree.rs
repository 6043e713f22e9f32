//! Names and inodes that fit each other again, in a pool that opens.

use alloc::vec::Vec;

use hashbrown::HashMap;
use lode_pmem::Medium;

use super::listing::Listing;
use super::{Salvage, report::Told};
use crate::inode::{Mix, load_name, load_xattr_name, load_xattr_value};
use crate::layout::{Body as Record, tag_of};
use crate::{Error, Host, Ino, NAME_MAX, NewInode, Pool, Result, XattrChange, XattrWhen, mode};

/// Where what has no name is put.
const LOST_FOUND: &[u8] = b"lost+found";
/// Names that are tried where one is taken.
const NAMES_MAX: u32 = 1000;

/// What an inode says of itself, and how many entries lead to it.
struct Seen {
    kind: u32,
    tag: u32,
    links: u32,
    parent: Ino,
    found: u32,
    /// It is a directory that was made anew, and its names were not compared.
    new: bool,
}

/// An entry that leads nowhere.
struct Wrong {
    dir: Ino,
    name: Vec<u8>,
    child: Ino,
}

/// The state of a salvage.
struct Tree<'p, M: Medium, H: Host> {
    pool: &'p Pool<M, H>,
    told: Told<'p>,
    seen: HashMap<Ino, Seen, Mix>,
    inos: Vec<Ino>,
    /// The directory for what has no name, once there is one.
    lost_found: Option<Ino>,
    /// The path of a directory that was asked for last.
    last_path: Option<(Ino, Vec<u8>)>,
}

/// What is done under a name.
type UnderName<'w, M, H, T> = &'w mut dyn FnMut(&Pool<M, H>, &[u8]) -> Result<T>;

/// A directory that was given up, and what stands for it now.
struct Again {
    listing: Listing,
    ino: Ino,
}

/// Makes the names of a pool right; `lost` are the directories that were given up.
pub(super) fn mend<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    lost: Vec<Listing>,
    told: Told<'_>,
) -> Result<()> {
    let seen = HashMap::with_hasher(Mix::default());
    let mut tree = Tree { pool, told, seen, inos: Vec::new(), lost_found: None, last_path: None };
    tree.look()?;
    let wrong = tree.compare()?;
    for entry in &wrong {
        tree.remove(entry)?;
    }
    tree.cut_circles()?;
    let again = tree.make_again(lost)?;
    tree.name_again(&again, &wrong)?;
    tree.attach_orphans()?;
    tree.count_links()?;
    tree.drop_attributes()
}

impl<M: Medium, H: Host> Tree<'_, M, H> {
    /// What every inode says of itself.
    fn look(&mut self) -> Result<()> {
        let mut result = Ok(());
        self.pool.for_each_inode(&mut |ino| {
            result = self.inos.try_reserve(1).map_err(Error::from);
            if result.is_ok() {
                self.inos.push(ino);
            }
            result.is_ok()
        })?;
        result?;
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
                new: false,
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
                wrong.push(Wrong { dir, name, child: entry.ino });
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

    fn remove(&mut self, wrong: &Wrong) -> Result<()> {
        let path = self.path(wrong.dir)?;
        self.pool.remove_entry(wrong.dir, &wrong.name)?;
        let (name, ino) = (&wrong.name, wrong.child);
        (self.told)(Salvage::EntryRemoved { dir: &path, name, ino });
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
                self.remove(&Wrong { dir: parent, name, child: ino })?;
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
    fn name_of(&self, dir: Ino, child: Ino) -> Result<Option<Vec<u8>>> {
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

    /// The path of a directory, as far as names lead to it.
    fn path(&mut self, dir: Ino) -> Result<Vec<u8>> {
        if let Some((_, path)) = self.last_path.as_ref().filter(|(ino, _)| *ino == dir) {
            return copied(path);
        }
        let mut path = Vec::new();
        let mut at = dir;
        for _ in 0..self.seen.len() {
            let Some(seen) = self.seen.get(&at).filter(|_| at != self.pool.store.root) else {
                break;
            };
            let Some(name) = self.name_of(seen.parent, at)? else { break };
            path.try_reserve(name.len() + 1)?;
            path.splice(0..0, [b'/'].into_iter().chain(name));
            at = seen.parent;
        }
        if path.is_empty() {
            path.try_reserve(1)?;
            path.push(b'/');
        }
        self.last_path = Some((dir, copied(&path)?));
        Ok(path)
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
        self.seen.insert(ino, Seen { kind, tag, links: 1, parent, found: 1, new: true });
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

    /// Gives lost directories their own names again, and then what was in them: so that what is told has
    /// the paths that stay.
    fn name_again(&mut self, again: &[Again], wrong: &[Wrong]) -> Result<()> {
        let mut by_ino: HashMap<Ino, &Again, Mix> = HashMap::with_hasher(Mix::default());
        by_ino.try_reserve(again.len())?;
        by_ino.extend(again.iter().map(|again| (again.listing.ino, again)));
        for Again { listing, ino } in again {
            for entry in &listing.entries {
                let child = by_ino.get(&entry.child);
                if let Some(child) = child.filter(|child| child.ino != self.pool.store.root) {
                    self.move_made(child, *ino, &entry.name)?;
                }
            }
        }
        for entry in wrong {
            if let Some(child) = by_ino.get(&entry.child) {
                self.move_made(child, entry.dir, &entry.name)?;
            }
        }
        for Again { listing, ino } in again {
            let path = self.path(*ino)?;
            (self.told)(Salvage::DirectoryMade { ino: listing.ino, path: &path });
            for entry in &listing.entries {
                let kept = !by_ino.contains_key(&entry.child);
                if kept && self.is_right(listing.ino, entry.child, entry.kind << 12, entry.tag) {
                    let links = self.seen.get(&entry.child).map_or(1, |seen| seen.found);
                    self.attach(entry.child, links, *ino, &entry.name)?;
                }
            }
        }
        Ok(())
    }

    /// Moves a directory that was made again from `lost+found` to where its name was.
    fn move_made(&mut self, made: &Again, dir: Ino, name: &[u8]) -> Result<()> {
        let lost_found = self.lost_found()?;
        if self.seen.get(&made.ino).is_none_or(|seen| seen.parent != lost_found) {
            // It has its place.
            return Ok(());
        }
        let Some(from) = self.name_of(lost_found, made.ino)? else { return Ok(()) };
        let moved = self.pool.rename(lost_found, &from, dir, name, crate::RenameMode::NoReplace);
        match moved {
            // Below itself, or taken: it stays.
            Err(Error::Exists | Error::Invalid) => Ok(()),
            result => {
                result?;
                if let Some(seen) = self.seen.get_mut(&made.ino) {
                    seen.parent = dir;
                }
                self.last_path = None;
                Ok(())
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
        if self.seen.get(&ino).is_some_and(|seen| seen.kind == mode::DIRECTORY) {
            // It, or one that it leads to.
            self.last_path = None;
        }
        let path = self.path(dir)?;
        (self.told)(Salvage::Attached { ino, dir: &path, name: &name });
        Ok(())
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
        for ino in &self.inos {
            let Some(seen) = self.seen.get(ino) else { continue };
            if seen.kind != mode::DIRECTORY && !seen.new && seen.found != seen.links {
                self.pool.set_links(*ino, seen.found, 0)?;
                (self.told)(Salvage::LinksSet { ino: *ino, links: seen.found });
            }
        }
        Ok(())
    }

    /// Removes attributes whose values can't be read.
    fn drop_attributes(&mut self) -> Result<()> {
        for ino in &self.inos {
            for name in self.bad_attributes(*ino)? {
                let change = XattrChange { name: &name, value: None, when: XattrWhen::Always };
                self.pool.setxattr(*ino, &change)?;
                (self.told)(Salvage::AttributeRemoved { ino: *ino, name: &name });
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

fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// The name of something of which only the number is known: `#12`.
fn numbered(ino: Ino) -> Result<Vec<u8>> {
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
