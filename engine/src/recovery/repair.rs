//! Recovery step 7: what did not happen is erased.

use lode_pmem::Medium;

use super::scan::Scan;
use crate::layout::{LINE, Link, SEAL_AT};
use crate::store::Store;
use crate::{Host, Result, Rule};

/// Erases what is left behind the ends of logs, whole lines of aborted transactions and torn
/// ones alike, and the links that lead there, under one fence.
///
/// A line is erased by its seal, in one word: at no moment is it another valid line. A crash in
/// between changes no verdict, for only lines that are doomed change.
pub(crate) fn erase<M: Medium, H: Host>(store: &Store<M, H>, scan: &Scan) -> Result<()> {
    let nothing = scan.remains.is_empty() && scan.lifeless.is_empty();
    if nothing && scan.links.is_empty() {
        return Ok(());
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
    Ok(store.door.fence(counters)?)
}
