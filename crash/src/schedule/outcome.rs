//! What became of a run.

use std::fmt;
use std::panic::Location;

use super::Schedule;

/// What a thread was about to do, or had done, at a switch point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// It runs its job, from the start.
    Start,
    /// Takes a mutex.
    Lock,
    /// Takes a readers-writer lock for reading.
    Read,
    /// Takes a readers-writer lock for writing.
    Write,
    /// Takes a lock of any kind if it is free.
    Try,
    /// Has given back a lock; the place is where it was taken.
    Unlock,
    /// Called [`super::point`].
    Point,
    /// Goes on after it waited for a lock.
    Resume,
    /// Its job has ended.
    End,
}

/// One thing that a thread did.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// The thread.
    pub thread: usize,
    /// What it did.
    pub event: Event,
    /// Where in the code.
    pub at: &'static Location<'static>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event {
            Event::Start | Event::End => write!(f, "{}: {:?}", self.thread, self.event),
            event => write!(f, "{}: {event:?} {}", self.thread, self.at),
        }
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What became of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The choices, to run it again.
    pub schedule: Schedule,
    /// How often a thread was stopped that could have gone on.
    pub preemptions: u32,
    /// All that the threads did, in order.
    pub trace: Vec<Step>,
    /// Why not all jobs could end: who waits for what.
    pub deadlock: Option<String>,
    /// Jobs that panicked, by number, and what they said.
    pub panics: Vec<(usize, String)>,
    /// The schedule asked for what could not be: it was made for another program.
    pub diverged: bool,
}

impl Outcome {
    /// What went wrong, if anything did.
    pub fn failure(&self) -> Option<String> {
        let mut parts = Vec::new();
        parts.extend(self.deadlock.clone());
        for (thread, what) in &self.panics {
            parts.push(format!("thread {thread} panicked: {what}"));
        }
        if self.diverged {
            parts.push("the run is not the one that its schedule was made for".to_owned());
        }
        if parts.is_empty() {
            return None;
        }
        Some(format!("schedule {}: {}", self.schedule, parts.join("; ")))
    }
}
