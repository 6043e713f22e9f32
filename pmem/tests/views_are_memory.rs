//! A view shows the parts of a region that it was made of, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::{PAGE, disk, shm};
use lode_pmem::{
    Counters, Door, Mapped, MediaError, RegionError, RegionOptions, View, ViewOptions,
};

const PLAIN: ViewOptions = ViewOptions { writable: true, align: PAGE, phase: 0 };

fn region(directory: &tempfile::TempDir, pages: u64) -> Door<Mapped> {
    let options = RegionOptions::new();
    let region = Mapped::create(directory.path().join("pool"), pages * PAGE, &options, false);
    Door::new(region.unwrap())
}

/// A view that can be stored to.
fn open(door: &Door<Mapped>, parts: &[(u64, u64)], options: &ViewOptions) -> View {
    let view = door.medium().view(parts, options, None).unwrap();
    view.allow(0, view.bytes()).unwrap();
    view
}

/// Puts the number of each page into its first word.
fn number(door: &Door<Mapped>, pages: u64) {
    let counters = Counters::new();
    for page in 0..pages {
        door.window(8, &counters).store_word(page * PAGE, page);
    }
    door.fence(&counters).unwrap();
}

fn shown(view: &View) -> Vec<u64> {
    let pages = 0..view.bytes() / PAGE;
    pages.map(|page| word(view, page * PAGE)).collect()
}

