//! Collections that are handed the pool's allocator, in a program whose other memory is its system's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../preload/tests/common/owner.rs"]
#[allow(dead_code)]
mod owner;

#[path = "../../preload/tests/common/other.rs"]
mod other;

use std::alloc::Layout;
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use hashbrown_of_std::{DefaultHashBuilder, HashMap};
use lode_malloc::{Error, LARGE, LodeAlloc, Method, Provider, Settings, stats};

const MIB: u64 = 1 << 20;

#[test]
#[ignore = "the other process of the test below"]
fn the_owner() {
    other::serve();
}

/// A line of the processor's: what has to lie so.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(align(64))]
struct Aligned(u64);

/// (One test: what is counted is the process's.)
#[test]
fn collections_have_the_pools_memory_grow_by_their_pages_and_give_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let settings = Settings::new(socket.as_os_str().as_bytes(), Method::Direct).unwrap();
    let mut owner = other::Other::start(&socket, 300);
    let provider =
        other::until_met(|| Provider::open(&settings).map_err(|it| it == Error::NoOwner));
    let before = stats();
    assert_eq!(before.dram, 0, "{before:?}");

    let mut numbers: Vec<u64, LodeAlloc> = Vec::new_in(LodeAlloc);
    numbers.extend(0..4 << 20);
    let grown = stats();
    assert!(grown.pool >= before.pool + 32 * MIB && grown.dram == 0, "{grown:?}");
    // (Where it had been copied, there would have been two.)
    assert!(grown.pool_peak <= grown.pool + 8 * MIB, "{grown:?}");
    assert!(owner.out() >= 16);
    assert!(numbers.iter().enumerate().all(|(at, it)| *it == at as u64));
    numbers.truncate(2 << 20);
    numbers.shrink_to_fit();
    let shrunk = stats();
    assert!(shrunk.pool <= grown.pool - 16 * MIB, "{grown:?} {shrunk:?}");
    assert!(numbers.iter().enumerate().all(|(at, it)| *it == at as u64));

    // Two that grow by turns are in each other's way: what moves are pages, whatever their elements need.
    let mut lines: [Vec<Aligned, LodeAlloc>; 2] = [Vec::new_in(LodeAlloc), Vec::new_in(LodeAlloc)];
    for number in 0..1 << 18 {
        lines.iter_mut().for_each(|lines| lines.push(Aligned(number)));
    }
    let moved = stats().moved - shrunk.moved;
    assert!(moved >= LARGE as u64, "{moved}");
    for lines in &lines {
        assert!((lines.as_ptr() as usize).is_multiple_of(64));
        assert!(lines.iter().enumerate().all(|(at, it)| *it == Aligned(at as u64)));
    }
    drop(lines);

    let mut map = HashMap::with_hasher_in(DefaultHashBuilder::default(), LodeAlloc);
    for number in 0..300_000_u64 {
        map.insert(number, Box::new_in([number; 3], LodeAlloc));
    }
    (0..300_000).step_by(2).for_each(|number| assert!(map.remove(&number).is_some()));
    map.shrink_to_fit();
    assert_eq!(map.len(), 150_000);
    assert!(map.iter().all(|(key, value)| key % 2 == 1 && **value == [*key; 3]));
    let mapped = stats();
    assert!(mapped.pool >= shrunk.pool + 4 * MIB && mapped.dram == 0, "{mapped:?}");

    drop((numbers, map));
    lode_malloc::purge();
    let after = stats();
    assert!(after.pool <= before.pool + MIB && after.idle == 0, "{before:?} {after:?}");
    assert!(owner.out() <= 3, "{after:?}");
    assert_eq!(provider.stats(), after);
    lengths_and_places_are_those_that_were_asked_for();
}

fn bytes_of(block: NonNull<[u8]>) -> &'static mut [u8] {
    // SAFETY: the block is the test's alone, which has stored to all of it, or had it zeroed.
    unsafe { &mut *block.as_ptr() }
}

fn lengths_and_places_are_those_that_were_asked_for() {
    let layout = |bytes, align| Layout::from_size_align(bytes, align).unwrap();
    let sizes = [0, 1, 8, 24, 5000, 300_000, 3 << 20, LARGE, LARGE + 1, 20 << 20];
    let lies_so = |block: NonNull<[u8]>, layout: Layout| {
        assert_eq!(block.len(), layout.size(), "{layout:?}");
        assert!(
            (block.cast::<u8>().as_ptr() as usize).is_multiple_of(layout.align()),
            "{layout:?}"
        );
    };
    // SAFETY: each block is handed back with the layout that it has, once.
    unsafe {
        for align in [1, 2, 16, 64, 4096, 1 << 20, 2 << 20, 4 << 20] {
            // (Some of them, so that none lies right by chance.)
            let small = layout(8, align);
            let many = [(); 9].map(|()| LodeAlloc.allocate(small).unwrap());
            many.iter().for_each(|block| lies_so(*block, small));
            many.iter().for_each(|block| LodeAlloc.deallocate(block.cast(), small));
            for (at, bytes) in sizes.into_iter().enumerate() {
                let mut is = layout(bytes, align);
                let mut block = LodeAlloc.allocate_zeroed(is).unwrap();
                lies_so(block, is);
                assert!(bytes_of(block).iter().all(|byte| *byte == 0), "{is:?}");
                bytes_of(block).fill(7);
                for to in [sizes[sizes.len() - 1], sizes[at], sizes[at / 2], sizes[at]] {
                    let new = layout(to, align);
                    let old = is.size();
                    block = if to >= old {
                        LodeAlloc.grow_zeroed(block.cast(), is, new).unwrap()
                    } else {
                        LodeAlloc.shrink(block.cast(), is, new).unwrap()
                    };
                    lies_so(block, new);
                    let (kept, more) = bytes_of(block).split_at(old.min(to));
                    assert!(kept.iter().all(|byte| *byte == 7), "{is:?} {new:?}");
                    assert!(more.iter().all(|byte| *byte == 0), "{is:?} {new:?}");
                    bytes_of(block).fill(7);
                    is = new;
                }
                // Another alignment with it.
                let new = layout(bytes + 5000, 8192.max(align));
                block = LodeAlloc.grow(block.cast(), is, new).unwrap();
                lies_so(block, new);
                assert!(bytes_of(block)[..bytes].iter().all(|byte| *byte == 7));
                LodeAlloc.deallocate(block.cast(), new);
            }
        }
        // Large ones that are in each other's way, and lie at more than chunks do.
        let (is, new) = (layout(LARGE, 4 << 20), layout(LARGE + 1, 4 << 20));
        let many = [(); 4].map(|()| LodeAlloc.allocate(is).unwrap());
        for block in many.map(|block| LodeAlloc.grow(block.cast(), is, new).unwrap()) {
            lies_so(block, new);
            LodeAlloc.deallocate(block.cast(), new);
        }
        assert!(LodeAlloc.allocate(layout(1 << 46, 16)).is_err());
        let (one, too_many) = (layout(100, 8), layout(1 << 46, 8));
        let block = LodeAlloc.allocate_zeroed(one).unwrap();
        assert!(LodeAlloc.grow(block.cast(), one, too_many).is_err());
        assert!(bytes_of(block).iter().all(|byte| *byte == 0));
        LodeAlloc.deallocate(block.cast(), one);
    }
}
