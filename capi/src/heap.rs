//! Main memory of a pool.

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

use lode_malloc::{Error, Method, Provider, Settings, Source};

use crate::border::{Failure, Outcome, call};
use crate::pointers::{handle, take, text};

/// Main memory that a pool's owner lends.
pub struct lode_heap {
    provider: Provider,
}

/// Figures of a process's memory, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct lode_heap_stats {
    /// Lent by the pool's owner now.
    pub held: u64,
    /// Of these, in use by nobody.
    pub idle: u64,
    /// In use, from the pool.
    pub pool: u64,
    /// In use, from DRAM: while there is no owner.
    pub dram: u64,
    /// Lent since the process began.
    pub lent: u64,
    /// Given back since then.
    pub returned: u64,
}

fn failure(error: Error) -> Failure {
    Failure::Argument(
        match error {
            Error::NoMemory => libc::ENOMEM,
            Error::NoBlock => libc::EINVAL,
            Error::OtherOwner => libc::EBUSY,
            Error::NoOwner => libc::ENOENT,
        },
        match error {
            Error::NoMemory => "no memory is left",
            Error::NoBlock => "no block begins at this address",
            Error::OtherOwner => "this process has memory of another owner",
            Error::NoOwner => "no owner of a pool answers at this socket",
        },
    )
}

/// Memory of the pool whose owner (a mount, or `lode heap serve`) has its control socket at `socket`; NULL is what
/// LODE_HEAP_SOCKET says. `method` is "direct", "indirect" or "mmap"; NULL is the first. A process has memory of one owner: EBUSY for
/// another one, ENOENT where none answers. NULL if it fails.
///
/// Memory of a heap may be used by a child of fork(), which gets its own copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_heap_open(
    socket: *const c_char,
    method: *const c_char,
) -> *mut lode_heap {
    let work = || {
        lode_malloc::start();
        let wrong = |what| Failure::Argument(libc::EINVAL, what);
        let method = if method.is_null() {
            Method::Direct
        } else {
            // SAFETY: a string, by C's promise.
            let name = unsafe { text(method) }?;
            name.to_str().and_then(Method::of_name).ok_or(wrong("no method has this name"))?
        };
        let settings = if socket.is_null() {
            Settings::from_environment()
        } else {
            // SAFETY: a string, by C's promise.
            let path = unsafe { text(socket) }?;
            Settings::new(path.as_bytes(), method)
                .ok_or(wrong("the path of a socket is shorter"))?
        };
        let provider = Provider::open(&settings).map_err(failure)?;
        Ok(Box::into_raw(Box::new(lode_heap { provider })))
    };
    call(std::ptr::null_mut(), work)
}

/// A block of `size` bytes at a multiple of `alignment`, a power of two, or 0; NULL with ENOMEM where the owner lends no more. Any
/// thread may free it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_heap_alloc(
    heap: *mut lode_heap,
    size: usize,
    alignment: usize,
) -> *mut c_void {
    let work = || {
        // SAFETY: a handle, by C's promise.
        unsafe { handle(heap) }?;
        if !alignment.is_power_of_two() && alignment != 0 {
            return Err(Failure::Argument(libc::EINVAL, "an alignment is a power of two"));
        }
        some(lode_malloc::aligned(alignment.max(1), size, false, Source::BySize))
    };
    call(std::ptr::null_mut(), work)
}

fn some(block: *mut c_void) -> Outcome<*mut c_void> {
    if block.is_null() { Err(failure(Error::NoMemory)) } else { Ok(block) }
}

/// Makes a block larger or smaller, as realloc(3): one of 8 MiB or more is moved by its pages. NULL leaves it as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_heap_realloc(
    heap: *mut lode_heap,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    let work = || {
        // SAFETY: a handle, by C's promise.
        unsafe { handle(heap) }?;
        // SAFETY: a block of this heap, by C's promise.
        some(unsafe { lode_malloc::realloc(block, size.max(1), Source::BySize) })
    };
    call(std::ptr::null_mut(), work)
}

/// Takes a block back; NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_heap_free(heap: *mut lode_heap, block: *mut c_void) -> c_int {
    let work = || {
        // SAFETY: a handle, by C's promise.
        unsafe { handle(heap) }?;
        // SAFETY: a block of this heap, by C's promise.
        unsafe { lode_malloc::free(block) };
        Ok(0)
    };
    call(-1, work)
}

/// Gives back to the owner what nobody uses; returns its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_heap_purge(heap: *mut lode_heap) -> i64 {
    let work = || {
        // SAFETY: a handle, by C's promise.
        unsafe { handle(heap) }?;
        Ok(i64::try_from(lode_malloc::purge()).unwrap_or(i64::MAX))
    };
    call(-1, work)
}

/// Figures of now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_heap_stats(
    heap: *mut lode_heap,
    stats: *mut lode_heap_stats,
) -> c_int {
    let work = || {
        // SAFETY: a handle, by C's promise.
        let now = unsafe { handle(heap) }?.provider.stats();
        if stats.is_null() || !stats.is_aligned() {
            return Err(Failure::Argument(libc::EFAULT, "there is no place for the figures"));
        }
        let (held, idle, pool, dram) = (now.held, now.idle, now.pool, now.dram);
        let figures =
            lode_heap_stats { held, idle, pool, dram, lent: now.lent, returned: now.returned };
        // SAFETY: a place of this type, by C's promise.
        unsafe { stats.write(figures) };
        Ok(0)
    };
    call(-1, work)
}

/// Closes a heap, and gives back what nobody uses. Its blocks stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lode_heap_close(heap: *mut lode_heap) -> c_int {
    let work = || {
        // SAFETY: a handle that nobody uses any more, by C's promise.
        drop(unsafe { take(heap) }?);
        lode_malloc::purge();
        Ok(0)
    };
    call(-1, work)
}
