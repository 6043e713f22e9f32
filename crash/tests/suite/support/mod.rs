//! What tests of the explorer share.

pub mod sequences;
