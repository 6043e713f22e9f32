//! Bytes at risk: how much metadata one scribble can take, for all places where it may happen (NOVA-Fortis 4.2.4).
//!
//! A page of metadata is lost where a scribble hits both copies of one of its bytes, or its only copy. For each page
//! the places that do so follow each other, so all of them are counted, and none is drawn by lot.

use lode_engine::{PAGE_BYTES, PagesUsed, Use};

use crate::random::Random;
use crate::report::Risk;

/// Where both copies of something begin, the lower one first; the same place twice where there is one copy.
pub type Pair = (u64, u64);

/// Where metadata lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of each piece of metadata.
    pub unit: u64,
    /// The copies of each piece.
    pub pairs: Vec<Pair>,
}

/// What scribbles of one size do, wherever they happen.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Lost {
    /// The most pieces that one of them takes.
    pub max: u64,
    /// Pieces that one takes on average.
    pub mean: f64,
}

impl Layout {
    /// What scribbles of `scribble` bytes, all inside, take.
    pub fn lost_to(&self, scribble: u64) -> Lost {
        let Some(last) = self.bytes.checked_sub(scribble) else { return Lost::default() };
        let (mut begins, mut ends) = (Vec::new(), Vec::new());
        for (low, high) in &self.pairs {
            // It has to begin in front of the lower copy's end, and to end behind the higher one's beginning; as it is
            // longer than they are apart, it then hits both copies of a byte.
            let (from, to) = ((high + 1).saturating_sub(scribble), (low + self.unit - 1).min(last));
            if scribble > high - low && from <= to {
                begins.push(from);
                ends.push(to);
            }
        }
        let places: u64 = begins.iter().zip(&ends).map(|(from, to)| to - from + 1).sum();
        Lost { max: most_at_once(begins, ends), mean: places as f64 / (last + 1) as f64 }
    }
}

/// How many of these closed intervals lie over one point, at most.
fn most_at_once(mut begins: Vec<u64>, mut ends: Vec<u64>) -> u64 {
    begins.sort_unstable();
    ends.sort_unstable();
    let (mut most, mut ended) = (0, ends.into_iter().peekable());
    let mut open = 0;
    for begin in begins {
        while ended.next_if(|end| *end < begin).is_some() {
            open -= 1;
        }
        open += 1;
        most = most.max(open);
    }
    most
}

/// How metadata is kept twice, or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Once: a pool of level none, as it is.
    Once,
    /// The second copy right behind the first. Modelled over the metadata of the same pool: what follows moves on.
    Simple,
    /// Second copies in the free pages of the same pool, from its end on downwards, in no order of the first ones: in
    /// a pool that has aged, these are not in the order in which they were taken. Modelled.
    TwoWay,
    /// A pool of level metadata, as it is.
    DeadZone,
}

impl Scheme {
    /// All of them, as the dissertation has them.
    pub const ALL: [Self; 4] = [Self::Once, Self::Simple, Self::TwoWay, Self::DeadZone];

    /// Its name there.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Once => "no replication",
            Self::Simple => "simple replication",
            Self::TwoWay => "two-way replication",
            Self::DeadZone => "dead-zone replication",
        }
    }

    /// It is no layout of Lode's.
    pub const fn is_modelled(self) -> bool {
        matches!(self, Self::Simple | Self::TwoWay)
    }

    /// The layout: of a pool whose pages are used so, at level metadata for the dead zone and at level none for the
    /// others.
    pub fn layout(self, uses: &[PagesUsed]) -> Layout {
        let mut pages: Vec<Pair> =
            uses.iter().filter(|run| is_metadata(run)).flat_map(copies).collect();
        pages.sort_unstable();
        let mut all = uses.iter().map(|run| run.pages * (1 + u64::from(run.twin.is_some()))).sum();
        match self {
            Self::Once | Self::DeadZone => {}
            Self::Simple => all = put_behind(&mut pages, all),
            Self::TwoWay => put_at_the_end(&mut pages, uses),
        }
        let bytes = |page: u64| page * PAGE_BYTES;
        let pairs =
            pages.into_iter().map(|(one, other)| (bytes(one.min(other)), bytes(one.max(other))));
        Layout { bytes: bytes(all), unit: PAGE_BYTES, pairs: pairs.collect() }
    }

    /// What the text of the dissertation says of scribbles of so many bytes (its Figure 4.8 is of 64 GiB).
    fn known(self, scribble: u64) -> (Option<u64>, Option<f64>) {
        match (self, scribble) {
            (Self::Once, 1) => (Some(PAGE_BYTES), Some(0.06)),
            (Self::Simple, 0..PAGE_BYTES) => (Some(0), Some(0.0)),
            (Self::Simple, EIGHT_KIB) => (Some(PAGE_BYTES), Some(0.04)),
            (Self::TwoWay, EIGHT_KIB) => (Some(PAGE_BYTES), Some(2.9e-5)),
            (Self::DeadZone, 0..MIB) => (Some(0), Some(0.0)),
            _ => (None, None),
        }
    }
}

