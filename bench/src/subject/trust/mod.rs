//! `lode-trust`: what a pool can be trusted with, and what that takes. Measured where it is asked for: `--trust` asks for
//! all of it.

mod aged;
mod snapshots;
mod space;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use lode::Protection;

use super::{Outcome, Programs, Ready, Subject};
use crate::error::Result;
use crate::place::Place;
use crate::plan::Cell;
use crate::report::Figure;
use crate::risk::{Scheme, curve};
use crate::subject::aging::Plan;
use crate::worker::Worker;
use crate::workload::Kind;
use aged::Aged;
pub use aged::LOST;
pub use snapshots::{CREATE_AT_0, CREATE_AT_MANY, MANIFESTS};
pub use space::{REDUNDANCY_FULL, REDUNDANCY_METADATA};

/// What is aged, and looked at by the page.
const PLAN: Plan =
    Plan { bytes: 2 << 30, times: 10, log_pages: 100_000, time: Duration::from_secs(120) };
/// The same in a quick run.
const PLAN_QUICK: Plan =
    Plan { bytes: 512 << 20, times: 2, log_pages: 4_000, time: Duration::from_secs(10) };

/// The figure of what a scribble of the size of the dead zone can take.
pub const AT_RISK: &str = "metadata at risk by a scribble of the size of the dead zone";
const DEAD_ZONE: &str = "dead zone";

/// It.
pub const TRUST: &dyn Subject = &Trust;

struct Trust;

impl Subject for Trust {
    fn id(&self) -> &'static str {
        "lode-trust"
    }

    fn about(&self) -> &'static str {
        "pools of each protection level, aged and nearly full, looked at by the page; and snapshots"
    }

    fn bytes_max(&self, _cells: &[Cell]) -> u64 {
        0
    }

    fn missing(&self, _place: &Place) -> Option<String> {
        None
    }

    fn start(&self, place: &Place, programs: &Programs) -> Result<Box<dyn Ready>> {
        let plan = if programs.quick { PLAN_QUICK } else { PLAN };
        Ok(Box::new(Opened { dir: place.pools().to_owned(), plan, aged: Vec::new() }))
    }
}

struct Opened {
    dir: PathBuf,
    plan: Plan,
    /// What pools were found to be, of the levels that were asked for so far: ageing one takes longest.
    aged: Vec<Aged>,
}

impl Ready for Opened {
    fn workers(&mut self, _cell: &Cell) -> io::Result<Option<Vec<Box<dyn Worker>>>> {
        Ok(None)
    }

    fn long_run(&mut self, cell: &Cell, is_over: &dyn Fn() -> bool) -> io::Result<Option<Outcome>> {
        match cell.workload.kind {
            Kind::Risk => self.risk(is_over),
            Kind::Space => self.space(is_over),
            Kind::Snapshots => snapshots::measure(self.plan.bytes, is_over),
            _ => Ok(None),
        }
    }
}

impl Opened {
    /// A pool of this level, aged now or before; nothing where that was interrupted.
    fn aged(&mut self, level: Protection, is_over: &dyn Fn() -> bool) -> io::Result<Option<&Aged>> {
        if !self.aged.iter().any(|aged| aged.level == level) {
            match Aged::make(&self.dir.join("aged"), level, &self.plan, is_over)? {
                Some(aged) => self.aged.push(aged),
                None => return Ok(None),
            }
        }
        Ok(self.aged.iter().find(|aged| aged.level == level))
    }

    fn risk(&mut self, is_over: &dyn Fn() -> bool) -> io::Result<Option<Outcome>> {
        let mut outcome = Outcome::default();
        for scheme in Scheme::ALL {
            let level = match scheme {
                Scheme::DeadZone => Protection::Metadata,
                _ => Protection::None,
            };
            let Some(aged) = self.aged(level, is_over)? else { return Ok(None) };
            let layout = scheme.layout(&aged.uses);
            outcome.risk.extend(curve(scheme, &layout));
            if scheme != Scheme::DeadZone {
                continue;
            }
            let most = (layout.lost_to(aged.dead_zone).max * layout.unit) as f64;
            outcome.figures.extend([
                figure("risk", DEAD_ZONE, aged.dead_zone as f64, "bytes"),
                figure("risk", AT_RISK, most, "bytes"),
            ]);
            outcome.figures.extend(aged.trials());
        }
        Ok(Some(outcome))
    }

    fn space(&mut self, is_over: &dyn Fn() -> bool) -> io::Result<Option<Outcome>> {
        let mut figures = Vec::new();
        for level in Protection::ALL {
            let Some(aged) = self.aged(level, is_over)? else { return Ok(None) };
            space::tell(&aged.uses, level, "files of 128 KiB", &mut figures);
            let path = self.dir.join("filled");
            for (of, bytes) in [("128 KiB, written at once", 128 << 10), ("4 KiB", 4 << 10)] {
                let sizes = (self.plan.bytes, bytes);
                let Some(uses) = space::filled(&path, level, sizes, is_over)? else {
                    return Ok(None);
                };
                space::tell(&uses, level, &format!("files of {of}"), &mut figures);
            }
        }
        Ok(Some(Outcome { figures, ..Outcome::default() }))
    }
}

/// A figure of one of the workloads.
fn figure(workload: &str, what: &str, value: f64, unit: &str) -> Figure {
    Figure {
        workload: workload.to_owned(),
        subject: String::new(),
        what: what.to_owned(),
        value,
        unit: unit.to_owned(),
    }
}
