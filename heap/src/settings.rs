//! What a program is told about the memory it is to have: by its environment, or by itself.
use core::ffi::CStr;

use lode_loan::Method;

/// The owner's control socket.
pub const SOCKET: &CStr = c"LODE_HEAP_SOCKET";
/// How chunks are to be lent: a method's name.
pub const METHOD: &CStr = c"LODE_HEAP_METHOD";
/// Blocks below this many bytes stay in DRAM; `K`, `M` and `G` may follow the number.
pub const DRAM_BELOW: &CStr = c"LODE_HEAP_DRAM_BELOW";
/// How many seconds a fork waits for a child that gets no further with its copy.
pub const FORK_SECONDS: &CStr = c"LODE_HEAP_FORK_SECONDS";
/// The same where nothing is said: longer than an owner may take for its answers.
const FORK_SECONDS_USUAL: u32 = 60;
/// What a program maps by itself, of this many bytes and more, comes from the pool; `none` for nothing of it.
pub const MAP_FROM: &CStr = c"LODE_HEAP_MAP_FROM";
/// The same where nothing is said.
const MAP_FROM_BYTES: usize = 64 << 10;
/// A directory whose file `ledger` gets a line from each process that ends.
pub const LEDGER: &CStr = c"LODE_HEAP_LEDGER";

/// A path in fixed room; empty where there is none.
#[derive(Clone, Copy)]
pub(crate) struct Path<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Path<N> {
    pub(crate) const NONE: Self = Self { bytes: [0; N], length: 0 };

    /// None where it has no room, with the zero that ends it.
    pub(crate) fn of(path: &[u8]) -> Option<Self> {
        let mut bytes = [0; N];
        bytes.get_mut(..path.len())?.copy_from_slice(path);
        (path.len() < N && !path.contains(&0)).then_some(Self { bytes, length: path.len() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Where memory is to come from.
#[derive(Clone, Copy)]
pub struct Settings {
    pub(crate) socket: Path<108>,
    pub(crate) method: Method,
    pub(crate) dram_below: usize,
    map_from: Option<usize>,
    pub(crate) ledger: Path<1024>,
    pub(crate) fork_seconds: u32,
}

impl Settings {
    pub(crate) const NONE: Self = Self {
        socket: Path::NONE,
        method: Method::Direct,
        dram_below: 0,
        map_from: None,
        ledger: Path::NONE,
        fork_seconds: FORK_SECONDS_USUAL,
    };

    /// Memory of the owner that listens at `socket`, by `method`. None where the path is too long for a
    /// socket's.
    pub fn new(socket: &[u8], method: Method) -> Option<Self> {
        Some(Self { socket: Path::of(socket)?, method, ..Self::NONE })
    }

    /// With blocks below `bytes` from DRAM.
    #[must_use]
    pub const fn dram_below(self, bytes: usize) -> Self {
        Self { dram_below: bytes, ..self }
    }

    /// What the environment says; what makes no sense there is as if it weren't.
    pub fn from_environment() -> Self {
        let text = |name| variable(name).unwrap_or_default();
        let method = core::str::from_utf8(text(METHOD)).ok().and_then(Method::of_name);
        let seconds = core::str::from_utf8(text(FORK_SECONDS)).ok().and_then(|it| it.parse().ok());
        Self {
            socket: Path::of(text(SOCKET)).unwrap_or(Path::NONE),
            method: method.unwrap_or_default(),
            dram_below: bytes_of(text(DRAM_BELOW)).unwrap_or(0),
            map_from: map_from(text(MAP_FROM)),
            ledger: Path::of(text(LEDGER)).unwrap_or(Path::NONE),
            fork_seconds: seconds.unwrap_or(FORK_SECONDS_USUAL),
        }
    }

    /// Blocks below this many bytes are to come from DRAM.
    pub const fn dram_limit(&self) -> usize {
        self.dram_below
    }

    /// Mappings of so many bytes and more are to come from the pool; none are, where there is no number.
    pub const fn map_limit(&self) -> Option<usize> {
        self.map_from
    }
}

/// Whether libc knows the environment already: it doesn't while the program is being linked.
pub fn environment_is_there() -> bool {
    unsafe extern "C" {
        static environ: *const *const core::ffi::c_char;
    }
    // SAFETY: a variable of libc's, read as a number.
    !unsafe { (&raw const environ).read() }.is_null()
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name ends; what is found stays as it is while the program starts.
    let found = unsafe { libc::getenv(name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: variables' values end.
    Some(unsafe { CStr::from_ptr(found) }.to_bytes())
}

fn map_from(text: &[u8]) -> Option<usize> {
    if text == b"none" { None } else { Some(bytes_of(text).unwrap_or(MAP_FROM_BYTES)) }
}

/// A number of bytes: `4096`, `4K`, `2M`, `1G`.
fn bytes_of(text: &[u8]) -> Option<usize> {
    let (digits, shift) = match text.split_last()? {
        (b'k' | b'K', digits) => (digits, 10),
        (b'm' | b'M', digits) => (digits, 20),
        (b'g' | b'G', digits) => (digits, 30),
        _ => (text, 0),
    };
    let number = core::str::from_utf8(digits).ok()?.parse::<usize>().ok()?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_letters() {
        assert_eq!(bytes_of(b"4K"), Some(4096));
        assert_eq!(bytes_of(b"2m"), Some(2 << 20));
        assert_eq!(bytes_of(b"17"), Some(17));
        for wrong in [&b""[..], b"K", b"1T", b"-1", b"99999999999G"] {
            assert_eq!(bytes_of(wrong), None);
        }
    }

    #[test]
    fn mappings_are_taken_from_a_size_on_or_not_at_all() {
        assert_eq!(map_from(b""), Some(64 << 10));
        assert_eq!(map_from(b"nonsense"), Some(64 << 10));
        assert_eq!(map_from(b"4K"), Some(4096));
        assert_eq!(map_from(b"none"), None);
    }

    #[test]
    fn paths_have_room_or_are_none() {
        assert!(Path::<4>::of(b"/abc").is_none());
        assert_eq!(Path::<5>::of(b"/abc").unwrap().bytes(), b"/abc");
        assert!(Path::<5>::of(b"a\0b").is_none());
    }
}
