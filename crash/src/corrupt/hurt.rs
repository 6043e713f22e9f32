//! What damage may cost at a pool's level: nothing else may be refused, lost or wrong.
//!
//! The rules are those of docs/format.md and docs/crash-model.md: a line of metadata is lost where all its copies are hit;
//! what is not unmounted can't tell the loss of a log's last record from a crash; at level `full` a strip of data is lost
//! where neither checksum, or not enough of its page, is left.

use std::collections::HashSet;
use std::ops::Range;

use lode_engine::layout::CrcTable;
use lode_engine::{Ino, Protection};

use super::base::{Base, Left};
use super::damage::{Damage, Form, Phase};
use super::place::{Kind, Line, Place, Txid};
use lode_testkit::Healing;

/// Numbers of inodes in snapshots have the inode's in these bits.
pub(super) const NUMBER: Ino = (1 << 40) - 1;
const LINE: u64 = 64;
const PAGE: u64 = 4096;
/// Kind of the records that say that pages are exempt no more.
const WHOLE: u8 = 17;

/// What may be wrong, and how.
#[derive(Clone, Debug, Default)]
pub(super) struct Hurt {
    /// Bytes that were damaged.
    ranges: Vec<Range<u64>>,
    /// Those of them that can't be loaded, by lines.
    poisoned: Vec<Range<u64>>,
    /// Memory stays bad whatever is stored to it.
    pub(super) stays_bad: bool,
    /// There is room for metadata that can't be loaded in either copy.
    pub(super) bad_room: bool,
    /// Operations were done since, in a session that did not end, and some log is damaged.
    pub(super) undoes_late: bool,
    /// Operations were done since.
    pub(super) later: bool,
    /// Neither superblock is left.
    pub(super) superblocks: bool,
    /// Anything may be unreachable.
    pub(super) general: bool,
    /// Some line of metadata has no good copy.
    pub(super) metadata: bool,
    /// Inodes some of whose metadata is lost.
    inos: HashSet<Ino>,
    /// Inodes whose log may have lost its end unnoticed.
    stale: HashSet<Ino>,
    /// Inodes that are there for snapshots alone, whose log may have lost its end unnoticed.
    shortened: HashSet<Ino>,
    stale_all: bool,
    /// Inodes whose access time may be anything.
    pub(super) atimes: HashSet<Ino>,
    /// Inodes with values in pages that were hit.
    values: HashSet<Ino>,
    /// Symbolic links with targets in pages that were hit.
    targets: HashSet<Ino>,
    /// Nothing but what the level protects whole was hit.
    pub(super) is_mendable: bool,
    /// No copy of data, of values or of targets was hit.
    pub(super) data: bool,
}

/// How the pool is opened after the damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opened {
    /// By its checkpoint, or it is open.
    Closed,
    /// As after a crash.
    Crashed,
}

impl Hurt {
    /// Of damage to a base.
    pub(super) fn of(base: &Base, damage: &Damage, opened: Opened) -> Self {
        let ranges: Vec<Range<u64>> = damage.strokes.iter().map(|one| one.range()).collect();
        let bad = damage.strokes.iter().filter(|one| one.is_poison()).map(|one| one.range());
        let bad = bad.map(|range| range.start / LINE * LINE..range.end.div_ceil(LINE) * LINE);
        let mut hurt = Hurt {
            poisoned: bad.collect(),
            ranges,
            stays_bad: damage.healing == Healing::Never && damage.form == Form::Poison,
            ..Hurt::default()
        };
        let mut bad = hurt.poisoned.iter();
        hurt.bad_room = bad.any(|one| hurt.lost(base, one.start, one.end - one.start));
        hurt.look_at(base, opened);
        if damage.phase != Phase::Rest {
            hurt.look_at_opened(base, opened);
        }
        hurt.is_mendable = !hurt.metadata && !hurt.superblocks;
        hurt
    }

    fn look_at(&mut self, base: &Base, opened: Opened) {
        let lost_checkpoint = [Kind::Checkpoint, Kind::Manifest]
            .iter()
            .flat_map(|kind| base.places.of(*kind))
            .any(|place| self.hits(place.at, place.len));
        let crashed = opened == Opened::Crashed || lost_checkpoint;
        let left = |copy: usize, at| base.superblocks[copy] && !self.hits(at, 512);
        self.superblocks = !left(0, 0) && !left(1, base.last_page());
        let places = base.places.all().filter(|place| self.hits_some(base, place));
        let places: Vec<Place> = places.copied().collect();
        for place in places {
            self.note(base, &place, crashed);
        }
        if crashed {
            self.note_lines(base, &base.places.lines, base.session);
        }
        // (Of an operation that was cut off, too.)
        let mut data = base.sources.values().flatten();
        self.data |= data.any(|(_, at, len)| self.hits(*at, *len));
        // Bytes that a truncation left behind the end of a file are in checksums, too.
        let mut left = base.tails.values().filter(|(_, is_zero)| !is_zero);
        self.data |= left.any(|(behind, _)| self.hits(behind.start, behind.end - behind.start));
    }

