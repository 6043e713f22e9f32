//! Every byte that a window streams, or stores and flushes, has left the cache by
//! the next fence, at every alignment and length.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::sync::Mutex;

use common::noise;
use lode_pmem::{Counters, Door, LINE_BYTES, Line, MediaError, Medium};

const BYTES: usize = 512;

/// A medium that keeps apart what is in the cache, on its way, and durable.
struct Recorder {
    state: Mutex<State>,
}

struct State {
    /// What loads see.
    visible: Vec<u8>,
    /// Per line: stored through the cache, and not written back since.
    cached: Vec<bool>,
    /// Bytes streamed, or in lines written back, since the last fence.
    on_their_way: Vec<Option<u8>>,
    durable: Vec<u8>,
    line_stores: usize,
    word_streams: usize,
    write_backs: usize,
}

impl Recorder {
    fn new(old: &[u8]) -> Self {
        Self {
            state: Mutex::new(State {
                visible: old.to_vec(),
                cached: vec![false; old.len() / LINE_BYTES],
                on_their_way: vec![None; old.len()],
                durable: old.to_vec(),
                line_stores: 0,
                word_streams: 0,
                write_backs: 0,
            }),
        }
    }
}

impl State {
    fn store(&mut self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.visible[at..at + bytes.len()].copy_from_slice(bytes);
        self.cached[at / LINE_BYTES] = true;
    }

    fn stream(&mut self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.visible[at..at + bytes.len()].copy_from_slice(bytes);
        for (i, &byte) in bytes.iter().enumerate() {
            self.on_their_way[at + i] = Some(byte);
        }
    }
}

impl Medium for Recorder {
    type Window = ();
    fn bytes(&self) -> u64 {
        BYTES as u64
    }
    fn open(&self) {}
    fn close(&self, _: &mut ()) {}
    fn load_word(&self, at: u64) -> Result<u64, MediaError> {
        let mut word = [0; 8];
        self.load(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let state = self.state.lock().unwrap();
        into.copy_from_slice(&state.visible[at as usize..at as usize + into.len()]);
        Ok(())
    }
    fn store_word(&self, _: &mut (), at: u64, value: u64) {
        assert_eq!(at % 8, 0);
        self.state.lock().unwrap().store(at, &value.to_le_bytes());
    }
    fn store_bytes(&self, _: &mut (), at: u64, bytes: &[u8]) {
        assert!((1..8).contains(&bytes.len()) && at % 8 + bytes.len() as u64 <= 8);
        self.state.lock().unwrap().store(at, bytes);
    }
    fn store_line(&self, _: &mut (), at: u64, line: &Line) {
        assert_eq!(at % 64, 0);
        let mut state = self.state.lock().unwrap();
        state.line_stores += 1;
        state.stream(at, &line.0);
    }
    fn stream_word(&self, _: &mut (), at: u64, value: u64) {
        assert_eq!(at % 8, 0);
        let mut state = self.state.lock().unwrap();
        state.word_streams += 1;
        state.stream(at, &value.to_le_bytes());
    }
    fn write_back(&self, _: &mut (), at: u64) {
        let mut state = self.state.lock().unwrap();
        state.write_backs += 1;
        let line = at as usize / LINE_BYTES;
        if state.cached[line] {
            state.cached[line] = false;
            for at in line * LINE_BYTES..(line + 1) * LINE_BYTES {
                state.on_their_way[at] = Some(state.visible[at]);
            }
        }
    }
    fn fence(&self) -> Result<(), MediaError> {
        let mut state = self.state.lock().unwrap();
        for at in 0..BYTES {
            if let Some(byte) = state.on_their_way[at].take() {
                state.durable[at] = byte;
            }
        }
        Ok(())
    }
}

/// Checks one operation that writes `new` at `at`: whole, nothing else, durable.
fn check(at: usize, new: &[u8], write: impl Fn(&Door<Recorder>, &Counters)) -> State {
    let old = noise(BYTES, 1);
    let mut expected = old.clone();
    expected[at..at + new.len()].copy_from_slice(new);
    let door = Door::new(Recorder::new(&old));
    let counters = Counters::new();
    write(&door, &counters);
    door.fence(&counters).unwrap();
    let recorder = door.medium();
    let state = std::mem::replace(
        &mut *recorder.state.lock().unwrap(),
        State {
            visible: Vec::new(),
            cached: Vec::new(),
            on_their_way: Vec::new(),
            durable: Vec::new(),
            line_stores: 0,
            word_streams: 0,
            write_backs: 0,
        },
    );
    let len = new.len();
    assert_eq!(state.visible, expected, "visible, {len} bytes at {at}");
    assert_eq!(state.durable, expected, "durable, {len} bytes at {at}");
    state
}

fn everywhere(test: impl Fn(usize, usize)) {
    for at in 64..128 {
        for len in 0..=200 {
            test(at, len);
        }
    }
}

#[test]
fn streamed_bytes() {
    everywhere(|at, len| {
        let new = noise(len, 2);
        let state = check(at, &new, |door, counters| {
            let mut window = door.window(len as u64, counters);
            window.copy_nt(at as u64, &new);
            drop(window);
            assert_eq!(counters.read().streamed_bytes, len as u64);
        });
        // Whole lines go as lines, and at most an edge on either side of each word run.
        let whole_lines = (at + len).saturating_sub(at.next_multiple_of(64)) / 64;
        assert_eq!(state.line_stores, whole_lines);
        assert!(state.write_backs <= 2 && state.word_streams <= 14);
    });
}

#[test]
fn streamed_zeros() {
    everywhere(|at, len| {
        check(at, &vec![0; len], |door, counters| {
            let mut window = door.window(len as u64, counters);
            window.zero_nt(at as u64, len as u64);
        });
    });
}

#[test]
fn stored_and_flushed_bytes() {
    everywhere(|at, len| {
        let new = noise(len, 3);
        check(at, &new, |door, counters| {
            let mut window = door.window(len as u64, counters);
            window.store(at as u64, &new);
            window.flush(at as u64, len as u64);
        });
    });
}

#[test]
fn stored_words_and_lines() {
    for word in 0..BYTES / 8 {
        let new = noise(8, word as u64);
        let value = u64::from_le_bytes(new.clone().try_into().unwrap());
        check(word * 8, &new, |door, counters| {
            door.window(8, counters).store_word(word as u64 * 8, value);
        });
    }
    for line in 0..BYTES / 64 {
        let new = noise(64, line as u64);
        check(line * 64, &new, |door, counters| {
            let line_bytes = Line(new.clone().try_into().unwrap());
            door.window(64, counters).store_line(line as u64 * 64, &line_bytes);
        });
    }
}

#[test]
fn metadata_is_durable_with_its_twin_and_data_has_none() {
    let apart = BYTES as u64 / 2;
    let durable = |store: &dyn Fn(&mut lode_pmem::Window<'_, Recorder>)| {
        let mut door = Door::new(Recorder::new(&[0; BYTES]));
        door.set_twins(apart);
        let counters = Counters::new();
        store(&mut door.window(64, &counters));
        door.fence(&counters).unwrap();
        let durable = door.medium().state.lock().unwrap().durable.clone();
        (durable, counters.read().lines)
    };
    let halves = |bytes: &[u8]| {
        let (first, second) = bytes.split_at(apart as usize);
        assert_eq!(first, second);
        first.iter().filter(|&&byte| byte != 0).count()
    };
    for at in [64, apart + 64] {
        let (bytes, lines) = durable(&|window| window.store_line(at, &Line([7; 64])));
        assert_eq!((halves(&bytes), lines), (64, 2));
        let (bytes, lines) = durable(&|window| window.store_word(at, u64::MAX));
        assert_eq!((halves(&bytes), lines), (8, 2));
    }
    let (bytes, _) = durable(&|window| window.copy_nt(64, &[7; 64]));
    assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 64);
}

