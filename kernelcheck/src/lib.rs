//! The engine as a kernel would hold it: every operation, instantiated without std.
//!
//! The engine is generic code; this crate makes machine code of it, with a medium and a host
//! that stand in for a kernel's, so that a test can look at that code: which helpers it
//! calls, how large its stack frames are. Nothing here is ever run.
#![no_std]
#![allow(clippy::missing_errors_doc)]

extern crate alloc;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lode_engine::{
    Attr, CheckReport, DirEntry, Fallocate, FormatOptions, Gauges, Host, Ino, InodeDump, NewInode,
    OpenOptions, Opening, Pool, PoolInfo, RenameMode, Result, SetAttr, StatFs, Stats,
};
use lode_pmem::{Line, MediaError, Medium};

/// A medium of borrowed words.
pub struct Words(&'static [AtomicU64]);

impl Words {
    fn word(&self, at: u64) -> Option<&AtomicU64> {
        self.0.get((at / 8) as usize)
    }
}

impl Medium for Words {
    type Window = ();

    fn bytes(&self) -> u64 {
        self.0.len() as u64 * 8
    }

    fn open(&self) {}

    fn close(&self, _window: &mut ()) {}

    fn load_word(&self, at: u64) -> core::result::Result<u64, MediaError> {
        let word = self.word(at).ok_or(MediaError::Poisoned { at })?;
        Ok(word.load(Relaxed))
    }

    fn load(&self, at: u64, into: &mut [u8]) -> core::result::Result<(), MediaError> {
        for (index, byte) in into.iter_mut().enumerate() {
            let at = at + index as u64;
            *byte = (self.load_word(at)? >> (at % 8 * 8)) as u8;
        }
        Ok(())
    }

    fn store_word(&self, _window: &mut (), at: u64, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Relaxed);
        }
    }

    fn store_bytes(&self, _window: &mut (), at: u64, bytes: &[u8]) {
        let Some(word) = self.word(at) else { return };
        for (index, &byte) in bytes.iter().enumerate() {
            word.fetch_xor(u64::from(byte) << ((at + index as u64) % 8 * 8), Relaxed);
        }
    }

    fn store_line(&self, window: &mut (), at: u64, line: &Line) {
        for (index, &byte) in line.0.iter().enumerate() {
            self.store_word(window, at + index as u64, u64::from(byte));
        }
    }

    fn stream_word(&self, window: &mut (), at: u64, value: u64) {
        self.store_word(window, at, value);
    }

    fn write_back(&self, _window: &mut (), at: u64) {
        if let Some(word) = self.word(at) {
            word.fetch_or(0, Relaxed);
        }
    }

    fn fence(&self) -> core::result::Result<(), lode_pmem::MediaError> {
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        Ok(())
    }
}

/// A host of numbers and spinning locks.
pub struct Numbers(AtomicU64);

impl Host for Numbers {
    type Mutex = spin::Mutex<()>;
    type RwLock = spin::RwLock<()>;

    fn now_ns(&self) -> i64 {
        self.0.load(Relaxed) as i64
    }

    fn cpu(&self) -> usize {
        self.0.load(Relaxed) as usize
    }

    fn cpus(&self) -> usize {
        self.0.load(Relaxed) as usize
    }

    fn random(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }

    fn parallel(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..jobs).for_each(job);
    }
}

/// The pool of a kernel.
pub type KernelPool = Pool<Words, Numbers>;

macro_rules! instances {
    ($($name:ident($($arg:ident: $of:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("[`Pool::", stringify!($name), "`]")]
            #[inline(never)]
            pub fn $name(pool: &KernelPool, $($arg: $of),*) -> $result {
                pool.$name($($arg),*)
            }
        )*
    };
}

/// [`Pool::format`]
#[inline(never)]
pub fn format(words: &'static [AtomicU64], options: &FormatOptions) -> Result<()> {
    Pool::format(Words(words), Numbers(AtomicU64::new(0)), options)
}

/// [`Pool::open`]
#[inline(never)]
pub fn open(words: &'static [AtomicU64], options: &OpenOptions) -> Result<KernelPool> {
    Pool::open(Words(words), Numbers(AtomicU64::new(0)), options)
}

/// Dropping a pool.
#[inline(never)]
pub fn drop_pool(pool: KernelPool) {
    drop(pool);
}

instances! {
    close() -> Result<()>;
    opening() -> Opening;
    info() -> Result<PoolInfo>;
    stats() -> Stats;
    statfs() -> StatFs;
    gauges() -> Result<Gauges>;
    root() -> Ino;
    lookup(dir: Ino, name: &[u8]) -> Result<Attr>;
    getattr(ino: Ino) -> Result<Attr>;
    setattr(ino: Ino, changes: &SetAttr) -> Result<Attr>;
    create(dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr>;
    symlink(dir: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr>;
    readlink(ino: Ino) -> Result<Vec<u8>>;
    link(ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr>;
    unlink(dir: Ino, name: &[u8]) -> Result<()>;
    rmdir(dir: Ino, name: &[u8]) -> Result<()>;
    rename(dir: Ino, name: &[u8], to: Ino, to_name: &[u8], how: RenameMode) -> Result<()>;
    acquire(ino: Ino) -> Result<()>;
    release(ino: Ino) -> ();
    read(ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize>;
    write(ino: Ino, offset: u64, data: &[u8]) -> Result<()>;
    append(ino: Ino, data: &[u8]) -> Result<u64>;
    fallocate(ino: Ino, how: Fallocate, offset: u64, len: u64) -> Result<()>;
    seek(ino: Ino, offset: u64, data: bool) -> Result<u64>;
    readdir(dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()>;
    parent(dir: Ino) -> Result<Ino>;
    fsync(ino: Ino) -> Result<()>;
    maintain() -> Result<()>;
    lend(spared: u64) -> Result<u64>;
    give_back(chunk: u64) -> Result<()>;
    lent() -> Result<Vec<u64>>;
    check(progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport>;
    dump_inode(ino: Ino) -> Result<InodeDump>;
    for_each_inode(each: &mut dyn FnMut(Ino) -> bool) -> Result<()>;
}
