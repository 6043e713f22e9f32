//! From paths to inodes, as a kernel goes: one look-up a component, symbolic links followed.
//!
//! A path begins at the pool's root, whether or not it begins with `/`; there is no other
//! working directory. (In a snapshot it begins at that one's root.) Directories on the way are not held open: one that ends meanwhile leads nowhere.

use std::ops::Deref;
use std::sync::Arc;

use lode_engine::{Attr, Error, Ino, mode};
use lode_host::StdHost;

use crate::access::{Engine, Pass};
use crate::error::Cause;
use crate::ways::{DEPTH_MAX, Ways};

/// Links that are followed on one path.
const LINKS_MAX: u32 = 40;
/// How often what a name leads to may go away under a look-up before it counts as gone.
pub(crate) const TRIES: usize = 64;

/// An inode in one of its lives.
pub(crate) type Found = lode_engine::Found<StdHost>;

/// The directory that a path's last component is in. (Small: a [`Found`] that is handed on is copied each time.)
pub(crate) enum Dir<'w> {
    /// One that paths led to lately.
    Kept(Arc<Found>),
    /// One that was walked to; who asked has a place for it.
    Own(&'w Found),
}

impl Dir<'_> {
    /// For as long as it is wanted.
    pub(crate) fn keep(self) -> Arc<Found> {
        match self {
            Self::Kept(dir) => dir,
            Self::Own(dir) => Arc::new(dir.clone()),
        }
    }
}

impl Deref for Dir<'_> {
    type Target = Found;

    #[inline]
    fn deref(&self) -> &Found {
        match self {
            Self::Kept(dir) => dir,
            Self::Own(dir) => dir,
        }
    }
}

/// The last component of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last<'p> {
    /// There is none: the root.
    Root,
    /// `.`
    Dot,
    /// `..`
    Above,
    /// A name; with a slash behind it, it has to be a directory's.
    Name { name: &'p [u8], slashed: bool },
}

/// A walk along one path.
pub(crate) struct Walk<'e> {
    engine: &'e Engine,
    /// Where paths led lately: those from the pool's root.
    ways: Option<&'e Ways>,
    root: Ino,
    links: u32,
}

pub(crate) fn is_kind(attr: &Attr, kind: u32) -> bool {
    attr.mode & mode::TYPE == kind
}

impl<'e> Walk<'e> {
    pub(crate) fn new(pass: &'e Pass<'_>) -> Self {
        Self { engine: pass, ways: Some(pass.ways()), root: pass.root(), links: 0 }
    }

    /// A walk that begins at the root of a snapshot, where one is given.
    pub(crate) fn within(pass: &'e Pass<'_>, snapshot: Option<Ino>) -> Self {
        match snapshot {
            Some(root) => Self { engine: pass, ways: None, root, links: 0 },
            None => Self::new(pass),
        }
    }

    /// Where paths begin.
    pub(crate) fn root(&self) -> Result<Found, Cause> {
        Ok(self.engine.find(self.root)?)
    }

    /// The directory of a path's last component, and that component. The path begins in `from`, or in
    /// the root; `own` is the place for a directory that is walked to. (The directory's attributes may be old:
    /// [`lode_engine::Pool::find_again`].)
    pub(crate) fn parent<'p, 'w>(
        &mut self,
        from: Option<&Found>,
        path: &'p [u8],
        own: &'w mut Option<Found>,
    ) -> Result<(Dir<'w>, Last<'p>), Cause> {
        let (above, last) = split(path);
        let dir = match (path.first(), from) {
            (None, _) => return Err(Error::NotFound.into()),
            (Some(b'/'), _) | (_, None) => self.way(above, own)?,
            (_, Some(from)) => {
                let mut dir = from.clone();
                for name in names(above) {
                    dir = self.onward(&dir, name)?;
                }
                Dir::Own(own.insert(dir))
            }
        };
        Ok((dir, last))
    }

