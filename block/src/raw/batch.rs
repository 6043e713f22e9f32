//! Writes that are deferred: they wait in buffers of main memory, and are written many at a time, sorted, pages that follow each
//! other in one (PMBD, section IV.B.1, Figures 4 to 6).
//!
//! Guarantees: a read gives what was written last, wherever that is; [`Batch::drain`] returns when all that was
//! written before is in the region. A buffer that can't be written ends the device: nothing is said to be written any more.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use lode_pmem::{RawError, RawMapping, RawMemory, RawPlace, RawRule};

use super::settings::{Batching, PAGE};
use super::store::Store;

/// Pages that follow each other and wait in the same buffer: so long runs can be.
const STRIPE_PAGES: u64 = 64;

type Page = Box<[u8; PAGE as usize]>;

#[derive(Default)]
struct State {
    /// By their number.
    pages: HashMap<u64, Page>,
    /// What is being written.
    under_way: Arc<BTreeMap<u64, Page>>,
    /// Pages to be used again.
    free: Vec<Page>,
    /// A syncer has been told.
    is_due: bool,
}

#[derive(Default)]
struct Buffer {
    state: Mutex<State>,
    /// Something was written.
    changed: Condvar,
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which buffers are to be written.
#[derive(Default)]
struct Due {
    buffers: VecDeque<usize>,
    ends: bool,
}

struct Shared<M> {
    store: Arc<Store<M>>,
    batching: Batching,
    buffers: Vec<Buffer>,
    due: Mutex<Due>,
    told: Condvar,
    has_failed: AtomicBool,
}

/// The buffers, and the threads that write them.
pub(super) struct Batch<M = RawMapping> {
    shared: Arc<Shared<M>>,
    syncers: Vec<JoinHandle<()>>,
}

/// A part of a write or read that is in one page.
struct Part {
    page: u64,
    /// In the page, and in what is read or written.
    from: usize,
    done: usize,
    len: usize,
}

fn parts(at: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let place = at + done as u64;
        let from = (place % PAGE) as usize;
        let part_len = (len - done).min(PAGE as usize - from);
        let part = Part { page: place / PAGE, from, done, len: part_len };
        done += part_len;
        (part_len > 0).then_some(part)
    })
}

fn failed() -> RawError {
    RawError::Unwritten(io::Error::other("deferred writes could not be written"))
}

impl<M: RawMemory> Batch<M> {
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(store: Arc<Store<M>>, batching: Batching) -> io::Result<Self>
    where
        M: 'static,
    {
        let buffers = (0..batching.buffers()).map(|_| Buffer::default()).collect();
        let (due, told) = (Mutex::default(), Condvar::new());
        let has_failed = AtomicBool::new(false);
        let shared = Arc::new(Shared { store, batching, buffers, due, told, has_failed });
        let mut batch = Self { shared: Arc::clone(&shared), syncers: Vec::new() };
        for number in 0..batching.syncers() {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("syncer {number}"));
            batch.syncers.push(thread.spawn(move || shared.serve())?);
        }
        Ok(batch)
    }

    /// Puts bytes into the buffers; waits while there is no room.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), RawError> {
        for part in parts(at, bytes.len()) {
            let bytes = bytes.get(part.done..part.done + part.len).unwrap_or(&[]);
            self.shared.put(&part, bytes)?;
        }
        Ok(())
    }

    /// Reads what was written last.
    // (Not in the way of reads where nothing is deferred: its instructions between theirs made those a quarter slower.)
    #[inline(never)]
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), RawError> {
        let end = into.len();
        // From here on nothing was in a buffer: it is read from the region, after it was looked for here.
        let mut rest = 0;
        for part in parts(at, end) {
            let to = into.get_mut(part.done..part.done + part.len).unwrap_or(&mut []);
            if self.shared.get(&part, to) {
                self.shared.read_region(at, into, rest..part.done)?;
                rest = part.done + part.len;
            }
        }
        self.shared.read_region(at, into, rest..end)
    }

    /// Waits until all is in the region; nobody writes meanwhile.
    pub(super) fn drain(&self) -> Result<(), RawError> {
        for buffer in &self.shared.buffers {
            self.shared.write_buffer(buffer);
        }
        match self.shared.has_failed.load(SeqCst) {
            true => Err(failed()),
            false => Ok(()),
        }
    }
}

impl<M> Drop for Batch<M> {
    fn drop(&mut self) {
        self.shared.due().ends = true;
        self.shared.told.notify_all();
        for syncer in self.syncers.drain(..) {
            // (One that has panicked has said so.)
            let _ = syncer.join();
        }
    }
}

