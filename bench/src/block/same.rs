//! What reads of a device would take that did nothing but copy: bare ones of the very memory that the device has. Where sectors are
//! whole, they look before and behind whether somebody has stored to their pages, without which nobody could tell.
//!
//! A limit with memory of its own is no measure of reads. How long a copy takes is decided by which memory it is and by what
//! other processors have left of it in the cache: two bare copies of two files differ by more than a device costs.

use std::fs::File;
use std::io;
use std::path::Path;

use lode_pmem::{Borrowed, Lent, ViewOptions};

use super::pages::Pages;
use super::subject::Blocks;
use crate::subject::mapped::failed;

/// Subjects that are read beside their own memory: those of which something is judged.
pub(super) const JUDGED: [&str; 4] = ["none", "key", "volume-512", "volume-4096"];

/// What rows call the bare reads of a subject's memory.
pub(super) fn name(subject: &str) -> String {
    format!("{subject}-limit")
}

/// As the memory of tmpfs may be mapped by pages of this size.
const ALIGN: u64 = 2 << 20;

/// Bytes that a volume reads in one.
const AT_ONCE: usize = 64 << 10;

/// The memory of a device that is open, mapped once more.
pub(super) struct Same {
    memory: Lent,
    /// Of a device whose sectors are whole.
    pages: Option<Pages>,
}

impl Same {
    /// The memory of a device in the region file at `path`, with `whole` sectors or not; `None` for one that has its bytes at no place.
    pub(super) fn of(device: &dyn Blocks, whole: bool, path: &Path) -> io::Result<Option<Self>> {
        let parts = device.places();
        let Some(end) = parts.iter().map(|(at, len)| at + len).max() else { return Ok(None) };
        let file = File::options().read(true).write(true).open(path)?;
        let region = Borrowed::new(file.into(), end, path).map_err(io::Error::other)?;
        let options = ViewOptions { writable: false, align: ALIGN, phase: 0 };
        let memory = region.map(&parts, &options).map_err(io::Error::other)?;
        Ok(Some(Self { memory, pages: whole.then(Pages::new) }))
    }
}

impl Blocks for Same {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let view = self.memory.view();
        let Some(pages) = &self.pages else { return view.load(at, into).map_err(failed) };
        for (part, at) in into.chunks_mut(AT_ONCE).zip((at..).step_by(AT_ONCE)) {
            pages.whole((at, part.len() as u64), || view.load(at, part).map_err(failed))?;
        }
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::subject::{every, region_file};
    use super::*;

    #[test]
    fn bare_reads_are_of_what_the_device_holds() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        for id in JUDGED {
            let subject = every().into_iter().find(|one| one.id == id).unwrap();
            let path = dir.path().join(id);
            region_file(&path, subject.region_bytes(8 << 20)).unwrap();
            let device = match subject.start(&path, 8 << 20) {
                Ok(device) => device,
                // (Keys are not everywhere.)
                Err(error) if id == "key" => {
                    eprintln!("skipped: {id}: {error}");
                    continue;
                }
                Err(error) => panic!("{id}: {error}"),
            };
            for at in [0, 3 << 20, (8 << 20) - 4096] {
                let bytes = [(at >> 12) as u8 | 1; 4096];
                device.write(at, &bytes).unwrap();
                device.flush().unwrap();
                let bare = Same::of(&*device, subject.is_whole(), &path).unwrap().unwrap();
                let mut read = [0; 4096];
                bare.read(at, &mut read).unwrap();
                assert!(read == bytes, "{id} {at}");
            }
        }
    }
}