    /// The directory that a path from the root leads to.
    fn way<'w>(&mut self, path: &[u8], own: &'w mut Option<Found>) -> Result<Dir<'w>, Cause> {
        if let Some(dir) = self.ways.and_then(|ways| ways.get(path)) {
            return Ok(Dir::Kept(dir));
        }
        let (mut dir, links) = (self.root()?, self.links);
        let (mut passed, mut straight) = ([const { None }; DEPTH_MAX], self.ways.is_some());
        for (depth, name) in names(path).enumerate() {
            straight &= name != b"..";
            match passed.get_mut(depth) {
                Some(place) => *place = Some(dir.seen()),
                None => straight = false,
            }
            dir = self.onward(&dir, name)?;
        }
        let Some(ways) = self.ways.filter(|_| straight && self.links == links) else {
            return Ok(Dir::Own(own.insert(dir)));
        };
        let dir = Arc::new(dir);
        ways.put(path, passed, &dir);
        Ok(Dir::Kept(dir))
    }

    /// One component further.
    fn onward(&mut self, dir: &Found, name: &[u8]) -> Result<Found, Cause> {
        if name == b".." { self.above(dir) } else { self.directory(dir, name) }
    }

    /// The inode that a path leads to which begins in `from`, or in the root; where the last component
    /// is a link, the link itself unless it is to be followed.
    pub(crate) fn find(
        &mut self,
        from: Option<&Found>,
        path: &[u8],
        follow: bool,
    ) -> Result<Found, Cause> {
        let mut followed: Option<(Arc<Found>, Vec<u8>)> = None;
        let mut slashes = false;
        for _ in 0..TRIES {
            let mut own = None;
            let (dir, last) = match &followed {
                Some((from, path)) => self.parent(Some(&**from), path, &mut own)?,
                None => self.parent(from, path, &mut own)?,
            };
            let Last::Name { name, slashed } = last else {
                return self.found_last(&dir, last);
            };
            slashes |= slashed;
            match self.engine.lookup_in(&dir, name) {
                Ok(found) if is_kind(&found.attr, mode::SYMLINK) && (follow || slashes) => {
                    if let Some(target) = self.read_link(&found.attr)? {
                        followed = Some((dir.keep(), target));
                    }
                }
                Ok(found) if slashes && !is_kind(&found.attr, mode::DIRECTORY) => {
                    return Err(Error::NotDirectory.into());
                }
                Ok(found) => return Ok(found),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::NotFound.into())
    }

    /// What a last component leads to that is no name.
    pub(crate) fn found_last(&self, dir: &Found, last: Last<'_>) -> Result<Found, Cause> {
        match last {
            Last::Root => self.root(),
            Last::Above => self.above(dir),
            Last::Dot | Last::Name { .. } => Ok(self.engine.find_again(dir)?),
        }
    }

    /// What a name in a directory leads to.
    pub(crate) fn step(&self, dir: &Found, name: &[u8]) -> Result<Found, Cause> {
        Ok(self.engine.lookup_in(dir, name)?)
    }

    fn is_root(&self, dir: &Found) -> bool {
        dir.ino() == self.root
    }

    /// The directory above.
    fn above(&self, dir: &Found) -> Result<Found, Cause> {
        if self.is_root(dir) {
            return self.root();
        }
        let parent = self.step(dir, b"..")?;
        // While it is there, so is its parent.
        self.engine.find_again(dir)?;
        Ok(parent)
    }

    /// The directory that a name in another one leads to.
    fn directory(&mut self, dir: &Found, name: &[u8]) -> Result<Found, Cause> {
        for _ in 0..TRIES {
            let found = self.step(dir, name)?;
            let found = match found.attr.mode & mode::TYPE {
                mode::DIRECTORY => return Ok(found),
                mode::SYMLINK => match self.read_link(&found.attr)? {
                    // No deeper than links are followed.
                    Some(target) => self.find(Some(dir), &target, true)?,
                    None => continue,
                },
                _ => return Err(Error::NotDirectory.into()),
            };
            if !is_kind(&found.attr, mode::DIRECTORY) {
                return Err(Error::NotDirectory.into());
            }
            return Ok(found);
        }
        Err(Error::NotFound.into())
    }

    /// The target of a link, which counts as followed; `None` if it went away since it was found:
    /// its name may lead to another one now.
    pub(crate) fn read_link(&mut self, link: &Attr) -> Result<Option<Vec<u8>>, Cause> {
        if self.links == LINKS_MAX {
            return Err(Cause::Number(libc::ELOOP));
        }
        let read = read_link(self.engine, link)?;
        self.links += u32::from(read.is_some());
        Ok(read)
    }
}

/// The target of a link; `None` if it went away since it was found.
pub(crate) fn read_link(engine: &Engine, link: &Attr) -> Result<Option<Vec<u8>>, Cause> {
    match engine.readlink(link.ino) {
        Ok(target) => match engine.getattr(link.ino) {
            Ok(now) if now.generation == link.generation => Ok(Some(target)),
            Ok(_) | Err(Error::Stale) => Ok(None),
            Err(error) => Err(error.into()),
        },
        Err(Error::Stale | Error::Invalid) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The components of a path that lead somewhere else.
fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

/// A path without its last component, and that.
fn split(path: &[u8]) -> (&[u8], Last<'_>) {
    let is_name = |byte: &u8| *byte != b'/';
    let end = path.iter().rposition(is_name).map_or(0, |last| last + 1);
    let (names, slashes) = path.split_at(end);
    let start = names.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (above, name) = names.split_at(start);
    let last = match name {
        b"" => Last::Root,
        b"." => Last::Dot,
        b".." => Last::Above,
        _ => Last::Name { name, slashed: !slashes.is_empty() },
    };
    (above, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_before_their_last_component() {
        let name = |name: &'static [u8], slashed| Last::Name { name, slashed };
        let cases: [(&str, &str, Last<'_>); 12] = [
            ("/", "", Last::Root),
            ("///", "", Last::Root),
            ("a", "", name(b"a", false)),
            ("/a", "/", name(b"a", false)),
            ("a/", "", name(b"a", true)),
            ("a//b///", "a//", name(b"b", true)),
            ("a/b/c", "a/b/", name(b"c", false)),
            (".", "", Last::Dot),
            ("a/./", "a/", Last::Dot),
            ("..", "", Last::Above),
            ("a/b/../", "a/b/", Last::Above),
            ("...", "", name(b"...", false)),
        ];
        for (path, above, last) in cases {
            assert_eq!(split(path.as_bytes()), (above.as_bytes(), last), "{path}");
        }
    }
}
