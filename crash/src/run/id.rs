//! Names of cases and of states, short enough to be typed.

use std::fmt;
use std::str::FromStr;

use crate::explore::CrashPath;
use crate::region::Profile;

/// A collection of cases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Set {
    /// Sequences where crash bugs of file systems have been.
    Hard,
    /// Every operation and argument shape alone.
    Seq1,
    /// Every pair.
    Seq2,
    /// Two threads.
    Pairs,
    /// Random sequences.
    Random,
    /// A bit flips.
    Bits,
    /// A file of the user's.
    Script,
}

impl Set {
    /// All of them.
    pub const ALL: [Set; 7] =
        [Set::Hard, Set::Seq1, Set::Seq2, Set::Pairs, Set::Random, Set::Bits, Set::Script];

    /// Its name in ids.
    pub fn name(self) -> &'static str {
        match self {
            Set::Hard => "hard",
            Set::Seq1 => "seq1",
            Set::Seq2 => "seq2",
            Set::Pairs => "pair",
            Set::Random => "random",
            Set::Bits => "bits",
            Set::Script => "script",
        }
    }
}

/// A case, a profile and a seed: what [`crate::run::run_batch`] does in one piece.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId {
    /// The collection.
    pub set: Set,
    /// The case's number in it.
    pub number: usize,
    /// What a crash is.
    pub profile: Profile,
    /// The CPU streams lines in one piece.
    pub whole_lines: bool,
    /// Decides everything random.
    pub seed: u64,
}

/// A state: a job, and the way to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayId {
    /// The job.
    pub job: JobId,
    /// The way.
    pub path: CrashPath,
}

impl fmt::Display for JobId {
    /// `seq1-37:adr:1`; `adr+` where lines are streamed in one piece.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.whole_lines { "+" } else { "" };
        let JobId { set, number, profile, seed, .. } = self;
        write!(f, "{}-{number}:{profile}{whole}:{seed}", set.name())
    }
}

impl fmt::Display for ReplayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job)?;
        if self.path == CrashPath::default() { Ok(()) } else { write!(f, ":{}", self.path) }
    }
}

impl FromStr for ReplayId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "{text:?} is no replay id: it looks like seq1-37:adr:1:s1p1c1, as a failure prints it"
            )
        };
        let mut pieces = text.splitn(4, ':');
        let (set, number) = pieces.next().and_then(|one| one.split_once('-')).ok_or_else(bad)?;
        let set = Set::ALL.into_iter().find(|one| one.name() == set).ok_or_else(bad)?;
        let number = number.parse().map_err(|_| bad())?;
        let profile = pieces.next().ok_or_else(bad)?;
        let whole = profile.strip_suffix('+');
        let (whole_lines, profile) = (whole.is_some(), whole.unwrap_or(profile).parse()?);
        if whole_lines && profile != Profile::Adr {
            return Err(bad());
        }
        let seed = pieces.next().and_then(|seed| seed.parse().ok()).ok_or_else(bad)?;
        let path = match pieces.next() {
            Some(path) => path.parse()?,
            None => CrashPath::default(),
        };
        Ok(Self { job: JobId { set, number, profile, whole_lines, seed }, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_printed_and_read_again() {
        for text in ["seq1-37:adr:1", "pair-0:eadr:77:s2p1c1x2.0.5:r0p3c0", "hard-3:adr+:2:s0p0c0"]
        {
            let id: ReplayId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
        }
        for wrong in [
            "",
            "seq1",
            "seq1-x:adr:1",
            "seq9-1:adr:1",
            "seq1-1:pdr:1",
            "seq1-1:adr:x",
            "seq1-1:eadr+:1",
            "seq1-1:adr++:1",
        ] {
            assert!(wrong.parse::<ReplayId>().is_err(), "{wrong}");
        }
    }
}
