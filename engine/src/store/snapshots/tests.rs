//! What flips in what memory says of snapshots.

use alloc::vec;

use super::*;
use crate::space::tests::{Dice, TestHost};

#[test]
fn an_item_is_what_it_was_made_of_and_takes_in_what_follows_it() {
    let most = Run { page: (1 << 37) - 1, pages: 1 << 34 };
    for (kind, run, born) in [
        (Kept::Data, Run { page: 0, pages: 1 }, 0),
        (Kept::Log, Run { page: 77, pages: 3 }, 9),
        (Kept::Slot, Run { page: most.page, pages: 1 }, u32::MAX),
        (Kept::Data, most, 1),
    ] {
        let item = Item::new(kind, run, born);
        assert_eq!((item.kind(), item.place(), item.born()), (kind, run, born));
        assert_eq!(item.run().is_none(), kind == Kept::Slot);
    }
    let data = |page, pages, born| Item::new(Kept::Data, Run { page, pages }, born);
    let mut item = data(5, 2, 4);
    for other in [data(8, 1, 4), data(7, 1, 5), data(4, 1, 4), Item::slot(7, 4)] {
        assert!(!item.takes_in(&other), "{other:?}");
    }
    assert!(item.takes_in(&data(7, 3, 4)));
    assert_eq!(item, data(5, 5, 4));
    assert!(!Item::slot(6, 4).takes_in(&Item::slot(7, 4)));
    let log = |page| Item::new(Kept::Log, Run { page, pages: 1 }, 4);
    assert!(!log(5).takes_in(&log(6)) && !log(6).takes_in(&data(7, 1, 4)));
    // What does not follow, or is not whole, is not taken in, and a flipped bit never goes unnoticed, nor do two.
    assert!(item.is_whole());
    for first in 0..u128::BITS {
        let flipped = Item(item.0 ^ 1 << first);
        assert!(!flipped.is_whole(), "{first}");
        for second in 0..first {
            assert!(!Item(flipped.0 ^ 1 << second).is_whole(), "{first} {second}");
        }
    }
    // In the order in which they are told: births, kinds, places.
    assert!(data(9, 1, 3) < data(1, 1, 4) && data(9, 1, 3) < Item::slot(1, 3));
}

#[test]
fn what_has_a_flipped_bit_is_let_go_by_nobody_and_stored_nowhere() {
    for bit in 0..u128::BITS {
        let snapshots = Snapshots::<TestHost>::default();
        assert!(snapshots.add(5).is_ok());
        let item = |page| Item::new(Kept::Data, Run { page, pages: 2 }, 3);
        assert!(snapshots.keep(item(10), 6) && snapshots.keep(item(20), 6));
        assert!(snapshots.is_whole());
        snapshots.list.lock()[0].manifest[1].0 ^= 1 << bit;
        assert!(!snapshots.is_whole(), "{bit}: it would be stored");
        // What follows it does not make it right.
        assert!(snapshots.keep(item(22), 6));
        snapshots.remove(5);
        let mut ended = Vec::new();
        while let Some((item, died)) = snapshots.take_ended() {
            ended.push((item, died));
        }
        assert_eq!(ended, [(item(22), 5), (item(10), 5)], "{bit}");
        assert!(!snapshots.is_whole(), "{bit}: something is forgotten");
    }
    for bit in 0..u32::BITS {
        let snapshots = Snapshots::<TestHost>::default();
        assert!(snapshots.add(5).is_ok());
        assert!(snapshots.keep(Item::slot(7, 3), 6));
        snapshots.remove(5);
        snapshots.ending.lock()[0].died ^= 1 << bit;
        assert_eq!(snapshots.take_ended(), None, "{bit}");
        assert!(!snapshots.is_whole(), "{bit}");
    }
}

/// Two snapshots, of which each keeps something; what is kept for the first is `item(10)`.
fn kept() -> Snapshots<TestHost> {
    let snapshots = Snapshots::<TestHost>::default();
    assert!(snapshots.add(5).is_ok() && snapshots.add(9).is_ok());
    assert!(snapshots.keep(item(10), 6) && snapshots.keep(Item::slot(7, 3), 6));
    assert!(snapshots.keep(Item::slot(8, 7), 11));
    snapshots
}

fn item(page: u64) -> Item {
    Item::new(Kept::Data, Run { page, pages: 2 }, 3)
}

