//! A pool, mounted: what programs see of it through the kernel.
//!
//! Each test mounts a pool of its own, served by another process (this program again,
//! as `server_process`), so that servers can be stopped and killed.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod birth;
mod cache;
mod control;
mod data;
mod full;
mod handles;
mod life;
mod listing;
mod locks;
mod mapping;
mod mappings;
mod names;
mod one_file;
mod rights;
mod rings;
mod rollback;
mod snapshots;
mod special;
mod support;
mod tmpfile;
mod tour;
mod turns;
mod views;
mod xattrs;

/// Not a test: the process that serves a test's mount.
#[test]
#[ignore = "the server of the other tests"]
fn server_process() {
    support::serve();
}
