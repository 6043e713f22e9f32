//! The words: what medium is to be emulated, and what one is.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

/// How much slower than this machine's memory the emulated medium is.
///
/// What it changes, per call of the door (see [`crate::RegionOptions::emulate`]):
///
/// * **Loads.** Each takes [`read_ns`](Self::read_ns) more, whether or not the line was in the CPU's
///   cache; one of several lines takes that once, and for each further line a sixteenth of it: so many
///   lines a CPU has under way at once, and a long load gets `16 * 64 / read_ns` bytes a nanosecond.
/// * **Stores.** What was streamed or written back counts, in bytes. A fence returns no earlier than
///   they can have been taken at the bandwidth [`write`](Self::write), from the opening of their
///   window on. The bandwidth is the medium's: all threads of a region share it, and a fence waits
///   for all that was stored before it, by whomever.
/// * **Fences.** Each takes [`fence_ns`](Self::fence_ns) more.
///
/// What it can't change: loads and stores through a mapping that a program has for itself, by
/// [`crate::Mapped::as_ptr`] for instance, take what this machine's memory takes. A load that
/// needs several calls pays for each, though the CPU would have fetched the line once; and a load that the CPU's
/// cache would have answered pays, too. So times are those of a medium that is at least so slow.
///
/// Delays are waited for by looking at the clock, and right to some 10 ns; the processor is busy meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// What a load takes more.
    pub read_ns: u32,
    /// How fast stores are taken; as fast as they come where `None`.
    pub write: Option<Bandwidth>,
    /// What a fence takes more.
    pub fence_ns: u32,
}

/// How fast stores are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bandwidth {
    /// So many millions of bytes a second.
    Megabytes(NonZeroU32),
    /// One part in so many of what this machine's memory takes in, which is measured when the
    /// region is opened (some milliseconds, once in a process).
    PartOfMachine(NonZeroU32),
}

const EIGHTH: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);
const CXL_MEGABYTES: NonZeroU32 = NonZeroU32::MIN.saturating_add(31_999);

impl Profile {
    /// Phase-change memory: loads of 300 ns, an eighth of the machine's bandwidth.
    pub const PCM: Self =
        Self { read_ns: 300, write: Some(Bandwidth::PartOfMachine(EIGHTH)), fence_ns: 0 };
    /// Spin-torque memory: loads of 100 ns, all of the machine's bandwidth.
    pub const STT_RAM: Self = Self { read_ns: 100, write: None, fence_ns: 0 };
    /// A DIMM of DRAM that a capacitor saves to flash: as fast as memory.
    pub const NVDIMM_N: Self = Self { read_ns: 0, write: None, fence_ns: 0 };
    /// Memory behind a CXL link of eight lanes: loads of 220 ns, 32 GB/s.
    pub const CXL: Self =
        Self { read_ns: 220, write: Some(Bandwidth::Megabytes(CXL_MEGABYTES)), fence_ns: 0 };

    /// Those that have a name.
    pub const NAMED: [(&'static str, Self); 4] = [
        ("pcm", Self::PCM),
        ("stt-ram", Self::STT_RAM),
        ("nvdimm-n", Self::NVDIMM_N),
        ("cxl", Self::CXL),
    ];

    /// The name of this profile, if it is one of [`Profile::NAMED`].
    pub fn name(&self) -> Option<&'static str> {
        Self::NAMED.into_iter().find(|(_, profile)| profile == self).map(|(name, _)| name)
    }
}

/// A text that names no [`Profile`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownProfile(String);

impl fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Profile::NAMED.map(|(name, _)| name).join(", ");
        write!(f, "no emulated medium is called {:?}: it is one of {names}", self.0)
    }
}

impl core::error::Error for UnknownProfile {}

impl FromStr for Profile {
    type Err = UnknownProfile;
    fn from_str(text: &str) -> Result<Self, UnknownProfile> {
        let found = Self::NAMED.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, profile)| profile).ok_or_else(|| UnknownProfile(text.to_owned()))
    }
}

/// A text that is no [`Bandwidth`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoBandwidth(String);

impl fmt::Display for NoBandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no bandwidth: GB/s, billions of bytes a second, with at most three decimals, \
             from 0.001 to 1000",
            self.0
        )
    }
}

impl core::error::Error for NoBandwidth {}

