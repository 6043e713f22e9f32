//! A heap in a mapped file: blocks that outlive the program.
//!
//! What a heap is, and how it survives crashes, is `lode-kept`'s. Here is its memory: the file, mapped in pieces, of which one more is
//! made each time that it grows. So what has an address keeps it for as long as the heap is open; the next opening has others.

use std::path::Path;
use std::sync::Arc;

use lode_kept::{Block, CHUNK_BYTES, Content, Heap, Memory, Stats};
use parking_lot::{Mutex, RwLock};

use super::{Map, MapOptions, PAGE};
use crate::error::{Cause, Error, Result};
use crate::file::{File, Open};
use crate::options::OpenOptions;
use crate::pool::Pool;

type Outcome<T> = std::result::Result<T, Cause>;

/// A heap in a file of a pool, whose blocks outlive the program and every crash.
///
/// A block has an *offset*, which stays its name, and an address ([`KeptHeap::pointer`]), which is another one at each opening: what is stored in blocks
/// are offsets. A block is allocated and its offset published, in the root ([`crate::ROOT`]) or in a word of another block, in one atomic
/// step; so is it freed. No crash leaves a block that nothing names, nor one that was given to two.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// use lode::{Content, FormatOptions, KeptHeap, PoolOptions, ROOT};
///
/// let pool = PoolOptions::new().create(&path, 16 << 20, &FormatOptions::default())?;
/// let heap = KeptHeap::open(&pool, "things")?;
/// let list = heap.alloc_into(ROOT, 64, Content::Zeros)?;
/// let first = heap.alloc_into(list, 100, Content::Bytes(b"a thing"))?;
/// heap.close()?;
///
/// let heap = KeptHeap::open(&pool, "things")?;
/// assert_eq!((heap.root()?, heap.word(list)?), (list, first));
/// heap.store(first, b"A")?;
/// heap.persist(first..first + 1)?;
/// heap.free_from(list)?;
/// assert_eq!(heap.word(list)?, 0);
/// # Ok(())
/// # }
/// ```
///
/// What a program stores to a block itself is durable when [`KeptHeap::persist`] of it has returned; of other stores a crash
/// leaves some, each aligned word wholly. Any thread may call anything; calls that change the heap take turns.
///
/// A heap is open once at a time in a pool, and its file is its own: who writes to it, cuts it or makes holes in it while it is open gets `EBUSY`.
/// (What was cut short while nobody had it open is not opened again: [`crate::HeapFault::CutShort`].) Snapshots may be made at any time, and have
/// the heap as a crash would have left it then.
pub struct KeptHeap {
    heap: Mutex<Heap<Pieces>>,
    maps: Arc<Maps>,
    open: Arc<Open>,
    _claim: Claim,
}

/// That nobody else has the file, or changes it. (It ends behind the maps.)
struct Claim(Arc<Open>);

