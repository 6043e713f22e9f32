//! A server that finds free pages in a bitmap, as the file systems of the paper do: a bit a page, each page looked for from the first one on, or a
//! word's at a time, as the paper's block preallocation does. All else of it is what `lode heap serve` lends memory by.

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

use super::subject::Step;

/// Pages of a chunk.
const PAGES: usize = (CHUNK_BYTES / 4096) as usize;
/// How long a program may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// A bit a page; set where it is taken.
struct Bits {
    words: Vec<u64>,
    step: Step,
}

impl Bits {
    fn new(pages: usize, step: Step) -> Self {
        Self { words: vec![0; pages / 64], step }
    }

    /// Takes the first pages that are free: one, or as many as a word has bits.
    fn take_step(&mut self) -> Option<usize> {
        let fits = |word: &u64| match self.step {
            Step::Page => *word != u64::MAX,
            Step::Word => *word == 0,
        };
        let at = self.words.iter().position(fits)?;
        let word = self.words.get_mut(at)?;
        match self.step {
            Step::Page => {
                let bit = word.trailing_ones();
                *word |= 1 << bit;
                Some(at * 64 + bit as usize)
            }
            Step::Word => {
                *word = u64::MAX;
                Some(at * 64)
            }
        }
    }

    /// Takes the pages of a chunk, one step behind the other: what was given back was whole chunks, so they are one.
    fn take(&mut self) -> Option<usize> {
        let first = self.take_step()?;
        let mut next = first + self.step.pages();
        while next < first + PAGES {
            match self.take_step() {
                Some(page) if page == next => next += self.step.pages(),
                other => {
                    let others = other.map(|page| page..page + self.step.pages());
                    (first..next)
                        .chain(others.into_iter().flatten())
                        .for_each(|page| self.clear(page));
                    return None;
                }
            }
        }
        first.is_multiple_of(PAGES).then_some(first / PAGES)
    }

    fn clear(&mut self, page: usize) {
        if let Some(word) = self.words.get_mut(page / 64) {
            *word &= !(1 << (page % 64));
        }
    }

    fn give(&mut self, chunk: usize) {
        (chunk * PAGES..(chunk + 1) * PAGES).for_each(|page| self.clear(page));
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
pub(super) fn serve(region: &Path, bytes: u64, socket: &Path, step: Step) -> io::Result<()> {
    let region = Mapped::create(region, bytes, &RegionOptions::new(), true);
    let region = region.map_err(|error| io::Error::other(error.to_string()))?;
    // Its memory is there before it is lent, as that of a pool is.
    region.zero_lent(0, bytes)?;
    let bits = Mutex::new(Bits::new((bytes / 4096) as usize, step));
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
        for step in [Step::Page, Step::Word] {
            let mut bits = Bits::new(4 * PAGES, step);
            assert_eq!([(); 5].map(|()| bits.take()), [Some(0), Some(1), Some(2), Some(3), None]);
            assert!(bits.words.iter().all(|word| *word == u64::MAX));
            bits.give(2);
            bits.give(1);
            assert_eq!((bits.take(), bits.take(), bits.take()), (Some(1), Some(2), None));
        }
    }

    #[test]
    fn pages_are_taken_in_the_step_that_is_said() {
        let mut bits = Bits::new(2 * PAGES, Step::Page);
        assert_eq!([(); 65].map(|()| bits.take_step().unwrap())[63..], [63, 64]);
        let mut bits = Bits::new(2 * PAGES, Step::Word);
        assert_eq!([(); 3].map(|()| bits.take_step().unwrap()), [0, 64, 128]);
    }
}
