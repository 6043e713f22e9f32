//! Recovery steps 7 and 8: what did not happen is erased, then the session is raised.

use lode_pmem::{Line, Medium};

use super::scan::{Part, Scan};
use crate::layout::{LINE, Link, Txid};
use crate::store::Store;
use crate::{Host, Result, Rule};

/// Erases the lines of aborted transactions and the links past the ends of logs, under
/// one fence. A crash in between changes no verdict: only parts already doomed change.
pub(super) fn erase<M: Medium, H: Host>(
    store: &Store<M, H>,
    scan: &Scan,
    aborted: &[Txid],
) -> Result<()> {
    let erased = !store.host.leaves_out(Rule::AbortedErased);
    let is_doomed = |part: &&Part| erased && aborted.contains(&part.header.txid);
    let doomed = || scan.parts.iter().filter(is_doomed);
    let count = doomed().count() as u64;
    if count == 0 && scan.links.is_empty() {
        return Ok(());
    }
    let counters = store.counters();
    let mut window = store.door.window(count * LINE + scan.links.len() as u64 * 8, counters);
    for part in doomed() {
        window.store_line(part.at, &Line::ZERO);
    }
    let cleared = !store.host.leaves_out(Rule::LinksPastEnd);
    for link_at in scan.links.iter().filter(|_| cleared) {
        window.store_word(*link_at, Link::none(&store.seed, *link_at));
    }
    drop(window);
    Ok(store.door.fence(counters)?)
}
