//! What is damaged, how, and when: drawn by a seed.

use std::ops::Range;

use lode_testkit::Healing;
use lode_testkit::rng::Rng;

use super::base::Base;
use super::place::{Kind, Place};

/// What damage does to bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Form {
    /// Some bits flip.
    Flip,
    /// Lines are zero.
    Zero,
    /// A run of 1 byte to 2 MiB holds something else.
    Scribble,
    /// Lines can't be loaded any more.
    Poison,
}

/// Which copies of something are damaged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Copies {
    /// The first, or the only one.
    Primary,
    /// The second.
    Replica,
    /// Both. Of file data at level `full`: the data and its parity.
    Both,
}

/// When damage comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Nobody has the pool open.
    Rest,
    /// It is in use.
    Running,
    /// It is being opened after a crash, or that was cut off.
    Recovery,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 4] = [Form::Flip, Form::Zero, Form::Scribble, Form::Poison];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Flip => "flip",
            Form::Zero => "zero",
            Form::Scribble => "scribble",
            Form::Poison => "poison",
        }
    }
}

impl Copies {
    /// All of them.
    pub const ALL: [Copies; 3] = [Copies::Primary, Copies::Replica, Copies::Both];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Copies::Primary => "primary",
            Copies::Replica => "replica",
            Copies::Both => "both",
        }
    }
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 3] = [Phase::Rest, Phase::Running, Phase::Recovery];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Rest => "rest",
            Phase::Running => "running",
            Phase::Recovery => "recovery",
        }
    }
}

/// What a scribble leaves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fill {
    Zeros,
    Ones,
    /// Bytes that follow from a seed.
    Random(u64),
    /// What is at this offset.
    Elsewhere(u64),
}

/// Damage to one run of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stroke {
    Flip { at: u64, bits: u8 },
    Bytes { at: u64, len: u64, fill: Fill },
    Poison { at: u64, len: u64 },
}

impl Stroke {
    /// The bytes that may be wrong.
    pub(super) fn range(&self) -> Range<u64> {
        match *self {
            Stroke::Flip { at, .. } => at..at + 1,
            Stroke::Bytes { at, len, .. } | Stroke::Poison { at, len } => at..at + len,
        }
    }

    pub(super) fn is_poison(&self) -> bool {
        matches!(self, Stroke::Poison { .. })
    }
}

/// All of one injection.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    pub(super) kind: Kind,
    pub(super) copies: Copies,
    pub(super) form: Form,
    pub(super) phase: Phase,
    pub(super) healing: Healing,
    pub(super) strokes: Vec<Stroke>,
}

/// The longest scribble, in powers of two of its bytes.
const SCRIBBLE_LOG2: u64 = 21;

impl Damage {
    /// Draws one.
    pub(super) fn draw(base: &Base, rng: &mut Rng) -> Self {
        let kinds: Vec<Kind> = base.places.kinds();
        let kind = rng.pick(&kinds);
        let place = rng.pick(base.places.of(kind));
        let line = place.at + rng.below(place.len.div_ceil(64)) * 64;
        let target = line..(line + 64).min(place.at + place.len);
        let other = other_copy(base, &place, &target);
        let copies = match other {
            None => Copies::Primary,
            Some(_) => rng.pick(&Copies::ALL),
        };
        let form = rng.pick(&Form::ALL);
        let healing = if rng.once_in(4) { Healing::Never } else { Healing::ByLines };
        let mut strokes = Vec::new();
        let places = match (copies, other) {
            (Copies::Replica, Some(other)) => vec![other],
            (Copies::Both, Some(other)) => vec![target, other],
            _ => vec![target],
        };
        // (Two that are long would meet.)
        let most = if places.len() > 1 { 12 } else { SCRIBBLE_LOG2 };
        for place in places {
            stroke(base, form, place, most, rng, &mut strokes);
        }
        Self { kind, copies, form, phase: base.phase(rng), healing, strokes }
    }

    /// One word a stroke, for who looks at a failure.
    pub(super) fn story(&self) -> String {
        let mut text = format!(
            "{} of {} ({}), {}",
            self.form.name(),
            self.kind.name(),
            self.copies.name(),
            self.phase.name()
        );
        for stroke in &self.strokes {
            let range = stroke.range();
            text += &format!("; {} bytes at {:#x}", range.end - range.start, range.start);
            match stroke {
                Stroke::Flip { bits, .. } => text += &format!(": bits {bits:#04x}"),
                Stroke::Bytes { fill, .. } => text += &format!(": {fill:x?}"),
                Stroke::Poison { .. } => text += &format!(": poison, {:?}", self.healing),
            }
        }
        text
    }
}

/// Where the other copy of these bytes is.
fn other_copy(base: &Base, place: &Place, target: &Range<u64>) -> Option<Range<u64>> {
    let moved = |at: u64| at..at + (target.end - target.start);
    match place.kind {
        Kind::Superblock => Some(moved(base.last_page() + target.start)),
        Kind::Crc => Some(moved(target.start + base.strips.apart())),
        Kind::Data if base.strips.are_kept() => {
            let strip = base.strips.bytes();
            let parity = base.strips.parity_at(target.start / 4096);
            Some(moved(parity + target.start % 4096 % strip))
        }
        kind if kind.has_twin() => base.twin(target.start).map(moved),
        _ => None,
    }
}

fn stroke(
    base: &Base,
    form: Form,
    place: Range<u64>,
    most_log2: u64,
    rng: &mut Rng,
    strokes: &mut Vec<Stroke>,
) {
    let within = |rng: &mut Rng| place.start + rng.below(place.end - place.start);
    match form {
        Form::Flip => {
            for _ in 0..1 + rng.below(3) {
                strokes.push(Stroke::Flip { at: within(rng), bits: 1 << rng.below(8) });
            }
        }
        Form::Zero => {
            let lines = if rng.once_in(2) { 1 } else { 1 + rng.below(8) };
            let at = place.start - place.start % 64;
            let len = (lines * 64).min(base.bytes - at);
            strokes.push(Stroke::Bytes { at, len, fill: Fill::Zeros });
        }
        Form::Scribble => {
            let log2 = rng.below(most_log2 + 1);
            let len = ((1 << log2) - rng.below((1u64 << log2).div_ceil(2))).min(base.bytes);
            let at = within(rng).saturating_sub(rng.below(len)).min(base.bytes - len);
            let fill = match rng.below(4) {
                0 => Fill::Zeros,
                1 => Fill::Ones,
                2 => Fill::Random(rng.bits()),
                _ => Fill::Elsewhere(rng.below((base.bytes - len) / 64 + 1) * 64),
            };
            strokes.push(Stroke::Bytes { at, len, fill });
        }
        Form::Poison => {
            let len = rng.pick(&[64, 512, 4096]);
            strokes.push(Stroke::Poison { at: place.start / len * len, len });
        }
    }
}
