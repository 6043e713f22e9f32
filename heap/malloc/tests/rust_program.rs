//! A Rust program whose allocator is the pool's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../preload/tests/common/owner.rs"]
#[allow(dead_code)]
mod owner;

#[path = "../../preload/tests/common/other.rs"]
mod other;

use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;

use lode_malloc::{Error, LodeAlloc, Method, Provider, Settings};

#[global_allocator]
static MEMORY: LodeAlloc = LodeAlloc;

#[test]
#[ignore = "the other process of the test below"]
fn the_owner() {
    other::serve();
}

#[test]
fn a_rust_programs_memory_is_the_pools() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let early: Vec<u8> = vec![1; 100_000];
    let settings = Settings::new(socket.as_os_str().as_bytes(), Method::Direct).unwrap();
    assert_eq!(Provider::open(&settings).unwrap_err(), Error::NoOwner);
    let mut owner = other::Other::start(&socket, 300);
    let provider =
        other::until_met(|| Provider::open(&settings).map_err(|it| it == Error::NoOwner));

    let mut large: Vec<u64> = (0..4 << 20).collect();
    let out = owner.out();
    assert!(out >= 16, "{out}");
    large.extend(0..4 << 20);
    assert!(large.iter().enumerate().all(|(at, it)| *it == at as u64 % (4 << 20)));
    let texts: Vec<String> = (0..100_000).map(|it| it.to_string()).collect();
    let handed_on = std::thread::spawn(move || texts.iter().map(String::len).sum::<usize>());
    assert_eq!(handed_on.join().unwrap(), 488_890);
    drop(large);
    lode_malloc::purge();
    let out = owner.out();
    assert!(out <= 10, "{out}");

    // Below the allocator: whole chunks.
    let block = provider.alloc(5 << 20, 4096, true).unwrap();
    // SAFETY: the block has so many bytes, and nobody else has it.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(block.as_ptr().cast::<u8>(), 5 << 20);
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        assert_eq!(provider.free(NonNull::<u64>::dangling().cast()), Err(Error::NoBlock));
        provider.free(block).unwrap();
        assert_eq!(provider.free(block), Err(Error::NoBlock));
    }
    assert!(provider.stats().idle >= 6 << 20);
    assert!(provider.purge() >= 6 << 20);
    assert_eq!(provider.stats().idle, 0);
    // What was used before is zeros again.
    let again = provider.alloc(5 << 20, 4096, true).unwrap();
    // SAFETY: as above.
    unsafe {
        let bytes = std::slice::from_raw_parts(again.as_ptr().cast::<u8>(), 5 << 20);
        assert!(bytes.iter().all(|byte| *byte == 0));
        provider.free(again).unwrap();
    }
    assert_eq!(early, [1; 100_000]);
}
