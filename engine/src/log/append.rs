//! Appending to a log (PROTOCOL I3, I6).
//!
//! Growth rule: a log grows by one page, when a record does not fit what is left of
//! the last one. The new page's header, the link to it and the record go under the
//! operation's one fence. Nothing else is written: there is no tail pointer.

use alloc::vec::Vec;

use lode_pmem::Medium;

use crate::gauges::list_bytes;
use crate::layout::{
    Anchor, Body, Geometry, HEAD_AT, INLINE_LINES, LINE, Link, LogHeader, LogSeed, Parsed, Txid,
    slot_at,
};
use crate::store::{Purpose, Store, Tx};
use crate::{Host, Ino, PAGE_BYTES, Result, Rule};

/// Ordinal of the inline log.
pub(crate) const INLINE: u32 = 0;

/// A page of a log, with what collection needs to know of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPage {
    pub(crate) page: u64,
    pub(crate) nonce: u64,
    /// Position in the log's life: 1 for its first page ever, never used twice.
    pub(crate) ordinal: u32,
    /// Records (for mappings: file pages) here that still say something.
    pub(crate) live: u32,
    /// The oldest page, by ordinal, of which a record was ended by one here, that nothing stands in the place of.
    pub(crate) ended_from: u32,
    /// The oldest page, by ordinal, of which a record was replaced by one here. (What replaces this in turn does so for all
    /// that it had replaced.)
    pub(crate) replaced_from: u32,
    /// Epoch of its first record, the lowest here; 0 before there is one.
    pub(crate) low: u32,
    /// The latest epoch in which something that is said here was ended.
    pub(crate) ended: u32,
}

impl LogPage {
    /// A page in which nothing is said yet, its first record to be born in epoch `low`.
    pub(crate) fn new(page: u64, nonce: u64, ordinal: u32, low: u32) -> Self {
        let (ended_from, replaced_from) = (u32::MAX, u32::MAX);
        Self { page, nonce, ordinal, live: 0, ended_from, replaced_from, low, ended: 0 }
    }
}

/// Where the next line of a log goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// Offset of the next line.
    pub(crate) at: u64,
    /// Lines left in this page (or the inline log).
    pub(crate) left: u32,
    /// Seed of this page.
    pub(crate) seed: LogSeed,
    /// Seal of the last line, the anchor's in an empty page.
    pub(crate) last_seal: u64,
    /// Ordinal of this page.
    pub(crate) ordinal: u32,
}

/// A log that is open for appending. (Whose it is stands first: it is asked of each inode that is looked at.)
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Log {
    pub(crate) ino: Ino,
    pub(crate) nonce: u64,
    pub(crate) inline_dead: bool,
    pub(crate) pages: Vec<LogPage>,
    pub(crate) tail: Tail,
    pub(crate) next_ordinal: u32,
    /// Epoch of its INODE record, the lowest of the log; 0 before there is one.
    pub(crate) born: u32,
    /// Epoch of its last record, the highest.
    pub(crate) epoch: u32,
    /// Record lines of each page.
    page_lines: u32,
    reserved: Vec<u64>,
    /// Pages that it has when it is looked at again whether what snapshots do not see is worth writing anew.
    pub(crate) look_at: u32,
}

/// What a set of records needs: lines (padding included) and new pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) lines: u32,
    pub(crate) pages: u32,
}

/// Where a record went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// Offset of its first line.
    pub(crate) at: u64,
    /// Ordinal of its page.
    pub(crate) ordinal: u32,
    /// Its transaction.
    pub(crate) txid: Txid,
}

impl Plan {
    /// Bytes stored for new pages: a header line and a link word each.
    pub(crate) fn extra_bytes(&self) -> u64 {
        u64::from(self.pages) * (LINE + 8)
    }
}

impl Log {
    /// The log of a new inode, whose identity has this seal.
    pub(crate) fn new(
        geometry: &Geometry,
        (ino, nonce): (Ino, u64),
        identity_seal: u64,
        seed: LogSeed,
    ) -> Self {
        let tail = Tail {
            at: slot_at(ino) + LINE,
            left: INLINE_LINES,
            seed,
            last_seal: identity_seal,
            ordinal: INLINE,
        };
        Self::at_tail(geometry, (ino, nonce), false, Vec::new(), tail)
    }

    /// Bytes of memory that it takes, besides `Self`.
    pub(crate) fn memory_bytes(&self) -> u64 {
        list_bytes::<LogPage>(self.pages.capacity()) + list_bytes::<u64>(self.reserved.capacity())
    }

