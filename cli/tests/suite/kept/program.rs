//! A program that has a kept heap attached, and what it leaves in it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use lode::{Content, KeptHeap};
use lode_testkit::until;
use rustix::process::{Pid, Signal, kill_process};

use super::DEADLINE;
use crate::common::text;

const VARIABLE: &str = "LODE_TEST_KEPT_PROGRAM";

/// A program that has a heap attached. Killed on drop.
pub(super) struct Program {
    pub(super) child: Child,
    says: Receiver<String>,
}

impl Program {
    /// One that does this, once it has said that it has the heap.
    pub(super) fn start(what: &str, socket: &Path, notes: &Path, first: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kept::program::program", "--ignored", "--nocapture", "--quiet"])
            .env(VARIABLE, format!("{what}\n{}\n{}\n{first}", text(socket), text(notes)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, (tell, says)) =
            (BufReader::new(child.stdout.take().unwrap()).lines(), channel());
        // (It ends with the program.)
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let mut program = Self { child, says };
        program.hear("attached");
        program
    }

    pub(super) fn hear(&mut self, what: &str) {
        let end = Instant::now() + DEADLINE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.says.recv_timeout(left).expect(what);
            if line.ends_with(what) {
                return;
            }
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it: all of its threads have when this returns.
    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/task", self.child.id());
        let is_stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        };
        until(|| fs::read_dir(&stat).unwrap().all(|task| is_stopped(task.unwrap())));
    }

    /// Waits for its end, whatever that is.
    pub(super) fn ends(&mut self) {
        until(|| self.child.try_wait().unwrap().is_some());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: a program.
#[test]
#[ignore = "started by the others"]
fn program() {
    let Ok(words) = std::env::var(VARIABLE) else { return };
    let words: Vec<&str> = words.split('\n').collect();
    let heap = KeptHeap::attach(words[1], "heap").unwrap();
    println!("\nattached");
    let root = heap.root().unwrap();
    match words[0] {
        "works" => {
            let mut notes = fs::OpenOptions::new().append(true).open(words[2]).unwrap();
            for number in words[3].parse().unwrap().. {
                step(&heap, root, number);
                // From here on it was said to be done.
                notes.write_all(b"x").unwrap();
            }
        }
        "scribbles" => scribble(&heap, root),
        _ => panic!(),
    }
}

/// Stores by an address for as long as it is there, whoever owns the pool, and says when it is told that nobody does.
fn scribble(heap: &KeptHeap, root: u64) {
    let word = heap.pointer(root + 24).unwrap().cast::<u64>();
    let mut is_told = false;
    for number in 1_u64.. {
        store(word, number);
        if is_told || !number.is_multiple_of(64) {
            continue;
        }
        let persisted = heap.persist(root + 24..root + 32);
        if number == 64 && persisted.is_ok() {
            println!("\nstores");
        }
        if let Err(error) = persisted {
            assert_eq!(error.errno(), libc_enotconn());
            for _ in 0..3 {
                let refused = heap.change(&[(root, 1)]).unwrap_err();
                assert_eq!(refused.errno(), libc_enotconn());
            }
            is_told = true;
            println!("\ntold");
        }
    }
}

/// `ENOTCONN`.
fn libc_enotconn() -> i32 {
    rustix::io::Errno::NOTCONN.raw_os_error()
}

#[allow(unsafe_code)]
pub(super) fn store(word: *mut u64, number: u64) {
    // SAFETY: an aligned word of a block, mapped for as long as the heap is there; nobody else of this process uses it.
    unsafe { word.write_volatile(number) };
}

/// A list has 32 blocks added to it, and as many taken away.
fn takes_away(number: u64) -> bool {
    number % 64 >= 32
}

/// Step `number`: the list has the numbers of its steps; and now and then a block of pages comes and goes.
pub(super) fn step(heap: &KeptHeap, head: u64, number: u64) {
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

/// The numbers in the list after so many steps.
pub(super) fn expected(steps: u64) -> Vec<u64> {
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

pub(super) fn list(heap: &KeptHeap, head: u64) -> (Vec<u64>, Vec<u64>) {
    let (mut block, mut blocks, mut numbers) = (heap.word(head).unwrap(), Vec::new(), Vec::new());
    while block != 0 {
        blocks.push(block);
        numbers.push(heap.word(block + 8).unwrap());
        block = heap.word(block).unwrap();
    }
    (numbers, blocks)
}

/// Judges what a killed program has left, which had said that `said` steps were done: returns how many were, and ends what was begun.
pub(super) fn judge(heap: &KeptHeap, said: u64) -> u64 {
    let root = heap.root().unwrap();
    let (numbers, blocks) = list(heap, root);
    // One may have been done and not been said.
    let done = if numbers == expected(said) { said } else { said + 1 };
    assert_eq!(numbers, expected(done), "after {said} steps");
    let left = [8, 16].map(|word| heap.word(root + word).unwrap());
    let mut named: BTreeSet<u64> = left.into_iter().filter(|block| *block != 0).collect();
    named.insert(root);
    assert!(blocks.into_iter().all(|block| named.insert(block)), "a block is in two places");
    let all = std::iter::successors(heap.block_behind(0), |last| heap.block_behind(last.offset));
    assert_eq!(all.map(|block| block.offset).collect::<BTreeSet<_>>(), named);
    for place in [root + 8, root + 16] {
        if heap.word(place).unwrap() != 0 {
            heap.free_from(place).unwrap();
        }
    }
    done
}
