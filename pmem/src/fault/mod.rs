//! Loads that survive bad memory, by signal handlers with a fix-up.
//!
//! What this file guarantees: a load made by [`load`](mod@load) from memory that
//! raises SIGBUS (poison; a file cut short behind the mapping) ends with an error,
//! not with a signal. A store there is done again after the page has been mapped anew (`bad`); one to what was
//! cut off the file of a device of blocks goes nowhere, and its caller is told (`cut`), as does one to a page of it that the file system has no space for (`full`). A load by a thread whose rights to a region's protection key
//! are still those it was born with is given the right to load and repeated. Word of bad memory in a region that nobody is using just then is no reason to end. A store to a view that
//! is protected waits until that is answered (`stores`). Any
//! other fault, stray stores above all, goes to whoever handled the signal before,
//! and kills the process if nobody did. Of a SIGBUS in a region that nothing helps against standard error is told.
//!
//! The handlers belong to the process. They are installed with the first region
//! that needs them and stay.
// Registers have constant places in the array that the kernel fills.
#![allow(clippy::indexing_slicing)]

pub(crate) mod bad;
pub(crate) mod compared;
pub(crate) mod cut;
mod full;
#[cfg(feature = "inject")]
mod inject;
pub(crate) mod load;
pub(crate) mod places;
mod say;
pub(crate) mod stores;

use std::ffi::c_int;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::windows::key;

/// A signal that a region needs handled.
#[derive(Clone, Copy)]
pub(crate) enum Handled {
    /// Memory errors: every region.
    Bus,
    /// Missing rights to a protection key, and stores that wait: regions that have one, views that are protected.
    Segv,
}

static BEFORE_BUS: OnceLock<libc::sigaction> = OnceLock::new();
static BEFORE_SEGV: OnceLock<libc::sigaction> = OnceLock::new();

const SEGV_PKUERR: c_int = 4;
const BUS_ADRERR: c_int = 2;
const BUS_MCEERR_AR: c_int = 4;
const BUS_MCEERR_AO: c_int = 5;
/// In the page fault error code: the access was a store.
const ERROR_CODE_STORE: i64 = 1 << 1;

/// Sees to it that the signal is handled. Cheap after the first time.
pub(crate) fn install(which: Handled) -> io::Result<()> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let (signal, before) = match which {
        Handled::Bus => (libc::SIGBUS, &BEFORE_BUS),
        Handled::Segv => (libc::SIGSEGV, &BEFORE_SEGV),
    };
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if before.get().is_some() {
        return Ok(());
    }
    // The old handler is remembered before ours can run and ask for it.
    // SAFETY: a zeroed sigaction is a valid value, and only asked for here.
    let old = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut old) != 0 {
            return Err(io::Error::last_os_error());
        }
        old
    };
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, touches nothing
    // but its arguments and atomics, and lives as long as the process.
    unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_fault as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut ours.sa_mask);
        before.get_or_init(|| old);
        if libc::sigaction(signal, &ours, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the thread's own; what was interrupted may be about to look at it.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes valid pointers with SA_SIGINFO.
    let handled = unsafe {
        match signal {
            libc::SIGBUS => {
                is_early(&*info) || end_load(&*info, &mut *context) || do_again(&*info, &*context)
            }
            libc::SIGSEGV => grant_load(&*info, context) || stores::wait(&*info, &*context),
            _ => false,
        }
    };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if !handled {
        if signal == libc::SIGBUS {
            // SAFETY: the kernel passes valid pointers with SA_SIGINFO.
            unsafe { say::what_happened(&*info, &*context) };
        }
        // SAFETY: the same arguments, passed on.
        unsafe { pass_on(signal, info, context) };
    }
}

