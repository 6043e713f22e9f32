//! From a path to a [`Mapped`]: open, lock, look what it is, allocate, map, guard.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dirty::Dirty;
use super::kind::{PAGE_BYTES, Source};
use super::lock::Locked;
use super::mapping::Mapping;
use super::memory::Memory;
use super::{Draft, Durability, Mapped, RegionError, RegionKind, RegionOptions, lock, space};
use crate::emulation::{Emulation, Profile};
use crate::fault::bad::{BadBytes, Remapping};
use crate::fault::{self, Handled};
use crate::flush::{CpuFeatures, FlushStrategy};
use crate::windows::key::{Closed, Key, NoKey};
use crate::windows::protect::Protect;
use crate::windows::{Guard, WindowMode};

impl Mapped {
    /// Opens the file or device at `path` as a region.
    ///
    /// The region is the whole file, less what is beyond its last whole page. It is
    /// locked: for this region alone, or among readers if `options` say read-only.
    /// Holes of the file are allocated, so that no store finds the disk full.
    pub fn open(path: impl AsRef<Path>, options: &RegionOptions) -> Result<Self, RegionError> {
        let path = path.as_ref();
        Self::open_guarded(path, options, check(options)?)
    }

    /// [`Mapped::open`] with this guard.
    pub(crate) fn open_guarded(
        path: &Path,
        options: &RegionOptions,
        guard: ChosenGuard,
    ) -> Result<Self, RegionError> {
        let (locked, source) = Source::open(path, options)?;
        let bytes = source.bytes - source.bytes % source.page_bytes;
        map_file(locked, path, &source, bytes, options, guard)
    }

    /// Creates a file of `bytes` bytes (rounded up to whole pages, huge ones in
    /// hugetlbfs) at `path`, with all of its space, and opens it as a region of zeros: a
    /// [`Draft`] that is published at once.
    pub fn create(
        path: impl AsRef<Path>,
        bytes: u64,
        options: &RegionOptions,
        force: bool,
    ) -> Result<Self, RegionError> {
        let (region, draft) = Draft::create(path, bytes, options, force)?;
        draft.publish()?;
        Ok(region)
    }

    /// A region of `bytes` bytes (rounded up to whole pages) of zeroed memory.
    pub fn anonymous(bytes: u64, options: &RegionOptions) -> Result<Self, RegionError> {
        let path = Path::new("anonymous memory");
        let bytes = round_up(bytes, PAGE_BYTES, path)?;
        let kind = RegionKind::Anonymous;
        let guard = check(options)?;
        let strategy = choose_strategy(kind, options, false)?;
        install_handlers(&guard, path)?;
        let len = address_space(bytes, path)?;
        let mapping = Mapping::anonymous(len, guard.rights(options.read_only))
            .map_err(|source| RegionError::io("mapping", path, source))?;
        mapping.prefer_huge_pages();
        Ok(Mapped {
            guard: guard.attach(&mapping, (PAGE_BYTES, options.read_only), path)?,
            mapping,
            bad: None,
            bytes,
            page_bytes: PAGE_BYTES,
            bytes_writable: if options.read_only { 0 } else { bytes },
            kind,
            memory: Memory::default(),
            strategy,
            durability: Durability::of(kind, strategy, &Memory::default()),
            dirty: None,
            emulation: emulation(options.emulate, path)?,
            path: None,
            locked: None,
        })
    }
}

impl Source {
    /// What is at `path`, locked, with all of its space.
    pub(crate) fn open(
        path: &Path,
        options: &RegionOptions,
    ) -> Result<(Locked, Self), RegionError> {
        let locked = open_locked(path, options.read_only)?;
        let source = Self::of(locked.file(), path, options.sysfs_root())?;
        let bytes = source.bytes - source.bytes % source.page_bytes;
        if bytes == 0 {
            return Err(RegionError::TooSmall {
                path: path.to_owned(),
                bytes: source.bytes,
                bytes_min: source.page_bytes,
            });
        }
        if !options.read_only && !source.is_device {
            space::allocate(locked.file(), path, bytes)?;
        }
        Ok((locked, source))
    }
}

/// Never waits (for the other end of a pipe) and never takes a terminal over.
pub(super) const OPEN_FLAGS: libc::c_int = libc::O_NONBLOCK | libc::O_NOCTTY;

/// Opens what is at `path` and locks it.
pub(super) fn open_locked(path: &Path, read_only: bool) -> Result<Locked, RegionError> {
    loop {
        let locked = lock::lock(open_file(path, read_only)?, path, read_only)?;
        let io = |source| RegionError::io("looking at", path, source);
        let opened = locked.file().metadata().map_err(io)?;
        let now = std::fs::metadata(path).map_err(io)?;
        // Between the two it may have been replaced: the lock is on what nobody finds any more.
        if (opened.dev(), opened.ino()) == (now.dev(), now.ino()) {
            return Ok(locked);
        }
    }
}