#[test]
#[should_panic(expected = "has no twin in the region")]
fn metadata_without_room_for_its_twin_is_not_stored() {
    let mut door = Door::new(Recorder::new(&[0; BYTES]));
    door.set_twins(BYTES as u64);
    door.window(64, &Counters::new()).store_line(0, &Line::ZERO);
}

#[test]
fn what_is_not_flushed_is_not_durable() {
    let door = Door::new(Recorder::new(&[0; BYTES]));
    let counters = Counters::new();
    let mut window = door.window(16, &counters);
    window.store(3, &[1]);
    window.store_word_lazily(128, 7);
    drop(window);
    door.fence(&counters).unwrap();
    assert_eq!(door.medium().state.lock().unwrap().durable, [0; BYTES]);
    let tally = counters.read();
    assert_eq!((tally.fences, tally.lines, tally.windows), (1, 0, 1));
}

fn window_panics(bytes_max: u64, store: impl FnOnce(&mut lode_pmem::Window<'_, Recorder>)) {
    let door = Door::new(Recorder::new(&[0; BYTES]));
    let counters = Counters::new();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store(&mut door.window(bytes_max, &counters));
    }));
    assert!(outcome.is_err());
    let state = door.medium().state.lock().unwrap();
    assert_eq!(state.visible, [0; BYTES], "nothing is stored");
}

#[test]
fn a_window_stores_no_more_than_it_was_opened_for() {
    window_panics(63, |window| window.store_line(0, &Line([1; 64])));
    window_panics(7, |window| window.store_word(0, 1));
    window_panics(7, |window| window.store_word_lazily(0, 1));
    window_panics(9, |window| window.store(0, &[1; 10]));
    window_panics(99, |window| window.copy_nt(0, &[1; 100]));
    window_panics(0, |window| window.zero_nt(0, 1));
    window_panics(8, |window| {
        window.store_word(0, 0);
        window.store(8, &[1]);
    });
}

#[test]
fn a_window_stores_nothing_outside_the_region_or_unaligned() {
    let end = BYTES as u64;
    window_panics(1000, |window| window.store_line(end, &Line([1; 64])));
    window_panics(1000, |window| window.store_line(32, &Line([1; 64])));
    window_panics(1000, |window| window.store_word(end, 1));
    window_panics(1000, |window| window.store_word(4, 1));
    window_panics(1000, |window| window.store_word_lazily(1, 1));
    window_panics(1000, |window| window.copy_nt(end - 99, &[1; 100]));
    window_panics(1000, |window| window.zero_nt(u64::MAX, 2));
    window_panics(1000, |window| window.store(u64::MAX - 2, &[1; 3]));
    window_panics(1000, |window| window.flush(end, 1));
    window_panics(1000, |window| window.flush(u64::MAX, 2));
}
