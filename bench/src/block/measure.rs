//! The loop: threads that read or write for a while, and how much they have done.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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

/// Whose turn it is.
enum Turn {
    /// Nobody's yet.
    NotYet,
    /// The device's of this number, before anything counts.
    Warming(usize),
    /// The same, and it counts.
    Of(usize),
    /// Nobody's any more.
    Over,
}

/// Whose turn it is, as all threads see it, and how many of them have begun to warm a device.
struct Shown {
    turn: AtomicUsize,
    warmed: AtomicUsize,
}

impl Shown {
    fn new(turn: &Turn) -> Self {
        Self { turn: AtomicUsize::new(Self::word(turn)), warmed: AtomicUsize::new(0) }
    }

    fn word(turn: &Turn) -> usize {
        match turn {
            Turn::NotYet => usize::MAX - 1,
            Turn::Warming(number) => 2 * number + 1,
            Turn::Of(number) => 2 * number,
            Turn::Over => usize::MAX,
        }
    }

    fn set(&self, turn: &Turn) {
        self.turn.store(Self::word(turn), Relaxed);
    }

    #[inline]
    fn get(&self) -> Turn {
        match self.turn.load(Relaxed) {
            usize::MAX => Turn::Over,
            word if word == usize::MAX - 1 => Turn::NotYet,
            word if word % 2 == 1 => Turn::Warming(word / 2),
            word => Turn::Of(word / 2),
        }
    }

    /// Has each of so many threads access each of so many devices, before anything counts.
    fn warm(&self, threads: usize, devices: usize) {
        let begin = Instant::now();
        for number in 0..devices {
            self.set(&Turn::Warming(number));
            std::thread::sleep(TURN);
            // (Who fails does not come to the next one.)
            while self.warmed.load(Relaxed) < threads * (number + 1) && begin.elapsed() < WARMING {
                std::thread::sleep(TURN);
            }
        }
    }
}

/// How long one of two has its turn: so short that what other processors do to the cache is done to both.
const TURN: Duration = Duration::from_millis(1);
/// How long is waited at most for all threads to have begun.
const WARMING: Duration = Duration::from_secs(2);

/// Accesses to the device whose turn it is, until it is over: how many to each, and when it began.
fn accesses<const N: usize>(
    devices: [&dyn Blocks; N],
    (device_bytes, cell, thread): (u64, &Cell, usize),
    (barrier, turn): (&Barrier, &Shown),
) -> io::Result<([u64; N], Instant)> {
    let mut places = Places::new(cell, device_bytes, thread);
    // (Not zeros: what was never written is all one page of the kernel's, which is always in the cache.)
    let mut room = vec![thread as u8 | 1; cell.bytes as usize + PAGE];
    let buffer = page_aligned(&mut room);
    let batch = (BYTES_PER_LOOK / cell.bytes).max(1);
    barrier.wait();
    // (Many threads are let go before the conductor runs again.)
    while matches!(turn.get(), Turn::NotYet) {
        std::thread::yield_now();
    }
    let begin = Instant::now();
    let mut ops = [0; N];
    let mut warmed = 0;
    loop {
        let (number, counts) = match turn.get() {
            Turn::Of(number) => (number, true),
            Turn::Warming(number) => (number, false),
            Turn::NotYet | Turn::Over => return Ok((ops, begin)),
        };
        let (Some(device), Some(ops)) = (devices.get(number), ops.get_mut(number)) else {
            return Err(io::Error::other("a turn of no device"));
        };
        for _ in 0..batch {
            let at = places.next();
            match cell.writes {
                true => device.write(at, buffer)?,
                false => device.read(at, buffer)?,
            }
        }
        if counts {
            *ops += batch;
        } else if warmed == number {
            warmed += 1;
            turn.warmed.fetch_add(1, Relaxed);
        }
    }
}

/// Threads that access devices, while `conduct` says whose turn it is: how often they did, and when the first of them began.
fn threads<const N: usize>(
    devices: [&dyn Blocks; N],
    device_bytes: u64,
    cell: &Cell,
    conduct: impl FnOnce(&Shown),
) -> io::Result<([u64; N], Option<Instant>)> {
    let (barrier, turn) = (Barrier::new(cell.depth + 1), Shown::new(&Turn::NotYet));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cell.depth)
            .map(|thread| {
                let (barrier, turn) = (&barrier, &turn);
                let what = (device_bytes, cell, thread);
                scope.spawn(move || accesses(devices, what, (barrier, turn)))
            })
            .collect();
        barrier.wait();
        conduct(&turn);
        turn.set(&Turn::Over);
        let (mut ops, mut first) = ([0; N], None);
        for thread in threads {
            let died = |_| io::Error::other("a thread panicked");
            let (of_thread, begin) = thread.join().map_err(died)??;
            ops.iter_mut().zip(of_thread).for_each(|(ops, more)| *ops += more);
            first = Some(first.map_or(begin, |first: Instant| first.min(begin)));
        }
        Ok((ops, first))
    })
}

