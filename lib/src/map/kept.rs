//! A heap in a mapped file: blocks that outlive the program.
//!
//! What a heap is, and how it survives crashes, is `lode-kept`'s; its memory is [`Pieces`]. It is of a pool that is open in this process, or in
//! another one.

use std::path::Path;
use std::sync::Arc;

use lode_kept::{Block, CHUNK_BYTES, Content, Heap, Stats};
use parking_lot::Mutex;

use super::attached::Attached;
use super::pieces::{Backing, Maps, Pieces};
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
    owner: Owner,
}

/// Who has the pool open.
enum Owner {
    /// This process.
    Own(Claim),
    /// Another one.
    Other { _attached: Attached },
}

/// That nobody else has the file, or changes it. (It ends behind the maps.)
pub(super) struct Claim(Arc<Open>);

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
        let maps = Arc::new(Maps::default());
        let mut pieces = Pieces::new(Backing::Own(file), &maps);
        let pass = open.enter()?;
        let heap = if is_new {
            Heap::create(pieces, CHUNK_BYTES, lode_host::random())?
        } else {
            pieces.map_all(open.enter()?.getattr(open.ino())?.size)?;
            Heap::open(pieces)?
        };
        drop(pass);
        Ok(Self { heap: Mutex::new(heap), maps, owner: Owner::Own(claim) })
    }

    /// Opens the heap in the file at `path` of a pool that another process has open, a mount or `lode heap serve`, whose control socket is at
    /// `socket`; or makes it, in one step. `path` is of names from the pool's root on (the mount's, where that is a directory of it), with no link among them.
    ///
    /// It is this process that loads, stores and makes durable, as in its own pool; the owner is asked when the heap is opened, grows and is
    /// closed. When the owner is gone, by whatever end, each call is `ENOTCONN`, and what is stored by an address reaches the pool no more: it is to be
    /// opened again, and is as a crash of this program would have left it. While it is open the pool is not rolled back, and no snapshot is made.
    ///
    /// # Errors
    /// As [`KeptHeap::open`]: `EBUSY` while anybody has it open already. Those of connecting; `ELOOP` for a link; `EPROTO` from who is no owner of
    /// a pool, or one that keeps no heaps for others.
    pub fn attach(socket: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Self> {
        let (socket, path) = (socket.as_ref(), path.as_ref());
        loop {
            match Self::attach_once(socket, path) {
                // Somebody else was faster to make it.
                Err(Cause::Number(libc::EEXIST)) => {}
                result => return result.map_err(|cause| Error::at(cause, path)),
            }
        }
    }

    fn attach_once(socket: &Path, path: &Path) -> Outcome<Self> {
        let maps = Arc::new(Maps::default());
        let path = path.to_str().ok_or(Cause::NotText)?;
        let (attached, told) = Attached::open(socket, path, &maps)?;
        let mut pieces = Pieces::new(Backing::Other(Arc::clone(attached.link())), &maps);
        let heap = if told.is_new {
            let heap = Heap::create(pieces, CHUNK_BYTES, lode_host::random())?;
            attached.link().name()?;
            heap
        } else {
            pieces.map_all(told.bytes)?;
            Heap::open(pieces)?
        };
        Ok(Self { heap: Mutex::new(heap), maps, owner: Owner::Other { _attached: attached } })
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
        self.maps.address(at)
    }

    /// The offset of what is at this address; `None` where that is not in the heap.
    pub fn offset(&self, pointer: *const u8) -> Option<u64> {
        self.maps.offset(pointer as u64)
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
        Ok(self.maps.with((at, into.len() as u64), |view, from| view.load(from, into))?)
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
        Ok(self.maps.with((at, len), |view, from| view.store(from, bytes))?)
    }

    /// Makes bytes of blocks durable, whoever stored them. (It has to be this: where a change of the heap was of the same words, it
    /// would come again after a crash otherwise.)
    ///
    /// # Errors
    /// `EFAULT` outside of the heap; `EIO`.
    pub fn persist(&self, range: std::ops::Range<u64>) -> Result<()> {
        let len = range.end.checked_sub(range.start).ok_or(Cause::Number(libc::EFAULT))?;
        self.with(|heap| heap.before_persist(range.start, len))?;
        Ok(self.maps.with((range.start, len), |view, from| view.persist(from, len))?)
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
        let _pass = match &self.owner {
            Owner::Own(claim) => Some(claim.0.enter()?),
            Owner::Other { .. } => None,
        };
        let done = work(&mut heap);
        // (A heap of which a change has failed says so from then on: that the owner is gone is why.)
        if done.is_err() && self.maps.are_over() {
            return Err(Cause::OwnerGone.into());
        }
        Ok(done.map_err(Cause::from)?)
    }
}