    /// A log whose end has been found.
    pub(crate) fn at_tail(
        geometry: &Geometry,
        (ino, nonce): (Ino, u64),
        inline_dead: bool,
        pages: Vec<LogPage>,
        tail: Tail,
    ) -> Self {
        let next_ordinal = pages.last().map_or(1, |page| page.ordinal + 1);
        let page_lines = geometry.log_lines;
        let reserved = Vec::new();
        let (born, epoch) = (0, 0);
        Self {
            ino,
            nonce,
            inline_dead,
            pages,
            tail,
            next_ordinal,
            born,
            epoch,
            page_lines,
            reserved,
            look_at: 0,
        }
    }

    /// What records of these numbers of lines, in this order, will need.
    pub(crate) fn plan(&self, records: impl IntoIterator<Item = u32>) -> Plan {
        let mut plan = Plan::default();
        let mut left = self.tail.left;
        for lines in records {
            if lines > left {
                plan.lines += left;
                plan.pages += 1;
                left = self.page_lines;
            }
            plan.lines += lines;
            left -= lines;
        }
        plan
    }

    /// Reserves the pages of a plan, so that appending can't fail.
    pub(crate) fn reserve<M: Medium, H: Host>(
        &mut self,
        store: &Store<M, H>,
        plan: &Plan,
        purpose: Purpose,
    ) -> Result<()> {
        if plan.pages == 0 {
            return Ok(());
        }
        self.pages.try_reserve(plan.pages as usize)?;
        self.reserved.try_reserve(plan.pages as usize)?;
        for _ in 0..plan.pages {
            match store.take_log_page(purpose) {
                Ok(page) => self.reserved.push(page),
                Err(error) => {
                    self.unreserve(store);
                    return Err(error);
                }
            }
        }
        self.reserved.reverse();
        Ok(())
    }

    /// Gives reserved pages back that were not used.
    pub(crate) fn unreserve<M: Medium, H: Host>(&mut self, store: &Store<M, H>) {
        for page in self.reserved.drain(..) {
            store.give_log_page(page);
        }
    }

    /// Appends a record of one line.
    pub(crate) fn append<M: Medium, H: Host>(
        &mut self,
        tx: &mut Tx<'_, M, H>,
        store: &Store<M, H>,
        body: &Body,
    ) -> Placed {
        if store.host.leaves_out(Rule::LinksAppended) && self.repeats_links(store, body) {
            self.tail.at -= LINE;
            self.tail.left += 1;
        }
        self.append_text(tx, store, body, &[])
    }

    /// Whether a LINKS record goes behind another one.
    #[cold]
    fn repeats_links<M: Medium, H: Host>(&self, store: &Store<M, H>, body: &Body) -> bool {
        let is_links = |body: &Body| matches!(body, Body::Links { .. });
        let before = store.door.load_line(self.tail.at - LINE).ok();
        let before = before.and_then(|line| Parsed::parse(&line).ok());
        is_links(body) && before.is_some_and(|before| is_links(&before.body))
    }

    /// Appends a record with its name or target.
    pub(crate) fn append_text<M: Medium, H: Host>(
        &mut self,
        tx: &mut Tx<'_, M, H>,
        store: &Store<M, H>,
        body: &Body,
        text: &[u8],
    ) -> Placed {
        debug_assert_eq!(text.len(), body.text_bytes());
        let lines = body.lines();
        if lines > self.tail.left {
            while self.tail.left > 0 {
                self.append_line(tx, &Body::Pad);
            }
            self.roll(tx, store);
        }
        self.note_epoch(tx.epoch());
        let placed = Placed { at: self.tail.at, ordinal: self.tail.ordinal, txid: tx.txid() };
        self.append_line(tx, body);
        for index in 1..lines {
            self.append_line(tx, &body.text_of(text, index));
        }
        placed
    }

    fn append_line<M: Medium, H: Host>(&mut self, tx: &mut Tx<'_, M, H>, body: &Body) {
        let tail = &mut self.tail;
        assert!(tail.left > 0, "line behind the end of a log page");
        tail.last_seal = tx.record(tail.at, &tail.seed, body);
        tail.at += LINE;
        tail.left -= 1;
    }

    /// Goes on in a reserved page (I6).
    fn roll<M: Medium, H: Host>(&mut self, tx: &mut Tx<'_, M, H>, store: &Store<M, H>) {
        let Some(page) = self.reserved.pop() else {
            store.set_writable(false);
            return;
        };
        let nonce = store.nonce();
        let link_at = self.last_link_at();
        let link = Link::new(page, nonce, false);
        let at = page * PAGE_BYTES;
        let header = LogHeader { ino: self.ino, owner_nonce: self.nonce, nonce };
        let line = header.line(&store.seed, at, None);
        tx.line(at, &line);
        tx.word(link_at, link.word(&store.seed, link_at));
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        self.pages.push(LogPage::new(page, nonce, ordinal, tx.epoch()));
        self.tail = Tail {
            at: at + LINE,
            left: self.page_lines,
            seed: store.log_seed(self.ino, self.nonce, page, nonce),
            last_seal: crate::layout::stored_seal(&line),
            ordinal,
        };
    }

