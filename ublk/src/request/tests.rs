//! Requests as a kernel makes them, and such as it never would.

use std::sync::Mutex;

use lode_nbd::BlockSizes;
use proptest::prelude::*;

use super::*;
use crate::wire::{BASIC, DISCARDS, HAS_FUA, READ_ONLY, VOLATILE_CACHE};

const BLOCK: u32 = 4096;
const SIZE: u64 = 64 << 10;

/// What a device was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Call {
    Read(u64, usize),
    Write(u64, usize, bool),
    Flush,
    Trim(u64, u64, bool),
    Zeroes(u64, u64, bool, bool),
}

/// A device in memory, which notes what it is asked for.
struct Memory {
    bytes: Mutex<Vec<u8>>,
    calls: Mutex<Vec<Call>>,
    sizes: BlockSizes,
    read_only: bool,
    write_through: bool,
    broken: Option<Errno>,
}

impl Memory {
    fn new() -> Self {
        Self {
            bytes: Mutex::new(vec![b'.'; SIZE as usize]),
            calls: Mutex::new(Vec::new()),
            sizes: BlockSizes::new(BLOCK, BLOCK, BlockSizes::MAX).unwrap(),
            read_only: false,
            write_through: true,
            broken: None,
        }
    }

    fn called(&self, call: Call) -> Result<(), Errno> {
        self.calls.lock().unwrap().push(call);
        self.broken.map_or(Ok(()), Err)
    }

    fn fill(&self, at: u64, len: u64, byte: u8) {
        self.bytes.lock().unwrap()[at as usize..][..len as usize].fill(byte);
    }

