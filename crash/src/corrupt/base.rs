//! Pools to damage: each of a random past with all that a pool can have, with the model beside it.
//!
//! What this file guarantees: a level, a seed and a number decide all of a base, and undamaged it shows what the
//! model has.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use lode_engine::layout::{Strips, Superblock};
use lode_engine::{
    AccessTimes, Fallocate, FormatOptions, Ino, InodeDump, OpenOptions, PageClass, Pool,
    Protection, mode,
};
use lode_model::Model;
use lode_pmem::Medium;
use lode_testkit::TestHost;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Fill, Op, Path, Target};
use lode_testkit::rng::Rng;
use lode_testkit::run::{Rules, run};
use lode_testkit::system::PoolSystem;

use super::damage::Phase;
use super::medium::put;
use super::more::one_more;
use super::place::{Places, Waiting, session_and_list, waiting};
use super::tree::{Numbers, Tree};
use crate::region::{self, Pages, Simulated};
use crate::states::units_of;

/// How a pool was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// Unmounted.
    Closed,
    /// By a crash between two operations.
    Crashed,
    /// By one in the middle of an operation.
    Cut,
    /// By one in the middle of the recovery from one.
    Recovering,
}

/// Where bytes of a file lie, or may lie: offset in the file, in the pool, and how many.
pub(super) type Sources = HashMap<Ino, Vec<(u64, u64, u64)>>;

/// A pool, and all that is known of it.
pub(super) struct Base {
    pub(super) level: Protection,
    pub(super) left: Left,
    pub(super) bytes: u64,
    pub(super) dead_zone: u64,
    pub(super) pages: Pages,
    pub(super) model: Model,
    /// What it may show.
    pub(super) trees: Vec<Tree>,
    pub(super) numbers: Numbers,
    pub(super) places: Places,
    pub(super) sources: Sources,
    /// Where a file ends in its last page: what lies behind that, and whether it is zero.
    pub(super) tails: HashMap<Ino, (Range<u64>, bool)>,
    pub(super) strips: Strips,
    /// Overwrites that a crash may have cut off on their way: what is kept of their pages may be torn.
    pub(super) coming: Vec<Waiting>,
    /// Pages of the pool that programs had mapped when it was left, at level `full`: nothing is known of what they hold.
    pub(super) exempt: HashSet<u64>,
    /// Those with the ones that a recovery which was cut off was making whole, by file: the records that say that they are
    /// may be in one copy alone.
    pub(super) exempt_once: HashSet<(Ino, u64)>,
    /// Generations of the pool's inodes.
    pub(super) generations: HashMap<Ino, u64>,
    pub(super) session: u32,
    /// What of its metadata there is when it has been opened, in a pool that was not unmounted: an opening stores records, too.
    pub(super) opened: Option<(Places, u32)>,
    /// Inode of the list of snapshots, 0 for none.
    pub(super) list: Ino,
    /// Which of the two superblocks are valid.
    pub(super) superblocks: [bool; 2],
    twin_bytes: u64,
}

/// Operations of a base's past.
const OPERATIONS: usize = 150;
/// At level `full` one pool in so many was left while programs had a file mapped.
const MAPPED_EVERY: u64 = 4;
/// The time of what is done later.
pub(super) const LATER_NS: i64 = 9_000_000_000;

/// How bases are opened, by who damages them, too.
pub(super) fn options(read_only: bool, forgetful: bool) -> OpenOptions {
    let (atime, index_memory) = (AccessTimes::Never, forgetful.then_some(0));
    OpenOptions { read_only, atime, index_memory, ..OpenOptions::default() }
}

/// What a pool says of all its inodes and of those in snapshots.
type Dumps = Vec<InodeDump>;