    /// Notes that a record of this epoch follows.
    #[inline]
    pub(crate) fn note_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
        if self.born == 0 {
            self.born = epoch;
        }
        if let Some(last) = self.pages.last_mut()
            && last.low == 0
        {
            last.low = epoch;
        }
    }

    /// Offset of the word that links to the page after the last one.
    pub(crate) fn last_link_at(&self) -> u64 {
        self.link_behind(self.pages.len())
    }

    /// Offset of the word that links to the page after the first `count` ones.
    pub(crate) fn link_behind(&self, count: usize) -> u64 {
        let last = count.checked_sub(1).and_then(|last| self.pages.get(last));
        last.map_or(slot_at(self.ino), |last| last.page * PAGE_BYTES) + HEAD_AT
    }

    /// Record lines of each page.
    pub(crate) fn page_lines(&self) -> u32 {
        self.page_lines
    }

    /// Lines that this log has written, dead ones included.
    pub(crate) fn lines(&self) -> u64 {
        let inline = if self.inline_dead { 0 } else { u64::from(INLINE_LINES) };
        inline + self.pages.len() as u64 * u64::from(self.page_lines) - u64::from(self.tail.left)
    }

    fn page_mut(&mut self, ordinal: u32) -> Option<&mut LogPage> {
        let at = self.index_of(ordinal)?;
        self.pages.get_mut(at)
    }

    /// Where the page with this ordinal stands; most often it is the last.
    fn index_of(&self, ordinal: u32) -> Option<usize> {
        let last = self.pages.last()?;
        if last.ordinal == ordinal {
            return Some(self.pages.len() - 1);
        }
        // Ordinals of a log that has not given back pages one by one follow each other.
        let first = self.pages.first()?.ordinal;
        let at = ordinal.checked_sub(first)? as usize;
        if self.pages.get(at).is_some_and(|page| page.ordinal == ordinal) {
            return Some(at);
        }
        self.pages.binary_search_by_key(&ordinal, |page| page.ordinal).ok()
    }

    /// The page with this ordinal.
    pub(crate) fn page(&self, ordinal: u32) -> Option<&LogPage> {
        self.pages.get(self.index_of(ordinal)?)
    }

    /// Notes that records in page `ordinal` say `units` things.
    pub(crate) fn add_live(&mut self, ordinal: u32, units: u64) {
        if let Some(page) = self.page_mut(ordinal) {
            page.live = page.live.saturating_add(u32::try_from(units).unwrap_or(u32::MAX));
        }
    }

    /// Notes that the last record, in page `by`, ended `units` things said in page `ordinal`, and stands in the place of
    /// none of them.
    pub(crate) fn end_live(&mut self, ordinal: u32, units: u64, by: u32) {
        let from = self.less_live(ordinal, units, by);
        if let Some(page) = self.page_mut(by) {
            page.ended_from = page.ended_from.min(from);
        }
    }

    /// The same of one that stands in their place.
    pub(crate) fn replace_live(&mut self, ordinal: u32, units: u64, by: u32) {
        let from = self.less_live(ordinal, units, by);
        if let Some(page) = self.page_mut(by) {
            page.replaced_from = page.replaced_from.min(from);
        }
    }

    /// Notes that later statements of the kind win, whatever becomes of this one in page `ordinal`: nothing is ended.
    pub(crate) fn outlive(&mut self, ordinal: u32) {
        self.less_live(ordinal, 1, ordinal);
    }

    /// Page `ordinal` says so many things less. Returns the oldest page with something that they had replaced, or they
    /// themselves, if that is another page than `by`.
    fn less_live(&mut self, ordinal: u32, units: u64, by: u32) -> u32 {
        let epoch = self.epoch;
        let at = if ordinal == by { u32::MAX } else { ordinal };
        let Some(page) = self.page_mut(ordinal) else { return at };
        page.ended = epoch;
        if page.live != u32::MAX {
            page.live = page.live.saturating_sub(u32::try_from(units).unwrap_or(u32::MAX));
        }
        at.min(page.replaced_from)
    }

    /// The log seed of the page with this ordinal.
    pub(crate) fn seed_of<M: Medium, H: Host>(
        &self,
        store: &Store<M, H>,
        ordinal: u32,
    ) -> Option<LogSeed> {
        if ordinal == INLINE {
            let page = slot_at(self.ino) / PAGE_BYTES;
            return Some(store.seed.log(self.ino, self.nonce, page, 0));
        }
        let page = self.page(ordinal)?;
        Some(store.log_seed(self.ino, self.nonce, page.page, page.nonce))
    }
}
