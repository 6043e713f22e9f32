//! The way to a state: where the power failed and what was kept, once or several times over.

use std::fmt;
use std::str::FromStr;

use crate::schedule::Schedule;
use crate::states::Choice;

/// One power failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leg {
    /// In what.
    pub stage: Stage,
    /// Number of the operation, from 0; 0 inside a recovery.
    pub step: usize,
    /// Number of the point in it, from 0.
    pub point: usize,
    /// What the memory held afterwards.
    pub choice: Choice,
}

/// What the power fails in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// An operation of the case.
    Operation,
    /// The recovery.
    Recovery,
    /// An operation after the recovery.
    After,
    /// Nothing: a bit flips.
    Bit,
    /// Nothing: `step` lines can't be loaded, from line `point` of the region on.
    Poison,
}

/// Power failures, one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CrashPath {
    /// How two threads took turns.
    pub schedule: Option<Schedule>,
    /// The power failures.
    pub legs: Vec<Leg>,
}

const STAGES: [(Stage, char); 5] = [
    (Stage::Operation, 's'),
    (Stage::Recovery, 'r'),
    (Stage::After, 'a'),
    (Stage::Bit, 'b'),
    (Stage::Poison, 'm'),
];

impl fmt::Display for CrashPath {
    /// `s2p1c1x3.0` (operation 2, point 1, choice 1x3.0), legs between colons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schedule) = &self.schedule {
            write!(f, "t{schedule}")?;
        }
        for (number, leg) in self.legs.iter().enumerate() {
            let letter = STAGES.iter().find(|(stage, _)| *stage == leg.stage);
            let letter = letter.map_or('?', |(_, letter)| *letter);
            let colon = if number > 0 || self.schedule.is_some() { ":" } else { "" };
            write!(f, "{colon}{letter}{}p{}c{}", leg.step, leg.point, leg.choice)?;
        }
        Ok(())
    }
}

impl FromStr for CrashPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (schedule, legs) = match text.strip_prefix('t') {
            Some(rest) => {
                let (schedule, legs) = rest.split_once(':').unwrap_or((rest, ""));
                (Some(schedule.parse()?), legs)
            }
            None => (None, text),
        };
        if schedule.is_some() && legs.is_empty() {
            return Ok(Self { schedule, legs: Vec::new() });
        }
        let legs = legs.split(':').map(leg_of).collect::<Result<_, _>>()?;
        Ok(Self { schedule, legs })
    }
}

fn leg_of(text: &str) -> Result<Leg, String> {
    let bad = || format!("{text:?} is no part of a replay id: it looks like s2p1c1x3.0");
    let stage = STAGES.iter().find(|(_, letter)| text.starts_with(*letter)).ok_or_else(bad)?.0;
    let (step, rest) = text[1..].split_once('p').ok_or_else(bad)?;
    let (point, choice) = rest.split_once('c').ok_or_else(bad)?;
    Ok(Leg {
        stage,
        step: step.parse().map_err(|_| bad())?,
        point: point.parse().map_err(|_| bad())?,
        choice: choice.parse()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_printed_and_read_again() {
        let leg = |stage, step, point, choice: &[u16]| Leg {
            stage,
            step,
            point,
            choice: Choice(choice.to_vec()),
        };
        let legs = vec![
            leg(Stage::Operation, 2, 1, &[1, 1, 0, 5]),
            leg(Stage::Recovery, 0, 3, &[0]),
            leg(Stage::After, 1, 0, &[2]),
        ];
        let path = CrashPath { schedule: None, legs };
        assert_eq!(path.to_string(), "s2p1c1x2.0.5:r0p3c0:a1p0c2");
        assert_eq!(path.to_string().parse(), Ok(path.clone()));
        let path = CrashPath { schedule: Some("0x3.1".parse().unwrap()), ..path };
        assert_eq!(path.to_string(), "t0x3.1:s2p1c1x2.0.5:r0p3c0:a1p0c2");
        assert_eq!(path.to_string().parse(), Ok(path.clone()));
        let bad = CrashPath { schedule: None, legs: vec![leg(Stage::Poison, 8, 40, &[0])] };
        assert_eq!(bad.to_string(), "m8p40c0");
        assert_eq!("m8p40c0".parse(), Ok(bad));
        let path = CrashPath { legs: Vec::new(), ..path };
        assert_eq!(path.to_string().parse(), Ok(path));
        for wrong in ["", "s", "s1p2", "x1p2c3", "s1p2c3:", "s-1p2c3"] {
            assert!(wrong.parse::<CrashPath>().is_err(), "{wrong}");
        }
    }
}
