//! Tests of the command, in one program. Apart from it are those that measure, and those whose load is processes of this
//! program: they take all processors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod bad_inputs;
mod bad_memory;
mod block;
mod block_raw;
mod block_serve;
mod crash_command;
mod crash_corrupt;
mod damage;
mod emulation;
mod exit_codes;
mod full_pool;
mod generate;
mod heap;
mod kept;
mod label_and_resize;
mod lost_in_snapshot;
mod making_pools;
mod messages;
mod mount_helper;
mod mount_life;
mod mount_options;
mod periodic_scrub;
mod scrub;
mod send;
mod service;
mod snapshot;
mod stuck_server;
mod told_by_the_system;
mod two_copies;
mod watching;
