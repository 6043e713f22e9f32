//! Sectors that somebody stamps with versions, what each of them may hold, and what is wrong with one.
//!
//! Three things are known of each sector: the newest version of which the writing has begun, the newest one that was answered, and
//! the newest one that was promised to be durable: by an answer to a write with FUA at once, else by one to a FLUSH that was
//! asked for after the write was answered. Who has begun a version of a sector begins no other one before that is answered.

use crate::rng::Rng;

/// Bytes of a stamp before those that follow from it: the sector's number, the version.
const HEAD: usize = 16;
/// Bytes that are stored in one.
const WORD: usize = 8;

/// What a device has of a sector that is written when the power fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// All of one version, which is not older than the newest one that was answered.
    Whole,
    /// Words of several versions, none of which is older than that.
    Words,
    /// Words of several versions, none of which is older than the newest one that was promised.
    PromisedWords,
}

/// Versions of a sector; 0 is that of zeros.
#[derive(Clone, Copy, Default, Debug)]
struct Versions {
    begun: u32,
    answered: u32,
    promised: u32,
}

/// What a FLUSH is to promise: sectors, and their versions.
#[derive(Debug)]
#[must_use = "it promises nothing before it is answered"]
pub struct Flush(Vec<(u64, u32)>);

/// Sectors, and what each may hold.
#[derive(Debug)]
pub struct Stamps {
    sector: usize,
    versions: Vec<Versions>,
    /// What was answered after the last FLUSH was asked for.
    unpromised: Vec<(u64, u32)>,
}

impl Stamps {
    /// So many sectors of so many bytes, of zeros.
    pub fn new(sector: usize, count: usize) -> Self {
        let versions = vec![Versions::default(); count];
        Self { sector, versions, unpromised: Vec::new() }
    }

    /// How many sectors.
    pub fn count(&self) -> u64 {
        self.versions.len() as u64
    }

    /// The newest version of a sector of which the writing has begun.
    pub fn begun(&self, number: u64) -> u32 {
        self.versions[number as usize].begun
    }

    /// The newest version of a sector that was promised.
    pub fn promised(&self, number: u64) -> u32 {
        self.versions[number as usize].promised
    }

    /// The bytes of a sector: its number, a version, and what follows from both.
    pub fn stamped(&self, number: u64, version: u32) -> Vec<u8> {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend(u64::from(version).to_le_bytes());
        let mut rng = Rng::new(number << 32 | u64::from(version));
        while bytes.len() < self.sector {
            bytes.extend(rng.bits().to_le_bytes());
        }
        bytes
    }

    /// A version of a sector is about to be written: it may be there from now on.
    pub fn begin(&mut self, number: u64, version: u32) {
        let begun = &mut self.versions[number as usize].begun;
        *begun = version.max(*begun);
    }

    /// A version was answered: with FUA it is promised, without by the next FLUSH.
    pub fn answer(&mut self, number: u64, version: u32, fua: bool) {
        let versions = &mut self.versions[number as usize];
        versions.answered = version.max(versions.answered);
        if fua {
            versions.promised = version.max(versions.promised);
        } else {
            self.unpromised.push((number, version));
        }
    }

    /// A FLUSH is about to be asked for.
    pub fn flush(&mut self) -> Flush {
        Flush(std::mem::take(&mut self.unpromised))
    }

    /// It was answered.
    pub fn flushed(&mut self, Flush(what): Flush) {
        for (number, version) in what {
            let promised = &mut self.versions[number as usize].promised;
            *promised = version.max(*promised);
        }
    }

