//! A write-ahead log: each frame goes to its file in one write.
//!
//! SQLite writes a frame in two calls, its header and its page, and each would be a transaction, durable when it returns. It asks
//! for less: a frame counts when a commit behind it is synced. So a header waits for its page; whatever else is asked of
//! the file, the header is written first.

use std::ffi::c_int;

use libsqlite3_sys as ffi;
use lode::File;
use parking_lot::Mutex;

use crate::error::{Outcome, code};

/// Bytes of a frame's header: no other write to a log is so long.
const HEADER: usize = 24;

/// The log of a database.
pub(crate) struct Frames {
    file: File,
    waits: Mutex<Frame>,
}

/// A frame that may be about to be written: nothing, if it is empty.
#[derive(Default)]
struct Frame {
    at: u64,
    bytes: Vec<u8>,
    /// Where was read last.
    read_at: Option<u64>,
}

impl Frames {
    /// A log in this file.
    pub(crate) fn new(file: File) -> Self {
        Self { file, waits: Mutex::default() }
    }

    /// The file, with all that was written to it. `failed` is what is answered where that can't be.
    pub(crate) fn file(&self, failed: c_int) -> Outcome<&File> {
        let mut waits = self.waits.lock();
        if !waits.bytes.is_empty() {
            self.put(&mut waits, failed)?;
        }
        Ok(&self.file)
    }

    /// Reads from `offset`; returns how much was there.
    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Outcome<usize> {
        let failed = ffi::SQLITE_IOERR_READ;
        let file = self.file(failed)?;
        self.waits.lock().read_at = Some(offset);
        file.read_at(into, offset).map_err(|error| code(&error, failed))
    }

    /// Writes all of `data` at `offset`, or has it wait.
    pub(crate) fn write(&self, data: &[u8], offset: u64) -> Outcome<()> {
        let failed = ffi::SQLITE_IOERR_WRITE;
        let mut waits = self.waits.lock();
        let is_next = waits.bytes.len() == HEADER && waits.at + HEADER as u64 == offset;
        if !is_next && !waits.bytes.is_empty() {
            self.put(&mut waits, failed)?;
        }
        let waits_for_page = data.len() == HEADER && waits.read_at.take() != Some(offset);
        if (is_next || waits_for_page) && waits.bytes.try_reserve(data.len()).is_ok() {
            if !is_next {
                waits.at = offset;
            }
            waits.bytes.extend_from_slice(data);
            return if is_next { self.put(&mut waits, failed) } else { Ok(()) };
        }
        if is_next {
            self.put(&mut waits, failed)?;
        }
        store(&self.file, data, offset, failed)
    }

    /// Writes what waits. Nothing does then, whatever came of it.
    fn put(&self, waits: &mut Frame, failed: c_int) -> Outcome<()> {
        let written = store(&self.file, &waits.bytes, waits.at, failed);
        waits.bytes.clear();
        written
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // (A header whose page never came says nothing.)
        let _ = self.file(ffi::SQLITE_IOERR_CLOSE);
    }
}

/// Writes all of `data` at `offset`, in one durable step; where there is no room for all of it, a part may be written.
pub(crate) fn store(file: &File, data: &[u8], offset: u64, failed: c_int) -> Outcome<()> {
    match file.write_at(data, offset).map_err(|error| code(&error, failed))? {
        written if written < data.len() => Err(ffi::SQLITE_FULL),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use lode::{FormatOptions, OpenOptions, PoolOptions};

    use super::*;

    #[test]
    fn a_header_goes_with_its_page_and_with_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let pool = PoolOptions::new().create(path, 64 << 20, &FormatOptions::default()).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        let file = pool.open_with("/log", &options).unwrap();
        let log = Frames::new(pool.open_with("/log", &options).unwrap());
        let (header, page) = ([1; HEADER], [2; 4096]);
        let length = || file.metadata().unwrap().len();
        log.write(&header, 32).unwrap();
        assert_eq!(length(), 0);
        let fences = || pool.stats().unwrap().door.fences;
        let before = fences();
        log.write(&page, 56).unwrap();
        assert_eq!((length(), fences() - before), (32 + 4120, 2));
        // A page elsewhere, a header that is the last, one behind another one, and one that is asked for.
        for (at, len, wanted) in [
            (4152, HEADER, 4152),
            (8192, 4096, 8192 + 4096),
            (20_000, HEADER, 8192 + 4096),
            (30_000, HEADER, 20_024),
        ] {
            log.write(&vec![3; len], at).unwrap();
            assert_eq!(length(), wanted, "{at}");
        }
        assert_eq!(log.file(ffi::SQLITE_IOERR_READ).unwrap().metadata().unwrap().len(), 30_024);
        // One that was read.
        let mut found = vec![0; 40_024];
        log.read(&mut [0; 4120], 32).unwrap();
        log.write(&[4; HEADER], 32).unwrap();
        file.read_at(&mut found, 0).unwrap();
        assert_eq!(found[32..57], [[4; HEADER].as_slice(), &[2]].concat());
        log.write(&header, 40_000).unwrap();
        drop(log);
        assert_eq!(length(), 40_024);
        file.read_at(&mut found, 0).unwrap();
        let mut expected = vec![0; 40_024];
        expected[32..56].fill(4);
        expected[56..4152].fill(2);
        for (from, len) in [(4152, HEADER), (8192, 4096), (20_000, HEADER), (30_000, HEADER)] {
            expected[from..from + len].fill(3);
        }
        expected[40_000..].fill(1);
        assert!(found == expected);
    }
}
