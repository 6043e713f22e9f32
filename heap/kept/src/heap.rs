//! A heap, and its calls.

use crate::error::{Error, Result};
use crate::layout::{PAGE, ROOT, Shape, Use, WORD, class_of, slot_at};
use crate::memory::Memory;
use crate::record::{WORDS_MOST, Words};
use crate::space::{Bits, Found, Piece, Space, turned};

/// A heap in a memory. Whoever has it has it alone; blocks' bytes are stored to through the memory, by whom and when they are wanted.
///
/// What is stored to a block is durable once it was written back and fenced, *after* [`Heap::before_persist`] of it: that the words of the last changes are
/// not stored again by the next opening, over what is there now.
pub struct Heap<M: Memory> {
    pub(crate) memory: M,
    pub(crate) shape: Shape,
    pub(crate) space: Space,
    /// The last change.
    pub(crate) number: u64,
    /// Words of the last two changes, whose records count: by their number's last bit.
    pub(crate) live: [Words; 2],
    pub(crate) failed: bool,
}

/// A block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Where it begins, in bytes from the heap's beginning.
    pub offset: u64,
    /// Bytes that may be used.
    pub bytes: u64,
}

/// What a new block holds when it is published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// Whatever was there. (Its owner fills it, and a crash may come before.)
    Stale,
    /// Zeros, as many as were asked for.
    Zeros,
    /// These bytes, and zeros behind them.
    Bytes(&'a [u8]),
}

/// Figures of a heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes of the memory that the heap has in use.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of blocks.
    pub used: u64,
    /// Bytes of pages that have no block.
    pub free: u64,
}

/// Where a new block goes.
struct Plan {
    at: u64,
    page: u64,
    piece: Piece,
    /// It takes free pages.
    takes: u64,
    words: Words,
}

