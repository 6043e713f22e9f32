//! Structures and numbers of the driver, as `linux/ublk_cmd.h` has them since Linux 6.4.

use std::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The file by which devices are made.
pub const CONTROL: &str = "/dev/ublk-control";

/// Bytes of a sector in all numbers of the driver, whatever the device's blocks are.
pub const SECTOR_BYTES: u64 = 512;
/// The most requests of a queue; descriptors of queues are so many apart.
pub const MAX_DEPTH: u16 = 4096;
/// No queue is meant.
pub const NO_QUEUE: u16 = u16::MAX;
/// The kernel chooses the number of the device.
pub const ANY_DEVICE: u32 = u32::MAX;

/// Commands have the numbers below; without it, on kernels that know older ones, too.
pub const IOCTL_ENCODED: u64 = 1 << 6;
/// State of a device that is not started, or is over.
pub const DEAD: u16 = 0;
/// What a command ends with that will bring no more requests: the device is over.
pub const ABORTED: i32 = -19;

/// The number of a command that reads, or reads and writes, `bytes` bytes.
const fn encoded(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

const fn control(number: u32) -> u32 {
    encoded(3, number, size_of::<ControlCommand>())
}

const fn request(number: u32) -> u32 {
    encoded(3, number, size_of::<RequestCommand>())
}

/// Tells which CPUs' requests a queue has.
pub const GET_CPUS: u32 = encoded(2, 0x01, size_of::<ControlCommand>());
/// Tells of a device.
pub const GET_INFO: u32 = encoded(2, 0x02, size_of::<ControlCommand>());
/// Makes one.
pub const ADD: u32 = control(0x04);
/// Deletes it; waits until nobody has it open, or mounted.
pub const DELETE: u32 = control(0x05);
/// Deletes it, and waits for nobody; the first drivers do not know it.
pub const DELETE_ASYNC: u32 = encoded(2, 0x14, size_of::<ControlCommand>());
/// Makes it a block device; waits until all queues have their commands.
pub const START: u32 = control(0x06);
/// Makes it none any more; waits until what was written to its cache is written to it.
pub const STOP: u32 = control(0x07);
/// Tells what it is to be.
pub const SET_PARAMETERS: u32 = control(0x08);
/// Waits for a request.
pub const FETCH: u32 = request(0x20);
/// Answers one, and waits for the next.
pub const COMMIT_AND_FETCH: u32 = request(0x21);

/// A command to [`CONTROL`].
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct ControlCommand {
    /// Number of the device.
    pub device: u32,
    /// Number of the queue.
    pub queue: u16,
    /// Bytes of memory that the command reads or writes.
    pub bytes: u16,
    /// Where it is.
    pub address: u64,
    /// A number that the command wants.
    pub value: u64,
    /// Nothing.
    pub path_bytes: u16,
    /// Nothing.
    pub padding: u16,
    /// Nothing.
    pub reserved: u32,
}

/// A command to a device's own file.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct RequestCommand {
    /// Number of the queue.
    pub queue: u16,
    /// Number of the request.
    pub tag: u16,
    /// How it ended: bytes, or the negative number of an error.
    pub result: i32,
    /// Where data of the next request is, and of its answer.
    pub address: u64,
}

/// What the driver knows of a device.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Info {
    /// Number of queues.
    pub queues: u16,
    /// Requests of a queue at a time.
    pub depth: u16,
    /// Its state.
    pub state: u16,
    /// Nothing.
    pub padding0: u16,
    /// Bytes of data of a request, at most.
    pub data_bytes: u32,
    /// Its number.
    pub device: u32,
    /// The process that answers.
    pub process: i32,
    /// Nothing.
    pub padding1: u32,
    /// What was agreed upon.
    pub flags: u64,
    /// A number that is the process's own; the driver keeps it.
    pub mark: u64,
    /// User and group that it is of.
    pub owner: [u32; 2],
    /// Nothing.
    pub reserved: [u64; 2],
}

