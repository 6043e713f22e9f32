//! Files are short, and programs are asked for what they can spare.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lode_loan::{CHUNK_BYTES, Kind};
use lode_testkit::until;

use super::Owner;

#[test]
fn files_get_what_programs_spare_and_a_silent_one_is_waited_for_once() {
    let owner = Owner::new(10, |_| ());
    assert!(!owner.service.spare(1), "nobody has anything");
    let mut good = owner.program();
    let chunks = good.take_all(6);
    let wait = |pages| {
        let service = Arc::clone(&owner.service);
        std::thread::spawn(move || {
            let began = Instant::now();
            (service.spare(pages), began.elapsed())
        })
    };
    let spared = wait(513);
    let (wish, _) = good.hear();
    assert_eq!((wish.kind, wish.count), (Kind::Wish, 2));
    good.list(Kind::Return, &chunks[..2]);
    assert!(spared.join().unwrap().0);
    // It is asked again before it has said that this was all; that is no answer to what it is asked then.
    let spared = wait(1);
    until(|| owner.service.facts().wishes == 2);
    good.say(Kind::Spared, 2, wish.tag, &[]);
    let (wish, _) = good.hear();
    assert_eq!(wish.count, 1);
    good.list(Kind::Return, &chunks[2..3]);
    assert!(spared.join().unwrap().0);
    good.say(Kind::Spared, 1, wish.tag, &[]);
    // (What is answered after it.)
    good.list(Kind::Hold, &[]);
    // One that says soon that it has nothing.
    let asked = wait(1);
    let (wish, _) = good.hear();
    std::thread::sleep(Duration::from_millis(50));
    good.say(Kind::Spared, 0, wish.tag, &[]);
    let (got, took) = asked.join().unwrap();
    assert!(!got && took < Duration::from_millis(450), "{took:?}");
    // Nobody is asked again as soon.
    let (got, took) = wait(1).join().unwrap();
    assert!(!got && took < Duration::from_millis(100), "{took:?}");
    std::thread::sleep(Duration::from_millis(550));
    // Silence costs half a second, and no more the next time.
    let (got, took) = wait(1).join().unwrap();
    let half = Duration::from_millis(450)..Duration::from_millis(2000);
    assert!(!got && half.contains(&took), "{took:?}");
    std::thread::sleep(Duration::from_millis(550));
    let (got, took) = wait(1).join().unwrap();
    assert!(!got && took < Duration::from_millis(100), "{took:?}");
    assert_eq!(owner.service.facts().wishes, 4);
    // It may answer late.
    let (late, _) = good.hear();
    good.say(Kind::Spared, 0, late.tag, &[]);
    assert!(good.take(1).is_ok());
    drop(good);
    owner.all_is_back();
}

#[test]
fn a_late_answer_counts_while_only_others_are_asked() {
    let owner = Owner::new(10, |_| ());
    let (mut slow, mut good) = (owner.program(), owner.program());
    slow.take_all(2);
    let chunks = good.take_all(4);
    let wait = || {
        let service = Arc::clone(&owner.service);
        std::thread::spawn(move || service.spare(1))
    };
    let asked = wait();
    let (late, _) = slow.hear();
    let (wish, _) = good.hear();
    good.list(Kind::Return, &chunks[..1]);
    assert!(asked.join().unwrap());
    good.say(Kind::Spared, 1, wish.tag, &[]);
    // (Its time to answer is over then.)
    std::thread::sleep(Duration::from_millis(550));
    let asked = wait();
    let (wish, _) = good.hear();
    slow.say(Kind::Spared, 0, late.tag, &[]);
    // (What is answered after it.)
    slow.list(Kind::Hold, &[]);
    good.list(Kind::Return, &chunks[1..2]);
    assert!(asked.join().unwrap());
    good.say(Kind::Spared, 1, wish.tag, &[]);
    let asked = wait();
    let (wish, _) = slow.hear();
    assert_eq!((wish.kind, wish.tag), (Kind::Wish, late.tag + 2), "it is asked as others are");
    slow.say(Kind::Spared, 0, wish.tag, &[]);
    let (wish, _) = good.hear();
    good.list(Kind::Return, &chunks[2..3]);
    assert!(asked.join().unwrap());
    good.say(Kind::Spared, 1, wish.tag, &[]);
    drop((slow, good));
    owner.all_is_back();
}