    /// The same of records that an opening has stored.
    fn look_at_opened(&mut self, base: &Base, opened: Opened) {
        let Some((places, session)) = &base.opened else { return };
        let crashed = opened == Opened::Crashed;
        let is_record = |kind| matches!(kind, Kind::Record(_) | Kind::LogPage);
        let hit = places.all().filter(|place| is_record(place.kind) && self.hits_some(base, place));
        let hit: Vec<Place> = hit.copied().collect();
        hit.iter().for_each(|place| self.note(base, place, crashed));
        if crashed {
            self.note_lines(base, &places.lines, *session);
        }
    }

    /// Whether a place or its twin is hit.
    fn hits_some(&self, base: &Base, place: &Place) -> bool {
        self.hits(place.at, place.len)
            || place.kind.has_twin()
                && base.twin(place.at).is_some_and(|twin| self.hits(twin, place.len))
    }

    fn note(&mut self, base: &Base, place: &Place, crashed: bool) {
        let is_lost = self.lost(base, place.at, place.len);
        let bad = self.poisons(place.at, place.len);
        match place.kind {
            Kind::Lane | Kind::Table if is_lost => {
                self.metadata = true;
                self.general |= crashed;
                self.stale_all |= crashed && place.kind == Kind::Lane;
            }
            Kind::Identity => {
                let word = place.at + 48;
                if self.hits(word, 8) || base.twin(word).is_some_and(|at| self.hits(at, 8)) {
                    self.atimes.insert(place.ino);
                }
                self.lose(place.ino, is_lost);
            }
            // What has ended is there again, and its pages may be others' by now.
            Kind::Record(5) if crashed && is_lost => (self.metadata, self.general) = (true, true),
            Kind::Record(_) | Kind::LogPage => self.lose(place.ino, is_lost),
            Kind::Tail => self.lose(place.ino, is_lost && bad),
            // (Where the log of an inode ends that is there for a snapshot alone, nothing remembers.)
            Kind::Dead if is_lost => {
                self.lose(place.ino, true);
                self.shortened.insert(place.ino);
            }
            Kind::Slot => self.metadata |= is_lost && (crashed || bad),
            Kind::Value => {
                if !base.strips.are_kept() || self.loses_some(base, place) {
                    self.values.insert(place.ino);
                }
                self.data = true;
            }
            Kind::Target => {
                self.targets.insert(place.ino);
                self.data = true;
            }
            Kind::Data | Kind::Mapped | Kind::Crc | Kind::Parity | Kind::Journal => {
                self.data = true
            }
            _ => {}
        }
    }

    fn lose(&mut self, ino: Ino, is_lost: bool) {
        if is_lost {
            self.inos.insert(ino);
            self.metadata = true;
        }
    }

