//! How much is done at a time, and how much one client may ask for before others come.

use std::time::{Duration, Instant};

/// Most bytes that are read by one call of the device: a multiple of every smallest block. (A simple reply is one whole, and no error can be told behind its first piece.)
pub const PIECE_BYTES: u32 = 1 << 20;
/// The same of what is written, and of what is read where an error can be told behind it. About what a Unix socket holds: the client takes the
/// one piece, or fills the socket again, while the device has the other one, which stays in the processor's cache.
pub const SHORT_PIECE_BYTES: u32 = 256 << 10;
/// So much of a write that is longer than a piece is stored before the rest is there: no smallest block is larger.
pub const LEAST_PIECE_BYTES: u32 = 64 << 10;
/// Where such a part ends: devices store whole pages fastest.
pub const UNIT_BYTES: u32 = 4096;
/// What a request costs besides its bytes.
const REQUEST_COST: usize = 2 << 10;
/// The same of one that changes more than the bytes it brings, or waits until all is durable.
const CHANGE_COST: usize = 64 << 10;

/// What is left of a client's turn: bytes, and time, as on a medium that is slow they may take thousands of times as long.
#[derive(Debug)]
pub struct Turn {
    left: usize,
    requests: u32,
    began: Instant,
    time: Duration,
}

impl Turn {
    /// A turn of so many bytes, which begins nothing more after so long.
    pub fn new(bytes: usize, time: Duration) -> Self {
        Self { left: bytes, requests: 0, began: Instant::now(), time }
    }

    /// Bytes were moved.
    pub fn charge(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        if bytes >= CHANGE_COST {
            self.look_at_time();
        }
    }

    /// Something was asked.
    pub fn charge_request(&mut self) {
        self.requests += 1;
        self.charge(REQUEST_COST);
        self.look_at_time();
    }

    /// (When something is begun, or a large part is done: so each turn has done something.)
    fn look_at_time(&mut self) {
        if self.began.elapsed() >= self.time {
            self.end();
        }
    }

    /// Something was done that may take longer than its bytes do.
    pub fn charge_change(&mut self) {
        self.charge(CHANGE_COST);
    }

    /// Others come.
    pub fn end(&mut self) {
        self.left = 0;
    }

    /// How often something was asked.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// Whether others are to come.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }
}
