//! Files whose pages a program has mapped for itself.
//!
//! Guarantees: while a file is mapped its pages stay where they are (but for those that a snapshot sees, which its maps follow), and a page that it gives up
//! (cut off, punched, replaced) becomes nobody's else before the last map has ended, so that a
//! store through a map never reaches what is another's. After a crash nobody has maps, and such
//! pages are free.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::exempt::Pages;
use super::file::File;
use super::state::State;
use crate::Result;
use crate::gauges::list_bytes;
use crate::space::{Ended, Run};
use crate::store::Show;

/// Pages beside the file's that a program stores into, to take the place of its own at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Staged {
    /// The first page in the file.
    pub(crate) file_page: u64,
    /// Where they are in the pool.
    pub(crate) run: Run,
}

/// What is kept of a mapped file.
#[derive(Default)]
pub(crate) struct Maps {
    /// How many maps there are.
    pub(crate) count: u32,
    /// One of these is a claim: nobody else may change the file.
    pub(crate) claimed: bool,
    /// Pages that the file has given up since.
    pub(crate) given_up: Vec<Run>,
    /// Pages that are staged, by place in the file.
    pub(crate) staged: Vec<Staged>,
    /// Maps whose makers are told where pages move to.
    pub(crate) shown: Vec<Show>,
    /// At level `full`: the file's pages that maps show. These stay where they are.
    pub(crate) shown_pages: Pages,
    /// Those of which a log was told that they are exempt from checksums, though some may not be since, for a snapshot.
    pub(crate) told_pages: Pages,
}

impl Maps {
    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        size_of::<Self>() as u64
            + list_bytes::<Run>(self.given_up.capacity())
            + list_bytes::<Staged>(self.staged.capacity())
            + list_bytes::<Show>(self.shown.capacity())
            + self.shown_pages.memory_bytes()
            + self.told_pages.memory_bytes()
    }

    /// Calls `each` with all pages that are in no extent of the file.
    pub(crate) fn for_each_run(&self, each: &mut dyn FnMut(Run)) {
        self.given_up.iter().for_each(|run| each(*run));
        self.staged.iter().for_each(|staged| each(staged.run));
    }
}

impl File {
    /// Whether a program has pages of it mapped.
    #[inline]
    pub(crate) fn is_mapped(&self) -> bool {
        self.maps.is_some()
    }

    /// Whether a program has one map of it alone.
    pub(crate) fn has_one_map(&self) -> bool {
        self.maps.as_deref().is_some_and(|maps| maps.count <= 1)
    }

    /// The pages that maps show, at level `full`.
    #[inline]
    pub(crate) fn shown(&self) -> Option<&Pages> {
        self.maps.as_deref().map(|maps| &maps.shown_pages).filter(|shown| !shown.is_empty())
    }

    /// Ends one map. With the last one, `free` gets what was kept for them.
    pub(crate) fn end_map(&mut self, free: &mut dyn FnMut(Run)) {
        let Some(maps) = &mut self.maps else { return };
        maps.count = maps.count.saturating_sub(1);
        if maps.count == 0 {
            self.end_all_maps(free);
        }
    }

    /// Ends all maps.
    pub(crate) fn end_all_maps(&mut self, free: &mut dyn FnMut(Run)) {
        if let Some(maps) = self.maps.take() {
            // Nobody knows what programs have stored there.
            self.zero_behind = false;
            maps.for_each_run(free);
        }
    }

    /// Makes room for what a change of so many pieces more may give up while the file is mapped.
    pub(crate) fn reserve_given_up(&mut self, more: usize) -> Result<()> {
        let pieces = self.extents.len() + more;
        match &mut self.maps {
            Some(maps) => Ok(maps.given_up.try_reserve(pieces)?),
            None => Ok(()),
        }
    }
}

impl State {
    /// Lets `change` change the state, whose pages it gives up go to `free`, or are kept while the
    /// file is mapped; room for these was made. (What the `latest` snapshot has is mapped by nobody.)
    pub(crate) fn giving_up<R>(
        &mut self,
        free: &mut dyn FnMut(Ended),
        latest: u32,
        change: impl FnOnce(&mut Self, &mut dyn FnMut(Ended)) -> R,
    ) -> R {
        let maps = self.file_mut().ok().and_then(|file| file.maps.as_deref_mut());
        let Some(maps) = maps else { return change(self, free) };
        let mut given_up = core::mem::take(&mut maps.given_up);
        let result = change(self, &mut |ended| match ended.born > latest {
            true => given_up.push(ended.run),
            false => free(ended),
        });
        if let Some(maps) = self.file_mut().ok().and_then(|file| file.maps.as_deref_mut()) {
            maps.given_up = given_up;
        }
        result
    }

    /// What is kept of a file as mapped, from now on if it was not before.
    pub(crate) fn maps_mut(&mut self) -> Result<&mut Maps> {
        let file = self.file_mut()?;
        Ok(file.maps.get_or_insert_with(|| Box::new(Maps::default())))
    }
}