const EIGHT_KIB: u64 = 8 << 10;
const MIB: u64 = 1 << 20;

/// Scribbles from one byte to 64 MiB.
pub fn sizes() -> impl Iterator<Item = u64> {
    (0..=26).map(|log2| 1 << log2)
}

/// Of all sizes that fit in.
pub fn curve(scheme: Scheme, layout: &Layout) -> Vec<Risk> {
    let fitting = sizes().filter(|size| *size <= layout.bytes);
    let point = |scribble_bytes| {
        let Lost { max, mean } = layout.lost_to(scribble_bytes);
        let (nova_max_bytes, nova_mean_pages) = scheme.known(scribble_bytes);
        Risk {
            scheme: scheme.name().to_owned(),
            modelled: scheme.is_modelled(),
            scribble_bytes,
            max_bytes: max * layout.unit,
            mean_pages: mean,
            nova_max_bytes,
            nova_mean_pages,
        }
    };
    fitting.map(point).collect()
}

/// Whether the file system is lost with it, not a file's data.
pub fn is_metadata(run: &PagesUsed) -> bool {
    matches!(run.used_for, Use::Superblocks | Use::Lanes | Use::Tables | Use::Logs)
}

/// Each page with that of its copy, or itself.
fn copies(run: &PagesUsed) -> impl Iterator<Item = Pair> {
    let (page, twin) = (run.page, run.twin.unwrap_or(run.page));
    (0..run.pages).map(move |at| (page + at, twin + at))
}

/// Gives each page that is there once a copy right behind it; returns how many pages there are then.
fn put_behind(pages: &mut [Pair], all: u64) -> u64 {
    let more = pages.iter().filter(|(one, other)| one == other).count() as u64;
    let mut moved = 0;
    for (one, other) in pages {
        if one == other {
            (*one, *other) = (*one + moved, *other + moved + 1);
            moved += 1;
        } else {
            // The superblocks: one stays in front, the other behind all.
            *other += more;
        }
    }
    all + more
}

