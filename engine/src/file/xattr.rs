//! Extended attributes: asking for them, and changing them in one transaction.
//!
//! A small value is in the log, behind its name. A longer one is streamed to pages of its own and
//! fenced before its record, like the data of a file (PROTOCOL I8), with checksums and parity where that has them; the pages of a value that
//! is replaced or removed become free behind the fence of the record that ends it (I9).

use alloc::vec::Vec;

use lode_pmem::{Medium, crc32c};

use crate::index::{Xattr, hash};
use crate::inode::{
    State, find_xattr, load_xattr_name, load_xattr_value, run_word, valid_xattr_name,
    xattr_text_max,
};
use crate::layout::{Body, LINE, XATTR_RUN_BYTES};
use crate::log::Placed;
use crate::space::{Ended, Run};
use crate::store::{Purpose, Tx};
use crate::{
    Error, Host, Ino, Op, PAGE_BYTES, Pool, Result, Rule, SetAttr, XATTR_LIST_MAX, XATTR_VALUE_MAX,
    XattrChange, XattrWhen,
};

/// A change that is ready to be stored.
struct Change {
    record: Body,
    text: Vec<u8>,
    /// What memory will have; `None` where the attribute goes.
    xattr: Option<Xattr>,
    /// Where the record of the attribute is that this one ends.
    replaced: Option<u64>,
    /// The value that goes has pages.
    frees_pages: bool,
    placed: Option<Placed>,
}

/// Changes of extended attributes, ready to be stored.
#[derive(Default)]
pub(crate) struct Staged {
    changes: Vec<Change>,
    /// When they happen.
    pub(crate) time_ns: i64,
}

impl Staged {
    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Lines of each record.
    pub(crate) fn lines(&self) -> impl Iterator<Item = u32> {
        self.changes.iter().map(|change| change.record.lines())
    }

    /// Whether nothing is made.
    pub(crate) fn only_removes(&self) -> bool {
        self.changes.iter().all(|change| change.xattr.is_none())
    }

    /// Whether each ends one that is there, or takes its place.
    pub(crate) fn only_replaces(&self) -> bool {
        self.changes.iter().all(|change| change.replaced.is_some())
    }

    /// Whether a value goes that has pages of its own.
    pub(crate) fn frees_pages(&self) -> bool {
        self.changes.iter().any(|change| change.frees_pages)
    }

    fn runs(&self) -> impl Iterator<Item = Run> {
        self.changes.iter().filter_map(|change| change.xattr.as_ref()).flat_map(runs_of)
    }
}

