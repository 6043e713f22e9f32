//! SQLite databases on persistent memory: a VFS over a pool that is open in this process.
//!
//! [`register`] gives SQLite a VFS by which databases are files of a [`lode::Pool`], with their
//! journals, logs and temporary files. Reading and writing them makes no system call.
//!
//! ```
//! use rusqlite::{Connection, OpenFlags};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = lode::PoolOptions::new().in_memory(16 << 20)?;
//! let vfs = lode_sqlite::register(&pool, "pool")?;
//!
//! let db = Connection::open_with_flags_and_vfs("shop.db", OpenFlags::default(), vfs.name())?;
//! db.execute_batch("CREATE TABLE item(name TEXT); INSERT INTO item VALUES ('lamp');")?;
//! assert_eq!(db.query_one("SELECT name FROM item", (), |row| row.get::<_, String>(0))?, "lamp");
//! assert!(pool.exists("/shop.db"));
//!
//! drop((db, vfs));
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! * **Names** begin at the pool's root, whether or not they begin with `/`. URIs work:
//!   `file:shop.db?vfs=pool&mode=ro`.
//! * **Durability.** What SQLite wrote is durable at once and in order, so that a committed transaction
//!   survives a crash with every `synchronous`, `OFF` too. `docs/sqlite.md` says what that rests on.
//! * **Connections** of all threads of this process share a database, also in WAL mode. Other processes
//!   can't: a pool has one opener.
//! * **SQLite** is that of [`libsqlite3_sys`], which rusqlite, too, is made on: a program has one of it.
//! * A pool that is opened `relaxed` is refused: an overwrite may be torn there.
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod body;
mod control;
mod error;
mod extensions;
mod frames;
mod handle;
mod io;
mod locks;
mod node;
mod paths;
mod shared_memory;
mod vfs;

use std::ffi::{CStr, CString};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use libsqlite3_sys as ffi;
use lode::Pool;
use parking_lot::Mutex;

pub use error::Error;

/// Result of [`register`].
pub type Result<T> = std::result::Result<T, Error>;

/// One registers at a time: names are looked up before they are taken.
static REGISTERING: Mutex<()> = Mutex::new(());

/// Gives SQLite a VFS of this name over `pool`, which stays open as long as that, or a file that was
/// opened by it, is there. It is not the default one.
///
/// A pool may have several: connections to the same database meet whatever VFS they came by.
///
/// # Errors
/// [`Error::Taken`] where there is a VFS of this name, [`Error::BadName`], [`Error::Relaxed`], those of the pool.
pub fn register(pool: &Pool, name: &str) -> Result<Vfs> {
    let text = CString::new(name).ok().filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| Error::BadName(name.to_owned()))?;
    if pool.is_relaxed()? {
        return Err(Error::Relaxed);
    }
    let _alone = REGISTERING.lock();
    // SAFETY: it may be called at any time, and the name lives as long as the call.
    if !unsafe { ffi::sqlite3_vfs_find(text.as_ptr()) }.is_null() {
        return Err(Error::Taken(name.to_owned()));
    }
    let databases = node::Databases::of(pool);
    let raw = NonNull::from(vfs::make(text, &databases));
    let made = Vfs { raw, _databases: databases };
    // SAFETY: the VFS is complete, and never freed.
    match unsafe { ffi::sqlite3_vfs_register(raw.as_ptr(), 0) } {
        ffi::SQLITE_OK => Ok(made),
        code => Err(Error::Refused(code)),
    }
}

/// A VFS that is registered: until this is dropped.
///
/// Connections that are open then go on; there are no new ones, nor can they attach more. (A few hundred bytes of a VFS are never
/// freed, as SQLite does not tell when the last connection has forgotten it.)
pub struct Vfs {
    raw: NonNull<ffi::sqlite3_vfs>,
    /// Keeps the pool open.
    _databases: Arc<node::Databases>,
}

// SAFETY: what it points to is never freed; SQLite guards its part of it, a lock guards ours.
unsafe impl Send for Vfs {}
// SAFETY: as above.
unsafe impl Sync for Vfs {}

impl Vfs {
    /// Its name, as `sqlite3_open_v2`, rusqlite and `ATTACH 'file:...?vfs='` take it.
    pub fn name(&self) -> &CStr {
        // SAFETY: it was made with a name, which stays as it is.
        unsafe { CStr::from_ptr(self.raw.as_ref().zName) }
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        // SAFETY: the VFS is one of ours; SQLite takes it out of its list, if it is there.
        unsafe { ffi::sqlite3_vfs_unregister(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Vfs").field(&self.name()).finish()
    }
}
