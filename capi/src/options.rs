//! How to open, and how to make pools.

use std::ffi::c_char;

use lode::{AccessTimes, FormatOptions, PageSize, PoolOptions, WindowMode};

use crate::border::{Failure, Outcome};
use crate::pointers::{Extensible, options, text};

/// Change nothing in the pool, not even by recovery. Many may have it open so at a time.
pub const LODE_POOL_READ_ONLY: u64 = 1;
/// Overwrite file data in place: faster, but a crash can leave a part of an overwrite.
pub const LODE_POOL_RELAXED: u64 = 2;
/// lode_pool_create() replaces what is there.
pub const LODE_POOL_OVERWRITE: u64 = 4;
/// New files belong to `uid` and `gid`. Without it, to the process (effective user and group).
pub const LODE_POOL_OWNER: u64 = 8;
/// New files do not get the permissions in `umask`. Without it, those in the process's umask, as it
/// is when the pool is opened.
pub const LODE_POOL_UMASK: u64 = 16;

/// Reads move an access time that is not later than the last change, or is a day old.
pub const LODE_ATIME_RELATIVE: u32 = 0;
/// Reads move access times.
pub const LODE_ATIME_ALWAYS: u32 = 1;
/// Reads do not move access times.
pub const LODE_ATIME_NEVER: u32 = 2;

/// Guard the pool against stray stores of this process as well as the machine can.
pub const LODE_WINDOWS_BEST: u32 = 0;
/// By a memory protection key.
pub const LODE_WINDOWS_KEY: u32 = 1;
/// By mprotect(): slow, to find errors.
pub const LODE_WINDOWS_MPROTECT: u32 = 2;
/// Not at all.
pub const LODE_WINDOWS_NONE: u32 = 3;

/// How to open a pool. Set `size` to sizeof (struct lode_pool_options), and the rest to zero but for
/// what you want: `struct lode_pool_options options = { .size = sizeof options };`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lode_pool_options {
    /// sizeof (struct lode_pool_options): later versions of it are longer.
    pub size: usize,
    /// LODE_POOL_... flags.
    pub flags: u64,
    /// Owner of new files, with LODE_POOL_OWNER.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// What new files do not get, with LODE_POOL_UMASK.
    pub umask: u32,
    /// LODE_ATIME_...: when reads move access times.
    pub access_times: u32,
    /// Bytes of the pages that files made from now on take: 4096, 2 MiB or 1 GiB; 0 for the pool's own.
    pub page_size: u64,
    /// LODE_WINDOWS_...: what guards the pool.
    pub windows: u32,
    /// How many CPUs to count on; 0 for those that the process may run on.
    pub cpus: u32,
    /// How stores reach the memory, in the words of `lode mount --help`; NULL for the best that is safe.
    pub flush: *const c_char,
    /// Bytes of main memory that the indexes may take; 0 for an eighth of the machine's,
    /// UINT64_MAX for no limit. What is in use stays, and may take more.
    pub index_memory: u64,
}

// SAFETY: numbers and a pointer, the size first.
unsafe impl Extensible for lode_pool_options {
    const FIRST: usize = 64;
}

/// How to make a pool. Set `size`, and the rest to zero but for what you want.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lode_format_options {
    /// sizeof (struct lode_format_options): later versions of it are longer.
    pub size: usize,
    /// How many threads can commit at a time, at most: 1 to 256; 0 for the default.
    pub lanes: u32,
    /// Permissions of the root directory; 0 for 0755.
    pub root_mode: u32,
    /// Bytes of the pages that files take by default: 4096, 2 MiB or 1 GiB; 0 for 4096.
    pub page_size: u64,
    /// Label, at most 64 bytes of UTF-8; NULL for none.
    pub label: *const c_char,
    /// 16 bytes of a UUID; NULL for a random one.
    pub uuid: *const u8,
}

// SAFETY: numbers and pointers, the size first.
unsafe impl Extensible for lode_format_options {
    const FIRST: usize = 40;
}

// The sizes are those of the first version, as long as there is no other.
const _: () = assert!(size_of::<lode_pool_options>() == lode_pool_options::FIRST);
const _: () = assert!(size_of::<lode_format_options>() == lode_format_options::FIRST);

