//! Requests about ranges that may be as long as 4 GiB: done in pieces, each a turn.

use super::admit::{Ranged, Span};
use super::extents::{Told, collect};
use super::turn::Turn;
use crate::device::Extent;
use crate::errno::Errno;
use crate::export::Served;

/// Most bytes that one call of the device is about; such calls begin at multiples of it, but for the first.
const RANGE_BYTES: u32 = 16 << 20;
/// The same where zeros may have to be stored, all of which others wait for: no less than the largest piece in which space is given back.
const ZERO_BYTES: u32 = 2 << 20;
/// Most extents that one call of the device tells: each may be asked of somebody else.
const EXTENTS_AT_ONCE: usize = 64;
/// Most extents of a reply: what lies behind them is asked for again.
const MAX_EXTENTS: usize = 4096;

/// A request of this kind as far as it has come.
pub struct Work {
    left: Span,
    what: Ranged,
    /// What was found, for the reply of a status.
    pub extents: Vec<Extent>,
}

impl Work {
    /// At its beginning.
    pub fn new(span: Span, what: Ranged) -> Self {
        Self { left: span, what, extents: Vec::new() }
    }

    /// Whether its reply is that of a status.
    pub fn is_status(&self) -> bool {
        matches!(self.what, Ranged::Status { .. })
    }

    /// Does a piece; true if it was the last.
    ///
    /// # Errors
    /// The device's, which ends it.
    pub fn step(&mut self, export: &Served, turn: &mut Turn) -> Result<bool, Errno> {
        let most = if matches!(self.what, Ranged::Zero(_)) { ZERO_BYTES } else { RANGE_BYTES };
        let behind = u32::try_from(self.left.at() % u64::from(most)).unwrap_or(0);
        let all = self.left;
        let piece = self.left.take(most - behind);
        if piece.is_empty() {
            return Ok(true);
        }
        turn.charge(piece.len() as usize);
        turn.charge_change();
        let (device, at, len) = (&*export.device, piece.at(), u64::from(piece.len()));
        match self.what {
            Ranged::Trim { fua } => device.trim(at, len, fua)?,
            Ranged::Zero(how) => device.write_zeroes(at, len, how)?,
            Ranged::Cache => device.cache(at, len)?,
            Ranged::Status { one } => {
                let most = if one { 1 } else { MAX_EXTENTS };
                match collect(device, piece, [EXTENTS_AT_ONCE, most], &mut self.extents)? {
                    Told::All => {}
                    Told::Part(bytes) => {
                        self.left = all;
                        self.left.take(bytes);
                    }
                    Told::Full => return Ok(true),
                }
            }
        }
        Ok(self.left.is_empty())
    }
}
