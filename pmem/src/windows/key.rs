//! Windows by memory protection keys.
//!
//! A region's pages carry a key; the register PKRU says what the running thread
//! may do with each key. Closed means: it may load and not store, or neither ([`Closed`]).
//!
//! Threads are born with the rights of the thread that made them, so most can
//! load at once. Two kinds can't: threads older than the key, and signal handlers,
//! which the kernel starts with the rights of a new process (not even loads).
//! Rather than have each load look, the first one faults, and [`grant_load`], called
//! by the SIGSEGV handler, puts the right to load into the registers that the thread
//! goes on with. A signal handler that blocks SIGSEGV can't be helped so, and must
//! not touch the region; nor can a system call be (`EFAULT`), but a window, or any
//! load before it, sets the thread right.

use std::arch::asm;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::flush::CpuFeatures;

/// The two bits of a key in PKRU.
const NO_ACCESS: u32 = 1;
const NO_STORE: u32 = 2;
const BOTH: u32 = NO_ACCESS | NO_STORE;

/// The component of PKRU in an XSAVE area.
const XSAVE_PKRU: u32 = 9;

/// The keys of regions that anybody may load from, a bit each.
static OURS: AtomicU32 = AtomicU32::new(0);
/// Where PKRU is in the XSAVE area of a signal frame.
static PKRU_AT: AtomicU32 = AtomicU32::new(0);

/// What a key keeps out of a region outside windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// Stores. Whoever can't load yet is given the right to when it does.
    Stores,
    /// Loads as well.
    StoresAndLoads,
}

/// A protection key of the process, given back when dropped.
#[derive(Debug)]
pub(crate) struct Key {
    number: u32,
    closed: Closed,
}

/// Why a region can't have a key.
#[derive(Debug)]
pub(crate) enum NoKey {
    Unsupported,
    AllInUse,
}

impl Closed {
    fn bits(self) -> u32 {
        match self {
            Self::Stores => NO_STORE,
            Self::StoresAndLoads => BOTH,
        }
    }
}

impl Key {
    /// Takes a free key, closed for this thread. (A number that a region had before may be left open to loads in threads of then: who is
    /// to keep loads out as well is to take its key before the process has regions that come and go.)
    pub(crate) fn allocate(closed: Closed) -> Result<Self, NoKey> {
        if !CpuFeatures::get().protection_keys {
            return Err(NoKey::Unsupported);
        }
        #[allow(unused_unsafe)]
        // SAFETY: a CPU with protection keys has the XSAVE leaf.
        let area = unsafe { std::arch::x86_64::__cpuid_count(0xd, XSAVE_PKRU) };
        PKRU_AT.store(area.ebx, Relaxed);
        // SAFETY: takes two numbers.
        let number = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, closed.bits()) };
        match u32::try_from(number) {
            Ok(number) => {
                if closed == Closed::Stores {
                    OURS.fetch_or(1 << number, Relaxed);
                }
                Ok(Self { number, closed })
            }
            Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSPC) => {
                Err(NoKey::AllInUse)
            }
            Err(_) => Err(NoKey::Unsupported),
        }
    }

    /// The number that system calls know it by.
    pub(crate) fn number(&self) -> core::ffi::c_int {
        self.number as core::ffi::c_int
    }

    /// Puts a mapping under this key; it may be stored to at all where it is writable.
    ///
    /// # Safety
    /// `base` is a mapping of `len` bytes that is ours.
    pub(crate) unsafe fn guard(&self, base: *mut u8, len: usize, writable: bool) -> io::Result<()> {
        let rights = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: only the rights of a mapping of ours change.
        let outcome =
            unsafe { libc::syscall(libc::SYS_pkey_mprotect, base, len, rights, self.number) };
        match outcome {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Lets this thread store. Returns whether it could already.
    #[inline]
    pub(crate) fn open(&self) -> bool {
        let rights = read_pkru();
        let closed = rights & self.bits(BOTH) != 0;
        if closed {
            write_pkru(rights & !self.bits(BOTH));
        }
        !closed
    }

    /// Ends what [`Key::open`] began, which returned `was_open`.
    #[inline]
    pub(crate) fn close(&self, was_open: bool) {
        if !was_open {
            write_pkru(read_pkru() & !self.bits(BOTH) | self.bits(self.closed.bits()));
        }
    }

    #[inline]
    fn bits(&self, which: u32) -> u32 {
        which << (2 * self.number)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        OURS.fetch_and(!(1 << self.number), Relaxed);
        // SAFETY: the key is ours, and no mapping has it any more.
        unsafe {
            libc::syscall(libc::SYS_pkey_free, self.number);
        }
    }
}

#[inline]
fn read_pkru() -> u32 {
    let rights: u32;
    // SAFETY: a Key exists, so the CPU and its system have the register.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _,
             options(nostack, preserves_flags));
    }
    rights
}

/// A barrier to the compiler: stores stay on their side of it.
#[inline]
fn write_pkru(rights: u32) {
    // SAFETY: a Key exists, so the CPU and its system have the register; the rights
    // change only for keys of ours.
    unsafe {
        asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0,
             options(nostack, preserves_flags));
    }
}

/// For the signal handler: lets the interrupted thread load by `key`, if it is a
/// region's.
///
/// # Safety
/// `context` is as the kernel passed it to a signal handler.
pub(crate) unsafe fn grant_load(context: &mut libc::ucontext_t, key: u32) -> bool {
    // What the kernel puts behind the 512 bytes of FXSAVE, see its asm/sigcontext.h.
    const MAGIC_AT: usize = 464;
    const MAGIC: u32 = 0x4650_5853;
    const FEATURES_AT: usize = MAGIC_AT + 8;
    const BYTES_AT: usize = MAGIC_AT + 16;
    const SAVED_AT: usize = 512;
    if key >= u32::BITS || OURS.load(Relaxed) & 1 << key == 0 {
        return false;
    }
    let area = context.uc_mcontext.fpregs.cast::<u8>();
    let pkru_at = PKRU_AT.load(Relaxed) as usize;
    if area.is_null() {
        return false;
    }
    // SAFETY: the area holds at least FXSAVE, and as much more as it says.
    unsafe {
        let magic = area.add(MAGIC_AT).cast::<u32>().read_unaligned();
        let features = area.add(FEATURES_AT).cast::<u64>().read_unaligned();
        let bytes = area.add(BYTES_AT).cast::<u32>().read_unaligned() as usize;
        if magic != MAGIC || features & 1 << XSAVE_PKRU == 0 || pkru_at + 4 > bytes {
            return false;
        }
        let saved = area.add(SAVED_AT).cast::<u64>();
        let pkru = area.add(pkru_at).cast::<u32>();
        // A component that is not saved is in its first state, which for PKRU is 0.
        let rights = match saved.read_unaligned() & 1 << XSAVE_PKRU {
            0 => 0,
            _ => pkru.read_unaligned(),
        };
        if rights & NO_ACCESS << (2 * key) == 0 {
            return false;
        }
        pkru.write_unaligned(rights & !(BOTH << (2 * key)) | NO_STORE << (2 * key));
        saved.write_unaligned(saved.read_unaligned() | 1 << XSAVE_PKRU);
    }
    true
}
