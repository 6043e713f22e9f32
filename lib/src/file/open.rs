//! Opening: as a kernel does, with a path's last component made where that is asked for.

use std::sync::Arc;

use lode_engine::{Error as EngineError, Ino, SetAttr, mode};
use lode_posix::{birth, xattrs};

use super::File;
use crate::access::Engine;
use crate::error::Cause;
use crate::hand::Hands;
use crate::options::{OpenOptions, Wish};
use crate::pin::{not_made, pin_found};
use crate::walk::{Found, Last, TRIES, Walk, is_kind};

/// Nothing is there of this name.
const ABSENT: Cause = Cause::Engine(EngineError::NotFound);

type Outcome<T> = std::result::Result<T, Cause>;

impl File {
    /// Opens what a path leads to, or makes it.
    pub(crate) fn open(inner: &Hands, path: &[u8], options: &OpenOptions) -> Outcome<Self> {
        let wish = options.wish()?;
        if wish.nameless {
            return Self::temporary(inner, path, &wish);
        }
        Self::open_within(inner, None, path, &wish)
    }

    /// The same in a snapshot, whose root is given, to read it.
    pub(crate) fn open_in_snapshot(
        inner: &Hands,
        root: Ino,
        path: &[u8],
        options: &OpenOptions,
    ) -> Outcome<Self> {
        Self::open_within(inner, Some(root), path, &options.wish()?)
    }

    fn open_within(
        inner: &Hands,
        snapshot: Option<Ino>,
        path: &[u8],
        wish: &Wish,
    ) -> Outcome<Self> {
        let pass = inner.enter()?;
        let mut walk = Walk::within(&pass, snapshot);
        let mut followed: Option<(Arc<Found>, Vec<u8>)> = None;
        let (mut directory, mut follow) = (wish.directory, !wish.no_follow);
        // Each time round a link is followed, or what was found had gone.
        for _ in 0..2 * TRIES {
            let mut own = None;
            let (dir, last) = match &followed {
                Some((from, path)) => walk.parent(Some(&**from), path, &mut own)?,
                None => walk.parent(None, path, &mut own)?,
            };
            let Last::Name { name, slashed } = last else {
                if wish.exclusive {
                    return Err(EngineError::Exists.into());
                }
                return Self::open_found(inner, &pass, walk.found_last(&dir, last)?, wish, true);
            };
            if wish.create && slashed {
                return Err(EngineError::IsDirectory.into());
            }
            // What has a slash behind it is a directory, and so are links' targets from there on.
            (directory, follow) = (directory | slashed, follow | slashed);
            // What must not be there is not looked for before.
            let there = if wish.exclusive { Err(ABSENT) } else { walk.step(&dir, name) };
            let found = match there {
                Ok(found) => found,
                Err(cause) if wish.create && cause.is_absence() => {
                    match Self::create(inner, &pass, &dir, name, wish) {
                        Err(Cause::Engine(EngineError::Exists)) if !wish.exclusive => continue,
                        Err(cause) if cause.is_stale() => continue,
                        made => return made,
                    }
                }
                Err(cause) => return Err(cause),
            };
            if is_kind(&found.attr, mode::SYMLINK) && follow {
                if let Some(target) = walk.read_link(&found.attr)? {
                    followed = Some((dir.keep(), target));
                }
                continue;
            }
            match Self::open_found(inner, &pass, found, wish, directory) {
                Err(cause) if cause.is_stale() => {}
                opened => return opened,
            }
        }
        Err(EngineError::NotFound.into())
    }

    /// Opens what was found.
    fn open_found(
        inner: &Hands,
        engine: &Engine,
        found: Found,
        wish: &Wish,
        directory: bool,
    ) -> Outcome<Self> {
        match found.attr.mode & mode::TYPE {
            mode::DIRECTORY if wish.write => return Err(EngineError::IsDirectory.into()),
            mode::DIRECTORY => {}
            _ if directory => return Err(EngineError::NotDirectory.into()),
            mode::FILE => {}
            mode::SYMLINK => return Err(Cause::Number(libc::ELOOP)),
            _ => return Err(Cause::Number(libc::ENXIO)),
        }
        if wish.write && engine.is_read_only() {
            return Err(EngineError::ReadOnly.into());
        }
        let ino = found.ino();
        let file = Self::over(inner, engine.hold_found(found)?, wish);
        if wish.truncate {
            engine.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
        }
        Ok(file)
    }

    /// Makes a file and opens it; stale if it went away before that.
    fn create(
        inner: &Hands,
        engine: &Engine,
        dir: &Found,
        name: &[u8],
        wish: &Wish,
    ) -> Outcome<Self> {
        let (dir, mode) = (&engine.find_again(dir)?, mode::FILE | wish.mode);
        let (new, brought) = birth::new_in(engine, &dir.attr, inner.maker, mode, true)?;
        let made = engine.create_in(dir, name, &new, &xattrs::changes(&brought));
        let made = made.map_err(|error| not_made(engine, dir, name, error))?;
        Ok(Self::over(inner, engine.hold_found(made)?, wish))
    }

    /// Makes a file without a name.
    fn temporary(inner: &Hands, path: &[u8], wish: &Wish) -> Outcome<Self> {
        let pass = inner.enter()?;
        let dir = pin_found(&pass, path, !wish.no_follow)?;
        if !is_kind(&dir.found.attr, mode::DIRECTORY) {
            return Err(EngineError::NotDirectory.into());
        }
        let mode = mode::FILE | wish.mode;
        let (new, brought) = birth::new_in(&*pass, &dir.found.attr, inner.maker, mode, true)?;
        let made = pass.create_nameless(dir.ino(), &new, &xattrs::changes(&brought))?;
        // It is open from the start.
        Ok(Self::over(inner, pass.take_over(made.ino)?, wish))
    }
}
