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

/// What is found out anew when what it is known of changes: it may be right again before anybody looks.
const LONGEST: &str = "of how long a chunk's longest run is";
const WHOLE: &str = "of a run of whole chunks";

impl<H: Host> Space<H> {
    /// A bit flips of what is known of free space; says of what, or that there is none of the kind that `which` chooses.
    pub(crate) fn flip_some(&self, which: u64, dice: &mut Dice) -> Option<&'static str> {
        let bit = 1 << dice.roll(52);
        match which % 6 {
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
            2 => {
                let page = self.first + dice.roll(self.end - self.first);
                self.regions[0].chunks.lock().flip(page);
                Some("of a chunk's line")
            }
            3 => {
                let page = self.first + dice.roll(self.end - self.first);
                self.regions[0].chunks.lock().flip_longest(page, 1 << dice.roll(16));
                Some(LONGEST)
            }
            4 => {
                let there = self.lanes[0].at_hand.load(Relaxed) != NO_PAGE;
                there.then(|| self.lanes[0].at_hand.fetch_xor(bit, Relaxed))?;
                Some("of the page at hand")
            }
            _ => {
                let (in_page, which) = (bit & 1 != 0, dice.roll(u64::MAX));
                self.regions[0].chunks.lock().flip_whole(which, in_page, bit)?;
                Some(WHOLE)
            }
        }
    }
}

#[test]
fn a_bit_that_flips_gives_no_page_to_two_and_is_noticed() {
    let (mut noticed, mut whole) = (0, 0);
    for seed in 1..1000 {
        let mut dice = Dice(seed * 7919);
        // (Of the larger ones, some chunks stay whole.)
        let (first, end) = (3, if seed % 2 == 0 { 900 } else { 3000 });
        let space = full(1, first, end);
        let mut users = Users { used: std::vec![false; end as usize], runs: Vec::new() };
        use_it(&space, &mut users, &mut dice, 200, "before");
        assert!(space.is_whole(), "seed {seed}: nothing has flipped");
        use_it(&space, &mut users, &mut dice, 20, "before");
        let Some(what) = space.flip_some(seed, &mut dice) else { continue };
        let case = std::format!("seed {seed}, {what}");
        use_it(&space, &mut users, &mut dice, 300, &case);
        let seen = !space.is_whole();
        assert!(seen || what == LONGEST, "{case}: nobody noticed");
        noticed += u32::from(seen);
        whole += u32::from(what == WHOLE);
    }
    assert!(noticed > 600 && whole > 50, "{noticed}, {whole} of whole chunks");
}
