//! Snapshots of mapped files at level `full`: what they have of these has its checksums, and keeps them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lode_engine::{
    Error, FormatOptions, Handle, Ino, MapExtent, NewInode, OpenOptions, Pool, Protection, Shown,
    mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

const PAGE: u64 = 4096;

fn pool() -> TestPool {
    let (memory, host) = (Memory::new(8 << 20), TestHost::new(5));
    let (lanes, protection, dead_zone) = (2, Protection::Full, 0);
    let format = FormatOptions { lanes, protection, dead_zone, ..FormatOptions::default() };
    Pool::format(memory.clone(), host.clone(), &format).unwrap();
    Pool::open(memory, host, &OpenOptions::default()).unwrap()
}

fn bytes_of(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * at / 7 + at) as u8).collect()
}

/// A file that holds these bytes, open.
fn file(pool: &TestPool, name: &[u8], bytes: &[u8]) -> Handle<TestHost> {
    let new = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
    let ino = pool.create(pool.root(), name, &new).unwrap().ino;
    pool.write(ino, 0, bytes).unwrap();
    pool.hold(ino).unwrap()
}

fn read(pool: &TestPool, ino: Ino, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(pool.read(ino, 0, &mut bytes), Ok(len));
    bytes
}

/// What a snapshot has of the file `f`.
fn seen(pool: &TestPool, snapshot: &[u8], len: usize) -> Vec<u8> {
    let root = pool.snapshot_root(snapshot).unwrap();
    read(pool, pool.lookup(root, b"f").unwrap().ino, len)
}

/// Where byte `offset` of what was mapped is in the pool.
fn place(extents: &[MapExtent], offset: u64) -> u64 {
    let holds = |e: &&MapExtent| (e.file_offset..e.file_offset + e.bytes).contains(&offset);
    let extent = extents.iter().find(holds).unwrap();
    extent.pool_offset + (offset - extent.file_offset)
}

/// A map whose program does this while its stores are about to be held, for the first time, the second and so on.
struct Busy<F>(F, AtomicU32);

impl<F: Fn(u32) + Send + Sync> Shown for Busy<F> {
    fn protect(&self) -> Result<(), Error> {
        (self.0)(self.1.fetch_add(1, SeqCst));
        Ok(())
    }

    fn moved(&self, _from: &MapExtent, _to: u64) -> Result<(), Error> {
        Ok(())
    }

    fn allow(&self, _offset: u64, _len: u64) -> Result<(), Error> {
        Ok(())
    }
}

fn busy(act: impl Fn(u32) + Send + Sync + 'static) -> Arc<dyn Shown> {
    Arc::new(Busy(act, AtomicU32::new(0)))
}

#[test]
fn what_is_stored_until_stores_are_held_is_in_the_snapshot_with_its_checksums() {
    let pool = pool();
    let mut bytes = bytes_of(2 * PAGE as usize);
    let f = file(&pool, b"f", &bytes);
    let mut at = 0;
    let mut make = |extents: &[MapExtent]| {
        at = place(extents, PAGE + 500);
        let (memory, at) = (pool.medium().clone(), at);
        Ok(busy(move |time| {
            if time == 0 {
                memory.put(at, b"the last")
            }
        }))
    };
    let number = pool.map_shown(&f, (0, 2 * PAGE), true, &mut make).unwrap();
    pool.create_snapshot(b"a").unwrap();
    bytes[PAGE as usize + 500..][..8].copy_from_slice(b"the last");
    pool.medium().put(at + 2, b"X");
    assert!(seen(&pool, b"a", bytes.len()) == bytes);
    assert_eq!(pool.data_repairs().repaired, 1);
    pool.unmap_shown(&f, number);
    pool.let_go(f);
}

#[test]
fn who_stores_while_a_snapshot_is_being_made_waits_until_it_is_there() {
    let pool = Arc::new(pool());
    let f = file(&pool, b"f", &bytes_of(PAGE as usize));
    let g = file(&pool, b"g", &[7; PAGE as usize]);
    let ino = f.ino();
    let (allowed, thread) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    // The first file is whole when the second one's turn has come: who stores to it now would be in the snapshot.
    let first = {
        let (pool, allowed, thread) = (pool.clone(), allowed.clone(), thread.clone());
        busy(move |time| {
            if time == 0 {
                let (pool, allowed) = (pool.clone(), allowed.clone());
                let store = move || {
                    pool.allow_stores(ino, 0, 8).unwrap();
                    allowed.store(true, SeqCst);
                };
                *thread.lock().unwrap() = Some(std::thread::spawn(store));
            }
        })
    };
    let second = {
        let allowed = allowed.clone();
        busy(move |_| {
            for _ in 0..40 {
                std::thread::sleep(Duration::from_millis(5));
                assert!(!allowed.load(SeqCst), "it is stored to before the snapshot is made");
            }
        })
    };
    let show = |file, shown: &Arc<dyn Shown>| {
        pool.map_shown(file, (0, PAGE), true, &mut |_| Ok(shown.clone())).unwrap()
    };
    let numbers = [show(&f, &first), show(&g, &second)];
    pool.create_snapshot(b"a").unwrap();
    thread.lock().unwrap().take().unwrap().join().unwrap();
    assert!(allowed.load(SeqCst));
    // (What waited has its page to itself.)
    assert_eq!(pool.gauges().unwrap().exempt_pages, 1);
    for (file, number) in [f, g].into_iter().zip(numbers) {
        pool.unmap_shown(&file, number);
        pool.let_go(file);
    }
}

/// Damage in a page that a snapshot sees is never taken for what the page is to be, though the file is changed while it is mapped.
#[test]
fn what_a_snapshot_sees_of_a_mapped_file_stays_compared() {
    let pool = pool();
    let mut bytes = bytes_of(4 * PAGE as usize);
    let f = file(&pool, b"f", &bytes);
    let show =
        |make: &mut lode_engine::MakeShown<'_>| pool.map_shown(&f, (0, 4 * PAGE), true, make);
    let number = show(&mut |_| Ok(busy(|_| ()))).unwrap();
    assert_eq!(pool.gauges().unwrap().exempt_pages, 4);
    pool.create_snapshot(b"a").unwrap();
    assert_eq!(pool.gauges().unwrap().exempt_pages, 0);
    let before = bytes.clone();
    // What is written is moved, and exempt from then on; the rest is not.
    pool.write_held(&f, 10, &[9; 20]).unwrap();
    bytes[10..30].fill(9);
    assert_eq!(pool.gauges().unwrap().exempt_pages, 1);
    pool.allow_stores(f.ino(), 3 * PAGE, 5).unwrap();
    assert_eq!(pool.gauges().unwrap().exempt_pages, 2);
    let extents = pool.extents(&f, 0, 4 * PAGE).unwrap();
    let at = place(&extents, PAGE + 77);
    let right = pool.medium().get(at, 1)[0];
    pool.medium().put(at, &[right ^ 4]);
    pool.unmap_shown(&f, number);
    assert_eq!(pool.gauges().unwrap().exempt_pages, 0);
    assert!(read(&pool, f.ino(), bytes.len()) == bytes);
    assert!(seen(&pool, b"a", before.len()) == before);
    pool.let_go(f);
    let mut scrub = pool.begin_scrub().unwrap();
    while !scrub.is_over() {
        pool.scrub(&mut scrub, 1 << 20).unwrap();
    }
    assert_eq!((scrub.take_findings().len(), scrub.exempt_pages()), (0, 0));
}
