//! How stores reach the memory: which instructions, or `msync`.
//!
//! What this file guarantees: a strategy has one name, which reads back as the
//! same strategy; one that the CPU lacks is never used.

mod detect;
pub(crate) mod summed;
pub(crate) mod x86;

use core::fmt;
use core::str::FromStr;

pub use detect::CpuFeatures;

/// How a whole line is streamed past the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineStore {
    /// `movdir64b`: the line becomes durable in one piece.
    Movdir64b,
    /// One 64-byte `vmovntdq` (AVX-512).
    Avx512,
    /// Four 16-byte `movntdq` (SSE2), which every CPU has.
    Sse2,
}

/// How a line that was stored through the cache is written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteBack {
    /// `clwb`: the line may stay in the cache.
    Clwb,
    /// `clflushopt`: evicts the line.
    Clflushopt,
    /// `clflush`: evicts the line, one after the other. Every CPU has it.
    Clflush,
    /// Nothing: the caches themselves survive a power failure (eADR, GPF).
    None,
}

/// How stores to a region reach the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushStrategy {
    /// Instructions of the CPU, completed by `sfence`.
    Instructions {
        /// For whole lines.
        line_store: LineStore,
        /// For lines stored through the cache.
        write_back: WriteBack,
    },
    /// Ordinary stores; a fence calls `msync` on what they made dirty.
    Msync,
}

/// A text that names no [`FlushStrategy`], [`LineStore`] or [`WriteBack`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownStrategy(String);

impl fmt::Display for UnknownStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no flush strategy is called {:?}: it is \"msync\", or one of movdir64b, avx512, sse2 \
             joined by \"+\" with one of clwb, clflushopt, clflush, none",
            self.0
        )
    }
}

impl core::error::Error for UnknownStrategy {}

impl LineStore {
    /// All of them, best first.
    pub const ALL: [Self; 3] = [Self::Movdir64b, Self::Avx512, Self::Sse2];

    /// How many lines are streamed, which need not be durable in one piece each: `movdir64b` waits for each line to be loaded, and
    /// a register of that size does not.
    #[inline]
    pub(crate) fn of_many(self) -> Self {
        match self {
            Self::Movdir64b if CpuFeatures::get().avx512 => Self::Avx512,
            other => other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Movdir64b => "movdir64b",
            Self::Avx512 => "avx512",
            Self::Sse2 => "sse2",
        }
    }
}

impl WriteBack {
    /// All of them, in the order in which a region that needs one prefers them.
    pub const ALL: [Self; 4] = [Self::Clwb, Self::Clflushopt, Self::Clflush, Self::None];

    fn name(self) -> &'static str {
        match self {
            Self::Clwb => "clwb",
            Self::Clflushopt => "clflushopt",
            Self::Clflush => "clflush",
            Self::None => "none",
        }
    }
}

impl fmt::Display for LineStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for WriteBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for FlushStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instructions { line_store, write_back } => write!(f, "{line_store}+{write_back}"),
            Self::Msync => f.write_str("msync"),
        }
    }
}

impl FromStr for LineStore {
    type Err = UnknownStrategy;
    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| UnknownStrategy(text.to_owned()))
    }
}

impl FromStr for WriteBack {
    type Err = UnknownStrategy;
    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| UnknownStrategy(text.to_owned()))
    }
}

impl FromStr for FlushStrategy {
    type Err = UnknownStrategy;
    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        if text == "msync" {
            return Ok(Self::Msync);
        }
        let unknown = |_| UnknownStrategy(text.to_owned());
        let (line_store, write_back) =
            text.split_once('+').ok_or_else(|| UnknownStrategy(text.to_owned()))?;
        Ok(Self::Instructions {
            line_store: line_store.parse().map_err(unknown)?,
            write_back: write_back.parse().map_err(unknown)?,
        })
    }
}

impl FlushStrategy {
    /// Every strategy that this CPU can carry out, best first, `msync` last.
    pub fn available() -> Vec<Self> {
        let cpu = CpuFeatures::get();
        let mut all = Vec::new();
        for line_store in LineStore::ALL {
            for write_back in WriteBack::ALL {
                all.push(Self::Instructions { line_store, write_back });
            }
        }
        all.push(Self::Msync);
        all.retain(|one| one.missing_on(cpu).is_none());
        all
    }

    /// The best instructions of `cpu`; `caches_survive` says that caches survive a
    /// power failure, so that nothing need be written back.
    pub(crate) fn best(cpu: CpuFeatures, caches_survive: bool) -> Self {
        let line_store = LineStore::ALL.into_iter().find(|&one| cpu.has_line_store(one));
        let write_back = WriteBack::ALL.into_iter().find(|&one| cpu.has_write_back(one));
        Self::Instructions {
            line_store: line_store.unwrap_or(LineStore::Sse2),
            write_back: match write_back {
                Some(one) if !caches_survive => one,
                _ => WriteBack::None,
            },
        }
    }

    /// The instruction of this strategy that `cpu` does not have.
    pub(crate) fn missing_on(self, cpu: CpuFeatures) -> Option<&'static str> {
        match self {
            Self::Msync => None,
            Self::Instructions { line_store, .. } if !cpu.has_line_store(line_store) => {
                Some(line_store.name())
            }
            Self::Instructions { write_back, .. } if !cpu.has_write_back(write_back) => {
                Some(write_back.name())
            }
            Self::Instructions { .. } => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for line_store in LineStore::ALL {
            for write_back in WriteBack::ALL {
                let one = FlushStrategy::Instructions { line_store, write_back };
                assert_eq!(one.to_string().parse(), Ok(one));
            }
        }
        assert_eq!("msync".parse(), Ok(FlushStrategy::Msync));
        for wrong in ["", "+", "sse2", "sse2+", "sse3+clwb", "clwb+sse2", "msync+clwb"] {
            let error = wrong.parse::<FlushStrategy>().unwrap_err();
            assert!(error.to_string().contains("movdir64b"), "{error}");
        }
    }

    #[test]
    fn a_cpu_with_nothing_special_streams_by_sse2_and_flushes_by_clflush() {
        let plain = CpuFeatures::default();
        assert_eq!(FlushStrategy::best(plain, false).to_string(), "sse2+clflush");
        assert_eq!(FlushStrategy::best(plain, true).to_string(), "sse2+none");
        let wish: FlushStrategy = "avx512+clwb".parse().unwrap();
        assert_eq!(wish.missing_on(plain), Some("avx512"));
        let wish: FlushStrategy = "sse2+clwb".parse().unwrap();
        assert_eq!(wish.missing_on(plain), Some("clwb"));
    }
}
