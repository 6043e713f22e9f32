//! POSIX access control lists, in the form that the kernel hands on as extended attributes.
//!
//! A list that says no more than the permission bits is not kept. With one that is, the bits
//! of owner and others are the list's, and those of the group are its mask: changing either
//! changes both, in one transaction.

use lode_engine::{Error, Result};

/// The list that permissions are checked by.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that new entries of a directory begin with.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;
/// Who has no number of his own.
const NOBODY: u32 = u32::MAX;
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// An entry: whom it is for, and what they may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A list that makes sense: one entry each for owner, group and others; users and groups
/// with numbers, in order; and a mask if there are any of those.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// A list from an attribute's value.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what makes no sense, [`Error::NotSupported`] for another version.
    pub fn parse(value: &[u8]) -> Result<Self> {
        let (version, rest) = value.split_first_chunk::<HEADER>().ok_or(Error::Invalid)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::NotSupported);
        }
        let (entries, left) = rest.as_chunks::<ENTRY>();
        if !left.is_empty() {
            return Err(Error::Invalid);
        }
        let acl = Self(entries.iter().map(Entry::parse).collect());
        if acl.makes_sense() { Ok(acl) } else { Err(Error::Invalid) }
    }

    /// The attribute's value for a list.
    pub fn value(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend(entry.tag.to_le_bytes());
            value.extend(entry.permissions.to_le_bytes());
            value.extend(entry.id.to_le_bytes());
        }
        value
    }

    fn makes_sense(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let named = count(USER) + count(NAMED_GROUP);
        let rising = self.0.is_sorted_by(|one, other| one.order() < other.order());
        let right = self.0.iter().all(|entry| {
            let numbered = matches!(entry.tag, USER | NAMED_GROUP);
            entry.permissions <= 7 && (entry.id == NOBODY) != numbered
        });
        let once = [OWNER, GROUP, OTHER].into_iter().all(|tag| count(tag) == 1);
        let known = 3 + named + count(MASK) == self.0.len();
        rising && right && once && known && (named == 0 || count(MASK) == 1)
    }

    /// Whether the permission bits say all that the list says.
    pub fn is_plain(&self) -> bool {
        self.0.len() == 3
    }

    /// The permission bits that go with the list.
    pub fn bits(&self) -> u32 {
        let group = if self.has(MASK) { MASK } else { GROUP };
        let of = |tag| u32::from(self.permissions(tag));
        of(OWNER) << 6 | of(group) << 3 | of(OTHER)
    }

    /// The list after the permission bits were changed to `bits`.
    pub fn with_bits(mut self, bits: u32) -> Self {
        let group = if self.has(MASK) { MASK } else { GROUP };
        for (tag, shift) in [(OWNER, 6), (group, 3), (OTHER, 0)] {
            self.set(tag, (bits >> shift & 7) as u16);
        }
        self
    }

    /// From the default list of a directory, that of a new entry for which `bits` are asked.
    pub fn for_new(self, bits: u32) -> Self {
        let allowed = self.bits();
        self.with_bits(allowed & bits)
    }

    fn has(&self, tag: u16) -> bool {
        self.0.iter().any(|entry| entry.tag == tag)
    }

    fn permissions(&self, tag: u16) -> u16 {
        self.0.iter().find(|entry| entry.tag == tag).map_or(0, |entry| entry.permissions)
    }

    fn set(&mut self, tag: u16, permissions: u16) {
        for entry in self.0.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = permissions;
        }
    }
}

impl Entry {
    fn parse(bytes: &[u8; ENTRY]) -> Self {
        let [a, b, c, d, e, f, g, h] = *bytes;
        let (tag, permissions) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        let id = match tag {
            USER | NAMED_GROUP => u32::from_le_bytes([e, f, g, h]),
            // Whatever is there says nothing.
            _ => NOBODY,
        };
        Self { tag, permissions, id }
    }

    fn order(&self) -> (u16, u32) {
        (self.tag, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        Acl(entries.iter().map(|&(tag, permissions, id)| Entry { tag, permissions, id }).collect())
    }

    fn plain() -> Acl {
        list(&[(OWNER, 6, NOBODY), (GROUP, 4, NOBODY), (OTHER, 0, NOBODY)])
    }

    fn masked() -> Acl {
        list(&[
            (OWNER, 7, NOBODY),
            (USER, 7, 1000),
            (GROUP, 5, NOBODY),
            (MASK, 6, NOBODY),
            (OTHER, 1, NOBODY),
        ])
    }

    #[test]
    fn a_list_comes_back_as_it_was() {
        for acl in [plain(), masked()] {
            assert_eq!(Acl::parse(&acl.value()), Ok(acl));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let wrong: [&[(u16, u16, u32)]; 8] = [
            &[],
            &[(OWNER, 6, NOBODY), (GROUP, 4, NOBODY)],
            &[(OWNER, 8, NOBODY), (GROUP, 4, NOBODY), (OTHER, 0, NOBODY)],
            &[(GROUP, 4, NOBODY), (OWNER, 6, NOBODY), (OTHER, 0, NOBODY)],
            &[(OWNER, 6, NOBODY), (USER, 6, 5), (GROUP, 4, NOBODY), (OTHER, 0, NOBODY)],
            &[
                (OWNER, 6, NOBODY),
                (USER, 6, 5),
                (USER, 6, 5),
                (GROUP, 4, NOBODY),
                (MASK, 4, NOBODY),
                (OTHER, 0, NOBODY),
            ],
            &[(OWNER, 6, NOBODY), (GROUP, 4, NOBODY), (OTHER, 0, NOBODY), (64, 0, NOBODY)],
            &[(OWNER, 6, NOBODY), (OWNER, 6, NOBODY), (GROUP, 4, NOBODY), (OTHER, 0, NOBODY)],
        ];
        for entries in wrong {
            assert_eq!(Acl::parse(&list(entries).value()), Err(Error::Invalid), "{entries:?}");
        }
        let mut value = plain().value();
        value.push(0);
        assert_eq!(Acl::parse(&value), Err(Error::Invalid));
        value[0] = 1;
        assert_eq!(Acl::parse(&value), Err(Error::NotSupported));
        assert_eq!(Acl::parse(&[2, 0]), Err(Error::Invalid));
    }

    #[test]
    fn bits_are_those_of_the_mask_where_there_is_one() {
        assert_eq!((plain().bits(), masked().bits()), (0o640, 0o761));
        assert!(plain().is_plain() && !masked().is_plain());
    }

    #[test]
    fn a_change_of_mode_changes_the_mask() {
        let changed = masked().with_bits(0o604);
        assert_eq!(changed.bits(), 0o604);
        assert_eq!((changed.permissions(GROUP), changed.permissions(MASK)), (5, 0));
    }

    #[test]
    fn a_new_entry_gets_no_more_than_was_asked_for() {
        assert_eq!(masked().for_new(0o640).bits(), 0o640);
        assert_eq!(masked().for_new(0o777), masked());
    }
}
