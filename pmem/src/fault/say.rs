//! Last words: what a SIGBUS in a region means, on standard error.
//!
//! What this file guarantees: all that the signal handler calls here is safe in one. It
//! reads atomics, builds its text on the stack and makes one system call.
// Registers have constant places in the array that the kernel fills.
#![allow(clippy::indexing_slicing)]

use super::{ERROR_CODE_STORE, places};

const DIGITS_MAX: usize = 20;

/// In the handler: says what a fault in a region means.
pub(super) fn what_happened(info: &libc::siginfo_t, context: &libc::ucontext_t) {
    // SAFETY: SIGBUS carries an address when the kernel raised it (si_code > 0).
    let address = unsafe { info.si_addr() } as usize;
    let Some((offset, _)) = places::find(address).filter(|_| info.si_code > 0) else {
        return;
    };
    let is_store = context.uc_mcontext.gregs[libc::REG_ERR as usize] & ERROR_CODE_STORE != 0;
    let mut digits = [0; DIGITS_MAX];
    let mut text = Text { bytes: [0; 256], len: 0 };
    text.put(b"memory of the pool or region at offset ");
    text.put(decimal(offset, &mut digits));
    text.put(if is_store { b" can't be written" } else { b" can't be read" });
    text.put(b": its file was made shorter, its disk is full, or the memory has failed; see to that, and start again\n");
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
}
