//! What the time of an operation goes into at each protection level: as the dissertation's Figure 4.10.
//!
//! At level full data can't be left out, because what is loaded is compared with its checksums. So here what stores
//! data, checksums and second copies, and loads them, is marked by where it goes.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock};

use lode_engine::{FormatOptions, OpenOptions, PAGE_BYTES, Pool, Protection, Use};
use lode_host::StdHost;
use lode_pmem::{LINE_BYTES, Line, Mapped, MediaError, Medium, RegionOptions};

use super::parts::Part;
use super::sampler::marked;
use super::{LEVEL, LEVELS, Relaxed, Settings, Window, look_into, one_thread};
use crate::medium::{Way, Wrapped};
use crate::report::Breakdown;
use crate::subject::{BARE, FULL, InEngine, METADATA};
use crate::workload::{Stage, Workload};

use super::POOL;

/// Nothing is left out; fences are.
const LEFT_OUT: &[u8] = LEVELS.split_at(2).0;

/// Where in a pool things are that are there twice, or once more than data.
struct Places {
    /// Bytes between metadata and its second copy, 0 for none: that has this bit in its offset.
    apart: u64,
    /// What each page holds of checksums and parity, by its number.
    sums: Vec<bool>,
}

/// A medium that marks what its instructions are for, and leaves fences out when it is told to.
#[derive(Clone, Default)]
struct ByPlace(Arc<OnceLock<Places>>);

impl ByPlace {
    /// The part that these bytes belong to: `usual`, if they are neither checksums nor parity.
    #[inline]
    fn part(&self, at: u64, usual: Part) -> u8 {
        let sums = self.0.get().is_some_and(|places| {
            places.sums.get((at / PAGE_BYTES) as usize).copied().unwrap_or_default()
        });
        if sums { Part::Checksums.mark() } else { usual.mark() }
    }

    /// That of a line of metadata.
    #[inline]
    fn line(&self, at: u64) -> u8 {
        let twin = self.0.get().is_some_and(|places| at & places.apart != 0);
        if twin { Part::SecondCopies.mark() } else { Part::Record.mark() }
    }
}

impl Way for ByPlace {
    type Notes = ();

    #[inline]
    fn load(&self, under: &Mapped, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let usual = if into.len() <= LINE_BYTES { Part::Index } else { Part::Copy };
        marked(self.part(at, usual), || under.load(at, into))
    }

    #[inline]
    fn store_line(&self, under: &Mapped, to: (&mut Window, &mut ()), at: u64, line: &Line) {
        marked(self.line(at), || under.store_line(to.0, at, line));
    }

    #[inline]
    fn store_lines(
        &self,
        under: &Mapped,
        to: (&mut Window, &mut ()),
        at: u64,
        lines: &[[u8; LINE_BYTES]],
    ) {
        marked(self.part(at, Part::Copy), || under.store_lines(to.0, at, lines));
    }

    #[inline]
    fn store_words(&self, under: &Mapped, to: (&mut Window, &mut ()), at: u64, words: &[[u8; 8]]) {
        marked(self.part(at, Part::Copy), || under.store_words(to.0, at, words));
    }

    #[inline]
    fn fence(&self, under: &Mapped) -> Result<(), MediaError> {
        if LEVEL.load(Relaxed) == 0 { under.fence() } else { Ok(()) }
    }
}

