//! What POSIX and Linux ask of a file system and the engine leaves to its users: the mount and
//! the library do it alike.
//!
//! * [`acl`]: lists of access rights; [`xattrs`]: the attributes that they come as
//! * [`birth`]: mode, group and lists of a new inode; [`rights`]: those that a change takes off
//! * [`mod@write`]: writes where space is short
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod acl;
pub mod birth;
pub mod rights;
pub mod write;
pub mod xattrs;
