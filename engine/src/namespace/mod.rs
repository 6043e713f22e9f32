//! Names: making, finding, linking, moving and removing inodes.

mod create;
mod list;
mod lookup;
mod nameless;
mod remove;
mod rename;