fn word(view: &View, at: u64) -> u64 {
    let mut bytes = [0; 8];
    view.load(at, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// A store of the program itself.
fn store(view: &View, at: u64, value: u64) {
    // SAFETY: an aligned word inside of a writable view.
    unsafe { view.as_ptr().add(at as usize).cast::<u64>().write_volatile(value) };
}

#[test]
fn it_shows_its_parts_in_their_order_and_both_sides_see_stores() {
    for directory in [shm(), disk()] {
        let door = region(&directory, 16);
        number(&door, 16);
        let parts = [(3 * PAGE, PAGE), (9 * PAGE, 2 * PAGE), (11 * PAGE, PAGE), (0, PAGE)];
        for populate in [false, true] {
            let view = open(&door, &parts, &PLAIN);
            if populate {
                view.populate().unwrap();
            }
            assert_eq!(shown(&view), [3, 9, 10, 11, 0]);
            assert_eq!(view.durability(), door.medium().durability());
        }
        let view = open(&door, &parts, &PLAIN);
        store(&view, 8, 77);
        assert_eq!(door.load_word(3 * PAGE + 8), Ok(77));
        let counters = Counters::new();
        door.window(8, &counters).store_word(9 * PAGE + 16, 78);
        assert_eq!(word(&view, PAGE + 16), 78);
        // Through the view as through the region.
        view.stream(4 * PAGE + 3, &[5; 50]).unwrap();
        view.store(4 * PAGE + 53, &[5; 50]).unwrap();
        view.persist(4 * PAGE + 3, 100).unwrap();
        let mut found = [0; 102];
        door.load(2, &mut found).unwrap();
        assert_eq!((found[0], &found[1..101], found[101]), (0, &[5; 100][..], 0));
    }
}

#[test]
fn what_is_persisted_is_in_the_file() {
    for directory in [shm(), disk()] {
        let door = region(&directory, 8);
        let view = open(&door, &[(2 * PAGE, 2 * PAGE), (6 * PAGE, PAGE)], &PLAIN);
        store(&view, PAGE, 1);
        store(&view, 2 * PAGE + 64, 2);
        view.persist(PAGE - 10, PAGE + 100).unwrap();
        view.write_back(0, view.bytes()).unwrap();
        view.fence(0, view.bytes()).unwrap();
        let file = std::fs::read(directory.path().join("pool")).unwrap();
        assert_eq!((file[3 * PAGE as usize], file[6 * PAGE as usize + 64]), (1, 2));
        let bytes = view.bytes();
        for (at, len) in [(0, bytes + 1), (bytes, 1), (u64::MAX, 2)] {
            let outside = Err(MediaError::OutOfBounds { at, len });
            assert_eq!(view.persist(at, len), outside);
            assert_eq!(view.fence(at, len), outside);
            assert!(view.stream(at.max(bytes - 1), &[0; 2]).is_err());
        }
    }
}

#[test]
fn it_lies_where_large_pages_can_be_mapped() {
    const HUGE: u64 = 2 << 20;
    let directory = shm();
    let door = region(&directory, 3 * HUGE / PAGE);
    for (align, phase) in
        [(PAGE, 0), (HUGE, 0), (HUGE, 5 * PAGE), (1 << 30, HUGE), (HUGE, 7 * HUGE)]
    {
        let options = ViewOptions { align, phase, ..PLAIN };
        for _ in 0..3 {
            let view = open(&door, &[(HUGE, 2 * HUGE)], &options);
            assert_eq!(view.as_ptr() as u64 % align, phase % align);
            assert_eq!(view.bytes(), 2 * HUGE);
        }
    }
}

#[test]
fn parts_can_be_replaced_under_its_users() {
    let directory = shm();
    let door = region(&directory, 16);
    number(&door, 16);
    let view = open(&door, &[(0, 4 * PAGE)], &PLAIN);
    view.replace(PAGE, &[(8 * PAGE, PAGE), (12 * PAGE, PAGE)]).unwrap();
    assert_eq!(shown(&view), [0, 8, 12, 3]);
    view.allow(PAGE, 2 * PAGE).unwrap();
    store(&view, 2 * PAGE + 8, 5);
    assert_eq!(door.load_word(12 * PAGE + 8), Ok(5));
    for (at, len) in [(3 * PAGE, 2 * PAGE), (4 * PAGE, PAGE), (8, PAGE), (u64::MAX - 4095, PAGE)] {
        assert!(view.replace(at, &[(0, len)]).is_err(), "{at} +{len}");
    }
    assert_eq!(shown(&view), [0, 8, 12, 3]);
}

#[test]
fn what_can_not_be_mapped_is_refused() {
    let directory = shm();
    let door = region(&directory, 4);
    let bad: [&[(u64, u64)]; 7] = [
        &[],
        &[(0, 0)],
        &[(0, 100)],
        &[(64, PAGE)],
        &[(3 * PAGE, 2 * PAGE)],
        &[(0, PAGE), (u64::MAX - 4095, PAGE)],
        &[(u64::MAX - 4095, u64::MAX - 4095)],
    ];
    for parts in bad {
        let refused = door.medium().view(parts, &PLAIN, None).unwrap_err();
        assert!(matches!(refused, RegionError::Unviewable { .. }), "{parts:?}: {refused}");
    }
    let memory = Mapped::anonymous(4 * PAGE, &RegionOptions::new()).unwrap();
    let refused = memory.view(&[(0, PAGE)], &PLAIN, None).unwrap_err();
    assert_eq!(refused.to_string(), "parts of anonymous memory can't be mapped: it has no file");
}

#[test]
fn of_a_region_open_read_only_it_can_not_be_written() {
    let directory = shm();
    drop(region(&directory, 4));
    let options = RegionOptions::new().read_only(true);
    let region = Mapped::open(directory.path().join("pool"), &options).unwrap();
    let view = region.view(&[(PAGE, PAGE)], &PLAIN, None).unwrap();
    assert!(!view.is_writable() && view.store(0, &[1]).is_err() && view.stream(0, &[1]).is_err());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let start = format!("{:x}-", view.as_ptr() as usize);
    let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
    assert!(line.contains(" r--s "), "{line}");
}

#[test]
fn its_address_space_is_given_back() {
    let directory = shm();
    let door = region(&directory, 8);
    let view = open(&door, &[(0, PAGE), (4 * PAGE, PAGE)], &PLAIN);
    let start = view.as_ptr() as usize;
    drop(view);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let holds = |line: &str| {
        let mut ends =
            line.split([' ', '-']).map(|end| usize::from_str_radix(end, 16).unwrap_or(0));
        let (from, to) = (ends.next().unwrap(), ends.next().unwrap());
        // (What another test has mapped there by now has another directory.)
        (from..to).contains(&start) && line.contains(directory.path().to_str().unwrap())
    };
    assert!(!maps.lines().any(holds));
}

#[test]
fn what_waits_for_stores_is_there_for_loads_all_the_same() {
    let directory = shm();
    let door = region(&directory, 8);
    number(&door, 8);
    // (As it is between a snapshot that is made and the first store.)
    let view = door.medium().view(&[(0, 8 * PAGE)], &PLAIN, None).unwrap();
    view.populate().unwrap();
    assert_eq!(shown(&view), (0..8).collect::<Vec<_>>());
}
