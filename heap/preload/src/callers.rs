//! Who calls.
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use lode_malloc::Source;

/// Where libc, this library and the dynamic linker lie: start and end of each.
static LIBC: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
static OWN: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
static LINKER: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

fn is_in([start, end]: &[AtomicUsize; 2], address: usize) -> bool {
    address >= start.load(Ordering::Relaxed) && address < end.load(Ordering::Relaxed)
}

/// Where a block for who calls from an address is to come from.
#[inline]
pub(crate) fn source(caller: usize) -> Source {
    if is_in(&LIBC, caller) || is_in(&LINKER, caller) { Source::Dram } else { Source::BySize }
}

/// Whether who calls from an address is this library itself.
pub(crate) fn is_own(caller: usize) -> bool {
    is_in(&OWN, caller)
}

/// Finds out where they lie.
pub(crate) fn find() {
    // SAFETY: the function looks at what it is handed.
    unsafe { libc::dl_iterate_phdr(Some(look), core::ptr::null_mut()) };
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: libc's description of an object that is loaded.
    let (base, heads) = unsafe {
        let info = &*info;
        (
            info.dlpi_addr as usize,
            core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
        )
    };
    let loaded = heads.iter().filter(|head| head.p_type == libc::PT_LOAD);
    let ends = |head: &libc::Elf64_Phdr| {
        let start = base + head.p_vaddr as usize;
        (start, start + head.p_memsz as usize)
    };
    let start = loaded.clone().map(|head| ends(head).0).min().unwrap_or(0);
    let end = loaded.map(|head| ends(head).1).max().unwrap_or(0);
    // SAFETY: tells a number.
    let linker = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
    let libc = libc::sched_yield as *const () as usize;
    let own = (&raw const OWN) as usize;
    for (place, known) in [(&LIBC, libc), (&LINKER, linker), (&OWN, own)] {
        if (start..end).contains(&known) {
            let [from, to] = place;
            from.store(start, Ordering::Relaxed);
            to.store(end, Ordering::Relaxed);
        }
    }
    0
}