impl Base {
    /// Makes one.
    ///
    /// # Errors
    /// Where the pool is not what the model is, undamaged.
    pub(super) fn make(level: Protection, seed: u64, number: u64) -> Result<Self, String> {
        let mut rng = Rng::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(number));
        let wide = level != Protection::None && rng.once_in(4);
        let (bytes, dead_zone) = if wide { (8 << 20, 1 << 20) } else { (3 << 20, 60_000) };
        let log_lines = rng.pick(&[9, 16, 63]);
        let format = FormatOptions {
            lanes: 1 + rng.below(2) as u32,
            log_lines,
            protection: level,
            dead_zone: if level == Protection::None { 0 } else { dead_zone },
            strip_bytes: rng.pick(&[512, 1024, 2048]),
            page_class: PageClass::Small,
            ..FormatOptions::default()
        };
        let name_max = if log_lines < 11 { 60 } else { 256 };
        let is_mapped = level == Protection::Full && number % MAPPED_EVERY == 1;
        let (system, model) = past(bytes, &format, name_max, is_mapped, &mut rng)?;
        let left = rng.pick(&[Left::Closed, Left::Crashed, Left::Cut, Left::Recovering]);
        // (What is mapped is so only until the next opening.)
        let left = match left {
            Left::Closed if is_mapped => Left::Crashed,
            Left::Cut if is_mapped => Left::Recovering,
            left => left,
        };
        let before = Tree::of(&model)?;
        let mut dumps = dump(system.pool(), &before)?;
        if left == Left::Closed {
            system.pool().close().map_err(|error| format!("close: {error:?}"))?;
        }
        let mut pages = pages_of(&system.memory().image());
        let (mut trees, mut lives) = (vec![before], Vec::new());
        if is_mapped && left == Left::Recovering {
            pages = cut_recovery(pages, &mut rng)?.without_bare();
        } else if matches!(left, Left::Cut | Left::Recovering) {
            let cut = cut(&pages, &model, left, &mut rng)?;
            pages = cut.pages;
            dumps.extend(cut.dumps);
            trees.extend(cut.after);
            lives = cut.lives;
        }
        let mut base = Self::over(level, left, dead_zone, pages, model)?;
        base.know(trees, dumps)?;
        base.know_lives(lives);
        Ok(base)
    }

    fn over(
        level: Protection,
        left: Left,
        dead_zone: u64,
        pages: Pages,
        model: Model,
    ) -> Result<Self, String> {
        let valid = |at| {
            let mut raw = [0; 512];
            pages.load(at, &mut raw);
            Superblock::parse(&raw).ok()
        };
        let copies = [valid(0), valid(pages.bytes() - 4096)];
        let superblocks = [copies[0].is_some(), copies[1].is_some()];
        let [one, two] = copies;
        let geometry = one.or(two).ok_or("no superblock")?.geometry();
        Ok(Self {
            level,
            left,
            bytes: pages.bytes(),
            dead_zone,
            pages,
            model,
            trees: Vec::new(),
            numbers: Numbers::new(),
            places: Places::default(),
            sources: Sources::new(),
            tails: HashMap::new(),
            strips: geometry.strips,
            coming: Vec::new(),
            exempt: HashSet::new(),
            exempt_once: HashSet::new(),
            generations: HashMap::new(),
            session: 0,
            opened: None,
            list: 0,
            superblocks,
            twin_bytes: geometry.twin_pages * 4096,
        })
    }

    /// Finds out what the undamaged pool shows, and where all of it lies.
    fn know(&mut self, trees: Vec<Tree>, mut dumps: Dumps) -> Result<(), String> {
        let medium = Simulated::plain(&self.pages);
        let pool = Pool::open(medium, TestHost::new(3), &options(true, false));
        let pool = pool.map_err(|error| format!("the undamaged pool: {error:?}"))?;
        let exempt_pages = pool.opening().exempt_pages;
        let (mut failed, mut numbers) = (String::new(), Numbers::new());
        for tree in &trees {
            match tree.numbers(&pool) {
                Ok(found) => {
                    // (All names of one tree may be those of another.)
                    numbers.extend(found);
                    dumps.extend(dump(&pool, tree)?);
                }
                Err(what) => failed = what,
            }
        }
        if numbers.is_empty() {
            return Err(failed);
        }
        self.numbers = numbers;
        let image = self.pages.image();
        let mut known = HashSet::new();
        let own: Dumps = dumps.iter().filter(|one| known.insert(one.attr.ino)).cloned().collect();
        self.places = Places::of_image(&image, &own);
        (self.session, self.list) = session_and_list(&image);
        // (Of the pool as it was left: a recovery that was cut off may have made some of it whole.)
        let mut left = HashSet::new();
        let last = dumps.iter().rev().filter(|one| left.insert(one.attr.ino));
        last.for_each(|dump| self.note_exempt(dump));
        if self.exempt.len() as u64 != exempt_pages {
            return Err(format!("{exempt_pages} pages are exempt, {} found", self.exempt.len()));
        }
        for dump in &dumps {
            self.note_tail(&image, dump);
            let sources = self.sources.entry(dump.attr.ino).or_default();
            sources.extend(
                dump.extents.iter().map(|one| (one.file_offset, one.pool_offset, one.bytes)),
            );
            let waits = waiting(dump);
            sources.extend(waits.iter().map(|wait| (wait.offset, wait.at, wait.len)));
            if matches!(self.left, Left::Cut | Left::Recovering) && dump.attr.ino < 1 << 40 {
                self.coming.extend(waits);
            }
        }
        if self.strips.are_kept() {
            let pages = |one: &(u64, u64, u64)| one.1 / 4096..(one.1 + one.2).div_ceil(4096);
            let values = self.places.of(super::Kind::Value).iter();
            let values = values.flat_map(|one| one.at / 4096..(one.at + one.len).div_ceil(4096));
            let files = self.sources.values().flatten().flat_map(pages);
            let pages: BTreeSet<u64> = files.chain(values).collect();
            for page in pages {
                let first = self.strips.crcs_at(page, lode_engine::layout::CrcTable::First);
                self.places.add(super::Kind::Crc, first, self.strips.crc_bytes(), 0);
                let parity = self.strips.parity_at(page);
                self.places.add(super::Kind::Parity, parity, self.strips.bytes(), 0);
            }
        }
        for ino in self.numbers.values() {
            let attr = pool.getattr(*ino).map_err(|error| format!("inode {ino}: {error:?}"))?;
            self.generations.insert(*ino, attr.generation);
        }
        self.trees = trees;
        if self.left != Left::Closed {
            let medium = Simulated::plain(&self.pages);
            let pool = Pool::open(medium.clone(), TestHost::new(3), &options(false, false));
            pool.map_err(|error| format!("the undamaged pool: {error:?}"))?;
            let image = medium.seen().image();
            self.opened = Some((Places::of_image(&image, &[]), session_and_list(&image).0));
        }
        Ok(())
    }

    /// Takes in what had a name before an operation that was cut off, or has one behind it: damage may take back what is whole
    /// without it, so that something is there which the undamaged pool does not show.
    fn know_lives(&mut self, lives: Vec<Life>) {
        for life in lives {
            if let Entry::Vacant(entry) = self.numbers.entry(life.model_ino) {
                entry.insert(life.ino);
                self.generations.insert(life.ino, life.generation);
            }
        }
    }

    /// Notes where pages of a file lie that its records say are exempt.
    fn note_exempt(&mut self, dump: &InodeDump) {
        let (mut pages, mut once) = (HashSet::new(), HashSet::new());
        for record in &dump.records {
            let field = |name: &str| record.fields.iter().find(|(one, _)| *one == name);
            let field = |name: &str| field(name).map_or(0, |(_, value)| *value);
            let range = field("file_page")..field("file_page") + field("pages");
            match record.kind {
                "EXEMPT" => {
                    pages.extend(range.clone());
                    once.extend(range);
                }
                "WHOLE" => pages.retain(|page| !range.contains(page)),
                _ => {}
            }
        }
        for one in &dump.extents {
            for offset in (0..one.bytes).step_by(4096) {
                let at = one.pool_offset + offset;
                if once.contains(&((one.file_offset + offset) / 4096)) {
                    self.exempt_once.insert((dump.attr.ino, at / 4096));
                }
                if pages.contains(&((one.file_offset + offset) / 4096)) {
                    self.exempt.insert(at / 4096);
                    self.places.add(super::Kind::Mapped, at, 4096, dump.attr.ino);
                }
            }
        }
    }

    fn note_tail(&mut self, image: &[u8], dump: &InodeDump) {
        let size = dump.attr.size;
        let holds = |at: u64, bytes: u64| at < size && size < at + bytes;
        let last = dump.extents.iter().find(|one| holds(one.file_offset, one.bytes));
        let Some(at) = last.map(|one| one.pool_offset + (size - one.file_offset)) else { return };
        let behind = at..at.next_multiple_of(4096);
        let is_zero = image[at as usize..behind.end as usize].iter().all(|byte| *byte == 0);
        // (One that was cut off may have either end.)
        let known = self.tails.entry(dump.attr.ino).or_insert((behind.clone(), is_zero));
        known.1 &= known.0 == behind;
    }

    /// Offset of the last page.
    pub(super) fn last_page(&self) -> u64 {
        self.bytes - 4096
    }

    /// Offset of the other copy of metadata.
    pub(super) fn twin(&self, at: u64) -> Option<u64> {
        (self.twin_bytes != 0).then_some(at ^ self.twin_bytes)
    }

    /// When damage comes to it.
    pub(super) fn phase(&self, rng: &mut Rng) -> Phase {
        match self.left {
            Left::Recovering => Phase::Recovery,
            Left::Cut => rng.pick(&[Phase::Rest, Phase::Recovery, Phase::Recovery]),
            Left::Crashed => rng.pick(&Phase::ALL),
            Left::Closed => rng.pick(&[Phase::Rest, Phase::Running]),
        }
    }

    /// Whether nothing may be left that gives a strip which is hit: it waits in a journal, and is there once; or an overwrite
    /// of others was coming to its page, whose parity may be torn.
    pub(super) fn may_be_torn(&self, strip_at: u64, bytes: u64) -> bool {
        let page = strip_at / 4096;
        let waits_here = self.coming.iter().any(|wait| wait.waits_in(page));
        let comes_here = self.coming.iter().any(|wait| wait.comes_to(page));
        waits_here || comes_here && !self.coming.iter().any(|wait| wait.covers(strip_at, bytes))
    }

    /// Whether a byte range of a file lies in these bytes of the pool, or may.
    pub(super) fn lies_in(&self, ino: Ino, offset: u64, ranges: &[Range<u64>]) -> bool {
        let sources = self.sources.get(&ino).map_or(&[][..], Vec::as_slice);
        sources.iter().any(|(from, at, len)| {
            let inside = (*from..from + len).contains(&offset);
            inside && ranges.iter().any(|range| range.contains(&(at + offset - from)))
        })
    }
}

