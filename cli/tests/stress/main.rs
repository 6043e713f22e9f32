//! Stress: for a minute, many processes do everything at once to one mount: random operations in
//! trees that are modelled, races for the same names, and the stressors of stress-ng and dbench. All
//! ends as the models say, `fsck` finds nothing, and the next mount shows the same.
//! LODE_STRESS_SECONDS says how long.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod modelled;
mod others;
mod races;
mod worker;

use std::path::Path;
use std::time::Duration;

use common::random::seed;
use common::server::Server;
use common::{Scratch, lode, text};
use lode_testkit::real::{Can, Directory, Tree, difference, real_tree};
use others::Others;
use races::Report;
use worker::Worker;

const WORKERS: u64 = 4;
const SECONDS: u64 = 40;

#[test]
#[ignore = "a process of the stress, started by the test"]
fn stress_worker() {
    worker::main();
}

#[test]
fn many_processes_at_once_end_as_their_models_say() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: owners and devices need root");
        return;
    }
    let seconds =
        std::env::var("LODE_STRESS_SECONDS").map_or(SECONDS, |text| text.parse().unwrap());
    let time = Duration::from_secs(seconds);
    let seed = seed("stress");
    let scratch = Scratch::new();
    // Some stressors take the more space the longer they run.
    let size = if seconds > 2 * SECONDS { "2G" } else { "1G" };
    let (pool, dir, log) = (scratch.pool("pool", size), scratch.dir("mnt"), scratch.path("log"));
    let server = Server::mount(&pool, &dir, &log);
    races::prepare(&dir);
    let mut others = Others::new(&dir, &scratch.dir("logs"));
    others.dbench(time);
    let mut workers: Vec<Worker> =
        (0..WORKERS).map(|number| Worker::start(number, &dir, seed, time)).collect();
    // For half of the time: beside its dozens of processes the others get next to nothing done.
    std::thread::sleep(time / 2);
    others.stress_ng(time / 2);
    let reports: Vec<Report> = workers.iter_mut().map(Worker::report).collect();
    let done = others.wait(time * 3 + Duration::from_secs(60));
    races::judge(&dir, &reports);
    let before = tree(&dir);
    server.umount();
    lode(&["fsck", "-f", text(&pool)]).expect(0);
    let server = Server::mount(&pool, &dir, &log);
    assert_eq!(difference(&before, &tree(&dir)), None, "seed {seed}: after a clean unmount");
    races::judge(&dir, &reports);
    workers.into_iter().for_each(Worker::again);
    server.umount();
    lode(&["fsck", "-f", text(&pool)]).expect(0);
    let total = |what: fn(&Report) -> u64| reports.iter().map(what).sum::<u64>();
    println!(
        "stress: {seconds} s, {WORKERS} processes: {} modelled operations, {} appends, {} locks taken, \
         {} races for names; beside them {done}; {} paths left, all as they should be",
        total(|of| of.modelled),
        total(|of| of.appended),
        total(|of| of.locked),
        total(|of| of.raced),
        before.len()
    );
    let enough = |of: &Report| of.modelled.min(of.raced) > 5 * seconds;
    assert!(reports.iter().all(enough), "next to nothing was done: {reports:?}");
}

fn tree(dir: &Path) -> Tree {
    let can = Can { zero_range: true, mapped_writes: true };
    real_tree(&Directory::new(dir.to_owned(), can)).unwrap()
}