    /// Judges what a sector holds after a crash, and says its version. From then on it has that.
    ///
    /// # Errors
    /// What is wrong with it, and which promise is broken.
    pub fn found(&mut self, number: u64, bytes: &[u8]) -> Result<u32, String> {
        let Versions { begun, answered, promised } = self.versions[number as usize];
        let version = self.whole_version(number, bytes).ok_or_else(|| {
            let head = bytes.get(..HEAD).unwrap_or(bytes);
            format!("sector {number} is torn, or another one's: {head:x?}")
        })?;
        let wrong = if version > begun {
            Some(format!("{begun} was the last that had begun"))
        } else if version < promised {
            Some(format!("{promised} was promised by FUA or FLUSH"))
        } else if version < answered {
            Some(format!("{answered} was answered, if neither by FUA nor before a FLUSH"))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Err(format!("sector {number} has version {version}, but {wrong}"));
        }
        self.set(number, version);
        Ok(version)
    }

    /// Judges what a sector of such a device holds after a crash, and says its version; `None` where it has several.
    ///
    /// # Errors
    /// As of [`Stamps::found`].
    pub fn found_on(
        &mut self,
        kept: Kept,
        number: u64,
        bytes: &[u8],
    ) -> Result<Option<u32>, String> {
        let Versions { begun, answered, promised } = self.versions[number as usize];
        let oldest = match kept {
            Kept::Whole => return self.found(number, bytes).map(Some),
            Kept::Words => answered,
            Kept::PromisedWords => promised,
        };
        if let Some(version) =
            self.whole_version(number, bytes).filter(|it| (oldest..=begun).contains(it))
        {
            self.set(number, version);
            return Ok(Some(version));
        }
        let legal: Vec<Vec<u8>> =
            (oldest..=begun).map(|version| self.bytes_of(number, version)).collect();
        let words = bytes.chunks(WORD).enumerate();
        let is_of = |at: usize, word: &[u8]| {
            legal.iter().any(|whole| whole.get(at * WORD..(at + 1) * WORD) == Some(word))
        };
        match words.clone().find(|(at, word)| !is_of(*at, word)) {
            None => Ok(None),
            Some((at, word)) => Err(format!(
                "word {at} of sector {number} is {word:x?}, of none of its versions from {oldest}, which may not be missing, to {begun}"
            )),
        }
    }

    /// The bytes of a version, be it that of zeros.
    fn bytes_of(&self, number: u64, version: u32) -> Vec<u8> {
        if version == 0 { vec![0; self.sector] } else { self.stamped(number, version) }
    }

    /// A sector is known to have this version now, durably.
    pub fn set(&mut self, number: u64, version: u32) {
        let begun = version.max(self.versions[number as usize].begun);
        self.versions[number as usize] = Versions { begun, answered: version, promised: version };
        self.unpromised.retain(|(other, _)| *other != number);
    }

