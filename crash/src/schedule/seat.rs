//! The seat of this OS thread, if it has one.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;

use super::outcome::Event;
use super::table::Table;

#[derive(Debug)]
struct Seat {
    table: Arc<Table>,
    number: usize,
}

std::thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

/// A switch point: another thread of the run may go on here first. Does nothing in a thread
/// that is not scheduled. No lock but scheduled ones may be held.
#[track_caller]
pub fn point() {
    let at = Location::caller();
    with(|table, me| table.point(me, Event::Point, at));
}

/// The number of the logical thread that this is, if it is one.
pub fn current() -> Option<usize> {
    SEAT.with_borrow(|seat| seat.as_ref().map(|seat| seat.number))
}

/// Sits down at a table.
pub(super) fn sit(table: &Arc<Table>, number: usize) {
    SEAT.set(Some(Seat { table: table.clone(), number }));
}

/// Calls `with` if this thread sits at a table.
pub(super) fn with<R>(with: impl FnOnce(&Table, usize) -> R) -> Option<R> {
    SEAT.with_borrow(|seat| seat.as_ref().map(|seat| with(&seat.table, seat.number)))
}
