//! A process that allocates, links and frees in a kept heap is killed at any moment: the heap that is opened next is whole, and has
//! what was said to be done.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::PoolFile;
use lode::{Content, KeptHeap, Pool, ROOT};
use lode_testkit::rng::Rng;

const VARIABLE: &str = "LODE_TEST_KEPT_KILLED";
const THREADS: u64 = 2;
const KILLS: u64 = 12;
/// Words that a thread has in the root: its list, what it takes out of that, and a large block.
const EACH: u64 = 24;

/// A list has 32 blocks added to it, and as many taken away.
fn takes_away(number: u64) -> bool {
    number % 64 >= 32
}

/// Step `number` of a thread, whose list has the numbers of its steps; and now and then a block of pages comes and goes.
/// (A step that was done and not said to be is found as done.)
fn step(heap: &KeptHeap, head: u64, number: u64) {
    if takes_away(number) {
        let first = heap.word(head).unwrap();
        heap.change(&[(head, heap.word(first).unwrap()), (head + 8, first)]).unwrap();
        heap.free_from(head + 8).unwrap();
    } else {
        let words = [heap.word(head).unwrap(), number].map(u64::to_le_bytes);
        let bytes = 16 + number * 131 % 6000;
        heap.alloc_into(head, bytes, Content::Bytes(words.as_flattened())).unwrap();
    }
    if number.is_multiple_of(5) {
        heap.alloc_into(head + 16, 3_000_000, Content::Stale).unwrap();
        heap.free_from(head + 16).unwrap();
    }
}

/// The numbers in a list after so many steps.
fn expected(steps: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for number in 0..steps {
        match takes_away(number) {
            true => drop(numbers.pop()),
            false => numbers.push(number),
        }
    }
    numbers.reverse();
    numbers
}

/// Not a test of its own: what is killed.
#[test]
#[ignore = "started by the other"]
fn worker() {
    let Ok(words) = std::env::var(VARIABLE) else { return };
    let words: Vec<&str> = words.split('\n').collect();
    let pool = Pool::open(words[0]).unwrap();
    let heap = KeptHeap::open(&pool, "heap").unwrap();
    let root = heap.root().unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (heap, words) = (&heap, &words);
            scope.spawn(move || {
                let path = format!("{}{number}", words[1]);
                let mut notes = fs::OpenOptions::new().append(true).open(path).unwrap();
                let first: u64 = words[2 + number as usize].parse().unwrap();
                for at in first.. {
                    step(heap, root + EACH * number, at);
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

/// Ends what was begun, as a program does that finds words of its own as a crash has left them.
fn mend(heap: &KeptHeap, head: u64) {
    for place in [head + 8, head + 16] {
        if heap.word(place).unwrap() != 0 {
            heap.free_from(place).unwrap();
        }
    }
}

#[test]
fn a_heap_is_whole_after_a_kill() {
    let file = PoolFile::new(64);
    let notes = file.dir.path().join("notes").to_str().unwrap().to_owned();
    let pool = file.open();
    let heap = KeptHeap::open(&pool, "heap").unwrap();
    heap.alloc_into(ROOT, EACH * THREADS, Content::Zeros).unwrap();
    drop(heap);
    pool.close().unwrap();
    (0..THREADS).for_each(|number| fs::write(format!("{notes}{number}"), "").unwrap());
    let noted = |number: u64| fs::metadata(format!("{notes}{number}")).unwrap().len();
    let (mut done, mut bits) = ([0; THREADS as usize], Rng::new(1));
    for kill in 0..KILLS {
        let before: Vec<u64> = (0..THREADS).map(noted).collect();
        let firsts = done.map(|steps: u64| steps.to_string()).join("\n");
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
        let heap = KeptHeap::open(&pool, "heap").unwrap();
        let root = heap.root().unwrap();
        let mut named = BTreeSet::from([root]);
        for number in 0..THREADS {
            let (at, head) = (number as usize, root + EACH * number);
            let left = [8, 16].map(|word| heap.word(head + word).unwrap());
            named.extend(left.into_iter().filter(|block| *block != 0));
            let (mut block, mut found) = (heap.word(head).unwrap(), Vec::new());
            while block != 0 {
                assert!(named.insert(block), "kill {kill}: {block:#x} is in two places");
                found.push(heap.word(block + 8).unwrap());
                block = heap.word(block).unwrap();
            }
            let said = done[at] + noted(number) - before[at];
            // One may have been done and not been said.
            done[at] = if found == expected(said) { said } else { said + 1 };
            assert_eq!(
                found,
                expected(done[at]),
                "kill {kill}, thread {number}, after {said} steps"
            );
        }
        // No block is named by nothing, and none twice.
        let all =
            std::iter::successors(heap.block_behind(0), |last| heap.block_behind(last.offset));
        let all: BTreeSet<u64> = all.map(|block| block.offset).collect();
        assert_eq!(all, named, "kill {kill}");
        (0..THREADS).for_each(|number| mend(&heap, root + EACH * number));
        drop(heap);
        pool.close().unwrap();
    }
    assert!(done.iter().all(|steps| *steps > KILLS), "{done:?}");
}
