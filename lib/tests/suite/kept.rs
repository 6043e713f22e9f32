//! Kept heaps: blocks that are where they were, whatever the address, in a file of a pool.

use std::collections::BTreeSet;
use std::thread;

use crate::common::{PoolFile, errno, pool, scratch};
use lode::{
    Block, Content, Damage, FormatOptions, HeapFault, KeptHeap, MapOptions, OpenOptions, PageSize,
    Pool, PoolOptions, Protection, ROOT,
};

const MIB: u64 = 1 << 20;

fn blocks(heap: &KeptHeap) -> Vec<Block> {
    std::iter::successors(heap.block_behind(0), |last| heap.block_behind(last.offset)).collect()
}

/// A list: each block begins with the offset of the next one, and holds its number behind that.
fn push(heap: &KeptHeap, head: u64, number: u64, bytes: u64) -> lode::Result<u64> {
    let words = [heap.word(head).unwrap(), number].map(u64::to_le_bytes);
    heap.alloc_into(head, bytes.max(16), Content::Bytes(words.as_flattened()))
}

fn list(heap: &KeptHeap, head: u64) -> Vec<u64> {
    let (mut at, mut numbers) = (heap.word(head).unwrap(), Vec::new());
    while at != 0 {
        numbers.push(heap.word(at + 8).unwrap());
        at = heap.word(at).unwrap();
    }
    numbers
}

/// The pool as the death of its program now would leave it.
fn crashed(of: &PoolFile) -> (tempfile::TempDir, Pool) {
    let dir = scratch();
    let copy = dir.path().join("copy");
    std::fs::copy(&of.path, &copy).unwrap();
    let pool = Pool::open(&copy).unwrap();
    (dir, pool)
}

#[test]
fn it_is_the_same_at_another_address() {
    let file = PoolFile::new(32);
    let pool = file.open();
    pool.create_dir("d").unwrap();
    let heap = KeptHeap::open(&pool, "d/heap").unwrap();
    let root = heap.alloc_into(ROOT, 64, Content::Zeros).unwrap();
    for number in 0..1000 {
        push(&heap, root, number, 16 + number * 7 % 3000).unwrap();
    }
    let (all, first) = (blocks(&heap), heap.pointer(root).unwrap());
    assert_eq!(heap.offset(first), Some(root));
    // At the same time, elsewhere: the same offsets lead through it.
    let view = pool.open_file("d/heap").unwrap();
    let view = view.map(0, view.len().unwrap(), &MapOptions::new()).unwrap();
    assert_ne!(view.as_ptr() as u64, heap.pointer(0).unwrap() as u64);
    let word = |at: u64| {
        let mut word = [0; 8];
        view.load(at, &mut word).unwrap();
        u64::from_le_bytes(word)
    };
    let mut at = word(root);
    for number in (0..1000).rev() {
        assert_eq!(word(at + 8), number);
        at = word(at);
    }
    // A crash, and another process's maps.
    let (_dir, copy) = crashed(&file);
    let again = KeptHeap::open(&copy, "d/heap").unwrap();
    assert_ne!(again.pointer(root), Some(first));
    assert_eq!((blocks(&again), again.root().unwrap()), (all.clone(), root));
    assert_eq!(list(&again, root), (0..1000).rev().collect::<Vec<_>>());
    heap.close().unwrap();
    drop(view);
    let heap = KeptHeap::open(&pool, "d/heap").unwrap();
    assert_eq!(blocks(&heap), all);
}

#[test]
fn it_grows_and_what_has_an_address_keeps_it() {
    let file = PoolFile::new(96);
    let pool = file.open();
    let heap = KeptHeap::open(&pool, "heap").unwrap();
    let root = heap.alloc_into(ROOT, 2000, Content::Zeros).unwrap();
    let pointer = heap.pointer(root).unwrap();
    for number in 0..40 {
        let bytes = [100_000, MIB, 5 * MIB][number as usize % 3];
        let block = heap.alloc_into(root + 8 * number, bytes, Content::Stale).unwrap();
        heap.store(block + bytes - 5, b"ended").unwrap();
        let (from, to) = (heap.pointer(block).unwrap(), heap.pointer(block + bytes - 1).unwrap());
        assert_eq!(to as u64 - from as u64, bytes - 1, "a block is in one piece");
        if heap.stats().bytes > 60 * MIB {
            break;
        }
    }
    assert_eq!(heap.pointer(root), Some(pointer));
    assert!(pool.metadata("heap").unwrap().len() > 60 * MIB);
    let all = blocks(&heap);
    drop(heap);
    assert_eq!(blocks(&KeptHeap::open(&pool, "heap").unwrap()), all);
}

