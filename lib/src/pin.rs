//! Inodes that are kept for the length of a call, so that their numbers stay theirs.

use lode_engine::{Attr, Error, Handle, Ino};
use lode_host::StdHost;

use crate::access::Engine;
use crate::error::Cause;
use crate::inner::Inner;
use crate::walk::{Last, Place, TRIES, Walk};

/// An inode that is kept until this is dropped.
pub(crate) struct Pin<'e> {
    engine: &'e Engine,
    held: bool,
    /// How it was when it was pinned.
    pub(crate) attr: Attr,
}

impl Pin<'_> {
    pub(crate) fn ino(&self) -> Ino {
        self.attr.ino
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if self.held {
            self.engine.release(self.attr.ino);
        }
    }
}

/// Opens an inode, if it is still the one that was found; it is to be released. Returns how it is.
pub(crate) fn acquire(engine: &Engine, place: Place) -> Result<Attr, Cause> {
    engine.acquire(place.ino)?;
    match engine.getattr(place.ino) {
        Ok(attr) if Place::of(&attr) == place => Ok(attr),
        other => {
            engine.release(place.ino);
            Err(other.err().unwrap_or(Error::Stale).into())
        }
    }
}

/// The same, with a handle for it.
pub(crate) fn hold(engine: &Engine, place: Place) -> Result<Handle<StdHost>, Cause> {
    let held = engine.hold(place.ino)?;
    match engine.getattr_held(&held) {
        Ok(attr) if Place::of(&attr) == place => Ok(held),
        other => {
            engine.let_go(held);
            Err(other.err().unwrap_or(Error::Stale).into())
        }
    }
}

impl Inner {
    /// Pins an inode.
    pub(crate) fn pin<'e>(&self, engine: &'e Engine, place: Place) -> Result<Pin<'e>, Cause> {
        // Nobody can take the root away.
        let held = place != self.root;
        let attr = if held { acquire(engine, place)? } else { engine.getattr(place.ino)? };
        Ok(Pin { engine, held, attr })
    }

    /// Pins what a path leads to.
    pub(crate) fn pin_found<'e>(
        &self,
        engine: &'e Engine,
        path: &[u8],
        follow: bool,
    ) -> Result<Pin<'e>, Cause> {
        for _ in 0..TRIES {
            let attr = Walk::new(engine, self.root).find(self.root, path, follow)?;
            match self.pin(engine, Place::of(&attr)) {
                // Replaced since: its name leads to another one.
                Err(cause) if cause.is_stale() => {}
                result => return result,
            }
        }
        Err(Error::NotFound.into())
    }

    /// Pins the directory of a path's last component.
    pub(crate) fn pin_parent<'e, 'p>(
        &self,
        engine: &'e Engine,
        path: &'p [u8],
    ) -> Result<(Pin<'e>, Last<'p>), Cause> {
        let (dir, last) = Walk::new(engine, self.root).parent(self.root, path)?;
        Ok((self.pin(engine, dir)?, last))
    }

    /// Pins the directory in which a path's last component is to be made, and says by what name.
    pub(crate) fn pin_for_new<'e, 'p>(
        &self,
        engine: &'e Engine,
        path: &'p [u8],
        directory: bool,
    ) -> Result<(Pin<'e>, &'p [u8]), Cause> {
        let (dir, last) = self.pin_parent(engine, path)?;
        let Last::Name { name, slashed } = last else { return Err(Error::Exists.into()) };
        if slashed && !directory {
            // What has a slash behind it is a directory's, if it is there.
            engine.lookup(dir.ino(), name)?;
            return Err(Error::Exists.into());
        }
        Ok((dir, name))
    }

    /// The error of making `name`: in a pool that can't be changed, what is there is there all the
    /// same.
    pub(crate) fn not_made(&self, engine: &Engine, dir: Ino, name: &[u8], error: Error) -> Cause {
        if error != Error::ReadOnly {
            return error.into();
        }
        match engine.lookup(dir, name) {
            Ok(_) => Error::Exists.into(),
            Err(Error::NotFound) => error.into(),
            Err(other) => other.into(),
        }
    }

    /// Gives an inode that is pinned or open another name.
    pub(crate) fn link(&self, engine: &Engine, ino: Ino, path: &[u8]) -> Result<(), Cause> {
        let (dir, name) = self.pin_for_new(engine, path, false)?;
        let linked = engine.link(ino, dir.ino(), name);
        linked.map(drop).map_err(|error| self.not_made(engine, dir.ino(), name, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolOptions;

    /// What was a directory's number is another one's now.
    #[test]
    fn a_number_that_is_anothers_leads_nowhere() {
        let pool = PoolOptions::new().in_memory(16 << 20).unwrap();
        let (pass, root) = (pool.inner.enter().unwrap(), pool.inner.root);
        pool.create_dir("old").unwrap();
        let find = |path: &[u8]| Walk::new(&pass, root).find(root, path, true).unwrap();
        let old = Place::of(&find(b"old"));
        pool.remove_dir("old").unwrap();
        pool.symlink("new", "link").unwrap();
        let link = Walk::new(&pass, root).find(root, b"link", false).unwrap();
        pool.remove_file("link").unwrap();
        let reused = |place: Place| {
            (0..100_000).any(|number| {
                pass.maintain().unwrap();
                pool.create_dir_all(format!("new{number}/f")).unwrap();
                find(format!("new{number}").as_bytes()).ino == place.ino
            })
        };
        assert!(reused(old), "the number was not given to another");
        assert!(pass.lookup(old.ino, b"f").is_ok(), "by its number it is found");
        let walk = Walk::new(&pass, root);
        assert!(walk.step(old, b"f").unwrap_err().is_absence());
        assert!(Walk::new(&pass, root).parent(old, b"f/f").unwrap_err().is_absence());
        assert!(Walk::new(&pass, root).parent(old, b"../f").unwrap_err().is_absence());
        assert!(walk.attr_of(old, Last::Dot).unwrap_err().is_absence());
        assert!(pool.inner.pin(&pass, old).err().unwrap().is_stale());
        assert!(acquire(&pass, old).unwrap_err().is_stale());
        assert_eq!(crate::walk::read_link(&pass, &link).unwrap_or(None), None);
    }
}
