//! Recovery steps 4 and 5: which transactions in doubt happened, and whether what
//! a crash can leave is all that is there.

use alloc::vec::Vec;

use super::scan::{Part, Scan};
use crate::layout::Txid;
use crate::{Error, Host, Result, Rule};

/// Judges every transaction in doubt; returns those that did not happen. Anything
/// that no crash explains is noted as damage.
pub(super) fn judge<H: Host>(scan: &mut Scan, host: &H) -> Result<Vec<Txid>> {
    sort_parts(&mut scan.parts)?;
    let mut aborted: Vec<Txid> = Vec::new();
    let mut damage = Vec::new();
    let mut rest = scan.parts.as_slice();
    while let Some(first) = rest.first() {
        let txid = first.header.txid;
        let count = rest.iter().take_while(|part| part.header.txid == txid).count();
        let (group, more) = rest.split_at(count);
        rest = more;
        if let Some(what) = verdict(group, &scan.highest, &mut aborted, host)? {
            damage.push((Error::corrupt_inode(what, first.at, first.ino), first.ino));
        }
    }
    for (error, ino) in damage {
        scan.note(error, ino)?;
    }
    Ok(aborted)
}

/// Sorts lines by transaction and part, by way of their numbers: sorting the lines
/// themselves would take a large frame of the stack.
fn sort_parts(parts: &mut Vec<Part>) -> Result<()> {
    let mut order: Vec<u32> = Vec::new();
    order.try_reserve_exact(parts.len())?;
    order.extend(0..u32::try_from(parts.len()).map_err(|_| Error::NoMemory)?);
    let key = |at: &u32| {
        parts.get(*at as usize).map(|part| (part.header.txid, part.header.part, part.at))
    };
    order.sort_unstable_by_key(key);
    let mut sorted = Vec::new();
    sorted.try_reserve_exact(parts.len())?;
    sorted.extend(order.iter().filter_map(|at| parts.get(*at as usize).copied()));
    *parts = sorted;
    Ok(())
}

/// Judges one transaction by its lines. Returns what is impossible about it, if anything.
fn verdict<H: Host>(
    group: &[Part],
    highest: &[u64],
    aborted: &mut Vec<Txid>,
    host: &H,
) -> Result<Option<&'static str>> {
    let Some(first) = group.first() else { return Ok(None) };
    let (txid, parts) = (first.header.txid, first.header.parts);
    if group.iter().any(|part| part.header.parts != parts) {
        return Ok(Some("lines of one transaction disagree about its parts"));
    }
    let mut distinct = 0;
    let mut last = None;
    // Lines behind a bad line are there, too; behind a lost page header they are not.
    for part in group.iter().filter(|part| !part.in_ruin) {
        if last == Some(part.header.part) {
            return Ok(Some("one part of a transaction is there twice"));
        }
        last = Some(part.header.part);
        distinct += 1;
    }
    if distinct == u32::from(parts) {
        // Then no bad line before one of them is its own.
        let beyond =
            group.iter().any(|part| !part.in_chain) && !host.leaves_out(Rule::FinishedBehind);
        return Ok(beyond.then_some("damaged line before a finished transaction"));
    }
    let is_behind =
        highest.get(usize::from(txid.lane)).is_some_and(|&highest| highest > txid.sequence);
    if is_behind && host.leaves_out(Rule::LaterSequence) {
        return Ok(None);
    }
    let erased = host.leaves_out(Rule::MiddleKept);
    if group.iter().any(|part| part.followed) && !erased {
        return Ok(Some("unfinished transaction in the middle of a log"));
    }
    if is_behind && !erased {
        return Ok(Some("unfinished transaction is not the last of its lane"));
    }
    // (Lines behind a lost page header are no evidence of how far their lane had come.)
    let several = aborted.iter().any(|other| other.lane == txid.lane);
    if several && !host.leaves_out(Rule::OneUnfinished) {
        return Ok(Some("two unfinished transactions of one lane"));
    }
    aborted.try_reserve(1)?;
    aborted.push(txid);
    Ok(None)
}