#[test]
fn a_full_pool_is_an_error_that_changes_nothing() {
    let file = PoolFile::new(16);
    let pool = file.open();
    let heap = KeptHeap::open(&pool, "heap").unwrap();
    let root = heap.alloc_into(ROOT, 16, Content::Zeros).unwrap();
    let mut count = 0;
    let refused = loop {
        match push(&heap, root, count, 30_000) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.errno(), libc::ENOSPC, "{refused}");
    assert!(count > 200 && refused.heap().is_none());
    assert_eq!(errno(heap.alloc_into(root + 8, 1 << 40, Content::Stale)), libc::ENOSPC);
    assert_eq!(errno(heap.alloc_into(root + 8, 1 << 60, Content::Stale)), libc::EFBIG);
    assert_eq!(list(&heap, root).len() as u64, count);
    // Small ones still fit, and what is freed can be had again.
    heap.alloc_into(root + 8, 64, Content::Zeros).unwrap();
    heap.free_from(root + 8).unwrap();
    let first = heap.word(root).unwrap();
    heap.change(&[(root, heap.word(first).unwrap()), (root + 8, first)]).unwrap();
    heap.free_from(root + 8).unwrap();
    push(&heap, root, 7, 30_000).unwrap();
    assert_eq!(blocks(&heap).len() as u64, count + 1);
}

#[test]
fn what_a_program_stores_itself_is_there_once_it_was_persisted() {
    let file = PoolFile::new(16);
    let pool = file.open();
    let heap = KeptHeap::open(&pool, "heap").unwrap();
    let root = heap.alloc_into(ROOT, 64, Content::Zeros).unwrap();
    let block = heap.alloc_into(root, 64, Content::Zeros).unwrap();
    // Over the very words of the last change.
    heap.store(root, &[0; 8]).unwrap();
    heap.store(root + 8, &block.to_le_bytes()).unwrap();
    heap.persist(root..root + 16).unwrap();
    let (_dir, copy) = crashed(&file);
    let again = KeptHeap::open(&copy, "heap").unwrap();
    assert_eq!((again.word(root).unwrap(), again.word(root + 8).unwrap()), (0, block));
}

#[test]
fn what_it_is_not_asked_for_is_refused() {
    let file = PoolFile::new(16);
    let at = file.open();
    at.write("text", vec![b'x'; 10_000]).unwrap();
    at.write("empty", "").unwrap();
    for name in ["text", "empty"] {
        let error = KeptHeap::open(&at, name).map(drop).unwrap_err();
        assert_eq!((error.errno(), error.heap()), (libc::EINVAL, Some(HeapFault::NotAHeap)));
        assert!(error.to_string().contains(name), "{error}");
    }
    assert_eq!(at.read("text").unwrap(), vec![b'x'; 10_000]);
    assert_eq!(errno(KeptHeap::open(&at, "none/heap")), libc::ENOENT);
    assert_eq!(errno(KeptHeap::open(&at, "text/heap")), libc::ENOTDIR);
    assert_eq!(errno(KeptHeap::open(&pool(16), "heap")), libc::EOPNOTSUPP);
    let heap = KeptHeap::open(&at, "heap").unwrap();
    assert_eq!(errno(KeptHeap::open(&at, "heap")), libc::EBUSY);
    let block = heap.alloc_into(ROOT, 100, Content::Zeros).unwrap();
    assert_eq!(errno(heap.alloc_into(block + 128, 1, Content::Zeros)), libc::EFAULT);
    assert_eq!(errno(heap.free_from(block)), libc::EINVAL);
    assert_eq!(errno(heap.set_root(block + 16)), libc::EINVAL);
    assert_eq!(errno(heap.usable_size(block + 16)), libc::EINVAL);
    assert_eq!(heap.usable_size(block).unwrap(), 128);
    // Its own words are nobody's to store to.
    for at in [0, 64, block - 64, block + 128, 3 * MIB, u64::MAX] {
        assert_eq!(errno(heap.store(at, b"x")), libc::EFAULT, "{at}");
    }
    assert_eq!(errno(heap.load(4 * MIB, &mut [0])), libc::EFAULT);
    assert_eq!(errno(heap.persist(8..4 * MIB)), libc::EFAULT);
    assert_eq!(heap.pointer(4 * MIB), None);
    assert_eq!(at.clone().close().map_err(|error| error.errno()), Err(libc::EBUSY));
}

