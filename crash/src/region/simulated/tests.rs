//! What a simulated region does with stores, fences and bad lines.

use super::*;
use crate::states::units_of;

fn region(profile: Profile) -> Simulated {
    Simulated::new(Pages::new(8192), Rules { profile, ..Rules::default() })
}

fn durable_word(medium: &Simulated, at: u64) -> u64 {
    let mut word = [0; 8];
    medium.point().durable.load(at, &mut word);
    u64::from_le_bytes(word)
}

#[test]
fn a_fence_makes_durable_what_was_streamed_and_what_was_written_back() {
    let medium = region(Profile::Adr);
    medium.stream_word(&mut (), 8, 1);
    medium.store_word(&mut (), 64, 2);
    medium.store_word(&mut (), 128, 3);
    medium.write_back(&mut (), 128);
    medium.store_word(&mut (), 136, 4);
    assert_eq!(medium.load_word(64), Ok(2));
    assert_eq!(medium.point().pending.len(), 4);
    medium.fence().unwrap();
    assert_eq!([8, 64, 128, 136].map(|at| durable_word(&medium, at)), [1, 0, 3, 0]);
    assert_eq!(medium.point().pending.len(), 2);
}

#[test]
fn a_fence_does_nothing_for_the_stores_of_another_thread() {
    let medium = region(Profile::Adr);
    medium.stream_word(&mut (), 0, 1);
    medium.store_word(&mut (), 64, 2);
    medium.write_back(&mut (), 64);
    medium.store_word(&mut (), 128, 3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            medium.write_back(&mut (), 128);
            medium.fence().unwrap();
        });
    });
    assert_eq!([0, 64, 128].map(|at| durable_word(&medium, at)), [0, 0, 3]);
}

#[test]
fn an_msync_writes_everything() {
    let medium = region(Profile::File);
    medium.store_word(&mut (), 64, 2);
    std::thread::scope(|scope| {
        scope.spawn(|| medium.fence().unwrap());
    });
    assert_eq!(durable_word(&medium, 64), 2);
}

#[test]
fn a_later_store_hides_an_earlier_one_of_the_same_bytes() {
    let medium = region(Profile::Adr);
    medium.store_word(&mut (), 0, u64::MAX);
    medium.store_word(&mut (), 8, 7);
    medium.stream_word(&mut (), 0, 5);
    medium.fence().unwrap();
    let point = medium.point();
    assert_eq!((durable_word(&medium, 0), point.pending.len()), (5, 1));
    medium.write_back(&mut (), 0);
    medium.fence().unwrap();
    assert_eq!((durable_word(&medium, 0), durable_word(&medium, 8)), (5, 7));
    assert!(medium.point().durable == medium.seen());
}

#[test]
fn a_bad_line_is_an_error_until_a_whole_one_is_stored() {
    let medium = Simulated::plain(&Pages::new(4096));
    medium.poison(64, 2);
    let error = |at| Err(MediaError::Poisoned { at });
    assert_eq!(medium.load(0, &mut [0; 64]), Ok(()));
    assert_eq!(medium.load(0, &mut [0; 65]), error(64));
    assert_eq!(medium.load_word(136), Err(MediaError::Poisoned { at: 136 }));
    medium.store_word(&mut (), 64, 1);
    medium.store_line(&mut (), 64, &Line([7; 64]));
    medium.store_word(&mut (), 64, 1);
    assert_eq!((medium.load_word(64), medium.machine_checks()), (Ok(1), 1));
    assert_eq!(medium.fork().load(128, &mut [0; 8]), error(128));
}

#[test]
fn a_power_cut_brings_bad_lines_back_over_which_nothing_whole_was_stored() {
    let medium = region(Profile::Adr);
    medium.store_word(&mut (), 64, 9);
    medium.poison(64, 1);
    medium.poison(128, 1);
    medium.wreck(192);
    for line in [64, 128, 192] {
        medium.store_line(&mut (), line, &Line([7; 64]));
    }
    let [seen, left] = [medium.seen(), medium.point().durable];
    let bad = |pages: &Pages| [64, 128, 192].map(|at| pages.first_bad(at..at + 64).is_some());
    assert_eq!((bad(&seen), bad(&left)), ([false, false, true], [true; 3]));
    let units = units_of(&medium.point(), Profile::Adr, false);
    let image = |choice: [u16; 3]| bad(&units.image(&left, &choice));
    assert_eq!(image([1, 0, 1]), [false, true, true]);
    // Torn, it stays bad.
    let torn = units.units[1].whole as u16;
    assert!(units.units[1].alternatives.len() > usize::from(torn));
    assert_eq!(image([0, torn, 0]), [true; 3]);
    medium.fence().unwrap();
    assert_eq!(bad(&medium.point().durable), [false, false, true]);
    medium.heal();
    assert!(!medium.has_bad() && !medium.point().durable.has_bad());
}

#[test]
fn what_is_overwritten_behind_everybodys_back_is_durable() {
    let medium = region(Profile::Adr);
    medium.store_word(&mut (), 64, 9);
    medium.store_word(&mut (), 128, 9);
    medium.overwrite(64, &[1; 64]);
    let pending: Vec<u64> = medium.point().pending.iter().map(|store| store.line).collect();
    assert_eq!((durable_word(&medium, 64), pending), (0x0101_0101_0101_0101, vec![128]));
    assert_eq!(medium.load_word(64), Ok(0x0101_0101_0101_0101));
}

#[test]
fn a_left_out_fence_is_no_fence() {
    let medium = region(Profile::Adr);
    // Every turn of the loop is the same place.
    let mut durable = Vec::new();
    let mut left_out = None;
    for _ in 0..2 {
        let rules = Rules { left_out, ..Rules::default() };
        let medium = Simulated::new(medium.seen(), rules);
        medium.stream_word(&mut (), 0, 1);
        medium.fence().unwrap();
        durable.push(durable_word(&medium, 0));
        left_out = medium.sites().into_keys().next();
    }
    assert_eq!(durable, [1, 0]);
}
