//! Snapshots of a mounted pool: made, listed and deleted when the control socket is asked to.
//!
//! What the pool refuses is an answer of its own, with the error number: who asks tells its user what to do.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use lode_engine::{Error, Host, Pool, SnapshotInfo};
use lode_pmem::Medium;
use rustix::mount::MountFlags;
use serde_json::{Value, json};

use crate::mountpoint;

/// The most snapshots in an answer, which is a line of bounded length.
const LISTED_MAX: usize = 1000;

/// When the list of snapshots last changed, in nanoseconds since 1970: never the same twice.
pub struct Changed(AtomicI64);

impl Default for Changed {
    fn default() -> Self {
        Self(AtomicI64::new(lode_host::now_ns()))
    }
}

impl Changed {
    /// When it was.
    pub fn ns(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// It is now.
    pub fn now(&self) {
        let now = lode_host::now_ns();
        // (The closure always gives a value, so there is no error.)
        let _ = self.0.fetch_update(Relaxed, Relaxed, |last| Some(now.max(last.saturating_add(1))));
    }
}

/// Answers `snapshot-create`, `snapshot-delete` and `snapshots` of the mount of a pool at `point`; `None` for
/// other requests. Notes when the list was `changed`.
pub fn answer<M: Medium, H: Host>(
    pool: &Pool<M, H>,
    changed: &Changed,
    point: &Path,
    (op, request): (&str, &Value),
) -> Option<Result<Value, String>> {
    let change = |change: &dyn Fn(&[u8]) -> lode_engine::Result<()>| {
        let name = name_in(request)?;
        let done = if is_read_only(point) { Err(Error::ReadOnly) } else { change(&name) };
        changed.now();
        Ok(done.map_or_else(|error| refused(&error), |()| json!({})))
    };
    match op {
        "snapshot-create" => Some(change(&|name| pool.create_snapshot(name))),
        "snapshot-delete" => Some(change(&|name| pool.delete_snapshot(name))),
        "snapshots" => {
            let after = request.get("after").and_then(Value::as_u64).unwrap_or(0);
            let all = pool.snapshots();
            Some(Ok(all.map_or_else(|error| refused(&error), |all| list(&all, after))))
        }
        _ => None,
    }
}

/// The name of the snapshot that a request is about.
///
/// # Errors
/// A sentence, where there is none.
pub fn name_in(request: &Value) -> Result<Vec<u8>, String> {
    let name = request.get("name").cloned().unwrap_or_default();
    serde_json::from_value(name).map_err(|_| "no \"name\"".to_owned())
}

/// Whether the kernel lets no changes through.
pub fn is_read_only(point: &Path) -> bool {
    let mount = mountpoint::mounted_at(point).ok().flatten();
    mount.is_some_and(|mount| mount.flags.contains(MountFlags::RDONLY))
}

/// The answer where the pool refuses.
pub fn refused(error: &Error) -> Value {
    json!({ "refused": { "errno": error.errno(), "why": error.to_string() } })
}

/// Those whose epoch is later than `after`, and whether there are more than fit.
fn list(all: &[SnapshotInfo], after: u64) -> Value {
    let mut later = all.iter().filter(|one| u64::from(one.epoch) > after);
    let one = |info: &SnapshotInfo| {
        json!({
            "name": info.name,
            "epoch": info.epoch,
            "created_ns": info.created_ns,
            "pages": info.pages,
            "pages_alone": info.pages_alone,
        })
    };
    let listed: Vec<Value> = later.by_ref().take(LISTED_MAX).map(one).collect();
    json!({ "snapshots": listed, "more": later.next().is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(epoch: u32) -> SnapshotInfo {
        SnapshotInfo {
            name: vec![0xff; 128],
            epoch,
            created_ns: i64::MAX,
            pages: 1,
            pages_alone: 1,
        }
    }

    #[test]
    fn a_long_list_comes_in_lines_of_bounded_length() {
        let all: Vec<SnapshotInfo> = (1..=LISTED_MAX as u32 + 1).map(info).collect();
        let first = list(&all, 0);
        assert!(first["more"] == true && first.to_string().len() < crate::control::MAX_LINE);
        let last = first["snapshots"].as_array().unwrap().last().unwrap()["epoch"].as_u64();
        let second = list(&all, last.unwrap());
        assert_eq!(
            (second["snapshots"].as_array().unwrap().len(), &second["more"]),
            (1, &false.into())
        );
    }

    #[test]
    fn no_two_changes_have_one_time() {
        let changed = Changed::default();
        let mut last = changed.ns();
        for _ in 0..1000 {
            changed.now();
            assert!(changed.ns() > last);
            last = changed.ns();
        }
    }
}
