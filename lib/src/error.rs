//! What can go wrong, with the error number that the same call of the system has.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use lode_engine::Corruption;
use lode_pmem::RegionError;

/// Result of a call of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// An error: what went wrong, and with which path.
pub struct Error {
    cause: Cause,
    paths: Option<Box<Paths>>,
}

/// What a call was about.
struct Paths {
    path: PathBuf,
    other: Option<PathBuf>,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Cause {
    /// The engine said so.
    Engine(lode_engine::Error),
    /// An error number of the system, for what the engine has no word for.
    Number(i32),
    /// The pool's file or device.
    Region(Box<RegionError>),
    /// Something of the system that the pool needs.
    System {
        /// What was tried, as a verb phrase.
        what: &'static str,
        source: io::Error,
    },
    /// The file ends before the buffer is full.
    Ended,
    /// The contents are not UTF-8.
    NotText,
    /// Clones or open files of a pool that is to be closed are still there.
    InUse,
    /// The log is open already.
    LogInUse,
    /// The log has an entry that is not as it was appended.
    LogDamaged,
    /// The heap is open already, or a log in its file.
    HeapInUse,
    /// The owner of a heap's pool is no more, or has ended the conversation.
    OwnerGone,
    /// The owner of a pool refuses.
    Refused { errno: i32, words: String },
    /// The heap said so.
    Heap(HeapError),
    /// A call panicked before: the pool is left as after a crash.
    Failed,
}

/// What is wrong with a heap or with what was asked of it; its memory is never named by it.
pub type HeapError = lode_kept::Error<std::convert::Infallible>;

impl From<lode_kept::Error<Cause>> for Cause {
    fn from(error: lode_kept::Error<Cause>) -> Self {
        use lode_kept::Error::{
            CutShort, Damaged, Failed, Memory, NoBlock, NoPlace, NotAHeap, TooLarge, Version,
        };
        Self::Heap(match error {
            Memory(cause) => return cause,
            NotAHeap => NotAHeap,
            Version(version) => Version(version),
            CutShort { bytes, wanted } => CutShort { bytes, wanted },
            Damaged { at, what } => Damaged { at, what },
            NoPlace(at) => NoPlace(at),
            NoBlock(at) => NoBlock(at),
            TooLarge => TooLarge,
            Failed => Failed,
        })
    }
}

fn heap_errno(error: &HeapError) -> i32 {
    use lode_kept::Error::{
        CutShort, Damaged, Failed, Memory, NoBlock, NoPlace, NotAHeap, TooLarge, Version,
    };
    match error {
        NotAHeap | Version(_) | NoBlock(_) => libc::EINVAL,
        NoPlace(_) => libc::EFAULT,
        TooLarge => libc::EFBIG,
        CutShort { .. } | Damaged { .. } | Failed => libc::EIO,
        Memory(never) => match *never {},
    }
}

impl From<lode_engine::Error> for Cause {
    fn from(error: lode_engine::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<RegionError> for Cause {
    fn from(error: RegionError) -> Self {
        Self::Region(Box::new(error))
    }
}

impl Cause {
    /// Whether there is nothing of that name.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Engine(lode_engine::Error::NotFound | lode_engine::Error::Stale))
    }

    /// Whether an inode went away after its name had been looked up.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Engine(lode_engine::Error::Stale))
    }

    fn errno(&self) -> i32 {
        match self {
            Self::Engine(error) => error.errno(),
            Self::Number(number) => *number,
            Self::Region(error) => region_errno(error),
            Self::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Self::Ended | Self::LogDamaged | Self::Failed => libc::EIO,
            Self::NotText => libc::EILSEQ,
            Self::InUse | Self::LogInUse | Self::HeapInUse => libc::EBUSY,
            Self::OwnerGone => libc::ENOTCONN,
            Self::Refused { errno, .. } => *errno,
            Self::Heap(error) => heap_errno(error),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Ended => io::ErrorKind::UnexpectedEof,
            Self::NotText => io::ErrorKind::InvalidData,
            other => io::Error::from_raw_os_error(other.errno()).kind(),
        }
    }

