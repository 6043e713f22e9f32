//! Which of a mount's threads wait for requests.
//!
//! Of the threads that wait in the device the kernel wakes one for each request, even where another one, which has just
//! answered, would have read it sooner: that one finds nothing, and a processor was taken from who asks. So as long as one thread keeps
//! up, only that one waits, and the others sleep where no request wakes them. There are more when the queue does not get empty,
//! and fewer when it always is.
//!
//! Guarantees: while a thread is free, one waits for requests, or begins to within [`STUCK`] and as much again, whatever those that
//! work are waiting for (what they wait for may be a request that nobody has read). A thread whose request is long has
//! somebody else wait from the beginning; of others, who find their work longer than it should be, a watch takes care.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// After so long without any progress another thread waits for requests.
const STUCK: Duration = Duration::from_millis(5);
/// After so many of these in which nothing was asked for the watch sleeps until something is.
const QUIET: u32 = 200;

/// The threads of a mount.
#[derive(Debug, Default)]
pub(super) struct Turns {
    threads: Mutex<Threads>,
    /// Those without a turn wait for one here.
    given: Condvar,
    /// How many have a turn, those to whom it was given and who don't know yet among them. It changes under the lock.
    with_turn: AtomicUsize,
    /// How many of these work on a request.
    at_work: AtomicUsize,
    /// Requests that these have worked on.
    done: AtomicU64,
    /// The watch looks at that from time to time; else it waits to be told.
    watched: AtomicBool,
    /// It waits here.
    stir: Condvar,
}

#[derive(Debug, Default)]
struct Threads {
    /// How many sleep, and nobody has given them a turn.
    asleep: usize,
    /// Turns that were given, and not yet taken.
    given: usize,
    ended: bool,
}

impl Turns {
    /// Waits until there is a turn for this thread.
    pub(super) fn take(&self) -> Turn<'_> {
        self.wait();
        Turn { turns: self, held: true }
    }

    fn wait(&self) {
        let mut threads = self.threads.lock();
        if self.with_turn.load(SeqCst) == 0 {
            self.with_turn.store(1, SeqCst);
            return;
        }
        threads.asleep += 1;
        while threads.given == 0 {
            self.given.wait(&mut threads);
        }
        threads.given -= 1;
    }

    /// Has one more thread wait for requests, if there is one that sleeps.
    pub(super) fn more(&self) {
        self.give(&mut self.threads.lock());
    }

    fn give(&self, threads: &mut Threads) {
        if threads.asleep > 0 {
            threads.asleep -= 1;
            threads.given += 1;
            self.with_turn.fetch_add(1, SeqCst);
            self.given.notify_one();
        }
    }

    /// Gives a turn back; there is always somebody with one, unless all are busy.
    fn leave(&self) {
        let mut threads = self.threads.lock();
        if self.with_turn.fetch_sub(1, SeqCst) == 1 {
            self.give(&mut threads);
        }
    }

    /// The same where somebody else has one, too; says whether.
    fn leave_to_others(&self) -> bool {
        let _threads = self.threads.lock();
        let others = self.with_turn.load(SeqCst) > 1;
        if others {
            self.with_turn.fetch_sub(1, SeqCst);
        }
        others
    }

    /// Watches over the threads until [`Turns::end`].
    pub(super) fn watch(&self) {
        let mut threads = self.threads.lock();
        while !threads.ended {
            self.watched.store(true, SeqCst);
            let (mut before, mut quiet) = (self.done.load(SeqCst), 0);
            while !threads.ended && quiet < QUIET {
                self.stir.wait_for(&mut threads, STUCK);
                let now = self.done.load(SeqCst);
                quiet = if now == before { quiet + 1 } else { 0 };
                let (at_work, with_turn) = (self.at_work.load(SeqCst), self.with_turn.load(SeqCst));
                if now == before && with_turn > 0 && at_work >= with_turn {
                    self.give(&mut threads);
                    // (As long as somebody works, it may be more.)
                    quiet = 0;
                }
                before = now;
            }
            self.watched.store(false, SeqCst);
            // (Whoever has begun before that does not tell.)
            let calm =
                |turns: &Self| turns.at_work.load(SeqCst) == 0 && turns.done.load(SeqCst) == before;
            if !threads.ended && calm(self) {
                self.stir.wait(&mut threads);
            }
        }
    }

    /// Ends the watch.
    pub(super) fn end(&self) {
        self.threads.lock().ended = true;
        self.stir.notify_all();
    }
}

