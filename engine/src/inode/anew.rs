//! Writing a log anew record by record, so that pages which it names, and its own, can lie elsewhere though snapshots
//! see it.
//!
//! Guarantees: replayed up to any epoch the new log says what the old one did, the places of pages apart. Each record has
//! the epoch and the transaction that it had: so an entry is ended by the record that names it, and nothing that is asked of
//! epochs or sessions changes its answer. All of them are of sessions that have ended, and so committed, whichever of their parts
//! are there. What is written is nobody's until the head of the inode leads to it, in one word; a death has a place of its own,
//! and is not touched.
//!
//! Two kinds of records become others. A mapping whose pages have gone to several places is as many mappings. An
//! overwrite that is journalled has come home, so that only its time is left to say.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lode_pmem::Medium;

use super::xattrs::{parse_runs, run_word};
use crate::layout::{
    Anchor, Body, HEAD_AT, Header, LINE, Link, LogHeader, LogSeed, Parsed, put_seal, slot_at,
};
use crate::log::{Step, Walk, read_identity};
use crate::space::{Moved, Run};
use crate::store::Store;
use crate::{Error, Host, Ino, PAGE_BYTES, PageClass, Result, mode};

const CUT: &str = "log of an inode is damaged before its end";

/// A log that is being written.
struct Anew<'s, M: Medium, H: Host> {
    store: &'s Store<M, H>,
    ino: Ino,
    nonce: u64,
    moved: &'s Moved,
    take: &'s mut dyn FnMut() -> Result<u64>,
    /// The link to its first page.
    head: Option<Link>,
    /// The page that is written.
    page: u64,
    at: u64,
    left: u32,
    seed: LogSeed,
    /// What the file is at this record.
    class: PageClass,
    size: u64,
    /// An attribute whose text names pages, and as much of that as was read.
    xattr: Option<Box<(Parsed, Vec<u8>)>>,
}

/// Writes the log of an inode, which ends with the seal `end`, to fresh pages, which `take` gives, with pages of data where they have
/// moved to. Returns what its head has to be, as soon as all that is durable.
///
/// # Errors
/// Those of `take`; [`Error::Corrupt`] where the log is not what it was. Then nothing has changed.
#[inline(never)]
pub(crate) fn write_anew<M: Medium, H: Host>(
    store: &Store<M, H>,
    (ino, end): (Ino, u64),
    moved: &Moved,
    take: &mut dyn FnMut() -> Result<u64>,
) -> Result<Link> {
    let cut = Error::corrupt_inode(CUT, slot_at(ino), ino);
    let (identity, head, _, seal) = read_identity(store, ino)?.ok_or(cut)?;
    let mut walk = Walk::new(store, &identity, head, seal)?;
    let mut anew = Box::new(Anew {
        store,
        ino,
        nonce: identity.nonce,
        moved,
        take,
        head: None,
        page: 0,
        at: 0,
        left: 0,
        seed: LogSeed::default(),
        class: PageClass::Small,
        size: 0,
        xattr: None,
    });
    loop {
        match walk.step()? {
            Step::Record(found) => anew.record(&found.parsed)?,
            Step::Page { .. } => {}
            Step::End => break,
        }
    }
    let is_whole = walk.tail().last_seal == end && anew.xattr.is_none();
    anew.head.filter(|_| is_whole).ok_or(cut)
}

