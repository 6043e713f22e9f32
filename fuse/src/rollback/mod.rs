//! Making a mounted pool what it was at a snapshot, when the control socket is asked to: the mount stays.
//!
//! Requests wait while the pool is another one. What the kernel has of before is told from what is now by its
//! numbers (`fs::served`): whatever it asks about that is stale. What it would not ask about it is told: all
//! names are to be looked up again, and what it keeps of inodes is not theirs any more.

mod busy;

use std::collections::BTreeSet;
use std::path::Path;

use lode_engine::{Back, Error, Host};
use lode_pmem::Medium;
use serde_json::{Value, json};

use crate::fs::State;
use crate::fs::served::Served;
use crate::snapshots::{is_read_only, name_in, refused};
use crate::wire::{NodeId, Notices};

/// Lost things that are named: an answer is a line of bounded length.
const NAMED_MAX: usize = 10;

/// Why a pool is not another one, or is none any more.
enum Failed {
    /// The pool refuses.
    Pool(Error),
    /// Of too many in one mount.
    Numbers,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Pool(error)
    }
}

/// The answer to `snapshot-rollback` of the mount of `state` at `point`: nothing, or what is `busy`, where it is not to
/// be done by `force`, or what the snapshot has `lost`: then it is not done at all, because an opening by the logs may meet what ends the
/// server.
///
/// # Errors
/// A sentence for who has asked.
pub fn answer<M: Medium, H: Host>(
    state: &State<M, H>,
    point: &Path,
    notices: &Notices,
    request: &Value,
) -> Result<Value, String> {
    const ENDS: &str = "the server is about to end";
    let name = name_in(request)?;
    if is_read_only(point) {
        return Ok(refused(&Error::ReadOnly));
    }
    let found = state.gate.enter().map_err(|_| ENDS)?.pool.snapshot_id(&name);
    if let Err(error) = found {
        return Ok(refused(&error));
    }
    if request.get("force").and_then(Value::as_bool) != Some(true) {
        let busy = busy::users(point).map_err(|error| format!("looking who uses it: {error}"))?;
        if !busy.is_empty() {
            return Ok(json!({ "busy": busy }));
        }
    }
    // (Before requests wait: whatever comes later is not in the snapshot.)
    let lost = state.gate.enter().map_err(|_| ENDS)?.pool.lost_in_snapshot(&name);
    match lost {
        Ok(lost) if lost.count == 0 => {}
        Ok(lost) => {
            let paths: Vec<&[u8]> =
                lost.named.iter().take(NAMED_MAX).map(|one| one.path.as_slice()).collect();
            return Ok(json!({ "lost": { "paths": paths, "count": lost.count } }));
        }
        Err(error) => return Ok(refused(&error)),
    }
    match roll_back(state, notices, &name) {
        Ok(()) => Ok(json!({})),
        Err(None) => Err(ENDS.into()),
        Err(Some(Failed::Numbers)) => {
            Err("it was done too often in this mount; unmount it, and mount it again".into())
        }
        Err(Some(Failed::Pool(error))) if state.gate.failed() => {
            tracing::error!(%error, "the pool could not be opened again after a rollback");
            Err(format!("the pool could not be opened again: {error}; mount it again"))
        }
        Err(Some(Failed::Pool(error))) => Ok(refused(&error)),
    }
}

fn roll_back<M: Medium, H: Host>(
    state: &State<M, H>,
    notices: &Notices,
    name: &[u8],
) -> Result<(), Option<Failed>> {
    let by_name = !notices.all_names();
    let mut outdated = None;
    let begin = |served: &Served<M, H>| {
        let more = served.more_next().ok_or(Failed::Numbers)?;
        let kept = Outdated::of(served, by_name)?;
        Ok((more, kept, served.pool.begin_rollback(name)?))
    };
    let finish = |served: Served<M, H>, (more, mut kept, back): (u64, Outdated, Back)| {
        let served = served.become_other(more, |pool| pool.finish_rollback(back))?;
        state.scrubs.cut_off();
        state.damage.lost.forget();
        state.snapshots.now();
        if by_name {
            kept.note_names(&served)?;
        }
        if !by_name {
            // While all requests wait: no path that is gone afterwards leads to anything of before.
            notices.all_names();
        }
        outdated = Some(kept);
        Ok(served)
    };
    state.gate.exchange(begin, finish)?;
    if let Some(kept) = outdated {
        kept.tell(notices);
    }
    Ok(())
}

/// What the kernel keeps, or may keep, of what was served before.
struct Outdated {
    nodes: Vec<NodeId>,
    /// Names in the root, where the kernel has to be told of each. Those are enough: what is below has to be looked
    /// up again then, and the inodes that they led to are stale.
    names: Option<BTreeSet<Vec<u8>>>,
}

impl Outdated {
    fn of<M: Medium, H: Host>(served: &Served<M, H>, by_name: bool) -> Result<Self, Error> {
        let mut nodes = vec![NodeId::ROOT];
        served.pins.for_each(|ino| nodes.push(served.node(ino)));
        let mut kept = Self { nodes, names: by_name.then(BTreeSet::new) };
        if by_name {
            kept.note_names(served)?;
        }
        Ok(kept)
    }

    /// Takes in the names that are there: before, the kernel knows them; afterwards, that they are not there.
    fn note_names<M: Medium, H: Host>(&mut self, served: &Served<M, H>) -> Result<(), Error> {
        let Some(names) = &mut self.names else { return Ok(()) };
        served.pool.readdir(served.root, 0, &mut |entry| {
            names.insert(entry.name.to_vec());
            true
        })
    }

    /// Tells the kernel. That may wait for requests, which have to be answered meanwhile.
    fn tell(&self, notices: &Notices) {
        for name in self.names.iter().flatten() {
            notices.name(NodeId::ROOT, name);
        }
        self.nodes.iter().for_each(|node| notices.contents(*node));
    }
}