    /// The version of a sector, if it is whole.
    fn whole_version(&self, number: u64, bytes: &[u8]) -> Option<u32> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(0);
        }
        let head: &[u8; HEAD] = bytes.first_chunk()?;
        let version = u32::from_le_bytes(*head[8..].first_chunk()?);
        (self.stamped(number, version) == bytes).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(stamps: &Stamps, versions: std::ops::Range<u32>) -> Vec<u32> {
        let legal = |version: &u32| {
            let bytes = match version {
                0 => vec![0; 512],
                version => stamps.stamped(1, *version),
            };
            let mut fresh = Stamps::new(512, 4);
            fresh.versions.copy_from_slice(&stamps.versions);
            fresh.found(1, &bytes).is_ok()
        };
        versions.filter(legal).collect()
    }

    #[test]
    fn what_may_be_there_is_not_older_than_promised_and_answered_and_not_newer_than_begun() {
        let mut stamps = Stamps::new(512, 4);
        assert_eq!(versions(&stamps, 0..9), [0]);
        stamps.begin(1, 2);
        stamps.begin(1, 3);
        assert_eq!(versions(&stamps, 0..9), [0, 1, 2, 3]);
        stamps.answer(1, 2, false);
        assert_eq!(versions(&stamps, 0..9), [2, 3]);
        stamps.set(1, 3);
        assert_eq!(versions(&stamps, 0..9), [3]);
    }

    #[test]
    fn fua_promises_at_once_and_a_flush_what_was_answered_before_it_was_asked_for() {
        let mut stamps = Stamps::new(512, 4);
        (1..=5).for_each(|version| stamps.begin(1, version));
        stamps.answer(1, 1, false);
        assert_eq!(stamps.promised(1), 0);
        let flush = stamps.flush();
        stamps.answer(1, 2, false);
        assert_eq!(stamps.promised(1), 0);
        stamps.flushed(flush);
        assert_eq!(stamps.promised(1), 1);
        stamps.answer(1, 3, true);
        assert_eq!(stamps.promised(1), 3);
        let flush = stamps.flush();
        stamps.flushed(flush);
        assert_eq!(stamps.promised(1), 3);
        let broken = |stamps: &mut Stamps, version| {
            let bytes = stamps.stamped(1, version);
            stamps.found(1, &bytes).unwrap_err()
        };
        assert!(broken(&mut stamps, 2).contains("3 was promised"));
        stamps.answer(1, 4, false);
        assert!(broken(&mut stamps, 3).contains("4 was answered"));
        assert!(broken(&mut stamps, 6).contains("5 was the last that had begun"));
    }

    #[test]
    fn a_sector_may_have_words_of_several_versions_where_the_device_says_so() {
        let mut stamps = Stamps::new(512, 4);
        (1..=4).for_each(|version| stamps.begin(1, version));
        stamps.answer(1, 1, true);
        stamps.answer(1, 2, false);
        fn mixed(stamps: &Stamps, (old, new): (u32, u32)) -> Vec<u8> {
            let (mut old, new) = (stamps.bytes_of(1, old), stamps.bytes_of(1, new));
            old[24..200].copy_from_slice(&new[24..200]);
            old
        }
        fn judged(stamps: &mut Stamps, kept: Kept, versions: (u32, u32)) -> Option<Option<u32>> {
            let bytes = mixed(stamps, versions);
            stamps.found_on(kept, 1, &bytes).ok()
        }
        assert_eq!(judged(&mut stamps, Kept::Whole, (2, 3)), None);
        assert_eq!(judged(&mut stamps, Kept::Words, (2, 4)), Some(None));
        assert_eq!(judged(&mut stamps, Kept::Words, (4, 3)), Some(None));
        assert_eq!(judged(&mut stamps, Kept::Words, (1, 3)), None, "2 was answered");
        assert_eq!(judged(&mut stamps, Kept::Words, (2, 5)), None, "5 has not begun");
        assert_eq!(judged(&mut stamps, Kept::PromisedWords, (1, 3)), Some(None));
        assert_eq!(judged(&mut stamps, Kept::PromisedWords, (0, 3)), None, "1 was promised");
        let mut torn = mixed(&stamps, (2, 3));
        torn[101] ^= 1;
        assert!(stamps.found_on(Kept::PromisedWords, 1, &torn).is_err(), "a word is torn");
        assert_eq!(judged(&mut stamps, Kept::Words, (3, 3)), Some(Some(3)));
        assert_eq!(judged(&mut stamps, Kept::PromisedWords, (2, 2)), None, "3 was there");
    }

    #[test]
    fn a_sector_of_two_stamps_or_of_another_one_is_found_out() {
        let mut stamps = Stamps::new(512, 4);
        stamps.begin(1, 2);
        let (old, new) = (stamps.stamped(1, 1), stamps.stamped(1, 2));
        for at in [8, 9, 16, 100, 511] {
            let torn = [&new[..at], &old[at..]].concat();
            assert_eq!(stamps.found(1, &torn).is_err(), torn != old && torn != new, "{at}");
            assert!(stamps.found(1, &[&new[..at], &vec![0; 512 - at]].concat()).is_err());
        }
        let other = stamps.stamped(2, 2);
        assert!(stamps.found(1, &other).is_err());
        assert_eq!(stamps.found(1, &new), Ok(2));
        assert!(stamps.found(1, &old).is_err());
    }
}
