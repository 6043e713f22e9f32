//! The library's start and end.
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

/// The process that the library was started in, or a child of a fork.
static PROCESS: AtomicU32 = AtomicU32::new(0);

#[used]
#[unsafe(link_section = ".init_array.00102")]
static START: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn start() {
    crate::callers::find();
    crate::maps::start(lode_malloc::Settings::from_environment().map_limit());
    set_process();
    // SAFETY: a function that is there as long as the library is.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

unsafe extern "C" fn in_child() {
    set_process();
}

fn pid() -> u32 {
    // SAFETY: tells a number.
    unsafe { libc::syscall(libc::SYS_getpid) as u32 }
}

fn set_process() {
    PROCESS.store(pid(), Ordering::Relaxed);
}

/// Writes the ledger's line, once.
extern "C" fn end() {
    let me = pid();
    // (A child of vfork, which has its parent's memory, is not the process that started.)
    if PROCESS.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        lode_malloc::write_ledger();
    }
}

fn exit_now(code: c_int) -> ! {
    end();
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// As libc's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(code: c_int) -> ! {
    exit_now(code)
}

/// As libc's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(code: c_int) -> ! {
    exit_now(code)
}
