//! Frozen copies: the server stopped at any moment, the pool's file copied, the server continued:
//! each copy, opened as after a crash, has every operation acknowledged before the stop.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::time::Duration;

use common::load::{Worker, join, worker_main};
use common::random::{Random, seed};
use common::server::Server;
use common::{Scratch, fsck};

const WORKERS: u64 = 3;
const COPIES: u64 = 30;

#[test]
#[ignore = "a process of the load, started by the tests"]
fn load_worker() {
    worker_main();
}

#[test]
fn every_copy_of_a_frozen_pool_recovers_what_was_acknowledged() {
    let copies = std::env::var("LODE_COPIES").map_or(COPIES, |text| text.parse().unwrap());
    let seed = seed("frozen copies");
    let mut random = Random::new(seed);
    let scratch = Scratch::new();
    let (mount, notes) = (scratch.dir("mnt"), scratch.dir("notes"));
    let (copy_mount, copy_notes) = (scratch.dir("copy-mnt"), scratch.dir("copy-notes"));
    let (pool, copy) = (scratch.pool("pool", "64M"), scratch.path("copy"));
    let (stop, log) = (scratch.path("stop"), scratch.path("server.log"));
    let workers: Vec<Worker> =
        (0..WORKERS).map(|number| Worker::new(number, &mount, &notes)).collect();
    let server = Server::mount(&pool, &mount, &log);
    workers.iter().for_each(Worker::prepare);
    let running: Vec<_> = workers.iter().map(|worker| worker.start(random.next(), &stop)).collect();
    let mut acknowledged = 0;
    for number in 1..=copies {
        std::thread::sleep(Duration::from_micros(20_000 + random.below(150_000)));
        server.freeze();
        fs::copy(&pool, &copy).unwrap();
        for worker in &workers {
            let name = worker.journal.file_name().unwrap();
            fs::copy(&worker.journal, copy_notes.join(name)).unwrap();
        }
        server.thaw();
        let checked = fsck(&copy);
        assert_eq!(checked.code, 0, "seed {seed}, copy {number}: {}{}", checked.out, checked.err);
        let copy_server = Server::mount(&copy, &copy_mount, &log);
        acknowledged = 0;
        for worker in &workers {
            let copied = Worker::new(worker.number, &copy_mount, &copy_notes);
            acknowledged +=
                copied.judge().unwrap_or_else(|why| panic!("seed {seed}, copy {number}: {why}"));
        }
        copy_server.umount();
        fsck(&copy).expect(0);
    }
    fs::write(&stop, "").unwrap();
    join(running, Duration::from_secs(30));
    for worker in &workers {
        worker.judge().unwrap_or_else(|why| panic!("seed {seed}, the pool itself: {why}"));
    }
    server.umount();
    fsck(&pool).expect(0);
    println!(
        "frozen copies: {copies} copies, the last one of {acknowledged} acknowledged operations, all there"
    );
    assert!(acknowledged > copies * 10, "the load did next to nothing: {acknowledged} operations");
}

#[test]
fn load_and_judge_agree_on_an_ordinary_directory() {
    let scratch = Scratch::new();
    let (place, notes, stop) = (scratch.dir("plain"), scratch.dir("notes"), scratch.path("stop"));
    let workers: Vec<Worker> =
        (0..WORKERS).map(|number| Worker::new(number, &place, &notes)).collect();
    workers.iter().for_each(Worker::prepare);
    let running = workers.iter().map(|worker| worker.start(7 + worker.number, &stop));
    let running: Vec<_> = running.collect();
    std::thread::sleep(Duration::from_millis(300));
    fs::write(&stop, "").unwrap();
    join(running, Duration::from_secs(30));
    for worker in &workers {
        let acknowledged = worker.judge().unwrap();
        assert!(acknowledged > 100, "{acknowledged} operations in 300 ms");
    }
    // And it sees a single wrong byte. (At the end, a worker may just have no data.)
    let with_data = workers.iter().find_map(|worker| {
        let files = worker.read().state.files;
        let file = files.into_iter().find(|(_, file)| file.size > 0);
        file.map(|(name, file)| (worker, worker.dir.join(name), file.size as usize))
    });
    let (worker, path, size) = with_data.unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[size / 2] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(worker.judge().unwrap_err().contains("wrong from byte"));
}