/// Random operations, with snapshots among them.
fn past(
    bytes: u64,
    format: &FormatOptions,
    name_max: u64,
    is_mapped: bool,
    rng: &mut Rng,
) -> Result<(PoolSystem, Model), String> {
    let shape = Shape {
        names: 6,
        name_max,
        depth: 4,
        offset_max: 20_000,
        len_max: 9_000,
        sparse: false,
        slots: 0,
        remount_every: 40,
        maintain_every: 30,
        ..Shape::default()
    };
    let mut ops = Generator::new(rng.bits(), shape).take(OPERATIONS);
    let most = |value: &mut Fill| value.len = value.len.min(12_000);
    for op in &mut ops {
        match op {
            Op::CreateWith { value, .. }
            | Op::SetAttrWith { value, .. }
            | Op::SetXattr { value: Some(value), .. } => most(value),
            _ => {}
        }
    }
    if rng.once_in(2) {
        for name in [&b"first"[..], b"second"].into_iter().take(1 + rng.below(2) as usize) {
            let at = rng.below(ops.len() as u64) as usize;
            ops.insert(at, Op::Snapshot(name.to_vec()));
        }
    }
    ops.extend(rare());
    if is_mapped {
        ops.extend(left_mapped());
    }
    let host = TestHost::new(rng.bits());
    let mut system = PoolSystem::new(bytes, host, format, options(false, false))?;
    let rules = Rules { tree_every: usize::MAX, check: false, ..Rules::default() };
    let model = run(&mut system, &ops, &rules).map_err(|failure| failure.to_string())?;
    Ok((system, model))
}

