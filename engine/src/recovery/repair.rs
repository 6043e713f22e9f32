//! Recovery step 7: what did not happen is erased, and copies that a crash left different are the same again.

use lode_pmem::Medium;

use super::scan::Scan;
use crate::layout::{LINE, Link, SEAL_AT};
use crate::store::{Store, repair_locator};
use crate::{Host, Result, Rule};

/// Steps 7 and 8, what is mended and what is erased under one fence. The session is raised behind that: from then on
/// all that is found has happened. So of a transaction that happened no part may be in one copy alone (or be left of one that
/// did not): were that copy lost later, the other parts would be taken for all of it.
#[inline(never)]
pub(super) fn settle<M: Medium, H: Host>(
    store: &mut Store<M, H>,
    scan: &Scan,
    raise: &dyn Fn(&Store<M, H>) -> Result<()>,
) -> Result<()> {
    let too_late = store.host.leaves_out(Rule::EraseBeforeRaise);
    repair_locator(store)?;
    let differing = store.end_comparing(!store.host.leaves_out(Rule::TwinsMended));
    store.aborted.clear();
    store.mend_watermarks();
    let erased = !too_late && start_erasing(store, scan)?;
    fence(store, erased || !differing.is_empty())?;
    raise(store)?;
    if too_late { erase(store, scan) } else { Ok(()) }
}

/// Erases what is left of what did not happen, under one fence.
pub(crate) fn erase<M: Medium, H: Host>(store: &Store<M, H>, scan: &Scan) -> Result<()> {
    fence(store, start_erasing(store, scan)?)
}

/// Makes durable what was stored, if anything was.
fn fence<M: Medium, H: Host>(store: &Store<M, H>, any: bool) -> Result<()> {
    if any {
        store.door.fence(store.counters())?;
    }
    Ok(())
}

/// Erases what is left behind the ends of logs, whole lines of aborted transactions and torn
/// ones alike, and the links that lead there. Says whether there was anything: the caller fences.
///
/// A line is erased by its seal, in one word: at no moment is it another valid line. A crash in
/// between changes no verdict, for only lines that are doomed change.
fn start_erasing<M: Medium, H: Host>(store: &Store<M, H>, scan: &Scan) -> Result<bool> {
    let nothing = scan.remains.is_empty() && scan.lifeless.is_empty();
    if nothing && scan.links.is_empty() {
        return Ok(false);
    }
    let counters = store.counters();
    let erased = !store.host.leaves_out(Rule::AbortedErased);
    let remains = scan.remains.iter().chain(&scan.lifeless);
    for (at, lines) in remains.filter(|_| erased) {
        let mut window = store.door.window(u64::from(*lines) * 16, counters);
        for line in 0..u64::from(*lines) {
            let seal_at = at + line * LINE + SEAL_AT;
            if !store.is_word(seal_at, 0)? {
                store.store_word(&mut window, seal_at, 0);
            }
        }
    }
    let cleared = !store.host.leaves_out(Rule::LinksPastEnd);
    for link_at in scan.links.iter().filter(|_| cleared) {
        let mut window = store.door.window(16, counters);
        store.store_word(&mut window, *link_at, Link::none(&store.seed, *link_at));
    }
    Ok(true)
}
