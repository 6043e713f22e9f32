//! `ablation`: what two choices of the design are worth: how many fences a record takes, and how it
//! becomes valid. Each way is measured bare, as the subject `limit` does it, and with the engine, on
//! a medium that does the instructions in that way.

use std::cell::Cell as Slot;
use std::io;
use std::sync::Arc;

use lode_pmem::{Door, LINE_BYTES, Line, Mapped, MediaError, Medium, RegionOptions, WindowMode};

use super::in_engine::InEngine;
use super::limit::{BYTES, looping, touch};
use super::{Programs, Ready, Subject, Variants};
use crate::error::Result;
use crate::medium::{Way, Wrapped};
use crate::place::Place;
use crate::plan::Cell;
use crate::worker::Worker;
use crate::workload::{Kind, Stage, Workload, by_id, workers};

/// Bytes of an engine's pool, and more for each thread.
const POOL: u64 = 192 << 20;
const POOL_THREAD: u64 = 64 << 20;
/// Behind a pool: tails of logs, a word in a line of its own for each.
const TAILS: u64 = 1 << 20;
const LINE: u64 = LINE_BYTES as u64;
const WORD: u64 = 8;

/// Other ways to do the same.
pub struct Ablation;

impl Subject for Ablation {
    fn id(&self) -> &'static str {
        "ablation"
    }

    fn about(&self) -> &'static str {
        "records in other ways than Lode's, bare and with the engine; its rows are named by the way"
    }

    fn bytes_max(&self, cells: &[Cell]) -> u64 {
        // The bare loops share their memory; each engine has a pool of its own, all of a cell at once.
        let of = |cell: &Cell| {
            let (_, ways) = ways(cell.workload.kind)?;
            Some(BYTES + TAILS + ways.engine.len() as u64 * (pool_bytes(cell) + TAILS))
        };
        cells.iter().filter_map(of).max().unwrap_or_default()
    }

    fn missing(&self, _place: &Place) -> Option<String> {
        None
    }

    fn takes_emulation(&self) -> bool {
        true
    }

    fn start(&self, _place: &Place, programs: &Programs) -> Result<Box<dyn Ready>> {
        Ok(Box::new(Memory { options: programs.region(), region: None }))
    }
}

/// Made when it is first asked for: most runs of few workloads have no part in it.
struct Memory {
    options: RegionOptions,
    region: Option<Arc<Mapped>>,
}

impl Ready for Memory {
    fn workers(&mut self, _cell: &Cell) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
        Ok(None)
    }

    fn variants(&mut self, cell: &Cell) -> io::Result<Variants> {
        let Some((as_workload, ways)) = ways(cell.workload.kind) else { return Ok(Vec::new()) };
        let cell = Cell { workload: as_workload, ..*cell };
        let mut all = Vec::new();
        for (id, how) in ways.bare {
            all.push((*id, self.bare(&cell, *how)?));
        }
        for (id, how) in ways.engine {
            all.push((*id, in_engine(&cell, *how, &self.options)?));
        }
        Ok(all)
    }
}

/// Ways to do the same, with the names of their rows.
struct Ways {
    bare: &'static [(&'static str, How)],
    engine: &'static [(&'static str, How)],
}

const FENCES: Ways = Ways {
    bare: &[
        ("bare-one-fence", How::DataWithRecord),
        ("bare-two-fences", How::AsItIs),
        ("bare-three-fences", How::Tail),
    ],
    engine: &[
        ("engine-one-fence", How::DataWithRecord),
        ("engine-two-fences", How::AsItIs),
        ("engine-three-fences", How::Tail),
    ],
};

const LINES: Ways = Ways {
    bare: &[("bare-whole-line", How::AsItIs), ("bare-seal-last", How::SealLast)],
    engine: &[("engine-whole-line", How::AsItIs), ("engine-seal-last", How::SealLast)],
};

/// What is done, as the workload that it is like, and in which ways.
fn ways(kind: Kind) -> Option<(&'static Workload, Ways)> {
    match kind {
        Kind::AblationFence => Some((by_id("append-4k")?, FENCES)),
        Kind::AblationLine => Some((by_id("create-unlink")?, LINES)),
        _ => None,
    }
}