/// Ends the load that was interrupted with an error, if it was one of ours.
fn end_load(info: &libc::siginfo_t, context: &mut libc::ucontext_t) -> bool {
    // SAFETY: SIGBUS carries an address when the kernel raised it (si_code > 0).
    let (address, unit) = unsafe { (info.si_addr() as u64, error_unit(info)) };
    info.si_code > 0 && load::end_with_error(context, address, unit)
}

/// Sees to it that the store that was interrupted can be done, if it is one to a region. (A line that is written back
/// is a load to the processor.)
fn do_again(info: &libc::siginfo_t, context: &libc::ucontext_t) -> bool {
    let is_store = context.uc_mcontext.gregs[libc::REG_ERR as usize] & ERROR_CODE_STORE != 0;
    let is_memory = [BUS_ADRERR, BUS_MCEERR_AR].contains(&info.si_code);
    let is_poison = info.si_code == BUS_MCEERR_AR;
    // SAFETY: these codes carry an address.
    is_memory && bad::renew(unsafe { info.si_addr() } as usize, is_store, is_poison)
}

/// Whether the kernel tells of memory of a region that has gone bad, and nobody was about to use it: another process met it, or a
/// patrol of the memory did. Who uses it later is told by a signal of his own; what it interrupts has not failed, not even a load of ours.
fn is_early(info: &libc::siginfo_t) -> bool {
    // SAFETY: this code carries an address.
    info.si_code == BUS_MCEERR_AO && places::find(unsafe { info.si_addr() } as usize).is_some()
}

/// Bytes of the naturally aligned block around the address that are bad.
///
/// # Safety
/// `info` is of a SIGBUS.
unsafe fn error_unit(info: &libc::siginfo_t) -> u64 {
    const LSB_AT: usize = 24;
    if info.si_code != BUS_MCEERR_AR {
        return 1;
    }
    // SAFETY: this code carries a 16-bit log2 there, well inside the struct.
    let log2 = unsafe { std::ptr::from_ref(info).cast::<u8>().add(LSB_AT).cast::<u16>().read() };
    1u64.checked_shl(u32::from(log2)).unwrap_or(1)
}

/// Gives the interrupted thread the right to load by a key of ours, if that is
/// what it lacked.
///
/// # Safety
/// `info` and `context` are as the kernel passes them.
unsafe fn grant_load(info: &libc::siginfo_t, context: *mut libc::ucontext_t) -> bool {
    const KEY_AT: usize = 32;
    if info.si_code != SEGV_PKUERR {
        return false;
    }
    // SAFETY: this code carries the key as 32 bits there, well inside the struct.
    let key = unsafe { std::ptr::from_ref(info).cast::<u8>().add(KEY_AT).cast::<u32>().read() };
    // SAFETY: as the caller promises.
    let error_code = unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] };
    // SAFETY: as the caller promises.
    error_code & ERROR_CODE_STORE == 0 && unsafe { key::grant_load(&mut *context, key) }
}

/// Does what would have been done without our handler.
///
/// # Safety
/// The arguments are as the kernel passes them.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let before = match signal {
        libc::SIGBUS => &BEFORE_BUS,
        _ => &BEFORE_SEGV,
    };
    match before.get() {
        Some(old) if old.sa_sigaction > libc::SIG_IGN => {
            // SAFETY: whoever installed this handler gave it the signature its flags say.
            unsafe {
                if old.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::ucontext_t) =
                        std::mem::transmute(old.sa_sigaction);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = std::mem::transmute(old.sa_sigaction);
                    handler(signal);
                }
            }
        }
        // The default is death. The faulting instruction runs again without us; a
        // signal that somebody sent has to be sent again. (A fault can't be ignored.)
        _ => {
            // SAFETY: a zeroed sigaction asks for the default action.
            unsafe {
                let sent = (*info).si_code <= 0;
                if sent && before.get().is_some_and(|old| old.sa_sigaction == libc::SIG_IGN) {
                    return;
                }
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &default, std::ptr::null_mut());
                if sent {
                    libc::raise(signal);
                }
            }
        }
    }
}
