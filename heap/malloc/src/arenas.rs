//! jemalloc's set-up: its arenas, and which of the two sources each has.
//!
//! The arenas that jemalloc gives threads by itself, with their caches, have the *main* source: the pool, or
//! DRAM where small blocks are to come from there. Blocks of the other source come from
//! arenas of their own, past the caches.
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use lode_heap::{Borders, Settings};
use tikv_jemalloc_sys as je;

use crate::hooks;

/// Arenas of the other source, at most.
const OTHERS: usize = 16;
/// What jemalloc is told; `%` becomes the number of arenas. Address space is kept; what isn't used for a second or two goes.
const OPTIONS: &[u8] = b"narenas:%,retain:true,oversize_threshold:0,dirty_decay_ms:1000,muzzy_decay_ms:0,metadata_thp:disabled,thp:default\0";
/// The same where there is little address space: none of it is kept.
const OPTIONS_WITHOUT: &[u8] = b"narenas:%,retain:false,oversize_threshold:0,dirty_decay_ms:1000,muzzy_decay_ms:0,metadata_thp:disabled,thp:default\0";
const OPTIONS_ROOM: usize = 192;
/// The most address space that an arena asks for beyond what it needs.
const GROWTH: usize = 64 << 20;

/// 0: nothing is there; a thread's number: it is setting up; [`THERE`].
static STATE: AtomicU32 = AtomicU32::new(0);
const THERE: u32 = u32::MAX;
const FAILED: u32 = u32::MAX - 1;

static BASE: AtomicUsize = AtomicUsize::new(usize::MAX);
static DRAM_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
static BLOCKS_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
static END: AtomicUsize = AtomicUsize::new(0);
/// Blocks below this are DRAM's.
static DRAM_BELOW: AtomicUsize = AtomicUsize::new(0);
static OTHER_FIRST: AtomicU32 = AtomicU32::new(0);
static OTHER_COUNT: AtomicU32 = AtomicU32::new(0);

/// Whether an address lies in what is reserved.
pub(crate) fn is_ours(address: usize) -> bool {
    address >= BASE.load(Ordering::Relaxed) && address < END.load(Ordering::Relaxed)
}

/// What an address is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Pages,
    Dram,
    Blocks,
    Elsewhere,
}

pub(crate) fn place(address: usize) -> Place {
    if !is_ours(address) {
        Place::Elsewhere
    } else if address < DRAM_FROM.load(Ordering::Relaxed) {
        Place::Pages
    } else if address < BLOCKS_FROM.load(Ordering::Relaxed) {
        Place::Dram
    } else {
        Place::Blocks
    }
}

/// Blocks below this many bytes are DRAM's.
pub(crate) fn dram_below() -> usize {
    DRAM_BELOW.load(Ordering::Relaxed)
}

/// An arena of the other source.
pub(crate) fn other() -> c_int {
    let (first, count) = (OTHER_FIRST.load(Ordering::Relaxed), OTHER_COUNT.load(Ordering::Relaxed));
    if count <= 1 {
        return first as c_int;
    }
    // SAFETY: tells a number.
    let cpu = unsafe { libc::sched_getcpu() };
    (first + (cpu.max(0) as u32) % count) as c_int
}

/// Whether the allocator is there.
#[inline]
pub(crate) fn are_there() -> bool {
    STATE.load(Ordering::Acquire) == THERE
}

/// Sets the allocator up before it is wanted.
pub fn start() {
    let _ = are_there() || set_up();
}

/// Whether a program may still do without: nothing has set the allocator up, and there is one thread, so that no fork
/// can come in the midst of its being set up. (A thread that begins allocates when libc knows of it already, and before it runs.)
pub(crate) fn may_wait() -> bool {
    STATE.load(Ordering::Relaxed) == 0 && crate::start::has_one_thread()
}

fn arenas_wanted() -> u32 {
    // SAFETY: tells a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    cpus.clamp(1, OTHERS as i64) as u32
}

