//! Kill storm: a server killed at any moment, under a load of several processes, loses nothing
//! that was acknowledged; the operation in flight is there wholly or not at all; the pool is
//! clean after each kill, before and after recovery. Some kills hit the recovery itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::load::{Worker, join, worker_main};
use common::random::{Random, seed};
use common::server::Server;
use common::{Scratch, fsck};

const WORKERS: u64 = 4;
const KILLS: u64 = 200;

#[test]
#[ignore = "a process of the load, started by the tests"]
fn load_worker() {
    worker_main();
}

#[test]
fn every_acknowledged_operation_survives_any_kill() {
    let kills = std::env::var("LODE_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let seed = seed("kill storm");
    let mut random = Random::new(seed);
    let scratch = Scratch::new();
    let (mount, notes) = (scratch.dir("mnt"), scratch.dir("notes"));
    let (pool, log) = (scratch.pool("pool", "128M"), scratch.path("server.log"));
    let (started, stop) = (Instant::now(), scratch.path("stop"));
    let workers: Vec<Worker> =
        (0..WORKERS).map(|number| Worker::new(number, &mount, &notes)).collect();
    let mut server = Server::mount(&pool, &mount, &log);
    workers.iter().for_each(Worker::prepare);
    let (mut killed, mut in_recovery, mut recovery) = (0, 0, Duration::ZERO);
    let mut acknowledged = 0;
    while killed < kills {
        let running: Vec<_> =
            workers.iter().map(|worker| worker.start(random.next(), &stop)).collect();
        // Start-up of the load takes a few milliseconds; then any moment.
        let scale = 10 + random.below(9);
        std::thread::sleep(Duration::from_micros(5_000 + random.below(1 << scale)));
        server.kill();
        killed += 1;
        join(running, Duration::from_secs(30));
        let checked = fsck(&pool);
        if checked.code != 0 {
            let kept = keep(&pool, seed);
            panic!("seed {seed}, kill {killed}, {kept}: {}{}", checked.out, checked.err);
        }
        if random.below(4) == 0 {
            let hasty = Server::start(&pool, &mount, &log);
            std::thread::sleep(Duration::from_micros(random.below(30_000)));
            hasty.kill();
            killed += 1;
            in_recovery += 1;
        }
        let began = Instant::now();
        server = Server::mount(&pool, &mount, &log);
        recovery = recovery.max(began.elapsed());
        acknowledged = 0;
        for worker in &workers {
            acknowledged +=
                worker.judge().unwrap_or_else(|why| panic!("seed {seed}, kill {killed}: {why}"));
        }
    }
    server.umount();
    fsck(&pool).expect(0);
    println!(
        "kill storm: {killed} kills ({in_recovery} of them while mounting), {acknowledged} operations \
         acknowledged and none lost, slowest mount after a kill {recovery:?}, {:.0?} in all",
        started.elapsed()
    );
    assert!(acknowledged > killed * 10, "the load did next to nothing: {acknowledged} operations");
}

/// Keeps the pool as a kill left it, for whoever looks for the cause.
fn keep(pool: &Path, seed: u64) -> String {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kill-storm-{seed}.pool"));
    match std::fs::copy(pool, &kept) {
        Ok(_) => format!("kept as {}", kept.display()),
        Err(error) => format!("not kept: {error}"),
    }
}