/// GB/s, such as `3.1`.
impl FromStr for Bandwidth {
    type Err = NoBandwidth;
    fn from_str(text: &str) -> Result<Self, NoBandwidth> {
        gigabytes(text).map(Self::Megabytes).ok_or_else(|| NoBandwidth(text.to_owned()))
    }
}

fn gigabytes(text: &str) -> Option<NonZeroU32> {
    const MOST: u32 = 1_000_000;
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    let whole: u32 = whole.parse().ok()?;
    let part: u32 = format!("{part:0<3}").parse().ok()?;
    let megabytes = whole.checked_mul(1000)?.checked_add(part)?;
    NonZeroU32::new(megabytes).filter(|megabytes| megabytes.get() <= MOST)
}

/// As it can be read again; a part of the machine's as `1/8 of the machine's`.
impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Megabytes(megabytes) => {
                let (whole, part) = (megabytes.get() / 1000, megabytes.get() % 1000);
                let digits = format!("{whole}.{part:03}");
                f.write_str(digits.trim_end_matches('0').trim_end_matches('.'))
            }
            Self::PartOfMachine(part) => write!(f, "1/{part} of the machine's"),
        }
    }
}

/// What a region emulates: the profile, and what its bandwidth has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Emulated {
    /// What was asked for.
    pub profile: Profile,
    /// How many bytes of stores are taken a second; `None` if as fast as they come.
    pub write_bytes_per_s: Option<u64>,
}

impl Emulated {
    /// The name of the profile, `custom` for one without.
    pub fn name(&self) -> &'static str {
        self.profile.name().unwrap_or("custom")
    }
}

/// As in `pcm (read +300 ns, write 3.1 GB/s, fence +0 ns)`.
impl fmt::Display for Emulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Profile { read_ns, fence_ns, .. } = self.profile;
        write!(f, "{} (read +{read_ns} ns, write ", self.name())?;
        match self.write_bytes_per_s {
            Some(bytes) if bytes < 100_000_000 => write!(f, "{:.3} GB/s", bytes as f64 / 1e9)?,
            Some(bytes) => write!(f, "{:.1} GB/s", bytes as f64 / 1e9)?,
            None => f.write_str("unlimited")?,
        }
        write!(f, ", fence +{fence_ns} ns)")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for (name, profile) in Profile::NAMED {
            assert_eq!(name.parse(), Ok(profile));
            assert_eq!(profile.name(), Some(name));
        }
        assert_eq!(Profile { read_ns: 301, ..Profile::PCM }.name(), None);
        let error = "pram".parse::<Profile>().unwrap_err().to_string();
        assert!(error.contains("\"pram\"") && error.contains("stt-ram, nvdimm-n"), "{error}");
    }

    #[test]
    fn bandwidths_read_back_and_others_are_refused() {
        let all =
            [("0.001", 1), ("3.1", 3100), ("32", 32_000), ("1000", 1_000_000), ("2.05", 2050)];
        for (text, megabytes) in all {
            let bandwidth: Bandwidth = text.parse().unwrap();
            assert_eq!(bandwidth, Bandwidth::Megabytes(NonZeroU32::new(megabytes).unwrap()));
            assert_eq!(bandwidth.to_string(), text);
        }
        assert_eq!("7.0".parse::<Bandwidth>().unwrap().to_string(), "7");
        for wrong in [
            "",
            ".",
            "1.",
            ".5",
            "0",
            "0.000",
            "0.0001",
            "1000.001",
            "-1",
            "+1",
            "1e3",
            "1/8",
            "4294968",
            "99999999999",
            "1.2.3",
            " 1",
            "NaN",
        ] {
            let error = wrong.parse::<Bandwidth>().unwrap_err();
            assert!(error.to_string().contains("GB/s"), "{wrong}: {error}");
        }
    }

    #[test]
    fn what_is_emulated_is_said_in_one_line() {
        let said = |profile, write_bytes_per_s| Emulated { profile, write_bytes_per_s }.to_string();
        assert_eq!(
            said(Profile::PCM, Some(3_120_000_000)),
            "pcm (read +300 ns, write 3.1 GB/s, fence +0 ns)"
        );
        assert_eq!(
            said(Profile { fence_ns: 50, ..Profile::STT_RAM }, None),
            "custom (read +100 ns, write unlimited, fence +50 ns)"
        );
        let slow = said(Profile::PCM, Some(1_000_000));
        assert!(slow.contains("write 0.001 GB/s"), "{slow}");
    }
}
