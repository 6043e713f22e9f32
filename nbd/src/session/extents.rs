//! What a device says lies where, put together: within what was asked, without gaps, neighbours of one kind as one.

use std::ops::ControlFlow;

use super::admit::Span;
use crate::device::{Device, Extent};
use crate::errno::Errno;

/// Appends what lies in `span`, until all is told or there would be more than `most` extents. Returns whether all is.
///
/// # Errors
/// The device's.
pub fn collect(
    device: &dyn Device,
    span: Span,
    most: usize,
    into: &mut Vec<Extent>,
) -> Result<bool, Errno> {
    let mut left = u64::from(span.len());
    device.status(span.at(), left, &mut |found| {
        let found = Extent { len: found.len.min(left), ..found };
        if !append(found, most, into) {
            return ControlFlow::Break(());
        }
        left -= found.len;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if left == 0 {
        return Ok(true);
    }
    let rest = Extent { len: left, hole: false, zero: false };
    Ok(append(rest, most, into))
}

/// False where there is no room for it.
fn append(found: Extent, most: usize, into: &mut Vec<Extent>) -> bool {
    let full = into.len() >= most;
    match into.last_mut() {
        _ if found.len == 0 => true,
        Some(last) if (last.hole, last.zero) == (found.hole, found.zero) => {
            last.len += found.len;
            true
        }
        _ if full => false,
        _ => {
            into.push(found);
            true
        }
    }
}
