//! The lists of Filebench's personalities, with the sizes of files and of reads and writes that
//! NOVA was measured with, and with fewer files: 32 or 64 MiB of them, so that they fit into
//! memory many times, as those of its small runs did.

use super::personality::Call::{
    Append, Close, Create, Delete, Log, Open, OpenToRead, ReadAny, ReadWhole, Stat, WriteAny,
    WriteWhole,
};
use super::personality::Personality;

const KIB: u64 = 1 << 10;

/// Files are made, written, appended to, read, removed.
pub const FILESERVER: Personality = Personality {
    files: 512,
    file_bytes: 128 * KIB,
    directories: 20,
    read_bytes: 16 << 10,
    write_bytes: 16 << 10,
    calls: &[
        Create, WriteWhole, Close, Open, Append, Close, OpenToRead, ReadWhole, Close, Delete, Stat,
    ],
};

/// Ten files are read, then a line goes to the log.
pub const WEBSERVER: Personality = Personality {
    files: 1000,
    file_bytes: 64 * KIB,
    directories: 20,
    read_bytes: 1 << 20,
    write_bytes: 8 << 10,
    calls: &[
        OpenToRead, ReadWhole, Close, OpenToRead, ReadWhole, Close, OpenToRead, ReadWhole, Close,
        OpenToRead, ReadWhole, Close, OpenToRead, ReadWhole, Close, OpenToRead, ReadWhole, Close,
        OpenToRead, ReadWhole, Close, OpenToRead, ReadWhole, Close, OpenToRead, ReadWhole, Close,
        OpenToRead, ReadWhole, Close, Log,
    ],
};

/// A file is replaced, five are read, all in one directory.
pub const WEBPROXY: Personality = Personality {
    files: 2000,
    file_bytes: 32 * KIB,
    directories: 1,
    read_bytes: 1 << 20,
    write_bytes: 16 << 10,
    calls: &[
        Delete, Create, Append, Close, OpenToRead, ReadWhole, Close, OpenToRead, ReadWhole, Close,
        OpenToRead, ReadWhole, Close, OpenToRead, ReadWhole, Close, OpenToRead, ReadWhole, Close,
        Log,
    ],
};

/// Mail comes, is read and answered, and goes, all in one directory.
pub const VARMAIL: Personality = Personality {
    files: 1000,
    file_bytes: 32 * KIB,
    directories: 1,
    read_bytes: 1 << 20,
    write_bytes: 16 << 10,
    calls: &[
        Delete, Create, Append, Close, Open, ReadWhole, Append, Close, OpenToRead, ReadWhole, Close,
    ],
};

/// Pages of 2 KiB of some large files are read, one in twenty is written, and so is the log.
pub const OLTP: Personality = Personality {
    files: 8,
    file_bytes: 8 << 20,
    directories: 1,
    read_bytes: 2 << 10,
    write_bytes: 2 << 10,
    calls: &[
        Open, ReadAny, ReadAny, ReadAny, ReadAny, ReadAny, ReadAny, ReadAny, ReadAny, ReadAny,
        ReadAny, ReadAny, ReadAny, ReadAny, ReadAny, ReadAny, ReadAny, ReadAny, ReadAny, ReadAny,
        ReadAny, WriteAny, Log, Close,
    ],
};
