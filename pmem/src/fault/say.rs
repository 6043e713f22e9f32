//! Last words: what a SIGBUS in a region means, on standard error.
//!
//! What this file guarantees: all that the signal handler calls here is safe in one. It
//! reads atomics, builds its text on the stack and makes one system call.
// Registers have constant places in the array that the kernel fills.
#![allow(clippy::indexing_slicing)]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::ERROR_CODE_STORE;

/// Regions that are remembered; of more nothing is said.
const REGIONS_MAX: usize = 64;
const DIGITS_MAX: usize = 20;

/// Where a region is mapped. A free place has the length 0.
struct Place {
    base: AtomicUsize,
    len: AtomicUsize,
}

static PLACES: [Place; REGIONS_MAX] =
    [const { Place { base: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; REGIONS_MAX];

/// Remembers that a region lies at `base`.
pub(crate) fn mapped(base: usize, len: usize) {
    for place in &PLACES {
        // Taken first, by a length that no address is in while the base is not right.
        if place.base.compare_exchange(0, base, SeqCst, SeqCst).is_ok() {
            place.len.store(len, SeqCst);
            return;
        }
    }
}

/// Forgets the region at `base`, before it is unmapped.
pub(crate) fn unmapped(base: usize) {
    for place in &PLACES {
        if place.base.load(SeqCst) == base {
            place.len.store(0, SeqCst);
            place.base.store(0, SeqCst);
            return;
        }
    }
}

/// Where in which region an address lies, as an offset in bytes.
fn offset_of(address: usize) -> Option<usize> {
    PLACES.iter().find_map(|place| {
        let (base, len) = (place.base.load(SeqCst), place.len.load(SeqCst));
        address.checked_sub(base).filter(|offset| *offset < len)
    })
}

/// In the handler: says what a fault in a region means.
pub(super) fn what_happened(info: &libc::siginfo_t, context: &libc::ucontext_t) {
    // SAFETY: SIGBUS carries an address when the kernel raised it (si_code > 0).
    let address = unsafe { info.si_addr() } as usize;
    let Some(offset) = offset_of(address).filter(|_| info.si_code > 0) else {
        return;
    };
    let is_store = context.uc_mcontext.gregs[libc::REG_ERR as usize] & ERROR_CODE_STORE != 0;
    let mut digits = [0; DIGITS_MAX];
    let mut text = Text { bytes: [0; 256], len: 0 };
    text.put(b"pool memory at offset ");
    text.put(decimal(offset, &mut digits));
    text.put(if is_store { b" can't be written" } else { b" can't be read" });
    text.put(b": the file was truncated, its disk is full, or the memory failed\n");
    // SAFETY: writes initialized bytes of the stack. Nobody is left to tell if it fails.
    unsafe { libc::write(libc::STDERR_FILENO, text.bytes.as_ptr().cast(), text.len) };
}

/// A line of text on the stack; what does not fit is left out.
struct Text {
    bytes: [u8; 256],
    len: usize,
}

impl Text {
    fn put(&mut self, more: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.len).zip(more) {
            *to = *from;
            self.len += 1;
        }
    }
}

/// A number in decimal digits.
fn decimal(number: usize, digits: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut rest = number;
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        used += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    digits.get(DIGITS_MAX - used..).unwrap_or(&[])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_whole() {
        for number in [0, 7, 10, 4096, usize::MAX] {
            let mut digits = [0; DIGITS_MAX];
            assert_eq!(decimal(number, &mut digits), number.to_string().as_bytes());
        }
    }

    #[test]
    fn addresses_are_found_while_they_are_mapped() {
        let base = usize::MAX / 2;
        mapped(base, 100);
        assert_eq!((offset_of(base), offset_of(base + 99)), (Some(0), Some(99)));
        assert_eq!((offset_of(base - 1), offset_of(base + 100)), (None, None));
        unmapped(base);
        assert_eq!(offset_of(base), None);
    }
}
