//! What can be read of a directory whose log is damaged: every line stands for itself.

use alloc::vec::Vec;

use hashbrown::HashMap;
use lode_pmem::Medium;

use crate::inode::Mix;
use crate::layout::{Body, LINE, Parsed, Txid};
use crate::log::{Step, Walk, read_identity};
use crate::store::Store;
use crate::{Error, Host, Ino, Result, mode};

/// Mode and owner of a directory of which these can't be read: root's alone.
pub(super) const UNKNOWN: (u32, u32, u32) = (mode::DIRECTORY | OWNERS_RIGHTS, 0, 0);
/// What is kept of a mode: nobody knows which rights the damaged records took from others.
const OWNERS_RIGHTS: u32 = 0o700;
/// Attributes of a directory that are told by name.
const ATTRIBUTES_MAX: usize = 64;

/// An entry as its record says it.
pub(super) struct Named {
    pub(super) name: Vec<u8>,
    pub(super) child: Ino,
    /// Tag of the child's nonce.
    pub(super) tag: u32,
    /// The child's file type.
    pub(super) kind: u32,
}

/// A directory that is given up.
pub(super) struct Listing {
    pub(super) ino: Ino,
    /// Mode with the owner's rights alone, user and group.
    pub(super) owner: (u32, u32, u32),
    pub(super) entries: Vec<Named>,
    /// Names of extended attributes that can be read. Their values are not kept: without all of them, and
    /// without the rights that go with an access list, they would say what was never so.
    pub(super) attributes: Vec<Vec<u8>>,
}

/// All that was given up.
#[derive(Default)]
pub(super) struct Lost {
    pub(super) inos: Vec<Ino>,
    /// The directories among it.
    pub(super) listings: Vec<Listing>,
}

/// Reads what there is of a directory; `None` if it is none, as far as can be told.
pub(super) fn read_listing<M: Medium, H: Host>(
    store: &Store<M, H>,
    ino: Ino,
) -> Result<Option<Listing>> {
    let records = records(store, ino)?;
    let (mut owner, mut is_directory) = (UNKNOWN, false);
    // Entries by the record that made them, which a later one names to end them.
    let mut made: HashMap<(Txid, u16), usize, Mix> = HashMap::with_hasher(Mix::default());
    let mut entries: Vec<Option<Named>> = Vec::new();
    let mut attributes = Vec::new();
    for (index, (at, parsed)) in records.iter().enumerate() {
        let following = records.get(index + 1..).unwrap_or_default();
        match parsed.body {
            Body::Inode { mode: bits, uid, gid, .. } | Body::Attr { mode: bits, uid, gid, .. } => {
                let bits = u32::from(bits);
                if bits & mode::TYPE != mode::DIRECTORY {
                    return Ok(None);
                }
                owner = (mode::DIRECTORY | bits & OWNERS_RIGHTS, uid, gid);
                is_directory = true;
            }
            Body::Add { name_len, tag, ino: child, kind, head, .. } => {
                is_directory = true;
                let name = text(usize::from(name_len), &head, *at, following)?;
                let Some(name) = name.filter(|name| is_possible(name)) else { continue };
                made.try_reserve(1)?;
                entries.try_reserve(1)?;
                made.insert((parsed.header.txid, parsed.header.part), entries.len());
                entries.push(Some(Named { name, child, tag, kind: u32::from(kind) }));
            }
            Body::Del { txid, part, .. } => {
                is_directory = true;
                let ended = made.get(&(txid, part)).and_then(|at| entries.get_mut(*at));
                ended.into_iter().for_each(|entry| *entry = None);
            }
            Body::Xattr { name_len, .. } | Body::Xdel { name_len, .. } => {
                let name = text(usize::from(name_len), &[], *at, following)?;
                let is_there = matches!(parsed.body, Body::Xattr { .. });
                name.map_or(Ok(()), |name| note_attribute(&mut attributes, name, is_there))?;
            }
            _ => {}
        }
    }
    let entries = last_of_each(entries)?;
    Ok(is_directory.then_some(Listing { ino, owner, entries, attributes }))
}

/// Counts an attribute in, or out.
fn note_attribute(names: &mut Vec<Vec<u8>>, name: Vec<u8>, is_there: bool) -> Result<()> {
    names.retain(|other| *other != name);
    if is_there && names.len() < ATTRIBUTES_MAX {
        names.try_reserve(1)?;
        names.push(name);
    }
    Ok(())
}

/// Whatever the records say: one name, one entry, the last one. Their numbers are sorted:
/// sorting the entries themselves would take a large frame of the stack.
fn last_of_each(mut all: Vec<Option<Named>>) -> Result<Vec<Named>> {
    let name = |at: u32| all.get(at as usize).and_then(|entry| Some(&entry.as_ref()?.name));
    let mut order: Vec<u32> = Vec::new();
    order.try_reserve_exact(all.len())?;
    order.extend(0..u32::try_from(all.len()).map_err(|_| Error::NoMemory)?);
    order.retain(|at| name(*at).is_some());
    order.sort_unstable_by(|one, other| name(*one).cmp(&name(*other)).then(other.cmp(one)));
    order.dedup_by(|later, first| name(*later) == name(*first));
    let mut entries = Vec::new();
    entries.try_reserve_exact(order.len())?;
    entries.extend(order.iter().filter_map(|at| all.get_mut(*at as usize)?.take()));
    Ok(entries)
}

/// A record line and where it is.
type Line = (u64, Parsed);

/// All lines of a log that hold, before the damage and behind it.
fn records<M: Medium, H: Host>(store: &Store<M, H>, ino: Ino) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    let Some((identity, head, _, seal)) = passed_over(read_identity(store, ino))?.flatten() else {
        return Ok(lines);
    };
    let mut walk = Walk::new(store, &identity, head, seal)?;
    while let Some(step) = passed_over(walk.step())? {
        match step {
            Step::Record(found) => {
                lines.try_reserve(1)?;
                lines.push((found.at, found.parsed));
            }
            Step::Page { .. } => {}
            Step::End => break,
        }
    }
    let mut places: Vec<(u64, lode_pmem::Line)> = Vec::new();
    let mut room = Ok(());
    let beyond = walk.beyond(&mut |beyond| {
        if room.is_ok() && !store.aborted.contains(&beyond.header().txid) {
            room = places.try_reserve(1);
            if room.is_ok() {
                places.push((beyond.at, beyond.line));
            }
        }
    });
    passed_over(beyond)?;
    room?;
    for (at, line) in places {
        if let Ok(parsed) = Parsed::parse(&line) {
            lines.try_reserve(1)?;
            lines.push((at, parsed));
        }
    }
    Ok(lines)
}

/// Damage is why this is done: it is none to stop at.
fn passed_over<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Corrupt(_) | Error::Media { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `len` bytes of the text of a record at `at` that begins with `head`, where all of it follows.
fn text(len: usize, head: &[u8], at: u64, following: &[Line]) -> Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    text.try_reserve_exact(len)?;
    text.extend(head.iter().take(len));
    let mut next = at;
    let mut following = following.iter();
    while text.len() < len {
        next += LINE;
        match following.next() {
            Some((place, Parsed { body: Body::Text { len: more, bytes }, .. }))
                if *place == next =>
            {
                let more = usize::from(*more).min(len - text.len());
                text.extend(bytes.iter().take(more));
                if more == 0 {
                    return Ok(None);
                }
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(text))
}

/// Whether an entry may have this name.
fn is_possible(name: &[u8]) -> bool {
    let is_special = name.is_empty() || name == b"." || name == b"..";
    !is_special && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}
