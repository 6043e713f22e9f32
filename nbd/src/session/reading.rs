//! Reads: from the device into what goes out, piece by piece, without any copy between.
//!
//! A piece that can't be read leaves nothing in the output but what the client needs to know of it.

use super::admit::Span;
use super::extents::collect;
use super::turn::{PIECE_BYTES, SHORT_PIECE_BYTES, Turn};
use crate::buffer::Buffer;
use crate::device::Extent;
use crate::errno::Errno;
use crate::export::Served;
use crate::wire::{
    Chunk, data_header, patch_done, reply_error, reply_hole, reply_nothing, simple_header,
};

/// Shorter zeros go out as bytes.
const HOLE_MIN_BYTES: u64 = 4096;
/// Most extents of a piece that are looked at; what lies behind them goes out as bytes.
const MAX_EXTENTS: usize = 512;

/// What the reply is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// All bytes behind one head that says that there is no error.
    Simple,
    /// All bytes in one chunk.
    Whole,
    /// Bytes and holes in chunks.
    Chunks,
}

/// How it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// With the next piece.
    More,
    /// It is answered.
    Done,
    /// It is answered with an error.
    Failed,
    /// It can't be answered: bytes that are not there were announced.
    Lost,
}

/// A read as far as it has come.
pub struct Reading {
    cookie: u64,
    left: Span,
    style: Style,
    begun: bool,
    /// What went wrong within one chunk, and where: zeros go out from there on.
    failed: Option<(Errno, u64)>,
}

impl Reading {
    /// At its beginning.
    pub fn new(cookie: u64, span: Span, style: Style) -> Self {
        Self { cookie, left: span, style, begun: false, failed: None }
    }

    /// Reads a piece. `extents` is memory to be used.
    pub fn step(
        &mut self,
        export: &Served,
        extents: &mut Vec<Extent>,
        output: &mut Buffer,
        turn: &mut Turn,
    ) -> Read {
        let all = self.left;
        let most = match self.style {
            Style::Simple => PIECE_BYTES,
            Style::Whole | Style::Chunks => SHORT_PIECE_BYTES,
        };
        let piece = self.left.take(most);
        turn.charge(piece.len() as usize);
        let read = match self.style {
            _ if piece.is_empty() => self.nothing(output),
            Style::Simple => self.simple(export, piece, output),
            Style::Whole => self.whole(export, all, piece, output),
            Style::Chunks => self.chunks(export, piece, extents, output),
        };
        self.begun = true;
        read
    }

    fn nothing(&self, output: &mut Buffer) -> Read {
        match self.style {
            Style::Simple => simple_header(self.cookie, None, output),
            Style::Whole | Style::Chunks => reply_nothing(self.cookie, output),
        }
        Read::Done
    }

    fn simple(&self, export: &Served, piece: Span, output: &mut Buffer) -> Read {
        let before = output.len();
        if !self.begun {
            simple_header(self.cookie, None, output);
        }
        match read(export, piece.at(), piece.len() as usize, output) {
            Ok(()) if self.left.is_empty() => Read::Done,
            Ok(()) => Read::More,
            Err(_) if self.begun => {
                output.retract(before);
                Read::Lost
            }
            Err(errno) => {
                output.retract(before);
                simple_header(self.cookie, Some(errno), output);
                Read::Failed
            }
        }
    }

    /// One chunk: what can't be read of it once it is announced goes out as zeros, and an error behind it.
    fn whole(&mut self, export: &Served, all: Span, piece: Span, output: &mut Buffer) -> Read {
        let before = output.len();
        let last = self.left.is_empty();
        if !self.begun {
            let chunk = Chunk { cookie: self.cookie, done: last };
            data_header(chunk, all.at(), all.len() as usize, output);
        }
        if self.failed.is_none()
            && let Err(errno) = read(export, piece.at(), piece.len() as usize, output)
        {
            if !self.begun {
                output.retract(before);
                reply_error(self.cookie, errno.into(), Some(piece.at()), output);
                return Read::Failed;
            }
            output.retract(before);
            self.failed = Some((errno, piece.at()));
        }
        if self.failed.is_some() {
            output.extend(piece.len() as usize).fill(0);
        }
        match self.failed {
            _ if !last => Read::More,
            Some((errno, at)) => {
                reply_error(self.cookie, errno.into(), Some(at), output);
                Read::Failed
            }
            None => {
                // A chunk that took several pieces was not announced as the last.
                if self.begun {
                    reply_nothing(self.cookie, output);
                }
                Read::Done
            }
        }
    }

    fn chunks(
        &self,
        export: &Served,
        piece: Span,
        extents: &mut Vec<Extent>,
        output: &mut Buffer,
    ) -> Read {
        extents.clear();
        // What the device can't say it may still read.
        if collect(&*export.device, piece, [MAX_EXTENTS; 2], extents).is_err() {
            extents.clear();
        }
        let mut at = piece.at();
        let end = at + u64::from(piece.len());
        let mut head = output.len();
        let mut found = extents.iter().peekable();
        while at < end {
            let hole = found.next_if(|next| is_hole(next));
            let len = match hole {
                Some(hole) => hole.len,
                None => {
                    let mut bytes = 0;
                    while let Some(next) = found.next_if(|next| !is_hole(next)) {
                        bytes += next.len;
                    }
                    // Behind what was told of, all is bytes.
                    if found.peek().is_none() { end - at } else { bytes }
                }
            };
            head = output.len();
            let chunk = Chunk { cookie: self.cookie, done: false };
            // No longer than a piece.
            let short = u32::try_from(len).unwrap_or(u32::MAX);
            if hole.is_some() {
                reply_hole(chunk, at, short, output);
            } else {
                data_header(chunk, at, short as usize, output);
                if let Err(errno) = read(export, at, short as usize, output) {
                    output.retract(head);
                    reply_error(self.cookie, errno.into(), Some(at), output);
                    return Read::Failed;
                }
            }
            at += len;
        }
        if !self.left.is_empty() {
            return Read::More;
        }
        patch_done(output.tail_mut(head));
        Read::Done
    }
}

fn is_hole(extent: &Extent) -> bool {
    extent.zero && extent.len >= HOLE_MIN_BYTES
}

fn read(export: &Served, at: u64, len: usize, output: &mut Buffer) -> Result<(), Errno> {
    export.device.read(at, output.extend(len))?;
    export.counters.read_bytes.add(len as u64);
    Ok(())
}
