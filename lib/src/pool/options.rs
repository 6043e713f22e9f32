//! How to open a pool, and how to make one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lode_engine::{AccessTimes, PageClass, Protection};
use lode_host::StdHost;
use lode_pmem::{Draft, FlushStrategy, Mapped, Profile, RegionOptions, WindowMode};
use lode_posix::birth::Maker;

use super::Pool;
use crate::access::Engine;
use crate::error::{Cause, Error, Result};
use crate::inner::Inner;

/// How to make a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatOptions {
    /// Label, at most 64 bytes, none of them NUL.
    pub label: String,
    /// UUID; random where `None`.
    pub uuid: Option<[u8; 16]>,
    /// How many threads can commit at a time, at most: 1 to 256.
    pub lanes: u32,
    /// Size of the pages that files take by default.
    pub page_size: PageClass,
    /// What the pool has twice, so that damage to one copy is mended.
    pub protection: Protection,
    /// Bytes of a scribble that can't reach both copies; they lie farther apart.
    pub dead_zone: u64,
    /// Bytes of file data that have a checksum together, at level [`Protection::Full`]: 512, 1024 or 2048.
    pub strip_bytes: u32,
    /// Permissions of the root directory. Its owner is that of all new files: see
    /// [`PoolOptions::owner`].
    pub root_mode: u32,
}

impl Default for FormatOptions {
    fn default() -> Self {
        let engine = lode_engine::FormatOptions::default();
        Self {
            label: String::new(),
            uuid: None,
            lanes: engine.lanes,
            page_size: engine.page_class,
            protection: engine.protection,
            dead_zone: engine.dead_zone,
            strip_bytes: engine.strip_bytes,
            root_mode: engine.root_mode,
        }
    }
}

impl FormatOptions {
    fn engine(&self, maker: Maker) -> lode_engine::FormatOptions {
        lode_engine::FormatOptions {
            label: self.label.clone().into_bytes(),
            uuid: self.uuid,
            lanes: self.lanes,
            page_class: self.page_size,
            protection: self.protection,
            dead_zone: self.dead_zone,
            strip_bytes: self.strip_bytes,
            root_uid: maker.uid,
            root_gid: maker.gid,
            root_mode: self.root_mode,
            ..lode_engine::FormatOptions::default()
        }
    }
}

/// How to open a pool. The default is read-write, as [`Pool::open`] does it.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    region: RegionOptions,
    engine: lode_engine::OpenOptions,
    owner: Option<(u32, u32)>,
    umask: Option<u32>,
    cpus: Option<usize>,
    index_memory: Option<u64>,
    overwrite: bool,
}