/// Looks into these operations at each level until nobody wants more.
///
/// # Errors
/// Where the engine fails, or the system has no timer for it.
pub fn measure(
    ids: &[&'static Workload],
    settings: &Settings,
    is_over: &dyn Fn(&str) -> bool,
) -> io::Result<Vec<Breakdown>> {
    let (mut parts, mut all) = (HashMap::new(), Vec::new());
    let levels =
        [(Protection::None, BARE), (Protection::Metadata, METADATA), (Protection::Full, FULL)];
    for (protection, subject) in levels {
        let mut stage = Stage::new(pool(protection, settings)?);
        for workload in ids {
            if is_over(workload.id) {
                return Ok(all);
            }
            let Some(mut worker) = one_thread(&mut stage, workload)? else { continue };
            let slice = settings.slice();
            let found =
                look_into((workload, subject), worker.as_mut(), (slice, LEFT_OUT), &mut parts)?;
            all.push(at_its_level(found, protection));
        }
    }
    // Levels of one operation beside each other.
    all.sort_by_key(|one| ids.iter().position(|workload| workload.id == one.workload));
    Ok(all)
}

/// Where there are no checksums, or no second copies, the way past them is no time of theirs.
fn at_its_level(mut found: Breakdown, protection: Protection) -> Breakdown {
    if protection != Protection::Full {
        found.rest_ns += std::mem::take(&mut found.checksums_ns);
    }
    if protection == Protection::None {
        found.rest_ns += std::mem::take(&mut found.second_copies_ns);
    }
    found
}

fn pool(protection: Protection, settings: &Settings) -> io::Result<InEngine<Wrapped<ByPlace>>> {
    let failed = io::Error::other;
    let options = RegionOptions { emulate: settings.emulate, ..RegionOptions::new() };
    let region = Arc::new(Mapped::anonymous(POOL, &options).map_err(io::Error::other)?);
    let way = ByPlace::default();
    let medium = Wrapped::new(&region, POOL, way.clone());
    let format = FormatOptions { protection, ..FormatOptions::default() };
    Pool::format(&medium, StdHost::new(), &format).map_err(failed)?;
    let pool = Pool::open(medium, StdHost::new(), &OpenOptions::default()).map_err(failed)?;
    let mut places = Places { apart: 0, sums: vec![false; (POOL / PAGE_BYTES) as usize] };
    let told = pool.for_each_use(&mut |run| {
        let twin = run.twin.filter(|_| run.used_for == Use::Tables);
        places.apart |= twin.map_or(0, |twin| (twin ^ run.page) * PAGE_BYTES);
        if matches!(run.used_for, Use::Checksums | Use::Parity) {
            for first in [Some(run.page), run.twin].into_iter().flatten() {
                let pages = first as usize..(first + run.pages) as usize;
                places.sums.get_mut(pages).into_iter().for_each(|pages| pages.fill(true));
            }
        }
    });
    told.map_err(failed)?;
    // (It is set once, here.)
    let _ = way.0.set(places);
    Ok(InEngine::of(Arc::new(pool)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::by_id;

    #[test]
    fn what_a_level_adds_is_seen_at_that_level() {
        let _alone = super::super::ONE_AT_A_TIME.lock();
        let settings = Settings { quick: true, emulate: None };
        let ids = ["create", "append-4k"].map(|id| by_id(id).unwrap());
        let all = measure(&ids, &settings, &|_| false).unwrap();
        let told: Vec<_> =
            all.iter().map(|one| format!("{} {}", one.workload, one.subject)).collect();
        let wanted =
            ["create", "append-4k"].map(|id| [BARE, METADATA, FULL].map(|of| format!("{id} {of}")));
        assert_eq!(told, wanted.concat());
        let [create, create_twice, _, append, append_twice, append_full] = &all[..] else {
            panic!("{all:?}")
        };
        for one in [create, append] {
            assert_eq!(one.second_copies_ns, 0.0, "{one:?}");
        }
        for one in [create, create_twice, append, append_twice] {
            assert_eq!(one.checksums_ns, 0.0, "{one:?}");
            let sum: f64 = one.parts().iter().map(|(_, ns)| ns).sum();
            assert!((sum / one.ns_per_op - 1.0).abs() < 1e-6, "{one:?}");
        }
        assert!(create_twice.second_copies_ns > create_twice.ns_per_op * 0.005, "{create_twice:?}");
        // (Tests have this crate as it is written, not optimised: what is around a copy takes most of the time then.)
        for seen_ns in [append_full.checksums_ns, append_full.copy_ns] {
            assert!(seen_ns > append_full.ns_per_op * 0.005, "{append_full:?}");
        }
    }
}
