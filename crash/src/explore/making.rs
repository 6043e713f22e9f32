//! The power fails while a pool is made, where an older one was: afterwards there is the old pool,
//! whole, or none, or the new one, whole.

use lode_engine::{Error, OpenOptions, Pool};
use lode_model::Model;
use lode_testkit::op::{Fill, Op, Path, Target};

use super::Explorer;
use super::cuts::{Cut, Known, Wrong};
use super::path::Stage;
use super::run::Run;
use crate::judge::{Allowed, Expected};
use crate::region::{Pages, Profile, Simulated};
use crate::states::Choice;

impl Explorer<'_> {
    /// Explores a case without operations: making its pool.
    pub(super) fn making(&mut self) -> Result<(), Wrong> {
        let mut old = Run::new(self.setup)?;
        let path = Path::of("/old");
        let create = Op::Create { path: path.clone(), mode: 0o100_644, rdev: 0 };
        let append = Op::Append { to: Target::Path(path), data: Fill { len: 5000, fill: 1 } };
        for (number, op) in [create, append, Op::Remount].iter().enumerate() {
            old.step(number, op)?;
        }
        let medium = Simulated::new(old.pool.medium().seen(), self.setup.rules);
        let host = self.setup.host(5);
        host.set_now(0);
        medium.record(true);
        Pool::format(medium.clone(), host, &self.setup.format())
            .map_err(|error| format!("format: {error:?}"))?;
        medium.record(false);
        let mut points = medium.take_points();
        if self.setup.rules.profile == Profile::Eadr {
            points.push(medium.point());
            medium.settle();
        }
        points.push(medium.point());
        self.tally.operations += 1;
        self.tally.sites.extend(medium.sites().into_keys());
        let (old, new) = (old.expected()?, Run::expected_of(self.setup, &Model::new())?);
        for (number, point) in points.iter().enumerate() {
            let made = number + 1 == points.len();
            let place = format!("the making of a pool (point {} of {})", number + 1, points.len());
            let cut = Cut { stage: Stage::Operation, step: 0, number, point, place };
            self.credited("(mkfs)", |explorer| explorer.cut_making(&cut, &old, &new, made))?;
        }
        Ok(())
    }

    fn cut_making(
        &mut self,
        cut: &Cut<'_>,
        old: &Expected,
        new: &Expected,
        made: bool,
    ) -> Result<(), Wrong> {
        let allowed =
            [Allowed { name: "old", expected: old }, Allowed { name: "new", expected: new }];
        let allowed = &allowed[usize::from(made)..];
        let budget = self.limits.points_of(&self.setup.geometry);
        let units = self.units(cut.point, budget);
        let mut judge = |explorer: &mut Self, choice: &Choice| {
            let image = units.image(&cut.point.durable, &choice.0);
            if !made && explorer.is_no_pool(&image) {
                return Ok(Known::Now);
            }
            explorer.state(&image, allowed).map(|(_, known)| known)
        };
        self.states(cut, &units, budget, &mut judge)
    }

    /// Whether a state is none of a pool, and says so.
    fn is_no_pool(&mut self, image: &Pages) -> bool {
        let medium = Simulated::plain(image);
        medium.watch(std::mem::take(&mut self.watches));
        let options = OpenOptions { read_only: true, ..self.setup.options() };
        let opened = Pool::open(medium.clone(), self.setup.lone_host(), &options);
        self.watches = medium.take_watches();
        matches!(opened.map(|_| ()), Err(Error::NotAPool(_)))
    }
}
