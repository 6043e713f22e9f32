//! The server's memory does not grow: under a mixed load in a steady state its anonymous memory at
//! the end is at most 1.05 times what it was at half time. LODE_MEMORY_SECONDS says how long.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::random::{Random, seed};
use common::server::Server;
use common::{Scratch, fsck};

const SECONDS: u64 = 80;
const THREADS: u64 = 3;
const DIRS: u64 = 20;
/// Names that there may be in a directory: about half of them are there at any time.
const NAMES: u64 = 200;
/// Large files that each thread writes and reads at first.
const LARGE: u64 = 200;
const APPENDED_MAX: u64 = 64 << 10;
/// A sample is the median of several, taken over this part of the time.
const SAMPLES: u32 = 9;
const SAMPLED_PART: u32 = 20;
const GROWTH_MAX: f64 = 1.05;

#[test]
fn the_servers_memory_does_not_grow_under_a_long_mixed_load() {
    let seconds =
        std::env::var("LODE_MEMORY_SECONDS").map_or(SECONDS, |text| text.parse().unwrap());
    let time = Duration::from_secs(seconds);
    let seed = seed("memory");
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "256M"), scratch.dir("mnt"));
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    (0..DIRS).for_each(|number| fs::create_dir(dir.join(number.to_string())).unwrap());
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let (half, end) = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (dir, stop, done) = (&dir, &stop, &done);
            scope.spawn(move || {
                large_requests(dir, thread);
                load(dir, seed ^ thread << 48, stop, done);
            });
        }
        // Else a failure here would be a test that does not end.
        let _stopped = StopAtEnd(&stop);
        // What takes memory once has taken it by then: buffers, tables, indexes of all directories.
        let half = sample(server.pid(), began + time / 2, time / SAMPLED_PART);
        let end = sample(server.pid(), began + time - time / SAMPLED_PART, time / SAMPLED_PART);
        (half, end)
    });
    let (operations, growth) = (done.load(Relaxed), end as f64 / half as f64);
    server.umount();
    fsck(&pool).expect(0);
    println!(
        "memory: {operations} operations in {seconds} s; anonymous memory of the server {half} KiB at \
         half time, {end} KiB at the end: {growth:.3} times as much"
    );
    assert!(operations > 100 * seconds, "the load did next to nothing");
    assert!(growth <= GROWTH_MAX, "the server grew from {half} to {end} KiB");
}

/// Sets a flag when it is dropped, in a panic too.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The median of the anonymous memory of a process, from `from` on, in KiB.
fn sample(pid: u32, from: Instant, over: Duration) -> u64 {
    std::thread::sleep(from.saturating_duration_since(Instant::now()));
    let mut samples: Vec<u64> = (0..SAMPLES)
        .map(|_| {
            std::thread::sleep(over / SAMPLES);
            anonymous_kib(pid)
        })
        .collect();
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn anonymous_kib(pid: u32) -> u64 {
    let all = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The largest requests there are, so that each thread of the server has its buffers: else one
/// might get them late, which is no growth.
fn large_requests(dir: &Path, thread: u64) {
    let large = dir.join(format!("large-{thread}"));
    for _ in 0..LARGE {
        fs::write(&large, vec![6; 1 << 20]).unwrap();
        assert_eq!(fs::read(&large).unwrap().len(), 1 << 20);
    }
    fs::remove_file(large).unwrap();
}

/// Works until it is told to stop. Others work on the same names.
fn load(dir: &Path, seed: u64, stop: &AtomicBool, done: &AtomicU64) {
    let mut random = Random::new(seed);
    while !stop.load(Relaxed) {
        let outcome = one(dir, &mut random);
        done.fetch_add(1, Relaxed);
        if let Err(error) = outcome {
            let gone = [ErrorKind::NotFound, ErrorKind::AlreadyExists].contains(&error.kind());
            // ENODATA: an attribute that is not there.
            let raced = gone || error.raw_os_error() == Some(61);
            assert!(raced, "seed {seed}: {error}");
        }
    }
}

fn one(dir: &Path, random: &mut Random) -> io::Result<()> {
    let name = name(dir, random);
    match random.below(100) {
        0..25 => {
            let len = 1 << random.below(14);
            fs::write(&name, vec![7; len])
        }
        25..48 => fs::remove_file(&name),
        48..60 => fs::rename(&name, self::name(dir, random)),
        60..68 => {
            let mut file = File::options().append(true).open(&name)?;
            if file.metadata()?.len() > APPENDED_MAX {
                file.set_len(0)
            } else {
                file.write_all(&[8; 3000])
            }
        }
        68..74 => {
            File::options().write(true).open(&name)?.write_all_at(&[9; 5000], random.below(20_000))
        }
        74..78 => File::options().write(true).open(&name)?.set_len(random.below(30_000)),
        78..82 => fs::read(&name).map(drop),
        82..85 => fs::read_dir(name.parent().unwrap())?.try_for_each(|entry| entry.map(drop)),
        85..91 => {
            let value = vec![5; random.below(600) as usize];
            Ok(rustix::fs::setxattr(&name, "user.a", &value, rustix::fs::XattrFlags::empty())?)
        }
        91..93 => Ok(rustix::fs::removexattr(&name, "user.a")?),
        93..96 => {
            let link = self::name(dir, random);
            fs::hard_link(&name, &link)?;
            fs::remove_file(link)
        }
        _ => {
            // A file that nobody will find again, with all that belongs to it.
            let name = dir.join(format!("once-{}", random.next()));
            fs::write(&name, [1; 100])?;
            fs::remove_file(name)
        }
    }
}

fn name(dir: &Path, random: &mut Random) -> PathBuf {
    dir.join(format!("{}/file-{}", random.below(DIRS), random.below(NAMES)))
}
