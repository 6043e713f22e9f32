//! Paths of inodes, as one sees them in the mount.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use lode_engine::{Error, Host, Ino, Pool};
use lode_pmem::Medium;
use serde_json::{Value, json};

use crate::fs::served::Served;
use crate::fs::{SNAPSHOTS_PATH, State};

/// The most inodes whose paths are asked for at once.
const ASKED_MAX: usize = 100;
/// Directories that are looked through before the pool may be closed.
const STEP: usize = 16;

/// A path of each of these inodes, from the root of the mount, with a slash in front; none of those that have none, nor any that is not found while
/// `goes_on` says so. It may look through the whole tree: nothing for who holds something.
pub fn find<M: Medium, H: Host>(
    state: &State<M, H>,
    inos: &[Ino],
    goes_on: &mut dyn FnMut() -> bool,
) -> BTreeMap<Ino, String> {
    search(state, inos, goes_on).unwrap_or_default()
}

fn search<M: Medium, H: Host>(
    state: &State<M, H>,
    inos: &[Ino],
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<BTreeMap<Ino, String>, Error> {
    let mut paths = BTreeMap::new();
    let Ok(pass) = state.gate.enter() else { return Ok(paths) };
    let mut search = pass.pool.begin_paths(inos)?;
    drop(pass);
    while goes_on() {
        let Ok(pass) = state.gate.enter() else { break };
        if !pass.pool.search_paths(&mut search, STEP)? {
            break;
        }
    }
    let Ok(pass) = state.gate.enter() else { return Ok(paths) };
    let Served { pool, root, .. } = &*pass;
    // (Who mounts a snapshot may hear of files of the pool as it is now.)
    let mut roots = BTreeMap::from([*root, pool.root()].map(|root| (root, String::new())));
    for (ino, path) in search.into_found() {
        let root = pool.root_of(ino);
        if let Some(root) = root_path(pool, &mut roots, root) {
            paths.insert(ino, format!("{root}/{}", String::from_utf8_lossy(&path)));
        }
    }
    Ok(paths)
}

/// Where a tree is in the mount: it is the mount's own, or that of a snapshot.
fn root_path<'r, M: Medium, H: Host>(
    pool: &Pool<M, H>,
    known: &'r mut BTreeMap<Ino, String>,
    root: Ino,
) -> Option<&'r String> {
    match known.entry(root) {
        Entry::Occupied(known) => Some(known.into_mut()),
        Entry::Vacant(unknown) => {
            let name = pool.snapshot_of(root).ok()??;
            let name = String::from_utf8_lossy(&name);
            Some(unknown.insert(format!("{SNAPSHOTS_PATH}/{name}")))
        }
    }
}

/// The answer to `paths`: without the slash in front.
///
/// # Errors
/// A sentence for who has asked.
pub fn answer<M: Medium, H: Host>(state: &State<M, H>, request: &Value) -> Result<Value, String> {
    let inos = request.get("inos").and_then(Value::as_array).ok_or("no \"inos\"")?;
    let inos: Vec<Ino> = inos.iter().filter_map(Value::as_u64).take(ASKED_MAX).collect();
    let found = search(state, &inos, &mut || true).map_err(|error| error.to_string())?;
    let path = |(ino, path): (&Ino, &String)| json!([ino, path.trim_start_matches('/')]);
    Ok(json!({ "paths": found.iter().map(path).collect::<Vec<_>>() }))
}
