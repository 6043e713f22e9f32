//! Checksums and parity of file data, at level `full` (NOVA-Fortis, 4.3).
//!
//! What this module guarantees: bytes of a file that a load gives to anybody are those that were stored, or the
//! load is an error.

mod at_rest;
mod crcs;
mod exempt;
mod in_place;
mod keep;
mod repair;
mod verify;

pub(crate) use at_rest::PageFound;
pub(crate) use crcs::Crcs;
pub(crate) use keep::Unstored;
pub(crate) use repair::Repairs;
pub(crate) use verify::Whose;
