//! What the log and the statistics say of damage that requests have met, and of what scrubs have found lost.
//!
//! Guarantees: a request that meets damage is answered at once, and waits for nothing; each place is told once, with the path of its file and the
//! bytes of it that are lost as far as these can be found. That takes a while, so a thread of its own does it. Where there are too many places
//! for it, they are told without. (What a scrub has found is in its report: it is listed for the statistics, and not told in the log again.)

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lode_engine::{Error, Finding, Host, Ino, Outcome, PAGE_BYTES, Pool, What};
use lode_pmem::Medium;
use parking_lot::Mutex;

use crate::fs::State;
use crate::lost::Lost as Listed;
use crate::paths;

/// Places that are remembered. Of more no more is said: fsck and scrub find them all.
const PLACES_MAX: usize = 1000;
/// Places that wait to be told.
const WAITING_MAX: usize = 256;
/// Places whose paths are looked for together.
const BATCH: usize = 64;
/// The most bytes of a request that are looked at again.
const LOOKED_MAX: u64 = 4 << 20;
/// Bytes that are lost together at least.
const LINE: u64 = 64;
/// How long the end of the mount waits for paths.
const AT_END: Duration = Duration::from_secs(1);

/// Damage that a request has met.
struct Met {
    /// The inode, 0 where it is not known.
    ino: Ino,
    /// Where in the pool.
    at: u64,
    /// The bytes of the file that were to be read: where they begin, and how many.
    range: Option<(u64, u64)>,
    error: Error,
}

/// What waits for a path.
enum Waiting {
    Met(Met),
    /// A scrub has found this lost.
    Found(Finding),
}

impl Waiting {
    fn ino(&self) -> Ino {
        match self {
            Waiting::Met(met) => met.ino,
            Waiting::Found(found) => found.ino,
        }
    }
}

/// Where requests and scrubs leave damage.
#[derive(Default)]
pub struct Damage {
    seen: Mutex<BTreeSet<u64>>,
    waiting: Mutex<Option<SyncSender<Waiting>>>,
    ending: AtomicBool,
    /// What can't be read, for the statistics.
    pub lost: Listed,
}

/// Where in the pool an error is, and in which inode, if it is one of the medium.
fn place(error: &Error) -> Option<(u64, Ino)> {
    match error {
        Error::Corrupt(damage) | Error::Lost(damage) => Some((damage.at, damage.ino)),
        Error::Media { at } => Some((*at, 0)),
        _ => None,
    }
}

impl Damage {
    /// A request about the inode `ino` (0 where it is not known) and these bytes of it has met an error, which is damage or is not.
    pub fn met<M: Medium, H: Host>(
        &self,
        pool: &Pool<M, H>,
        ino: Ino,
        range: Option<(u64, u64)>,
        error: &Error,
    ) {
        let Some((at, of)) = place(error) else { return };
        if !self.is_new(at) {
            return;
        }
        // The pool's own number is that of the file as it is now.
        let in_its_tree = |of: Ino| of | (pool.root_of(ino) ^ pool.root());
        let known = if of == 0 { ino } else { in_its_tree(of) };
        let range = range.filter(|_| known == ino);
        let met = Met { ino: known, at, range, error: *error };
        if let Err(Waiting::Met(met)) = self.leave(Waiting::Met(met)) {
            met.tell(None, None);
            self.lost.note(&met.finding(None), None);
        }
    }

    /// Scrubs have found this.
    pub fn found(&self, findings: &[Finding]) {
        for found in findings.iter().filter(|found| found.outcome == Outcome::Lost) {
            if self.leave(Waiting::Found(*found)).is_err() {
                self.lost.note(found, None);
            }
        }
    }

    /// Leaves it to who looks for paths; gives it back where too many wait.
    fn leave(&self, what: Waiting) -> Result<(), Waiting> {
        match &*self.waiting.lock() {
            Some(queue) => queue.try_send(what).map_err(|error| match error {
                mpsc::TrySendError::Full(what) | mpsc::TrySendError::Disconnected(what) => what,
            }),
            None => Err(what),
        }
    }

    /// Whether damage at this offset is met for the first time.
    fn is_new(&self, at: u64) -> bool {
        let mut seen = self.seen.lock();
        seen.len() < PLACES_MAX && seen.insert(at)
    }
}

/// Bytes of a file that are lost, one behind the other in the pool, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lost {
    /// Where in the file.
    offset: u64,
    bytes: u64,
    /// Where in the pool.
    at: u64,
    /// Why the first of them can't be read.
    error: Error,
}

impl Met {
    /// As a scrub would have found it. (Which kind it is of what is no data, a request does not know.)
    fn finding(&self, lost: Option<Lost>) -> Finding {
        let what = if lost.is_some() { What::Data } else { What::Metadata };
        let Lost { offset, bytes, at, .. } =
            lost.unwrap_or(Lost { offset: 0, bytes: 0, at: self.at, error: self.error });
        Finding { what, outcome: Outcome::Lost, ino: self.ino, at, offset, bytes }
    }

    fn tell(&self, path: Option<&str>, lost: Option<Lost>) {
        let inode = Some(self.ino).filter(|ino| *ino != 0);
        let offset = lost.map_or(self.at, |lost| lost.at);
        let (file_offset, bytes) = (lost.map(|lost| lost.offset), lost.map(|lost| lost.bytes));
        let error = lost.map_or(self.error, |lost| lost.error);
        tracing::error!(
            path, inode, file_offset, bytes, offset, %error,
            "the pool is damaged here: answering EIO"
        );
    }
}

