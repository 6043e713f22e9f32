//! Lines that are sealed as the engine seals them and say what it never says: each is damage by
//! name, and an opening that meets it writes nothing.

use lode_engine::{Error, FormatOptions, NewInode, OpenOptions, Pool, mode};
use lode_testkit::format::{LINE, Log, Survey, half, set_half};
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const PART: usize = 2;
const PARTS: usize = 4;
const SESSION: usize = 12;
const KIND_DEATH: u8 = 5;

/// A pool that was not closed, whose last transaction made a file: a line in the log of the root,
/// one in that of the file.
fn made() -> (Vec<u8>, Survey) {
    let memory = Memory::new(1 << 20);
    let format = FormatOptions { lanes: 2, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let pool = Pool::open(memory.clone(), TestHost::new(2), &OpenOptions::default()).unwrap();
    for name in [b"one", b"two"] {
        pool.create(pool.root(), name, &NEW).unwrap();
    }
    drop(pool);
    let image = memory.image();
    let survey = Survey::of(&image);
    (image, survey)
}

/// The offset of the last line of a log, in which `change` changes it before it is sealed again.
fn forge(image: &mut [u8], log: &Log, change: impl FnOnce(&mut [u8])) -> usize {
    let run = log.runs.last().unwrap();
    let line = run.valid - 1;
    let at = run.at(line);
    change(&mut image[at..at + LINE]);
    run.seal(image, line);
    at
}

fn is_told(image: &[u8], wanted: &str) {
    let memory = Memory::from_image(image);
    let open = |read_only| {
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        Pool::open(memory.clone(), TestHost::new(3), &options)
    };
    let told = open(true).unwrap().opening().damage;
    assert!(told.iter().any(|damage| damage.what == wanted), "{wanted}: {told:?}");
    let refused = open(false).err();
    assert!(matches!(refused, Some(Error::Corrupt(_))), "{wanted}: {refused:?}");
    assert!(memory.image() == image, "{wanted}: what was refused was written to");
}

fn set_short(line: &mut [u8], at: usize, value: u16) {
    line[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// The logs of the root and of the file that was made last, and that their last lines are the two
/// of one transaction.
fn of_last(image: &[u8], survey: &Survey) -> (Log, Log) {
    let last = |log: &Log| {
        let run = log.runs.last().unwrap();
        let at = run.at(run.valid - 1);
        image[at..at + LINE].to_vec()
    };
    let root = survey.logs.first().unwrap();
    let of_root = last(root);
    let same = |log: &&Log| last(log)[PARTS..16] == of_root[PARTS..16];
    let file = survey.logs[1..].iter().find(same).expect("one transaction of two logs");
    assert_eq!(of_root[PARTS..PARTS + 2], [2, 0]);
    (root.clone(), file.clone())
}

#[test]
fn lines_of_a_transaction_agree_about_its_parts() {
    let (mut image, survey) = made();
    let (root, _) = of_last(&image, &survey);
    forge(&mut image, &root, |line| set_short(line, PARTS, 3));
    is_told(&image, "lines of one transaction disagree about its parts");
}

#[test]
fn no_part_of_a_transaction_comes_twice() {
    let (mut image, survey) = made();
    let (root, file) = of_last(&image, &survey);
    let other = file.runs.last().unwrap();
    let at = other.at(other.valid - 1);
    let part = u16::from_le_bytes([image[at + PART], image[at + PART + 1]]);
    forge(&mut image, &root, |line| set_short(line, PART, part));
    is_told(&image, "one part of a transaction is there twice");
}

#[test]
fn no_record_is_of_a_session_that_has_not_been_yet() {
    let (mut image, survey) = made();
    let (root, _) = of_last(&image, &survey);
    forge(&mut image, &root, |line| {
        let session = half(line, SESSION);
        set_half(line, SESSION, session + 1);
    });
    is_told(&image, "record of a session that has not been yet");
}

#[test]
fn a_death_is_only_in_its_place() {
    let (mut image, survey) = made();
    let (root, _) = of_last(&image, &survey);
    forge(&mut image, &root, |line| {
        line[0] = KIND_DEATH;
        line[1] = 0;
        line[20..56].fill(0);
    });
    is_told(&image, "death record outside its slot");
}
