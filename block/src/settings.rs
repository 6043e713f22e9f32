//! What a volume is told to be: text in an extended attribute of its file.
//!
//! Guarantees: what is read is what was written, or nothing; who changes the attribute by hand makes the file no volume, never
//! one with impossible sectors.

/// Name of the attribute.
pub const XATTR: &[u8] = b"user.lode.volume";

const SECTOR: &str = "sector=";
const THIN: &str = "thin";

/// Bytes that are written wholly or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sector {
    /// 512.
    Small,
    /// 4096.
    #[default]
    Large,
}

impl Sector {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// How many bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Small => 512,
            Self::Large => 4096,
        }
    }

    /// Whether so many bytes are whole ones. (It is a power of two.)
    #[inline]
    pub const fn divides(self, bytes: u64) -> bool {
        bytes & (self.bytes() - 1) == 0
    }

    /// The one of so many bytes.
    pub fn of(bytes: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|sector| sector.bytes() == bytes)
    }
}

/// What a volume is told to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Its sectors.
    pub sector: Sector,
    /// It takes pages only when they are written; what is discarded gives them back.
    pub is_thin: bool,
}

impl Settings {
    /// As text.
    pub fn text(&self) -> String {
        let thin = if self.is_thin { format!(" {THIN}") } else { String::new() };
        format!("{SECTOR}{}{thin}", self.sector.bytes())
    }

    /// From text; `None` if it is none of these.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(text).ok()?;
        let mut words = text.split(' ');
        let sector = words.next()?.strip_prefix(SECTOR)?.parse().ok()?;
        let sector = Sector::of(sector)?;
        let is_thin = match words.next() {
            None => false,
            Some(THIN) => true,
            Some(_) => return None,
        };
        let settings = Self { sector, is_thin };
        // (Numbers can be written in more than one way.)
        (settings.text() == text).then_some(settings)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for sector in Sector::ALL {
            for is_thin in [false, true] {
                let settings = Settings { sector, is_thin };
                assert_eq!(Settings::parse(settings.text().as_bytes()), Some(settings));
            }
        }
        let wrong = [
            "",
            "sector=",
            "sector=1024",
            "sector=0512",
            "sector=+512",
            "sector=512 ",
            " sector=512",
        ];
        for text in wrong.into_iter().chain([
            "sector=512  thin",
            "sector=512 thin thin",
            "thin",
            "sector=512\0",
        ]) {
            assert_eq!(Settings::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_settings_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(settings) = Settings::parse(&bytes) {
                let text = settings.text().into_bytes();
                prop_assert_eq!(text, bytes);
            }
        }
    }
}