#[test]
fn what_is_ready_is_the_first_that_files_get() {
    let owner = Owner::new(10, |limits| limits.ready = 4);
    let mut program = owner.program();
    let all = program.take_all(6);
    program.list(Kind::Return, &all);
    owner.free_becomes(6);
    assert_eq!(owner.service.facts().ready, 4 * CHUNK_BYTES);
    assert!(owner.service.spare(1));
    owner.free_becomes(10);
    // A while after that some is made ready again.
    owner.free_becomes(6);
    drop(program);
    owner.all_is_back();
}

#[test]
fn what_is_returned_and_still_locked_is_no_answer() {
    let owner = Owner::new(10, |_| ());
    let mut program = owner.program();
    let chunks = program.take_all(4);
    owner.fake.locked.lock().extend(&chunks);
    // It is silent, but for chunks that nobody can have: files wait for it once.
    assert!(!owner.service.spare(1));
    assert_eq!(program.hear().0.kind, Kind::Wish);
    for chunk in &chunks[..2] {
        assert_eq!(program.list(Kind::Return, &[*chunk]).0.kind, Kind::Returned);
        std::thread::sleep(Duration::from_millis(550));
        let began = Instant::now();
        assert!(!owner.service.spare(1));
        assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    }
    owner.fake.locked.lock().clear();
    assert_eq!(program.list(Kind::Return, &chunks[2..3]).0.kind, Kind::Returned);
    std::thread::sleep(Duration::from_millis(550));
    let service = Arc::clone(&owner.service);
    let asked = std::thread::spawn(move || service.spare(2));
    assert_eq!(program.hear().0.kind, Kind::Wish, "it has given something back");
    drop(program);
    assert!(asked.join().unwrap());
    owner.all_is_back();
}

#[test]
fn what_a_program_had_that_ends_when_it_is_asked_is_what_files_get() {
    for is_locked in [false, true] {
        let owner = Owner::new(10, |_| ());
        let mut program = owner.program();
        let chunks = program.take_all(3);
        if is_locked {
            // It is not over yet when its connection is.
            owner.fake.locked.lock().extend(&chunks);
        }
        let service = Arc::clone(&owner.service);
        let asked = std::thread::spawn(move || service.spare(1));
        assert_eq!(program.hear().0.kind, Kind::Wish);
        drop(program);
        if is_locked {
            until(|| owner.service.facts().apart == 3 * CHUNK_BYTES);
            owner.fake.locked.lock().clear();
        }
        assert!(asked.join().unwrap(), "locked for a while: {is_locked}");
        owner.all_is_back();
    }
}

#[test]
fn a_slower_program_is_waited_for_where_another_one_has_nothing_more() {
    let owner = Owner::new(10, |_| ());
    let (mut slow, mut quick) = (owner.program(), owner.program());
    let many = slow.take_all(4);
    let few = quick.take_all(1);
    let wait = || {
        let service = Arc::clone(&owner.service);
        std::thread::spawn(move || service.spare(1))
    };
    let asked = wait();
    slow.hear();
    let (wish, _) = quick.hear();
    quick.list(Kind::Return, &few);
    assert!(asked.join().unwrap());
    quick.say(Kind::Spared, 1, wish.tag, &[]);
    quick.take_all(1);
    // Files are still short. The slow one is just about to give what it does not use.
    let asked = wait();
    let (wish, _) = quick.hear();
    quick.say(Kind::Spared, 0, wish.tag, &[]);
    // (What is answered after it.)
    quick.list(Kind::Hold, &[]);
    slow.say(Kind::Return, 1, 9, &many[..1]);
    assert!(asked.join().unwrap(), "there is no space, and a program is giving back some");
    drop((slow, quick));
    owner.all_is_back();
}
