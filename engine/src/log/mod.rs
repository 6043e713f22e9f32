//! Logs of inodes: six inline lines, then log pages; the end is where the seals end.

mod append;
mod walk;

pub(crate) use append::{INLINE, Log, LogPage, Placed, Plan, Tail};
pub(crate) use walk::{Found, Holds, Step, Walk, leads_on, read_death, read_identity};
