//! A request of the kernel, checked, as a call of the device.

use lode_nbd::{Device, Errno, WriteZeroes};

use crate::parameters::{DATA_BYTES, RANGE_BYTES, Shape};
use crate::wire::{
    DISCARD, Descriptor, FLUSH, FUA, NO_UNMAP, READ, SECTOR_BYTES, WRITE, WRITE_ZEROES,
};

/// Does what the kernel wants. `data` is what is written, or gets what is read. Returns what the driver wants to hear: the number of bytes,
/// or the negative number of an error.
pub fn answer(device: &dyn Device, shape: &Shape, wanted: &Descriptor, data: &mut [u8]) -> i32 {
    match work(device, shape, wanted, data) {
        Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
        Err(error) => -error.code().cast_signed(),
    }
}

fn work(
    device: &dyn Device,
    shape: &Shape,
    wanted: &Descriptor,
    data: &mut [u8],
) -> Result<u32, Errno> {
    let [operation, ..] = wanted.operation.to_le_bytes();
    let has = |flag: u32| wanted.operation & flag != 0;
    if operation == FLUSH {
        return device.flush().map(|()| 0);
    }
    let most = match operation {
        READ | WRITE => DATA_BYTES,
        DISCARD | WRITE_ZEROES => RANGE_BYTES,
        _ => return Err(Errno::ENOTSUP),
    };
    if operation != READ && shape.read_only {
        return Err(Errno::EPERM);
    }
    let (at, len) = range(device, shape, wanted, most)?;
    let data = data.get_mut(..len as usize).ok_or(Errno::EINVAL);
    match operation {
        READ => device.read(at, data?),
        WRITE => device.write(at, data?, has(FUA)),
        DISCARD => device.trim(at, len.into(), has(FUA)),
        _ => {
            let how = WriteZeroes { no_hole: has(NO_UNMAP), fast_zero: false, fua: has(FUA) };
            device.write_zeroes(at, len.into(), how)
        }
    }?;
    Ok(len)
}

/// Offset and length in bytes, of whole blocks that the device has, `most` bytes at most and one block at least.
fn range(
    device: &dyn Device,
    shape: &Shape,
    wanted: &Descriptor,
    most: u32,
) -> Result<(u64, u32), Errno> {
    let at = wanted.sector.checked_mul(SECTOR_BYTES);
    let len = wanted.sectors.checked_mul(SECTOR_BYTES as u32);
    let (at, len) = at.zip(len).ok_or(Errno::EINVAL)?;
    let block = shape.block_bytes;
    let is_whole = at.is_multiple_of(block.into()) && len.is_multiple_of(block);
    // (It may have become smaller since the kernel was told.)
    let end = shape.bytes.min(device.size());
    let is_inside = at.checked_add(len.into()).is_some_and(|behind| behind <= end);
    match is_whole && is_inside && (1..=most).contains(&len) {
        true => Ok((at, len)),
        false => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests;
