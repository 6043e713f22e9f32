//! Parts of a region that somebody else has open, mapped here: the memory of one of its files.
//!
//! What this file guarantees: only the parts that were named are mapped. Once [`Lent::let_go`] has returned, no store by its address reaches
//! the region.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::kind::Source;
use super::mapping::{Mapping, Part, Place};
use super::memory::Memory;
use super::open::choose_strategy;
use super::view::parts_within;
use super::{Durability, Mapped, RegionError, RegionKind, RegionOptions, View, ViewOptions, loan};
use crate::fault::{self, Handled};
use crate::flush::FlushStrategy;

/// The file of a region that is open elsewhere: its owner has passed it on, marked ([`loan::mark`]).
#[derive(Debug)]
pub struct Borrowed {
    file: File,
    path: PathBuf,
    bytes: u64,
    page_bytes: u64,
    kind: RegionKind,
    strategy: FlushStrategy,
    durability: Durability,
}

/// Some of its parts, as memory.
#[derive(Debug)]
pub struct Lent {
    view: View,
    parts: Vec<Part>,
}

impl Borrowed {
    /// The file of a region of so many bytes; errors tell of it by `path`.
    ///
    /// # Errors
    /// For what is no region of that size; those of the system.
    pub fn new(file: OwnedFd, bytes: u64, path: &Path) -> Result<Self, RegionError> {
        let file = File::from(file);
        let failed = |source| RegionError::io("installing a signal handler for", path, source);
        fault::install(Handled::Bus).map_err(failed)?;
        let options = RegionOptions::default();
        let source = Source::of(&file, path, options.sysfs_root())?;
        if source.bytes < bytes {
            return Err(RegionError::NotARegion { path: path.to_owned() });
        }
        let memory = source.memory(&file, bytes);
        let mut kind = source.kind;
        if kind == RegionKind::File {
            let (_, is_sync) = Mapping::of_file(&file, 4096, libc::PROT_READ, true)
                .map_err(|source| RegionError::io("mapping", path, source))?;
            kind = if is_sync { RegionKind::DaxFile } else { kind };
        }
        let strategy = choose_strategy(kind, &options, memory.caches_survive())?;
        let durability = Durability::of(kind, strategy, &memory);
        let (path, page_bytes) = (path.to_owned(), source.page_bytes);
        Ok(Self { file, path, bytes, page_bytes, kind, strategy, durability })
    }

    /// Maps parts of it one behind the other, to be stored into if they are to be writable.
    ///
    /// # Errors
    /// [`RegionError::Unviewable`] where a part is not inside, or does not begin and end with pages that can be mapped; those
    /// of the system.
    pub fn map(&self, parts: &[(u64, u64)], options: &ViewOptions) -> Result<Lent, RegionError> {
        let unviewable =
            || RegionError::Unviewable { kind: self.kind, page_bytes: self.page_bytes };
        let parts = parts_within(parts, self.bytes, self.page_bytes).ok_or_else(unviewable)?;
        let place = Place { align: options.align, phase: options.phase };
        let stores = if options.writable { libc::PROT_WRITE } else { 0 };
        let (rights, sync) = (libc::PROT_READ | stores, self.kind == RegionKind::DaxFile);
        let mapping = Mapping::of_parts(&self.file, &parts, rights, sync, &place)
            .map_err(|source| RegionError::io("mapping parts of", &self.path, source))?;
        if self.kind == RegionKind::Tmpfs {
            mapping.prefer_huge_pages();
        }
        let bytes = mapping.len() as u64;
        let view = View::over(Mapped {
            bytes,
            bytes_writable: if options.writable { bytes } else { 0 },
            strategy: self.strategy,
            guard: crate::windows::Guard::None,
            bad: None,
            dirty: None,
            page_bytes: self.page_bytes,
            kind: self.kind,
            memory: Memory::default(),
            durability: self.durability,
            path: Some(self.path.clone()),
            locked: None,
            emulation: None,
            mapping,
        });
        Ok(Lent { view, parts })
    }

    /// Ends the marks: nothing of it is to be mapped any more that was not let go of.
    ///
    /// # Errors
    /// Those of the system.
    pub fn unmark(&self) -> io::Result<()> {
        loan::unmark(self.file.as_fd())
    }
}

impl Lent {
    /// The memory.
    #[inline]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// From now on what is stored to it stays in this process: it is a copy of the region's bytes as they were, page by page, or become. Where the system makes
    /// no such copy (of a device), an access is a SIGSEGV.
    pub fn let_go(&self, of: &Borrowed) {
        self.view.mapping().keep_apart(&of.file, &self.parts);
    }
}
