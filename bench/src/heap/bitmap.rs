//! A server that finds free pages in a bitmap, as the file systems of the paper do: a bit a page, looked at from the first one on. All else of it
//! is what `lode heap serve` lends memory by.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lode_lend::source::Source;
use lode_lend::{Limits, Service, Sources};
use lode_loan::{CHUNK_BYTES, Method, Refusal};
use lode_pmem::{Mapped, RegionOptions};
use parking_lot::Mutex;

/// Pages of a chunk.
const PAGES: usize = (CHUNK_BYTES / 4096) as usize;
/// How long a program may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// A bit a page.
struct Bits(Vec<u64>);

impl Bits {
    fn new(pages: usize) -> Self {
        Self(vec![0; pages / 64])
    }

    fn is_set(&self, page: usize) -> bool {
        self.0.get(page / 64).is_none_or(|word| word & (1 << (page % 64)) != 0)
    }

    fn set(&mut self, page: usize, value: bool) {
        if let Some(word) = self.0.get_mut(page / 64) {
            *word = *word & !(1 << (page % 64)) | (u64::from(value) << (page % 64));
        }
    }

    /// Takes the first chunk all of whose pages are free: each is looked for from the first page on, bit by bit.
    fn take(&mut self) -> Option<usize> {
        let pages = self.0.len() * 64;
        let mut from = 0;
        loop {
            let free = (from..pages).find(|page| !self.is_set(*page))?;
            let start = free.next_multiple_of(PAGES);
            match (start..start + PAGES).find(|page| self.is_set(*page)) {
                None => {
                    (start..start + PAGES).for_each(|page| self.set(page, true));
                    return Some(start / PAGES);
                }
                Some(taken) => from = taken + 1,
            }
        }
    }

    fn give(&mut self, chunk: usize) {
        (chunk * PAGES..(chunk + 1) * PAGES).for_each(|page| self.set(page, false));
    }
}

/// A region, and which pages of it are taken.
struct Bitmap {
    region: Mapped,
    bits: Mutex<Bits>,
}

impl Source for Bitmap {
    fn take(&self) -> Result<u64, Refusal> {
        self.bits.lock().take().map(|chunk| chunk as u64).ok_or(Refusal::NoSpace)
    }

    fn give(&self, chunk: u64) {
        self.bits.lock().give(chunk as usize);
    }

    fn zero(&self, chunk: u64) {
        if let Err(error) = self.region.zero_lent(chunk * CHUNK_BYTES, CHUNK_BYTES) {
            eprintln!("zeroing failed: {error}");
        }
    }

    fn locked(&self, chunk: u64) -> bool {
        let mut any = false;
        let part = (chunk * CHUNK_BYTES, CHUNK_BYTES);
        self.region.for_each_locked(part, &mut |_, _| any = true).is_err() || any
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        self.region.descriptor()
    }
}

struct All(Arc<Bitmap>);

impl Sources for All {
    fn source(&self, _: Method) -> Result<Arc<dyn Source>, Refusal> {
        Ok(Arc::clone(&self.0) as Arc<dyn Source>)
    }
}

/// Makes a region of so many bytes and lends it to whoever connects to `socket`, until this process is ended; tells on a line when that is so.
pub(super) fn serve(region: &Path, bytes: u64, socket: &Path) -> io::Result<()> {
    let region = Mapped::create(region, bytes, &RegionOptions::new(), true);
    let region = region.map_err(|error| io::Error::other(error.to_string()))?;
    // Its memory is there before it is lent, as that of a pool is.
    region.zero_lent(0, bytes)?;
    let bits = Mutex::new(Bits::new((bytes / 4096) as usize));
    let sources = Box::new(All(Arc::new(Bitmap { region, bits })));
    let limits = Limits { ready: 0, ..Limits::of_pool(0) };
    let service = Service::start(sources, limits, bytes, &[])?;
    let listener = UnixListener::bind(socket)?;
    writeln!(io::stdout(), "serving")?;
    for stream in listener.incoming() {
        let stream = stream?;
        match asked(&stream) {
            Ok(method) => service.admit(&stream, method).unwrap_or_else(|why| eprintln!("{why}")),
            Err(error) => eprintln!("a program asked for nothing: {error}"),
        }
    }
    Ok(())
}

/// By which method a program wants memory.
fn asked(mut stream: &UnixStream) -> io::Result<Method> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.last() != Some(&b'\n') && line.len() < 1024 {
        stream.read_exact(&mut byte)?;
        line.extend(byte);
    }
    stream.set_read_timeout(None)?;
    let method = Method::ALL.into_iter().find(|one| lode_loan::hello(*one).as_bytes() == line);
    method.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_taken_once_and_the_first_that_is_free() {
        let mut bits = Bits::new(4 * PAGES);
        assert_eq!([(); 5].map(|()| bits.take()), [Some(0), Some(1), Some(2), Some(3), None]);
        bits.give(1);
        bits.give(2);
        // One page of it is in use.
        bits.set(PAGES + 7, true);
        assert_eq!((bits.take(), bits.take()), (Some(2), None));
    }
}
