//! From paths to inodes, as a kernel goes: one look-up a component, symbolic links followed.
//!
//! A path begins at the pool's root, whether or not it begins with `/`; there is no other
//! working directory. Directories on the way are not held: that the number of one did not become
//! another directory's meanwhile is looked at behind each look-up in it.

use lode_engine::{Attr, Error, Ino, mode};

use crate::access::Engine;
use crate::error::Cause;

/// Links that are followed on one path.
const LINKS_MAX: u32 = 40;
/// How often what a name leads to may go away under a look-up before it counts as gone.
pub(crate) const TRIES: usize = 64;

/// An inode in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) ino: Ino,
    generation: u64,
}

impl Place {
    pub(crate) fn of(attr: &Attr) -> Self {
        Self { ino: attr.ino, generation: attr.generation }
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
    root: Place,
    links: u32,
}

pub(crate) fn is_kind(attr: &Attr, kind: u32) -> bool {
    attr.mode & mode::TYPE == kind
}

impl<'e> Walk<'e> {
    pub(crate) fn new(engine: &'e Engine, root: Place) -> Self {
        Self { engine, root, links: 0 }
    }

    /// The directory of the last component of a path that begins in `from`, and that component.
    pub(crate) fn parent<'p>(
        &mut self,
        from: Place,
        path: &'p [u8],
    ) -> Result<(Place, Last<'p>), Cause> {
        let mut dir = match path.first() {
            None => return Err(Error::NotFound.into()),
            Some(b'/') => self.root,
            Some(_) => from,
        };
        let (above, last) = split(path);
        for name in above.split(|byte| *byte == b'/') {
            dir = match name {
                b"" | b"." => continue,
                b".." => self.above(dir)?,
                _ => self.directory(dir, name)?,
            };
        }
        Ok((dir, last))
    }

    /// The inode that a path leads to which begins in `from`; where the last component is a link, the
    /// link itself unless it is to be followed.
    pub(crate) fn find(&mut self, from: Place, path: &[u8], follow: bool) -> Result<Attr, Cause> {
        let mut target;
        let (mut from, mut path) = (from, path);
        let mut slashes = false;
        for _ in 0..TRIES {
            let (dir, last) = self.parent(from, path)?;
            let Last::Name { name, slashed } = last else {
                return self.attr_of(dir, last);
            };
            slashes |= slashed;
            let attr = self.step(dir, name)?;
            if is_kind(&attr, mode::SYMLINK) && (follow || slashes) {
                if let Some(text) = self.read_link(&attr)? {
                    target = text;
                    (from, path) = (dir, &target);
                }
                continue;
            }
            if slashes && !is_kind(&attr, mode::DIRECTORY) {
                return Err(Error::NotDirectory.into());
            }
            return Ok(attr);
        }
        Err(Error::NotFound.into())
    }

    /// What a last component is that is no name.
    pub(crate) fn attr_of(&self, dir: Place, last: Last<'_>) -> Result<Attr, Cause> {
        let place = match last {
            Last::Root => self.root,
            Last::Above => self.above(dir)?,
            Last::Dot | Last::Name { .. } => dir,
        };
        let attr = self.engine.getattr(place.ino)?;
        if Place::of(&attr) == place { Ok(attr) } else { Err(Error::NotFound.into()) }
    }

    /// What a name in a directory leads to.
    pub(crate) fn step(&self, dir: Place, name: &[u8]) -> Result<Attr, Cause> {
        let found = self.engine.lookup(dir.ino, name);
        self.check(dir)?;
        Ok(found?)
    }

    /// Fails unless this directory is still the one that it was.
    fn check(&self, dir: Place) -> Result<(), Cause> {
        if dir == self.root || Place::of(&self.engine.getattr(dir.ino)?) == dir {
            return Ok(());
        }
        Err(Error::NotFound.into())
    }

    /// The directory above.
    fn above(&self, dir: Place) -> Result<Place, Cause> {
        if dir == self.root {
            return Ok(dir);
        }
        let parent = Place::of(&self.engine.getattr(self.engine.parent(dir.ino)?)?);
        self.check(dir)?;
        Ok(parent)
    }

    /// The directory that a name in another one leads to.
    fn directory(&mut self, dir: Place, name: &[u8]) -> Result<Place, Cause> {
        for _ in 0..TRIES {
            let attr = self.step(dir, name)?;
            let found = match attr.mode & mode::TYPE {
                mode::DIRECTORY => attr,
                mode::SYMLINK => match self.read_link(&attr)? {
                    // No deeper than links are followed.
                    Some(target) => self.find(dir, &target, true)?,
                    None => continue,
                },
                _ => return Err(Error::NotDirectory.into()),
            };
            if !is_kind(&found, mode::DIRECTORY) {
                return Err(Error::NotDirectory.into());
            }
            return Ok(Place::of(&found));
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