/// What the kernel wants.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Descriptor {
    /// What is to be done, in the lowest byte, and how.
    pub operation: u32,
    /// How many sectors.
    pub sectors: u32,
    /// From which on.
    pub sector: u64,
    /// Where data is; it is known by its tag.
    pub address: u64,
}

/// Fills a buffer.
pub const READ: u8 = 0;
/// Writes from a buffer.
pub const WRITE: u8 = 1;
/// Makes durable what was written.
pub const FLUSH: u8 = 2;
/// Says that sectors are not needed any more.
pub const DISCARD: u8 = 3;
/// Makes sectors zeros.
pub const WRITE_ZEROES: u8 = 5;
/// What is written is to be durable when it is answered.
pub const FUA: u32 = 1 << 13;
/// What is made zeros stays allocated.
pub const NO_UNMAP: u32 = 1 << 15;

/// What a device is to be.
#[derive(Clone, Copy, Default, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub struct Parameters {
    /// Bytes of this.
    pub bytes: u32,
    /// Which of the parts count.
    pub parts: u32,
    /// Attributes.
    pub attributes: u32,
    /// Bytes of a block, as a power of two.
    pub logical_shift: u8,
    /// Bytes that are written at once.
    pub physical_shift: u8,
    /// Bytes that are best.
    pub optimal_shift: u8,
    /// Bytes that are good.
    pub minimal_shift: u8,
    /// Sectors of a read or write, at most.
    pub max_sectors: u32,
    /// Sectors that no request crosses the bounds of; 0: there are none.
    pub chunk_sectors: u32,
    /// Its size.
    pub sectors: u64,
    /// What data in memory is to be aligned to; 0: nothing.
    pub boundary_mask: u64,
    /// Where what is discarded begins.
    pub discard_alignment: u32,
    /// Bytes that are discarded wholly.
    pub discard_bytes: u32,
    /// Sectors that are discarded at a time, at most.
    pub max_discard_sectors: u32,
    /// Sectors that are made zeros at a time, at most.
    pub max_zero_sectors: u32,
    /// Parts that a discard consists of.
    pub max_discard_segments: u16,
    /// Nothing.
    pub reserved: u16,
    /// Nothing.
    pub padding: u32,
}

/// The part of all that every device has.
pub const BASIC: u32 = 1;
/// The part about what is discarded and made zeros.
pub const DISCARDS: u32 = 2;
/// Nothing can be written.
pub const READ_ONLY: u32 = 1;
/// What was written is durable only when it was flushed.
pub const VOLATILE_CACHE: u32 = 4;
/// A write can be asked to be durable by itself.
pub const HAS_FUA: u32 = 8;

const _: () = assert!(size_of::<ControlCommand>() == 32 && offset_of!(ControlCommand, value) == 16);
const _: () =
    assert!(size_of::<RequestCommand>() == 16 && offset_of!(RequestCommand, address) == 8);
const _: () = assert!(size_of::<Info>() == 64 && offset_of!(Info, mark) == 32);
const _: () = assert!(size_of::<Descriptor>() == 24 && offset_of!(Descriptor, sector) == 8);
const _: () = assert!(offset_of!(Parameters, sectors) == 24);
const _: () = assert!(offset_of!(Parameters, discard_alignment) == 40);
const _: () = assert!(size_of::<Parameters>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_that_the_kernels_header_makes() {
        // As `_IOR('u', …)` and `_IOWR('u', …)` come out of it by a C compiler.
        assert_eq!([GET_CPUS, GET_INFO, DELETE_ASYNC], [0x8020_7501, 0x8020_7502, 0x8020_7514]);
        assert_eq!([ADD, DELETE, START], [0xc020_7504, 0xc020_7505, 0xc020_7506]);
        assert_eq!([STOP, SET_PARAMETERS], [0xc020_7507, 0xc020_7508]);
        assert_eq!([FETCH, COMMIT_AND_FETCH], [0xc010_7520, 0xc010_7521]);
    }
}