fn runs_of(xattr: &Xattr) -> impl Iterator<Item = Run> {
    xattr.runs.iter().copied()
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Changes one extended attribute, atomically and durably.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::NoAttribute`] as the change asks, [`Error::TooLong`],
    /// [`Error::NameTooLong`]; [`Error::NoSpace`] also where all names together would be longer than
    /// can be asked for.
    pub fn setxattr(&self, ino: Ino, change: &XattrChange<'_>) -> Result<()> {
        self.count(if change.value.is_some() { Op::Setxattr } else { Op::Removexattr });
        self.change_attributes(ino, &SetAttr::default(), core::slice::from_ref(change)).map(|_| ())
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`] if there is none of this name.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.count(Op::Getxattr);
        let node = self.node(ino)?;
        let state = node.read(&self.store)?;
        if state.xattrs.len() == 0 {
            return Err(Error::NoAttribute);
        }
        let xattr = find_xattr(&self.store, &state, name)?.ok_or(Error::NoAttribute)?;
        load_xattr_value(&self.store, &state, xattr)
    }

    /// The names of all extended attributes, in no stated order.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.count(Op::Listxattr);
        let node = self.node(ino)?;
        let state = node.read(&self.store)?;
        let mut names = Vec::new();
        names.try_reserve_exact(state.xattrs.len())?;
        for xattr in state.xattrs.iter() {
            names.push(load_xattr_name(&self.store, &state, xattr)?);
        }
        Ok(names)
    }

    /// Looks at changes that happen at this time, and stores what has to be on the medium before their
    /// records.
    pub(crate) fn stage_xattrs(
        &self,
        state: &mut State,
        changes: &[XattrChange<'_>],
        time_ns: i64,
    ) -> Result<Staged> {
        let mut staged = Staged { changes: Vec::new(), time_ns };
        if changes.is_empty() {
            return Ok(staged);
        }
        staged.changes.try_reserve_exact(changes.len())?;
        for (index, change) in changes.iter().enumerate() {
            let twice = changes.iter().take(index).any(|other| other.name == change.name);
            let result =
                if twice { Err(Error::Invalid) } else { self.stage_one(state, change, &staged) };
            match result {
                Ok(change) => staged.changes.extend(change),
                Err(error) => {
                    self.give_staged(&staged);
                    return Err(error);
                }
            }
        }
        let made = staged.changes.iter().filter(|change| change.replaced.is_none());
        let more: usize =
            made.filter_map(|change| change.xattr.as_ref()).map(Xattr::list_bytes).sum();
        // (Nobody lists the pool's own: there may be any number of snapshots.)
        let is_listed = state.log.ino != self.store.snapshots.home();
        let too_long = state.xattrs.list_bytes() + more > XATTR_LIST_MAX;
        let ready = if more > 0 && is_listed && too_long {
            Err(Error::NoSpace)
        } else {
            state.xattrs.reserve(staged.len())
        };
        if let Err(error) = ready.and_then(|()| self.fence_values(&staged)) {
            self.give_staged(&staged);
            return Err(error);
        }
        Ok(staged)
    }

    /// Values in pages of their own are durable before a record speaks of them (PROTOCOL I8).
    fn fence_values(&self, staged: &Staged) -> Result<()> {
        if staged.runs().next().is_some() {
            self.store.door.fence(self.store.counters())?;
        }
        Ok(())
    }

    /// One change; `None` where nothing is to be done.
    #[inline(never)]
    fn stage_one(
        &self,
        state: &State,
        change: &XattrChange<'_>,
        staged: &Staged,
    ) -> Result<Option<Change>> {
        let geometry = &self.store.geometry;
        valid_xattr_name(geometry, change.name)?;
        let there = find_xattr(&self.store, state, change.name)?;
        let frees_pages = there.is_some_and(|xattr| !xattr.runs.is_empty());
        let there = there.map(|xattr| xattr.at);
        match (change.when, there) {
            (XattrWhen::Absent, Some(_)) => return Err(Error::Exists),
            (XattrWhen::Present, None) => return Err(Error::NoAttribute),
            _ => {}
        }
        let time_ns = staged.time_ns;
        let name_len = change.name.len() as u8;
        let mut text = Vec::new();
        let Some(value) = change.value else {
            if there.is_none() {
                return Ok(None);
            }
            text.try_reserve_exact(change.name.len())?;
            text.extend_from_slice(change.name);
            let record = Body::Xdel { name_len, time_ns };
            return Ok(Some(Change {
                record,
                text,
                xattr: None,
                replaced: there,
                frees_pages,
                placed: None,
            }));
        };
        if value.len() > XATTR_VALUE_MAX {
            return Err(Error::TooLong);
        }
        // Where not even one piece of a value could be told, it is the name that is too long.
        if change.name.len() + XATTR_RUN_BYTES > xattr_text_max(geometry) && !value.is_empty() {
            return Err(Error::NameTooLong);
        }
        let inline = change.name.len() + value.len() <= xattr_text_max(geometry);
        let stream = || self.stream_value(change.name.len(), value);
        let runs = if inline { Vec::new() } else { self.store.on_good_pages(stream)? };
        let crc = if inline { 0 } else { crc32c(0, value) };
        let value_len = value.len() as u32;
        let record = Body::Xattr { name_len, runs: runs.len() as u8, value_len, crc, time_ns };
        let filled = fill_text(&mut text, change.name, if inline { value } else { &[] }, &runs);
        let xattr = Xattr {
            hash: hash(self.store.secret, change.name),
            at: 0,
            origin: 0,
            name_len,
            lines: record.lines() as u8,
            value_len,
            crc,
            epoch: 0,
            runs,
        };
        if let Err(error) = filled {
            runs_of(&xattr).for_each(|run| self.store.give(run));
            return Err(error);
        }
        Ok(Some(Change {
            record,
            text,
            xattr: Some(xattr),
            replaced: there,
            frees_pages,
            placed: None,
        }))
    }

    /// Streams a value to pages of its own.
    fn stream_value(&self, name_len: usize, value: &[u8]) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let streamed = self.stream_to(&mut runs, value);
        let text_bytes = name_len + runs.len() * XATTR_RUN_BYTES;
        let fits = text_bytes <= xattr_text_max(&self.store.geometry);
        match streamed {
            Ok(()) if fits => Ok(runs),
            failed => {
                runs.into_iter().for_each(|run| self.store.give(run));
                failed.and(Err(Error::NoSpace))
            }
        }
    }

    fn stream_to(&self, runs: &mut Vec<Run>, value: &[u8]) -> Result<()> {
        let mut rest = value;
        while !rest.is_empty() {
            runs.try_reserve(1)?;
            let run =
                self.store.take_some((rest.len() as u64).div_ceil(PAGE_BYTES), Purpose::Grows)?;
            runs.push(run);
            let (piece, more) = rest.split_at(rest.len().min((run.pages * PAGE_BYTES) as usize));
            self.stream_piece(run.page, piece)?;
            rest = more;
        }
        Ok(())
    }

    /// Streams a piece of a value to pages of its own from `page` on. (What is kept of pages is of whole ones.)
    fn stream_piece(&self, page: u64, piece: &[u8]) -> Result<()> {
        let counters = self.store.counters();
        if !self.store.geometry.strips.are_kept() || self.store.host.leaves_out(Rule::CopyTail) {
            let stored = (piece.len() as u64).next_multiple_of(LINE);
            let mut window = self.store.door.window(stored, counters);
            let short = self.store.host.leaves_out(Rule::CopyTail);
            let piece = if short { piece.as_chunks::<8>().0.as_flattened() } else { piece };
            window.copy_lines(page * PAGE_BYTES, piece);
            return Ok(());
        }
        let (whole, tail) = piece.as_chunks::<{ PAGE_BYTES as usize }>();
        self.store.stream_pages(page, whole.as_flattened(), counters)?;
        if tail.is_empty() {
            return Ok(());
        }
        let mut held = self.store.hold_lane();
        let last = held.page();
        let (head, behind) = last.split_at_mut_checked(tail.len()).ok_or(Error::Invalid)?;
        head.copy_from_slice(tail);
        behind.fill(0);
        self.store.stream_pages(page + whole.len() as u64, last, counters)
    }

    /// Stores the records.
    pub(crate) fn append_xattrs(
        &self,
        tx: &mut Tx<'_, M, H>,
        state: &mut State,
        staged: &mut Staged,
    ) {
        for change in &mut staged.changes {
            let placed = state.log.append_text(tx, &self.store, &change.record, &change.text);
            change.placed = Some(placed);
        }
        if self.store.host.leaves_out(Rule::ValueAfterFence) {
            for change in &staged.changes {
                let ended = state.xattrs.iter().find(|xattr| Some(xattr.at) == change.replaced);
                ended.into_iter().flat_map(runs_of).for_each(|run| self.store.give(run));
            }
        }
    }

    /// Makes memory say what the records say.
    #[inline(never)]
    pub(crate) fn show_xattrs(&self, state: &mut State, staged: Staged, epoch: u32) {
        let early = self.store.host.leaves_out(Rule::ValueAfterFence);
        let died = state.ends_in();
        let freed = &mut |ended: Ended| {
            if !early {
                self.store.release(ended, died);
            }
        };
        for Change { xattr, replaced, placed, .. } in staged.changes {
            let Some(placed) = placed else { continue };
            match xattr {
                Some(xattr) => {
                    let (at, origin) = (placed.at, placed.ordinal);
                    let xattr = Xattr { at, origin, epoch, ..xattr };
                    state.set_xattr(xattr, replaced, staged.time_ns, freed);
                }
                None => state.remove_xattr(placed.ordinal, replaced, staged.time_ns, freed),
            }
        }
    }

    /// Gives back what changes took that did not happen.
    pub(crate) fn give_staged(&self, staged: &Staged) {
        staged.runs().for_each(|run| self.store.give(run));
    }
}

fn fill_text(text: &mut Vec<u8>, name: &[u8], value: &[u8], runs: &[Run]) -> Result<()> {
    text.try_reserve_exact(name.len() + value.len() + runs.len() * XATTR_RUN_BYTES)?;
    text.extend_from_slice(name);
    text.extend_from_slice(value);
    runs.iter().for_each(|run| text.extend_from_slice(&run_word(run)));
    Ok(())
}
