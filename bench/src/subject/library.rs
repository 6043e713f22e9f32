//! `lode-library`: a pool in this process, by the library's calls. `lode-library-key` and
//! `lode-library-open` are the same with and without memory protection keys against stray stores.

use std::io;

use lode::{File, FormatOptions, Map, MapOptions, OpenOptions, Pool, PoolOptions, WindowMode};

use super::{Programs, Ready, Subject};
use crate::calls::{Calls, For, Mapping, Name};
use crate::error::{BenchError, Result};
use crate::place::Place;
use crate::workload::Stage;

/// Bytes of the pool.
const POOL: u64 = 1 << 30;

/// A pool that is open in this process.
pub struct Library {
    id: &'static str,
    about: &'static str,
    /// The guard against stray stores; the best there is unless one is named.
    windows: Option<WindowMode>,
}

/// As it is opened by everybody.
pub const LIBRARY: Library = Library {
    id: "lode-library",
    about: "a pool in this process, by the library's calls; durable when they return",
    windows: None,
};

/// With protection keys.
pub const GUARDED: Library = Library {
    id: "lode-library-key",
    about: "the same, its memory closed by a protection key but for the lines that store",
    windows: Some(WindowMode::Key),
};

/// Without a guard.
pub const UNGUARDED: Library = Library {
    id: "lode-library-open",
    about: "the same, its memory open to all stores",
    windows: Some(WindowMode::None),
};

impl Subject for Library {
    fn id(&self) -> &'static str {
        self.id
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn bytes_max(&self) -> u64 {
        POOL + (64 << 20)
    }

    fn missing(&self, _place: &Place) -> Option<String> {
        let keys = lode_pmem::CpuFeatures::get().protection_keys;
        let lacks = self.windows == Some(WindowMode::Key) && !keys;
        lacks.then(|| "this CPU or kernel has no protection keys".to_owned())
    }

    fn start(&self, place: &Place, _programs: &Programs) -> Result<Box<dyn Ready>> {
        let path = place.pools().join(self.id);
        let mut options = PoolOptions::new();
        if let Some(windows) = self.windows {
            options.windows(windows);
        }
        let pool = options.create(&path, POOL, &FormatOptions::default());
        let pool = pool.map_err(|error| BenchError::io("making", &path, io::Error::from(error)))?;
        Ok(Box::new(Stage::new(InProcess { pool })))
    }
}

/// A pool's calls.
struct InProcess {
    pool: Pool,
}

impl Calls for InProcess {
    type File = File;
    /// Nothing has to be made durable by a directory.
    type Dir = ();
    type Map = Map;

    fn create(&self, at: &Name) -> io::Result<File> {
        Ok(self.pool.create_new(at.as_path())?)
    }

    fn open(&self, at: &Name, what_for: For) -> io::Result<File> {
        let mut options = OpenOptions::new();
        match what_for {
            For::Reading => options.read(true),
            For::Writing => options.read(true).write(true),
            For::Appending => options.append(true),
        };
        Ok(self.pool.open_with(at.as_path(), &options)?)
    }

    fn open_dir(&self, _at: &Name) -> io::Result<()> {
        Ok(())
    }

    fn unlink(&self, at: &Name) -> io::Result<()> {
        Ok(self.pool.remove_file(at.as_path())?)
    }

    fn mkdir(&self, at: &Name) -> io::Result<()> {
        Ok(self.pool.create_dir(at.as_path())?)
    }

    fn rmdir(&self, at: &Name) -> io::Result<()> {
        Ok(self.pool.remove_dir(at.as_path())?)
    }

    fn rename(&self, from: &Name, to: &Name) -> io::Result<()> {
        Ok(self.pool.rename(from.as_path(), to.as_path())?)
    }

    fn stat(&self, at: &Name) -> io::Result<u64> {
        Ok(self.pool.metadata(at.as_path())?.len())
    }

    fn list(&self, at: &Name) -> io::Result<u64> {
        let mut names = 0;
        for entry in self.pool.read_dir(at.as_path())? {
            entry?;
            names += 1;
        }
        Ok(names)
    }

    fn read_at(&self, file: &File, at: u64, into: &mut [u8]) -> io::Result<()> {
        Ok(file.read_exact_at(into, at)?)
    }

    fn write_at(&self, file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
        Ok(file.write_all_at(bytes, at)?)
    }

    fn append(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        file.append(bytes)?;
        Ok(())
    }

    fn set_len(&self, file: &File, bytes: u64) -> io::Result<()> {
        Ok(file.set_len(bytes)?)
    }

    fn persist(&self, _file: &File) -> io::Result<()> {
        Ok(())
    }

    fn persist_names(&self, _dir: &()) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, at: &Name) -> io::Result<Map> {
        let file = self.open(at, For::Writing)?;
        Ok(file.map(0, file.len()?, MapOptions::new().write(true))?)
    }

    fn settle(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Mapping for Map {
    fn load(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        Ok(Map::load(self, at, into)?)
    }

    fn store(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        Map::store(self, at, bytes)?;
        Ok(self.persist(at..at + bytes.len() as u64)?)
    }
}
