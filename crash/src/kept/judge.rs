//! Whether a heap that a crash has left is right.

use lode_kept::{Content, Error, Heap, Memory};

use super::Ground;
use super::ground::Lies;
use super::run::{Known, Loose, WORDS, open};
use crate::region::Simulated;

/// What a heap may have.
pub(super) struct Allowed<'k> {
    /// Before the step and behind it; one where it is done.
    pub(super) known: &'k [&'k Known],
    pub(super) loose: Loose,
}

/// Opens what is in a memory, and judges it.
pub(super) fn judge(
    ground: Ground,
    medium: &Simulated,
    allowed: &Allowed<'_>,
) -> Result<(), String> {
    let mut heap = match open(ground, medium.clone()) {
        Ok(heap) => heap,
        Err(Error::NotAHeap) if allowed.known.iter().any(|known| !known.exists) => return Ok(()),
        Err(error) => return Err(format!("the heap does not open: {error:?}")),
    };
    let found = is_allowed(&heap, allowed)?;
    go_on(&mut heap, found)?;
    drop(heap);
    // What was done since is as durable to who opens it next.
    let again = open(ground, medium.clone()).map_err(|error| format!("opened twice: {error:?}"))?;
    is_allowed(&again, allowed).map(|_| ()).map_err(|what| format!("opened twice: {what}"))
}

fn is_allowed<'k>(heap: &Heap<Lies>, allowed: &Allowed<'k>) -> Result<&'k Known, String> {
    let mut wrong = String::new();
    for known in allowed.known {
        match is(heap, known, allowed) {
            Ok(()) => return Ok(known),
            Err(what) => wrong = format!("{wrong}; {what}"),
        }
    }
    Err(format!("neither before nor after{wrong}"))
}

/// Whether a heap has what is known.
fn is(heap: &Heap<Lies>, known: &Known, allowed: &Allowed<'_>) -> Result<(), String> {
    if !known.exists {
        return Err("there is a heap".to_owned());
    }
    let word = |at| {
        let mut word = [0; 8];
        let loaded = heap.memory().load(at, &mut word);
        loaded.map(|()| u64::from_le_bytes(word)).map_err(|error| format!("{error:?}"))
    };
    let found: Vec<u64> = heap.blocks().map(|block| block.offset).collect();
    let wanted: Vec<u64> = known.blocks.keys().copied().collect();
    if found != wanted {
        return Err(format!("blocks {found:x?}, wanted {wanted:x?}"));
    }
    let root = heap.root().map_err(|error| format!("{error:?}"))?;
    if root != known.root {
        return Err(format!("root {root:#x}, wanted {:#x}", known.root));
    }
    for place in (0..WORDS).filter(|_| root != 0) {
        let (found, wanted) = (word(root + 8 * place)?, known.words.get(&place));
        let other = |known: &&Known| known.words.get(&place).copied().unwrap_or_default() == found;
        let is_loose = allowed.loose == Loose::Words && allowed.known.iter().any(other);
        if found != wanted.copied().unwrap_or_default() && !is_loose {
            return Err(format!("word {place} is {found:#x}, wanted {wanted:x?}"));
        }
    }
    for (at, (bytes, fill)) in &known.blocks {
        let block = heap.block(*at).map_err(|error| format!("{error:?}"))?;
        let mut held = vec![0; *bytes as usize];
        heap.memory().load(*at, &mut held).map_err(|error| format!("{error:?}"))?;
        let is_loose = allowed.loose == Loose::Content(*at) && allowed.known.len() > 1;
        let other = fill.and_then(|fill| held.iter().position(|byte| *byte != fill));
        if let Some(other) = other.filter(|_| !is_loose) {
            return Err(format!("byte {other} of block {at:#x} is {:#x}", held[other]));
        }
        if block.bytes < *bytes {
            return Err(format!("block {at:#x} has {} bytes, wanted {bytes}", block.bytes));
        }
    }
    Ok(())
}

/// What was found can be used: a block of each kind comes and goes.
fn go_on(heap: &mut Heap<Lies>, known: &Known) -> Result<(), String> {
    let place = if known.root == 0 { lode_kept::ROOT } else { known.root + 8 * (WORDS - 1) };
    for bytes in [40, 5000] {
        let apart = |at: u64| {
            let mut others = known.blocks.iter();
            others.all(|(other, (len, _))| at + bytes <= *other || other + len <= at)
        };
        match heap.alloc_into(place, bytes, Content::Zeros) {
            Ok(at) if apart(at) => {}
            Ok(at) => return Err(format!("a new block at {at:#x} is another's, too")),
            Err(Error::Memory(_)) => continue,
            Err(error) => return Err(format!("{bytes} bytes can't be had: {error:?}")),
        }
        heap.free_from(place).map_err(|error| format!("a block can't be freed: {error:?}"))?;
    }
    Ok(())
}
