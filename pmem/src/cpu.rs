//! Which processor a thread runs on, without a call.
//!
//! The kernel keeps the number in each thread's own memory where the C library has asked it to (glibc 2.35 and later do, for
//! restartable sequences): one load, where the vDSO's call takes ten times as long, and the engine asks with every operation.

use core::arch::asm;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Where the kernel keeps the number, in bytes from the thread pointer on.
static NUMBER_AT: AtomicI64 = AtomicI64::new(NOT_ASKED);
const NOT_ASKED: i64 = i64::MIN;
/// The C library knows of no such place.
const NOWHERE: i64 = i64::MAX;
/// The field `cpu_id` of what the kernel and the C library share (`struct rseq`).
const FIELD: i64 = 4;

/// The number of the processor that this thread runs on, or ran on a moment ago; `None` where only the kernel knows.
#[inline]
pub fn cpu() -> Option<usize> {
    match NUMBER_AT.load(Relaxed) {
        NOWHERE => None,
        NOT_ASKED => number(ask()?),
        at => number(at),
    }
}

#[inline(always)]
fn number(at: i64) -> Option<usize> {
    let number: i32;
    // SAFETY: loads four bytes of the area in each thread's static storage that the C library says it has at this offset from the thread
    // pointer, which is the base of `fs` on x86-64.
    unsafe {
        asm!("mov {number:e}, dword ptr fs:[{at}]", number = out(reg) number, at = in(reg) at,
             options(nostack, preserves_flags, readonly));
    }
    // (Negative in a thread that the C library has not registered.)
    usize::try_from(number).ok()
}

/// Asks the C library, which may be an older one, or another.
#[cold]
fn ask() -> Option<i64> {
    let at = match (symbol::<libc::ptrdiff_t>(c"__rseq_offset"), symbol::<u32>(c"__rseq_size")) {
        (Some(offset), Some(1..)) => offset as i64 + FIELD,
        _ => NOWHERE,
    };
    NUMBER_AT.store(at, Relaxed);
    (at != NOWHERE).then_some(at)
}

/// A variable of the C library.
fn symbol<T: Copy>(name: &core::ffi::CStr) -> Option<T> {
    // SAFETY: takes a string that ends in zero, and gives back the address of what has this name, or null.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast::<T>();
    // SAFETY: the two names are those of constants of these types (`sys/rseq.h`), which are set before a program begins.
    (!address.is_null()).then(|| unsafe { address.read() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_may_run_on_one_processor_runs_there() {
        let asked = cpu();
        if asked.is_none() {
            println!("skipped: this C library does not tell where the number is");
            return;
        }
        let mut may: libc::cpu_set_t = unsafe { core::mem::zeroed() };
        let size = size_of_val(&may);
        assert_eq!(unsafe { libc::sched_getaffinity(0, size, &mut may) }, 0);
        for number in
            (0..libc::CPU_SETSIZE as usize).filter(|n| unsafe { libc::CPU_ISSET(*n, &may) })
        {
            let there = std::thread::spawn(move || {
                let mut one: libc::cpu_set_t = unsafe { core::mem::zeroed() };
                unsafe { libc::CPU_SET(number, &mut one) };
                assert_eq!(unsafe { libc::sched_setaffinity(0, size, &one) }, 0);
                cpu()
            });
            assert_eq!(there.join().unwrap(), Some(number));
        }
    }
}
