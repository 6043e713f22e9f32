//! The scrub that a server begins every so often by itself.
//!
//! Guarantees: it loads no more bytes a second than it may, but for a step of [`STEP_MAX`] or one inode's log; a scrub that somebody asks for goes
//! first, and counts if it comes to its end; the mount's end waits for a step at most. What it finds is in the log.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lode_engine::{Error, ExemptRange, Finding, Host, Outcome};
use lode_pmem::Medium;

use super::shared::{Counts, Step};
use crate::fs::State;
use crate::paths;

/// Bytes a second, where nobody says otherwise.
pub const RATE: u64 = 100 << 20;
/// Bytes of a step, at most and at least.
const STEP_MAX: u64 = 1 << 20;
const STEP_MIN: u64 = 64 << 10;
/// Steps in a second, where these allow it.
const STEPS: u64 = 20;
/// How often it is looked whether somebody else's scrub is over.
const LOOK: Duration = Duration::from_millis(500);
/// The most lost places that a scrub names in the log.
const NAMED_MAX: usize = 100;

/// The thread that scrubs, until this is dropped.
pub struct Periodic {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// Scrubs the pool of a mount each `period`, for the first time after one, at no more than `rate` bytes a second.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start<M: Medium + 'static, H: Host>(
        state: Arc<State<M, H>>,
        period: Duration,
        rate: u64,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let builder = thread::Builder::new().name("lode-scrub".into());
        let thread =
            builder.spawn(move || Scrubber { state, rate: rate.max(1), stopped }.run(period))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Of a panic the gate knows.
            let _ = thread.join();
        }
    }
}

/// How an attempt to scrub has ended.
enum Ended {
    /// All has been looked at.
    Over,
    /// Somebody else scrubs.
    GaveWay,
    /// The mount ends.
    Stopped,
}

/// What a scrub has found so far.
#[derive(Default)]
struct Found {
    bytes: u64,
    counts: Counts,
    forgotten: u64,
    /// The first of what is lost.
    named: Vec<Finding>,
    /// Pages that programs have mapped to store into, and the first of these.
    exempt_pages: u64,
    exempt: Vec<ExemptRange>,
}

struct Scrubber<M: Medium + 'static, H: Host> {
    state: Arc<State<M, H>>,
    rate: u64,
    stopped: Receiver<()>,
}

impl<M: Medium + 'static, H: Host> Scrubber<M, H> {
    fn run(self, period: Duration) {
        let mut begin = Instant::now() + period;
        while !self.stops_within(begin.saturating_duration_since(Instant::now())) {
            begin = Instant::now() + period;
            match self.scrub() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::error!(%error, "scrubbing has failed; the next one is a period later")
                }
            }
        }
    }

    /// Whether the mount ends within `time`.
    fn stops_within(&self, time: Duration) -> bool {
        self.stopped.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
    }

    /// Scrubs, or sees somebody else do it. False if the mount ends.
    fn scrub(&self) -> Result<bool, Error> {
        let ended = self.state.scrubs.facts().ended;
        loop {
            match self.attempt()? {
                Ended::Over => return Ok(true),
                Ended::Stopped => return Ok(false),
                Ended::GaveWay => {}
            }
            if self.stops_within(LOOK) {
                return Ok(false);
            }
            if self.state.scrubs.facts().ended != ended {
                return Ok(true);
            }
        }
    }

    fn attempt(&self) -> Result<Ended, Error> {
        let scrubs = &self.state.scrubs;
        let id = {
            let Ok(pass) = self.state.gate.enter() else { return Ok(Ended::Stopped) };
            match scrubs.begin_own(&pass.pool)? {
                Some(id) => id,
                None => return Ok(Ended::GaveWay),
            }
        };
        let mut found = Found::default();
        let ended = self.steps(id, &mut found);
        match ended {
            Ok(Ended::Over) => self.tell(found),
            _ => scrubs.end_own(id),
        }
        ended
    }

    fn steps(&self, id: u64, found: &mut Found) -> Result<Ended, Error> {
        let bytes = (self.rate / STEPS).clamp(STEP_MIN, STEP_MAX);
        loop {
            let began = Instant::now();
            let step = {
                let Ok(pass) = self.state.gate.enter() else { return Ok(Ended::Stopped) };
                let State { scrubs, damage, .. } = &*self.state;
                match scrubs.step_own(&pass.pool, damage, (id, bytes))? {
                    Some(step) => step,
                    None => return Ok(Ended::GaveWay),
                }
            };
            let took = Duration::from_secs_f64((step.done - found.bytes) as f64 / self.rate as f64);
            let over = step.over;
            found.add(step);
            if over {
                return Ok(Ended::Over);
            }
            if self.stops_within(took.saturating_sub(began.elapsed())) {
                return Ok(Ended::Stopped);
            }
        }
    }

    /// Says in the log what was found.
    fn tell(&self, found: Found) {
        self.tell_exempt(&found);
        let Found { bytes, counts, forgotten, named, .. } = found;
        if counts.all() + forgotten == 0 {
            tracing::info!(bytes, "scrubbed: nothing is bad");
            return;
        }
        let Counts { repaired, left, lost } = counts;
        tracing::warn!(bytes, repaired, left, lost, forgotten, "scrubbed: something was bad");
        let inos: Vec<_> = named.iter().map(|found| found.ino).filter(|ino| *ino != 0).collect();
        let paths = paths::find(&self.state, &inos, &mut || !self.stops_within(Duration::ZERO));
        for found in &named {
            let path = paths.get(&found.ino).map(String::as_str);
            let inode = Some(found.ino).filter(|ino| *ino != 0);
            let file_offset = (found.bytes > 0).then_some(found.offset);
            let bytes = file_offset.map(|_| found.bytes);
            let (what, offset) = (found.what.name(), found.at);
            tracing::error!(
                path,
                inode,
                file_offset,
                bytes,
                offset,
                what,
                "this can't be read: lost"
            );
        }
        let more = (lost + forgotten).saturating_sub(named.len() as u64);
        if more > 0 {
            tracing::error!(more, "more is lost: `lode scrub` shows it");
        }
    }
}

impl<M: Medium + 'static, H: Host> Scrubber<M, H> {
    /// Says what nobody has looked at.
    fn tell_exempt(&self, found: &Found) {
        let Found { exempt_pages: pages, exempt, .. } = found;
        if *pages == 0 {
            return;
        }
        tracing::info!(
            pages,
            "passed over: without checksums, as programs have them mapped to store into, or had when the pool was left"
        );
        let inos: Vec<_> = exempt.iter().map(|range| range.ino).collect();
        let paths = paths::find(&self.state, &inos, &mut || !self.stops_within(Duration::ZERO));
        for ExemptRange { ino: inode, offset: file_offset, bytes } in exempt {
            let path = paths.get(inode).map(String::as_str);
            tracing::info!(path, inode, file_offset, bytes, "this was passed over: no checksums");
        }
    }
}

impl Found {
    fn add(&mut self, step: Step) {
        let Step { done, forgotten, exempt_pages, exempt, findings, .. } = step;
        (self.bytes, self.forgotten, self.exempt_pages) = (done, forgotten, exempt_pages);
        self.exempt.extend(exempt);
        self.counts.add(&findings);
        let room = NAMED_MAX.saturating_sub(self.named.len());
        let lost = findings.into_iter().filter(|found| found.outcome == Outcome::Lost);
        self.named.extend(lost.take(room));
    }
}
