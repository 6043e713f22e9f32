//! What a device says lies where, put together: within what was asked, without gaps, neighbours of one kind as one.

use std::ops::ControlFlow;

use super::admit::Span;
use crate::device::{Device, Extent};
use crate::errno::Errno;

/// How far one call of the device came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// All is told.
    All,
    /// So many bytes: there is more.
    Part(u32),
    /// More does not go into the reply.
    Full,
}

/// Appends what lies in `span`, until all is told, or `at_once` extents are, or there would be more than `most`.
///
/// # Errors
/// The device's.
pub fn collect(
    device: &dyn Device,
    span: Span,
    [at_once, most]: [usize; 2],
    into: &mut Vec<Extent>,
) -> Result<Told, Errno> {
    let (mut left, mut count, mut told) = (u64::from(span.len()), 0, Told::All);
    device.status(span.at(), left, &mut |found| {
        let found = Extent { len: found.len.min(left), ..found };
        if !append(found, most, into) {
            told = Told::Full;
            return ControlFlow::Break(());
        }
        left -= found.len;
        count += 1;
        if left > 0 && count < at_once {
            return ControlFlow::Continue(());
        }
        if left > 0 {
            told = Told::Part(span.len() - u32::try_from(left).unwrap_or(span.len()));
        }
        ControlFlow::Break(())
    })?;
    let rest = Extent { len: left, hole: false, zero: false };
    match told {
        // (Of what nothing is told all is data.)
        Told::All | Told::Part(0) if append(rest, most, into) => Ok(Told::All),
        Told::All | Told::Part(0) => Ok(Told::Full),
        told => Ok(told),
    }
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