/// Operations whose records random ones seldom leave: UNMAP, RETIRE and, of maps at level full, EXEMPT and WHOLE.
fn rare() -> Vec<Op> {
    let path = |name| Target::Path(Path::of(name));
    let file = |name| Op::Create { path: Path::of(name), mode: mode::FILE | 0o600, rdev: 0 };
    let write = |name, len| Op::Write { to: path(name), offset: 0, data: Fill { len, fill: 7 } };
    let (how, offset, len) = (Fallocate::Punch, 4096, 4096);
    let punch = Op::Fallocate { of: path("punched"), how, offset, len };
    let mut ops = vec![file("punched"), write("punched", 12_000), punch];
    let of = path("mapped");
    ops.extend([file("mapped"), write("mapped", 5000), write("mapped", 100)]);
    ops.extend([Op::Map { of: of.clone() }, Op::Unmap { of }]);
    ops
}

/// Stores into mapped pages, which stay mapped; and pages of the same file that are not.
fn left_mapped() -> Vec<Op> {
    let to = || Target::Path(Path::of("mapped"));
    let data = |len| Fill { len, fill: 11 };
    vec![
        Op::Write { to: to(), offset: 5000, data: data(7000) },
        Op::Map { of: to() },
        Op::Poke { to: to(), offset: 700, data: data(900) },
        Op::Poke { to: to(), offset: 4000, data: data(300) },
        Op::Append { to: to(), data: data(6000) },
    ]
}

