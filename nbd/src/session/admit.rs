//! Which requests are served: only those that lie within the device, fit its blocks, and have flags that make sense.
//! Nothing else touches it.

use crate::device::{BlockSizes, WriteZeroes};
use crate::errno::Errno;
use crate::wire::{Command, Flags, Refusal, Request};

/// A range of the device. It was not behind its end, and so its own end is a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    at: u64,
    len: u32,
}

impl Span {
    /// From a request that was looked at, where it lies within `size`.
    fn within(request: &Request, size: u64) -> Option<Self> {
        let end = request.at.checked_add(u64::from(request.len))?;
        (end <= size).then_some(Self { at: request.at, len: request.len })
    }

    /// Where it begins, in bytes.
    pub fn at(self) -> u64 {
        self.at
    }

    /// Its length in bytes.
    pub fn len(self) -> u32 {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Takes a piece from its beginning: all of it, or as much of `most` bytes as ends in a multiple of `unit`.
    pub fn take_units(&mut self, most: u32, unit: u32) -> Self {
        if most >= self.len {
            return self.take(most);
        }
        let over = (self.at + u64::from(most)) % u64::from(unit);
        self.take(most - u32::try_from(over).map_or(most, |over| over.min(most)))
    }

    /// Takes a piece from its beginning, of `most` bytes or all.
    pub fn take(&mut self, most: u32) -> Self {
        let piece = Self { at: self.at, len: self.len.min(most) };
        self.at += u64::from(piece.len);
        self.len -= piece.len;
        piece
    }
}

/// What is done with a range without bytes that come or go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ranged {
    /// Forget.
    Trim {
        /// Durably.
        fua: bool,
    },
    /// Store zeros.
    Zero(WriteZeroes),
    /// Have at hand.
    Cache,
    /// Tell what is there.
    Status {
        /// One extent is enough.
        one: bool,
    },
}

/// A request that is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Bytes go out; in one piece, if `whole`.
    Read { span: Span, whole: bool },
    /// Bytes come in.
    Write { span: Span, fua: bool },
    /// Something about a range.
    Ranged { span: Span, what: Ranged },
    /// All that was written becomes durable.
    Flush,
    /// The end.
    Disconnect,
}

/// What holds for a client and its device.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Chunks were agreed on.
    pub structured: bool,
    /// Block status was agreed on.
    pub allocation: bool,
    /// Nobody writes.
    pub read_only: bool,
    /// Size in bytes.
    pub size: u64,
    /// Blocks.
    pub sizes: BlockSizes,
}

fn refuse<T>(errno: Errno, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { errno, why })
}

impl Access {
    /// What is to be done for a request.
    ///
    /// # Errors
    /// Why nothing is. The data of a write follow nevertheless.
    pub fn admit(&self, request: &Request) -> Result<Action, Refusal> {
        let fua = request.flags.has(Flags::FUA);
        // Clients are known to set FUA on anything.
        let known = match request.command {
            Command::Read if self.structured => Flags::FUA.with(Flags::DF),
            Command::WriteZeroes => Flags::FUA.with(Flags::NO_HOLE).with(Flags::FAST_ZERO),
            Command::BlockStatus => Flags::FUA.with(Flags::REQ_ONE),
            _ => Flags::FUA,
        };
        // Whatever stands beside it, the end is the end.
        if request.command == Command::Disconnect {
            return Ok(Action::Disconnect);
        }
        if request.command == Command::Unknown {
            return refuse(Errno::EINVAL, "this command is not known here");
        }
        if !request.flags.only(known) {
            return refuse(Errno::EINVAL, "a flag is not one of this command");
        }
        let ranged = |what| Ok(Action::Ranged { span: self.span(request)?, what });
        match request.command {
            Command::Flush if (request.at, request.len) != (0, 0) => {
                refuse(Errno::EINVAL, "a flush has no range")
            }
            Command::Flush => Ok(Action::Flush),
            Command::Read => {
                let whole = request.flags.has(Flags::DF);
                Ok(Action::Read { span: self.span(request)?, whole })
            }
            Command::Write => Ok(Action::Write { span: self.span(request)?, fua }),
            Command::Trim => ranged(Ranged::Trim { fua }),
            Command::WriteZeroes => {
                let no_hole = request.flags.has(Flags::NO_HOLE);
                let fast_zero = request.flags.has(Flags::FAST_ZERO);
                ranged(Ranged::Zero(WriteZeroes { no_hole, fast_zero, fua }))
            }
            Command::Cache => ranged(Ranged::Cache),
            Command::BlockStatus if !self.allocation => {
                refuse(Errno::EINVAL, "block status was not agreed on")
            }
            Command::BlockStatus if request.len == 0 => {
                refuse(Errno::EINVAL, "there is no status of nothing")
            }
            Command::BlockStatus => {
                ranged(Ranged::Status { one: request.flags.has(Flags::REQ_ONE) })
            }
            Command::Disconnect | Command::Unknown => refuse(Errno::EINVAL, ""),
        }
    }

    fn span(&self, request: &Request) -> Result<Span, Refusal> {
        let command = request.command;
        let writes = matches!(command, Command::Write | Command::WriteZeroes | Command::Trim);
        if writes && self.read_only {
            return refuse(Errno::EPERM, "the export is read-only");
        }
        if request.len > self.sizes.max() {
            match command {
                Command::Read if request.flags.has(Flags::DF) => {
                    return refuse(Errno::EOVERFLOW, "too long for one piece");
                }
                Command::Read | Command::Write => {
                    return refuse(Errno::EINVAL, "longer than the largest block");
                }
                _ => {}
            }
        }
        let Some(span) = Span::within(request, self.size) else {
            let grows = matches!(command, Command::Write | Command::WriteZeroes);
            let errno = if grows { Errno::ENOSPC } else { Errno::EINVAL };
            return refuse(errno, "behind the end of the export");
        };
        let min = self.sizes.min();
        if !request.at.is_multiple_of(u64::from(min)) || !request.len.is_multiple_of(min) {
            return refuse(Errno::EINVAL, "not in whole blocks");
        }
        Ok(span)
    }
}

#[cfg(test)]
mod tests;