impl<M> Shared<M> {
    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: RawMemory> Shared<M> {
    fn buffer_of(&self, page: u64) -> (usize, Option<&Buffer>) {
        let number = (page / STRIPE_PAGES) as usize % self.buffers.len().max(1);
        (number, self.buffers.get(number))
    }

    fn read_region(
        &self,
        at: u64,
        into: &mut [u8],
        part: std::ops::Range<usize>,
    ) -> Result<(), RawError> {
        let from = at + part.start as u64;
        match into.get_mut(part).filter(|into| !into.is_empty()) {
            Some(into) => self.store.region().read(from, into),
            None => Ok(()),
        }
    }

    /// Whether the page waits here: then this part of it was read.
    fn get(&self, part: &Part, into: &mut [u8]) -> bool {
        let (_, Some(buffer)) = self.buffer_of(part.page) else { return false };
        let state = buffer.lock();
        let page = state.pages.get(&part.page).or_else(|| state.under_way.get(&part.page));
        match page.and_then(|page| page.get(part.from..part.from + part.len)) {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    fn put(&self, part: &Part, bytes: &[u8]) -> Result<(), RawError> {
        let (number, Some(buffer)) = self.buffer_of(part.page) else { return Err(failed()) };
        let mut state = buffer.lock();
        while state.pages.len() >= self.batching.pages() && !state.pages.contains_key(&part.page) {
            if self.has_failed.load(SeqCst) {
                return Err(failed());
            }
            self.tell(&mut state, number);
            state = buffer.wait(state);
        }
        if self.has_failed.load(SeqCst) {
            return Err(failed());
        }
        if !state.pages.contains_key(&part.page) {
            let page = self.page_of(&mut state, part)?;
            state.pages.insert(part.page, page);
        }
        let page = state.pages.get_mut(&part.page);
        if let Some(to) = page.and_then(|page| page.get_mut(part.from..part.from + part.len)) {
            to.copy_from_slice(bytes);
        }
        if state.pages.len() >= self.batching.watermark() {
            self.tell(&mut state, number);
        }
        Ok(())
    }

    /// A page for a part, with what else is in it now.
    fn page_of(&self, state: &mut State, part: &Part) -> Result<Page, RawError> {
        let mut page = state.free.pop().unwrap_or_else(|| Box::new([0; PAGE as usize]));
        if part.len < PAGE as usize {
            match state.under_way.get(&part.page) {
                Some(under_way) => page.copy_from_slice(&under_way[..]),
                None => self.store.region().read(part.page * PAGE, &mut page[..])?,
            }
        }
        Ok(page)
    }

    /// Tells the syncers once.
    fn tell(&self, state: &mut State, number: usize) {
        if !state.is_due {
            state.is_due = true;
            self.due().buffers.push_back(number);
            self.told.notify_one();
        }
    }

    /// What a syncer does until the end.
    fn serve(&self) {
        let mut due = self.due();
        while !due.ends {
            match due.buffers.pop_front() {
                Some(number) => {
                    drop(due);
                    if let Some(buffer) = self.buffers.get(number) {
                        self.write_buffer(buffer);
                    }
                    due = self.due();
                }
                None => due = self.told.wait(due).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Writes all that waits in a buffer, after what is under way already.
    fn write_buffer(&self, buffer: &Buffer) {
        let mut state = buffer.lock();
        let awaits = self.store.keeps(RawRule::DrainWaits);
        while awaits && !state.under_way.is_empty() && !self.has_failed.load(SeqCst) {
            self.store.region().memory().reached(RawPlace::BarrierWaits);
            state = buffer.wait(state);
        }
        state.is_due = false;
        if state.pages.is_empty() || self.has_failed.load(SeqCst) {
            buffer.changed.notify_all();
            return;
        }
        let pages = Arc::new(state.pages.drain().collect::<BTreeMap<u64, Page>>());
        state.under_way = Arc::clone(&pages);
        drop(state);
        // (There is room.)
        buffer.changed.notify_all();
        let written = self.write_pages(&pages);
        let mut state = buffer.lock();
        match written {
            Ok(()) => {
                state.under_way = Arc::default();
                if let Ok(pages) = Arc::try_unwrap(pages) {
                    state.free.extend(pages.into_values());
                }
            }
            // (What could not be written stays where it can be read.)
            Err(error) => {
                tracing::error!(%error, "deferred writes are lost");
                self.has_failed.store(true, SeqCst);
            }
        }
        buffer.changed.notify_all();
    }

    /// Runs of pages that follow each other, each in one.
    fn write_pages(&self, pages: &BTreeMap<u64, Page>) -> Result<(), RawError> {
        let mut left = pages.iter().peekable();
        while let Some((&first, page)) = left.next() {
            let mut run = vec![&page[..]];
            while let Some((_, page)) = left.next_if(|(number, _)| {
                self.batching.merges() && **number == first + run.len() as u64
            }) {
                run.push(&page[..]);
            }
            self.store.write_run(first * PAGE, run.len() as u64 * PAGE, run.into_iter())?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use lode_pmem::{RawOptions, RawRegion};

    #[test]
    fn what_is_being_written_is_read_and_kept_by_what_is_written_after() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("region");
        std::fs::write(&path, vec![1; 16 * PAGE as usize]).unwrap();
        let region = RawRegion::open(&path, &RawOptions::default()).unwrap();
        let batch = Batch::start(Arc::new(Store::new(region)), Batching::DEFAULT).unwrap();
        let buffer = &batch.shared.buffers[0];
        let under_way = BTreeMap::from([(3, Box::new([7; PAGE as usize]))]);
        buffer.lock().under_way = Arc::new(under_way);
        // From a page before to a page after.
        let mut read = vec![0; 3 * PAGE as usize];
        batch.read(2 * PAGE, &mut read).unwrap();
        let page = PAGE as usize;
        assert!(read[..page].iter().chain(&read[2 * page..]).all(|byte| *byte == 1));
        assert!(read[page..2 * page].iter().all(|byte| *byte == 7));
        batch.write(3 * PAGE + 512, &[9; 512]).unwrap();
        batch.read(2 * PAGE, &mut read).unwrap();
        assert_eq!((read[page], read[page + 512], read[page + 1024]), (7, 9, 7));
        buffer.lock().under_way = Arc::default();
        batch.drain().unwrap();
        drop(batch);
        let file = std::fs::read(&path).unwrap();
        assert_eq!((file[3 * page], file[3 * page + 512], file[3 * page + 1024]), (7, 9, 7));
    }
}
