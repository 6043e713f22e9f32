//! Listings.
//!
//! The kernel's position in a listing is the place behind an entry: 1 behind `.`,
//! 2 behind `..`, and the engine's cookie + 2 behind each name.

use std::time::Duration;

use fuse_abi::linux::fuse_entry_out;
use lode_engine::{Attr, Error, Host, Ino, Pool, mode};
use lode_pmem::Medium;

use super::Work;
use super::convert::{attributes, is_type};
use crate::wire::{Answer, Entry, Errno, Listing, NodeId, Room, Scratch};

const BEHIND_DOT: u64 = 1;
const BEHIND_DOT_DOT: u64 = 2;
/// Entries taken from the engine at a time, when each needs its attributes too.
const BATCH: usize = 64;

/// An entry, kept while its attributes are fetched.
struct Held {
    ino: Ino,
    kind: u32,
    position: u64,
    name: Vec<u8>,
}

impl<M: Medium + 'static, H: Host> Work<'_, M, H> {
    pub(super) fn do_readdir<'s>(
        &self,
        node: NodeId,
        position: u64,
        size: u32,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        let dir = self.ino(node);
        let mut list = Listing::new(scratch.room(size as usize)?);
        for (ino, behind, name) in self.dots(dir, position)? {
            if list.add(self.served.shown(ino), behind, mode::DIRECTORY, name.as_bytes())
                == Room::Full
            {
                return Ok(list.finish());
            }
        }
        let (mut wrong, hidden) = (None, self.hidden_in(node)?);
        let mut each = |entry: lode_engine::DirEntry<'_>| match position_of(entry.cookie) {
            Some(_) if Some(entry.ino) == hidden => true,
            Some(behind) if is_type(entry.kind) => {
                list.add(self.served.shown(entry.ino), behind, entry.kind, entry.name) == Room::Left
            }
            _ => {
                wrong = Some(Errno::EIO);
                false
            }
        };
        let listed = self.pool().readdir(dir, cookie_of(position), &mut each);
        listed.map_err(|error| self.errno_in(dir, &error))?;
        wrong.map_or_else(|| Ok(list.finish()), Err)
    }

    pub(super) fn do_readdirplus<'s>(
        &self,
        node: NodeId,
        position: u64,
        size: u32,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        let dir = self.ino(node);
        let mut list = Listing::new(scratch.room(size as usize)?);
        for (ino, behind, name) in self.dots(dir, position)? {
            let held = Held { ino, kind: mode::DIRECTORY, position: behind, name: name.into() };
            // The kernel takes no inode from these two: nothing to count.
            if self.add_plain(&held, &mut list) == Room::Full {
                return Ok(list.finish());
            }
        }
        let mut position = position;
        let (mut some, hidden) = (position < BEHIND_DOT_DOT, self.hidden_in(node)?);
        loop {
            let batch = self.batch((dir, hidden), position)?;
            let Some(last) = batch.last() else {
                return Ok(list.finish());
            };
            position = last.position;
            for held in &batch {
                match self.add_with_attributes(held, &mut list) {
                    Ok(Room::Left) => some = true,
                    Ok(Room::Full) => return Ok(list.finish()),
                    // Later: what is there already can be answered.
                    Err(_) if some => return Ok(list.finish()),
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// `.` and `..`, as far as they are still to be listed.
    fn dots(
        &self,
        dir: Ino,
        position: u64,
    ) -> Result<impl Iterator<Item = (Ino, u64, &'static str)> + use<M, H>, Errno> {
        let parent = if position < BEHIND_DOT_DOT {
            self.pool().parent(dir).map_err(|error| self.errno_in(dir, &error))?
        } else {
            dir
        };
        let all = [(dir, BEHIND_DOT, "."), (parent, BEHIND_DOT_DOT, "..")];
        Ok(all.into_iter().filter(move |(_, behind, _)| *behind > position))
    }

    /// What is not listed here: the directory that volumes are in, which has the name of the one that shows what there is to see
    /// of a mount.
    fn hidden_in(&self, node: NodeId) -> Result<Option<Ino>, Errno> {
        if node != NodeId::ROOT || !self.views.are_shown() {
            return Ok(None);
        }
        let Some(volumes) = self.volumes()? else { return Ok(None) };
        let parent = self.pool().parent(self.ino(volumes));
        parent.map(Some).map_err(|error| self.errno_in(0, &error))
    }

    /// Some entries behind `position`, but for what is hidden: held, because the engine is not to be asked
    /// for attributes while it lists.
    fn batch(&self, (dir, hidden): (Ino, Option<Ino>), position: u64) -> Result<Vec<Held>, Errno> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut wrong = None;
        let mut each = |entry: lode_engine::DirEntry<'_>| {
            if batch.len() == BATCH {
                return false;
            }
            if Some(entry.ino) == hidden {
                return true;
            }
            let Some(position) = position_of(entry.cookie) else {
                wrong = Some(Errno::EIO);
                return false;
            };
            let name = entry.name.to_vec();
            batch.push(Held { ino: entry.ino, kind: entry.kind, position, name });
            true
        };
        let listed = self.pool().readdir(dir, cookie_of(position), &mut each);
        listed.map_err(|error| self.errno_in(dir, &error))?;
        match wrong {
            Some(error) if batch.is_empty() => Err(error),
            _ => Ok(batch),
        }
    }

    fn add_with_attributes(&self, held: &Held, list: &mut Listing<'_>) -> Result<Room, Errno> {
        let named = match self.pool().getattr(held.ino) {
            Ok(attr) => self.named(&attr),
            Err(error) => Err(self.errno_in(held.ino, &error)),
        };
        let named = match named {
            Ok(named) => named,
            // Removed since it was listed. (From a snapshot nothing is.)
            Err(error) if is_gone(error) && !Pool::<M, H>::is_in_snapshot(held.ino) => {
                return Ok(Room::Left);
            }
            // Damaged: listed all the same; who asks for it will be told.
            Err(error) if error == Errno::EIO || is_gone(error) => {
                return Ok(self.add_plain(held, list));
            }
            Err(error) => return Err(error),
        };
        let entry = fuse_entry_out::from(named);
        let room = list.add_entry(&entry, held.position, named.attr.mode, &held.name);
        if room == Room::Full {
            // It did not fit: the kernel will not see it, and not forget it.
            self.unpin(NodeId(entry.nodeid), 1);
        }
        Ok(room)
    }

    /// Adds an entry whose attributes are not to be kept.
    fn add_plain(&self, held: &Held, list: &mut Listing<'_>) -> Room {
        let Ok(attr) = attributes(&unknown(held), self.served.shown(held.ino)) else {
            return Room::Left;
        };
        let (node, now) = (self.served.node(held.ino), Duration::ZERO);
        let entry = Entry { node, attr, generation: 0, attr_ttl: now, entry_ttl: now };
        list.add_entry(&entry.into(), held.position, attr.mode, &held.name)
    }
}

