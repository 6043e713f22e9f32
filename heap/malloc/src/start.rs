//! Until the allocator is set up: jemalloc is kept from setting itself up when a program starts, and the handlers of forks are
//! registered then, as if it had.
//!
//! That costs as much as a small program's whole start, and a build or a script is many small programs.
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// jemalloc's number for being set up, at which its constructor leaves it alone.
const SET_UP: u32 = 0;

/// What jemalloc's number was; [`SET_UP`] where it was not changed.
static BEFORE: AtomicU32 = AtomicU32::new(SET_UP);
/// jemalloc has asked for its handlers to be called.
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);
/// It has been told of a fork.
static FORKS: AtomicBool = AtomicBool::new(false);

type Handler = unsafe extern "C" fn();

unsafe extern "C" {
    #[link_name = "_rjem_je_malloc_init_state"]
    static mut JEMALLOC_STATE: u32;
    #[link_name = "_rjem_je_jemalloc_prefork"]
    fn jemalloc_prepare();
    #[link_name = "_rjem_je_jemalloc_postfork_parent"]
    fn jemalloc_parent();
    #[link_name = "_rjem_je_jemalloc_postfork_child"]
    fn jemalloc_child();
    fn __register_atfork(
        prepare: Option<Handler>,
        parent: Option<Handler>,
        child: Option<Handler>,
        object: *const c_void,
    ) -> c_int;
    static __dso_handle: c_void;
}

/// Before jemalloc's own constructor.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static FIRST: extern "C" fn() = at_start;

extern "C" fn at_start() {
    // (Where it is set up by now, what was wanted before was much, and all of this is done.)
    install_fork_handlers();
    // SAFETY: jemalloc's own number, which it looks at when it is called; nobody else runs yet.
    unsafe {
        if JEMALLOC_STATE != SET_UP && !HAS_HANDLERS.load(Ordering::Relaxed) {
            BEFORE.store(JEMALLOC_STATE, Ordering::Relaxed);
            JEMALLOC_STATE = SET_UP;
        }
    }
}

/// Lets jemalloc set itself up at its first call, which is this thread's next one.
pub(crate) fn let_jemalloc_begin() {
    install_fork_handlers();
    let before = BEFORE.swap(SET_UP, Ordering::Relaxed);
    if before != SET_UP {
        // SAFETY: as above; who sets the allocator up is the only one to call jemalloc.
        unsafe { JEMALLOC_STATE = before };
    }
}

/// Registers the handlers of forks, once: `lode-heap`'s, and behind them those for jemalloc (see there for the order).
fn install_fork_handlers() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        lode_heap::install_fork_handlers();
        // SAFETY: the handlers are there as long as this code is.
        unsafe { register(Some(prepare), Some(parent), Some(child)) };
    }
}

unsafe extern "C" fn prepare() {
    let forks = HAS_HANDLERS.load(Ordering::Acquire);
    FORKS.store(forks, Ordering::Relaxed);
    if forks {
        // SAFETY: as jemalloc would have it called.
        unsafe { jemalloc_prepare() };
    }
}

unsafe extern "C" fn parent() {
    if FORKS.load(Ordering::Relaxed) {
        // SAFETY: as jemalloc would have it called.
        unsafe { jemalloc_parent() };
    }
}

unsafe extern "C" fn child() {
    if FORKS.load(Ordering::Relaxed) {
        // SAFETY: as jemalloc would have it called.
        unsafe { jemalloc_child() };
    }
}

/// # Safety
/// As `pthread_atfork`.
unsafe fn register(
    prepare: Option<Handler>,
    parent: Option<Handler>,
    child: Option<Handler>,
) -> c_int {
    // SAFETY: libc's part of `pthread_atfork`; the last is this object's.
    unsafe { __register_atfork(prepare, parent, child, &raw const __dso_handle) }
}

// `pthread_atfork` as this object has it (libc's is a part of each object, too): jemalloc's handlers are called by those above,
// in the place in their order that was theirs when the program started.
core::arch::global_asm!(
    ".globl pthread_atfork",
    ".hidden pthread_atfork",
    ".type pthread_atfork, @function",
    "pthread_atfork:",
    "jmp {to}",
    to = sym pthread_atfork_here,
);

unsafe extern "C" fn pthread_atfork_here(
    prepare: Option<Handler>,
    parent: Option<Handler>,
    child: Option<Handler>,
) -> c_int {
    if prepare.is_some_and(|prepare| core::ptr::fn_addr_eq(prepare, jemalloc_prepare as Handler)) {
        HAS_HANDLERS.store(true, Ordering::Release);
        return 0;
    }
    // SAFETY: as the caller says.
    unsafe { register(prepare, parent, child) }
}

/// Whether libc knows of one thread alone; not where it doesn't say.
pub(crate) fn has_one_thread() -> bool {
    let flag: *const u8;
    // SAFETY: takes the address of a variable of libc's, or null where this libc has none.
    unsafe {
        core::arch::asm!(
            ".weak __libc_single_threaded",
            "mov {}, qword ptr [rip + __libc_single_threaded@GOTPCREL]",
            out(reg) flag,
            options(nostack, preserves_flags, pure, readonly),
        );
    }
    // SAFETY: a variable of libc's, which it may change.
    !flag.is_null() && unsafe { flag.read_volatile() } != 0
}
