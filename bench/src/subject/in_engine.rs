//! A pool by the engine's calls, on any medium: what the library does, without its walking of
//! paths of any length, its rights and its clones.

use std::io;
use std::sync::Arc;

use lode_engine::{
    FormatOptions, Handle, Ino, NewInode, OpenOptions, Pool, RenameMode, SetAttr, mode,
};
use lode_host::StdHost;
use lode_pmem::{Mapped, Medium};

use crate::calls::{Calls, For, Mapping, Name};
use crate::medium::{Way, Wrapped};

const FILE: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 0, gid: 0, rdev: 0 };
const DIRECTORY: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 0, gid: 0, rdev: 0 };

/// A pool that several use.
pub(super) type Shared<M> = Arc<Pool<M, StdHost>>;

/// A pool's calls.
pub struct InEngine<M: Medium + 'static> {
    pool: Shared<M>,
}

impl<W: Way> InEngine<Wrapped<W>> {
    /// A new pool of `bytes` bytes at the beginning of `region`, with instructions done in this way.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn new(region: &Arc<Mapped>, bytes: u64, way: W) -> io::Result<Self> {
        let medium = Wrapped::new(region, bytes, way);
        Pool::format(&medium, StdHost::new(), &FormatOptions::default())
            .map_err(io::Error::other)?;
        let pool = Pool::open(medium, StdHost::new(), &OpenOptions::default());
        Ok(Self { pool: Arc::new(pool.map_err(io::Error::other)?) })
    }
}

impl<M: Medium + 'static> InEngine<M> {
    /// The calls of a pool that is open.
    pub fn of(pool: Shared<M>) -> Self {
        Self { pool }
    }

    /// The directory that a path's name is in, and the name.
    #[inline]
    fn parent<'n>(&self, at: &'n Name) -> io::Result<(Ino, &'n [u8])> {
        let path = at.as_c_str().to_bytes();
        let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else {
            return Ok((self.pool.root(), path));
        };
        let (dirs, name) = path.split_at(slash);
        let mut dir = self.pool.root();
        for one in dirs.split(|byte| *byte == b'/') {
            dir = self.pool.lookup(dir, one).map_err(io::Error::other)?.ino;
        }
        Ok((dir, name.get(1..).unwrap_or_default()))
    }

    #[inline]
    fn find(&self, at: &Name) -> io::Result<lode_engine::Attr> {
        let (dir, name) = self.parent(at)?;
        self.pool.lookup(dir, name).map_err(io::Error::other)
    }

    #[inline]
    fn hold(&self, ino: Ino) -> io::Result<OpenFile<M>> {
        let held = self.pool.hold(ino).map_err(io::Error::other)?;
        Ok(OpenFile { pool: Arc::clone(&self.pool), held: Some(held) })
    }
}

/// An open file.
pub struct OpenFile<M: Medium + 'static> {
    pool: Shared<M>,
    held: Option<Handle<StdHost>>,
}

impl<M: Medium + 'static> OpenFile<M> {
    #[inline]
    fn held(&self) -> io::Result<&Handle<StdHost>> {
        self.held.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl<M: Medium + 'static> Drop for OpenFile<M> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.pool.let_go(held);
        }
    }
}

/// Mapping needs more than a medium: nobody asks for it.
pub struct NoMap;

impl Mapping for NoMap {
    fn load(&self, _at: u64, _into: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn store(&self, _at: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl<M: Medium + 'static> Calls for InEngine<M> {
    type File = OpenFile<M>;
    type Dir = ();
    type Map = NoMap;

    fn create(&self, at: &Name) -> io::Result<OpenFile<M>> {
        let (dir, name) = self.parent(at)?;
        let made = self.pool.create(dir, name, &FILE).map_err(io::Error::other)?;
        self.hold(made.ino)
    }

    fn open(&self, at: &Name, _what_for: For) -> io::Result<OpenFile<M>> {
        self.hold(self.find(at)?.ino)
    }

    fn open_dir(&self, _at: &Name) -> io::Result<()> {
        Ok(())
    }

    fn unlink(&self, at: &Name) -> io::Result<()> {
        let (dir, name) = self.parent(at)?;
        self.pool.unlink(dir, name).map_err(io::Error::other)
    }

    fn mkdir(&self, at: &Name) -> io::Result<()> {
        let (dir, name) = self.parent(at)?;
        self.pool.create(dir, name, &DIRECTORY).map(drop).map_err(io::Error::other)
    }

    fn rmdir(&self, at: &Name) -> io::Result<()> {
        let (dir, name) = self.parent(at)?;
        self.pool.rmdir(dir, name).map_err(io::Error::other)
    }

    fn rename(&self, from: &Name, to: &Name) -> io::Result<()> {
        let ((dir, name), (to_dir, to_name)) = (self.parent(from)?, self.parent(to)?);
        let how = RenameMode::Replace;
        self.pool.rename(dir, name, to_dir, to_name, how).map_err(io::Error::other)
    }

    fn stat(&self, at: &Name) -> io::Result<u64> {
        Ok(self.find(at)?.size)
    }

    fn list(&self, at: &Name) -> io::Result<u64> {
        let mut names = 0;
        let dir = self.find(at)?.ino;
        let listed = self.pool.readdir(dir, 0, &mut |_| {
            names += 1;
            true
        });
        listed.map(|()| names).map_err(io::Error::other)
    }

    fn read_at(&self, file: &OpenFile<M>, at: u64, into: &mut [u8]) -> io::Result<()> {
        let read = self.pool.read_held(file.held()?, at, into).map_err(io::Error::other)?;
        if read == into.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, file: &OpenFile<M>, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.pool.write_held(file.held()?, at, bytes).map_err(io::Error::other)
    }

    fn append(&self, file: &OpenFile<M>, bytes: &[u8]) -> io::Result<()> {
        self.pool.append_held(file.held()?, bytes).map(drop).map_err(io::Error::other)
    }

    fn set_len(&self, file: &OpenFile<M>, bytes: u64) -> io::Result<()> {
        let size = SetAttr { size: Some(bytes), ..SetAttr::default() };
        self.pool.setattr(file.held()?.ino(), &size).map(drop).map_err(io::Error::other)
    }

    fn persist(&self, _file: &OpenFile<M>) -> io::Result<()> {
        Ok(())
    }

    fn persist_names(&self, _dir: &()) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, _at: &Name) -> io::Result<NoMap> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn settle(&self) -> io::Result<()> {
        // What the library's thread does now and then.
        self.pool.maintain().map_err(io::Error::other)
    }
}
