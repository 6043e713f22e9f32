//! Every operation and every shape of its arguments, alone.

mod data;
mod lent;
mod list;
mod lives;
mod logs;
mod maps;
mod names;
mod renames;
mod sizes;
mod xattrs;

pub use list::seq1;