/// All that a pool says of what a tree has.
fn dump<M: Medium>(pool: &Pool<M, TestHost>, tree: &Tree) -> Result<Dumps, String> {
    let numbers = tree.numbers(pool)?;
    let mut seen = HashSet::new();
    let mut dumps = Dumps::new();
    for node in tree.nodes.iter().filter(|node| node.kind == mode::FILE) {
        let Some(ino) = numbers.get(&node.model_ino).copied().filter(|ino| seen.insert(*ino))
        else {
            continue;
        };
        let mut one = pool.dump_inode(ino).map_err(|error| format!("{}: {error:?}", node.path))?;
        one.attr.ino = ino;
        dumps.push(one);
    }
    Ok(dumps)
}

fn pages_of(image: &[u8]) -> Pages {
    let mut pages = Pages::new(image.len() as u64).without_bare();
    for (number, page) in image.chunks(4096).enumerate() {
        if page.iter().any(|byte| *byte != 0) {
            put(&mut pages, number as u64 * 4096, page);
        }
    }
    pages
}

/// A pool that the power was cut in.
struct CutOff {
    pages: Pages,
    dumps: Dumps,
    /// What the operation would have made of it.
    after: Vec<Tree>,
    /// Of both.
    lives: Vec<Life>,
}

/// An inode of the model in the pool.
struct Life {
    model_ino: Ino,
    ino: Ino,
    generation: u64,
}

/// Those of a tree that a pool shows.
fn lives<M: Medium>(pool: &Pool<M, TestHost>, tree: &Tree) -> Result<Vec<Life>, String> {
    let life = |(model_ino, ino): (Ino, Ino)| {
        let attr = pool.getattr(ino).map_err(|error| format!("inode {ino}: {error:?}"))?;
        Ok(Life { model_ino, ino, generation: attr.generation })
    };
    tree.numbers(pool)?.into_iter().map(life).collect()
}

/// Does one more operation, and takes what is there somewhere in it, or in the recovery from that.
fn cut(pages: &Pages, model: &Model, left: Left, rng: &mut Rng) -> Result<CutOff, String> {
    let tree = Tree::of(model)?;
    // (Of a pool of its own: what is in memory when the operation begins stays as it is.)
    let medium = Simulated::plain(pages);
    let pool = Pool::open(medium, TestHost::new(3), &options(true, false));
    let pool = pool.map_err(|error| format!("before an operation is cut: {error:?}"))?;
    let mut known = lives(&pool, &tree)?;
    for _ in 0..20 {
        let op = one_more(&tree, rng);
        let after = model.clone();
        let host = TestHost::new(rng.bits());
        after.set_now(LATER_NS);
        host.set_now(LATER_NS);
        if execute(&after, &mut Handles::new(), &op).is_err() {
            continue;
        }
        let medium = Simulated::new(pages.clone(), region::Rules::default());
        let pool = Pool::open(medium.clone(), host, &options(false, false));
        let pool = pool.map_err(|error| format!("before an operation is cut: {error:?}"))?;
        medium.settle();
        medium.record(true);
        if execute(&pool, &mut Handles::new(), &op).is_err() {
            continue;
        }
        medium.record(false);
        let mut pages = cut_at(&medium, rng);
        let after = Tree::of(&after)?;
        let dumps = dump(&pool, &after)?;
        known.extend(lives(&pool, &after)?);
        if left == Left::Recovering {
            pages = cut_recovery(pages, rng)?;
        }
        let (pages, after) = (pages.without_bare(), vec![after]);
        return Ok(CutOff { pages, dumps, after, lives: known });
    }
    let (dumps, after, lives) = (Dumps::new(), Vec::new(), Vec::new());
    Ok(CutOff { pages: pages.clone(), dumps, after, lives })
}

/// What is there somewhere in a recovery.
fn cut_recovery(pages: Pages, rng: &mut Rng) -> Result<Pages, String> {
    let medium = Simulated::new(pages, region::Rules::default());
    medium.record(true);
    let opened = Pool::open(medium.clone(), TestHost::new(5), &options(false, false));
    opened.map_err(|error| format!("a recovery that is to be cut: {error:?}"))?;
    medium.record(false);
    Ok(cut_at(&medium, rng))
}

/// What the memory may hold if the power fails at one of the noted points.
fn cut_at(medium: &Simulated, rng: &mut Rng) -> Pages {
    let points = medium.take_points();
    if points.is_empty() {
        return medium.seen();
    }
    let point = &points[rng.below(points.len() as u64) as usize];
    let units = units_of(point, region::Profile::Adr, false);
    let choice: Vec<u16> =
        units.units.iter().map(|unit| rng.below(unit.alternatives.len() as u64) as u16).collect();
    units.image(&point.durable, &choice)
}
