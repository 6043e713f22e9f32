//! Blocks from before the allocator is there: a program's first ones, for which setting it up would cost more than they do, what setting it
//! up asks for, and what is asked for while the program is being linked. They are never used again.
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// What a program asks for in all before the allocator is set up: half of the programs that a build or a script starts end
/// before.
pub(crate) const FIRST: usize = 512 << 10;
/// With room for what setting it up asks for.
const BYTES: usize = FIRST + (64 << 10);
/// In front of each block: its size.
const HEAD: usize = 16;

#[repr(align(4096))]
struct Room(UnsafeCell<[u8; BYTES]>);
// SAFETY: each block of it is handed out once.
unsafe impl Sync for Room {}

static ROOM: Room = Room(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

fn base() -> usize {
    ROOM.0.get() as usize
}

/// Bytes that were handed out.
pub(crate) fn used() -> usize {
    USED.load(Ordering::Relaxed)
}

/// A block, of zeros, within the first `room` bytes; 0 where these are used up.
fn alloc_in(room: usize, bytes: usize, align: usize) -> usize {
    let found = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        let end = place(used, align)?.checked_add(bytes)?;
        (end - base() <= room).then_some(end - base())
    });
    let Some(at) = found.ok().and_then(|used| place(used, align)) else {
        return 0;
    };
    // SAFETY: the head lies in front of the block, in the room, and is nobody else's.
    unsafe { ((at - HEAD) as *mut usize).write(bytes) };
    at
}

/// One of a program's first blocks, of zeros; 0 where it has asked for enough.
pub(crate) fn first(bytes: usize, align: usize) -> usize {
    alloc_in(FIRST, bytes, align)
}

/// A block for those who set the allocator up, of zeros; 0 where there is no room.
pub(crate) fn alloc(bytes: usize, align: usize) -> usize {
    alloc_in(BYTES, bytes, align)
}

/// Makes the block at an address larger, where it is the last one; whether it is as large then.
pub(crate) fn extend(address: usize, bytes: usize) -> bool {
    let old = self::bytes(address);
    if bytes <= old {
        return true;
    }
    let Some(end) = address.checked_add(bytes).map(|end| end - base()).filter(|end| *end <= FIRST)
    else {
        return false;
    };
    let is_last = address + old - base();
    if USED.compare_exchange(is_last, end, Ordering::Relaxed, Ordering::Relaxed).is_err() {
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