impl<M: Medium, H: Host> Anew<'_, M, H> {
    fn record(&mut self, parsed: &Parsed) -> Result<()> {
        self.note(&parsed.body);
        match parsed.body {
            // (Where pages end now is known as they fill.)
            Body::Pad => Ok(()),
            Body::Text { len, bytes } if self.xattr.is_some() => {
                self.text(bytes.get(..usize::from(len)).unwrap_or_default())
            }
            Body::Text { .. } => self.line(parsed),
            Body::Map { .. } => self.map(parsed),
            Body::Journal { time_ns, .. } => {
                let (class, size) = (self.class, self.size);
                let body = Body::Size { class, truncate: false, size, time_ns };
                self.begin(&Parsed { body, ..*parsed })
            }
            Body::Xattr { runs, .. } if runs > 0 => {
                self.xattr = Some(Box::new((*parsed, Vec::new())));
                Ok(())
            }
            _ => self.begin(parsed),
        }
    }

    /// Keeps account of what an overwrite leaves as it is.
    fn note(&mut self, body: &Body) {
        match *body {
            Body::Inode { mode: bits, extra, .. } if u32::from(bits) & mode::TYPE == mode::FILE => {
                let [class, ..] = extra;
                self.class = PageClass::from_number(class).unwrap_or_default();
            }
            Body::Size { class, size, .. } => (self.class, self.size) = (class, size),
            Body::Map { size, .. } | Body::Unmap { size, .. } => self.size = size,
            _ => {}
        }
    }

    /// The first line of a record, in a page with room for all of it.
    fn begin(&mut self, parsed: &Parsed) -> Result<()> {
        let lines = parsed.body.lines();
        if lines > self.left {
            while self.left > 0 {
                self.line(&Parsed { body: Body::Pad, ..*parsed })?;
            }
            self.roll()?;
        }
        // (Pages are as long as those that it comes from, and it is no longer.)
        if lines > self.left { Err(Error::NoSpace) } else { self.line(parsed) }
    }

    fn line(&mut self, parsed: &Parsed) -> Result<()> {
        if self.left == 0 {
            return Err(Error::corrupt_inode(CUT, self.at, self.ino));
        }
        let mut line = parsed.body.encode(&parsed.header, parsed.epoch);
        let seal = self.seed.seal(self.at, &line);
        put_seal(&mut line, seal);
        self.store.door.window(LINE, self.store.counters()).store_line(self.at, &line);
        self.at += LINE;
        self.left -= 1;
        Ok(())
    }

    /// Goes on in a fresh page. The link to it stands in one that nothing leads to yet.
    fn roll(&mut self) -> Result<()> {
        let page = (self.take)()?;
        let (store, nonce) = (self.store, self.store.nonce());
        let at = page * PAGE_BYTES;
        let header = LogHeader { ino: self.ino, owner_nonce: self.nonce, nonce };
        let line = header.line(&store.seed, at, None);
        store.door.window(LINE, store.counters()).store_line(at, &line);
        match self.head {
            None => self.head = Some(Link::new(page, nonce, true)),
            Some(_) => {
                let link = Some(Link::new(page, nonce, false));
                store.store_link(self.page * PAGE_BYTES + HEAD_AT, link);
            }
        }
        (self.page, self.at, self.left) = (page, at + LINE, store.geometry.log_lines);
        self.seed = store.log_seed(self.ino, self.nonce, page, nonce);
        Ok(())
    }

    /// A mapping, in as many pieces as its pages are in.
    fn map(&mut self, parsed: &Parsed) -> Result<()> {
        let Body::Map { class, pages, file_page, page, time_ns, size } = parsed.body else {
            return Ok(());
        };
        let moved = self.moved;
        let (run, mut done) = (Run { page, pages: u64::from(pages) }, 0);
        moved.for_each_piece(run, &mut |piece| {
            // (What has moved is aligned to nothing.)
            let class = if piece.page == page + done { class } else { PageClass::Small };
            let file_page = file_page + done;
            done += piece.pages;
            let Run { page, pages } = piece;
            let pages = pages as u32;
            let body = Body::Map { class, pages, file_page, page, time_ns, size };
            self.begin(&Parsed { body, ..*parsed })
        })
    }

    /// More text of an attribute that has pages; with its last piece the record is written.
    fn text(&mut self, bytes: &[u8]) -> Result<()> {
        let cut = Error::corrupt_inode(CUT, self.at, self.ino);
        let Some(xattr) = &mut self.xattr else { return Err(cut) };
        let (parsed, text) = &mut **xattr;
        text.try_reserve(bytes.len())?;
        text.extend_from_slice(bytes);
        if text.len() < parsed.body.text_bytes() {
            return Ok(());
        }
        let Some(xattr) = self.xattr.take() else { return Err(cut) };
        let (parsed, text) = *xattr;
        self.attribute(&parsed, text, cut)
    }

    #[inline(never)]
    fn attribute(&mut self, parsed: &Parsed, mut text: Vec<u8>, cut: Error) -> Result<()> {
        let Body::Xattr { name_len, value_len, crc, time_ns, .. } = parsed.body else {
            return Err(cut);
        };
        let names = text.get(usize::from(name_len)..).unwrap_or_default();
        let before = parse_runs(&self.store.geometry, names, value_len)?.ok_or(cut)?;
        text.truncate(usize::from(name_len));
        let mut runs = 0;
        for run in before {
            self.moved.for_each_piece(run, &mut |piece| {
                runs += 1;
                let word = run_word(&piece);
                text.try_reserve(word.len())?;
                text.extend_from_slice(&word);
                Ok(())
            })?;
        }
        let body = Body::Xattr { name_len, runs, value_len, crc, time_ns };
        self.begin(&Parsed { body, ..*parsed })?;
        let Header { part, parts, .. } = parsed.header;
        for index in 1..body.lines() {
            // (It may have more lines than it had: they are told as its last ones.)
            let part = part.saturating_add(index as u16).min(parts - 1);
            let header = Header { part, ..parsed.header };
            self.line(&Parsed { header, epoch: 0, body: body.text_of(&text, index) })?;
        }
        Ok(())
    }
}
