//! The thread that makes chunks ready: zeroed before anybody wants them.

use std::time::Duration;

use lode_loan::Method;

use crate::service::{Shared, State};

/// How long it waits where the pool has no chunk to give.
const PAUSE: Duration = Duration::from_secs(1);

/// Methods whose chunks can be anybody's.
const SHARED: [Method; 2] = [Method::Direct, Method::Indirect];

/// Goes on until the service ends.
pub(crate) fn run(shared: &Shared) {
    loop {
        let mut state = shared.state.lock();
        let method = loop {
            if state.ending {
                return;
            }
            match next(&mut state) {
                Some(method) => break method,
                None if state.wishes.are_short() => {
                    shared.changed.wait_for(&mut state, PAUSE);
                }
                None => shared.changed.wait(&mut state),
            }
        };
        drop(state);
        if !make_ready(shared, method) {
            let mut state = shared.state.lock();
            if !state.ending {
                shared.changed.wait_for(&mut state, PAUSE);
            }
        }
    }
}

fn next(state: &mut State) -> Option<Method> {
    if state.wishes.are_short() {
        return None;
    }
    SHARED.into_iter().find(|method| state.ledger.book_ready(*method))
}

/// Makes one chunk ready that was booked; false where there is none.
fn make_ready(shared: &Shared, method: Method) -> bool {
    let taken = shared.sources.source(method).and_then(|source| Ok((source.take()?, source)));
    let Ok((chunk, source)) = taken else {
        let mut state = shared.state.lock();
        state.ledger.unbook(1);
        shared.tell(&state);
        return false;
    };
    source.zero(chunk);
    let mut state = shared.state.lock();
    state.ledger.make_ready(method, chunk, source);
    // Meanwhile it may have become one too many.
    let too_many = if state.ending || state.wishes.are_short() {
        state.ledger.drain_ready()
    } else {
        state.ledger.surplus()
    };
    shared.tell(&state);
    drop(state);
    shared.give(too_many);
    true
}
