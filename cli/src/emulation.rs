//! Emulated media on command lines and in mount options, and what a command says of them.

use clap::Args;
use lode_pmem::{Bandwidth, Emulated, Profile};
use serde::{Deserialize, Serialize};

use crate::human::Lines;
use crate::words::Words;

const NAMES: Words<Profile> =
    Words { parse: parse_name, words: || vec!["pcm", "stt-ram", "nvdimm-n", "cxl"] };

/// Where help lists them.
const HEADING: &str = "Emulation of slower media, for measuring";

/// The longest delay that can be asked for: a millisecond.
const DELAY_MOST_NS: u32 = 1_000_000;

/// What slower medium is to be emulated. What is said beside a name overrides what the name says; without
/// a name it is a medium of its own.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EmulationArgs {
    /// Take the times of this medium: pcm, stt-ram, nvdimm-n or cxl. Not slowed is what the kernel's
    /// cache answers, and what programs load and store in mappings of their own
    #[arg(long, help_heading = HEADING, value_name = "NAME", value_parser = NAMES, hide_possible_values = true)]
    pub(crate) emulate: Option<Profile>,
    /// What each load takes more, in nanoseconds
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = parse_delay_ns)]
    pub(crate) read_ns: Option<u32>,
    /// How fast stores are taken, in GB/s (billions of bytes a second), by all threads together
    #[arg(long, help_heading = HEADING, value_name = "X", value_parser = parse_gbps)]
    pub(crate) write_gbps: Option<Bandwidth>,
    /// What each fence takes more, in nanoseconds
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = parse_delay_ns)]
    pub(crate) fence_ns: Option<u32>,
}

impl EmulationArgs {
    /// The medium, if one is to be emulated.
    pub(crate) fn profile(&self) -> Option<Profile> {
        if *self == Self::default() {
            return None;
        }
        let named = self.emulate.unwrap_or_default();
        Some(Profile {
            read_ns: self.read_ns.unwrap_or(named.read_ns),
            write: self.write_gbps.or(named.write),
            fence_ns: self.fence_ns.unwrap_or(named.fence_ns),
        })
    }

    /// Both; what `later` says counts.
    pub(crate) fn join(&self, later: &Self) -> Self {
        Self {
            emulate: later.emulate.or(self.emulate),
            read_ns: later.read_ns.or(self.read_ns),
            write_gbps: later.write_gbps.or(self.write_gbps),
            fence_ns: later.fence_ns.or(self.fence_ns),
        }
    }

    /// Takes a mount option `name=value`; false if it is none of these.
    ///
    /// # Errors
    /// A sentence about the value.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "emulate" => self.emulate = Some(parse_name(value)?),
            "read-ns" => self.read_ns = Some(parse_delay_ns(value)?),
            "write-gbps" => self.write_gbps = Some(parse_gbps(value)?),
            "fence-ns" => self.fence_ns = Some(parse_delay_ns(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// As mount options that mean the same.
    pub(crate) fn words(&self) -> Vec<String> {
        let name = self.emulate.and_then(|profile| profile.name());
        let words = [
            name.map(|name| format!("emulate={name}")),
            self.read_ns.map(|ns| format!("read-ns={ns}")),
            self.write_gbps.map(|bandwidth| format!("write-gbps={bandwidth}")),
            self.fence_ns.map(|ns| format!("fence-ns={ns}")),
        ];
        words.into_iter().flatten().collect()
    }
}

fn parse_name(text: &str) -> Result<Profile, String> {
    text.parse().map_err(|error: lode_pmem::UnknownProfile| error.to_string())
}

fn parse_gbps(text: &str) -> Result<Bandwidth, String> {
    text.parse().map_err(|error: lode_pmem::NoBandwidth| error.to_string())
}

fn parse_delay_ns(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(ns) if ns <= DELAY_MOST_NS => Ok(ns),
        _ => Err(format!("{text:?} is no delay: choose 0 to {DELAY_MOST_NS} nanoseconds")),
    }
}

/// What medium a region emulates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct EmulationFacts {
    /// All of it in one line.
    pub(crate) text: String,
    /// The name of the profile, `custom` without.
    pub(crate) profile: String,
    /// What a load takes more.
    pub(crate) read_ns: u32,
    /// How fast stores are taken; `null` for no limit.
    pub(crate) write_bytes_per_s: Option<u64>,
    /// What a fence takes more.
    pub(crate) fence_ns: u32,
}

impl EmulationFacts {
    /// Adds these facts as text.
    pub(crate) fn lines(&self, lines: &mut Lines) {
        lines.add("EMULATED", format!("{}: these are not the times of the medium", self.text));
        lines.add("not slowed", "what the kernel's cache answers, and programs' own mappings");
    }
}

impl From<Emulated> for EmulationFacts {
    fn from(emulated: Emulated) -> Self {
        Self {
            text: emulated.to_string(),
            profile: emulated.name().to_owned(),
            read_ns: emulated.profile.read_ns,
            write_bytes_per_s: emulated.write_bytes_per_s,
            fence_ns: emulated.profile.fence_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[(&str, &str)]) -> EmulationArgs {
        let mut args = EmulationArgs::default();
        for (name, value) in words {
            assert_eq!(args.set(name, value), Ok(true), "{name}");
        }
        args
    }

    #[test]
    fn every_profile_with_a_name_is_offered() {
        assert_eq!(Profile::NAMED.map(|(name, _)| name).to_vec(), (NAMES.words)());
    }

    #[test]
    fn numbers_override_those_of_the_name_and_are_a_medium_without_one() {
        assert_eq!(EmulationArgs::default().profile(), None);
        assert_eq!(args(&[("emulate", "pcm")]).profile(), Some(Profile::PCM));
        let fenced = args(&[("emulate", "pcm"), ("fence-ns", "100")]).profile();
        assert_eq!(fenced, Some(Profile { fence_ns: 100, ..Profile::PCM }));
        let all = [("read-ns", "1"), ("write-gbps", "2.5"), ("fence-ns", "3")];
        let write = "2.5".parse().ok();
        let expected = Profile { read_ns: 1, write, fence_ns: 3 };
        assert_eq!(args(&all).profile(), Some(expected));
        let both = args(&[("emulate", "cxl"), ("read-ns", "9")]).join(&args(&all));
        assert_eq!(both.profile(), Some(expected));
        assert_eq!(args(&[("read-ns", "0")]).profile(), Some(Profile::default()));
    }

    #[test]
    fn wrong_values_are_refused() {
        let mut args = EmulationArgs::default();
        for (name, value) in [
            ("emulate", "optane"),
            ("emulate", ""),
            ("read-ns", "1000001"),
            ("read-ns", "-1"),
            ("read-ns", "1.5"),
            ("fence-ns", "99999999999"),
            ("write-gbps", "0"),
            ("write-gbps", "fast"),
        ] {
            assert!(args.set(name, value).is_err(), "{name}={value}");
        }
        assert_eq!(args.set("reed-ns", "1"), Ok(false));
        assert_eq!(args, EmulationArgs::default());
    }
}
