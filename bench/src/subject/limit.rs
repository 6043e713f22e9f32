//! `limit`: a bare loop that does only what the budget of an operation names: copies, lines and
//! fences, on random pages. What is above it is software's; nothing can be below it.
//!
//! A line's cost depends little on its place, so lines of one log are put side by side and
//! others anywhere. There is no index, no lock, no allocation, no checksum.

use std::io;
use std::sync::Arc;

use lode_pmem::{Counters, Door, LINE_BYTES, Line, Mapped, Medium, WindowMode};

use super::mapped::failed;
use super::{Programs, Ready, Subject};
use crate::error::Result;
use crate::place::Place;
use crate::plan::Cell;
use crate::random::Random;
use crate::worker::{Step, Worker, worker};
use crate::workload::{Kind, Workload};

/// Bytes of the memory: more than caches hold, as much as the files that others have.
pub(super) const BYTES: u64 = 256 << 20;
const PAGE: u64 = 4096;
const LINE: u64 = LINE_BYTES as u64;

/// What the budget names.
pub struct Limit;

impl Subject for Limit {
    fn id(&self) -> &'static str {
        "limit"
    }

    fn about(&self) -> &'static str {
        "no file system: only the copies, lines and fences that an operation can't do without"
    }

    fn bytes_max(&self, _cells: &[Cell]) -> u64 {
        BYTES
    }

    fn missing(&self, _place: &Place) -> Option<String> {
        None
    }

    fn steps(&self, workload: &Workload) -> Option<&'static str> {
        Some(match Does::of(workload)? {
            Does::Lines { alone: 1, pair: true, .. } => {
                "two lines side by side (the new inode), one elsewhere (the directory's log), a fence"
            }
            Does::Lines { alone: 1, pair: false, .. } => "one line, a fence",
            Does::Lines { alone: 2, pair: false, .. } => "two lines in different pages, a fence",
            Does::Lines { .. } => "two lines side by side (the directory's log), a fence",
            Does::CreateUnlink => "three lines, a fence; two lines, a fence",
            Does::Write => "the data streamed to a random page, a fence, one line, a fence",
            Does::Journal => {
                "the last overwrite's lines written back, the data streamed beside, a fence, one \
                 line, a fence, the data stored home through the cache"
            }
            Does::Stream => "one streaming copy, a fence",
            Does::Load => "one copy out of random pages",
            Does::Store => "one line at a random place, a fence",
        })
    }

    fn takes_emulation(&self) -> bool {
        true
    }

    fn start(&self, place: &Place, programs: &Programs) -> Result<Box<dyn Ready>> {
        let options = programs.region().windows(WindowMode::None);
        let region = Mapped::create(place.pools().join("limit"), BYTES, &options, false)?;
        let door = Door::new(region);
        touch(&door);
        Ok(Box::new(Memory { door: Arc::new(door) }))
    }
}

/// The first store to a page is the kernel's work.
pub(super) fn touch<M: Medium>(door: &Door<M>) {
    let counters = Counters::new();
    for page in 0..BYTES / PAGE {
        door.window(PAGE, &counters).zero_nt(page * PAGE, PAGE);
    }
}

struct Memory {
    door: Arc<Door<Mapped>>,
}

impl Ready for Memory {
    fn workers(&mut self, cell: &Cell) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
        let each = |thread| looping(&self.door, cell.workload, thread);
        Ok((0..cell.threads).map(each).collect())
    }
}

/// The loop of one thread, where there is one for the workload.
pub(super) fn looping<M: Medium + 'static>(
    door: &Arc<Door<M>>,
    workload: &Workload,
    thread: usize,
) -> Option<Box<dyn Worker>> {
    Some(worker(Loop {
        door: Arc::clone(door),
        counters: Counters::new(),
        does: Does::of(workload)?,
        bytes: vec![0x77; (workload.size as usize).max(LINE_BYTES)],
        random: Random::new(thread as u64),
        last_home: None,
    }))
}

/// What the loop does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    /// Lines at random places, perhaps two side by side, and a fence.
    Lines { alone: u64, pair: bool },
    /// Two such operations.
    CreateUnlink,
    /// Data, fence, line, fence.
    Write,
    /// Data twice, once beside and once home.
    Journal,
    /// Data and a fence.
    Stream,
    /// A copy out.
    Load,
    /// A line that is mapped.
    Store,
}

impl Does {
    /// None for what is done in indexes alone: there no memory that lasts is touched.
    fn of(workload: &Workload) -> Option<Self> {
        Some(match workload.kind {
            Kind::Create | Kind::Mkdir => Self::Lines { alone: 1, pair: true },
            Kind::Unlink => Self::Lines { alone: 2, pair: false },
            Kind::Rename => Self::Lines { alone: 0, pair: true },
            Kind::Truncate => Self::Lines { alone: 1, pair: false },
            Kind::CreateUnlink => Self::CreateUnlink,
            Kind::Overwrite if workload.size < PAGE => Self::Journal,
            Kind::Overwrite if workload.size > PAGE => Self::Stream,
            Kind::Append | Kind::Overwrite => Self::Write,
            Kind::Read | Kind::MapRead => Self::Load,
            Kind::MapStore => Self::Store,
            _ => return None,
        })
    }
}

