//! Space of volumes: zeroed where it is, or given back.
//!
//! Guarantees: a volume that is not thin keeps its pages, whatever is discarded of it, by NBD or by a loop device. Zeros are
//! written in parts that take little room at a time, as a pool may be full of volumes.

use lode_engine::{Error as EngineError, FILE_MAX, Fallocate, Host, Ino, Pool};
use lode_pmem::Medium;

use crate::settings::{Settings, XATTR};

/// Bytes of a change that is one transaction, at most: whole sectors of both sizes.
pub(crate) const AT_ONCE: u64 = 1 << 20;

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

/// Zeros bytes `at .. end`, all within the file, which keeps its pages.
pub(crate) fn zero<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    (mut at, end): (u64, u64),
) -> lode_engine::Result<()> {
    while at < end {
        // (Parts end where large ones do.)
        let next = end.min((at / AT_ONCE + 1) * AT_ONCE);
        pool.fallocate(ino, ZERO, at, next - at)?;
        at = next;
    }
    Ok(())
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
    let keeps_pages = match how {
        Fallocate::Punch => settings_of(pool, ino)?.is_some_and(|settings| !settings.is_thin),
        ZERO => settings_of(pool, ino)?.is_some(),
        _ => false,
    };
    match end.filter(|_| keeps_pages) {
        Some(end) => zero(pool, ino, (at, end.min(pool.getattr(ino)?.size))),
        None => pool.fallocate(ino, how, at, len),
    }
}
