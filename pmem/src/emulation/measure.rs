//! How fast this machine's memory takes in what is streamed to it.

use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::flush::{LineStore, x86};
use crate::{LINE_BYTES, Line};

/// Bytes a second that one thread streams to main memory, by the best that this CPU has. Measured once in
/// a process, so that all its regions that are to be a part as fast are equally fast.
pub(super) fn streamed_bytes_per_s(line_store: LineStore) -> io::Result<u64> {
    static MEASURED: Mutex<Option<u64>> = Mutex::new(None);
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = *measured {
        return Ok(bytes);
    }
    let bytes = measure(line_store)?;
    *measured = Some(bytes);
    Ok(bytes)
}

fn measure(line_store: LineStore) -> io::Result<u64> {
    const BYTES: usize = 1 << 20;
    const PASSES: usize = 32;
    let mut memory: Vec<Line> = Vec::new();
    memory.try_reserve_exact(BYTES / LINE_BYTES).map_err(|_| ErrorKind::OutOfMemory)?;
    // Stored to once, so that all pages are there.
    memory.resize(BYTES / LINE_BYTES, Line([1; LINE_BYTES]));
    let from = [[2; LINE_BYTES]; 64];
    let passes = (0..PASSES).map(|_| {
        let start = Instant::now();
        for to in memory.chunks_exact_mut(from.len()) {
            // SAFETY: as many aligned lines as there are in `from`, ours alone; the CPU was asked for
            // the instruction.
            unsafe { x86::stream_lines(line_store, to.as_mut_ptr().cast(), &from) };
        }
        x86::fence();
        start.elapsed()
    });
    // The fastest pass was disturbed least.
    let best = passes.min().unwrap_or_default().max(Duration::from_nanos(1));
    Ok((BYTES as f64 / best.as_secs_f64()) as u64)
}
