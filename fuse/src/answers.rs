//! What a mount says of itself on its control socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use lode_engine::{AccessTimes, Host, PageClass};
use lode_pmem::Medium;
use serde_json::{Map, Value, json};

use crate::control::listener::{Answers, accept};
use crate::fs::{MAX_WRITE, State};
use crate::options::MountOptions;
use crate::paths;
use crate::send::Sends;
use crate::snapshots::{self, is_read_only};
use crate::stats;

/// Answers about the mount of `state` at `point`, whose requests come by io_uring where there are
/// queues of CPUs.
pub fn answers<M: Medium + 'static, H: Host>(
    state: Arc<State<M, H>>,
    point: PathBuf,
    options: MountOptions,
    queues: Option<usize>,
) -> Answers {
    let (mounted, sends) = (Instant::now(), Sends::default());
    Box::new(move |op, request| {
        if state.gate.failed() {
            return Some(Err("a request failed inside the server; mount the pool again".into()));
        }
        match op {
            "ping" => Some(Ok(accept(op, json!({ "pid": std::process::id() })))),
            "stats" => {
                let stats = stats::stats(&state, mounted.elapsed(), options.scrub_period);
                Some(stats.map(|stats| accept(op, stats)))
            }
            "wear" => Some(stats::wear(state.pool.wear(), request).map(|wear| accept(op, wear))),
            "scrub" => Some(state.scrubs.answer(&state, request).map(|step| accept(op, step))),
            "send" => Some(sends.answer(&state, request).map(|piece| accept(op, piece))),
            "paths" => Some(paths::answer(&state, request).map(|paths| accept(op, paths))),
            #[cfg(feature = "inject")]
            "poison" => {
                let poisoned = crate::inject::poison(&state.pool, request);
                Some(poisoned.map(|values| accept(op, values)))
            }
            "info" => Some(info(&state).map(|info| {
                let mut mount = mount(&point, &options, queues);
                mount.extend(info);
                accept(op, Value::Object(mount))
            })),
            _ => {
                let answer = snapshots::answer(&state, &point, (op, request));
                answer.map(|values| values.map(|values| accept(op, values)))
            }
        }
    })
}

fn mount(
    point: &std::path::Path,
    options: &MountOptions,
    queues: Option<usize>,
) -> Map<String, Value> {
    let values = json!({
        "pool": options.pool.to_string_lossy(),
        "mount": point.to_string_lossy(),
        "pid": std::process::id(),
        "read_only": options.read_only || is_read_only(point),
        "opened_read_only": options.read_only,
        "noatime": options.atime == AccessTimes::Never,
        "max_write": MAX_WRITE,
        "threads": queues.map_or_else(|| options.server_threads(), |queues| queues + 1),
        "io_uring": queues.is_some(),
        "region": options.region,
    });
    match values {
        Value::Object(values) => values,
        _ => Map::new(),
    }
}

fn info<M: Medium, H: Host>(state: &State<M, H>) -> Result<Map<String, Value>, String> {
    let info = state.pool.info().map_err(|error| error.to_string())?;
    let bad = state.pool.bad_memory().map_err(|error| error.to_string())?;
    let (opening, space) = (state.pool.opening(), state.pool.space());
    let damage: Vec<Value> = opening
        .damage
        .iter()
        .map(|damage| json!({ "what": damage.what, "at": damage.at, "ino": damage.ino }))
        .collect();
    let uuid: String = info.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let values = json!({
        "info": {
            "uuid": hyphenated(&uuid),
            "label": String::from_utf8_lossy(&info.label),
            "version": info.version,
            "bytes": info.bytes,
            "lanes": info.lanes,
            "protection": info.protection.name(),
            "dead_zone": info.dead_zone,
            "strip_bytes": info.strip_bytes,
            "page_class": page_class(info.page_class),
            "session": info.session,
            "epoch": info.epoch,
            "created_ns": info.created_ns,
            "clean": info.clean,
            "features": {
                "compatible": info.features[0],
                "read_only_compatible": info.features[1],
                "incompatible": info.features[2],
            },
        },
        "opening": {
            "clean": opening.clean,
            "inodes": opening.inodes,
            "log_pages": opening.log_pages,
            "aborted": opening.aborted,
            "orphans": opening.orphans,
            "superblock_repaired": opening.superblock_repaired,
            "tables_repaired": !opening.chain_damage.is_empty(),
            "checkpoint_damaged": opening.checkpoint_damage.is_some(),
            "damage": damage,
        },
        "statfs": stats::space(&space),
        "bad_memory": stats::bad_memory(&bad),
    });
    match values {
        Value::Object(values) => Ok(values),
        _ => Err("nothing is known of the pool".into()),
    }
}

/// 32 hexadecimal digits in the groups of a UUID.
fn hyphenated(digits: &str) -> String {
    let cuts = [0..8, 8..12, 12..16, 16..20, 20..32];
    let groups: Vec<&str> = cuts.into_iter().filter_map(|cut| digits.get(cut)).collect();
    groups.join("-")
}

fn page_class(class: PageClass) -> &'static str {
    match class {
        PageClass::Small => "4K",
        PageClass::Huge => "2M",
        PageClass::Giant => "1G",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn uuids_have_their_groups() {
        let digits = "0123456789abcdef0123456789abcdef";
        assert_eq!(super::hyphenated(digits), "01234567-89ab-cdef-0123-456789abcdef");
    }
}
