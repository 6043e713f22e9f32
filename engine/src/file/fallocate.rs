//! `fallocate`: backing with pages, holes, zeros. Each call is one transaction.

use lode_pmem::Medium;

use super::change::Change;
use super::claim::unclaimed;
use super::fresh::Source;
use super::segment::{Rules, Segment, Way};
use super::write::regular;
use crate::inode::{Node, State};
use crate::{Error, FILE_MAX, Fallocate, Host, Ino, Op, PAGE_BYTES, PageClass, Pool, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Allocates, punches or zeroes bytes `offset .. offset + len`. Backing an empty file
    /// with 2 MiB or more is a hint: its pages are taken in chunks of that size.
    pub fn fallocate(&self, ino: Ino, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.count(Op::Fallocate);
        self.store.before_operation()?;
        let end = offset.checked_add(len).filter(|&end| end <= FILE_MAX);
        let end = end.ok_or(Error::FileTooLarge)?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        let node = self.node(ino)?;
        let mut state = node.write(&self.store)?;
        regular(&state)?;
        unclaimed(&state)?;
        match how {
            Fallocate::Allocate { keep_size } => {
                self.allocate(&node, &mut state, (offset, end), keep_size)
            }
            Fallocate::Punch => self.punch(&node, &mut state, offset, end),
            Fallocate::Zero { keep_size } => {
                let size = if keep_size { state.size } else { state.size.max(end) };
                let mut change = Change::new(Source::Zeros, &state, size);
                self.make(&node, &mut state, &mut change, &mut |state, rules, change| {
                    change.write(state, rules, offset, end.min(size).max(offset))
                })
            }
        }
    }

    pub(super) fn allocate(
        &self,
        node: &Node<H>,
        state: &mut State,
        (offset, end): (u64, u64),
        keep_size: bool,
    ) -> Result<()> {
        let size = if keep_size { state.size } else { state.size.max(end) };
        let mut change = Change::new(Source::Zeros, state, size);
        self.make(node, state, &mut change, &mut |state, _, change| {
            self.plan_allocation(state, (offset, end), change)
        })
    }

    fn plan_allocation(
        &self,
        state: &State,
        (offset, end): (u64, u64),
        change: &mut Change<'_>,
    ) -> Result<()> {
        let file = state.file()?;
        if file.extents.is_empty() {
            change.class = change.class.max(self.hint(end - offset));
        }
        let mut page = offset / PAGE_BYTES;
        let end_page = end.div_ceil(PAGE_BYTES);
        let mut wanted = 0;
        while page < end_page {
            let extent = file.extents.next_from(page);
            let hole_end = extent.map_or(end_page, |extent| extent.file_page.min(end_page));
            if page < hole_end {
                let (from, to) = (page * PAGE_BYTES, hole_end * PAGE_BYTES);
                change.segments.push(Segment { way: Way::Fresh, from, to, at: 0 })?;
                wanted += hole_end - page;
            }
            page = extent.map_or(end_page, |extent| extent.end());
        }
        // Zeroing what there is room for would be in vain.
        let free = || self.store.space.free_pages() + self.store.quarantined_pages();
        let all = wanted.saturating_add(self.store.reserve());
        if wanted > free() && !(self.store.ask_until(all, &|| wanted <= free())) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// The page class that a size hints at (PMFS 3.1). (None for what is received: of that the size comes before the
    /// data, and holes have to stay holes.)
    pub(super) fn hint(&self, len: u64) -> PageClass {
        let covers = |class: PageClass| len >= class.pages() * PAGE_BYTES;
        let large = [PageClass::Giant, PageClass::Huge].into_iter().find(|&class| covers(class));
        large.filter(|_| !self.options.receiving).unwrap_or(PageClass::Small)
    }

    fn punch(&self, node: &Node<H>, state: &mut State, offset: u64, end: u64) -> Result<()> {
        let mut change = Change::new(Source::Zeros, state, state.size);
        self.make(node, state, &mut change, &mut |state, rules, change| {
            plan_punch(state, rules, (offset, end), change)
        })
    }
}

/// Zeros where part of a page is punched, and a hole of whole ones.
fn plan_punch(
    state: &State,
    rules: Rules,
    (offset, end): (u64, u64),
    change: &mut Change<'_>,
) -> Result<()> {
    let (first, last) = (offset.div_ceil(PAGE_BYTES), end / PAGE_BYTES);
    let head = (offset, end.min(first * PAGE_BYTES));
    let tail = (offset.max(last * PAGE_BYTES), end);
    let edges = if first > last { [head, (0, 0)] } else { [head, tail] };
    for (from, to) in edges {
        let to = to.min(state.size);
        let mapped = state.file()?.extents.find(from / PAGE_BYTES).is_some();
        if from < to && mapped {
            change.write(state, rules, from, to)?;
        }
    }
    if first < last {
        let next = state.file()?.extents.next_from(first);
        if next.is_some_and(|extent| extent.file_page < last) {
            change.unmap = Some((first, last - first));
        }
    }
    Ok(())
}
