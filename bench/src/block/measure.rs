//! The loop: threads that read or write for a while, and how much they have done.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::cell::{Cell, Order};
use super::subject::Blocks;
use crate::random::Random;

/// Of buffers' boundaries.
const PAGE: usize = 4096;
/// Looks at the clock, once in so many bytes.
const BYTES_PER_LOOK: u64 = 64 << 10;

/// What a round has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// How long an access took its thread.
    pub(super) ns_per_op: f64,
    /// Accesses a second, of all threads.
    pub(super) ops_per_s: f64,
}

/// One thread's places.
struct Places {
    order: Order,
    bytes: u64,
    /// The part of the device that is its own, where the order is its own.
    from: u64,
    len: u64,
    next: u64,
    random: Random,
}

impl Places {
    fn new(cell: &Cell, device_bytes: u64, thread: usize) -> Self {
        let places = device_bytes / cell.bytes;
        let (from, len) = match cell.order {
            Order::Random => (0, places),
            Order::Sequential => {
                let len = (places / cell.depth as u64).max(1);
                (thread as u64 * len % places, len)
            }
        };
        let random = Random::new(thread as u64);
        Self { order: cell.order, bytes: cell.bytes, from, len, next: 0, random }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        let place = match self.order {
            Order::Random => self.random.below(self.len),
            Order::Sequential => {
                self.next = (self.next + 1) % self.len;
                self.from + self.next
            }
        };
        place * self.bytes
    }
}

/// All of `room` but [`PAGE`] bytes, from a boundary of pages on: so begin the buffers of databases and virtual machines, and where
/// one begins otherwise a copy takes longer by an amount that malloc decides.
fn page_aligned(room: &mut [u8]) -> &mut [u8] {
    let (skip, len) = (room.as_ptr().align_offset(PAGE) % PAGE, room.len().saturating_sub(PAGE));
    room.get_mut(skip..skip + len).unwrap_or_default()
}

/// Does it for so long. What is deferred is made durable at the end, and counts.
pub(super) fn round(
    device: &dyn Blocks,
    device_bytes: u64,
    cell: &Cell,
    time: Duration,
) -> io::Result<Round> {
    let (barrier, is_over) = (Barrier::new(cell.depth + 1), AtomicBool::new(false));
    let (ops, taken) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cell.depth)
            .map(|thread| {
                let (barrier, is_over) = (&barrier, &is_over);
                scope.spawn(move || {
                    let mut places = Places::new(cell, device_bytes, thread);
                    let mut room = vec![thread as u8; cell.bytes as usize + PAGE];
                    let buffer = page_aligned(&mut room);
                    let batch = (BYTES_PER_LOOK / cell.bytes).max(1);
                    barrier.wait();
                    let begin = Instant::now();
                    let mut ops = 0;
                    while !is_over.load(Relaxed) {
                        for _ in 0..batch {
                            let at = places.next();
                            match cell.writes {
                                true => device.write(at, buffer)?,
                                false => device.read(at, buffer)?,
                            }
                        }
                        ops += batch;
                    }
                    Ok::<(u64, Instant), io::Error>((ops, begin))
                })
            })
            .collect();
        barrier.wait();
        std::thread::sleep(time);
        is_over.store(true, Relaxed);
        // (This thread may have begun later than those that it has let go.)
        let (mut ops, mut first) = (0, None);
        for thread in threads {
            let died = |_| io::Error::other("a thread panicked");
            let (of_thread, begin) = thread.join().map_err(died)??;
            ops += of_thread;
            first = Some(first.map_or(begin, |first: Instant| first.min(begin)));
        }
        if cell.writes {
            device.flush()?;
        }
        Ok::<_, io::Error>((ops, first.map_or(Duration::ZERO, |first| first.elapsed())))
    })?;
    let ops_per_s = ops as f64 / taken.as_secs_f64().max(1e-9);
    Ok(Round { ns_per_op: cell.depth as f64 * 1e9 / ops_per_s.max(1e-9), ops_per_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_page_and_has_all_its_bytes() {
        for len in [512, 4096, 256 << 10] {
            let mut room = vec![0; len + PAGE];
            let buffer = page_aligned(&mut room);
            assert!(buffer.len() == len && buffer.as_ptr().addr().is_multiple_of(PAGE));
        }
    }

    #[test]
    fn places_are_whole_accesses_inside_the_device() {
        for cell in Cell::all() {
            let bytes = 64 << 20;
            let mut seen = Vec::new();
            for thread in [0, cell.depth - 1] {
                let mut places = Places::new(&cell, bytes, thread);
                for _ in 0..1000 {
                    let at = places.next();
                    assert!(
                        at.is_multiple_of(cell.bytes) && at + cell.bytes <= bytes,
                        "{cell:?} {at}"
                    );
                    seen.push(at);
                }
            }
            seen.sort_unstable();
            seen.dedup();
            assert!(seen.len() > 1, "{cell:?}");
        }
    }
}
