//! Names: making, finding, linking, moving and removing inodes.

mod create;
mod list;
mod lookup;
mod remove;
mod rename;
