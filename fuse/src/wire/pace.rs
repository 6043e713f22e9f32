//! How a thread that may take the next request waits for it.
//!
//! A thread that sleeps has to be woken, and a processor that has nothing else to do with it: that takes as long as all else
//! of a small request, and who waits for its answer waits for that. So a thread that is the only one to wait
//! looks for the next request for a moment before it goes to sleep. Where that is in vain (there is little to do, or whoever would ask
//! waits for this processor), it looks more and more rarely: at most one wait in [`RAREST`] is longer by a moment.

use std::io;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use super::channel::Came;
use super::request::Operation;

/// How long it looks. (Who has its answer asks for the next thing, where it does, within some microseconds.)
const LOOK: Duration = Duration::from_micros(20);
/// Waits without a look at most, between two with one.
const RAREST: u32 = 1023;
/// So many requests one after the other that were there already are more than this thread keeps up with. (Of one program
/// some are: it may ask again while this thread is still on its way to look, and what it closes it does not wait for.)
const MUCH: u32 = 8;
/// What takes longer than that is not to be waited for by those who ask for something else.
const SLOW: Duration = Duration::from_micros(200);
/// To move so many bytes takes longer than to be woken.
const MUCH_BYTES: usize = 64 << 10;
/// So many requests that were not, and two more for each that was, are less than would keep several busy.
const LITTLE: u32 = 64;

/// What there is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// As much as before.
    Same,
    /// More than one thread can do.
    Much,
    /// Less than several need.
    Little,
}

/// What a thread has seen of its waits so far.
#[derive(Debug)]
pub(super) struct Pace {
    /// There is another processor, on which somebody could ask while this one looks.
    looks: bool,
    /// Waits that are not to begin with a look.
    skip: u32,
    /// As many as that, after the next look in vain and one more.
    vain: u32,
    /// The last request moved so much that to be where the bytes are is better than to be awake.
    moved_much: bool,
    /// To answer the last request took long: whoever asked meanwhile has waited as long.
    was_slow: bool,
    /// Requests that were there, since the last one that was not.
    at_once: u32,
    /// Requests that were not, less two for each that was; none at least.
    waited: u32,
}

impl Pace {
    /// Of a thread that has not waited yet.
    pub(super) fn new() -> Self {
        Self::of(available_parallelism().map_or(1, usize::from))
    }

    fn of(processors: usize) -> Self {
        Self {
            looks: processors > 1,
            skip: 0,
            vain: 0,
            moved_much: false,
            was_slow: false,
            at_once: 0,
            waited: 0,
        }
    }

    /// Takes note of what was answered, and how long that took.
    pub(super) fn answered(&mut self, operation: Option<&Operation<'_>>, took: Duration) {
        self.was_slow = took > SLOW;
        self.moved_much = operation.map_or(0, Operation::bytes) > MUCH_BYTES;
    }

    /// Waits for a moment, if that is worth it, where it `looks` at all; says what there is to do, and what came. What comes
    /// later is to be waited for asleep.
    ///
    /// # Errors
    /// Those of `now`, which takes what is there.
    pub(super) fn wait(
        &mut self,
        looks: bool,
        now: &mut dyn FnMut() -> io::Result<Came>,
    ) -> io::Result<(Load, Came)> {
        let mut came = now()?;
        if came != Came::Nothing {
            self.waited = self.waited.saturating_sub(2);
            self.at_once += if self.was_slow { MUCH } else { 1 };
            if self.at_once < MUCH {
                return Ok((Load::Same, came));
            }
            self.at_once = 0;
            return Ok((Load::Much, came));
        }
        self.at_once = 0;
        self.waited += 1;
        if looks && self.looks && !self.moved_much {
            came = self.look(now)?;
        }
        if self.waited < LITTLE {
            return Ok((Load::Same, came));
        }
        self.waited = 0;
        Ok((Load::Little, came))
    }