    /// Whether the error number says it all.
    fn is_plain(&self) -> bool {
        use lode_engine::Error::{Corrupt, Media, NotAPool, Unwritten};
        match self {
            Self::Engine(Corrupt(_) | Media { .. } | NotAPool(_) | Unwritten) => false,
            Self::Engine(_) | Self::Number(_) => true,
            _ => false,
        }
    }
}

fn region_errno(error: &RegionError) -> i32 {
    match error {
        RegionError::Busy { .. } => libc::EBUSY,
        RegionError::NoSpace { .. } => libc::ENOSPC,
        RegionError::Exists { .. } => libc::EEXIST,
        RegionError::DanglingLink { .. } => libc::ENOENT,
        RegionError::TooLarge { .. } => libc::EFBIG,
        RegionError::NoSuchInstruction { .. }
        | RegionError::NoMsync { .. }
        | RegionError::Unviewable { .. }
        | RegionError::NoWindows { .. } => libc::EOPNOTSUPP,
        RegionError::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EINVAL,
    }
}

impl Error {
    /// Of a call about `path`.
    #[cold]
    pub(crate) fn at(cause: Cause, path: &Path) -> Self {
        Self::of(cause, path, None)
    }

    /// Of a call about two paths.
    #[cold]
    pub(crate) fn between(cause: Cause, path: &Path, other: &Path) -> Self {
        Self::of(cause, path, Some(other))
    }

    fn of(cause: Cause, path: &Path, other: Option<&Path>) -> Self {
        // What a name led to has gone: now there is nothing of that name.
        let gone = cause.is_stale();
        let cause = if gone { Cause::Engine(lode_engine::Error::NotFound) } else { cause };
        let paths = Paths { path: path.to_owned(), other: other.map(Path::to_owned) };
        Self { cause, paths: Some(Box::new(paths)) }
    }

    /// The same error, of a call about two paths.
    pub(crate) fn about(self, path: &Path, other: &Path) -> Self {
        Self::between(self.cause, path, other)
    }

    /// What went wrong, without what the call was about.
    pub(crate) fn into_cause(self) -> Cause {
        self.cause
    }

    /// The number that the same call of the system would set `errno` to.
    pub fn errno(&self) -> i32 {
        self.cause.errno()
    }

    /// The kind that an [`io::Error`] has.
    pub fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }

    /// The (first) path that the call was about.
    pub fn path(&self) -> Option<&Path> {
        self.paths.as_ref().map(|paths| &*paths.path)
    }

    /// What is damaged, and where in the pool, if that is what is wrong.
    pub fn corruption(&self) -> Option<Corruption> {
        match &self.cause {
            Cause::Engine(
                lode_engine::Error::Corrupt(damage) | lode_engine::Error::Lost(damage),
            ) => Some(*damage),
            _ => None,
        }
    }

    /// What is wrong with a [`crate::KeptHeap`] or with what was asked of it, if that is.
    pub fn heap(&self) -> Option<HeapError> {
        match &self.cause {
            Cause::Heap(error) => Some(*error),
            _ => None,
        }
    }

    /// Why the pool's file or device can't be used, if that is what is wrong.
    pub fn region(&self) -> Option<&RegionError> {
        match &self.cause {
            Cause::Region(error) => Some(error),
            _ => None,
        }
    }
}

/// Of a call by handle.
impl From<Cause> for Error {
    #[cold]
    fn from(cause: Cause) -> Self {
        Self { cause, paths: None }
    }
}

impl From<lode_engine::Error> for Error {
    #[cold]
    fn from(error: lode_engine::Error) -> Self {
        Self::from(Cause::Engine(error))
    }
}

/// The error number alone, where it says it all.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        if error.cause.is_plain() {
            return io::Error::from_raw_os_error(error.errno());
        }
        io::Error::new(error.kind(), error)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Number(number) => io::Error::from_raw_os_error(*number).fmt(f),
            Self::Region(error) => error.fmt(f),
            Self::System { what, source } => write!(f, "can't {what}: {source}"),
            Self::Ended => f.write_str("the file ends before the buffer is full"),
            Self::NotText => f.write_str("the contents are not UTF-8"),
            Self::InUse => f.write_str(
                "the pool has other clones or open files: it is closed when the last of them is dropped",
            ),
            Self::LogInUse => f.write_str("the log is open already"),
            Self::HeapInUse => f.write_str("the heap is open already"),
            Self::OwnerGone => f.write_str("the pool's owner is gone: open the heap again"),
            Self::Refused { words, .. } => write!(f, "the pool's owner refuses: {words}"),
            Self::Heap(error) => error.fmt(f),
            Self::LogDamaged => f.write_str("an entry of the log is damaged"),
            Self::Failed => f.write_str(
                "a call on this pool panicked: it is left as after a crash, open it again",
            ),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Errors of the pool's file name it themselves.
        if let (Some(paths), false) = (&self.paths, matches!(self.cause, Cause::Region(_))) {
            write!(f, "{}", paths.path.display())?;
            if let Some(other) = &paths.other {
                write!(f, " -> {}", other.display())?;
            }
            f.write_str(": ")?;
        }
        self.cause.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({}, errno {})", self, self.errno())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Region(error) => Some(&**error),
            Cause::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
