//! Block devices: what the paper on PMBD draws, for this machine (`lode bench block`).
//!
//! * [`cell`]: what is done: reads and writes, in order and at random, small and large, one and many at a time
//! * [`subject`]: to what: a whole region in every way to protect and to store, volumes, and what physics asks for
//! * `same`: bare reads of the memory that a device has
//! * `measure`: the loop. [`slower`]: programs on slower memory. [`windows`]: how long a region is open, what page tables take
//! * [`strays`]: what a wrong pointer does meanwhile
//! * [`remote`]: by NBD, beside nbdkit
//! * [`figures`]: which subjects belong to which figure; [`targets`]: what must hold; [`run`]: all of it

pub mod cell;
pub mod figures;
mod measure;
mod pages;
pub mod remote;
pub mod run;
mod same;
pub mod slower;
pub mod strays;
pub mod subject;
mod targets;
pub mod windows;

pub use run::{Settings, run, subject_ids};