/// A thread's turn to wait for requests.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    held: bool,
}

impl Turn<'_> {
    /// Whether nobody else waits.
    pub(super) fn is_alone(&self) -> bool {
        self.turns.with_turn.load(SeqCst) <= 1
    }

    /// Sleeps until there is more to do, unless nobody else waits, or may be busy for longer.
    pub(super) fn rest(&mut self) {
        let busy = self.turns.at_work.load(SeqCst) > 0;
        if !busy && self.turns.leave_to_others() {
            self.held = false;
            self.turns.wait();
            self.held = true;
        }
    }

    /// Works on a request. If it is `long`, others wait for requests meanwhile.
    pub(super) fn work<T>(&mut self, long: bool, work: impl FnOnce() -> T) -> T {
        if long {
            self.turns.leave();
            self.held = false;
            let worked = work();
            self.turns.wait();
            self.held = true;
            return worked;
        }
        self.turns.at_work.fetch_add(1, SeqCst);
        if !self.turns.watched.load(SeqCst) {
            // (Under the lock: the watch may be about to wait.)
            let _threads = self.turns.threads.lock();
            self.turns.stir.notify_all();
        }
        let worked = work();
        self.turns.done.fetch_add(1, SeqCst);
        self.turns.at_work.fetch_sub(1, SeqCst);
        worked
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.held {
            self.turns.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn until_asleep(turns: &Turns, many: usize) {
        while turns.threads.lock().asleep < many {
            thread::yield_now();
        }
    }

    #[test]
    fn one_waits_until_there_is_more_to_do_or_its_request_is_long() {
        let turns = Turns::default();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let mut first = turns.take();
            for _ in 0..2 {
                let (turns, tell) = (&turns, tell.clone());
                scope.spawn(move || {
                    let mut turn = turns.take();
                    tell.send(turn.is_alone()).unwrap();
                    turn.work(false, || ());
                });
            }
            until_asleep(&turns, 2);
            first.work(false, || ());
            first.rest();
            assert!(first.is_alone() && told.try_recv().is_err(), "it keeps up");
            // The other one has the turn as long as the first one is busy; then the last one.
            let alone = first.work(true, || told.recv_timeout(LIMIT).unwrap());
            assert!(alone);
            drop(first);
            assert!(told.recv_timeout(LIMIT).unwrap());
        });
        assert_eq!(turns.with_turn.load(Relaxed), 0);
    }

    #[test]
    fn nobody_rests_while_another_one_is_at_work() {
        let turns = Turns::default();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let mut first = turns.take();
            scope.spawn(|| {
                let mut second = turns.take();
                second.rest();
                tell.send(()).unwrap();
            });
            until_asleep(&turns, 1);
            first.work(false, || {
                turns.more();
                told.recv_timeout(LIMIT).unwrap();
            });
        });
    }

    #[test]
    fn who_has_more_to_do_gets_help_and_who_has_little_lets_it_go() {
        let turns = Turns::default();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let mut first = turns.take();
            scope.spawn(|| {
                let mut second = turns.take();
                tell.send(()).unwrap();
                // (Until the first one leaves.)
                second.rest();
                tell.send(()).unwrap();
            });
            until_asleep(&turns, 1);
            turns.more();
            told.recv_timeout(LIMIT).unwrap();
            until_asleep(&turns, 1);
            assert!(first.is_alone());
            first.rest();
            assert!(told.try_recv().is_err());
            drop(first);
            told.recv_timeout(LIMIT).unwrap();
        });
    }

    #[test]
    fn who_is_stuck_is_found_by_the_watch_also_when_it_was_asleep() {
        let turns = Turns::default();
        thread::scope(|scope| {
            scope.spawn(|| turns.watch());
            for round in 0..2 {
                let mut first = turns.take();
                let (tell, told) = mpsc::channel();
                scope.spawn({
                    let turns = &turns;
                    move || {
                        let _turn = turns.take();
                        tell.send(()).unwrap();
                    }
                });
                first.work(false, || told.recv_timeout(LIMIT)).unwrap();
                drop(first);
                if round == 0 {
                    let end = std::time::Instant::now() + LIMIT;
                    while turns.watched.load(SeqCst) && std::time::Instant::now() < end {
                        thread::sleep(STUCK);
                    }
                    assert!(!turns.watched.load(SeqCst), "it sleeps while there is nothing to do");
                }
            }
            turns.end();
        });
    }
}