impl PoolOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes nothing in the pool, not even by recovery; many may have it open so at a time.
    pub fn read_only(&mut self, read_only: bool) -> &mut Self {
        (self.region.read_only, self.engine.read_only) = (read_only, read_only);
        self
    }

    /// Overwrites file data in place: faster, but a crash can leave a part of an overwrite.
    pub fn relaxed(&mut self, relaxed: bool) -> &mut Self {
        self.engine.relaxed = relaxed;
        self
    }

    /// When reads move access times.
    pub fn access_times(&mut self, when: AccessTimes) -> &mut Self {
        self.engine.atime = when;
        self
    }

    /// Size of the pages that files made from now on take; the pool's default where not said.
    pub fn page_size(&mut self, size: PageClass) -> &mut Self {
        self.engine.page_class = Some(size);
        self
    }

    /// Owner and group of new files; those of the process (effective) where not said.
    pub fn owner(&mut self, uid: u32, gid: u32) -> &mut Self {
        self.owner = Some((uid, gid));
        self
    }

    /// Permissions that new files do not get; the process's umask, as it is when the pool is
    /// opened, where not said.
    pub fn umask(&mut self, umask: u32) -> &mut Self {
        self.umask = Some(umask);
        self
    }

    /// What guards the pool against stray stores of this process; the best that there is where
    /// not said.
    pub fn windows(&mut self, mode: WindowMode) -> &mut Self {
        self.region.windows = Some(mode);
        self
    }

    /// How stores reach the memory; the best that is safe where not said.
    pub fn flush(&mut self, strategy: FlushStrategy) -> &mut Self {
        self.region.flush = Some(strategy);
        self
    }

    /// Takes as long as this slower medium would: for measuring. (Maps that a program loads from and stores
    /// to by itself are not slowed.)
    pub fn emulate(&mut self, medium: Profile) -> &mut Self {
        self.region.emulate = Some(medium);
        self
    }

    /// How many CPUs to count on; those that the process may run on where not said.
    pub fn cpus(&mut self, cpus: usize) -> &mut Self {
        self.cpus = Some(cpus);
        self
    }

    /// Bytes of main memory that the indexes may take: what is known of files and directories is dropped
    /// when others need the room, and read again from the pool. What is in use stays, and may take
    /// more. 0 is no limit; where not said, it is an eighth of the machine's memory.
    pub fn index_memory(&mut self, bytes: u64) -> &mut Self {
        self.index_memory = Some(bytes);
        self
    }

    /// Lets [`PoolOptions::create`] replace what is there.
    pub fn overwrite(&mut self, overwrite: bool) -> &mut Self {
        self.overwrite = overwrite;
        self
    }

    /// Opens the pool at `path`; recovers it if it was not closed.
    ///
    /// # Errors
    /// `EBUSY` where somebody else has it open, this process or another; `EINVAL` for what is no
    /// pool; `EIO` with [`Error::corruption`] for one that is damaged (`lode fsck` tells more).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let path = path.as_ref();
        let opened = Mapped::open(path, &self.region).map_err(Cause::from);
        opened.and_then(|region| self.open_region(region)).map_err(|cause| Error::at(cause, path))
    }

    /// Makes a pool of `bytes` bytes at `path` and opens it. What is there is replaced only where
    /// [`PoolOptions::overwrite`] says so, and when the new pool is finished. All of the file's space
    /// is allocated. (A device is always there; all of it is taken for 0 bytes.)
    ///
    /// # Errors
    /// `EEXIST`, `ENOSPC`, `EINVAL` for what can't become a pool, those of [`PoolOptions::open`].
    pub fn create(
        &self,
        path: impl AsRef<Path>,
        bytes: u64,
        format: &FormatOptions,
    ) -> Result<Pool> {
        let path = path.as_ref();
        self.make(path, bytes, format).map_err(|cause| Error::at(cause, path))?;
        self.open(path)
    }

    fn make(
        &self,
        path: &Path,
        bytes: u64,
        format: &FormatOptions,
    ) -> std::result::Result<(), Cause> {
        let format = format.engine(self.maker()?);
        if bytes > 0 {
            lode_engine::check_format(bytes, &format)?;
        }
        let (region, draft) = Draft::create(path, bytes, &self.region, self.overwrite)?;
        Engine::format(region, self.host(), &format)?;
        Ok(draft.publish()?)
    }

    /// Makes a pool of `bytes` bytes in memory that is nobody else's, and gone when it is closed: for
    /// tests, and for what need not be kept.
    ///
    /// # Errors
    /// `EINVAL` for a size that can't become a pool, `ENOMEM`.
    pub fn in_memory(&self, bytes: u64) -> Result<Pool> {
        let make = || {
            if self.engine.read_only {
                return Err(Cause::Number(libc::EINVAL));
            }
            let region = Mapped::anonymous(bytes, &self.region)?;
            let format = FormatOptions::default().engine(self.maker()?);
            lode_engine::Pool::format(&region, self.host(), &format)?;
            self.open_region(region)
        };
        make().map_err(Error::from)
    }

    /// Makes the pool at `path`, which nobody has open, what it was when the snapshot `name` was made, in one atomic
    /// step. What came later is lost; later snapshots go as well.
    ///
    /// # Errors
    /// `ENOENT` if there is no such snapshot; `EIO` where something of it is lost (`lode snapshot rollback` names what): then nothing
    /// has changed; those of [`PoolOptions::open`].
    pub fn rollback(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let path = path.as_ref();
        let region = RegionOptions { read_only: false, ..self.region };
        let opened = Mapped::open(path, &region).map_err(Cause::from);
        let name = name.as_ref().as_bytes();
        let done = opened.and_then(|region| Ok(Engine::rollback(region, self.host(), name)?));
        done.map_err(|cause| Error::at(cause, path))
    }

    fn open_region(&self, region: Mapped) -> std::result::Result<Pool, Cause> {
        let maker = self.maker()?;
        let index_memory = lode_host::index_memory(self.index_memory);
        let options = lode_engine::OpenOptions { index_memory, ..self.engine };
        let engine = Engine::open(region, self.host(), &options)?;
        if let Some(damage) = engine.opening().damage.first() {
            tracing::error!("the pool is damaged: {damage}; run lode fsck");
        }
        Ok(Pool::over(Inner::new(engine, maker)?))
    }

    fn host(&self) -> StdHost {
        self.cpus.map_or_else(StdHost::new, StdHost::with_cpus)
    }

    fn maker(&self) -> std::result::Result<Maker, Cause> {
        let (uid, gid) = self.owner.unwrap_or_else(|| {
            use rustix::process::{getegid, geteuid};
            (geteuid().as_raw(), getegid().as_raw())
        });
        let umask = self.umask.map_or_else(process_umask, Ok)?;
        Ok(Maker { uid, gid, umask })
    }
}

/// The process's umask, without changing it meanwhile.
fn process_umask() -> std::result::Result<u32, Cause> {
    let failed = |source| Cause::System { what: "read the umask", source };
    let status = std::fs::read_to_string("/proc/self/status").map_err(failed)?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    umask.ok_or_else(|| failed(std::io::ErrorKind::Unsupported.into()))
}
