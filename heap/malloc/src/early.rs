//! Blocks from before the allocator is there: what setting it up asks for, and what is asked for while the program is
//! being linked. They are never used again.
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

const BYTES: usize = 512 << 10;
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

/// A block, of zeros; 0 where there is no room.
pub(crate) fn alloc(bytes: usize, align: usize) -> usize {
    let found = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        let end = place(used, align)?.checked_add(bytes)?;
        (end - base() <= BYTES).then_some(end - base())
    });
    let Some(at) = found.ok().and_then(|used| place(used, align)) else {
        return 0;
    };
    // SAFETY: the head lies in front of the block, in the room, and is nobody else's.
    unsafe { ((at - HEAD) as *mut usize).write(bytes) };
    at
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
