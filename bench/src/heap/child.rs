//! What hidden processes of a run do: `lode bench heap --child WHAT ...`.
//!
//! * `touch HOW PAGES BYTES SOCKET`: touches memory, once to warm up, which it tells on a line (the part of it that huge pages map), and then once
//!   for each line it is told, answered by a line with the nanoseconds that took
//! * `serve LODE POOL OPTIONS`: becomes `lode heap serve`
//! * `bitmap REGION BYTES SOCKET STEP`: lends memory, so many free pages at a time looked for in a bitmap
//!
//! All of them end when the run does.

use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use lode_heap::{Provider, Settings};
use lode_loan::Method;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::bitmap;
use super::block::Block;
use super::subject::{Pages, Step};

/// Does it, until nobody wants more.
///
/// # Errors
/// Those of the system; words that mean nothing.
pub fn run(words: &[String]) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["touch", how, pages, bytes, socket] => touch(&Toucher::new(how, pages, bytes, socket)?),
        ["serve", lode, pool, options] => {
            let mut command = Command::new(lode);
            command.args(["heap", "serve", pool, "--foreground", "-o", options]);
            Err(command.exec())
        }
        ["bitmap", region, bytes, socket, step] => {
            let step = [Step::Page, Step::Word]
                .into_iter()
                .find(|one| number(step).ok() == Some(one.pages()));
            let step = step.ok_or_else(means_nothing)?;
            bitmap::serve(Path::new(region), number(bytes)? as u64, Path::new(socket), step)
        }
        _ => Err(means_nothing()),
    }
}

fn means_nothing() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "these words mean nothing")
}

fn number(text: &str) -> io::Result<usize> {
    text.parse().map_err(|_| means_nothing())
}

/// How memory is had.
enum How {
    Anonymous { populated: bool },
    Swap,
    Lent(Provider),
}

struct Toucher {
    how: How,
    pages: Pages,
    bytes: usize,
}

impl Toucher {
    fn new(how: &str, pages: &str, bytes: &str, socket: &str) -> io::Result<Self> {
        let how = match (how, Method::of_name(how)) {
            ("anonymous", _) => How::Anonymous { populated: false },
            ("populated", _) => How::Anonymous { populated: true },
            ("swap", _) => How::Swap,
            (_, Some(method)) => {
                let socket = Path::new(socket).as_os_str().as_bytes();
                let settings = Settings::new(socket, method).ok_or_else(means_nothing)?;
                let provider = Provider::open(&settings);
                How::Lent(provider.map_err(|error| io::Error::other(error.to_string()))?)
            }
            _ => return Err(means_nothing()),
        };
        let pages = Pages::of_name(pages).ok_or_else(means_nothing)?;
        Ok(Self { how, pages, bytes: number(bytes)? })
    }

    fn block(&self) -> io::Result<Block> {
        match self.how {
            How::Anonymous { populated } => Block::anonymous(self.bytes, self.pages, populated),
            How::Swap => Block::anonymous(self.bytes, self.pages, false),
            How::Lent(provider) => Block::lent(provider, self.bytes),
        }
    }

    fn touch(&self, block: &Block) -> io::Result<()> {
        match self.how {
            How::Swap => block.touch_with_room(self.bytes / 8),
            _ => {
                block.touch();
                Ok(())
            }
        }
    }

    /// Once, which is not measured; the part of it that huge pages map. What is found otherwise than it must be is an error.
    fn warm_up(&self) -> io::Result<f64> {
        let block = self.block()?;
        if matches!(self.how, How::Lent(_)) && !block.is_zeros() {
            return Err(io::Error::other("what was lent is not zeros"));
        }
        self.touch(&block)?;
        if matches!(self.how, How::Swap) && swapped()? < self.bytes as u64 / 2 {
            return Err(io::Error::other("the kernel does not swap out what it is asked to"));
        }
        block.huge_part()
    }

    /// Nanoseconds from asking for memory to its last page's being touched.
    fn once(&self) -> io::Result<u128> {
        let begin = Instant::now();
        let block = self.block()?;
        self.touch(&block)?;
        Ok(begin.elapsed().as_nanos())
    }
}

fn touch(toucher: &Toucher) -> io::Result<()> {
    let mut output = io::stdout();
    writeln!(output, "{}", toucher.warm_up()?)?;
    for line in io::stdin().lock().lines() {
        line?;
        writeln!(output, "{}", toucher.once()?)?;
    }
    Ok(())
}

/// Bytes of this process that are swapped out.
fn swapped() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:")).unwrap_or_default();
    let kib = line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0);
    Ok(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_mean_nothing_are_no_task() {
        for words in [
            &["touch", "stolen", "4k", "4096", ""][..],
            &["touch", "anonymous", "8k", "4096", ""],
            &["touch", "anonymous", "4k", "many", ""],
        ] {
            assert!(Toucher::new(words[1], words[2], words[3], words[4]).is_err(), "{words:?}");
        }
    }

    #[test]
    fn touching_takes_time_and_is_of_small_pages_where_these_are_asked_for() {
        let toucher = Toucher::new("anonymous", "4k", "4194304", "").unwrap();
        assert_eq!(toucher.warm_up().unwrap(), 0.0);
        assert!(toucher.once().unwrap() > 1000);
    }
}
