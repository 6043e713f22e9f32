//! A path without `.`, `..` and symbolic links.

use lode_engine::{Error, mode};

use crate::access::Pass;
use crate::error::Cause;
use crate::walk::{Found, Last, TRIES, Walk, is_kind};

/// The path from the root to what `path` leads to.
pub(crate) fn canonical(pass: &Pass<'_>, path: &[u8]) -> Result<Vec<u8>, Cause> {
    for _ in 0..TRIES {
        if let Some(found) = Climb::new(pass)?.climb(path)? {
            return Ok(found);
        }
    }
    Err(Error::NotFound.into())
}

/// A walk that notes its way.
struct Climb<'e> {
    walk: Walk<'e>,
    /// From the root: each directory below it, by name.
    way: Vec<(Found, Vec<u8>)>,
    root: Found,
    /// What is still to be walked, its next component last.
    rest: Vec<Vec<u8>>,
}

impl<'e> Climb<'e> {
    fn new(pass: &'e Pass<'_>) -> Result<Self, Cause> {
        let walk = Walk::new(pass);
        Ok(Self { root: walk.root()?, walk, way: Vec::new(), rest: Vec::new() })
    }

    /// Walks; `None` where what a name led to was replaced meanwhile.
    fn climb(mut self, path: &[u8]) -> Result<Option<Vec<u8>>, Cause> {
        if path.is_empty() {
            return Err(Error::NotFound.into());
        }
        self.add(path);
        while let Some(name) = self.rest.pop() {
            let dir = self.way.last().map_or(&self.root, |(dir, _)| dir);
            if name == b"." {
                // Also what a slash at the end asks for.
                self.is_directory(dir)?;
                continue;
            }
            if name == b".." {
                self.is_directory(dir)?;
                self.way.pop();
                continue;
            }
            let found = self.walk.step(dir, &name)?;
            if !is_kind(&found.attr, mode::SYMLINK) {
                self.way.push((found, name));
                continue;
            }
            let Some(target) = self.walk.read_link(&found.attr)? else { return Ok(None) };
            if target.first() == Some(&b'/') {
                self.way.clear();
            }
            self.add(&target);
        }
        if self.way.is_empty() {
            return Ok(Some(b"/".to_vec()));
        }
        Ok(Some(self.way.iter().flat_map(|(_, name)| [b"/", &**name].concat()).collect()))
    }

    fn is_directory(&self, dir: &Found) -> Result<(), Cause> {
        let attr = self.walk.found_last(dir, Last::Dot)?.attr;
        if is_kind(&attr, mode::DIRECTORY) { Ok(()) } else { Err(Error::NotDirectory.into()) }
    }

    fn add(&mut self, path: &[u8]) {
        if path.last() == Some(&b'/') {
            self.rest.push(b".".to_vec());
        }
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        self.rest.extend(names.rev().map(<[u8]>::to_vec));
    }
}
