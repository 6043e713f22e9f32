//! A heap is opened: what the last changes left is done, and all of its words are looked at.

use alloc::vec;
use alloc::vec::Vec;

use crate::error::{Damage, Error, Result};
use crate::heap::Heap;
use crate::layout::{
    BIT_WORDS, CHUNKS, LINE, PAGE, RECORDS, ROOT, SETTLED, Shape, Use, WORD, Wrong, slots, unsealed,
};
use crate::memory::Memory;
use crate::record::{RECORD_BYTES, Words, parse};
use crate::space::{Bits, Piece, Space, is_set};

impl<M: Memory> Heap<M> {
    /// Opens the heap that is there, as it was left or as a crash has left it.
    ///
    /// # Errors
    /// [`Error::NotAHeap`], [`Error::Version`], [`Error::CutShort`], [`Error::Damaged`]; [`Error::Memory`].
    pub fn open(memory: M) -> Result<Self, M::Error> {
        let bytes = memory.bytes();
        if bytes < PAGE {
            return Err(Error::NotAHeap);
        }
        let mut line = [0; LINE as usize];
        memory.load(0, &mut line).map_err(Error::Memory)?;
        let damaged = |at, what| Error::Damaged { at, what };
        let shape = Shape::parse(&line).map_err(|wrong| match wrong {
            Wrong::NotAHeap => Error::NotAHeap,
            Wrong::Version(version) => Error::Version(version),
            Wrong::Damaged => damaged(0, Damage::Header),
        })?;
        let space = Space::new(shape);
        let live = [Words::none(), Words::none()];
        let mut heap = Self { memory, shape, space, number: 0, live, failed: false };
        let word = |at| {
            let value = unsealed(heap.word(at)?, at, shape.id);
            value.ok_or(damaged(at, Damage::Header))
        };
        let (chunks, settled) = (word(CHUNKS)?, word(SETTLED)?);
        let wanted = chunks.checked_mul(shape.chunk_bytes());
        let wanted = wanted.filter(|wanted| *wanted > 0 && settled < NUMBERS);
        let wanted = wanted.ok_or(damaged(CHUNKS, Damage::Header))?;
        if wanted > bytes {
            return Err(Error::CutShort { bytes, wanted });
        }
        heap.space.set_chunks(chunks);
        heap.redo(settled, wanted)?;
        let dying = heap.scan(chunks)?;
        for (page, pages) in dying {
            heap.bury(page, pages)?;
        }
        let root = heap.root()?;
        if root != 0 && heap.block(root).is_err() {
            return Err(damaged(ROOT, Damage::Root));
        }
        heap.admit(bytes / shape.chunk_bytes())?;
        Ok(heap)
    }

    /// Stores the words of the last changes again.
    fn redo(&mut self, settled: u64, end: u64) -> Result<(), M::Error> {
        let mut changes = Vec::new();
        for at in RECORDS {
            let mut bytes = [0; RECORD_BYTES];
            self.memory.load(at, &mut bytes).map_err(Error::Memory)?;
            let record = parse(&bytes, self.shape.id).filter(|(number, _)| *number > settled);
            changes.extend(record.map(|(number, words)| (number, words, at)));
        }
        changes.sort_unstable_by_key(|(number, ..)| *number);
        self.number = settled;
        let mut last = None;
        let mut parts = Vec::new();
        for (number, words, at) in &changes {
            let follows = last.is_none_or(|last: u64| last.checked_add(1) == Some(*number));
            let is_place = |at: u64| {
                let is_inside = at >= PAGE && at.checked_add(WORD).is_some_and(|to| to <= end);
                at.is_multiple_of(WORD) && (at == ROOT || is_inside)
            };
            if !follows || *number >= NUMBERS || !words.iter().all(|(at, _)| is_place(at)) {
                return Err(Error::Damaged { at: *at, what: Damage::Records });
            }
            last = Some(*number);
            for (at, value) in words.iter() {
                let stored = (self.memory.store(at, &value.to_le_bytes()))
                    .and_then(|()| self.memory.write_back(at, WORD));
                stored.map_err(Error::Memory)?;
                parts.push((at, WORD));
            }
        }
        if let Some(number) = last {
            self.number = number;
            let settled = self.memory.fence(&parts).and_then(|()| self.store_settled());
            settled.map_err(Error::Memory)?;
        }
        Ok(())
    }

    /// Finds out what is used; what is dying is told, and nobody's.
    fn scan(&mut self, chunks: u64) -> Result<Vec<(u64, u64)>, M::Error> {
        let mut dying = Vec::new();
        let mut chunk = 0;
        while chunk < chunks {
            chunk += self.scan_chunk(chunk, chunks, &mut dying)?;
        }
        Ok(dying)
    }

    /// Looks at a chunk; says how many chunks are done with that.
    fn scan_chunk(
        &mut self,
        chunk: u64,
        chunks: u64,
        dying: &mut Vec<(u64, u64)>,
    ) -> Result<u64, M::Error> {
        let shape = self.shape;
        let mut table = vec![0; PAGE as usize];
        self.memory.load(shape.table(chunk) * PAGE, &mut table).map_err(Error::Memory)?;
        let (first, end) = (shape.first_page(chunk), shape.end_page(chunk));
        let entry = |page: u64| {
            let at = shape.word_of(page);
            let word = table.as_chunks::<8>().0.get((page % shape.chunk_pages()) as usize);
            let word = u64::from_le_bytes(word.copied().unwrap_or_default());
            Use::parse(word, at, shape.id).map_err(|what| Error::Damaged { at, what })
        };
        let mut page = first;
        while page < end {
            let damaged = Error::Damaged { at: shape.word_of(page), what: Damage::Page };
            let used = entry(page)?;
            let pages = match used {
                Use::Nothing => {
                    let mut next = page + 1;
                    while next < end && entry(next)? == Use::Nothing {
                        next += 1;
                    }
                    next - page
                }
                Use::Slots(_) => 1,
                Use::Pages(pages) | Use::Dying(pages) => u64::from(pages),
            };
            let covered = self.space.chunks_of(page, pages);
            let last = chunk + covered - 1;
            if covered > 1
                && (page != first || last >= chunks || page + pages != shape.end_page(last))
            {
                return Err(damaged);
            }
            for inside in page + 1..(page + pages).min(end) {
                if entry(inside)? != Use::Nothing {
                    return Err(damaged);
                }
            }
            match used {
                Use::Nothing => self.space.give(page, pages),
                Use::Slots(class) => {
                    let bits = self.bits(page, class)?;
                    self.space.put(page, Piece::Slots { class, bits });
                }
                Use::Pages(_) => self.space.put(page, Piece::Pages(pages)),
                Use::Dying(_) => dying.push((page, pages)),
            }
            if covered > 1 {
                return Ok(covered);
            }
            page += pages;
        }
        Ok(1)
    }

    fn bits(&self, page: u64, class: u8) -> Result<Bits, M::Error> {
        let mut bits = Bits::default();
        for (number, word) in bits.iter_mut().enumerate() {
            *word = self.word(page * PAGE + number as u64 * WORD)?;
        }
        let most = BIT_WORDS as u64 * 64;
        if (slots(class)..most).any(|slot| is_set(&bits, slot)) {
            return Err(Error::Damaged { at: page * PAGE, what: Damage::Slots });
        }
        Ok(bits)
    }
}

/// Changes that are numbered.
const NUMBERS: u64 = 1 << 47;
