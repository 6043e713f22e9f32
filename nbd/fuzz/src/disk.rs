//! A device in memory that lets nobody call it as it should not be called.

use std::ops::ControlFlow;
use std::sync::{LazyLock, Mutex};

use crate::device::{BlockSizes, Device, Extent, WriteZeroes};
use crate::errno::Errno;

/// Longest read or write, and longest other range, of one call.
const PIECE: u64 = 1 << 20;
const RANGE: u64 = 16 << 20;

/// The longest device.
const MAX: u64 = 3 << 20;

/// What is there before anything is written.
pub fn fresh(len: u64) -> Vec<u8> {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| (0..MAX).map(byte_at).collect());
    BYTES[..len as usize].to_vec()
}

/// What a byte is before it is written: every other 8 KiB are zeros, and a hole.
fn byte_at(at: u64) -> u8 {
    if is_hole(at) { 0 } else { (at % 251) as u8 }
}

fn is_hole(at: u64) -> bool {
    at / 8192 % 2 == 1
}

/// The device.
pub struct Disk {
    pub sizes: BlockSizes,
    pub read_only: bool,
    /// What can't be read or written begins here.
    pub bad: u64,
    bytes: Mutex<Vec<u8>>,
    len: u64,
}

impl Disk {
    /// Of so many bytes.
    pub fn new(len: u64, sizes: BlockSizes, read_only: bool, bad: u64) -> Self {
        let bytes = Mutex::new(fresh(len));
        Self { sizes, read_only, bad, bytes, len }
    }

    /// Does it where it is allowed and whole blocks are asked for; the first argument is the range.
    fn within<T>(
        &self,
        at: u64,
        len: u64,
        most: u64,
        act: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, Errno> {
        let end = at.checked_add(len).expect("a range ends");
        let min = u64::from(self.sizes.min());
        assert!(len > 0 && len <= most && end <= self.len, "outside: {at} {len}");
        assert!(at % min == 0 && len % min == 0, "not in blocks: {at} {len}");
        if end > self.bad {
            return Err(Errno::EIO);
        }
        let mut bytes = self.bytes.lock().expect("nobody has panicked");
        Ok(act(&mut bytes[at as usize..end as usize]))
    }

    fn written<T>(&self, done: Result<T, Errno>) -> Result<T, Errno> {
        assert!(!self.read_only, "read-only, and written");
        done
    }
}

impl Device for Disk {
    fn size(&self) -> u64 {
        self.len
    }

    fn block_sizes(&self) -> BlockSizes {
        self.sizes
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        // As memory that fails half way: nothing of this is to be seen.
        into.fill(0xee);
        self.within(at, into.len() as u64, PIECE, |bytes| into.copy_from_slice(bytes))
    }

    fn write(&self, at: u64, from: &[u8], _: bool) -> Result<(), Errno> {
        self.written(self.within(at, from.len() as u64, PIECE, |bytes| bytes.copy_from_slice(from)))
    }

    fn flush(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn trim(&self, at: u64, len: u64, _: bool) -> Result<(), Errno> {
        self.written(self.within(at, len, RANGE, |_| ()))
    }

    fn write_zeroes(&self, at: u64, len: u64, how: WriteZeroes) -> Result<(), Errno> {
        if how.fast_zero {
            return Err(Errno::ENOTSUP);
        }
        self.written(self.within(at, len, RANGE, |bytes| bytes.fill(0)))
    }

    fn cache(&self, at: u64, len: u64) -> Result<(), Errno> {
        self.within(at, len, RANGE, |_| ())
    }

    fn status(
        &self,
        at: u64,
        len: u64,
        found: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let hole = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let mut holes = Vec::new();
        self.within(at, len, RANGE, |bytes| {
            let mut rest = &*bytes;
            let mut next = at;
            while !rest.is_empty() {
                let part = (8192 - next % 8192).min(rest.len() as u64);
                holes.push((part, hole(&rest[..part as usize])));
                rest = &rest[part as usize..];
                next += part;
            }
        })?;
        for (len, hole) in holes {
            if found(Extent { len, hole, zero: hole }).is_break() {
                break;
            }
        }
        Ok(())
    }
}