impl Claim {
    fn new(open: &Arc<Open>) -> Outcome<Self> {
        match open.writable()?.claim(open.held()?) {
            Ok(()) => Ok(Self(Arc::clone(open))),
            Err(lode_engine::Error::Busy) => Err(Cause::HeapInUse),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let (Ok(pass), Ok(held)) = (self.0.enter(), self.0.held()) {
            pass.end_claim(held);
        }
    }
}

/// The maps of a heap's file, each behind the one before; they stay until the heap is closed.
struct Maps(RwLock<Vec<Piece>>);

/// A part of the file that is mapped in one piece.
struct Piece {
    at: u64,
    map: Map,
}

impl KeptHeap {
    /// Opens the heap in the file at `path`, or makes it, in one step: the file is there with the heap in it, or not at all. What a crash
    /// has cut off is done or undone by that. All words that say what is used are looked at.
    ///
    /// # Errors
    /// As [`Pool::open_with`] and [`File::map`]; `EBUSY` while it is open already; [`Error::heap`] says what is wrong with a file that holds something
    /// else (`EINVAL`), or a heap that is damaged or cut short (`EIO`).
    pub fn open(pool: &Pool, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        loop {
            match pool.open_with(path, OpenOptions::new().read(true).write(true)) {
                Ok(file) => {
                    return Self::of(file, false).map_err(|cause| Error::at(cause, path));
                }
                Err(error) if error.errno() != libc::ENOENT => return Err(error),
                Err(_) => {}
            }
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let file = pool.temporary(directory.unwrap_or("/".as_ref()))?;
            let named = file.try_clone()?;
            let heap = Self::of(file, true).map_err(|cause| Error::at(cause, path))?;
            match named.link(path) {
                Ok(()) => return Ok(heap),
                // Somebody else was faster.
                Err(error) if error.errno() == libc::EEXIST => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn of(file: File, is_new: bool) -> Outcome<Self> {
        let open = Arc::clone(&file.open);
        let claim = Claim::new(&open)?;
        let maps = Arc::new(Maps(RwLock::default()));
        let mut pieces = Pieces { file, maps: Arc::clone(&maps), bytes: 0 };
        let pass = open.enter()?;
        let heap = if is_new {
            Heap::create(pieces, CHUNK_BYTES, lode_host::random())?
        } else {
            pieces.map_all()?;
            Heap::open(pieces)?
        };
        drop(pass);
        Ok(Self { heap: Mutex::new(heap), maps, open, _claim: claim })
    }

    /// The block that is the root, or 0.
    ///
    /// # Errors
    /// `EIO`.
    pub fn root(&self) -> Result<u64> {
        Ok(self.heap.lock().root().map_err(Cause::from)?)
    }

    /// Makes a block the root, or none by 0, in one atomic step, durable when this returns.
    ///
    /// # Errors
    /// `EINVAL` for what is no block; `EIO`.
    pub fn set_root(&self, block: u64) -> Result<()> {
        self.with(|heap| heap.set_root(block))
    }

    /// Allocates a block of `bytes` bytes at least and publishes its offset in the word at `place`: [`crate::ROOT`], or an aligned word of a block. Both, or neither
    /// after a crash; durable when this returns, what it holds included. What the word held is overwritten. Returns the offset, a multiple
    /// of 16; of 4096 for more than 2016 bytes.
    ///
    /// It costs a fence, two with content.
    ///
    /// # Errors
    /// `EFAULT` for what is no place; `EFBIG`; `ENOSPC`, `ENOMEM` where the heap has to grow: nothing has changed then. `EIO`: it may be done or not,
    /// and the heap has to be opened again.
    pub fn alloc_into(&self, place: u64, bytes: u64, content: Content<'_>) -> Result<u64> {
        self.with(|heap| heap.alloc_into(place, bytes, content))
    }

    /// Frees the block that the word at `place` names, which is 0 then; both, or neither. Returns the offset that it had.
    ///
    /// # Errors
    /// `EFAULT` for what is no place, `EINVAL` where it names no block; `EIO`.
    pub fn free_from(&self, place: u64) -> Result<u64> {
        self.with(|heap| heap.free_from(place))
    }

    /// Changes up to [`crate::WORDS_MOST`] words in one atomic step, durable when this returns, by one fence: each a place as for [`KeptHeap::alloc_into`], and what it
    /// becomes. So blocks are moved from one place to another, or a list is linked at both ends.
    ///
    /// # Errors
    /// `EFAULT` for what is no place, `EINVAL` for a root that is no block, `EFBIG` for more words; `EIO`.
    pub fn change(&self, words: &[(u64, u64)]) -> Result<()> {
        self.with(|heap| heap.change(words))
    }

    /// Bytes that may be used of the block that begins at this offset.
    ///
    /// # Errors
    /// `EINVAL` where none does.
    pub fn usable_size(&self, block: u64) -> Result<u64> {
        Ok(self.heap.lock().block(block).map_err(Cause::from)?.bytes)
    }

    /// The block that the byte at this offset is in.
    pub fn block_around(&self, at: u64) -> Option<Block> {
        self.heap.lock().block_around(at)
    }

    /// The first block that begins behind this offset: from 0 on, all of them in turn.
    pub fn block_behind(&self, at: u64) -> Option<Block> {
        self.heap.lock().block_behind(at)
    }

    /// Figures of now. All blocks are counted.
    pub fn stats(&self) -> Stats {
        self.heap.lock().stats()
    }

    /// Where the byte at this offset is, until the heap is closed. To the end of its block the bytes are one behind the other; between blocks,
    /// addresses may be apart. `None` outside of the heap.
    pub fn pointer(&self, at: u64) -> Option<*mut u8> {
        let address = |map: &Map, from: u64| Ok(map.as_ptr().wrapping_add(from as usize));
        self.maps.with((at, 0), address).ok()
    }

    /// The offset of what is at this address; `None` where that is not in the heap.
    pub fn offset(&self, pointer: *const u8) -> Option<u64> {
        let maps = self.maps.0.read();
        maps.iter().find_map(|piece| {
            let inside = (pointer as u64).checked_sub(piece.map.as_ptr() as u64)?;
            (inside < piece.map.len()).then_some(piece.at + inside)
        })
    }

    /// The aligned word at this offset, little-endian.
    ///
    /// # Errors
    /// `EFAULT` outside of the heap; `EIO` for bad memory.
    pub fn word(&self, at: u64) -> Result<u64> {
        let mut word = [0; 8];
        self.load(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Loads bytes from an offset on.
    ///
    /// # Errors
    /// `EFAULT` outside of the heap, and across what lies apart; `EIO` for bad memory.
    pub fn load(&self, at: u64, into: &mut [u8]) -> Result<()> {
        Ok(self.maps.with((at, into.len() as u64), |map, from| map.load(from, into))?)
    }

    /// Stores bytes to a block.
    ///
    /// # Errors
    /// `EFAULT` outside of a block.
    pub fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let is_inside =
            |block: Block| at.checked_add(len).is_some_and(|end| end <= block.offset + block.bytes);
        if !self.block_around(at).is_some_and(is_inside) {
            return Err(Cause::Number(libc::EFAULT).into());
        }
        Ok(self.maps.with((at, len), |map, from| map.store(from, bytes))?)
    }

    /// Makes bytes of blocks durable, whoever stored them. (It has to be this: where a change of the heap was of the same words, it
    /// would come again after a crash otherwise.)
    ///
    /// # Errors
    /// `EFAULT` outside of the heap; `EIO`.
    pub fn persist(&self, range: std::ops::Range<u64>) -> Result<()> {
        let len = range.end.checked_sub(range.start).ok_or(Cause::Number(libc::EFAULT))?;
        self.with(|heap| heap.before_persist(range.start, len))?;
        Ok(self.maps.with((range.start, len), |map, from| map.persist(from..from + len))?)
    }

    /// Closes the heap, with nothing left for the next opening to do. (Dropped, it is as after a crash.)
    ///
    /// # Errors
    /// `EIO`.
    pub fn close(self) -> Result<()> {
        self.with(Heap::settle)
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut Heap<Pieces>) -> lode_kept::Result<T, Cause>,
    ) -> Result<T> {
        let mut heap = self.heap.lock();
        let _pass = self.open.enter()?;
        Ok(work(&mut heap).map_err(Cause::from)?)
    }
}

impl Maps {
    /// Does `work` with the map that all of these bytes are in, and where in it they begin.
    fn with<T>(
        &self,
        (at, bytes): (u64, u64),
        work: impl FnOnce(&Map, u64) -> Result<T>,
    ) -> Outcome<T> {
        let maps = self.0.read();
        let behind = maps.partition_point(|piece| piece.at <= at);
        let piece = behind.checked_sub(1).and_then(|last| maps.get(last));
        let fits = |piece: &&Piece| {
            let from = at - piece.at;
            let is_inside = from.checked_add(bytes).is_some_and(|end| end <= piece.map.len());
            is_inside && from < piece.map.len()
        };
        let piece = piece.filter(fits).ok_or(Cause::Number(libc::EFAULT))?;
        work(&piece.map, at - piece.at).map_err(Error::into_cause)
    }
}

/// The memory of a heap.
struct Pieces {
    file: File,
    maps: Arc<Maps>,
    /// That are mapped.
    bytes: u64,
}

impl Pieces {
    /// Maps what there is of the file: whole chunks, so that none begins in one piece and ends in another.
    fn map_all(&mut self) -> Outcome<()> {
        let len = self.file.len_or_cause()?;
        let whole = if len < CHUNK_BYTES { PAGE } else { CHUNK_BYTES };
        match len - len % whole {
            0 => Ok(()),
            bytes => self.map_to(bytes),
        }
    }

    fn map_to(&mut self, bytes: u64) -> Outcome<()> {
        let (at, options) = (self.bytes, MapOptions { write: true, populate: false });
        let map = self.file.map(at, bytes - at, &options).map_err(Error::into_cause)?;
        self.maps.0.write().push(Piece { at, map });
        self.bytes = bytes;
        Ok(())
    }

    fn extend(&self, to: u64) -> Outcome<()> {
        let open = &self.file.open;
        Ok(open.writable()?.grow_claimed(open.held()?, to)?)
    }
}

impl Memory for Pieces {
    type Error = Cause;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Outcome<()> {
        self.maps.with((at, into.len() as u64), |map, from| map.load(from, into))
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Outcome<()> {
        self.maps.with((at, bytes.len() as u64), |map, from| map.store(from, bytes))
    }

    fn write_back(&self, at: u64, bytes: u64) -> Outcome<()> {
        self.maps.with((at, bytes), |map, from| map.write_back(from..from + bytes))
    }

    fn fence(&self, parts: &[(u64, u64)]) -> Outcome<()> {
        for (at, bytes) in parts {
            let is_all = self.maps.with((*at, *bytes), |map, from| {
                map.fence(from..from + bytes)?;
                Ok(map.view().fences_all())
            })?;
            if is_all {
                return Ok(());
            }
        }
        Ok(())
    }

    fn grow(&mut self, bytes: u64) -> Outcome<()> {
        // The more there is the more is added at once: each time is a map.
        let wanted = bytes.max(self.bytes.saturating_add(self.bytes / 8));
        let whole = |bytes: u64| bytes.checked_next_multiple_of(CHUNK_BYTES);
        let least = whole(bytes).ok_or(Cause::Number(libc::EFBIG))?;
        let wanted = whole(wanted).unwrap_or(least);
        if self.extend(wanted).is_ok() {
            return self.map_to(wanted);
        }
        self.extend(least)?;
        self.map_to(least)
    }

    fn is_seam(&self, at: u64) -> bool {
        at > 0 && self.maps.0.read().iter().any(|piece| piece.at == at)
    }
}
