//! What a mount says of itself on its control socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use lode_engine::{AccessTimes, Host, PageClass};
use lode_pmem::Medium;
use serde_json::{Map, Value, json};

use crate::control::listener::accept;
use crate::fs::served::Served;
use crate::fs::{MAX_WRITE, State};
use crate::options::MountOptions;
use crate::paths;
use crate::rollback;
use crate::snapshots::{self, is_read_only};
use crate::stats;
use crate::volumes;
use crate::wire::Notices;

/// Who answers about a mount.
pub struct Desk<M: Medium, H: Host> {
    state: Arc<State<M, H>>,
    point: PathBuf,
    options: MountOptions,
    /// Queues of CPUs, where requests come by io_uring.
    queues: Option<usize>,
    mounted: Instant,
    notices: Notices,
}

impl<M: Medium + 'static, H: Host> Desk<M, H> {
    /// Answers about the mount of `state` at `point`, whose requests come by io_uring where there are
    /// queues of CPUs. The kernel hears by `notices` what it does not know.
    pub fn new(
        state: Arc<State<M, H>>,
        point: PathBuf,
        options: MountOptions,
        queues: Option<usize>,
        notices: Notices,
    ) -> Self {
        Self { state, point, options, queues, mounted: Instant::now(), notices }
    }

    /// Answers a request of the control socket; `None` for one that is not known.
    pub fn answer(&self, op: &str, request: &Value) -> Option<Result<Value, String>> {
        let state = &self.state;
        if state.gate.failed() {
            return Some(Err("a request failed inside the server; mount the pool again".into()));
        }
        let answer = match op {
            "ping" => Ok(json!({ "pid": std::process::id() })),
            "paths" => paths::answer(state, request),
            // (Who waits for the pool with a session is told all the same.)
            "heap-stats" => state.lending.answer(),
            "snapshot-rollback" => rollback::answer(state, &self.point, &self.notices, request),
            _ => match state.gate.enter() {
                Ok(pass) => self.answer_inside(&pass, op, request)?,
                // Not while the pool is being closed.
                Err(_) => Err("the server is about to end".into()),
            },
        };
        Some(answer.map(|values| accept(op, values)))
    }

    /// Answers who is inside already, about what it works on.
    ///
    /// # Errors
    /// A sentence for who has asked.
    pub fn ask(&self, served: &Served<M, H>, request: &Value) -> Result<Value, String> {
        let op = request.get("op").and_then(Value::as_str).unwrap_or_default();
        let answer = self.answer_inside(served, op, request);
        answer.unwrap_or_else(|| Err("unknown op".into())).map(|values| accept(op, values))
    }

    fn answer_inside(
        &self,
        served: &Served<M, H>,
        op: &str,
        request: &Value,
    ) -> Option<Result<Value, String>> {
        let (state, options) = (&self.state, &self.options);
        Some(match op {
            "stats" => stats::stats(state, served, self.mounted.elapsed(), options.scrub_period),
            "wear" => stats::wear(served.pool.wear(), request),
            "scrub" => state.scrubs.answer(&served.pool, &state.damage, request),
            "send" => served.sends.answer(&served.pool, request),
            #[cfg(feature = "inject")]
            "poison" => crate::inject::poison(&served.pool, request),
            "info" => info(served).map(|info| {
                let mut mount = mount(&self.point, options, self.queues);
                mount.extend(info);
                Value::Object(mount)
            }),
            _ => {
                let changed = &state.snapshots;
                let of_snapshots =
                    snapshots::answer(&served.pool, changed, &self.point, (op, request));
                return of_snapshots.or_else(|| {
                    volumes::answer(served, &self.point, &self.notices, (op, request))
                });
            }
        })
    }
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

fn info<M: Medium, H: Host>(served: &Served<M, H>) -> Result<Map<String, Value>, String> {
    let pool = &served.pool;
    let info = pool.info().map_err(|error| error.to_string())?;
    let bad = pool.bad_memory().map_err(|error| error.to_string())?;
    let (opening, space) = (pool.opening(), pool.space());
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
            "exempt_pages": opening.exempt_pages,
            "losses": opening.losses,
            "superblock_repaired": !opening.superblock_damage.is_empty(),
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