/// Sets the allocator up, where nobody has. It is not there while that is done, nor before libc knows the environment.
#[cold]
pub(crate) fn set_up() -> bool {
    // SAFETY: tells a number.
    let me = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    if !lode_heap::environment_is_there() {
        return false;
    }
    loop {
        match STATE.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(THERE) => return true,
            Err(FAILED) => return false,
            Err(other) if other == me => return false,
            // SAFETY: gives way to another thread.
            Err(_) => unsafe {
                libc::sched_yield();
            },
        }
    }
    let done = arrange().is_some();
    STATE.store(if done { THERE } else { FAILED }, Ordering::Release);
    done
}

fn arrange() -> Option<()> {
    let settings = Settings::from_environment();
    // (This registers the handlers of forks.) Who has said otherwise already, is right.
    let _ = lode_heap::configure(&settings);
    let Some(Borders { pages, dram, blocks, end }) = lode_heap::reserve() else {
        return do_without();
    };
    BASE.store(pages, Ordering::Relaxed);
    DRAM_FROM.store(dram, Ordering::Relaxed);
    BLOCKS_FROM.store(blocks, Ordering::Relaxed);
    END.store(end, Ordering::Release);
    let below = settings.dram_limit();
    DRAM_BELOW.store(below, Ordering::Relaxed);
    let arenas = arenas_wanted();
    say_options(OPTIONS, arenas);
    crate::start::let_jemalloc_begin();
    let (main, others) =
        if below == 0 { (&hooks::POOL, &hooks::DRAM) } else { (&hooks::DRAM, &hooks::POOL) };
    for arena in 0..arenas {
        set(arena, c"extent_hooks", core::ptr::from_ref(main))?;
        set(arena, c"retain_grow_limit", GROWTH)?;
    }
    let others_count = if below == 0 { 1 } else { arenas };
    for at in 0..others_count {
        let made = create(others)?;
        set(made, c"retain_grow_limit", GROWTH)?;
        if at == 0 {
            OTHER_FIRST.store(made, Ordering::Relaxed);
        }
    }
    OTHER_COUNT.store(others_count, Ordering::Relaxed);
    use_up_foreign();
    lode_heap::count_dram_from(crate::early::most() as u64);
    hooks::STARTING.store(false, Ordering::Release);
    lode_heap::set_allocator(purge_all, decay_all);
    Some(())
}

/// There is no address space for the pool's memory: all of it is what jemalloc maps for itself, in arenas of its own.
fn do_without() -> Option<()> {
    DRAM_BELOW.store(usize::MAX, Ordering::Relaxed);
    say_options(OPTIONS_WITHOUT, arenas_wanted());
    crate::start::let_jemalloc_begin();
    Some(())
}

/// Takes what jemalloc has mapped for itself before it had hooks, and not used: no block is to come from there.
fn use_up_foreign() {
    hooks::CLOSED.store(true, Ordering::Relaxed);
    let flags = je::MALLOCX_ARENA(0) | je::MALLOCX_TCACHE_NONE;
    // Whole pages first, then what is left of pages that are cut already.
    let mut bytes = 256 << 10;
    while bytes > 0 {
        // SAFETY: a size that is more than 0. The blocks stay unused, and so have no pages.
        while !unsafe { je::mallocx(bytes, flags) }.is_null() {}
        bytes = match bytes {
            0..=128 => bytes - 8,
            _ => bytes / 16 * 15 / 8 * 8,
        };
    }
    hooks::CLOSED.store(false, Ordering::Relaxed);
}