    fn look(&mut self, now: &mut dyn FnMut() -> io::Result<Came>) -> io::Result<Came> {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(Came::Nothing);
        }
        let begun = Instant::now();
        while begun.elapsed() < LOOK {
            let came = now()?;
            if came != Came::Nothing {
                self.vain /= 4;
                return Ok(came);
            }
        }
        self.vain = (2 * self.vain + 1).min(RAREST);
        self.skip = self.vain;
        Ok(Came::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits of which each finds a request after so many looks; says how often was looked, beyond the first time.
    fn looked(pace: &mut Pace, alone: bool, after: u32) -> u32 {
        let mut looks = 0;
        let mut now = || {
            looks += 1;
            Ok(if looks > after { Came::Request } else { Came::Nothing })
        };
        pace.wait(alone, &mut now).unwrap();
        looks - 1
    }

    #[test]
    fn who_asks_again_within_a_moment_is_looked_for_each_time() {
        let mut pace = Pace::of(2);
        let looked = (0..1000).filter(|_| looked(&mut pace, true, 3) == 3).count();
        // (Somebody else may get the processor in the middle of a look.)
        assert!(looked > 900, "{looked}");
    }

    #[test]
    fn what_was_in_vain_is_done_rarely_and_is_worth_trying_again() {
        let mut pace = Pace::of(2);
        let all = 20_000;
        let tried = (0..all).filter(|_| looked(&mut pace, true, u32::MAX) > 0).count();
        assert!((10..40).contains(&tried), "{tried} of {all}");
        let until = (0..all).position(|_| looked(&mut pace, true, 3) == 3).unwrap();
        assert!(until <= RAREST as usize, "after {until}");
        let again = (0..all).filter(|_| looked(&mut pace, true, 3) == 3).count();
        assert!(again > all * 9 / 10, "{again} of {all}");
    }

    #[test]
    fn nobody_looks_beside_others_or_on_the_only_processor() {
        let mut pace = Pace::of(2);
        assert!((0..100).all(|_| looked(&mut pace, false, 3) == 0));
        let mut pace = Pace::of(1);
        assert!((0..100).all(|_| looked(&mut pace, true, 3) == 0));
    }

    #[test]
    fn nobody_looks_behind_what_took_longer_than_to_be_woken() {
        let mut pace = Pace::of(2);
        let read =
            |size| Operation::Read { handle: 0, offset: 0, size, quiet: false, for_map: false };
        for (size, looks) in [(4096, 3), (1 << 20, 0), (64 << 10, 3)] {
            pace.answered(Some(&read(size)), Duration::ZERO);
            let most = (0..10).map(|_| looked(&mut pace, true, 3)).max().unwrap();
            assert_eq!(most, looks, "{size}");
        }
    }

    #[test]
    fn who_asked_while_a_slow_answer_was_made_is_helped_at_once() {
        let mut pace = Pace::of(1);
        let mut wait = |took, ready| {
            pace.answered(None, took);
            pace.wait(true, &mut || Ok(if ready { Came::Request } else { Came::Nothing }))
                .unwrap()
                .0
        };
        assert_eq!((wait(SLOW, true), wait(2 * SLOW, false)), (Load::Same, Load::Same));
        assert_eq!((wait(2 * SLOW, true), wait(SLOW, true)), (Load::Much, Load::Same));
    }

    #[test]
    fn a_queue_that_does_not_get_empty_is_much_and_one_that_always_is_little() {
        let told = |of: u32, there: u32, times: u32| {
            let mut pace = Pace::of(1);
            let came = |at| if at % of < there { Came::Request } else { Came::Nothing };
            let mut all = (0..times).map(|at| pace.wait(true, &mut || Ok(came(at))).unwrap().0);
            all.find(|load| *load != Load::Same)
        };
        assert_eq!((told(1, 1, MUCH - 1), told(1, 1, MUCH)), (None, Some(Load::Much)));
        assert_eq!(
            (told(MUCH + 1, MUCH, 1000), told(MUCH, MUCH - 1, 1000)),
            (Some(Load::Much), None)
        );
        assert_eq!((told(1, 0, LITTLE - 1), told(1, 0, LITTLE)), (None, Some(Load::Little)));
        assert_eq!((told(2, 1, 1000), told(4, 1, 1000)), (None, Some(Load::Little)));
    }
}
