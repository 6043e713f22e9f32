//! Volumes of a mounted pool: made, listed, resized and deleted when the control socket is asked to.
//!
//! The kernel, which keeps names and sizes, is told of each change. What the pool refuses is an answer of its own, as of
//! snapshots.

use std::path::Path;

use lode_block::{Error, NewVolume, Sector, Settings, VolumeInfo};
use lode_engine::Host;
use lode_pmem::Medium;
use serde_json::{Value, json};

use crate::fs::VIEWS;
use crate::fs::served::Served;
use crate::snapshots::{is_read_only, name_in};
use crate::wire::{NodeId, Notices};

/// The most volumes in an answer, which is a line of bounded length.
const LISTED_MAX: usize = 1000;

/// Answers `volume-create`, `volume-resize`, `volume-delete` and `volumes` of the mount of a pool at `point`; `None` for other
/// requests.
pub fn answer<M: Medium, H: Host>(
    served: &Served<M, H>,
    point: &Path,
    notices: &Notices,
    (op, request): (&str, &Value),
) -> Option<Result<Value, String>> {
    let change = match op {
        "volumes" => {
            let after = request.get("after").is_some().then(|| after_in(request));
            return Some(after.transpose().map(|after| list(served, after.as_deref())));
        }
        "volume-create" => create,
        "volume-resize" => resize,
        "volume-delete" => delete,
        _ => return None,
    };
    Some(name_in(request).and_then(|name| {
        if is_read_only(point) {
            return Ok(refused(&lode_engine::Error::ReadOnly.into()));
        }
        let done = change(served, notices, &name, request)?;
        Ok(done.unwrap_or_else(|error| refused(&error)))
    }))
}

/// What came of a change; or a sentence, where the request makes no sense.
type Changed = Result<Result<Value, Error>, String>;

fn create<M: Medium, H: Host>(
    served: &Served<M, H>,
    notices: &Notices,
    name: &[u8],
    request: &Value,
) -> Changed {
    let sector = request.get("sector").and_then(Value::as_u64).and_then(Sector::of);
    let sector = sector.ok_or("no \"sector\" of 512 or 4096")?;
    let is_thin = request.get("thin").and_then(Value::as_bool).unwrap_or(false);
    let settings = Settings { sector, is_thin };
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let new = NewVolume { bytes: bytes_in(request)?, settings, owner };
    let made = lode_block::create(&served.pool, name, &new);
    if made.is_ok() {
        tell_name(served, notices, name);
    }
    Ok(made.map(|info| json!({ "volume": facts(&info) })))
}

fn resize<M: Medium, H: Host>(
    served: &Served<M, H>,
    notices: &Notices,
    name: &[u8],
    request: &Value,
) -> Changed {
    let may_shrink = request.get("shrink").and_then(Value::as_bool).unwrap_or(false);
    let resized = lode_block::resize(&served.pool, name, bytes_in(request)?, may_shrink, |ino| {
        served.opened.has(ino)
    });
    if let Ok(info) = &resized {
        notices.contents(served.node(info.ino));
    }
    Ok(resized.map(|info| json!({ "volume": facts(&info) })))
}

fn delete<M: Medium, H: Host>(
    served: &Served<M, H>,
    notices: &Notices,
    name: &[u8],
    _: &Value,
) -> Changed {
    let deleted = lode_block::delete(&served.pool, name, |ino| served.opened.has(ino));
    if deleted.is_ok() {
        tell_name(served, notices, name);
    }
    Ok(deleted.map(|()| json!({})))
}

/// Tells the kernel that a name is there now, or is not any more.
fn tell_name<M: Medium, H: Host>(served: &Served<M, H>, notices: &Notices, name: &[u8]) {
    if let Ok(Some(home)) = lode_block::home(&served.pool, served.root) {
        notices.name(served.node(home), name);
        notices.contents(served.node(home));
        // (Which may be the first.)
        notices.contents(NodeId(VIEWS));
    }
}

fn bytes_in(request: &Value) -> Result<u64, String> {
    request.get("bytes").and_then(Value::as_u64).ok_or_else(|| "no \"bytes\"".to_owned())
}

fn after_in(request: &Value) -> Result<Vec<u8>, String> {
    let after = request.get("after").cloned().unwrap_or_default();
    serde_json::from_value(after).map_err(|_| "\"after\" is no name".to_owned())
}

/// Those behind `after`, and whether there are more than fit.
fn list<M: Medium, H: Host>(served: &Served<M, H>, after: Option<&[u8]>) -> Value {
    match lode_block::list(&served.pool) {
        Err(error) => refused(&error),
        Ok(all) => {
            let mut later =
                all.iter().filter(|one| after.is_none_or(|after| one.name.as_slice() > after));
            let listed: Vec<Value> = later.by_ref().take(LISTED_MAX).map(facts).collect();
            json!({ "volumes": listed, "more": later.next().is_some() })
        }
    }
}

fn facts(info: &VolumeInfo) -> Value {
    json!({
        "name": info.name,
        "bytes": info.bytes,
        "allocated_bytes": info.allocated_bytes,
        "sector": info.settings.sector.bytes(),
        "thin": info.settings.is_thin,
    })
}

/// The answer where it is not done: why, as a word of the protocol and as text.
fn refused(error: &Error) -> Value {
    let (reason, bytes) = match error {
        Error::NotFound => ("not_found", None),
        Error::Exists => ("exists", None),
        Error::BadName => ("bad_name", None),
        Error::BadSize { most } => ("bad_size", Some(most)),
        Error::Shrinks { bytes } => ("shrinks", Some(bytes)),
        Error::InUse => ("in_use", None),
        Error::NotAVolume => ("not_a_volume", None),
        Error::Outside { .. } | Error::Pool(_) => ("pool", None),
    };
    let (errno, why) = (error.errno(), error.to_string());
    json!({ "refused": { "errno": errno, "reason": reason, "bytes": bytes, "why": why } })
}
