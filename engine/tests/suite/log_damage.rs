//! Damage in the middle of a log is reported as damage; it is never taken for the log's
//! end. In a pool that was closed that holds for the last line too.

use lode_engine::{Error, FormatOptions, Ino, NewInode, OpenOptions, Pool, SetAttr, mode};
use lode_testkit::format::{LINE, Log, PAGE, Survey};
use lode_testkit::rng::Rng;
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot};
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

/// A pool with two long logs, of a file and of a directory.
struct Made {
    image: Vec<u8>,
    seen: Snapshot,
    logs: Vec<Log>,
    clean: bool,
}

fn make(clean: bool, sessions: bool) -> Made {
    let memory = Memory::new(2 << 20);
    let format = FormatOptions { lanes: 2, ..FormatOptions::default() };
    Pool::format(memory.clone(), TestHost::new(1), &format).unwrap();
    let open = || Pool::open(memory.clone(), TestHost::new(2), &OpenOptions::default()).unwrap();
    let mut pool = open();
    let root = pool.root();
    let file = pool.create(root, b"file", &NEW).unwrap().ino;
    let dir = pool.create(root, b"dir", &NEW_DIR).unwrap().ino;
    for step in 0..150u64 {
        // Nothing that collection could take for dead: each write has a page of its own.
        pool.write(file, step * 8192, &[step as u8 + 1; 40]).unwrap();
        let name = format!("{step:03}-{}", "n".repeat(step as usize % 60)).into_bytes();
        pool.create(dir, &name, &NEW).unwrap();
        if sessions && step % 40 == 39 {
            pool.close().unwrap();
            drop(pool);
            pool = open();
        }
    }
    // The last line of the file's log is a transaction of one part.
    pool.setattr(file, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    let seen = snapshot(&pool, Times::NONE, None).unwrap();
    if clean {
        pool.close().unwrap();
    }
    drop(pool);
    let image = memory.image();
    let survey = Survey::of(&image);
    let log = |ino: Ino| survey.logs.iter().find(|log| log.ino == ino).unwrap().clone();
    let logs = vec![log(file), log(dir)];
    assert!(logs.iter().all(|log| log.runs.len() >= 3), "the logs are long: {logs:?}");
    Made { image, seen, logs, clean }
}

/// What came of a damaged line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Came {
    Reported,
    Unchanged,
    Silent,
}

fn came_of(image: &[u8], seen: &Snapshot, read_only: bool) -> (Came, String) {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    let Ok(pool) = Pool::open(Memory::from_image(image), TestHost::new(3), &options) else {
        return (Came::Reported, String::new());
    };
    if !pool.opening().damage.is_empty() {
        return (Came::Reported, String::new());
    }
    // Reading first: `check` must not be what first finds it.
    let found = match snapshot(&pool, Times::NONE, Some(seen)) {
        Ok(found) => found,
        Err(_) => return (Came::Reported, String::new()),
    };
    match difference(seen, &found) {
        None => (Came::Unchanged, String::new()),
        Some(difference) => (Came::Silent, difference),
    }
}

/// Damages the line at `at` in one of several ways; says how.
fn damage_line(image: &mut [u8], at: usize, rng: &mut Rng) -> String {
    match rng.below(5) {
        0 => {
            image[at..at + LINE].fill(0);
            "all zero".to_owned()
        }
        1 => {
            image[at + 56..at + LINE].fill(0);
            "seal zero".to_owned()
        }
        // Not the words of an anchor that no seal covers.
        _ => {
            let byte = rng.pick(&[0usize, 3, 10, 17, 25, 39, 56, 60, 63]);
            let bit = rng.below(8);
            image[at + byte] ^= 1 << bit;
            format!("bit {bit} of byte {byte} flipped")
        }
    }
}

fn each_line(made: &Made) {
    let mut rng = Rng::new(9);
    let (mut reported, mut unchanged) = (0, 0);
    let mut silent = Vec::new();
    for log in &made.logs {
        let runs = log.runs.len();
        let end = &log.runs[runs - 1];
        // Parts, lane, sequence and session: the transaction of the log's last line.
        let transaction = |at: usize| &made.image[at + 4..at + 16];
        let last = transaction(end.at(end.valid - 1));
        for (index, run) in log.runs.iter().enumerate() {
            // Line 0 stands for the anchor, the others for the records.
            for line in 0..=run.valid {
                let at = if line == 0 { run.anchor } else { run.at(line - 1) };
                // What was in doubt when the crash came may be gone.
                let in_doubt = line > 0 && transaction(at) == last && !made.clean;
                for round in 0..4 {
                    let mut image = made.image.clone();
                    let how = damage_line(&mut image, at, &mut rng);
                    let (came, what) = came_of(&image, &made.seen, round % 2 == 0);
                    reported += u64::from(came == Came::Reported);
                    unchanged += u64::from(came == Came::Unchanged);
                    if came == Came::Silent && !in_doubt {
                        silent.push(format!(
                            "inode {}, page {index} of {runs} of its log, line {line} of {} at \
                             {at:#x}, {how}: {what}",
                            log.ino, run.valid
                        ));
                    }
                }
            }
        }
    }
    println!("clean {}: {reported} reported, {unchanged} without effect", made.clean);
    assert!(silent.is_empty(), "{} not reported:\n{}", silent.len(), silent.join("\n"));
    assert!(reported > unchanged, "damage is seldom without effect");
}

#[test]
fn each_damaged_line_of_a_closed_pool_is_reported() {
    each_line(&make(true, false));
}

