//! Marks of those who have pages of a region's *files* as their memory, beside its owner.
//!
//! A mark is an open file description lock on a byte behind all bytes that a region can have, one byte for each borrower. The owner sets it on the description
//! that it passes on, so that it lasts until the borrower ends it or has closed that, whatever becomes of the owner. Nobody opens a region that
//! somebody has a mark in, as it is a borrower of an owner that is gone: it may store still.

use std::io;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use super::locks::{self, locked_by_others};

/// Where the byte of the first borrower is.
const FIRST: u64 = 1 << 62;
/// Borrowers that there can be.
const MOST: u64 = 1 << 32;
/// How long a borrower may take to see that its owner is gone.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Marks this open file description as borrower number `number` of the file.
///
/// # Errors
/// Those of the system.
pub fn mark(file: BorrowedFd<'_>, number: u64) -> io::Result<()> {
    let at = FIRST + number % MOST;
    match locks::lock(file, at..at + 1)? {
        true => Ok(()),
        false => Err(io::ErrorKind::ResourceBusy.into()),
    }
}

/// Ends all marks of this open file description: who has them has nothing mapped any more.
///
/// # Errors
/// Those of the system.
pub fn unmark(file: BorrowedFd<'_>) -> io::Result<()> {
    locks::unlock(file, FIRST..FIRST + MOST)
}

/// Whether another open file description has the mark of this number.
///
/// # Errors
/// Those of the system.
pub(super) fn is_marked(file: BorrowedFd<'_>, number: u64) -> io::Result<bool> {
    let at = FIRST + number % MOST;
    any(file, at..at + 1)
}

/// Waits until nobody has a mark in this file, as long as a borrower takes to see that its owner is gone; says whether that came.
pub(crate) fn is_left(file: BorrowedFd<'_>) -> bool {
    let end = Instant::now() + PATIENCE;
    // (Where the system has no such locks, nobody has any.)
    while any(file, FIRST..FIRST + MOST).unwrap_or(false) {
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

fn any(file: BorrowedFd<'_>, part: std::ops::Range<u64>) -> io::Result<bool> {
    let mut any = false;
    locked_by_others(file, part, &mut |_| any = true)?;
    Ok(any)
}
