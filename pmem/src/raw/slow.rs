//! Memory that is slower by a factor (PMBD, section V.C: `rdsx` and `wrsx`).

use core::fmt;
use core::str::FromStr;

use crate::emulation::Clock;

/// How many times as long as on this machine a copy is to take: from 1, which is no slower, to 1000.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slowdown(u16);

const MOST: u16 = 1000;

impl Slowdown {
    /// As fast as it is.
    pub const NONE: Self = Self(1);

    /// So many times as long.
    ///
    /// # Errors
    /// 0, and more than 1000.
    pub fn new(times: u16) -> Result<Self, NoSlowdown> {
        match times {
            1..=MOST => Ok(Self(times)),
            _ => Err(NoSlowdown(times.to_string())),
        }
    }

    /// How many times as long.
    pub fn times(self) -> u16 {
        self.0
    }

    /// Does it, and waits for as long as slower memory would have taken more.
    #[inline]
    pub(super) fn of<R>(self, copy: impl FnOnce() -> R) -> R {
        if self == Self::NONE {
            return copy();
        }
        let clock = Clock::get();
        let begin = clock.now();
        let done = copy();
        let taken = clock.now().saturating_sub(begin);
        clock.wait(begin.saturating_add(taken.saturating_mul(u64::from(self.0))));
        done
    }
}

impl Default for Slowdown {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is no [`Slowdown`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoSlowdown(String);

impl fmt::Display for NoSlowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no factor: a whole number from 1 to {MOST}", self.0)
    }
}

impl core::error::Error for NoSlowdown {}

impl FromStr for Slowdown {
    type Err = NoSlowdown;
    fn from_str(text: &str) -> Result<Self, NoSlowdown> {
        let times = text.parse::<u16>().map_err(|_| NoSlowdown(text.to_owned()))?;
        Self::new(times).map_err(|_| NoSlowdown(text.to_owned()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn factors_are_whole_and_bounded() {
        assert_eq!("10".parse::<Slowdown>().unwrap().times(), 10);
        for wrong in ["0", "1001", "-1", "1.5", ""] {
            assert!(wrong.parse::<Slowdown>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_copy_takes_as_much_longer() {
        let begin = Instant::now();
        Slowdown::new(4).unwrap().of(|| std::thread::sleep(Duration::from_millis(20)));
        let taken = begin.elapsed();
        assert!(taken >= Duration::from_millis(80), "{taken:?}");
    }
}