fn open_file(path: &Path, read_only: bool) -> Result<File, RegionError> {
    let opened =
        OpenOptions::new().read(true).write(!read_only).custom_flags(OPEN_FLAGS).open(path);
    opened.map_err(|source| match source.kind() {
        ErrorKind::IsADirectory => RegionError::NotARegion { path: path.to_owned() },
        _ => RegionError::io("opening", path, source),
    })
}

/// Sizes a file that is to be a region, and maps it; a device keeps its size and contents.
pub(super) fn map_new(
    locked: Locked,
    path: &Path,
    bytes: u64,
    options: &RegionOptions,
    guard: ChosenGuard,
) -> Result<Mapped, RegionError> {
    let file = locked.file();
    let source = Source::of(file, path, options.sysfs_root())?;
    if source.is_device {
        let whole = source.bytes - source.bytes % source.page_bytes;
        let bytes = if bytes == 0 && whole > 0 { source.bytes } else { bytes };
        if !bytes.is_multiple_of(source.page_bytes) {
            let (path, page_bytes) = (path.to_owned(), source.page_bytes);
            return Err(RegionError::Misaligned { path, bytes, page_bytes });
        }
        if bytes == 0 {
            let (bytes, bytes_min) = (source.bytes, source.page_bytes);
            return Err(RegionError::TooSmall { path: path.to_owned(), bytes, bytes_min });
        }
        if bytes > whole {
            return Err(RegionError::TooLarge { path: path.to_owned(), bytes, bytes_max: whole });
        }
        return map_file(locked, path, &source, bytes, options, guard);
    }
    let bytes = round_up(bytes, source.page_bytes, path)?;
    let io = |error| RegionError::io("sizing", path, error);
    // First to nothing, so that what was there is gone.
    file.set_len(0).map_err(io)?;
    file.set_len(bytes).map_err(io)?;
    space::allocate(file, path, bytes)?;
    file.sync_all().map_err(io)?;
    map_file(locked, path, &source, bytes, options, guard)
}

fn map_file(
    locked: Locked,
    path: &Path,
    source: &Source,
    bytes: u64,
    options: &RegionOptions,
    guard: ChosenGuard,
) -> Result<Mapped, RegionError> {
    install_handlers(&guard, path)?;
    let len = address_space(bytes, path)?;
    let try_sync = matches!(source.kind, RegionKind::File | RegionKind::DeviceDax);
    let (mapping, is_sync) =
        Mapping::of_file(locked.file(), len, guard.rights(options.read_only), try_sync)
            .map_err(|source| RegionError::io("mapping", path, source))?;
    let kind = match source.kind {
        RegionKind::File if is_sync => RegionKind::DaxFile,
        kind => kind,
    };
    if kind == RegionKind::Tmpfs {
        mapping.prefer_huge_pages();
    }
    let memory = source.memory(locked.file(), bytes);
    let strategy = choose_strategy(kind, options, memory.caches_survive())?;
    let durability = Durability::of(kind, strategy, &memory);
    let dirty = match strategy {
        FlushStrategy::Instructions { .. } => None,
        FlushStrategy::Msync => {
            let dirty = Dirty::new(bytes, source.page_bytes);
            Some(dirty.ok_or_else(|| too_large(bytes, path))?)
        }
    };
    let guard = guard.attach(&mapping, (source.page_bytes, options.read_only), path)?;
    let remapped = !options.read_only && source.page_bytes == PAGE_BYTES;
    let bad = (remapped || !memory.listed_bad.is_empty()).then(|| {
        let sync = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
        let kind = if is_sync { sync } else { libc::MAP_SHARED };
        let file = if remapped { locked.file().as_raw_fd() } else { -1 };
        let base = mapping.base() as usize;
        let remapping = Remapping { base, file, kind, key: guard.key_number() };
        BadBytes::attach(remapping, &memory.listed_bad)
    });
    Ok(Mapped {
        guard,
        mapping,
        bad,
        bytes,
        page_bytes: source.page_bytes,
        bytes_writable: if options.read_only { 0 } else { bytes },
        kind,
        memory,
        strategy,
        durability,
        dirty,
        emulation: emulation(options.emulate, path)?,
        path: Some(PathBuf::from(path)),
        locked: Some(Arc::new(locked)),
    })
}

fn emulation(profile: Option<Profile>, path: &Path) -> Result<Option<Arc<Emulation>>, RegionError> {
    let Some(profile) = profile else { return Ok(None) };
    let emulation = Emulation::new(profile)
        .map_err(|source| RegionError::io("measuring the memory for", path, source))?;
    Ok(Some(Arc::new(emulation)))
}

