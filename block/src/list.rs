//! Where volumes are in a pool, and which there are.
//!
//! A volume is a regular file in the directory `volumes` of the directory `.lode` of the root, with [`XATTR`]. So snapshots
//! have volumes as they have all files, they are sent and received, scrubbed and checked, and a mount can give them to
//! a loop device.
//!
//! Guarantees: a volume is there with its whole size and all its pages, or not at all, whatever cuts off its making.

use lode_engine::{
    Attr, Error as EngineError, FILE_MAX, Fallocate, Host, Ino, NewInode, PAGE_BYTES, PageClass,
    Pool, SetAttr, XattrChange, XattrWhen, mode,
};
use lode_pmem::Medium;

use crate::settings::{Settings, XATTR};
use crate::space::settings_of;
use crate::{Error, Result};

/// Name of the directory in the root.
pub const DIRECTORY: &[u8] = b".lode";
/// Name of the directory with volumes in that.
pub const VOLUMES: &[u8] = b"volumes";
/// Both, in a mount.
pub const PATH: &str = ".lode/volumes";
/// Bytes of a name, at most.
const NAME_BYTES_MAX: usize = 128;
/// Bytes of a large page: thin volumes take so many at a time.
const LARGE: u64 = PageClass::Huge.pages() * PAGE_BYTES;

/// A volume that is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewVolume {
    /// Its size in bytes, whole sectors.
    pub bytes: u64,
    /// What it is told to be.
    pub settings: Settings,
    /// Its owner: user and group.
    pub owner: (u32, u32),
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// Its file.
    pub ino: Ino,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes of the pool that it takes, second copies and checksums apart.
    pub allocated_bytes: u64,
    /// What it is told to be.
    pub settings: Settings,
}

/// Whether a volume can have this name.
pub fn is_name(name: &[u8]) -> bool {
    let dots = name == b"." || name == b"..";
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    fits && !dots && !name.iter().any(|byte| *byte == b'/' || byte.is_ascii_control())
}

fn named(name: &[u8]) -> Result<&[u8]> {
    if is_name(name) { Ok(name) } else { Err(Error::BadName) }
}

fn bytes_of(bytes: u64, settings: &Settings) -> Result<u64> {
    let sector = settings.sector.bytes();
    let most = FILE_MAX - FILE_MAX % sector;
    let is_whole = bytes.is_multiple_of(sector) && (sector..=most).contains(&bytes);
    if is_whole { Ok(bytes) } else { Err(Error::BadSize { most }) }
}

fn entry<M: Medium, H: Host>(pool: &Pool<M, H>, dir: Ino, name: &[u8]) -> Result<Option<Attr>> {
    // (They are in every directory.)
    if matches!(name, b"." | b"..") {
        return Ok(None);
    }
    match pool.lookup(dir, name) {
        Ok(attr) => Ok(Some(attr)),
        // (What no file can be called there is not.)
        Err(EngineError::NotFound | EngineError::Invalid | EngineError::NameTooLong) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn directory<M: Medium, H: Host>(pool: &Pool<M, H>, dir: Ino, name: &[u8]) -> Result<Option<Ino>> {
    let found = entry(pool, dir, name)?;
    let is_directory = |attr: &Attr| attr.mode & mode::TYPE == mode::DIRECTORY;
    Ok(found.filter(is_directory).map(|attr| attr.ino))
}

/// The directory that volumes are in, below this root: of the pool, or of a snapshot; `None` where there is none.
///
/// # Errors
/// [`Error::Pool`].
pub fn home<M: Medium, H: Host>(pool: &Pool<M, H>, root: Ino) -> Result<Option<Ino>> {
    match directory(pool, root, DIRECTORY)? {
        Some(dir) => directory(pool, dir, VOLUMES),
        None => Ok(None),
    }
}

/// The same of the pool, made where there is none.
///
/// # Errors
/// [`Error::Pool`]: `NotDirectory` where a file has that name.
pub fn make_home<M: Medium, H: Host>(pool: &Pool<M, H>, owner: (u32, u32)) -> Result<Ino> {
    let mut dir = pool.root();
    for name in [DIRECTORY, VOLUMES] {
        let new = NewInode { mode: mode::DIRECTORY | 0o700, uid: owner.0, gid: owner.1, rdev: 0 };
        let made = match pool.create(dir, name, &new) {
            Err(EngineError::Exists) => pool.lookup(dir, name)?,
            made => made?,
        };
        if made.mode & mode::TYPE != mode::DIRECTORY {
            return Err(EngineError::NotDirectory.into());
        }
        dir = made.ino;
    }
    Ok(dir)
}

/// Makes a volume.
///
/// # Errors
/// [`Error::Exists`], [`Error::BadName`], [`Error::BadSize`]; [`Error::Pool`]: `NoSpace` where it does not fit.
pub fn create<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    name: &[u8],
    new: &NewVolume,
) -> Result<VolumeInfo> {
    // (Others than NBD's clients do with any bytes; what was named so once is listed, renamed and deleted.)
    str::from_utf8(name).map_err(|_| Error::BadName)?;
    let (name, bytes) = (named(name)?, bytes_of(new.bytes, &new.settings)?);
    let dir = make_home(pool, new.owner)?;
    if entry(pool, dir, name)?.is_some() {
        return Err(Error::Exists);
    }
    let (uid, gid) = new.owner;
    let text = new.settings.text();
    let says = XattrChange { name: XATTR, value: Some(text.as_bytes()), when: XattrWhen::Always };
    let inode = NewInode { mode: mode::FILE | 0o600, uid, gid, rdev: 0 };
    let ino = pool.create_nameless(dir, &inode, &[says])?.ino;
    let made = back(pool, ino, (0, bytes), new.settings.is_thin).and_then(|()| {
        match pool.link(ino, dir, name) {
            Err(EngineError::Exists) => Err(Error::Exists),
            linked => Ok(linked.map(drop)?),
        }
    });
    // (Without a name it goes.)
    pool.release(ino);
    made?;
    info(pool, name)
}

/// Gives bytes `from .. to` of a volume, its new end, pages, or room for them.
fn back<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    (from, to): (u64, u64),
    is_thin: bool,
) -> Result<()> {
    let allocate = Fallocate::Allocate { keep_size: false };
    if !is_thin {
        return Ok(pool.fallocate(ino, allocate, from, to - from)?);
    }
    if from == 0 && to >= LARGE {
        // From now on its pages are large ones, of this size and not of the whole volume's.
        pool.fallocate(ino, allocate, 0, LARGE)?;
    }
    pool.setattr(ino, &SetAttr { size: Some(to), ..SetAttr::default() })?;
    Ok(())
}