    /// Lines that are lost take others of their transactions with them. Not missed are the last ones of a log, also in front
    /// of those of one transaction of the session; log pages of which nothing is left, with all that is behind them; and
    /// all of an inode without its identity.
    fn note_lines(&mut self, base: &Base, lines: &[Line], current: u32) {
        let is_lost =
            |line: &&Line| self.lost(base, line.at, LINE) || self.lost(base, line.ino * 512, LINE);
        let left: HashSet<u64> =
            lines.iter().filter(|line| !is_lost(line)).map(|line| line.anchor).collect();
        let (mut ended, mut cut, mut ends) = (HashSet::new(), HashSet::new(), HashSet::new());
        for log in lines.chunk_by(|one, two| one.ino == two.ino) {
            // (A log that is damaged is not read to its end.)
            let first = log.iter().position(|line| is_lost(&line)).unwrap_or(log.len());
            let unread = log.get(first..).unwrap_or(&[]);
            cut.extend(unread.iter().filter_map(|line| line.txid));
            let gone = log
                .iter()
                .position(|line| line.anchor.is_multiple_of(PAGE) && !left.contains(&line.anchor));
            let mut doubted = None;
            let mut from = log.len();
            // (Nobody reads as far as a page behind the last record, where that is lost.)
            let last = log.iter().rposition(|line| line.txid.is_some()).unwrap_or(0);
            for (index, line) in log.iter().enumerate().rev() {
                if is_lost(&line) {
                    from = index;
                    continue;
                } else if index > last {
                    continue;
                }
                if line.txid.is_none_or(|(session, _)| session != current)
                    || doubted.is_some_and(|txid| Some(txid) != line.txid)
                {
                    break;
                } else {
                    doubted = line.txid;
                }
            }
            let from = from.min(gone.unwrap_or(log.len()));
            let lost = log.get(from..).unwrap_or(&[]);
            if let Some(first) = lost.first() {
                ended.insert(first.ino);
                ends.extend(lost.iter().filter_map(|line| line.txid));
            }
        }
        self.metadata |= !cut.is_empty();
        let in_doubt = cut.iter().filter(|(session, _)| *session == current);
        ends.extend(in_doubt.copied().collect::<Vec<Txid>>());
        let of = |txids: &HashSet<Txid>| -> Vec<Ino> {
            let is_of = |line: &&Line| line.txid.is_some_and(|txid| txids.contains(&txid));
            lines.iter().filter(is_of).map(|line| line.ino).collect()
        };
        let (cut, ends) = (of(&cut), of(&ends));
        self.inos.extend(cut);
        // (What a log says again that lost its end may be others' by now.)
        self.general |= !ended.is_empty();
        self.stale.extend(ends);
        self.stale.extend(ended);
    }

    /// Whether some line of these has no copy that was not hit.
    fn lost(&self, base: &Base, at: u64, len: u64) -> bool {
        (at / LINE * LINE..at + len).step_by(LINE as usize).any(|line| {
            self.hits(line, LINE) && base.twin(line).is_none_or(|twin| self.hits(twin, LINE))
        })
    }

    /// Whether what is made in the pool from now on may be unreadable: it lies in bad memory.
    pub(super) fn spoils_metadata(&self) -> bool {
        self.stays_bad || self.bad_room
    }

    /// The same of file data.
    pub(super) fn spoils_data(&self) -> bool {
        !self.poisoned.is_empty()
    }

    /// Whether any of these bytes were damaged.
    pub(super) fn hits(&self, at: u64, len: u64) -> bool {
        self.ranges.iter().any(|range| range.start < at + len && at < range.end)
    }

    fn poisons(&self, at: u64, len: u64) -> bool {
        self.poisoned.iter().any(|range| range.start < at + len && at < range.end)
    }

    /// Whether an inode may be refused.
    pub(super) fn may_refuse(&self, ino: Ino) -> bool {
        self.general || self.inos.contains(&(ino & NUMBER))
    }

    /// Whether an inode may show what it was before its last change.
    pub(super) fn may_be_stale(&self, ino: Ino) -> bool {
        // (In a snapshot it may have ended meanwhile.)
        let ended = self.later && ino > NUMBER && self.inos.contains(&(ino & NUMBER));
        let is_shortened = self.shortened.contains(&(ino & NUMBER));
        self.stale_all || ended || is_shortened || self.stale.contains(&(ino & NUMBER))
    }

    /// Whether an inode may be as if it had never been there. That is so only of a pool that is opened as after a crash, which is
    /// when each of these three is set: what is lost of its beginning can't be told there from what was cut off. Of one that
    /// was closed, or is in use, it is known what there is: live inodes by the checkpoint, those of snapshots by manifests.
    pub(super) fn may_be_gone(&self, ino: Ino) -> bool {
        self.general || self.stale_all || self.stale.contains(&(ino & NUMBER))
    }

    /// Whether any inode may be.
    pub(super) fn may_be_stale_somewhere(&self) -> bool {
        self.stale_all || !self.stale.is_empty() || !self.shortened.is_empty()
    }

    /// Whether values of an inode's extended attributes may be refused.
    pub(super) fn may_refuse_values(&self, ino: Ino) -> bool {
        self.values.contains(&(ino & NUMBER))
    }

    /// Whether a symbolic link's target was hit, or what is kept of it.
    pub(super) fn hits_target(&self, base: &Base, ino: Ino) -> bool {
        let ino = ino & NUMBER;
        let mut targets = base.places.of(Kind::Target).iter().filter(|one| one.ino == ino);
        self.targets.contains(&ino)
            || base.strips.are_kept() && targets.any(|target| self.loses_some(base, target))
    }

    /// Whether the access time of an inode may be anything.
    pub(super) fn hits_atime(&self, ino: Ino) -> bool {
        self.atimes.contains(&(ino & NUMBER))
    }

