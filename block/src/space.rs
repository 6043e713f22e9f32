//! Space of volumes: written and zeroed where it is, or given back.
//!
//! Guarantees: a volume that is not thin keeps its pages, whatever is discarded of it, by NBD or by a loop device, and is
//! written however full its pool is: in parts of whole sectors for which there is room. What is not written is an error, never
//! a part: there are block devices that take that for all.

use lode_engine::{Error as EngineError, FILE_MAX, Fallocate, Host, Ino, Pool};
use lode_pmem::Medium;

use crate::settings::{Settings, XATTR};

/// Bytes of a change that is one transaction, at most: whole sectors of both sizes.
const AT_ONCE: u64 = 1 << 20;

const ZERO: Fallocate = Fallocate::Zero { keep_size: true };

/// What a file of the pool is told to be, if it is a volume.
pub(crate) fn settings_of<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
) -> lode_engine::Result<Option<Settings>> {
    match pool.getxattr(ino, XATTR) {
        Ok(text) => Ok(Settings::parse(&text)),
        Err(EngineError::NoAttribute) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Changes bytes `at .. end` by parts, each a transaction, of whole sectors and as large as there is room for.
pub(crate) fn in_parts(
    (mut at, end): (u64, u64),
    sector: u64,
    mut change: impl FnMut(u64, u64) -> lode_engine::Result<()>,
) -> lode_engine::Result<()> {
    let mut most = AT_ONCE;
    while at < end {
        // (Parts end where large ones do.)
        let part = (end - at).min(most - at % most);
        match change(at, part) {
            Ok(()) => at += part,
            Err(EngineError::NoSpace) if most > sector => most /= 2,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Zeros bytes `at .. end`, all within the file, which keeps its pages.
pub(crate) fn zero<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    range: (u64, u64),
    settings: Settings,
) -> lode_engine::Result<()> {
    in_parts(range, settings.sector.bytes(), |at, len| pool.fallocate(ino, ZERO, at, len))
}

/// A write to a file of a mount for which there was no room at once: all of it, or an error, if the file is a volume; `None` where
/// it is none.
pub fn write_short_of_space<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    at: u64,
    bytes: &[u8],
) -> Option<lode_engine::Result<()>> {
    let settings = settings_of(pool, ino).transpose()?;
    let end = at.checked_add(bytes.len() as u64).ok_or(EngineError::FileTooLarge);
    Some(settings.and_then(|settings| {
        in_parts((at, end?), settings.sector.bytes(), |part, len| {
            pool.write(ino, part, part_of(bytes, part - at, len))
        })
    }))
}

/// `len` bytes at an offset, all of which there are.
pub(crate) fn part_of(bytes: &[u8], offset: u64, len: u64) -> &[u8] {
    let (from, to) = (offset as usize, (offset + len) as usize);
    bytes.get(from..to).unwrap_or_default()
}

/// `fallocate` of a file of which a mount does not know whether it is a volume. Where it is, a hole is punched only into one
/// that is thin, and zeros are no atomic call: nobody was promised more than sectors.
///
/// # Errors
/// Those of [`Pool::fallocate`].
pub fn fallocate<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    how: Fallocate,
    at: u64,
    len: u64,
) -> lode_engine::Result<()> {
    let end = at.checked_add(len).filter(|end| len > 0 && *end <= FILE_MAX);
    let settings = match how {
        Fallocate::Punch => settings_of(pool, ino)?.filter(|settings| !settings.is_thin),
        ZERO => settings_of(pool, ino)?,
        _ => None,
    };
    match settings.zip(end) {
        Some((settings, end)) => zero(pool, ino, (at, end.min(pool.getattr(ino)?.size)), settings),
        None => pool.fallocate(ino, how, at, len),
    }
}