/// What there is to know of a volume of the pool.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::NotAVolume`] where the file has nothing that says so.
pub fn info<M: Medium, H: Host>(pool: &Pool<M, H>, name: &[u8]) -> Result<VolumeInfo> {
    let dir = home(pool, pool.root())?.ok_or(Error::NotFound)?;
    info_in(pool, dir, name)
}

fn info_in<M: Medium, H: Host>(pool: &Pool<M, H>, dir: Ino, name: &[u8]) -> Result<VolumeInfo> {
    let attr = entry(pool, dir, name)?.ok_or(Error::NotFound)?;
    if attr.mode & mode::TYPE != mode::FILE {
        return Err(Error::NotAVolume);
    }
    let settings = settings_of(pool, attr.ino)?.ok_or(Error::NotAVolume)?;
    // (Somebody may have changed the file's size: what is no whole sector is not there.)
    let bytes = attr.size - attr.size % settings.sector.bytes();
    let allocated_bytes = attr.pages * PAGE_BYTES;
    Ok(VolumeInfo { name: name.to_vec(), ino: attr.ino, bytes, allocated_bytes, settings })
}

/// All volumes of the pool, by name. Files that are none are left out.
///
/// # Errors
/// [`Error::Pool`].
pub fn list<M: Medium, H: Host>(pool: &Pool<M, H>) -> Result<Vec<VolumeInfo>> {
    let Some(dir) = home(pool, pool.root())? else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    pool.readdir(dir, 0, &mut |entry| {
        if is_name(entry.name) {
            names.push(entry.name.to_vec());
        }
        true
    })?;
    names.sort_unstable();
    let mut all = Vec::new();
    for name in names {
        match info_in(pool, dir, &name) {
            Ok(info) => all.push(info),
            Err(Error::NotFound | Error::NotAVolume) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Gives a volume another size; a smaller one only where it `may_shrink`, and nobody has it open: `is_open` says that, which is
/// [`Pool::is_held`] but for who holds what is not open.
///
/// # Errors
/// [`Error::NotFound`], [`Error::BadSize`], [`Error::Shrinks`], [`Error::InUse`]; [`Error::Pool`]: `NoSpace`.
pub fn resize<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    name: &[u8],
    bytes: u64,
    may_shrink: bool,
    is_open: impl FnOnce(Ino) -> bool,
) -> Result<VolumeInfo> {
    let VolumeInfo { ino, bytes: before, settings, .. } = info(pool, name)?;
    let bytes = bytes_of(bytes, &settings)?;
    if bytes < before {
        if !may_shrink {
            return Err(Error::Shrinks { bytes: before });
        }
        if is_open(ino) {
            return Err(Error::InUse);
        }
        pool.setattr(ino, &SetAttr { size: Some(bytes), ..SetAttr::default() })?;
    } else if bytes > before {
        back(pool, ino, (before, bytes), settings.is_thin)?;
    }
    info(pool, name)
}

/// Deletes a volume that nobody has open: `is_open` says that, as for [`resize`]. Who opens it while it is being deleted has it
/// until he closes it, as with any file.
///
/// # Errors
/// [`Error::NotFound`], [`Error::InUse`]; [`Error::NotAVolume`] where it is another file.
pub fn delete<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    name: &[u8],
    is_open: impl FnOnce(Ino) -> bool,
) -> Result<()> {
    let dir = home(pool, pool.root())?.ok_or(Error::NotFound)?;
    if is_open(info_in(pool, dir, name)?.ino) {
        return Err(Error::InUse);
    }
    Ok(pool.unlink(dir, name)?)
}
