//! How to open a file.

use crate::error::Cause;

/// How to open a file: as [`std::fs::OpenOptions`] with
/// [`std::os::unix::fs::OpenOptionsExt`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
    flags: i32,
}

/// What [`OpenOptions`] come to.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) mode: u32,
    pub(crate) no_follow: bool,
    pub(crate) directory: bool,
    pub(crate) quiet: bool,
    /// The path is that of a directory, the file has no name.
    pub(crate) nameless: bool,
}

/// Flags that ask for what is so anyway, or for nothing that there is here.
const IDLE_FLAGS: i32 = libc::O_CLOEXEC
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_NONBLOCK
    | libc::O_NOCTTY
    | libc::O_DIRECT
    | libc::O_LARGEFILE;

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            flags: 0,
        }
    }
}

impl OpenOptions {
    /// Options for neither reading nor writing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The file can be read.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }

    /// The file can be written.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// The file can be written, at its end only.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }

    /// The file loses what is in it.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// The file is made if it is not there.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// The file is made, and must not be there.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Permissions of a file that is made, less the umask.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// `O_NOFOLLOW`, `O_DIRECTORY` and `O_NOATIME`; `O_TMPFILE` as [`crate::Pool::temporary`], and with
    /// it `O_EXCL`: no [`crate::File::link`] gives the file a name then. Flags that ask for what is so
    /// anyway (`O_SYNC`, ...) are let through, others refused (`EINVAL`).
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.flags = flags;
        self
    }

    /// What all of that comes to; refused where std refuses it.
    pub(crate) fn wish(&self) -> std::result::Result<Wish, Cause> {
        let invalid = Err(Cause::Number(libc::EINVAL));
        let writes = self.write || self.append;
        let makes = self.create || self.create_new;
        if !writes && (!self.read || self.truncate || makes) {
            return invalid;
        }
        if self.append && self.truncate && !self.create_new {
            return invalid;
        }
        let flags = self.flags & !libc::O_ACCMODE;
        let has = |flag| flags & flag == flag;
        let (directory, nameless) = (has(libc::O_DIRECTORY), has(libc::O_TMPFILE));
        let known = libc::O_NOFOLLOW | libc::O_DIRECTORY | libc::O_NOATIME;
        let known = known | if nameless { libc::O_TMPFILE | libc::O_EXCL } else { 0 };
        if flags & !(known | IDLE_FLAGS) != 0 || directory && makes || nameless && !writes {
            return invalid;
        }
        Ok(Wish {
            read: self.read,
            write: writes,
            append: self.append,
            truncate: self.truncate,
            create: makes,
            exclusive: self.create_new || has(libc::O_EXCL),
            mode: self.mode & 0o7777,
            no_follow: has(libc::O_NOFOLLOW),
            directory,
            quiet: has(libc::O_NOATIME),
            nameless,
        })
    }
}