impl Memory {
    fn bare(&mut self, cell: &Cell, how: How) -> io::Result<Vec<Box<dyn Worker>>> {
        let region = match &self.region {
            Some(region) => Arc::clone(region),
            None => {
                let options = self.options.windows(WindowMode::None);
                let region = Mapped::anonymous(BYTES + TAILS, &options);
                let region = Arc::new(region.map_err(io::Error::other)?);
                touch(&Door::new(&*region));
                Arc::clone(self.region.insert(region))
            }
        };
        let way = Another { how, tails: BYTES };
        let door = Arc::new(Door::new(Wrapped::new(&region, BYTES, way)));
        let loops = (0..cell.threads).map(|thread| looping(&door, cell.workload, thread));
        Ok(loops.flatten().collect())
    }
}

fn pool_bytes(cell: &Cell) -> u64 {
    POOL + POOL_THREAD * cell.threads as u64
}

/// The workload in a pool of its own, which goes with its threads.
fn in_engine(cell: &Cell, how: How, options: &RegionOptions) -> io::Result<Vec<Box<dyn Worker>>> {
    let bytes = pool_bytes(cell);
    let region = Mapped::anonymous(bytes + TAILS, options);
    let region = Arc::new(region.map_err(io::Error::other)?);
    let pool = InEngine::new(&region, bytes, Another { how, tails: bytes })?;
    Ok(workers(&mut Stage::new(pool), cell)?.unwrap_or_default())
}

/// How records are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// As the engine does it: data, fence, lines, fence.
    AsItIs,
    /// No fence between data and its record, as if the record's seal were over the data, too.
    DataWithRecord,
    /// A log that has a tail: lines, fence, the tail's word, fence.
    Tail,
    /// Lines without the word that has their seals, fence, those words, fence.
    SealLast,
}

struct Another {
    how: How,
    /// Where the tails are.
    tails: u64,
}

thread_local! {
    /// This thread has stored something but data since its last fence.
    static RECORDED: Slot<bool> = const { Slot::new(false) };
}

/// Most lines of a window whose last words wait.
const WAITING: usize = 16;

/// What a window has stored.
#[derive(Default)]
pub struct Notes {
    /// The place of its last line; 0 for none.
    line: u64,
    /// Words that wait for the end.
    words: [(u64, u64); WAITING],
    waiting: usize,
}

impl<U: Medium + 'static> Way<U> for Another {
    type Notes = Notes;

    #[inline]
    fn closing(&self, under: &U, window: &mut U::Window, notes: &mut Notes) {
        match self.how {
            How::Tail if notes.line != 0 => {
                // What fails here fails at the fence that follows, too.
                let _ = under.fence();
                let tail = notes.line / LINE % (TAILS / LINE) * LINE;
                under.stream_word(window, self.tails + tail, notes.line);
            }
            How::SealLast => seal(under, window, notes),
            _ => {}
        }
    }

    #[inline]
    fn store_line(&self, under: &U, to: (&mut U::Window, &mut Notes), at: u64, line: &Line) {
        let (window, notes) = to;
        notes.line = at;
        if self.how == How::DataWithRecord {
            RECORDED.set(true);
        }
        if self.how != How::SealLast {
            return under.store_line(window, at, line);
        }
        if notes.waiting == WAITING {
            seal(under, window, notes);
        }
        let words = line.0.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        for (place, word) in (at..at + LINE).step_by(WORD as usize).zip(words) {
            if place < at + LINE - WORD {
                under.stream_word(window, place, word);
            } else if let Some(waits) = notes.words.get_mut(notes.waiting) {
                *waits = (place, word);
                notes.waiting += 1;
            }
        }
    }

    #[inline]
    fn store_word(&self, under: &U, to: (&mut U::Window, &mut Notes), at: u64, value: u64) {
        RECORDED.set(true);
        under.store_word(to.0, at, value);
    }

    #[inline]
    fn fence(&self, under: &U) -> std::result::Result<(), MediaError> {
        if self.how == How::DataWithRecord && !RECORDED.replace(false) {
            return Ok(());
        }
        under.fence()
    }
}

/// Stores the words that wait.
#[inline]
fn seal<U: Medium>(under: &U, window: &mut U::Window, notes: &mut Notes) {
    if notes.waiting == 0 {
        return;
    }
    // What fails here fails at the fence that follows, too.
    let _ = under.fence();
    for (at, word) in notes.words.iter().take(notes.waiting) {
        under.stream_word(window, *at, *word);
    }
    notes.waiting = 0;
}

#[cfg(test)]
mod tests;
