//! What a heap lies in: the simulated memory itself, or a mapped file of a pool in it.

use lode_engine::{Error as EngineError, Fallocate, Handle, NewInode, Pool, mode};
use lode_kept::Memory;
use lode_pmem::{Counters, Door, MediaError};
use lode_testkit::TestHost;

use crate::region::Simulated;

/// What a heap lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ground {
    /// The memory, from its beginning on.
    Bare,
    /// A file that is mapped, of a pool.
    File,
}

impl Ground {
    /// Bytes of the memory.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Bare => 14 << 14,
            Self::File => 384 << 10,
        }
    }
}

/// Why memory can't be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    Media(MediaError),
    Engine(EngineError),
    Full,
}

/// The pool's side.
pub(super) type HeapPool = Pool<Simulated, TestHost>;

pub(super) struct OfPool {
    pub(super) pool: HeapPool,
    pub(super) file: Handle<TestHost>,
}

/// The memory of a heap.
pub(super) struct Lies {
    pub(super) medium: Simulated,
    of: Option<OfPool>,
    bytes: u64,
    /// Where parts of it are: its own offset, the medium's, and the length.
    parts: Vec<(u64, u64, u64)>,
    counters: Counters,
}

pub(super) const NAME: &[u8] = b"heap";

fn host() -> TestHost {
    TestHost::in_order(1, 1)
}

impl Lies {
    /// All of the memory.
    pub(super) fn bare(medium: Simulated, bytes: u64) -> Self {
        Self { medium, of: None, bytes, parts: vec![(0, 0, bytes)], counters: Counters::new() }
    }

    /// The file of the pool that is opened in the memory; made if it is not there.
    pub(super) fn file(medium: Simulated) -> Result<Self, Trouble> {
        let pool = Pool::open(medium.clone(), host(), &Default::default());
        let pool = pool.map_err(Trouble::Engine)?;
        let ino = match pool.lookup(pool.root(), NAME) {
            Ok(attr) => attr.ino,
            Err(EngineError::NotFound) => {
                let new = NewInode { mode: mode::FILE | 0o600, uid: 0, gid: 0, rdev: 0 };
                pool.create(pool.root(), NAME, &new).map_err(Trouble::Engine)?.ino
            }
            Err(error) => return Err(Trouble::Engine(error)),
        };
        let file = pool.hold(ino).map_err(Trouble::Engine)?;
        let bytes = pool.getattr(ino).map_err(Trouble::Engine)?.size;
        let of = Some(OfPool { pool, file });
        let mut lies = Self { medium, of, bytes: 0, parts: Vec::new(), counters: Counters::new() };
        lies.map_to(bytes)?;
        Ok(lies)
    }

    /// Makes a pool for such a file.
    pub(super) fn format(medium: &Simulated) -> Result<(), Trouble> {
        let format = lode_engine::FormatOptions { lanes: 1, ..Default::default() };
        Pool::format(medium.clone(), host(), &format).map(drop).map_err(Trouble::Engine)
    }

    fn map_to(&mut self, bytes: u64) -> Result<(), Trouble> {
        if let Some(OfPool { pool, file }) = self.of.as_ref().filter(|_| bytes > self.bytes) {
            let mapped = pool.map(file, self.bytes, bytes - self.bytes);
            for extent in mapped.map_err(Trouble::Engine)? {
                self.parts.push((extent.file_offset, extent.pool_offset, extent.bytes));
            }
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Hands each piece of these bytes to `each`: its place in the medium, and where it begins and ends in them.
    fn pieces(
        &self,
        at: u64,
        len: u64,
        each: &mut dyn FnMut(u64, usize, usize) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        assert!(at + len <= self.bytes, "{at:#x} +{len:#x} is outside of the heap");
        let mut done = at;
        while done < at + len {
            let part =
                self.parts.iter().find(|(from, _, bytes)| (*from..from + bytes).contains(&done));
            let (from, to, bytes) = part.expect("all of it is mapped");
            let end = (from + bytes).min(at + len);
            each(to + (done - from), (done - at) as usize, (end - at) as usize)?;
            done = end;
        }
        Ok(())
    }
}

impl Memory for Lies {
    type Error = Trouble;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Trouble> {
        let door = Door::new(&self.medium);
        self.pieces(at, into.len() as u64, &mut |place, from, to| {
            door.load(place, &mut into[from..to]).map_err(Trouble::Media)
        })
    }

    #[track_caller]
    fn store(&self, at: u64, bytes: &[u8]) -> Result<(), Trouble> {
        let door = Door::new(&self.medium);
        self.pieces(at, bytes.len() as u64, &mut |place, from, to| {
            door.window((to - from) as u64, &self.counters).store(place, &bytes[from..to]);
            Ok(())
        })
    }

    #[track_caller]
    fn write_back(&self, at: u64, bytes: u64) -> Result<(), Trouble> {
        let door = Door::new(&self.medium);
        let mut pieces = Vec::new();
        self.pieces(at, bytes, &mut |place, from, to| {
            pieces.push((place, (to - from) as u64));
            Ok(())
        })?;
        // (Not in a closure: whose code it is has to be known.)
        for (place, len) in pieces {
            door.window(0, &self.counters).flush(place, len);
        }
        Ok(())
    }

    #[track_caller]
    fn fence(&self, parts: &[(u64, u64)]) -> Result<(), Trouble> {
        assert!(parts.iter().all(|(at, bytes)| at + bytes <= self.bytes));
        Door::new(&self.medium).fence(&self.counters).map_err(Trouble::Media)
    }

    fn grow(&mut self, bytes: u64) -> Result<(), Trouble> {
        let Some(OfPool { pool, file }) = &self.of else {
            if bytes > self.medium.seen().bytes() {
                return Err(Trouble::Full);
            }
            self.parts.push((self.bytes, self.bytes, bytes - self.bytes));
            self.bytes = bytes;
            return Ok(());
        };
        let how = Fallocate::Allocate { keep_size: false };
        let grown = pool.fallocate(file.ino(), how, self.bytes, bytes - self.bytes);
        grown.map_err(Trouble::Engine)?;
        self.map_to(bytes)
    }
}
