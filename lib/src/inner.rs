//! What all clones of a pool and its open files share, and the end of it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use lode_engine::Ino;
use lode_host::Maintenance;
use lode_posix::birth::Maker;
use parking_lot::{Mutex, MutexGuard};

use crate::access::{Core, Engine, Pass};
use crate::error::Cause;
use crate::map::{Asked, Stores};

/// Locks of [`Inner::attributes`].
const LOCKS: usize = 16;

/// What all clones of a pool share, and its open files.
pub(crate) struct Inner {
    core: Arc<Core>,
    maintenance: Option<Maintenance>,
    /// Once a file is mapped for stores.
    stores: Mutex<Option<Stores>>,
    closed: bool,
    /// Who opened it: not a child by `fork`, which has no part of it.
    process: u32,
    /// What metadata says of the pool.
    pub(crate) device: u64,
    /// Who makes new inodes.
    pub(crate) maker: Maker,
    /// Held by who changes attributes by what they were.
    attributes: [Mutex<()>; LOCKS],
    /// Files whose logs are open.
    logs: Mutex<BTreeSet<Ino>>,
}

impl Inner {
    /// Takes over a pool that was just opened.
    pub(crate) fn new(engine: Engine, maker: Maker) -> Result<Self, Cause> {
        engine.getattr(engine.root()).map_err(|error| {
            // A read-only opening goes on over damage; without a root there are no paths.
            let damage = engine.opening().damage.into_iter().next();
            damage.map_or(error, lode_engine::Error::Corrupt)
        })?;
        let uuid = engine.info()?.uuid;
        let device = uuid.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let core = Arc::new(Core::new(engine));
        let maintenance = Some(maintain(Arc::clone(&core))?);
        Ok(Self {
            core,
            maintenance,
            stores: Mutex::default(),
            closed: false,
            process: std::process::id(),
            device,
            maker,
            attributes: Default::default(),
            logs: Mutex::default(),
        })
    }

    /// Lets a call in.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Pass<'_>, Cause> {
        self.core.enter()
    }

    /// Who answers the stores to maps, from the first time on that somebody asks.
    pub(crate) fn stores(&self) -> Result<Arc<Asked>, Cause> {
        let mut stores = self.stores.lock();
        let stores = match &mut *stores {
            Some(stores) => stores,
            none => none.insert(Stores::start(Arc::clone(&self.core))?),
        };
        Ok(Arc::clone(stores.asked()))
    }

    /// Held while attributes of an inode are changed by what they were, so that nobody else does
    /// so in between.
    pub(crate) fn attributes(&self, ino: Ino) -> Option<MutexGuard<'_, ()>> {
        self.attributes.get(ino as usize % LOCKS).map(Mutex::lock)
    }

    /// Notes that the log in an inode is open; says whether it was not. Who opens it keeps the inode.
    pub(crate) fn begin_log(&self, ino: Ino) -> bool {
        self.logs.lock().insert(ino)
    }

    /// Notes that it is not any more.
    pub(crate) fn end_log(&self, ino: Ino) {
        self.logs.lock().remove(&ino);
    }

    /// Ends background work, and closes the pool unless it can't be trusted.
    pub(crate) fn close(&mut self) -> Result<(), Cause> {
        self.closed = true;
        drop(self.maintenance.take());
        drop(self.stores.get_mut().take());
        Ok(self.core.enter()?.close()?)
    }
}

/// Starts background work.
fn maintain(core: Arc<Core>) -> Result<Maintenance, Cause> {
    let work = move || match core.enter() {
        Ok(pass) => {
            pass.ways().forget();
            ControlFlow::Continue(pass.maintain())
        }
        Err(_) => ControlFlow::Break(()),
    };
    let system = |source| Cause::System { what: "start the maintenance", source };
    Maintenance::start(work).map_err(system)
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        if std::process::id() != self.process {
            // The thread is not here, nor is the mapping.
            std::mem::forget((self.maintenance.take(), self.stores.get_mut().take()));
            return;
        }
        let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.close()));
        match closed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the pool could not be closed"),
            Err(_) => tracing::error!("closing the pool panicked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    use crate::{FormatOptions, Log, Pool, PoolOptions};

    #[test]
    fn ways_are_forgotten_in_pools_that_are_only_read_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let pool = PoolOptions::new().create(&path, 16 << 20, &FormatOptions::default()).unwrap();
        pool.create_dir("a").unwrap();
        pool.close().unwrap();
        let pool = PoolOptions::new().read_only(true).open(&path).unwrap();
        let known = || pool.inner.enter().unwrap().ways().get(b"a/").is_some();
        let seen_by = |known_is: bool, work: &dyn Fn()| {
            let began = Instant::now();
            while known() != known_is {
                assert!(began.elapsed() < Duration::from_secs(20), "known: {}", !known_is);
                work();
            }
        };
        seen_by(true, &|| assert!(!pool.exists("a/f")));
        seen_by(false, &|| std::thread::sleep(Duration::from_millis(20)));
    }

    #[test]
    fn a_panic_leaves_the_pool_as_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let pool = PoolOptions::new().create(&path, 16 << 20, &FormatOptions::default()).unwrap();
        pool.write("f", "kept").unwrap();
        let file = pool.open_file("f").unwrap();
        let log = Log::open(&pool, "log", 0).unwrap();
        // A panic that is the user's own says nothing of the pool, whatever is dropped by it.
        let own = catch_unwind(AssertUnwindSafe(|| {
            let _file = pool.temporary("/").unwrap();
            let _listing = pool.read_dir("/").unwrap();
            panic!("the user's");
        }));
        assert!(own.is_err() && pool.read_to_string("f").unwrap() == "kept");
        let inside = catch_unwind(AssertUnwindSafe(|| {
            let _pass = pool.inner.enter().unwrap();
            panic!("inside");
        }));
        assert!(inside.is_err());
        let refused = pool.write("f", "other").unwrap_err();
        assert_eq!(refused.errno(), libc::EIO);
        assert!(refused.to_string().contains("after a crash"), "{refused}");
        assert_eq!(file.read_at(&mut [0; 4], 0).unwrap_err().errno(), libc::EIO);
        assert_eq!(log.append(b"entry").unwrap_err().errno(), libc::EIO);
        assert_eq!(log.clear().unwrap_err().errno(), libc::EIO);
        drop((file, log));
        assert_eq!(pool.close().unwrap_err().errno(), libc::EIO);
        let pool = Pool::open(&path).unwrap();
        assert!(!pool.opening().unwrap().clean, "it was closed by what can't be trusted");
        assert_eq!(pool.read_to_string("f").unwrap(), "kept");
    }
}
