//! Borrowers of pages of files: as long as one may store to a region whose owner is gone, nobody opens it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lode_pmem::{Borrowed, Lent, Mapped, Medium, RegionError, RegionOptions, ViewOptions};

const PAGE: u64 = 4096;
const HOW: ViewOptions = ViewOptions { writable: true, align: PAGE, phase: 0 };

fn region(path: &Path) -> Mapped {
    Mapped::create(path, 64 * PAGE, &RegionOptions::default(), false).unwrap()
}

fn open(path: &Path) -> Result<Mapped, RegionError> {
    Mapped::open(path, &RegionOptions::default())
}

/// Pages 3, 8 and 9 of a region, in another order.
fn lent(region: &Mapped, number: u64, path: &Path) -> (Borrowed, Lent) {
    let descriptor = region.marked_descriptor(number).unwrap();
    let borrowed = Borrowed::new(descriptor, region.bytes(), path).unwrap();
    let lent = borrowed.map(&[(8 * PAGE, 2 * PAGE), (3 * PAGE, PAGE)], &HOW).unwrap();
    (borrowed, lent)
}

fn word(region: &Mapped, at: u64) -> u64 {
    region.load_word(at).unwrap()
}

#[test]
fn nobody_opens_a_region_that_a_borrower_of_a_former_owner_may_store_to() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()];
    for (dir, read_only) in dirs.into_iter().zip([false, true]) {
        let path = dir.path().join("region");
        let region = region(&path);
        let (borrowed, memory) = lent(&region, 7, &path);
        assert!(region.is_marked(7).unwrap() && !region.is_marked(8).unwrap());
        memory.view().store(2 * PAGE + 8, &5_u64.to_le_bytes()).unwrap();
        memory.view().persist(2 * PAGE + 8, 8).unwrap();
        assert_eq!(word(&region, 3 * PAGE + 8), 5);
        drop(region);
        let options = RegionOptions { read_only, ..RegionOptions::default() };
        let refused = Mapped::open(&path, &options);
        assert!(matches!(refused, Err(RegionError::Busy { .. })), "{refused:?}");
        // Who sees that the owner is gone lets go: who opens it waits for that.
        let (tell, told) = mpsc::channel();
        let letting_go = thread::spawn(move || {
            told.recv_timeout(Duration::from_secs(20)).unwrap();
            memory.let_go(&borrowed);
            borrowed.unmark().unwrap();
            (borrowed, memory)
        });
        tell.send(()).unwrap();
        let region = open(&path).unwrap();
        let (borrowed, memory) = letting_go.join().unwrap();
        // It has what was there, and what it stores is its own affair.
        let mut bytes = [0; 8];
        memory.view().load(2 * PAGE + 8, &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), 5);
        for at in [8, 2 * PAGE + 8] {
            memory.view().store(at, &9_u64.to_le_bytes()).unwrap();
            memory.view().persist(at, 8).unwrap();
        }
        assert_eq!((word(&region, 3 * PAGE + 8), word(&region, 8 * PAGE + 8)), (5, 0));
        drop((borrowed, memory));
        // One that has died has let go, too.
        let (borrowed, memory) = lent(&region, 9, &path);
        drop(memory);
        drop((region, borrowed));
        open(&path).unwrap();
    }
}

#[test]
fn what_is_mapped_to_be_read_takes_no_stores() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("region");
    let region = region(&path);
    let borrowed = Borrowed::new(region.marked_descriptor(3).unwrap(), 64 * PAGE, &path).unwrap();
    let parts = [(3 * PAGE, PAGE)];
    borrowed.map(&parts, &HOW).unwrap().view().store(0, &[7; 64]).unwrap();
    let how = ViewOptions { writable: false, ..HOW };
    let memory = borrowed.map(&parts, &how).unwrap();
    let mut read = [0; 64];
    memory.view().load(0, &mut read).unwrap();
    assert_eq!(read, [7; 64]);
    assert!(!memory.view().is_writable());
    assert!(memory.view().store(0, &[8; 64]).is_err());
}

#[test]
fn nothing_is_mapped_that_is_outside_or_no_whole_pages() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("region");
    let region = region(&path);
    let descriptor = region.marked_descriptor(1).unwrap();
    let borrowed = Borrowed::new(descriptor, 16 * PAGE, &path).unwrap();
    let wrong: [&[(u64, u64)]; 6] = [
        &[],
        &[(0, 0)],
        &[(1, PAGE)],
        &[(0, 100)],
        &[(0, PAGE), (16 * PAGE, PAGE)],
        &[(u64::MAX - PAGE + 1, 2 * PAGE)],
    ];
    for parts in wrong {
        let refused = borrowed.map(parts, &HOW);
        assert!(matches!(refused, Err(RegionError::Unviewable { .. })), "{parts:?}");
    }
    let descriptor = region.marked_descriptor(2).unwrap();
    assert!(Borrowed::new(descriptor, 65 * PAGE, &path).is_err());
}