/// How to open a pool, and whether an old one may be replaced.
///
/// # Safety
/// As for [`options`]; strings are strings.
pub(crate) unsafe fn pool_options(given: *const lode_pool_options) -> Outcome<PoolOptions> {
    const KNOWN: u64 = LODE_POOL_READ_ONLY
        | LODE_POOL_RELAXED
        | LODE_POOL_OVERWRITE
        | LODE_POOL_OWNER
        | LODE_POOL_UMASK;
    // SAFETY: the caller's promise is this one.
    let given = unsafe { options(given) }?;
    if given.flags & !KNOWN != 0 {
        return invalid("a flag of the options is unknown");
    }
    let has = |flag| given.flags & flag != 0;
    let mut options = PoolOptions::new();
    options.read_only(has(LODE_POOL_READ_ONLY)).relaxed(has(LODE_POOL_RELAXED));
    options.overwrite(has(LODE_POOL_OVERWRITE));
    options.access_times(match given.access_times {
        LODE_ATIME_RELATIVE => AccessTimes::Relative,
        LODE_ATIME_ALWAYS => AccessTimes::Always,
        LODE_ATIME_NEVER => AccessTimes::Never,
        _ => return invalid("no such access times"),
    });
    if has(LODE_POOL_OWNER) {
        options.owner(given.uid, given.gid);
    }
    if has(LODE_POOL_UMASK) {
        options.umask(given.umask & 0o777);
    }
    if let Some(size) = page_size(given.page_size)? {
        options.page_size(size);
    }
    match given.windows {
        LODE_WINDOWS_BEST => {}
        LODE_WINDOWS_KEY => drop(options.windows(WindowMode::Key)),
        LODE_WINDOWS_MPROTECT => drop(options.windows(WindowMode::Mprotect)),
        LODE_WINDOWS_NONE => drop(options.windows(WindowMode::None)),
        _ => return invalid("no such windows"),
    }
    if given.index_memory > 0 {
        options.index_memory(given.index_memory);
    }
    if given.cpus > 0 {
        options.cpus(given.cpus as usize);
    }
    if !given.flush.is_null() {
        // SAFETY: it is a string by the caller's promise.
        let name = unsafe { text(given.flush) }?.to_str();
        let Some(Ok(strategy)) = name.map(str::parse) else {
            return invalid("no such flush strategy");
        };
        options.flush(strategy);
    }
    Ok(options)
}

/// How to make a pool.
///
/// # Safety
/// As for [`options`]; strings are strings, and a UUID has its 16 bytes.
pub(crate) unsafe fn format_options(given: *const lode_format_options) -> Outcome<FormatOptions> {
    // SAFETY: the caller's promise is this one.
    let given = unsafe { options(given) }?;
    let mut options = FormatOptions::default();
    if given.lanes != 0 {
        options.lanes = given.lanes;
    }
    if given.root_mode != 0 {
        if given.root_mode & !0o7777 != 0 {
            return invalid("the root's mode has more than permissions");
        }
        options.root_mode = given.root_mode;
    }
    if let Some(size) = page_size(given.page_size)? {
        options.page_size = size;
    }
    if !given.label.is_null() {
        // SAFETY: it is a string by the caller's promise.
        let label = unsafe { text(given.label) }?;
        let Some(label) = label.to_str() else { return invalid("the label is not UTF-8") };
        options.label = label.to_owned();
    }
    if !given.uuid.is_null() {
        // SAFETY: there are 16 bytes by the caller's promise, and bytes are aligned anywhere.
        options.uuid = Some(unsafe { given.uuid.cast::<[u8; 16]>().read() });
    }
    Ok(options)
}

fn page_size(bytes: u64) -> Outcome<Option<PageSize>> {
    Ok(Some(match bytes {
        0 => return Ok(None),
        0x1000 => PageSize::Small,
        0x20_0000 => PageSize::Huge,
        0x4000_0000 => PageSize::Giant,
        _ => return invalid("pages are of 4096 bytes, 2 MiB or 1 GiB"),
    }))
}

fn invalid<T>(text: &'static str) -> Outcome<T> {
    Err(Failure::Argument(libc::EINVAL, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of options that programs can't see the effect of.
    #[test]
    fn options_reach_the_library() {
        // SAFETY: all fields may be zero.
        let mut given: lode_pool_options = unsafe { std::mem::zeroed() };
        given.size = size_of_val(&given);
        // SAFETY: the structure is whole.
        let show = |given: &_| format!("{:?}", unsafe { pool_options(given) }.ok().unwrap());
        let none = show(&given);
        assert_eq!(none, format!("{:?}", PoolOptions::new()));
        given.cpus = 3;
        given.index_memory = 1 << 20;
        given.flush = c"avx512+clwb".as_ptr();
        given.windows = LODE_WINDOWS_KEY;
        let all = show(&given);
        let mut expected = PoolOptions::new();
        expected
            .cpus(3)
            .index_memory(1 << 20)
            .flush("avx512+clwb".parse().unwrap())
            .windows(WindowMode::Key);
        assert_eq!(all, format!("{expected:?}"));
        assert_ne!(all, none);
    }
}
