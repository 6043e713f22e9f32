//! Blocks from before the allocator is there: a program's first ones, for which setting it up would cost more than they do, what setting it
//! up asks for, and what is asked for while the program is being linked.
//!
//! They lie one behind the other; only the last one can be freed or made larger. The others stay.
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// What a program asks for in all before the allocator is set up: of the programs that a build or a script starts, most end before.
/// (Few of them want between this and half a MiB more; of a linker's 6 MiB that would be too much.)
const FIRST: usize = 384 << 10;
/// With room for what setting it up asks for.
const BYTES: usize = FIRST + (64 << 10);
/// In front of each block: its size, a multiple of this.
const HEAD: usize = 16;

#[repr(align(4096))]
struct Room(UnsafeCell<[u8; BYTES]>);
// SAFETY: each block of it is handed out once, until it is freed.
unsafe impl Sync for Room {}

static ROOM: Room = Room(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);
/// So many were used at most before some were freed: behind them are zeros.
static DIRTY: AtomicUsize = AtomicUsize::new(0);

fn base() -> usize {
    ROOM.0.get() as usize
}

/// Bytes that were in use at most.
pub(crate) fn most() -> usize {
    USED.load(Ordering::Relaxed).max(DIRTY.load(Ordering::Relaxed))
}

/// A block within the first `room` bytes; 0 where these are used up.
fn alloc_in(room: usize, bytes: usize, align: usize, zeros: bool) -> usize {
    let Some(bytes) = bytes.max(1).checked_next_multiple_of(HEAD) else { return 0 };
    let found = USED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
        let end = place(used, align)?.checked_add(bytes)?;
        (end - base() <= room).then_some(end - base())
    });
    let Some(at) = found.ok().and_then(|used| place(used, align)) else {
        return 0;
    };
    // SAFETY: the head lies in front of the block, both in the room, and they are nobody else's.
    unsafe {
        ((at - HEAD) as *mut usize).write(bytes);
        if zeros && at - base() < DIRTY.load(Ordering::Acquire) {
            core::ptr::write_bytes(at as *mut u8, 0, bytes);
        }
    }
    at
}

/// One of a program's first blocks; 0 where it has asked for enough.
pub(crate) fn first(bytes: usize, align: usize, zeros: bool) -> usize {
    alloc_in(FIRST, bytes, align, zeros)
}

/// A block for those who set the allocator up; 0 where there is no room.
pub(crate) fn alloc(bytes: usize, align: usize, zeros: bool) -> usize {
    alloc_in(BYTES, bytes, align, zeros)
}

/// Takes a block back, where it is the last one.
pub(crate) fn free(address: usize) {
    let end = address + bytes(address) - base();
    let start = address - HEAD - base();
    if USED.load(Ordering::Relaxed) == end {
        DIRTY.fetch_max(end, Ordering::AcqRel);
        let _ = USED.compare_exchange(end, start, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Makes the block at an address as large as that, where it is the last one or large enough; whether it is then.
pub(crate) fn extend(address: usize, bytes: usize) -> bool {
    let old = self::bytes(address);
    if bytes <= old {
        return true;
    }
    let Some(bytes) = bytes.checked_next_multiple_of(HEAD).filter(|bytes| *bytes <= FIRST) else {
        return false;
    };
    let (is_last, end) = (address + old - base(), address + bytes - base());
    if end > FIRST
        || USED.compare_exchange(is_last, end, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return false;
    }
    // SAFETY: as in `alloc_in`.
    unsafe { ((address - HEAD) as *mut usize).write(bytes) };
    true
}

fn place(used: usize, align: usize) -> Option<usize> {
    (base() + used + HEAD).checked_next_multiple_of(align.max(HEAD))
}

/// Whether an address is that of such a block.
pub(crate) fn has(address: usize) -> bool {
    address.wrapping_sub(base()) < BYTES
}

/// Bytes of the block at an address for which [`has`] says so.
pub(crate) fn bytes(address: usize) -> usize {
    // SAFETY: `alloc` has written it there.
    unsafe { ((address - HEAD) as *const usize).read() }
}