/// One thread of it.
struct Loop<M: Medium> {
    door: Arc<Door<M>>,
    counters: Counters,
    does: Does,
    bytes: Vec<u8>,
    random: Random,
    /// Where the last overwrite went home.
    last_home: Option<u64>,
}

impl<M: Medium> Step for Loop<M> {
    fn step(&mut self, _number: u64) -> io::Result<()> {
        match self.does {
            Does::Lines { alone, pair } => self.lines(alone, pair),
            Does::CreateUnlink => {
                self.lines(1, true)?;
                self.lines(2, false)
            }
            Does::Write => {
                self.stream()?;
                self.lines(1, false)
            }
            Does::Journal => self.journal(),
            Does::Stream => self.stream(),
            Does::Load => {
                let at = self.place(self.bytes.len() as u64);
                self.door.load(at, &mut self.bytes).map_err(failed)
            }
            Does::Store => self.lines(1, false),
        }
    }
}

impl<M: Medium> Loop<M> {
    /// A random place for so many bytes: they don't cross a page unless they are larger.
    #[inline]
    fn place(&mut self, bytes: u64) -> u64 {
        let grain = bytes.next_power_of_two();
        self.random.below(BYTES / grain) * grain
    }

    #[inline]
    fn fence(&self) -> io::Result<()> {
        self.door.fence(&self.counters).map_err(failed)
    }

    #[inline]
    fn lines(&mut self, alone: u64, pair: bool) -> io::Result<()> {
        let line = Line([0x11; LINE_BYTES]);
        let places = [self.place(2 * LINE), self.place(LINE), self.place(LINE)];
        let [side_by_side, one, other] = places;
        let mut window = self.door.window(4 * LINE, &self.counters);
        if pair {
            window.store_line(side_by_side, &line);
            window.store_line(side_by_side + LINE, &line);
        }
        for at in [one, other].into_iter().take(alone as usize) {
            window.store_line(at, &line);
        }
        drop(window);
        self.fence()
    }

    #[inline]
    fn stream(&mut self) -> io::Result<()> {
        let len = self.bytes.len() as u64;
        let at = self.place(len);
        self.door.window(len, &self.counters).copy_nt(at, &self.bytes);
        self.fence()
    }

    fn journal(&mut self) -> io::Result<()> {
        let len = self.bytes.len() as u64;
        if let Some(home) = self.last_home {
            self.door.window(0, &self.counters).flush(home, len);
        }
        self.stream()?;
        self.lines(1, false)?;
        let home = self.place(len);
        self.door.window(len, &self.counters).store(home, &self.bytes);
        self.last_home = Some(home);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lode_pmem::RegionOptions;

    use super::*;
    use crate::workload::{ALL, by_id};

    /// Fences, lines and streamed bytes of ten operations.
    fn spent(id: &str) -> (u64, u64, u64) {
        let workload = by_id(id).unwrap();
        let options = RegionOptions::new().windows(WindowMode::None);
        let mut step = Loop {
            door: Arc::new(Door::new(Mapped::anonymous(BYTES, &options).unwrap())),
            counters: Counters::new(),
            does: Does::of(workload).unwrap(),
            bytes: vec![1; (workload.size as usize).max(LINE_BYTES)],
            random: Random::new(1),
            last_home: None,
        };
        for number in 0..10 {
            step.step(number).unwrap();
        }
        let counted = step.counters.read();
        (counted.fences, counted.lines, counted.streamed_bytes)
    }

    #[test]
    fn the_loop_spends_what_the_budget_names() {
        for (id, fences, lines, bytes) in [
            ("create", 1, 3, 0),
            ("mkdir", 1, 3, 0),
            ("unlink", 1, 2, 0),
            ("create-unlink", 2, 5, 0),
            ("rename", 1, 2, 0),
            ("truncate", 1, 1, 0),
            ("append-64", 2, 1, 64),
            ("append-4k", 2, 1, 4096),
            ("append-64k", 2, 1, 65_536),
            ("overwrite-512", 2, 1, 512),
            ("overwrite-4k", 2, 1, 4096),
            ("write-1m", 1, 0, 1 << 20),
            ("read-4k", 0, 0, 0),
            ("map-store-64", 1, 1, 0),
        ] {
            assert_eq!(spent(id), (10 * fences, 10 * lines, 10 * bytes), "{id}");
        }
    }

    #[test]
    fn steps_are_told_where_there_are_some() {
        for workload in ALL {
            let told = Limit.steps(workload);
            assert_eq!(told.is_some(), Does::of(workload).is_some(), "{}", workload.id);
        }
        assert_eq!(Limit.steps(by_id("stat").unwrap()), None);
    }
}
