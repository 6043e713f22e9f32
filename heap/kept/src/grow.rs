//! A heap is made, and becomes larger.

use alloc::vec;

use crate::error::{Error, Result};
use crate::heap::Heap;
use crate::layout::{CHUNKS, LINE, PAGE, ROOT, SETTLED, Shape, WORD, sealed};
use crate::memory::Memory;
use crate::record::Words;
use crate::space::Space;

impl<M: Memory> Heap<M> {
    /// Makes a heap in a memory, which grows by `chunk_bytes` (a power of two: [`crate::CHUNK_BYTES`], or less where memory is short); `id` is any number that no other heap
    /// has. What was there is gone. Durable when this returns; a crash before leaves none.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn create(memory: M, chunk_bytes: u64, id: u64) -> Result<Self, M::Error> {
        let shape = Shape::new(chunk_bytes, id);
        let space = Space::new(shape);
        let live = [Words::none(), Words::none()];
        let mut heap = Self { memory, shape, space, number: 0, live, failed: false };
        if heap.memory.bytes() < shape.chunk_bytes() {
            heap.memory.grow(shape.chunk_bytes()).map_err(Error::Memory)?;
        }
        let made = heap.begin();
        heap.unless_failed(made)?;
        // (Its fence is that of all that was stored so far.)
        heap.admit(heap.memory.bytes() / shape.chunk_bytes())?;
        let made = heap.finish();
        heap.unless_failed(made)?;
        Ok(heap)
    }

    /// Ends the heap that may have been here, and stores what has to be there before this one is.
    fn begin(&self) -> core::result::Result<(), M::Error> {
        self.memory.store(0, &[0; LINE as usize])?;
        self.memory.write_back(0, LINE)?;
        self.memory.fence(&[(0, LINE)])?;
        self.store_zeros(ROOT, PAGE - ROOT)?;
        let word = sealed(self.number, SETTLED, self.shape.id);
        self.memory.store(SETTLED, &word.to_le_bytes())?;
        self.memory.write_back(ROOT, PAGE - ROOT)
    }

    fn finish(&self) -> core::result::Result<(), M::Error> {
        // Its first word last: a line's stores become durable in their order.
        let header = self.shape.header();
        let (magic, rest) =
            header.split_first_chunk::<{ WORD as usize }>().unwrap_or((&[0; 8], &[]));
        self.memory.store(WORD, rest)?;
        self.memory.store(0, magic)?;
        self.memory.write_back(0, LINE)?;
        self.memory.fence(&[(0, LINE)])
    }

    /// Free pages in one chunk, of a new one where there are none.
    pub(crate) fn free_pages(&mut self, pages: u64) -> Result<u64, M::Error> {
        if self.space.find_pages(pages).is_none() {
            // (The first chunk has a page less.)
            self.enlarge(1)?;
        }
        self.space.find_pages(pages).ok_or(Error::TooLarge)
    }

    /// Free chunks with room for so many pages: the first page, and how many they have.
    pub(crate) fn free_chunks(&mut self, pages: u64) -> Result<(u64, u64), M::Error> {
        if self.chunks_for(pages).is_none() {
            self.enlarge((pages + 1).div_ceil(self.shape.chunk_pages()))?;
        }
        self.chunks_for(pages).ok_or(Error::TooLarge)
    }

    fn chunks_for(&self, pages: u64) -> Option<(u64, u64)> {
        self.space.find_chunks(pages, &|at| self.memory.is_seam(at))
    }

    fn enlarge(&mut self, chunks: u64) -> Result<(), M::Error> {
        let wanted = self.space.chunks().checked_add(chunks);
        let wanted = wanted.and_then(|chunks| chunks.checked_mul(self.shape.chunk_bytes()));
        self.memory.grow(wanted.ok_or(Error::TooLarge)?).map_err(Error::Memory)?;
        self.admit(self.memory.bytes() / self.shape.chunk_bytes())
    }

    /// From now on the heap has so many chunks: those that are new have no block.
    pub(crate) fn admit(&mut self, chunks: u64) -> Result<(), M::Error> {
        let old = self.space.chunks();
        if chunks <= old {
            return Ok(());
        }
        let admitted = (old..chunks).try_for_each(|chunk| self.clear_table(chunk));
        let admitted = admitted.and_then(|()| {
            let word = sealed(chunks, CHUNKS, self.shape.id);
            self.memory.store(CHUNKS, &word.to_le_bytes())?;
            self.memory.write_back(CHUNKS, WORD)?;
            self.memory.fence(&[(0, PAGE)])
        });
        self.unless_failed(admitted)?;
        self.space.set_chunks(chunks);
        for chunk in old..chunks {
            let first = self.shape.first_page(chunk);
            self.space.give(first, self.shape.end_page(chunk) - first);
        }
        Ok(())
    }

    /// Makes the table of a new chunk zeros, which it is already where the memory has grown.
    fn clear_table(&self, chunk: u64) -> core::result::Result<(), M::Error> {
        let at = self.shape.table(chunk) * PAGE;
        let mut table = vec![0; PAGE as usize];
        self.memory.load(at, &mut table)?;
        if table.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        self.store_zeros(at, PAGE)?;
        self.memory.write_back(at, PAGE)?;
        self.memory.fence(&[(at, PAGE)])
    }
}