#[test]
fn a_heap_that_was_cut_short_or_damaged_is_told_so() {
    let file = PoolFile::new(32);
    let pool = file.open();
    let heap = KeptHeap::open(&pool, "heap").unwrap();
    heap.alloc_into(ROOT, 5 * MIB, Content::Zeros).unwrap();
    let (bytes, wanted) = (2 * MIB, heap.stats().bytes);
    heap.close().unwrap();
    let bad = pool.open_with("heap", OpenOptions::new().read(true).write(true)).unwrap();
    bad.write_all_at(&[1], 130).unwrap();
    let error = KeptHeap::open(&pool, "heap").map(drop).unwrap_err();
    let damaged = HeapFault::Damaged { at: 128, what: Damage::Header };
    assert_eq!((error.errno(), error.heap()), (libc::EIO, Some(damaged)));
    bad.write_all_at(&[0], 130).unwrap();
    bad.set_len(bytes).unwrap();
    let error = KeptHeap::open(&pool, "heap").map(drop).unwrap_err();
    let cut = HeapFault::CutShort { bytes, wanted };
    assert_eq!((error.errno(), error.heap()), (libc::EIO, Some(cut)));
}

#[test]
fn threads_change_it_side_by_side() {
    const THREADS: u64 = 4;
    let file = PoolFile::new(64);
    let pool = file.open();
    let heap = KeptHeap::open(&pool, "heap").unwrap();
    let root = heap.alloc_into(ROOT, 16 * THREADS, Content::Zeros).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (heap, head) = (&heap, root + 16 * thread);
            scope.spawn(move || {
                for number in 0..400 {
                    let block =
                        push(heap, head, number, 16 + (number * 37 + thread) % 5000).unwrap();
                    heap.store(block + 8, &(2 * number).to_le_bytes()).unwrap();
                    heap.persist(block + 8..block + 16).unwrap();
                    if number % 3 == 2 {
                        let next = heap.word(block).unwrap();
                        heap.change(&[(head, next), (head + 8, block)]).unwrap();
                        assert_eq!(heap.free_from(head + 8).unwrap(), block);
                    }
                }
            });
        }
    });
    let wanted: Vec<u64> = (0..400).rev().filter(|number| number % 3 != 2).map(|n| 2 * n).collect();
    let (_dir, copy) = crashed(&file);
    for heap in [heap, KeptHeap::open(&copy, "heap").unwrap()] {
        for thread in 0..THREADS {
            assert_eq!(list(&heap, root + 16 * thread), wanted);
        }
        let all = blocks(&heap);
        assert_eq!(all.len() as u64, 1 + THREADS * wanted.len() as u64);
        let apart: BTreeSet<u64> = all.iter().map(|block| block.offset).collect();
        assert_eq!(apart.len(), all.len());
    }
}

#[test]
fn a_snapshot_has_it_as_it_was() {
    let file = PoolFile::new(64);
    let pool = file.open();
    let heap = KeptHeap::open(&pool, "heap").unwrap();
    let root = heap.alloc_into(ROOT, 16, Content::Zeros).unwrap();
    (0..50).for_each(|number| drop(push(&heap, root, number, 500)));
    pool.create_snapshot("then").unwrap();
    (50..90).for_each(|number| drop(push(&heap, root, number, 9000)));
    heap.free_from(root).unwrap();
    assert_eq!(list(&heap, root), []);
    heap.close().unwrap();
    pool.close().unwrap();
    Pool::rollback(&file.path, "then").unwrap();
    let pool = file.open();
    let heap = KeptHeap::open(&pool, "heap").unwrap();
    assert_eq!(list(&heap, root), (0..50).rev().collect::<Vec<_>>());
    assert_eq!(blocks(&heap).len(), 51);
}