/// Gives each page that is there once, in no order, the last free one; those for which there is none stay alone.
fn put_at_the_end(pages: &mut [Pair], uses: &[PagesUsed]) {
    let free = uses.iter().filter(|run| run.used_for == Use::Free);
    let mut free: Vec<u64> = free.flat_map(|run| run.page..run.page + run.pages).collect();
    free.sort_unstable();
    let mut alone: Vec<&mut Pair> = pages.iter_mut().filter(|(one, other)| one == other).collect();
    let mut random = Random::new(48);
    while !alone.is_empty()
        && let Some(page) = free.pop()
    {
        alone.swap_remove(random.below(alone.len() as u64) as usize).1 = page;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, byte by byte and place by place.
    fn brute(layout: &Layout, scribble: u64) -> Lost {
        let (mut max, mut sum) = (0, 0);
        let places = layout.bytes - scribble + 1;
        for at in 0..places {
            let hit = |byte: u64| byte >= at && byte < at + scribble;
            let lost = |pair: &&Pair| {
                (0..layout.unit).any(|byte| hit(pair.0 + byte) && hit(pair.1 + byte))
            };
            let count = layout.pairs.iter().filter(lost).count() as u64;
            (max, sum) = (max.max(count), sum + count);
        }
        Lost { max, mean: sum as f64 / places as f64 }
    }

    #[test]
    fn all_places_are_counted_as_if_each_were_tried() {
        let mut random = Random::new(8);
        for case in 0..60 {
            let (unit, units) = ([1, 4, 7][case % 3], 24);
            let mut pairs = Vec::new();
            for _ in 0..random.below(9) {
                let (one, other) = (random.below(units) * unit, random.below(units) * unit);
                // (Some are there once.)
                let other = if random.below(3) == 0 { one } else { other };
                pairs.push((one.min(other), one.max(other)));
            }
            let layout = Layout { bytes: unit * units, unit, pairs };
            for scribble in 1..=layout.bytes {
                let (found, wanted) = (layout.lost_to(scribble), brute(&layout, scribble));
                assert_eq!(found.max, wanted.max, "{scribble} in {layout:?}");
                assert!((found.mean - wanted.mean).abs() < 1e-9, "{scribble} in {layout:?}");
            }
            assert_eq!(layout.lost_to(layout.bytes + 1), Lost::default());
        }
    }

    fn run(page: u64, pages: u64, used_for: Use, twin: Option<u64>) -> PagesUsed {
        PagesUsed { page, pages, used_for, twin }
    }

    /// A superblock, two pages of lanes, data, a log, data, free pages, the other superblock.
    fn once() -> Vec<PagesUsed> {
        vec![
            run(0, 1, Use::Superblocks, Some(31)),
            run(1, 2, Use::Lanes, None),
            run(3, 9, Use::Data, None),
            run(12, 1, Use::Logs, None),
            run(13, 10, Use::Data, None),
            run(23, 8, Use::Free, None),
        ]
    }

    fn pages(layout: &Layout) -> Vec<Pair> {
        layout.pairs.iter().map(|(one, other)| (one / PAGE_BYTES, other / PAGE_BYTES)).collect()
    }

    #[test]
    fn each_scheme_puts_copies_where_it_says() {
        let once = once();
        let layouts = Scheme::ALL.map(|scheme| scheme.layout(&once));
        let [alone, simple, two_way, real] = &layouts;
        assert_eq!(pages(alone), [(0, 31), (1, 1), (2, 2), (12, 12)]);
        assert_eq!(alone, real, "as they are");
        assert_eq!(pages(simple), [(0, 34), (1, 2), (3, 4), (14, 15)]);
        assert_eq!(simple.bytes, 35 * PAGE_BYTES);
        let (first, mut second): (Vec<_>, Vec<_>) = pages(two_way).into_iter().unzip();
        second.sort_unstable();
        assert_eq!((first, second), (vec![0, 1, 2, 12], vec![28, 29, 30, 31]));
    }

    #[test]
    fn the_schemes_lose_what_the_dissertation_says_that_they_do() {
        let uses = once();
        let of = |scheme: Scheme, bytes: u64| scheme.layout(&uses).lost_to(bytes);
        assert_eq!(of(Scheme::Once, 1).max, 1);
        assert!((of(Scheme::Once, 1).mean - 3.0 / 32.0).abs() < 1e-9);
        assert_eq!(of(Scheme::Simple, 4095), Lost::default());
        assert_eq!(of(Scheme::Simple, 8192).max, 1);
        assert_eq!(of(Scheme::TwoWay, 16 << 12).max, 0);
        assert!(of(Scheme::TwoWay, (18 << 12) + 1).max > 0);
        let curve = curve(Scheme::Simple, &Scheme::Simple.layout(&uses));
        assert_eq!(curve.len(), 18, "none that is larger than the pool");
        let known = |one: &&Risk| one.nova_mean_pages == Some(0.04);
        assert_eq!(curve.iter().find(known).unwrap().scribble_bytes, 8192);
    }
}
