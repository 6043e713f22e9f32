//! What a crash has left in the sector journal.

use lode_pmem::Medium;

use crate::inode::Journal;
use crate::layout::Txid;
use crate::{Error, Host, Pool, Result, Rule};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Stores again what the journal tells of files that still have those pages, fences, and gives the journal up. Cut off by a crash it is done
    /// once more: nothing else is stored there before.
    #[cold]
    #[inline(never)]
    pub(super) fn bring_sectors_home(&self) -> Result<()> {
        let (store, counters) = (&self.store, self.store.counters());
        if store.sectors.area().is_none() {
            return Ok(());
        }
        for (line, data_at) in store.sector_lines()? {
            if store.host.leaves_out(Rule::SectorsReplayed) {
                break;
            }
            let node = match self.nodes.get(store, line.ino) {
                Err(Error::Stale) => continue,
                node => node?,
            };
            let state = match node.write(store) {
                Err(Error::Stale) => continue,
                state => state?,
            };
            if let Some(piece) = state.sector_piece(&line, data_at) {
                let mut journal = Journal::default();
                journal.reserve(1, 0)?;
                journal.note(Txid::default(), piece);
                journal.apply(line.ino, store)?;
                journal.flush(store, counters);
            }
        }
        store.door.fence(counters)?;
        store.end_sectors()
    }
}