    /// Whether this byte of a file may be another, as nothing protects it and it was damaged: at level `full` only where
    /// programs had it mapped when the pool was left, until it is opened.
    pub(super) fn may_differ(&self, base: &Base, ino: Ino, offset: u64) -> bool {
        match base.level {
            Protection::Full if self.later || base.exempt_once.is_empty() => false,
            Protection::Full => {
                let is_exempt =
                    |range: &&Range<u64>| self.may_be_exempt(base, ino, range.start / PAGE);
                let pages: Vec<Range<u64>> = self.by_pages();
                let exempt: Vec<Range<u64>> = pages.iter().filter(is_exempt).cloned().collect();
                base.lies_in(ino, offset, &exempt)
            }
            _ => base.lies_in(ino, offset, &self.ranges),
        }
    }

    /// Whether programs had a page of a file mapped when the pool was left; or a recovery that was cut off had said that they
    /// have not, and that was hit where it may be in that copy alone.
    fn may_be_exempt(&self, base: &Base, ino: Ino, page: u64) -> bool {
        if base.exempt.contains(&page) {
            return true;
        }
        let said = [Kind::Record(WHOLE), Kind::Tail, Kind::LogPage];
        let mut said = said.iter().flat_map(|kind| base.places.of(*kind));
        base.left == Left::Recovering
            && base.exempt_once.contains(&(ino, page))
            && said.any(|place| place.ino == ino & NUMBER && self.hits_some(base, place))
    }

    /// The bytes that were damaged, no range of them in more than one page.
    fn by_pages(&self) -> Vec<Range<u64>> {
        let pieces = |range: &Range<u64>| {
            let range = range.clone();
            (range.start / PAGE..range.end.div_ceil(PAGE))
                .map(move |page| range.start.max(page * PAGE)..range.end.min((page + 1) * PAGE))
        };
        self.ranges.iter().flat_map(pieces).collect()
    }

    /// Whether these bytes of a file, within one strip (or line, below level `full`), may be refused.
    pub(super) fn may_refuse_data(&self, base: &Base, ino: Ino, offset: u64, len: u64) -> bool {
        let sources = base.sources.get(&ino).map_or(&[][..], Vec::as_slice);
        let mut pieces = sources.iter().filter_map(|(from, at, bytes)| {
            let (start, end) = (offset.max(*from), (offset + len).min(from + bytes));
            (start < end).then(|| (at + start - from, end - start))
        });
        match base.level {
            Protection::Full => pieces.any(|(at, _)| self.loses_strip(base, ino, at)),
            _ => pieces.any(|(at, len)| self.poisons(at, len)),
        }
    }

    /// The same of any strip of a place that begins with one.
    fn loses_some(&self, base: &Base, place: &Place) -> bool {
        let mut strips = (place.at..place.at + place.len).step_by(base.strips.bytes() as usize);
        strips.any(|at| self.loses_strip(base, place.ino, at))
    }

    /// Whether the strip of an inode that holds this byte of the pool can't be told from a wrong one, or not be rebuilt.
    fn loses_strip(&self, base: &Base, ino: Ino, at: u64) -> bool {
        let (strips, page) = (base.strips, at / PAGE);
        let bytes = strips.bytes();
        let index = at % PAGE / bytes;
        let sum_at = |table| strips.crcs_at(page, table) + index * 4;
        let is_known =
            [CrcTable::First, CrcTable::Second].iter().any(|table| !self.hits(sum_at(*table), 4));
        // (Zeros behind the end are known. Where it is now after more was done is not.)
        let known = base.tails.get(&ino).filter(|(_, is_zero)| *is_zero && !self.later);
        let end = known.map_or(u64::MAX, |(behind, _)| behind.start);
        let end = if end / PAGE == page { end } else { u64::MAX };
        let hits = |index: u64| {
            let strip_at = page * PAGE + index * bytes;
            self.hits(strip_at, bytes.min(end.saturating_sub(strip_at)))
        };
        let strip_at = page * PAGE + index * bytes;
        if !self.later && self.may_be_exempt(base, ino, page) && self.poisons(strip_at, bytes) {
            return true;
        }
        if !hits(index) {
            return !is_known;
        }
        if !self.later && base.may_be_torn(strip_at, bytes) {
            return true;
        }
        let rest_hit = (0..PAGE / bytes).any(|other| other != index && hits(other));
        !is_known || rest_hit || self.hits(strips.parity_at(page), bytes)
    }
}

/// How the base itself is opened.
pub(super) fn opened(left: Left) -> Opened {
    if left == Left::Closed { Opened::Closed } else { Opened::Crashed }
}