fn install_handlers(guard: &ChosenGuard, path: &Path) -> Result<(), RegionError> {
    let failed = |source| RegionError::io("installing a signal handler for", path, source);
    fault::install(Handled::Bus).map_err(failed)?;
    match guard {
        ChosenGuard::Key(_) => fault::install(Handled::Segv).map_err(failed),
        ChosenGuard::Mprotect | ChosenGuard::None => Ok(()),
    }
}

/// What can be said of the options whatever the region is, and the guard.
pub(super) fn check(options: &RegionOptions) -> Result<ChosenGuard, RegionError> {
    if let Some(strategy) = options.flush
        && let Some(missing) = strategy.missing_on(CpuFeatures::get())
    {
        return Err(RegionError::NoSuchInstruction { strategy, missing });
    }
    ChosenGuard::choose(options)
}

/// The strategy asked for, which the CPU has, if the region can do it, or the best.
pub(super) fn choose_strategy(
    kind: RegionKind,
    options: &RegionOptions,
    caches_survive: bool,
) -> Result<FlushStrategy, RegionError> {
    let Some(strategy) = options.flush else {
        return Ok(match kind {
            RegionKind::File => FlushStrategy::Msync,
            _ => FlushStrategy::best(CpuFeatures::get(), caches_survive),
        });
    };
    let has_msync = !matches!(kind, RegionKind::Anonymous | RegionKind::DeviceDax);
    if strategy == FlushStrategy::Msync && !has_msync {
        return Err(RegionError::NoMsync { kind });
    }
    Ok(strategy)
}

/// A [`Guard`] before there is a mapping.
pub(crate) enum ChosenGuard {
    Key(Key),
    Mprotect,
    None,
}

impl ChosenGuard {
    fn choose(options: &RegionOptions) -> Result<Self, RegionError> {
        if options.read_only {
            // Nothing can store into it anyway.
            return Ok(Self::None);
        }
        match options.windows {
            Some(WindowMode::Key) => Self::key(),
            Some(WindowMode::Mprotect) => Ok(Self::Mprotect),
            Some(WindowMode::None) => Ok(Self::None),
            None => Ok(Self::key().unwrap_or(Self::None)),
        }
    }

    /// A key that keeps stores out.
    pub(crate) fn key() -> Result<Self, RegionError> {
        Self::of_key(Closed::Stores)
    }

    /// A key that keeps loads out as well: of who loads without a window.
    pub(crate) fn key_for_loads() -> Result<Self, RegionError> {
        Self::of_key(Closed::StoresAndLoads)
    }

    fn of_key(closed: Closed) -> Result<Self, RegionError> {
        Key::allocate(closed).map(Self::Key).map_err(|why| RegionError::NoWindows {
            mode: WindowMode::Key,
            why: match why {
                NoKey::Unsupported => "this CPU or kernel has no protection keys",
                NoKey::AllInUse => "all protection keys of this process are in use",
            },
        })
    }

    /// The rights to map with: closed from the start where there is a guard.
    fn rights(&self, read_only: bool) -> libc::c_int {
        match self {
            Self::None if !read_only => libc::PROT_READ | libc::PROT_WRITE,
            _ => libc::PROT_READ,
        }
    }

    fn attach(
        self,
        mapping: &Mapping,
        (page_bytes, read_only): (u64, bool),
        path: &Path,
    ) -> Result<Guard, RegionError> {
        match self {
            Self::Key(key) => {
                // SAFETY: the mapping is ours.
                let guarded = unsafe { key.guard(mapping.base(), mapping.len(), !read_only) };
                guarded.map_err(|source| RegionError::io("guarding", path, source))?;
                Ok(Guard::Key(key))
            }
            // SAFETY: the mapping goes where the guard goes, and is dropped with it.
            Self::Mprotect => {
                Ok(Guard::Mprotect(unsafe { Protect::new(mapping.base(), page_bytes) }))
            }
            Self::None => Ok(Guard::None),
        }
    }
}

fn round_up(bytes: u64, page_bytes: u64, path: &Path) -> Result<u64, RegionError> {
    if bytes == 0 {
        return Err(RegionError::TooSmall { path: path.to_owned(), bytes, bytes_min: page_bytes });
    }
    bytes.checked_next_multiple_of(page_bytes).ok_or_else(|| too_large(bytes, path))
}

fn address_space(bytes: u64, path: &Path) -> Result<usize, RegionError> {
    let len = usize::try_from(bytes).ok();
    len.filter(|&len| isize::try_from(len).is_ok()).ok_or_else(|| too_large(bytes, path))
}

fn too_large(bytes: u64, path: &Path) -> RegionError {
    RegionError::TooLarge {
        path: path.to_owned(),
        bytes,
        bytes_max: (u64::from(u32::MAX) + 1) * PAGE_BYTES - 1,
    }
}