#[test]
fn each_damaged_line_of_a_crashed_pool_but_the_last_is_reported() {
    each_line(&make(false, false));
}

#[test]
fn each_damaged_line_of_a_pool_of_several_sessions_is_reported() {
    each_line(&make(false, true));
    each_line(&make(true, true));
}

/// Links and headers: a log must not end early because the way to its next page is gone.
#[test]
fn a_damaged_link_in_a_log_is_reported() {
    for clean in [false, true] {
        let made = make(clean, false);
        for log in &made.logs {
            for (index, run) in log.runs.iter().enumerate() {
                if index + 1 == log.runs.len() {
                    continue;
                }
                for bit in 0..64usize {
                    let mut image = made.image.clone();
                    image[run.anchor + 40 + bit / 8] ^= 1 << (bit % 8);
                    let (came, what) = came_of(&image, &made.seen, bit % 2 == 0);
                    assert_ne!(came, Came::Silent, "link of page {index}, bit {bit}: {what}");
                }
                // "No link" has a check too: a word of zero is damage.
                let mut image = made.image.clone();
                image[run.anchor + 40..run.anchor + 48].fill(0);
                let (came, what) = came_of(&image, &made.seen, false);
                assert_ne!(came, Came::Silent, "link of page {index} zero: {what}");
            }
        }
    }
}

/// A link between inode tables is needed only after the next crash: the full check looks at it before.
#[test]
fn a_damaged_link_between_inode_tables_is_found_by_the_check() {
    let made = make(true, false);
    let survey = Survey::of(&made.image);
    assert!(survey.pieces.len() > 2, "{:?}", survey.pieces);
    let lanes =
        (0..survey.superblock.lanes).map(|lane| survey.superblock.lane_table + lane * 256 + 128);
    let links = survey.pieces.iter().map(|piece| piece + 40).chain(lanes);
    for (number, link) in links.enumerate() {
        let mut image = made.image.clone();
        image[link + number % 8] ^= 1 << (number % 7);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let pool = Pool::open(Memory::from_image(&image), TestHost::new(3), &options).unwrap();
        let report = pool.check(&mut |_, _| ()).unwrap();
        assert!(!report.damage.is_empty(), "link at {link:#x}");
    }
}

/// Before a session begins, what earlier ones left unfinished is erased: no crash leaves a line of an
/// earlier session behind one of a later one. Such a line is damage, and not where the log ends.
#[test]
fn a_record_of_a_session_that_had_ended_is_no_end() {
    let made = make(false, true);
    for log in &made.logs {
        let run = log.runs.last().unwrap();
        let mut image = made.image.clone();
        let at = run.at(run.valid - 1);
        assert!(run.valid > 1 && image[at + 12] > 1, "the last line has one before it");
        image[at + 12] = 1;
        run.seal(&mut image, run.valid - 1);
        let (came, what) = came_of(&image, &made.seen, false);
        assert_eq!(came, Came::Reported, "inode {}: {what}", log.ino);
    }
}

/// A larger pool is opened by its logs, which a closed one's checkpoint spares: damage that only they tell
/// of must not come to light when the pool has grown.
#[test]
fn a_closed_pool_with_a_damaged_line_does_not_grow_and_is_left_as_it_was() {
    let made = make(true, false);
    let mut rng = Rng::new(11);
    let (mut refused, mut grown) = (0, 0);
    for log in &made.logs {
        for run in &log.runs {
            for line in 0..=run.valid {
                let at = if line == 0 { run.anchor } else { run.at(line - 1) };
                let mut image = made.image.clone();
                let how = damage_line(&mut image, at, &mut rng);
                image.resize(image.len() + (1 << 20), 0);
                let memory = Memory::from_image(&image);
                match Pool::grow(memory.clone(), TestHost::new(3)) {
                    Ok(()) => {
                        grown += 1;
                        let (came, what) = came_of(&memory.image(), &made.seen, false);
                        assert_eq!(came, Came::Unchanged, "{how} at {at:#x}: {what}");
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
                        assert!(memory.image() == image, "{how} at {at:#x}: refused, but written");
                    }
                }
            }
        }
    }
    assert!(refused > grown, "{refused} refused, {grown} grown");
}

/// As it may be in an image that was read while the pool was in use: who looks for places in it must come to an end.
#[test]
fn a_log_whose_last_page_leads_back_into_it_ends() {
    let made = make(true, false);
    let survey = Survey::of(&made.image);
    let pages = survey.superblock.pages as usize;
    let log = survey.logs.iter().max_by_key(|log| log.runs.len()).unwrap();
    let (run, back) = (log.runs.last().unwrap(), &log.runs[log.runs.len() / 2]);
    assert!(back.anchor % PAGE == 0 && run.anchor % PAGE == 0, "{} runs", log.runs.len());
    let mut image = made.image.clone();
    let (at, to) = (run.anchor + 40, back.anchor / PAGE);
    let link = survey.superblock.link(at, to as u64, back.tag, false);
    image[at..at + 8].copy_from_slice(&link.to_le_bytes());
    let again = Survey::of(&image).logs.into_iter().find(|it| it.ino == log.ino).unwrap();
    assert!((log.runs.len()..=pages).contains(&again.runs.len()), "{} runs", again.runs.len());
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let pool = Pool::open(Memory::from_image(&image), TestHost::new(3), &options).unwrap();
    assert!(!pool.check(&mut |_, _| ()).unwrap().damage.is_empty());
}
