//! Main memory of a pool by C's calls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../heap/preload/tests/common/owner.rs"]
#[allow(dead_code)]
mod owner;

#[path = "../../heap/preload/tests/common/other.rs"]
mod other;

use std::ffi::CString;
use std::io::Error;
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use lode_c::{
    lode_heap_alloc, lode_heap_close, lode_heap_free, lode_heap_open, lode_heap_purge,
    lode_heap_realloc, lode_heap_stats,
};

fn errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap()
}

#[test]
#[ignore = "the other process of the test below"]
fn the_owner() {
    other::serve();
}

#[test]
fn blocks_come_from_the_pool_and_go_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let socket = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: strings, handles, blocks and places as the header says.
    unsafe {
        assert!(lode_heap_open(socket.as_ptr(), c"other".as_ptr()).is_null());
        assert_eq!(errno(), libc::EINVAL);
        assert!(lode_heap_open(socket.as_ptr(), ptr::null()).is_null());
        assert_eq!(errno(), libc::ENOENT);
        let mut owner = other::Other::start(&path, 40);
        let open = || lode_heap_open(socket.as_ptr(), c"indirect".as_ptr());
        let heap = other::until_met(|| {
            let heap = open();
            if heap.is_null() { Err(errno() == libc::ENOENT) } else { Ok(heap) }
        });
        assert!(lode_heap_open(c"/other".as_ptr(), ptr::null()).is_null());
        assert_eq!(errno(), libc::EBUSY);

        let small = lode_heap_alloc(heap, 100, 64).cast::<u8>();
        assert!(!small.is_null() && small.addr().is_multiple_of(64));
        small.write_bytes(1, 100);
        let large = lode_heap_alloc(heap, 20 << 20, 0).cast::<u8>();
        large.write_bytes(2, 20 << 20);
        let larger = lode_heap_realloc(heap, large.cast(), 30 << 20).cast::<u8>();
        assert_eq!((*larger, *larger.add((20 << 20) - 1)), (2, 2));
        assert!(lode_heap_alloc(heap, 100 << 20, 0).is_null());
        assert_eq!(errno(), libc::ENOMEM);
        assert!(lode_heap_alloc(heap, 1, 3).is_null());
        assert_eq!(errno(), libc::EINVAL);

        let mut figures = lode_c::lode_heap_stats { ..Default::default() };
        assert_eq!(lode_heap_stats(heap, &raw mut figures), 0);
        assert_eq!(figures.held as usize, owner.out() << 21);
        assert!(figures.pool >= 30 << 20 && figures.dram == 0, "{}", figures.pool);
        assert_eq!(lode_heap_free(heap, larger.cast()), 0);
        assert_eq!(lode_heap_free(heap, small.cast()), 0);
        assert!(lode_heap_purge(heap) >= 30 << 20);
        assert!(owner.out() <= 2, "{}", owner.out());
        assert_eq!(lode_heap_close(heap), 0);
    }
}
