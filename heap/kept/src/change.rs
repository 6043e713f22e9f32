//! Changes: their records, and what follows.

use crate::error::{Error, Result};
use crate::heap::{Content, Heap};
use crate::layout::{PAGE, RECORDS, SETTLED, Use, WORD, sealed};
use crate::memory::Memory;
use crate::record::{Words, record};

/// What is stored at a time.
const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

impl<M: Memory> Heap<M> {
    /// To be called before bytes of blocks are written back that are to be durable, whoever has stored them: the records of the last changes
    /// count no more where their words are among these. Says nothing of the bytes themselves.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::Failed`].
    pub fn before_persist(&mut self, at: u64, bytes: u64) -> Result<(), M::Error> {
        self.ready()?;
        self.settle_if_touched(at, bytes)
    }

    /// Nothing is left for the next opening to do. (Without it, it does so.)
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::Failed`].
    pub fn settle(&mut self) -> Result<(), M::Error> {
        self.ready()?;
        let settled = self.settle_now();
        self.unless_failed(settled)
    }

    /// Changes words, atomically and durably.
    pub(crate) fn commit(&mut self, words: Words) -> Result<(), M::Error> {
        let done = self.do_commit(words);
        self.unless_failed(done)
    }

    fn do_commit(&mut self, words: Words) -> core::result::Result<(), M::Error> {
        let number = self.number + 1;
        let [even, odd] = RECORDS;
        let at = if number.is_multiple_of(2) { even } else { odd };
        let bytes = record(number, &words, self.shape.id);
        // The words of the last change are durable with the record of this one, so that the one after this can take its place.
        let mut parts = self.write_back_last()?;
        self.memory.store(at, &bytes)?;
        self.memory.write_back(at, bytes.len() as u64)?;
        parts.push((at, bytes.len() as u64));
        self.memory.fence(&parts)?;
        for (at, value) in words.iter() {
            self.memory.store(at, &value.to_le_bytes())?;
        }
        let [even, odd] = &mut self.live;
        *(if number.is_multiple_of(2) { even } else { odd }) = words;
        self.number = number;
        Ok(())
    }

    /// Starts the write-back of the words of the last change; says where they are.
    fn write_back_last(&self) -> core::result::Result<alloc::vec::Vec<(u64, u64)>, M::Error> {
        let [even, odd] = &self.live;
        let last = if self.number.is_multiple_of(2) { even } else { odd };
        let mut parts = alloc::vec::Vec::with_capacity(last.len() + 1);
        for (at, _) in last.iter() {
            self.memory.write_back(at, WORD)?;
            parts.push((at, WORD));
        }
        Ok(parts)
    }

    pub(crate) fn settle_if_touched(&mut self, at: u64, bytes: u64) -> Result<(), M::Error> {
        if self.live.iter().any(|words| words.touch(at, bytes)) {
            let settled = self.settle_now();
            self.unless_failed(settled)?;
        }
        Ok(())
    }

    /// No record counts any more.
    fn settle_now(&mut self) -> core::result::Result<(), M::Error> {
        if self.live.iter().all(|words| words.len() == 0) {
            return Ok(());
        }
        let parts = self.write_back_last()?;
        self.memory.fence(&parts)?;
        self.store_settled()?;
        self.live = [Words::none(), Words::none()];
        Ok(())
    }

    pub(crate) fn store_settled(&self) -> core::result::Result<(), M::Error> {
        let word = sealed(self.number, SETTLED, self.shape.id);
        self.memory.store(SETTLED, &word.to_le_bytes())?;
        self.memory.write_back(SETTLED, WORD)?;
        self.memory.fence(&[(SETTLED, WORD)])
    }

    /// Fills free space with what a block is to hold, durably.
    pub(crate) fn fill(
        &mut self,
        at: u64,
        bytes: u64,
        content: Content<'_>,
    ) -> Result<(), M::Error> {
        let given = match content {
            Content::Stale => return Ok(()),
            Content::Zeros => &[][..],
            Content::Bytes(given) => given,
        };
        if bytes == 0 {
            return Ok(());
        }
        self.settle_if_touched(at, bytes)?;
        let len = given.len() as u64;
        let filled = self.memory.store(at, given).and_then(|()| {
            self.store_zeros(at + len, bytes.saturating_sub(len))?;
            self.memory.write_back(at, bytes)?;
            self.memory.fence(&[(at, bytes)])
        });
        self.unless_failed(filled)
    }

    pub(crate) fn store_zeros(&self, at: u64, bytes: u64) -> core::result::Result<(), M::Error> {
        let mut done = 0;
        while done < bytes {
            let piece = ZEROS.get(..(bytes - done).min(PAGE) as usize).unwrap_or_default();
            self.memory.store(at + done, piece)?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes pages free that are nobody's and that tables are among.
    pub(crate) fn bury(&mut self, page: u64, pages: u64) -> Result<(), M::Error> {
        let first = page / self.shape.chunk_pages();
        let tables = first + 1..first + self.space.chunks_of(page, pages);
        for chunk in tables.clone() {
            self.settle_if_touched(self.shape.table(chunk) * PAGE, PAGE)?;
        }
        let parts: alloc::vec::Vec<_> =
            tables.map(|chunk| (self.shape.table(chunk) * PAGE, PAGE)).collect();
        let zeroed = parts.iter().try_for_each(|(at, bytes)| {
            self.store_zeros(*at, *bytes)?;
            self.memory.write_back(*at, *bytes)
        });
        let zeroed = zeroed.and_then(|()| self.memory.fence(&parts));
        self.unless_failed(zeroed)?;
        let mut words = Words::none();
        let word_at = self.shape.word_of(page);
        words.push(word_at, Use::Nothing.word(word_at, self.shape.id));
        self.commit(words)?;
        self.space.give(page, pages);
        Ok(())
    }

    /// What could not be stored ends all.
    pub(crate) fn unless_failed<T>(
        &mut self,
        done: core::result::Result<T, M::Error>,
    ) -> Result<T, M::Error> {
        self.failed |= done.is_err();
        done.map_err(Error::Memory)
    }
}
