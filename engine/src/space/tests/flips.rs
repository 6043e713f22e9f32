//! Bits that flip in memory: no page that somebody has is handed out, and it is noticed.

use super::*;

/// What is in use, page by page, and the runs that were taken.
struct Users {
    used: Vec<bool>,
    runs: Vec<Run>,
}

impl Users {
    fn take(&mut self, taken: Run, case: &str) {
        for page in taken.page..taken.end() {
            let used = &mut self.used[page as usize];
            assert!(!*used, "{case}: page {page} is somebody's");
            *used = true;
        }
        self.runs.push(taken);
    }

    fn give(&mut self, dice: &mut Dice) -> Option<Run> {
        let sides = self.runs.len() as u64;
        let given = (sides > 0).then(|| self.runs.swap_remove(dice.roll(sides) as usize))?;
        (given.page..given.end()).for_each(|page| self.used[page as usize] = false);
        Some(given)
    }
}

/// Takes and gives at random. What is given may find that its page is free already by what is known: then
/// the pool takes no more writes, as for any such.
fn use_it(space: &Space<TestHost>, users: &mut Users, dice: &mut Dice, steps: u32, case: &str) {
    for _ in 0..steps {
        match dice.roll(5) {
            0 | 1 => {
                if let Ok(run) = space.take_one(0, [Use::Data, Use::Log][dice.roll(2) as usize]) {
                    users.take(run, case);
                }
            }
            2 => {
                if let Ok(run) = space.take_some(0, 1 + dice.roll(20), Near::ANY) {
                    users.take(run, case);
                }
            }
            _ => {
                if let Some(run) = users.give(dice)
                    && space.give(0, run, Use::Data).is_err()
                {
                    return;
                }
            }
        }
    }
}

impl<H: Host> Space<H> {
    /// A bit flips of what is known of free space; says of what, or that there is none of the kind that `which` chooses.
    pub(crate) fn flip_some(&self, which: u64, dice: &mut Dice) -> Option<&'static str> {
        let bit = 1 << dice.roll(52);
        match which % 4 {
            0 => {
                self.freed.flip(self.first + dice.roll(self.end - self.first));
                Some("of the bitmap")
            }
            1 => {
                let mut magazine = self.lanes[0].magazines[dice.roll(2) as usize].lock();
                let waiting = magazine.count();
                (waiting > 0).then(|| magazine.flip(dice.roll(waiting as u64) as usize, bit))?;
                Some("of a page that waits")
            }
            of_extent => {
                let mut tree = self.regions[0].tree.lock();
                let extents = tree.extents().count();
                let at = (extents > 0).then(|| dice.roll(extents as u64) as usize)?;
                tree.flip(at, of_extent == 2, bit);
                Some(if of_extent == 2 { "of an extent's place" } else { "of an extent's length" })
            }
        }
    }
}

#[test]
fn a_bit_that_flips_gives_no_page_to_two_and_is_noticed() {
    let mut noticed = 0;
    for seed in 1..600 {
        let mut dice = Dice(seed * 7919);
        let (first, end) = (3, 900);
        let space = full(1, first, end);
        let mut users = Users { used: std::vec![false; end as usize], runs: Vec::new() };
        use_it(&space, &mut users, &mut dice, 200, "before");
        assert!(space.is_whole(), "seed {seed}: nothing has flipped");
        use_it(&space, &mut users, &mut dice, 20, "before");
        let Some(what) = space.flip_some(seed, &mut dice) else { continue };
        let case = std::format!("seed {seed}, {what}");
        use_it(&space, &mut users, &mut dice, 300, &case);
        assert!(!space.is_whole(), "{case}: nobody noticed");
        noticed += 1;
    }
    assert!(noticed > 400, "{noticed}");
}
