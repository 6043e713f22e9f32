//! Inodes that are kept for the length of a call, so that their numbers stay theirs.

use std::sync::Arc;

use lode_engine::{Error, Handle, Ino};
use lode_host::StdHost;

use crate::access::{Engine, Pass};
use crate::error::Cause;
use crate::walk::{Found, Last, TRIES, Walk};

/// An inode that is kept until this is dropped.
pub(crate) struct Pin<'e> {
    engine: &'e Engine,
    held: Option<Handle<StdHost>>,
    /// What was pinned, as it was found.
    pub(crate) found: Found,
}

impl<'e> Pin<'e> {
    /// Pins an inode.
    pub(crate) fn new(engine: &'e Engine, found: Found) -> Result<Self, Cause> {
        let held = Some(engine.hold_found(found.clone())?);
        Ok(Self { engine, held, found })
    }

    pub(crate) fn ino(&self) -> Ino {
        self.found.ino()
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.engine.let_go(held);
        }
    }
}

/// Pins what a path leads to.
pub(crate) fn pin_found<'e>(
    pass: &'e Pass<'_>,
    path: &[u8],
    follow: bool,
) -> Result<Pin<'e>, Cause> {
    for _ in 0..TRIES {
        match Pin::new(pass, Walk::new(pass).find(None, path, follow)?) {
            // Replaced since: its name leads to another one.
            Err(cause) if cause.is_stale() => {}
            result => return result,
        }
    }
    Err(Error::NotFound.into())
}

/// The directory of a path's last component. (Its attributes may be old.)
pub(crate) fn parent<'p>(pass: &Pass<'_>, path: &'p [u8]) -> Result<(Arc<Found>, Last<'p>), Cause> {
    let mut own = None;
    let (dir, last) = Walk::new(pass).parent(None, path, &mut own)?;
    Ok((dir.keep(), last))
}

/// The directory in which a path's last component is to be made, as it is now, and by what name.
pub(crate) fn parent_of_new<'p>(
    pass: &Pass<'_>,
    path: &'p [u8],
    directory: bool,
) -> Result<(Found, &'p [u8]), Cause> {
    let (dir, last) = parent(pass, path)?;
    let Last::Name { name, slashed } = last else { return Err(Error::Exists.into()) };
    if slashed && !directory {
        // What has a slash behind it is a directory's, if it is there.
        pass.lookup_in(&dir, name)?;
        return Err(Error::Exists.into());
    }
    Ok((pass.find_again(&dir)?, name))
}

/// The error of making `name`: in a pool that can't be changed, what is there is there all the
/// same.
pub(crate) fn not_made(engine: &Engine, dir: &Found, name: &[u8], error: Error) -> Cause {
    if error != Error::ReadOnly {
        return error.into();
    }
    match engine.lookup_in(dir, name) {
        Ok(_) => Error::Exists.into(),
        Err(Error::NotFound) => error.into(),
        Err(other) => other.into(),
    }
}

/// Gives an inode that is pinned or open another name.
pub(crate) fn link(pass: &Pass<'_>, ino: Ino, path: &[u8]) -> Result<(), Cause> {
    let (dir, name) = parent_of_new(pass, path, false)?;
    let linked = pass.link_in(ino, &dir, name);
    linked.map(drop).map_err(|error| not_made(pass, &dir, name, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolOptions;

    /// What was a directory's number is another one's now.
    #[test]
    fn a_number_that_is_anothers_leads_nowhere() {
        let pool = PoolOptions::new().in_memory(16 << 20).unwrap();
        let pass = pool.inner.enter().unwrap();
        pool.create_dir("old").unwrap();
        let find = |path: &[u8]| Walk::new(&pass).find(None, path, true).unwrap();
        let old = find(b"old");
        pool.remove_dir("old").unwrap();
        pool.symlink("new", "link").unwrap();
        let link = Walk::new(&pass).find(None, b"link", false).unwrap().attr;
        pool.remove_file("link").unwrap();
        let reused = |ino: Ino| {
            (0..100_000).any(|number| {
                pass.maintain().unwrap();
                pool.create_dir_all(format!("new{number}/f")).unwrap();
                find(format!("new{number}").as_bytes()).ino() == ino
            })
        };
        assert!(reused(old.ino()), "the number was not given to another");
        assert!(pass.lookup(old.ino(), b"f").is_ok(), "by its number it is found");
        let mut walk = Walk::new(&pass);
        assert!(walk.step(&old, b"f").err().unwrap().is_absence());
        assert!(walk.parent(Some(&old), b"f/f", &mut None).err().unwrap().is_absence());
        assert!(walk.parent(Some(&old), b"../f", &mut None).err().unwrap().is_absence());
        assert!(walk.found_last(&old, Last::Dot).err().unwrap().is_absence());
        assert!(walk.found_last(&old, Last::Above).err().unwrap().is_absence());
        assert!(Pin::new(&pass, old.clone()).err().unwrap().is_stale());
        assert!(pass.find_again(&old).is_err() && pass.hold_found(old.clone()).is_err());
        assert!(pass.unlink_in(&old, b"f").is_err() && pass.rmdir_in(&old, b"f").is_err());
        let new = lode_engine::NewInode { mode: 0o100_644, uid: 0, gid: 0, rdev: 0 };
        assert!(pass.create_in(&old, b"g", &new, &[]).is_err());
        assert!(pass.symlink_in(&old, b"g", b"to", (0, 0)).is_err());
        let root = walk.root().unwrap();
        let how = lode_engine::RenameMode::Replace;
        assert!(pass.rename_in((&old, b"f"), (&root, b"g"), how).is_err());
        assert!(pass.rename_in((&root, b"new0"), (&old, b"g"), how).is_err());
        assert!(pass.link_in(find(b"new0").ino(), &old, b"g").is_err());
        assert!(pool.try_exists("new0/f").unwrap() && !pool.try_exists("g").unwrap());
        assert_eq!(crate::walk::read_link(&pass, &link).unwrap_or(None), None);
    }
}
