//! A pool that is full: writes are short, what is there can be overwritten, and all can be
//! removed again.

use std::io::Write;

use crate::common::{errno, pool};

#[test]
fn a_write_writes_what_there_is_room_for() {
    let pool = pool(16);
    let mut file = pool.create_new("f").unwrap();
    let data = vec![1; 32 << 20];
    let written = file.write_at(&data, 0).unwrap();
    assert!((8 << 20..16 << 20).contains(&written), "{written}");
    assert_eq!(file.len().unwrap(), written as u64);
    let mut rest = written;
    while let Ok(more) = file.write_at(&data, rest as u64) {
        assert!(more > 0);
        rest += more;
    }
    assert_eq!(errno(file.write_at(&data, rest as u64)), libc::ENOSPC);
    assert!(file.write(&data).unwrap() > 0, "what is there can be overwritten");
    let told = file.write_all_at(&data, 0).unwrap_err();
    assert_eq!(told.errno(), libc::ENOSPC);
    assert_eq!(std::io::Error::from(told).kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), rest as u64);
    // All of it or nothing.
    assert_eq!(errno(file.append(&data)), libc::ENOSPC);
    assert_eq!(file.len().unwrap(), rest as u64);
    assert_eq!(errno(file.allocate(0, 1 << 30, false)), libc::ENOSPC);
    pool.remove_file("f").unwrap();
    drop(file);
    pool.write("g", &data[..8 << 20]).unwrap();
}

#[test]
fn an_append_by_position_is_short_too() {
    let pool = pool(16);
    let mut options = lode::OpenOptions::new();
    let mut file = pool.open_with("f", options.append(true).create(true)).unwrap();
    let data = vec![1; 32 << 20];
    let mut size = 0;
    loop {
        match file.write(&data) {
            Ok(written) => size += written as u64,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
                break;
            }
        }
        assert_eq!(file.len().unwrap(), size);
    }
    assert!(size > 8 << 20, "{size}");
    assert_eq!(errno(pool.write("g", &data)), libc::ENOSPC);
}
