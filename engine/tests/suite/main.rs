//! Tests of the engine, in one program: each is compiled with all of the engine. Apart from it are those that
//! measure times (`measures`), and those with an allocator of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access_times;
mod bad_input;
mod bad_list;
mod bad_parts;
mod budget;
mod collection;
mod equals_model;
mod failing_fence;
mod forged;
mod full_in_place;
mod full_level;
mod full_maps;
mod full_pool;
mod giant_pages;
mod independent_reader;
mod index_limit;
mod inline_logs;
mod kernel_ready;
mod levels;
mod log_damage;
mod losses;
mod lost_tables;
mod maps;
mod media_errors;
mod nameless;
mod receiving;
mod rotating_snapshots;
mod salvage;
mod scrub_beside;
mod scrub_full;
mod scrub_seen;
mod scrub_snapshots;
mod second_copies;
mod seen_logs;
mod snapshot_damage;
mod snapshots;
mod snapshots_of_full_maps;
mod threads;
mod twins;
mod two_looks;
mod uses;
mod watching;
mod watching_waits_for_nobody;
mod xattrs;