fn is_gone(error: Errno) -> bool {
    [Errno::ENOENT.code(), Error::Stale.errno()].contains(&error.code())
}

/// Attributes of which only number and type are right.
fn unknown(held: &Held) -> Attr {
    Attr {
        ino: held.ino,
        generation: 0,
        mode: held.kind & mode::TYPE,
        links: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        pages: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        btime_ns: 0,
        xattrs: 0,
    }
}

/// The engine's cookie for the kernel's position.
fn cookie_of(position: u64) -> u64 {
    position.saturating_sub(BEHIND_DOT_DOT)
}

/// The kernel's position for the engine's cookie; it has to be a positive `off_t`.
fn position_of(cookie: u64) -> Option<u64> {
    cookie.checked_add(BEHIND_DOT_DOT).filter(|position| i64::try_from(*position).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_cookies_go_both_ways() {
        for cookie in [1, 2, 3, 1 << 40, i64::MAX as u64 - 2] {
            assert_eq!(cookie_of(position_of(cookie).unwrap()), cookie);
        }
        assert_eq!((cookie_of(0), cookie_of(1), cookie_of(2)), (0, 0, 0));
        assert_eq!(position_of(i64::MAX as u64 - 1), None);
        assert_eq!(position_of(u64::MAX), None);
    }

    #[test]
    fn only_absence_is_gone() {
        assert!(is_gone(Errno::ENOENT) && is_gone(Errno::new(116)));
        assert!(!is_gone(Errno::EIO));
    }
}
