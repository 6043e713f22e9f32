//! What the threads of a run are doing, and which of them may go on.

use std::fmt::Write;
use std::panic::Location;

use super::outcome::{Event, Step};
use super::{Chooser, Outcome};

/// Steps of a run, after which it is taken to be without end.
const STEPS_MAX: usize = 1 << 20;

/// A place in the code.
pub(super) type Place = &'static Location<'static>;

/// How a lock is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Mutex,
    Read,
    Write,
}

/// A lock, how it is taken, and where. A lock is known by its address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) lock: usize,
    pub(super) mode: Mode,
    pub(super) at: Place,
}

#[derive(Clone, Copy, Debug)]
enum Status {
    Ready,
    Waits(Claim),
    Ended,
}

#[derive(Debug)]
struct Thread {
    status: Status,
    held: Vec<Claim>,
}

/// The threads of a run.
#[derive(Debug)]
pub(super) struct State {
    pub(super) chooser: Chooser,
    threads: Vec<Thread>,
    /// Who runs. Nobody before a run and after it.
    pub(super) turn: Option<usize>,
    /// Why the run is given up; all threads are to unwind.
    pub(super) given_up: Option<String>,
    /// The threads of a pool are to end.
    pub(super) closing: bool,
    trace: Vec<Step>,
    panics: Vec<(usize, String)>,
}

impl Mode {
    pub(super) fn event(self) -> Event {
        match self {
            Self::Mutex => Event::Lock,
            Self::Read => Event::Read,
            Self::Write => Event::Write,
        }
    }
}

impl State {
    /// No run.
    pub(super) fn new() -> Self {
        Self {
            chooser: Chooser::usual(),
            threads: Vec::new(),
            turn: None,
            given_up: None,
            closing: false,
            trace: Vec::new(),
            panics: Vec::new(),
        }
    }

    /// Begins a run of so many threads. Returns who is first.
    pub(super) fn begin(&mut self, chooser: Chooser, threads: usize) -> Option<usize> {
        let closing = self.closing;
        *self = Self { chooser, closing, ..Self::new() };
        self.threads.resize_with(threads, || Thread { status: Status::Ready, held: Vec::new() });
        self.turn = self.next(None);
        self.turn
    }

    /// Ends a run in which all threads have ended.
    pub(super) fn finish(&mut self) -> (Chooser, Outcome) {
        let mut chooser = std::mem::replace(&mut self.chooser, Chooser::usual());
        if self.given_up.is_none() && self.panics.is_empty() {
            chooser.end();
        }
        let outcome = Outcome {
            schedule: chooser.schedule(),
            preemptions: chooser.preemptions(),
            trace: std::mem::take(&mut self.trace),
            deadlock: self.given_up.take(),
            panics: std::mem::take(&mut self.panics),
            diverged: chooser.diverged(),
        };
        (chooser, outcome)
    }

    /// Notes a step. A run that has too many is given up.
    pub(super) fn step(&mut self, thread: usize, event: Event, at: Place) {
        if self.given_up.is_some() {
            return;
        }
        self.trace.push(Step { thread, event, at });
        if self.trace.len() == STEPS_MAX {
            self.give_up(format!("no end after {STEPS_MAX} steps, the last at {at}"));
        }
    }

    /// Who goes on, of those that can; `current` is who ran last, if it can.
    pub(super) fn next(&mut self, current: Option<usize>) -> Option<usize> {
        let mut ready = 0_u64;
        for (number, thread) in self.threads.iter().enumerate() {
            ready |= u64::from(matches!(thread.status, Status::Ready)) << number;
        }
        match ready {
            0 => None,
            _ if self.given_up.is_some() => Some(ready.trailing_zeros() as usize),
            _ => Some(self.chooser.choose(ready, current)),
        }
    }

    /// Whether no thread can go on.
    pub(super) fn is_stuck(&self) -> bool {
        !self.threads.iter().any(|thread| matches!(thread.status, Status::Ready))
    }

    /// Whether all threads have ended.
    pub(super) fn is_over(&self) -> bool {
        self.threads.iter().all(|thread| matches!(thread.status, Status::Ended))
    }

    /// Whether a thread waits to write: readers then wait behind it, as with the locks that
    /// servers and kernels use.
    pub(super) fn writer_waits(&self, lock: usize) -> bool {
        self.threads.iter().any(|thread| match thread.status {
            Status::Waits(claim) => claim.lock == lock && claim.mode == Mode::Write,
            _ => false,
        })
    }

    /// Notes that a thread has a lock.
    pub(super) fn hold(&mut self, thread: usize, claim: Claim) {
        self.threads[thread].held.push(claim);
    }

    /// Notes that a thread has given a lock back. Returns where it was taken.
    pub(super) fn unhold(&mut self, thread: usize, lock: usize) -> Option<Place> {
        let held = &mut self.threads[thread].held;
        let at = held.iter().rposition(|claim| claim.lock == lock)?;
        Some(held.remove(at).at)
    }

    /// Notes that a thread waits for a lock.
    pub(super) fn wait(&mut self, thread: usize, claim: Claim) {
        self.threads[thread].status = Status::Waits(claim);
    }

    /// Lets all that wait for a free lock try again.
    pub(super) fn wake(&mut self, lock: usize) {
        for thread in &mut self.threads {
            if matches!(thread.status, Status::Waits(claim) if claim.lock == lock) {
                thread.status = Status::Ready;
            }
        }
    }

    /// Notes the end of a job.
    pub(super) fn ended(&mut self, thread: usize, panic: Option<String>) {
        self.threads[thread].status = Status::Ended;
        self.panics.extend(panic.map(|what| (thread, what)));
    }

    /// Lets all threads unwind.
    pub(super) fn give_up(&mut self, why: String) {
        self.given_up = Some(why);
        for thread in &mut self.threads {
            if matches!(thread.status, Status::Waits(_)) {
                thread.status = Status::Ready;
            }
        }
    }

    /// Who waits for what.
    pub(super) fn describe(&self) -> String {
        let mut names = Vec::new();
        let mut text = "no thread can go on".to_owned();
        for (number, thread) in self.threads.iter().enumerate() {
            let Status::Waits(claim) = thread.status else { continue };
            let _ = write!(text, "; thread {number} waits for {}", name(&mut names, &claim));
            let _ = write!(text, " at {}, {}", claim.at, self.holders(claim.lock));
        }
        text
    }

    fn holders(&self, lock: usize) -> String {
        let mut text = String::new();
        for (number, thread) in self.threads.iter().enumerate() {
            for claim in thread.held.iter().filter(|claim| claim.lock == lock) {
                let how = if claim.mode == Mode::Read { "read" } else { "held" };
                let and = if text.is_empty() { "" } else { " and " };
                let _ = write!(text, "{and}{how} by thread {number} since {}", claim.at);
            }
        }
        if text.is_empty() { "held by no thread of the run".to_owned() } else { text }
    }
}

/// A name for a lock, by the order in which locks are named.
fn name(names: &mut Vec<usize>, claim: &Claim) -> String {
    let number = names.iter().position(|&lock| lock == claim.lock).unwrap_or_else(|| {
        names.push(claim.lock);
        names.len() - 1
    });
    let kind = match claim.mode {
        Mode::Mutex => "mutex",
        Mode::Read => "lock to read",
        Mode::Write => "lock to write",
    };
    format!("{kind} #{number}")
}
