//! The ledger: a line for each process that has ended, from which can be told how much of its memory was the pool's.
use core::ffi::CStr;
use core::fmt::{self, Write};

use crate::memory;
use crate::sys;

/// Text in fixed room; what has none is left out.
struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    const fn new() -> Self {
        Self { bytes: [0; N], length: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            room.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Writes this process's line, where a ledger is kept: in one piece, so that lines of many processes don't mix.
pub fn write() {
    let _errno = sys::KeepErrno::new();
    let (settings, stats) = {
        let memory = memory::lock();
        (memory.settings, memory.stats())
    };
    let directory = settings.ledger.bytes();
    if directory.is_empty() {
        return;
    }
    let mut path = Text::<1040>::new();
    path.push(directory);
    path.push(b"/ledger\0");
    let Ok(path) = CStr::from_bytes_until_nul(path.as_bytes()) else {
        return;
    };
    let mut line = Text::<512>::new();
    let _ = write!(line, "{{\"pid\":{},\"program\":\"", sys::pid());
    for byte in sys::program().into_iter().take_while(|byte| *byte != 0) {
        let plain = byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        line.push(&[if plain { byte } else { b'_' }]);
    }
    let _ = writeln!(
        line,
        "\",\"pool_peak\":{},\"pool_touched\":{},\"dram_peak\":{},\"lent\":{},\"returned\":{},\"moved\":{},\"refused\":{}}}",
        stats.held_peak,
        stats.pool_peak,
        stats.dram_peak,
        stats.lent,
        stats.returned,
        stats.moved,
        stats.refused,
    );
    if let Ok(file) = sys::append_to(path) {
        let _ = sys::write(file, line.as_bytes());
        sys::close(file);
    }
}