#[test]
fn an_epoch_with_a_flipped_bit_lets_nothing_go_and_is_not_stored() {
    for (at, copy, bit) in (0..2 * 3 * u32::BITS).map(|it| (it % 2, it / 2 % 3, it / 6)) {
        let snapshots = kept();
        snapshots.list.lock()[at as usize].epoch.0[copy as usize] ^= 1 << bit;
        assert!(!snapshots.is_whole(), "{bit}: it would be stored");
        assert_eq!(snapshots.epochs(), Ok(vec![5, 9]), "{bit}");
        // As far as either of them sees it, and no farther.
        let seen = [(3, 5), (3, 6), (5, 9), (6, 9), (9, 10), (10, 12)];
        let wanted = [None, Some(5), Some(5), None, Some(9), None];
        assert_eq!(seen.map(|(born, died)| snapshots.last_to_see(born, died)), wanted, "{bit}");
        assert!(snapshots.keep(item(20), 6) && !snapshots.keep(item(20), 5), "{bit}");
        let mut slots = Vec::new();
        let noted = snapshots.for_each_slot(&mut |epoch, ino| {
            slots.push((epoch, ino));
            Ok(())
        });
        assert_eq!((noted, slots), (Ok(()), vec![(5, 7), (9, 8)]), "{bit}");
        snapshots.remove(9);
        assert_eq!((snapshots.latest(), snapshots.take_ended()), (5, Some((Item::slot(8, 7), 9))));
    }
}

#[test]
fn the_latest_epoch_is_right_whatever_bit_of_it_flips() {
    for bit in 0..u64::BITS {
        let snapshots = kept();
        let right = snapshots.latest.fetch_xor(1 << bit, Relaxed);
        assert_eq!(snapshots.latest(), 9, "{bit}");
        assert_eq!(snapshots.latest.load(Relaxed), right, "{bit}: it is put right");
    }
}

#[test]
fn who_goes_through_items_is_told_none_with_a_flipped_bit_but_that_there_is_one() {
    let is_flipped = |told: &Result<()>| matches!(told, Err(Error::Corrupt(_)));
    for (ended, bit) in (0..2 * u128::BITS).map(|it| (it % 2 == 1, it / 2)) {
        for flipped in 0..2 {
            let snapshots = kept();
            if ended {
                snapshots.remove(5);
                snapshots.ending.lock()[flipped].item.0 ^= 1 << bit;
            } else {
                snapshots.list.lock()[0].manifest[flipped].0 ^= 1 << bit;
            }
            let (mut items, mut slots) = (Vec::new(), Vec::new());
            let told = snapshots.for_each_item(&mut |item| {
                items.push(*item);
                Ok(())
            });
            assert!(is_flipped(&told), "{bit}: {told:?}");
            let mut wanted = vec![item(10), Item::slot(7, 3), Item::slot(8, 7)];
            wanted.remove(flipped);
            items.sort_unstable();
            assert_eq!(items, wanted, "{bit}");
            let told = snapshots.for_each_slot(&mut |_, ino| {
                slots.push(ino);
                Ok(())
            });
            assert!(is_flipped(&told), "{bit}: {told:?}");
            let wanted = if ended || flipped == 1 { vec![8] } else { vec![7, 8] };
            assert_eq!(slots, wanted, "{bit}");
        }
    }
}

impl<H: Host> Snapshots<H> {
    /// A bit flips of what is known of snapshots; says of what, or that there is none of the kind that `which` chooses.
    pub(crate) fn flip_some(&self, which: u64, dice: &mut Dice) -> Option<&'static str> {
        let mut list = self.list.lock();
        let mut any = |count: usize| (count > 0).then(|| dice.roll(count as u64) as usize);
        match which % 4 {
            0 => {
                let items = list.iter_mut().flat_map(|one| &mut one.manifest).collect::<Vec<_>>();
                let (at, bit) = (any(items.len())?, any(128)?);
                items.into_iter().nth(at)?.0 ^= 1 << bit;
                Some("of an item that a snapshot keeps")
            }
            1 => {
                let (at, copy, bit) = (any(list.len())?, any(3)?, any(32)?);
                list.get_mut(at)?.epoch.0[copy] ^= 1 << bit;
                Some("of an epoch")
            }
            2 => {
                let mut ending = self.ending.lock();
                let (at, bit) = (any(ending.len())?, any(160)?);
                let one = ending.get_mut(at)?;
                match bit.checked_sub(128) {
                    Some(bit) => one.died ^= 1 << bit,
                    None => one.item.0 ^= 1 << bit,
                }
                Some("of an item that is let go")
            }
            _ => {
                self.latest.fetch_xor(1 << any(64)?, Relaxed);
                Some("of the latest epoch")
            }
        }
    }
}