    fn asked(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl Device for Memory {
    fn size(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn block_sizes(&self) -> BlockSizes {
        self.sizes
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn is_write_through(&self) -> bool {
        self.write_through
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.copy_from_slice(&self.bytes.lock().unwrap()[at as usize..][..into.len()]);
        self.called(Call::Read(at, into.len()))
    }

    fn write(&self, at: u64, from: &[u8], fua: bool) -> Result<(), Errno> {
        self.bytes.lock().unwrap()[at as usize..][..from.len()].copy_from_slice(from);
        self.called(Call::Write(at, from.len(), fua))
    }

    fn flush(&self) -> Result<(), Errno> {
        self.called(Call::Flush)
    }

    fn trim(&self, at: u64, len: u64, fua: bool) -> Result<(), Errno> {
        self.fill(at, len, b'-');
        self.called(Call::Trim(at, len, fua))
    }

    fn write_zeroes(&self, at: u64, len: u64, how: WriteZeroes) -> Result<(), Errno> {
        self.fill(at, len, 0);
        self.called(Call::Zeroes(at, len, how.no_hole, how.fua))
    }
}

/// Asks for so many sectors from one on.
fn asked(device: &Memory, operation: u32, sector: u64, sectors: u32, data: &mut [u8]) -> i32 {
    let shape = Shape::of(device).unwrap();
    let wanted = Descriptor { operation, sectors, sector, ..Descriptor::default() };
    answer(device, &shape, &wanted, data)
}

#[test]
fn each_request_is_its_call_with_its_bytes() {
    let device = Memory::new();
    let mut data = vec![b'w'; 64 << 10];
    let fua = |operation: u8| u32::from(operation) | FUA;
    assert_eq!(asked(&device, WRITE.into(), 8, 16, &mut data), 8192);
    assert_eq!(asked(&device, fua(WRITE), 24, 8, &mut data), 4096);
    data.fill(0);
    assert_eq!(asked(&device, READ.into(), 0, 40, &mut data), 20480);
    let found = |range: std::ops::Range<usize>, byte| data[range].iter().all(|one| *one == byte);
    assert!(found(0..4096, b'.') && found(4096..16384, b'w'), "what was written, where it was");
    assert!(
        found(16384..20480, b'.') && found(20480..65536, 0),
        "and no more is read than asked for"
    );
    assert_eq!(asked(&device, FLUSH.into(), 0, 0, &mut data), 0);
    assert_eq!(asked(&device, DISCARD.into(), 0, 8, &mut data), 4096);
    assert_eq!(asked(&device, fua(WRITE_ZEROES), 8, 8, &mut data), 4096);
    assert_eq!(asked(&device, u32::from(WRITE_ZEROES) | NO_UNMAP, 16, 8, &mut data), 4096);
    let calls = [
        Call::Write(4096, 8192, false),
        Call::Write(12288, 4096, true),
        Call::Read(0, 20480),
        Call::Flush,
        Call::Trim(0, 4096, false),
        Call::Zeroes(4096, 4096, false, true),
        Call::Zeroes(8192, 4096, true, false),
    ];
    assert_eq!(device.asked(), calls);
}

#[test]
fn what_is_not_whole_blocks_of_the_device_is_refused() {
    let device = Memory::new();
    let mut data = vec![0; 1 << 20];
    let invalid = -22;
    let last = SIZE / SECTOR_BYTES - 8;
    for operation in [READ, WRITE, DISCARD, WRITE_ZEROES] {
        let mut ask =
            |sector, sectors| asked(&device, operation.into(), sector, sectors, &mut data);
        assert_eq!(ask(last, 8), 4096, "the last block");
        for (sector, sectors) in [
            (0, 0),
            (1, 8),
            (0, 7),
            (0, 1),
            (last, 16),
            (last + 8, 8),
            (0, u32::MAX),
            (u64::MAX, 8),
            (u64::MAX - 7, 8),
            // Byte numbers that begin anew at 0 as 64 bits, and lengths as 32.
            (1 << 55, 8),
            (0, (1 << 23) + 8),
        ] {
            assert_eq!(ask(sector, sectors), invalid, "{operation}: {sectors} from {sector} on");
        }
    }
    assert_eq!(device.asked().len(), 4, "the device has heard of none of that");
    assert_eq!(asked(&device, READ.into(), 0, 16, &mut data[..4096]), invalid, "no room for it");
    for operation in [4, 6, 10, 15, 18, 255] {
        assert_eq!(asked(&device, operation, 0, 8, &mut data), -95, "{operation}");
    }
    assert_eq!(device.asked(), []);
}

#[test]
fn requests_are_as_long_as_the_kernel_was_told_and_no_longer() {
    let device = Memory::new();
    *device.bytes.lock().unwrap() = vec![0; 2 * RANGE_BYTES as usize];
    let mut data = vec![0; 2 * DATA_BYTES as usize];
    for (operation, most) in [
        (READ, DATA_BYTES),
        (WRITE, DATA_BYTES),
        (DISCARD, RANGE_BYTES),
        (WRITE_ZEROES, RANGE_BYTES),
    ] {
        let sectors = most / SECTOR_BYTES as u32;
        assert_eq!(asked(&device, operation.into(), 8, sectors, &mut data), most.cast_signed());
        assert_eq!(asked(&device, operation.into(), 8, sectors + 8, &mut data), -22, "{operation}");
    }
}

#[test]
fn a_device_that_has_become_smaller_is_asked_for_what_it_has() {
    let device = Memory::new();
    let shape = Shape::of(&device).unwrap();
    device.bytes.lock().unwrap().truncate(8192);
    let wanted =
        |sector| Descriptor { operation: READ.into(), sectors: 8, sector, ..Descriptor::default() };
    let mut data = vec![0; 4096];
    assert_eq!(answer(&device, &shape, &wanted(8), &mut data), 4096);
    assert_eq!(answer(&device, &shape, &wanted(16), &mut data), -22);
}

#[test]
fn errors_of_the_device_are_the_kernels_numbers() {
    for (error, number) in [(Errno::EIO, -5), (Errno::ENOSPC, -28), (Errno::EPERM, -1)] {
        let device = Memory { broken: Some(error), ..Memory::new() };
        for operation in [READ, WRITE, FLUSH, DISCARD, WRITE_ZEROES] {
            assert_eq!(asked(&device, operation.into(), 0, 8, &mut [0; 4096]), number);
        }
    }
}

#[test]
fn nothing_is_written_to_what_is_read_only() {
    let device = Memory { read_only: true, ..Memory::new() };
    for operation in [WRITE, DISCARD, WRITE_ZEROES] {
        assert_eq!(asked(&device, operation.into(), 0, 8, &mut [b'x'; 4096]), -1);
    }
    assert_eq!(device.asked(), []);
    assert_eq!(asked(&device, READ.into(), 0, 8, &mut [0; 4096]), 4096);
    assert_eq!(asked(&device, FLUSH.into(), 0, 0, &mut []), 0);
}

#[test]
fn the_kernel_is_told_what_the_device_is() {
    let device = Memory::new();
    let parameters = Shape::of(&device).unwrap().parameters(&device);
    assert_eq!((parameters.logical_shift, parameters.physical_shift), (12, 12));
    assert_eq!((parameters.sectors, parameters.parts), (SIZE / 512, BASIC | DISCARDS));
    assert_eq!(parameters.attributes, 0, "what is written is durable: there is no cache to flush");
    assert_eq!((parameters.max_sectors, parameters.max_discard_sectors), (1024, 32768));
    let sizes = BlockSizes::new(512, 4096, BlockSizes::MAX).unwrap();
    let device = Memory { sizes, read_only: true, write_through: false, ..Memory::new() };
    device.bytes.lock().unwrap().truncate(5 * 512 + 100);
    let parameters = Shape::of(&device).unwrap().parameters(&device);
    assert_eq!((parameters.logical_shift, parameters.physical_shift), (9, 12));
    assert_eq!(parameters.sectors, 5, "whole blocks");
    assert_eq!(parameters.attributes, READ_ONLY | VOLATILE_CACHE | HAS_FUA);
    device.bytes.lock().unwrap().truncate(511);
    assert_eq!(Shape::of(&device), None, "not one block");
    let sizes = BlockSizes::new(8192, 8192, BlockSizes::MAX).unwrap();
    assert_eq!(Shape::of(&Memory { sizes, ..Memory::new() }), None, "blocks larger than pages");
    let any = Memory { sizes: BlockSizes::default(), ..Memory::new() };
    assert_eq!(Shape::of(&any).unwrap().block_bytes, 512, "no kernel has smaller ones");
}

proptest! {
    /// Any bytes where a descriptor is: a call within the device, or an error, and nothing else.
    #[test]
    fn any_descriptor_is_answered(
        operation in prop_oneof![any::<u32>(), 0..8_u32],
        sectors in prop_oneof![any::<u32>(), 0..200_u32],
        sector in prop_oneof![any::<u64>(), 0..200_u64],
    ) {
        let device = Memory::new();
        let mut data = vec![0; DATA_BYTES as usize];
        let told = asked(&device, operation, sector, sectors, &mut data);
        let calls = device.asked();
        prop_assert_eq!(calls.len(), usize::from(told >= 0));
        prop_assert!(told <= SIZE as i32);
    }
}
