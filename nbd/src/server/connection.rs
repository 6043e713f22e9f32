//! A client: its socket, its conversation, and bounded buffers between.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::socket::{Cost, Moved};
use super::stream::Stream;
use crate::buffer::Buffer;
use crate::export::Exports;
use crate::session::{Session, Step, Turn};

/// Bytes of one turn: what a client may move before others come.
const TURN_BYTES: usize = 4 << 20;
/// After so long it begins nothing more: what a write takes until it is durable is up to the medium.
const TURN_TIME: Duration = Duration::from_millis(1);
/// Room for what comes in, if less is needed at once. Requests come many at a time.
const INPUT_BYTES: usize = 64 << 10;

/// Who has sent no more than this, and nothing is left of it to be done, has sent no more yet.
const FEW_BYTES: usize = 2 << 10;

/// Whose socket is full while as much waits to go out gets a wider one.
const MUCH_BYTES: usize = 128 << 10;

/// What a client waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// Its next turn.
    Turn,
    /// Bytes from it.
    Input,
    /// That it takes bytes. Until then, none are taken from it.
    Output,
    /// Nothing: it is to be forgotten.
    Nothing,
}

/// A client.
pub struct Connection {
    stream: Stream,
    session: Session,
    input: Buffer,
    output: Buffer,
    began: Instant,
    /// When its conversation was over; replies may still wait.
    ended: Option<Instant>,
    moved: bool,
    is_wide: bool,
    requests: u32,
}

impl Connection {
    /// One that has just come.
    pub fn new(stream: Stream, exports: Arc<Exports>) -> Self {
        let mut output = Buffer::default();
        let session = Session::new(exports, stream.encryption(), &mut output);
        let input = Buffer::default();
        let (began, ended, moved, is_wide) = (Instant::now(), None, true, false);
        Self { stream, session, input, output, began, ended, moved, is_wide, requests: 0 }
    }

    /// Serves it as far as a turn reaches.
    pub fn turn(&mut self, closing: bool) -> Wants {
        self.moved = true;
        let mut turn = Turn::new(TURN_BYTES, TURN_TIME);
        let wants = self.serve(&mut turn, closing);
        self.requests = turn.requests();
        wants
    }

    /// How often it asked for something in its last turn.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    fn serve(&mut self, turn: &mut Turn, closing: bool) -> Wants {
        let mut is_drained = false;
        loop {
            let step = self.session.advance(&mut self.input, &mut self.output, turn, closing);
            if self.ended.is_none() && self.session.is_over() {
                self.ended = Some(Instant::now());
            }
            match self.send() {
                Moved::Gone => return Wants::Nothing,
                Moved::Blocked if step != Step::Turn => return Wants::Output,
                _ => {}
            }
            match step {
                Step::Turn => return Wants::Turn,
                Step::Output => {}
                Step::Encrypt => {
                    if !self.stream.encrypt() {
                        return Wants::Nothing;
                    }
                    self.session.encrypted();
                }
                Step::End => {
                    let said = self.stream.finish();
                    return if said == Moved::Blocked { Wants::Output } else { Wants::Nothing };
                }
                Step::Input(bytes) => {
                    let missing = bytes.saturating_sub(self.input.len()).max(1);
                    if is_drained && self.session.is_idle() {
                        return Wants::Input;
                    }
                    // Nothing more of what is long: what comes behind it would be moved to the front.
                    let wanted = missing.max(INPUT_BYTES);
                    let room = self.input.space(wanted).get_mut(..wanted).unwrap_or_default();
                    match self.stream.receive(room) {
                        Moved::Bytes(bytes) => {
                            // (While data was stored more has come.)
                            is_drained = bytes < FEW_BYTES;
                            self.input.commit(bytes);
                            turn.charge(bytes);
                        }
                        Moved::Records { bytes, cost } => {
                            turn.charge(bytes);
                            match cost {
                                Cost::Bytes => {}
                                Cost::Change => turn.charge_change(),
                                Cost::Turn => turn.end(),
                            }
                        }
                        Moved::Blocked => return Wants::Input,
                        Moved::Gone => return Wants::Nothing,
                    }
                }
            }
        }
    }

    /// Sends all that waits, if the client takes it.
    fn send(&mut self) -> Moved {
        let mut sent = 0;
        while !self.output.is_empty() {
            match self.stream.send(self.output.filled()) {
                Moved::Bytes(bytes) => {
                    self.output.consume(bytes);
                    sent += bytes;
                }
                Moved::Blocked if !self.is_wide && self.output.len() >= MUCH_BYTES => {
                    self.is_wide = true;
                    self.stream.widen();
                }
                other => return other,
            }
        }
        match self.stream.flush() {
            Moved::Bytes(_) => Moved::Bytes(sent),
            other => other,
        }
    }

    /// Since when it is expected to hurry: to choose an export when it has come, or to go when all is said.
    pub fn is_urged_since(&self) -> Option<Instant> {
        if self.session.is_haggling() { Some(self.began) } else { self.ended }
    }

    /// Whether no request of it is under way.
    pub fn is_idle(&self) -> bool {
        self.session.is_idle() && self.output.is_empty() && !self.stream.is_waiting()
    }

    /// Gives back memory if there was no turn since this was last called.
    pub fn rest(&mut self) {
        if !std::mem::take(&mut self.moved) {
            self.input.release();
            self.output.release();
            self.stream.rest();
            self.session.rest();
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests;
