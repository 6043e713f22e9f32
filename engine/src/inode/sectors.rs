//! What the sector journal has of a file.

use lode_pmem::Medium;

use super::file::File;
use super::journal::JournalPiece;
use super::state::State;
use crate::layout::{SectorLine, Txid};
use crate::store::Store;
use crate::{Host, Ino, PAGE_BYTES, Result, Rule};

impl File {
    /// Ends the lines of the sector journal that tell of it, if there are such: what they tell of is home, and about to change. The caller
    /// alone has the right to it.
    ///
    /// # Errors
    /// Those of the medium: then some may count still.
    #[inline(never)]
    pub(crate) fn end_sector_lines<M: Medium, H: Host>(
        &mut self,
        store: &Store<M, H>,
        ino: Ino,
    ) -> Result<()> {
        if !*self.sector_lines.get_mut() {
            return Ok(());
        }
        if !store.host.leaves_out(Rule::SectorsEnded) {
            let ended = store.end_sector_lines(ino)?;
            // (Who reads much ends lines, too, and tells nobody.)
            self.lanes_seen = self.lanes_seen.max((ended + 1).min(usize::from(u8::MAX)) as u8);
        }
        self.side_by_side = false;
        // (Not before: where some could not be ended, nor all lanes be waited for, who has the right next does so.)
        *self.sector_lines.get_mut() = false;
        Ok(())
    }

    /// Whether nobody has met another over it, as far as is remembered.
    #[inline]
    pub(crate) fn meets_nobody(&self) -> bool {
        self.meetings == 0 && self.lanes_seen == 0
    }

    /// How many lanes told of it when the right to change it was given, if any might, since this was last asked: the most.
    #[inline]
    pub(crate) fn take_lanes_seen(&mut self) -> Option<u8> {
        core::mem::take(&mut self.lanes_seen).checked_sub(1)
    }
}

impl State {
    /// What a line of the sector journal tells, if it is of this inode and its bytes are still where they were. (Only then its
    /// file has not given them up.)
    pub(crate) fn sector_piece(&self, line: &SectorLine, data_at: u64) -> Option<JournalPiece> {
        let file = self.file().ok()?;
        let end = line.offset.checked_add(line.len)?;
        let extent = file.extents.find(line.offset / PAGE_BYTES)?;
        let skip = line.offset.checked_sub(extent.file_page * PAGE_BYTES)?;
        let is_its = line.ino == self.log.ino && line.nonce == self.log.nonce;
        let is_home = extent.page * PAGE_BYTES + skip == line.home_at;
        (is_its && is_home && end <= extent.end() * PAGE_BYTES).then_some(JournalPiece {
            file_offset: line.offset,
            len: line.len,
            journal_at: data_at,
            home_at: line.home_at,
            origin: 0,
            born: extent.epoch,
        })
    }

    /// Takes in what a crash has left of it in the sector journal, in a pool that nothing is stored in: it is read from there.
    #[cold]
    pub(super) fn take_sectors(&mut self, left: &[(SectorLine, u64)]) -> Result<()> {
        for (line, data_at) in left {
            if let Some(piece) = self.sector_piece(line, *data_at) {
                let journal = &mut self.file_mut()?.journal;
                journal.reserve(1, 0)?;
                journal.clip(piece.file_offset, piece.file_offset + piece.len);
                journal.note(Txid::default(), piece);
            }
        }
        Ok(())
    }
}
