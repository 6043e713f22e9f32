//! The table that the threads of a run sit at: one of them has the turn.

use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};

use lode_testkit::run::panic_text;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::outcome::Event;
use super::state::{Claim, Mode, Place, State};
use super::{Chooser, Outcome};

/// What a thread unwinds with when its run is given up.
struct GivenUp;

/// A table with a fixed number of seats.
#[derive(Debug)]
pub(super) struct Table {
    state: Mutex<State>,
    /// Each thread waits here for its turn.
    turns: Vec<Condvar>,
    /// Whoever started the run waits here for its end.
    over: Condvar,
}

impl Table {
    /// A table for `seats` threads.
    pub(super) fn new(seats: usize) -> Self {
        assert!(seats <= u64::BITS as usize, "more than {} threads", u64::BITS);
        let turns = (0..seats).map(|_| Condvar::new()).collect();
        Self { state: Mutex::new(State::new()), turns, over: Condvar::new() }
    }

    /// How many seats there are.
    pub(super) fn seats(&self) -> usize {
        self.turns.len()
    }

    /// Runs `threads` threads that are at the table or will come to it, to their ends.
    pub(super) fn run(&self, chooser: &mut Chooser, threads: usize) -> Outcome {
        let mut state = self.state.lock();
        let given = std::mem::replace(chooser, Chooser::usual());
        if let Some(first) = state.begin(given, threads) {
            self.turns[first].notify_one();
        }
        while !state.is_over() {
            self.over.wait(&mut state);
        }
        let (made, outcome) = state.finish();
        *chooser = made;
        outcome
    }

    /// Waits for the first turn of a thread. `None` if there will be no more runs; else
    /// whether its job is to be run.
    pub(super) fn begin(&self, me: usize) -> Option<bool> {
        let mut state = self.state.lock();
        while state.turn != Some(me) {
            if state.closing {
                return None;
            }
            self.turns[me].wait(&mut state);
        }
        state.step(me, Event::Start, Location::caller());
        Some(state.given_up.is_none())
    }

    /// Runs a job and passes the turn on at its end.
    pub(super) fn serve(&self, me: usize, job: impl FnOnce()) {
        let panic = catch_unwind(AssertUnwindSafe(job)).err().and_then(text_of);
        let mut state = self.state.lock();
        state.step(me, Event::End, Location::caller());
        state.ended(me, panic);
        state.turn = None;
        if state.is_over() {
            self.over.notify_one();
        } else {
            self.pass(&mut state);
        }
    }

    /// Ends all threads that wait for a run.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.turns.iter().for_each(|turn| {
            turn.notify_one();
        });
    }

    /// A switch point.
    pub(super) fn point(&self, me: usize, event: Event, at: Place) {
        let mut state = self.state.lock();
        state.step(me, event, at);
        self.offer(&mut state, me);
        drop(unwind_if_given_up(state));
    }

    /// Takes a lock by `take`, which says whether it could; waits until it can.
    pub(super) fn acquire(&self, me: usize, claim: Claim, take: &dyn Fn() -> bool) {
        let mut state = self.state.lock();
        state.step(me, claim.mode.event(), claim.at);
        self.offer(&mut state, me);
        loop {
            state = unwind_if_given_up(state);
            let behind = claim.mode == Mode::Read && state.writer_waits(claim.lock);
            if !behind && take() {
                return state.hold(me, claim);
            }
            state.wait(me, claim);
            self.pass(&mut state);
            self.wait(&mut state, me);
            state.step(me, Event::Resume, claim.at);
        }
    }

    /// Takes a lock if it is free.
    pub(super) fn try_acquire(&self, me: usize, claim: Claim, take: &dyn Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        state.step(me, Event::Try, claim.at);
        self.offer(&mut state, me);
        state = unwind_if_given_up(state);
        let behind = claim.mode == Mode::Read && state.writer_waits(claim.lock);
        let taken = !behind && take();
        if taken {
            state.hold(me, claim);
        }
        taken
    }

    /// Gives a lock back by `give`, which says whether it is free now. Never unwinds.
    pub(super) fn release(&self, me: usize, lock: usize, give: &dyn Fn() -> bool) {
        let mut state = self.state.lock();
        let taken = state.unhold(me, lock);
        if give() {
            state.wake(lock);
        }
        if !std::thread::panicking() {
            state.step(me, Event::Unlock, taken.unwrap_or(Location::caller()));
            self.offer(&mut state, me);
        }
    }

    /// Lets another thread go on if the choice is so; returns at this one's next turn.
    fn offer(&self, state: &mut MutexGuard<'_, State>, me: usize) {
        if state.given_up.is_some() {
            return;
        }
        let next = state.next(Some(me)).unwrap_or(me);
        if next != me {
            state.turn = Some(next);
            self.turns[next].notify_one();
            self.wait(state, me);
        }
    }

    /// Passes the turn on from a thread that can't go on.
    fn pass(&self, state: &mut State) {
        if state.is_stuck() {
            if let Some(why) = &state.given_up {
                // Locks that are wanted while unwinding are held by others that want more:
                // none of them can ever be given.
                eprintln!("{why}; then, while unwinding: {}", state.describe());
                std::process::abort();
            }
            let why = state.describe();
            state.give_up(why);
        }
        state.turn = state.next(None);
        if let Some(next) = state.turn {
            self.turns[next].notify_one();
        }
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>, me: usize) {
        while state.turn != Some(me) {
            self.turns[me].wait(state);
        }
    }
}

/// Unwinds this thread when the run is given up, unless it unwinds already.
fn unwind_if_given_up(state: MutexGuard<'_, State>) -> MutexGuard<'_, State> {
    if state.given_up.is_some() && !std::thread::panicking() {
        drop(state);
        resume_unwind(Box::new(GivenUp));
    }
    state
}

/// What a panic said; nothing of one that gives up the run.
fn text_of(panic: Box<dyn Any + Send>) -> Option<String> {
    (!panic.is::<GivenUp>()).then(|| panic_text(&*panic))
}
