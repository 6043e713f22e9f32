//! Which part of the engine code belongs to, by the file that it stands in.

/// What time goes into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Data, to the medium or from it.
    Copy,
    /// Waiting for the medium.
    Fences,
    /// Pages and inode slots, taken and given back.
    Allocation,
    /// Finding and changing what is known in memory, names on the medium being read for it.
    Index,
    /// Making, sealing, checking and storing the lines of logs.
    Record,
    /// Checksums and parity of file data.
    Checksums,
    /// Second copies of lines.
    SecondCopies,
    /// All else.
    Rest,
}

impl Part {
    /// All of them, in the order they are told.
    pub const ALL: [Self; 8] = [
        Self::Copy,
        Self::Fences,
        Self::Allocation,
        Self::Index,
        Self::Record,
        Self::Checksums,
        Self::SecondCopies,
        Self::Rest,
    ];

    /// What samples of it are marked by.
    #[inline(always)]
    pub const fn mark(self) -> u8 {
        self as u8 + 1
    }
}

/// Code by where it stands: what comes first counts.
const PLACES: [(&str, Part); 17] = [
    ("engine/src/integrity/", Part::Checksums),
    ("engine/src/store/twins.rs", Part::SecondCopies),
    ("engine/src/space/", Part::Allocation),
    ("engine/src/store/space.rs", Part::Allocation),
    ("engine/src/store/table.rs", Part::Allocation),
    ("engine/src/index/", Part::Index),
    ("engine/src/inode/cache.rs", Part::Index),
    ("engine/src/inode/names.rs", Part::Index),
    ("engine/src/inode/state.rs", Part::Index),
    ("engine/src/layout/", Part::Record),
    ("engine/src/log/", Part::Record),
    ("engine/src/store/tx.rs", Part::Record),
    ("engine/src/store/lanes.rs", Part::Record),
    ("engine/src/", Part::Rest),
    // (What it has to compute there is parity.)
    ("pmem/src/medium.rs", Part::Checksums),
    ("pmem/src/crc32c/wide.rs", Part::Checksums),
    ("pmem/src/crc32c/", Part::Record),
];

/// The part that a source file belongs to, if it is one of ours that tells.
fn part_of(file: &str) -> Option<Part> {
    PLACES.iter().find(|(place, _)| file.contains(place)).map(|(_, part)| *part)
}

/// The function that computes checksums of strips, four at a time, where registers are not wide: it stands beside the
/// one that computes those of lines.
const FOUR: &str = "crc32c::x86::four";

/// The part that the instruction at `pointer` belongs to: that of the innermost function, inlined
/// ones too, that stands in a file that tells.
pub fn part_at(pointer: usize) -> Part {
    let mut found = None;
    backtrace::resolve(pointer as *mut _, |symbol| {
        if found.is_none() {
            found = symbol.filename().and_then(|file| part_of(&file.to_string_lossy()));
            let four = || symbol.name().is_some_and(|name| name.to_string().contains(FOUR));
            if found == Some(Part::Record) && four() {
                found = Some(Part::Checksums);
            }
        }
    });
    found.unwrap_or(Part::Rest)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn files_belong_to_parts_and_are_there() {
        assert_eq!(part_of("/home/x/lode/engine/src/space/magazine.rs"), Some(Part::Allocation));
        assert_eq!(part_of("engine/src/index/sorted.rs"), Some(Part::Index));
        assert_eq!(part_of("engine/src/store/tx.rs"), Some(Part::Record));
        assert_eq!(part_of("engine/src/file/whole.rs"), Some(Part::Rest));
        assert_eq!(part_of("/rustc/abc/library/core/src/slice/mod.rs"), None);
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for (place, _) in PLACES {
            assert!(workspace.join(place).exists(), "{place} is not there any more");
        }
    }

    #[test]
    fn an_address_in_the_engine_is_told_by_its_line() {
        let seal = lode_pmem::crc32c as fn(u32, &[u8]) -> u32 as usize;
        // (Behind the first instruction, as the pointer of a sample is.)
        assert_eq!(part_at(seal + 4), Part::Record);
        assert_eq!(part_at(8), Part::Rest);
    }

    #[test]
    fn marks_are_those_of_the_parts() {
        for (number, part) in Part::ALL.iter().enumerate() {
            assert_eq!((*part as usize, usize::from(part.mark())), (number, number + 1));
        }
        assert!(Part::ALL.len() < super::super::sampler::MARKS);
    }
}
