//! Requests and replies to them, one after the other.

use super::admit::{Access, Action, Span};
use super::haggle::Agreed;
use super::next::Next;
use super::ranged::Work;
use super::reading::{Read, Reading, Style};
use super::turn::{LEAST_PIECE_BYTES, SHORT_PIECE_BYTES, Turn, UNIT_BYTES};
use crate::buffer::Buffer;
use crate::device::{BlockSizes, Extent};
use crate::errno::Errno;
use crate::export::InUse;
use crate::wire::{
    ALLOCATION, Command, REQUEST_BYTES, Refusal, Request, reply_error, reply_ok, reply_status,
    simple_header,
};

/// What comes next.
enum State {
    /// A request.
    Request,
    /// Data of a write.
    Write {
        cookie: u64,
        left: Span,
        fua: bool,
        /// So much is to be there, or the rest, before it is stored.
        least: u32,
    },
    /// Data of a write that has failed.
    Skip {
        cookie: u64,
        left: usize,
        refusal: Refusal,
    },
    Read(Reading),
    Ranged {
        cookie: u64,
        work: Work,
    },
}

/// A client that uses an export.
pub struct Transmit {
    export: InUse,
    agreed: Agreed,
    state: State,
    extents: Vec<Extent>,
}

impl Transmit {
    /// Before the first request.
    pub fn new(export: InUse, agreed: Agreed) -> Self {
        Self { export, agreed, state: State::Request, extents: Vec::new() }
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Request)
    }

    /// Gives back memory that only a busy client needs.
    pub fn rest(&mut self) {
        self.extents = Vec::new();
    }

    /// Does one thing.
    pub fn step(
        &mut self,
        input: &mut Buffer,
        output: &mut Buffer,
        turn: &mut Turn,
        closing: bool,
    ) -> Next {
        match &mut self.state {
            State::Request => {
                let Some(bytes) = input.filled().get(..REQUEST_BYTES) else {
                    return Next::Input(REQUEST_BYTES);
                };
                let parsed = Request::parse(bytes);
                input.consume(REQUEST_BYTES);
                turn.charge_request();
                match parsed {
                    Ok(request) => {
                        if request.command == Command::Flush {
                            turn.charge_change();
                        }
                        self.begin(&request, output, closing)
                    }
                    Err(_) => {
                        tracing::debug!(export = self.export.name, "a client lost its way");
                        Next::End
                    }
                }
            }
            State::Write { .. } => self.write(input, output, turn),
            State::Skip { cookie, left, refusal } => {
                let skipped = input.len().min(*left);
                input.consume(skipped);
                *left -= skipped;
                if *left > 0 {
                    return Next::Input(1);
                }
                let (cookie, refusal) = (*cookie, *refusal);
                self.fail(cookie, refusal, output)
            }
            State::Read(reading) => {
                match reading.step(&self.export, &mut self.extents, output, turn) {
                    Read::More => return Next::Again,
                    Read::Done => {}
                    Read::Failed => self.failed("read"),
                    Read::Lost => {
                        self.failed("read");
                        return Next::End;
                    }
                }
                self.state = State::Request;
                Next::Again
            }
            State::Ranged { cookie, work } => {
                let cookie = *cookie;
                match work.step(&self.export, turn) {
                    Ok(false) => return Next::Again,
                    Ok(true) if work.is_status() => {
                        reply_status(cookie, ALLOCATION.1, &work.extents, output);
                    }
                    Ok(true) => reply_ok(cookie, output),
                    Err(errno) => return self.fail_by_device("range", cookie, errno, output),
                }
                self.state = State::Request;
                Next::Again
            }
        }
    }

    fn begin(&mut self, request: &Request, output: &mut Buffer, closing: bool) -> Next {
        self.count(request.command);
        let cookie = request.cookie;
        let action = match self.access().admit(request) {
            Ok(Action::Disconnect) => return Next::End,
            Ok(_) if closing => Err(Refusal { errno: Errno::ESHUTDOWN, why: "" }),
            other => other,
        };
        let chunks = if self.agreed.structured { Style::Chunks } else { Style::Simple };
        self.state = match action {
            Ok(Action::Write { span, fua }) => {
                let least =
                    if span.len() > SHORT_PIECE_BYTES { LEAST_PIECE_BYTES } else { span.len() };
                State::Write { cookie, left: span, fua, least }
            }
            Ok(Action::Read { span, whole }) => {
                let style = if whole { Style::Whole } else { chunks };
                State::Read(Reading::new(cookie, span, style))
            }
            Ok(Action::Ranged { span, what }) => {
                State::Ranged { cookie, work: Work::new(span, what) }
            }
            Ok(Action::Flush) => match self.export.device.flush() {
                Ok(()) => {
                    reply_ok(cookie, output);
                    State::Request
                }
                Err(errno) => return self.fail_by_device("flush", cookie, errno, output),
            },
            Ok(Action::Disconnect) => return Next::End,
            Err(refusal) if request.command != Command::Write => {
                return self.fail(cookie, refusal, output);
            }
            // What nobody will store is not waited for without end.
            Err(refusal) if request.len > BlockSizes::MAX => {
                self.fail(cookie, refusal, output);
                return Next::End;
            }
            Err(refusal) => State::Skip { cookie, left: request.len as usize, refusal },
        };
        Next::Again
    }

    /// Stores what is there of a write, once it is worth it: the client sends on meanwhile.
    fn write(&mut self, input: &mut Buffer, output: &mut Buffer, turn: &mut Turn) -> Next {
        let unit = self.export.block_sizes().min().max(UNIT_BYTES);
        let State::Write { cookie, left, fua, least } = &mut self.state else {
            return Next::Again;
        };
        let (most, least) = (left.len().min(SHORT_PIECE_BYTES), *least);
        let there = u32::try_from(input.len()).unwrap_or(u32::MAX);
        if there < most.min(least) {
            return Next::Input(most as usize);
        }
        let mut behind = *left;
        let piece = behind.take_units(there.min(most), unit);
        let len = piece.len() as usize;
        let Some(bytes) = input.filled().get(..len) else {
            return Next::Input(most as usize);
        };
        let (cookie, fua) = (*cookie, *fua);
        let written =
            if len == 0 { Ok(()) } else { self.export.device.write(piece.at(), bytes, fua) };
        input.consume(len);
        turn.charge(len);
        match written {
            Ok(()) => {
                self.export.counters.written_bytes.add(len as u64);
                self.state = if behind.is_empty() {
                    reply_ok(cookie, output);
                    State::Request
                } else {
                    State::Write { cookie, left: behind, fua, least }
                };
            }
            Err(errno) => {
                let left = behind.len() as usize;
                self.complain("write");
                self.state = State::Skip { cookie, left, refusal: errno.into() };
            }
        }
        Next::Again
    }

    fn failed(&self, what: &str) {
        self.complain(what);
        self.export.counters.errors.add(1);
    }

    /// The device has failed. A client can ask for that again and again.
    fn complain(&self, what: &str) {
        let export = &*self.export.name;
        match self.export.complaints.due() {
            Some(count) => tracing::warn!(export, count, "requests fail, the last one a {what}"),
            None => tracing::debug!(export, "a {what} has failed"),
        }
    }

    fn fail_by_device(
        &mut self,
        what: &str,
        cookie: u64,
        errno: Errno,
        output: &mut Buffer,
    ) -> Next {
        // (That zeros are not fast is no failure.)
        if errno != Errno::ENOTSUP {
            self.complain(what);
        }
        self.fail(cookie, errno.into(), output)
    }

    fn fail(&mut self, cookie: u64, refusal: Refusal, output: &mut Buffer) -> Next {
        self.export.counters.errors.add(1);
        if self.agreed.structured {
            reply_error(cookie, refusal, None, output);
        } else {
            simple_header(cookie, Some(refusal.errno), output);
        }
        self.state = State::Request;
        Next::Again
    }

    fn access(&self) -> Access {
        Access {
            structured: self.agreed.structured,
            allocation: self.agreed.allocation,
            read_only: self.export.device.read_only(),
            size: self.export.size(),
            sizes: self.export.block_sizes(),
        }
    }

    fn count(&self, command: Command) {
        let counters = &self.export.counters;
        match command {
            Command::Read => counters.reads.add(1),
            Command::Write => counters.writes.add(1),
            Command::Flush => counters.flushes.add(1),
            Command::Trim => counters.trims.add(1),
            Command::WriteZeroes => counters.zeroes.add(1),
            Command::Cache => counters.caches.add(1),
            Command::BlockStatus => counters.statuses.add(1),
            Command::Disconnect | Command::Unknown => {}
        }
    }
}
