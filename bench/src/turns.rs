//! The order in which subjects take turns. What worked just before leaves the machine in a state of its own (processors that
//! sleep, caches that are filled), so each has each other one in front of it as often as any (Williams' design).

/// Which of `count` subjects has which turn in a round.
pub(crate) fn order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    // 0, 1, n - 1, 2, n - 2, ... has each difference once, from one turn to the next: where `count` is odd, with its mirror image.
    let is_mirrored = count % 2 == 1 && round / count.max(1) % 2 == 1;
    (0..count).map(move |turn| {
        let turn = if is_mirrored { count - 1 - turn } else { turn };
        let at = if turn % 2 == 1 { turn.div_ceil(2) } else { count - turn / 2 };
        (at + round) % count
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_subject_begins_and_follows_each_other_one_equally_often() {
        for count in 1..12 {
            let (mut firsts, mut pairs) = (BTreeMap::new(), BTreeMap::new());
            for round in 0..2 * count {
                let order: Vec<usize> = order(count, round).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..count).collect::<Vec<_>>());
                *firsts.entry(order[0]).or_insert(0) += 1;
                for pair in order.windows(2) {
                    *pairs.entry((pair[0], pair[1])).or_insert(0) += 1;
                }
            }
            assert_eq!(firsts.len(), count);
            assert!(firsts.values().all(|times| *times == 2), "{count}: {firsts:?}");
            assert_eq!(pairs.len(), count * (count - 1));
            assert!(pairs.values().all(|times| *times == 2), "{count}: {pairs:?}");
        }
        assert_eq!(order(0, 3).count(), 0);
    }
}
