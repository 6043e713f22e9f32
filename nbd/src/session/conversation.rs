//! One client's conversation, without any socket: bytes that came in, calls of the device, bytes to go out.
//!
//! It goes on as far as the bytes reach, and stops where too much waits to go out or it has had its turn. So what it
//! holds is bounded whatever a client sends, and however much one client asks for, others come next.

use std::sync::Arc;

use super::encryption::Encryption;
use super::haggle::{Haggle, Haggled};
use super::next::Next;
use super::transmit::Transmit;
use super::turn::Turn;
use crate::buffer::Buffer;
use crate::export::{Exports, InUse};

/// Nothing is asked of the device while as many bytes wait to go out.
const OUTPUT_HIGH_BYTES: usize = 256 << 10;

/// Why a conversation does not go on by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It needs so many bytes in its input: more than there are.
    Input(usize),
    /// Too much waits to go out.
    Output,
    /// It has had its turn.
    Turn,
    /// What waits is to go out; what comes from then on is encrypted, and this is to be [told](Session::encrypted).
    Encrypt,
    /// It is over, when what waits has gone out.
    End,
}

/// A conversation.
pub struct Session(Phase);

enum Phase {
    Haggle(Haggle),
    Transmit(Transmit),
    Ended,
}

impl Session {
    /// Begins one: the greeting is in `output`.
    pub fn new(exports: Arc<Exports>, encryption: Encryption, output: &mut Buffer) -> Self {
        crate::wire::greet(output);
        Self(Phase::Haggle(Haggle::new(exports, encryption)))
    }

    /// What comes in and goes out is encrypted from here on.
    pub fn encrypted(&mut self) {
        if let Phase::Haggle(haggle) = &mut self.0 {
            haggle.encrypted();
        }
    }

    /// Goes on as far as it can. With `closing`, the server is about to end: what is not under way is refused.
    pub fn advance(
        &mut self,
        input: &mut Buffer,
        output: &mut Buffer,
        turn: &mut Turn,
        closing: bool,
    ) -> Step {
        loop {
            if output.len() >= OUTPUT_HIGH_BYTES {
                return Step::Output;
            }
            if turn.is_over() {
                return Step::Turn;
            }
            let next = match &mut self.0 {
                Phase::Haggle(haggle) => match haggle.step(input, output, turn, closing) {
                    Haggled::Chosen(served, agreed) => {
                        self.0 = Phase::Transmit(Transmit::new(InUse::of(served), agreed));
                        Next::Again
                    }
                    Haggled::Next(next) => next,
                },
                Phase::Transmit(transmit) => transmit.step(input, output, turn, closing),
                Phase::Ended => return Step::End,
            };
            match next {
                Next::Again => {}
                Next::Input(bytes) => return Step::Input(bytes),
                Next::Encrypt => return Step::Encrypt,
                Next::End => self.0 = Phase::Ended,
            }
        }
    }

    /// Whether no export was chosen yet.
    pub fn is_haggling(&self) -> bool {
        matches!(self.0, Phase::Haggle(_))
    }

    /// Whether nothing more will be said.
    pub fn is_over(&self) -> bool {
        matches!(self.0, Phase::Ended)
    }

    /// Whether nothing is under way but what may stand in the input.
    pub fn is_idle(&self) -> bool {
        match &self.0 {
            Phase::Haggle(_) | Phase::Ended => true,
            Phase::Transmit(transmit) => transmit.is_idle(),
        }
    }

    /// Gives back memory that only a busy client needs.
    pub fn rest(&mut self) {
        if let Phase::Transmit(transmit) = &mut self.0 {
            transmit.rest();
        }
    }
}

#[cfg(test)]
mod tests;