#[test]
fn it_is_whole_at_each_level_with_each_size_of_pages_and_by_msync() {
    let full =
        FormatOptions { protection: Protection::Full, dead_zone: 0, ..FormatOptions::default() };
    let huge = FormatOptions { page_size: PageSize::Huge, ..FormatOptions::default() };
    for format in [full, huge] {
        let file = PoolFile::with(64, &format);
        work_on(&file.open());
        let pool = file.open();
        found_in(&pool);
        assert!(pool.opening().unwrap().damage.is_empty());
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("pool");
    work_on(&PoolOptions::new().create(&path, 32 << 20, &FormatOptions::default()).unwrap());
    found_in(&Pool::open(&path).unwrap());
}

fn work_on(pool: &Pool) {
    let heap = KeptHeap::open(pool, "heap").unwrap();
    let root = heap.alloc_into(ROOT, 16, Content::Zeros).unwrap();
    for number in 0..100 {
        push(&heap, root, number, 90 * number).unwrap();
    }
}

fn found_in(pool: &Pool) {
    let heap = KeptHeap::open(pool, "heap").unwrap();
    assert_eq!(list(&heap, heap.root().unwrap()), (0..100).rev().collect::<Vec<_>>());
}

#[test]
fn nobody_else_changes_its_file_while_it_is_open() {
    let file = PoolFile::new(32);
    let pool = file.open();
    let heap = KeptHeap::open(&pool, "heap").unwrap();
    let root = heap.alloc_into(ROOT, 16, Content::Zeros).unwrap();
    (0..20).for_each(|number| drop(push(&heap, root, number, 3000)));
    let other = pool.open_with("heap", OpenOptions::new().read(true).write(true)).unwrap();
    let truncating = || pool.open_with("heap", OpenOptions::new().write(true).truncate(true));
    let refused = [
        other.set_len(0),
        other.set_len(1 << 30),
        other.punch_hole(0, MIB),
        other.zero_range(0, MIB, true),
        other.allocate(8 * MIB, MIB, false),
        other.allocate(0, MIB, true),
        other.write_all_at(b"x", 130),
        pool.write("heap", "another"),
        truncating().map(drop),
        KeptHeap::open(&pool, "heap").map(drop),
    ];
    let refused = refused.map(|result| result.map_err(|error| error.errno()));
    assert_eq!(refused, [Err(libc::EBUSY); 10]);
    // What no memory of the heap is in is nobody's affair.
    pool.rename("heap", "renamed").unwrap();
    pool.hard_link("renamed", "link").unwrap();
    let numbers: Vec<u64> = (0..20).rev().collect();
    assert_eq!(list(&heap, root), numbers);
    // It grows all the same.
    heap.alloc_into(root + 8, 9 * MIB, Content::Zeros).unwrap();
    heap.free_from(root + 8).unwrap();
    let free = pool.statfs().unwrap().pages_free;
    let pages = other.len().unwrap() / 4096;
    drop(other);
    pool.remove_file("renamed").unwrap();
    pool.remove_file("link").unwrap();
    assert!(
        pool.statfs().unwrap().pages_free < free + pages,
        "its pages are free while it is open"
    );
    heap.alloc_into(root + 8, 20_000, Content::Zeros).unwrap();
    assert_eq!(list(&heap, root), numbers);
    heap.close().unwrap();
    assert!(pool.statfs().unwrap().pages_free >= free + pages);

    // Closed, it is a file as any other.
    KeptHeap::open(&pool, "heap").unwrap().close().unwrap();
    let other = pool.open_with("heap", OpenOptions::new().read(true).write(true)).unwrap();
    other.punch_hole(0, MIB).unwrap();
    other.set_len(0).unwrap();
}