/// Tells jemalloc its options; it reads them when it is first called.
fn say_options(options: &[u8], arenas: u32) {
    static TEXT: [AtomicPtr<()>; OPTIONS_ROOM / 8] =
        [const { AtomicPtr::new(core::ptr::null_mut()) }; OPTIONS_ROOM / 8];
    unsafe extern "C" {
        #[link_name = "_rjem_malloc_conf"]
        static mut OPTIONS_PLACE: *const c_char;
    }
    let mut text = [0_u8; OPTIONS_ROOM];
    let tens = (arenas / 10 % 10) as u8;
    let digits = [b'0' + tens, b'0' + (arenas % 10) as u8];
    let digits = if tens == 0 { digits.get(1..) } else { digits.get(..) }.unwrap_or_default();
    let filled = options
        .iter()
        .flat_map(|byte| if *byte == b'%' { digits } else { core::slice::from_ref(byte) });
    text.iter_mut().zip(filled).for_each(|(to, from)| *to = *from);
    for (word, bytes) in TEXT.iter().zip(text.chunks_exact(8)) {
        let bytes = bytes.first_chunk().copied().unwrap_or_default();
        word.store(u64::from_le_bytes(bytes) as usize as *mut (), Ordering::Relaxed);
    }
    // SAFETY: jemalloc's variable, which it reads when it is first called: that is after this, in this thread.
    unsafe { OPTIONS_PLACE = TEXT.as_ptr().cast() };
}

/// A name in jemalloc's tree: `arena.N.WHAT`.
fn arena_name(arena: u32, what: &CStr) -> [u8; 64] {
    let mut name = [0_u8; 64];
    let mut digits = [0_u8; 10];
    let (mut rest, mut count) = (arena, 0);
    loop {
        if let Some(digit) = digits.get_mut(count) {
            *digit = b'0' + (rest % 10) as u8;
        }
        (rest, count) = (rest / 10, count + 1);
        if rest == 0 {
            break;
        }
    }
    let digits = digits.iter().take(count).rev();
    let parts = b"arena.".iter().chain(digits).chain(b".").chain(what.to_bytes());
    name.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
    name
}

fn set<T>(arena: u32, what: &CStr, mut value: T) -> Option<()> {
    let name = arena_name(arena, what);
    let place = (&raw mut value).cast::<c_void>();
    let none = core::ptr::null_mut();
    // SAFETY: the name ends; the value is of the type that it has there, as the callers know.
    let failed = unsafe {
        je::mallctl(name.as_ptr().cast(), none, core::ptr::null_mut(), place, size_of::<T>())
    };
    (failed == 0).then_some(())
}

fn create(hooks: &'static je::extent_hooks_t) -> Option<u32> {
    let mut arena: c_uint = 0;
    let mut bytes = size_of::<c_uint>();
    let mut hooks = core::ptr::from_ref(hooks);
    // SAFETY: the name ends; the places are of the types that it has.
    let failed = unsafe {
        je::mallctl(
            c"arenas.create".as_ptr(),
            (&raw mut arena).cast(),
            &raw mut bytes,
            (&raw mut hooks).cast(),
            size_of_val(&hooks),
        )
    };
    (failed == 0).then_some(arena)
}

/// The number that stands for all arenas.
const ALL: u32 = 4096;

/// (Not where it has nothing: what it sets up for a thread at its first call would be taken from files that are short.)
fn do_all(what: &CStr) {
    if !hooks::GAVE.load(Ordering::Relaxed) {
        return;
    }
    let name = arena_name(ALL, what);
    let none = core::ptr::null_mut::<c_void>();
    // SAFETY: the name ends; it takes and gives nothing.
    unsafe { je::mallctl(name.as_ptr().cast(), none, core::ptr::null_mut(), none, 0) };
}

/// Has jemalloc give up all that it keeps unused.
fn purge_all() {
    do_all(c"purge");
}

/// Has it give up what it has kept for its time.
fn decay_all() {
    do_all(c"decay");
}

/// Has it give up what this thread keeps.
pub(crate) fn flush_thread() {
    let none = core::ptr::null_mut::<c_void>();
    // SAFETY: the name ends; it takes and gives nothing.
    unsafe { je::mallctl(c"thread.tcache.flush".as_ptr(), none, core::ptr::null_mut(), none, 0) };
}