/// The thread that tells, until this is dropped.
pub struct Teller<M: Medium + 'static, H: Host> {
    state: Arc<State<M, H>>,
    thread: Option<JoinHandle<()>>,
}

impl<M: Medium + 'static, H: Host> Teller<M, H> {
    /// Starts it.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start(state: Arc<State<M, H>>) -> io::Result<Self> {
        let (sender, waiting) = mpsc::sync_channel(WAITING_MAX);
        *state.damage.waiting.lock() = Some(sender);
        let shared = Arc::clone(&state);
        let builder = thread::Builder::new().name("lode-damage".into());
        let thread = builder.spawn(move || {
            Telling { state: &shared, told: BTreeMap::new(), until: None }.run(&waiting);
        })?;
        Ok(Self { state, thread: Some(thread) })
    }
}

impl<M: Medium + 'static, H: Host> Drop for Teller<M, H> {
    fn drop(&mut self) {
        self.state.damage.ending.store(true, Ordering::Release);
        // It ends when all is told.
        *self.state.damage.waiting.lock() = None;
        if let Some(thread) = self.thread.take() {
            // Of a panic the gate knows.
            let _ = thread.join();
        }
    }
}

struct Telling<'a, M: Medium, H: Host> {
    state: &'a State<M, H>,
    /// Bytes of the pool that were told of: from where to where.
    told: BTreeMap<u64, u64>,
    /// No path is looked for any longer than until then.
    until: Option<Instant>,
}

impl<M: Medium, H: Host> Telling<'_, M, H> {
    fn run(mut self, waiting: &Receiver<Waiting>) {
        while let Ok(first) = waiting.recv() {
            let mut some = vec![first];
            some.extend(waiting.try_iter().take(BATCH - 1));
            let inos: Vec<Ino> = some.iter().map(Waiting::ino).filter(|ino| *ino != 0).collect();
            let (state, until) = (self.state, &mut self.until);
            let paths = paths::find(state, &inos, &mut || goes_on(&state.damage, until));
            for what in &some {
                let path = paths.get(&what.ino()).map(String::as_str);
                match what {
                    Waiting::Met(met) => self.tell(met, path),
                    Waiting::Found(found) => state.damage.lost.note(found, path),
                }
            }
        }
    }

    fn tell(&mut self, met: &Met, path: Option<&str>) {
        if self.told.len() >= PLACES_MAX || self.is_told(met.at) {
            return;
        }
        let lost = met.range.map_or_else(Vec::new, |range| self.lost(met.ino, range));
        if !lost.iter().any(|lost| (lost.at..lost.at + lost.bytes).contains(&met.at)) {
            met.tell(path, None);
            self.state.damage.lost.note(&met.finding(None), path);
            self.told.insert(met.at, met.at + 1);
        }
        for lost in lost {
            if !self.is_told(lost.at) && self.told.len() < PLACES_MAX {
                met.tell(path, Some(lost));
                self.state.damage.lost.note(&met.finding(Some(lost)), path);
                self.told.insert(lost.at, lost.at + lost.bytes);
            }
        }
    }

    fn is_told(&self, at: u64) -> bool {
        self.told.range(..=at).next_back().is_some_and(|(_, end)| at < *end)
    }

    /// What of these bytes of a file can't be read.
    fn lost(&self, ino: Ino, (offset, bytes): (u64, u64)) -> Vec<Lost> {
        let mut lost = Vec::new();
        let Ok(pass) = self.state.gate.enter() else { return lost };
        let pool = &pass.pool;
        // At level full it is strips that are lost.
        let strip = pool.info().map_or(0, |info| u64::from(info.strip_bytes)).max(LINE);
        let end = offset.saturating_add(bytes.min(LOOKED_MAX));
        let mut page = vec![0; PAGE_BYTES as usize];
        let mut from = offset - offset % PAGE_BYTES;
        while from < end {
            if fails(pool, ino, from, &mut page).is_some() {
                for part in (from..from.saturating_add(PAGE_BYTES)).step_by(strip as usize) {
                    let room = page.get_mut(..strip as usize).unwrap_or_default();
                    if let Some((at, error)) = fails(pool, ino, part, room) {
                        note(&mut lost, Lost { offset: part, bytes: strip, at, error });
                    }
                }
            }
            from = from.saturating_add(PAGE_BYTES);
        }
        let size = pool.getattr(ino).map_or(u64::MAX, |attr| attr.size);
        for lost in &mut lost {
            lost.bytes = lost.bytes.min(size.saturating_sub(lost.offset)).max(1);
        }
        lost
    }
}

/// Where in the pool bytes of a file can't be read, and why.
fn fails<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    ino: Ino,
    offset: u64,
    room: &mut [u8],
) -> Option<(u64, Error)> {
    let error = pool.read_quietly(ino, offset, room).err()?;
    place(&error).map(|(at, _)| (at, error))
}

/// Takes in lost bytes; those that go on from the last ones belong to them.
fn note(lost: &mut Vec<Lost>, next: Lost) {
    match lost.last_mut() {
        Some(last)
            if (last.offset + last.bytes, last.at + last.bytes) == (next.offset, next.at) =>
        {
            last.bytes += next.bytes;
        }
        _ => lost.push(next),
    }
}

/// Whether to look on for paths: at the mount's end only for a moment.
fn goes_on(damage: &Damage, until: &mut Option<Instant>) -> bool {
    if !damage.ending.load(Ordering::Acquire) {
        return true;
    }
    Instant::now() < *until.get_or_insert_with(|| Instant::now() + AT_END)
}