fn found(ops: u64, taken: Duration, cell: &Cell) -> Round {
    let ops_per_s = ops as f64 / taken.as_secs_f64().max(1e-9);
    Round { ns_per_op: cell.depth as f64 * 1e9 / ops_per_s.max(1e-9), ops_per_s }
}

/// Does it for so long. What is deferred is made durable at the end, and counts.
pub(super) fn round(
    device: &dyn Blocks,
    device_bytes: u64,
    cell: &Cell,
    time: Duration,
) -> io::Result<Round> {
    let ([ops], first) = threads([device], device_bytes, cell, |turn| {
        turn.set(&Turn::Of(0));
        std::thread::sleep(time);
    })?;
    if cell.writes {
        device.flush()?;
    }
    Ok(found(ops, first.map_or(Duration::ZERO, |first| first.elapsed()), cell))
}

/// Reads two devices for about so long each, in short turns: each counts by the time that it had, from when all threads have read both.
pub(super) fn round_of_two(
    devices: [&dyn Blocks; 2],
    device_bytes: u64,
    cell: &Cell,
    time: Duration,
) -> io::Result<[Round; 2]> {
    let mut taken = [Duration::ZERO; 2];
    let (ops, _) = threads(devices, device_bytes, cell, |turn| {
        turn.warm(cell.depth, devices.len());
        let mut begin = Instant::now();
        while taken.iter().sum::<Duration>() < 2 * time {
            for (number, taken) in taken.iter_mut().enumerate() {
                turn.set(&Turn::Of(number));
                std::thread::sleep(TURN);
                let now = Instant::now();
                *taken += now - begin;
                begin = now;
            }
        }
    })?;
    let ([first, second], [of_first, of_second]) = (ops, taken);
    Ok([found(first, of_first, cell), found(second, of_second, cell)])
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

    /// Takes so long for each access.
    struct Slow(Duration);

    impl Blocks for Slow {
        fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            let begin = Instant::now();
            while begin.elapsed() < self.0 {}
            Ok(())
        }

        fn write(&self, at: u64, _: &[u8]) -> io::Result<()> {
            self.read(at, &mut [])
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// (Beside other programs a turn may be mostly theirs: the median of seven rounds, and far from the one that a common rate is.)
    #[test]
    fn of_two_devices_in_turns_each_has_its_own_rate() {
        let one = Slow(Duration::from_micros(2));
        let other = Slow(Duration::from_micros(8));
        let time = Duration::from_millis(40);
        for depth in [1, 8] {
            let cell = Cell { writes: false, order: Order::Random, bytes: 4096, depth };
            let alone = round(&one, 1 << 20, &cell, time).unwrap();
            assert!((1e3..1e6).contains(&alone.ns_per_op), "depth {depth}: {alone:?}");
            let mut ratios = [(); 7].map(|()| {
                let [one, other] = round_of_two([&one, &other], 1 << 20, &cell, time).unwrap();
                other.ns_per_op / one.ns_per_op
            });
            ratios.sort_unstable_by(f64::total_cmp);
            assert!((2.0..8.0).contains(&ratios[3]), "depth {depth}: {ratios:?}");
        }
    }

    /// Takes long for the first access.
    struct Cold(AtomicUsize, Slow);

    impl Blocks for Cold {
        fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
            if self.0.fetch_add(1, Relaxed) == 0 {
                std::thread::sleep(Duration::from_millis(300));
            }
            self.1.read(at, into)
        }

        fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
            self.1.write(at, bytes)
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// (Beside other programs a round may be all theirs: one that is not has to be right.)
    #[test]
    fn what_a_device_takes_to_get_going_is_no_part_of_its_turns() {
        let (slow, time) = (Duration::from_micros(2), Duration::from_millis(20));
        let cell = Cell { writes: false, order: Order::Random, bytes: 4096, depth: 1 };
        let is_right = |first| {
            let (cold, other) = (Cold(AtomicUsize::new(0), Slow(slow)), Slow(slow));
            let devices: [&dyn Blocks; 2] = if first { [&cold, &other] } else { [&other, &cold] };
            // (All turns together are over long before the first access would be.)
            let rounds = round_of_two(devices, 1 << 20, &cell, time).unwrap();
            rounds.iter().all(|round| (1e3..1e6).contains(&round.ns_per_op))
        };
        for first in [true, false] {
            assert!((0..20).any(|_| is_right(first)), "first: {first}");
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