impl<M: Memory> Heap<M> {
    /// The block that the root names, or 0.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn root(&self) -> Result<u64, M::Error> {
        self.word(ROOT)
    }

    /// Makes a block the root, or nothing by 0; durable when this returns.
    ///
    /// # Errors
    /// [`Error::NoBlock`] for what is none; those of [`Heap::change`].
    pub fn set_root(&mut self, block: u64) -> Result<(), M::Error> {
        if block != 0 {
            self.block(block)?;
        }
        self.change(&[(ROOT, block)])
    }

    /// Allocates a block of so many bytes at least, aligned to 16 (to 4096 where it is larger than 2016), and publishes its offset in the word at `place`: [`ROOT`],
    /// or an aligned word of a block. Both are done, and durable, when this returns; a crash leaves both or neither. Returns the offset.
    ///
    /// What the word held is overwritten. One fence; two with content, and one more for a block of more than a chunk.
    ///
    /// # Errors
    /// [`Error::NoPlace`]; [`Error::TooLarge`]; [`Error::Memory`] where there is no space and the memory does not grow. ([`Error::Failed`] and other
    /// errors of the memory: it may be done or not.)
    pub fn alloc_into(
        &mut self,
        place: u64,
        bytes: u64,
        content: Content<'_>,
    ) -> Result<u64, M::Error> {
        self.ready()?;
        self.place(place)?;
        if let Content::Bytes(given) = content
            && given.len() as u64 > bytes
        {
            return Err(Error::TooLarge);
        }
        match class_of(bytes) {
            Some(class) => {
                let plan = self.plan_slot(class)?;
                self.carry_out(plan, place, bytes, content)
            }
            None => self.alloc_pages(place, bytes, content),
        }
    }

    /// Gives back the block that the word at `place` names, which is 0 then: both, or neither. Returns its offset. One fence; three for a
    /// block of more than a chunk.
    ///
    /// # Errors
    /// [`Error::NoPlace`]; [`Error::NoBlock`] where the word names none, 0 included; otherwise as of [`Heap::alloc_into`].
    pub fn free_from(&mut self, place: u64) -> Result<u64, M::Error> {
        self.ready()?;
        self.place(place)?;
        let block = self.word(place)?;
        let found = self.found(block)?;
        let word_at = self.shape.word_of(found.page);
        let mut words = Words::none();
        match found.slot {
            Some((class, bits, slot)) => {
                let (left, number, value) = turned(&bits, slot);
                words.push(found.page * PAGE + number * WORD, value);
                // One page with nothing but free slots is kept.
                let ends = left == Bits::default() && self.space.has_other(class, found.page);
                if ends {
                    words.push(word_at, 0);
                }
                words.push(place, 0);
                self.commit(words)?;
                self.space.put(found.page, Piece::Slots { class, bits: left });
                if ends {
                    self.space.end(found.page);
                }
            }
            None => {
                let pages = found.bytes / PAGE;
                let is_long = self.space.chunks_of(found.page, pages) > 1;
                let left = if is_long { Use::Dying(pages as u32) } else { Use::Nothing };
                words.push(word_at, left.word(word_at, self.shape.id));
                words.push(place, 0);
                self.commit(words)?;
                if is_long {
                    self.space.forget(found.page);
                    self.bury(found.page, pages)?;
                } else {
                    self.space.end(found.page);
                }
            }
        }
        Ok(block)
    }

    /// Changes words, in one atomic step, durable when this returns: each an aligned word of a block, or [`ROOT`], and what it becomes. One fence.
    ///
    /// # Errors
    /// [`Error::NoPlace`]; [`Error::NoBlock`] for a root that is none; [`Error::TooLarge`] for more than [`WORDS_MOST`]; [`Error::Memory`], [`Error::Failed`]: it may be
    /// done or not.
    pub fn change(&mut self, words: &[(u64, u64)]) -> Result<(), M::Error> {
        self.ready()?;
        if words.len() > WORDS_MOST {
            return Err(Error::TooLarge);
        }
        let mut all = Words::none();
        for (place, value) in words {
            self.place(*place)?;
            if *place == ROOT && *value != 0 {
                self.block(*value)?;
            }
            all.push(*place, *value);
        }
        if all.len() == 0 { Ok(()) } else { self.commit(all) }
    }

    /// The block that begins at this offset.
    ///
    /// # Errors
    /// [`Error::NoBlock`].
    pub fn block(&self, at: u64) -> Result<Block, M::Error> {
        let Found { at, bytes, .. } = self.found(at)?;
        Ok(Block { offset: at, bytes })
    }

    /// The block that the byte at this offset is in.
    pub fn block_around(&self, at: u64) -> Option<Block> {
        self.space.find(at).map(|found| Block { offset: found.at, bytes: found.bytes })
    }

    /// All blocks, by their offsets.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.space.blocks().map(|(offset, bytes)| Block { offset, bytes })
    }

    /// The first block that begins behind this offset.
    pub fn block_behind(&self, at: u64) -> Option<Block> {
        let (offset, bytes) = self.space.block_behind(at)?;
        Some(Block { offset, bytes })
    }

    /// Figures of now; all blocks are counted.
    pub fn stats(&self) -> Stats {
        let bytes = self.space.chunks() * self.shape.chunk_bytes();
        let stats = Stats { bytes, free: self.space.free_bytes(), ..Stats::default() };
        self.space.blocks().fold(stats, |stats, (_, bytes)| Stats {
            blocks: stats.blocks + 1,
            used: stats.used + bytes,
            ..stats
        })
    }

    /// Its memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    pub(crate) fn word(&self, at: u64) -> Result<u64, M::Error> {
        let mut word = [0; 8];
        self.memory.load(at, &mut word).map_err(Error::Memory)?;
        Ok(u64::from_le_bytes(word))
    }

    fn found(&self, at: u64) -> Result<Found, M::Error> {
        self.space.find(at).filter(|found| found.at == at).ok_or(Error::NoBlock(at))
    }

    /// Whether a block may be published at `place`.
    fn place(&self, place: u64) -> Result<(), M::Error> {
        let is_inside = |found: Found| place + WORD <= found.at + found.bytes;
        let is_word = place.is_multiple_of(WORD);
        let is_place = place == ROOT || is_word && self.space.find(place).is_some_and(is_inside);
        if is_place { Ok(()) } else { Err(Error::NoPlace(place)) }
    }

    pub(crate) fn ready(&self) -> Result<(), M::Error> {
        if self.failed { Err(Error::Failed) } else { Ok(()) }
    }

    /// A slot of a page that has one, or of a new page.
    fn plan_slot(&mut self, class: u8) -> Result<Plan, M::Error> {
        let mut words = Words::none();
        if let Some((page, bits, slot)) = self.space.find_slot(class) {
            let (bits, number, value) = turned(&bits, slot);
            words.push(page * PAGE + number * WORD, value);
            let piece = Piece::Slots { class, bits };
            return Ok(Plan { at: slot_at(page, class, slot), page, piece, takes: 0, words });
        }
        let page = self.free_pages(1)?;
        let bits: Bits = [1, 0, 0, 0];
        for (number, value) in bits.into_iter().enumerate() {
            words.push(page * PAGE + number as u64 * WORD, value);
        }
        let word_at = self.shape.word_of(page);
        words.push(word_at, Use::Slots(class).word(word_at, self.shape.id));
        let piece = Piece::Slots { class, bits };
        Ok(Plan { at: slot_at(page, class, 0), page, piece, takes: 1, words })
    }

    fn alloc_pages(
        &mut self,
        place: u64,
        bytes: u64,
        content: Content<'_>,
    ) -> Result<u64, M::Error> {
        let pages = bytes.div_ceil(PAGE);
        if u32::try_from(pages.saturating_add(2 * self.shape.chunk_pages())).is_err() {
            return Err(Error::TooLarge);
        }
        if pages > self.space.most_in_chunk() {
            return self.alloc_chunks(place, pages, (bytes, content));
        }
        let page = self.free_pages(pages)?;
        let word_at = self.shape.word_of(page);
        let mut words = Words::none();
        words.push(word_at, Use::Pages(pages as u32).word(word_at, self.shape.id));
        let plan = Plan { at: page * PAGE, page, piece: Piece::Pages(pages), takes: pages, words };
        self.carry_out(plan, place, bytes, content)
    }

    /// A block whose pages the tables of chunks are among: they are nobody's before what it holds is there, so that a crash
    /// makes tables of them again.
    fn alloc_chunks(
        &mut self,
        place: u64,
        pages: u64,
        (bytes, content): (u64, Content<'_>),
    ) -> Result<u64, M::Error> {
        let (page, pages) = self.free_chunks(pages)?;
        let (word_at, at) = (self.shape.word_of(page), page * PAGE);
        let id = self.shape.id;
        if content != Content::Stale {
            let mut words = Words::none();
            words.push(word_at, Use::Dying(pages as u32).word(word_at, id));
            self.commit(words)?;
            self.fill(at, bytes, content)?;
        }
        let mut words = Words::none();
        words.push(word_at, Use::Pages(pages as u32).word(word_at, id));
        words.push(place, at);
        self.commit(words)?;
        self.space.take_chunks(page, pages);
        self.space.put(page, Piece::Pages(pages));
        Ok(at)
    }

    fn carry_out(
        &mut self,
        plan: Plan,
        place: u64,
        bytes: u64,
        content: Content<'_>,
    ) -> Result<u64, M::Error> {
        let Plan { at, page, piece, takes, mut words } = plan;
        self.fill(at, bytes, content)?;
        words.push(place, at);
        self.commit(words)?;
        if takes > 0 {
            self.space.take(page, takes);
        }
        self.space.put(page, piece);
        Ok(at)
    }
}
