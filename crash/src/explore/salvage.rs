//! A damaged pool is made sound, and the power fails in that: made sound again, it has the same files.

use std::collections::BTreeSet;

use lode_engine::{Error, Ino, OpenOptions, Pool, Salvage, mode};
use lode_testkit::fs::Fs;
use lode_testkit::snapshot::{difference, snapshot};

use super::cuts::Wrong;
use super::{CutReport, Explorer};
use crate::judge::{Expected, sound};
use crate::region::{Pages, Point, Profile, Simulated};
use crate::states::{Choice, units_of};

/// Inodes that are no directories: number and generation. (Directories may be made again.)
type Files = BTreeSet<(Ino, u64)>;

impl Explorer<'_> {
    /// Salvages `image`, cuts that off at each of its points, and salvages what is left. Returns the
    /// salvaged pool; none where that was refused.
    pub(super) fn salvage(&mut self, image: &Pages) -> Result<Option<Pages>, Wrong> {
        let medium = Simulated::new(image.clone(), self.setup.rules);
        medium.record(true);
        let (salvaged, lost) = self.salvage_once(&medium);
        medium.record(false);
        self.tally.sites.extend(medium.sites().into_keys());
        match salvaged {
            Ok(()) => {}
            // Nothing leads to the inodes any more.
            Err(Error::Corrupt(_)) if medium.stores() == 0 => return Ok(None),
            Err(error) => return Err(format!("salvage: {error} ({error:?})").into()),
        }
        let mut points = medium.take_points();
        if self.setup.rules.profile == Profile::Eadr {
            medium.settle();
        }
        points.push(medium.point());
        let files = self.files(&medium.seen(), "after a salvage")?;
        for (number, point) in points.iter().enumerate() {
            let place = format!("a salvage (point {} of {})", number + 1, points.len());
            self.salvage_again(&place, point, &files, lost)?;
        }
        Ok(Some(medium.seen()))
    }

    /// Salvages a pool; says how many inodes that gave up.
    fn salvage_once(&self, medium: &Simulated) -> (lode_engine::Result<()>, usize) {
        let mut lost = 0;
        let salvaged = Pool::salvage(medium.clone(), self.setup.host(8), &mut |event| {
            lost += usize::from(matches!(event, Salvage::Discarded { .. }));
        });
        (salvaged, lost)
    }

    /// Where opening `image` for writing makes it good, that is cut off at each of its points: the next
    /// opening makes it as good.
    pub(super) fn opening_cut(&mut self, image: &Pages, expected: &Expected) -> Result<(), Wrong> {
        let medium = Simulated::new(image.clone(), self.setup.rules);
        medium.record(true);
        let opened = Pool::open(medium.clone(), self.setup.host(8), &self.setup.options());
        medium.record(false);
        self.tally.sites.extend(medium.sites().into_keys());
        if !opened.is_ok_and(|pool| pool.opening().is_damaged()) {
            return Ok(());
        }
        let points = medium.take_points();
        for (number, point) in points.iter().enumerate() {
            let place = format!("an opening (point {} of {})", number + 1, points.len());
            self.each_state(&place, point, &|medium| {
                let opened = self.opens_right(medium, expected);
                opened.map_err(|what| format!("an opening that was cut off: {what}"))
            })?;
        }
        Ok(())
    }

    fn opens_right(&self, medium: &Simulated, expected: &Expected) -> Result<(), String> {
        let pool = Pool::open(medium.clone(), self.setup.host(8), &self.setup.options());
        let pool = pool.map_err(|error| format!("{error} ({error:?})"))?;
        let seen = snapshot(&pool, self.setup.times(), Some(&expected.tree));
        match difference(&expected.tree, &seen?) {
            Some(what) => Err(what),
            None => sound(&pool, "check"),
        }
    }

    fn salvage_again(
        &self,
        place: &str,
        point: &Point,
        files: &Files,
        lost: usize,
    ) -> Result<(), Wrong> {
        self.each_state(place, point, &|medium| {
            let alike = self.is_salvaged_alike(medium, files, lost);
            alike.map_err(|what| format!("a salvage that was cut off: {what}"))
        })
    }

    /// At one point: nothing, all, each place alone, all but one.
    fn each_state(
        &self,
        place: &str,
        point: &Point,
        judge: &dyn Fn(&Simulated) -> Result<(), String>,
    ) -> Result<(), Wrong> {
        let units = units_of(point, self.setup.rules.profile, false);
        let last: Vec<u16> = units.units.iter().map(|unit| unit.whole as u16 - 1).collect();
        let none = vec![0; last.len()];
        let mut choices = vec![none.clone(), last.clone()];
        for place in 0..last.len() {
            for (rest, one) in [(&none, &last), (&last, &none)] {
                let mut choice = rest.clone();
                choice[place] = one[place];
                choices.push(choice);
            }
        }
        for choice in choices {
            let medium = Simulated::plain(&units.image(&point.durable, &choice));
            judge(&medium).map_err(|what| {
                let cut = CutReport::new(place.to_owned(), point, &units, &Choice(choice));
                Wrong::from(what).in_cut(cut)
            })?;
        }
        Ok(())
    }

    fn is_salvaged_alike(
        &self,
        medium: &Simulated,
        files: &Files,
        lost: usize,
    ) -> Result<(), String> {
        let (salvaged, lost_again) = self.salvage_once(medium);
        salvaged.map_err(|error| format!("{error} ({error:?})"))?;
        if lost_again > lost {
            return Err(format!("{lost} inodes were lost, {lost_again} when salvaged again"));
        }
        let again = self.files(&medium.seen(), "after it was salvaged again")?;
        if again != *files {
            let (had, has) = (files.len(), again.len());
            return Err(format!("{had} files, {has} when salvaged again, or others"));
        }
        Ok(())
    }

    /// The files of a pool, which must be sound.
    fn files(&self, image: &Pages, when: &str) -> Result<Files, String> {
        let medium = Simulated::plain(image);
        let options = OpenOptions { read_only: true, ..self.setup.options() };
        let pool = Pool::open(medium, self.setup.host(8), &options)
            .map_err(|error| format!("{when}: {error} ({error:?})"))?;
        sound(&pool, when)?;
        let (mut files, mut todo) = (Files::new(), vec![pool.root()]);
        while let Some(dir) = todo.pop() {
            let mut found = Vec::new();
            let listed = pool.readdir(dir, 0, &mut |entry| {
                found.push(entry.ino);
                true
            });
            listed.map_err(|error| format!("{when}: {error}"))?;
            for ino in found {
                let attr = Fs::getattr(&pool, ino).map_err(|error| format!("{when}: {error}"))?;
                if attr.mode & mode::TYPE == mode::DIRECTORY {
                    todo.push(ino);
                } else {
                    files.insert((ino, attr.generation));
                }
            }
        }
        Ok(files)
    }
}
