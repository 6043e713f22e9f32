//! Opening: as a kernel does, with a path's last component made where that is asked for.

use std::sync::Arc;

use lode_engine::{Attr, Error as EngineError, SetAttr, mode};
use lode_posix::{birth, xattrs};

use super::File;
use crate::access::Engine;
use crate::error::Cause;
use crate::inner::Inner;
use crate::options::{OpenOptions, Wish};
use crate::pin::hold;
use crate::walk::{Last, Place, TRIES, Walk, is_kind};

type Outcome<T> = std::result::Result<T, Cause>;

impl File {
    /// Opens what a path leads to, or makes it.
    pub(crate) fn open(inner: &Arc<Inner>, path: &[u8], options: &OpenOptions) -> Outcome<Self> {
        let wish = options.wish()?;
        let pass = inner.enter()?;
        let mut walk = Walk::new(&pass, inner.root);
        let mut target;
        let (mut from, mut path) = (inner.root, path);
        let (mut directory, mut follow) = (wish.directory, !wish.no_follow);
        // Each time round a link is followed, or what was found had gone.
        for _ in 0..2 * TRIES {
            let (dir, last) = walk.parent(from, path)?;
            let Last::Name { name, slashed } = last else {
                if wish.exclusive {
                    return Err(EngineError::Exists.into());
                }
                return Self::open_found(inner, &pass, &walk.attr_of(dir, last)?, &wish, true);
            };
            if wish.create && slashed {
                return Err(EngineError::IsDirectory.into());
            }
            // What has a slash behind it is a directory, and so are links' targets from there on.
            (directory, follow) = (directory | slashed, follow | slashed);
            let attr = match walk.step(dir, name) {
                Ok(attr) => attr,
                Err(cause) if wish.create && cause.is_absence() => {
                    match Self::create(inner, &pass, dir, name, &wish) {
                        Err(Cause::Engine(EngineError::Exists)) if !wish.exclusive => continue,
                        Err(cause) if cause.is_stale() => continue,
                        made => return made,
                    }
                }
                Err(cause) => return Err(cause),
            };
            if wish.exclusive {
                return Err(EngineError::Exists.into());
            }
            if is_kind(&attr, mode::SYMLINK) && follow {
                if let Some(text) = walk.read_link(&attr)? {
                    target = text;
                    (from, path) = (dir, &target);
                }
                continue;
            }
            match Self::open_found(inner, &pass, &attr, &wish, directory) {
                Err(cause) if cause.is_stale() => {}
                opened => return opened,
            }
        }
        Err(EngineError::NotFound.into())
    }

    /// Opens what was found.
    fn open_found(
        inner: &Arc<Inner>,
        engine: &Engine,
        attr: &Attr,
        wish: &Wish,
        directory: bool,
    ) -> Outcome<Self> {
        match attr.mode & mode::TYPE {
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
        let file = Self::over(inner, hold(engine, Place::of(attr))?, wish);
        if wish.truncate {
            engine.setattr(attr.ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
        }
        Ok(file)
    }

    /// Makes a file and opens it; stale if it went away before that.
    fn create(
        inner: &Arc<Inner>,
        engine: &Engine,
        dir: Place,
        name: &[u8],
        wish: &Wish,
    ) -> Outcome<Self> {
        let dir = inner.pin(engine, dir)?;
        let mode = mode::FILE | wish.mode;
        let (new, brought) = birth::new_in(engine, &dir.attr, inner.maker, mode, true)?;
        let made = engine.create_with(dir.ino(), name, &new, &xattrs::changes(&brought))?;
        Ok(Self::over(inner, hold(engine, Place::of(&made))?, wish))
    }

    /// Makes a file without a name.
    pub(crate) fn temporary(inner: &Arc<Inner>, path: &[u8], mode: u32) -> Outcome<Self> {
        let wish = OpenOptions::new().read(true).write(true).mode(mode).wish()?;
        let pass = inner.enter()?;
        let dir = inner.pin_found(&pass, path, true)?;
        if !is_kind(&dir.attr, mode::DIRECTORY) {
            return Err(EngineError::NotDirectory.into());
        }
        let mode = mode::FILE | wish.mode;
        let (new, brought) = birth::new_in(&*pass, &dir.attr, inner.maker, mode, true)?;
        let made = pass.create_nameless(dir.ino(), &new, &xattrs::changes(&brought))?;
        // It is open from the start.
        Ok(Self::over(inner, pass.take_over(made.ino)?, &wish))
    }
}
