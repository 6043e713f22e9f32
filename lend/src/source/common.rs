//! What all methods do alike.

use std::io;
use std::os::fd::OwnedFd;

use lode_engine::{Handle, Life, Pool};
use lode_loan::{CHUNK_BYTES, Refusal};

use super::owner::{Owner, Region, refusal};

const _: () = assert!(lode_engine::LENT_BYTES == CHUNK_BYTES);

/// A file that chunks are parts of, in the opening of the pool that it was made in.
pub(super) struct File<H: lode_engine::Host> {
    pub(super) life: Life,
    pub(super) handle: Handle<H>,
}

/// Gives a chunk back, whose pages no file has (or one of an earlier opening, which is gone).
pub(super) fn give_back<O: Owner>(owner: &O, chunk: u64) {
    // (Who has closed the pool has nothing lent any more.)
    if let Some(Err(error)) = owner.with(|pool| pool.give_back(chunk)) {
        tracing::error!(%error, chunk, "memory was given back that can't be");
    }
}

pub(super) fn zero<O: Owner>(owner: &O, chunk: u64) {
    let at = chunk.saturating_mul(CHUNK_BYTES);
    let zeroed = owner.with(|pool| match pool.is_lent(chunk) {
        true => pool.medium().zero_lent(at, CHUNK_BYTES),
        false => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    });
    if let Some(Err(error)) = zeroed {
        tracing::error!(%error, chunk, "memory that is lent could not be zeroed");
    }
}

pub(super) fn locked<O: Owner>(owner: &O, chunk: u64) -> bool {
    let part = (chunk.saturating_mul(CHUNK_BYTES), CHUNK_BYTES);
    let looked = owner.with(|pool| {
        let mut any = false;
        pool.medium().for_each_locked(part, &mut |_, _| any = true).map(|()| any)
    });
    match looked {
        Some(Ok(any)) => any,
        // Nobody locks what is no file.
        Some(Err(error)) if error.kind() == io::ErrorKind::Unsupported => false,
        Some(Err(_)) | None => true,
    }
}

pub(super) fn descriptor<O: Owner>(owner: &O) -> io::Result<OwnedFd> {
    let closed = || Err(io::ErrorKind::NotConnected.into());
    owner.with(|pool| pool.medium().descriptor()).unwrap_or_else(closed)
}

/// Makes a file without a name, for nobody but programs' memory.
pub(super) fn make_file<M: Region, H: lode_engine::Host>(
    pool: &Pool<M, H>,
) -> Result<File<H>, Refusal> {
    let new = lode_engine::NewInode { mode: FILE_MODE, uid: 0, gid: 0, rdev: 0 };
    let attr = pool.create_nameless(pool.root(), &new, &[]).map_err(refusal)?;
    let handle = pool.take_over(attr.ino).map_err(refusal)?;
    Ok(File { life: pool.life(), handle })
}

/// A regular file that its owner may read and write.
const FILE_MODE: u32 = lode_engine::mode::FILE | 0o600;

/// Backs bytes `offset .. offset + CHUNK_BYTES` of a file with a chunk, zeroed, which is lent then. Where that fails nothing is.
pub(super) fn back<M: Region, H: lode_engine::Host>(
    pool: &Pool<M, H>,
    file: &File<H>,
    offset: u64,
    spared: u64,
) -> Result<u64, Refusal> {
    use lode_engine::Fallocate::{Allocate, Punch};
    let pages = CHUNK_BYTES / lode_engine::PAGE_BYTES;
    if pool.space().pages_available < pages.saturating_add(spared) {
        return Err(Refusal::NoSpace);
    }
    let ino = file.handle.ino();
    let how = Allocate { keep_size: false };
    pool.fallocate(ino, how, offset, CHUNK_BYTES).map_err(refusal)?;
    pool.lend_part(&file.handle, offset).map_err(|_| {
        // There are pages, but not in one piece.
        if let Err(error) = pool.fallocate(ino, Punch, offset, CHUNK_BYTES) {
            tracing::warn!(%error, "pages that can't be lent stay with their file until it ends");
        }
        Refusal::NoSpace
    })
}
