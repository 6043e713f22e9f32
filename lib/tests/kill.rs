//! A process that works on a pool is killed at any moment: what it had said was done is there at the
//! next opening, what it was doing is there wholly or not at all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::tree::{difference, of_pool};
use common::{PoolFile, pool};
use lode::{OpenOptions, Pool, RenameMode};
use lode_testkit::rng::Rng;

const VARIABLE: &str = "LODE_TEST_KILLED";
const THREADS: u64 = 2;
const KILLS: u64 = 15;

/// Step `number` of a thread in its directory: one call that changes something, or is refused. Which
/// one, the number decides.
fn step(pool: &Pool, dir: &str, number: u64) {
    let mut bits = Rng::new(number);
    let mut name = || format!("{dir}/{}", bits.below(8));
    let (one, other) = (name(), name());
    let (offset, len) = (bits.below(30_000), 1 + bits.below(20_000));
    let data: Vec<u8> = (0..len).map(|at| (number + at / 64) as u8).collect();
    let file = |path: &str| pool.open_with(path, OpenOptions::new().write(true));
    // Refusals are the same every time: they need no look.
    let _ = match bits.below(12) {
        0 | 1 => pool.mknod(&one, 0o644, 0),
        2 => file(&one).and_then(|file| file.append(&data).map(drop)),
        3 | 4 => file(&one).and_then(|file| file.write_all_at(&data, offset)),
        5 => pool.rename(&one, &other),
        6 => pool.rename_with(&one, &other, RenameMode::Exchange),
        7 => pool.remove_file(&one).or_else(|_| pool.remove_dir(&one)),
        8 => pool.create_dir(&one),
        9 => pool.hard_link(&one, &other).or_else(|_| pool.symlink(&other, &one)),
        10 => file(&one).and_then(|file| file.set_len(offset)),
        _ => pool.set_permissions(&one, PermissionsExt::from_mode(len as u32 & 0o777)),
    };
}

/// What there is after so many steps.
fn expected(dir: &str, steps: u64) -> common::tree::Tree {
    let pool = pool(64);
    pool.create_dir(dir).unwrap();
    (0..steps).for_each(|number| step(&pool, dir, number));
    of_pool(&pool, Path::new(dir))
}

/// Not a test of its own: what is killed.
#[test]
#[ignore = "started by the others"]
fn worker() {
    let Ok(words) = std::env::var(VARIABLE) else { return };
    let words: Vec<&str> = words.split('\n').collect();
    let pool = Pool::open(words[0]).unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (pool, words) = (&pool, &words);
            scope.spawn(move || {
                let dir = format!("t{number}");
                let path = format!("{}{number}", words[1]);
                let mut notes = fs::OpenOptions::new().append(true).open(path).unwrap();
                let first: u64 = words[2 + number as usize].parse().unwrap();
                for at in first.. {
                    step(pool, &dir, at);
                    // From here on it was said to be done.
                    notes.write_all(b"x").unwrap();
                }
            });
        }
    });
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_was_said_to_be_done_is_there_after_a_kill() {
    let file = PoolFile::new(64);
    let notes = file.dir.path().join("notes").to_str().unwrap().to_owned();
    let mut done = [0; THREADS as usize];
    let opened = file.open();
    for number in 0..THREADS {
        opened.create_dir(format!("t{number}")).unwrap();
        fs::write(format!("{notes}{number}"), "").unwrap();
    }
    opened.close().unwrap();
    let noted = |number: u64| fs::metadata(format!("{notes}{number}")).unwrap().len();
    let mut bits = Rng::new(1);
    for kill in 0..KILLS {
        let before: Vec<u64> = (0..THREADS).map(noted).collect();
        let firsts = done.map(|steps| steps.to_string()).join("\n");
        let worker = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker", "--ignored", "--nocapture"])
            .env(VARIABLE, [file.path.to_str().unwrap(), &notes, &firsts].join("\n"))
            .stdout(Stdio::null())
            .spawn();
        let worker = Killed(worker.unwrap());
        let end = Instant::now() + Duration::from_secs(30);
        while (0..THREADS).any(|number| noted(number) == before[number as usize]) {
            assert!(Instant::now() < end, "the worker does nothing");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(bits.below(40_000)));
        drop(worker);

        let pool = file.open();
        assert!(!pool.opening().unwrap().clean, "it was killed");
        for number in 0..THREADS {
            let at = number as usize;
            let dir = format!("t{number}");
            // One may have been done and not been said.
            let said = done[at] + noted(number) - before[at];
            let found = of_pool(&pool, Path::new(&dir));
            let differs = difference(&expected(&dir, said), &found);
            let more = difference(&expected(&dir, said + 1), &found);
            assert!(
                differs.is_none() || more.is_none(),
                "kill {kill}, thread {number}, after {said} steps: {differs:?}; or {more:?}"
            );
            done[at] = if differs.is_none() { said } else { said + 1 };
        }
        pool.close().unwrap();
    }
    assert!(done.iter().all(|steps| *steps > KILLS), "{done:?}");
}
