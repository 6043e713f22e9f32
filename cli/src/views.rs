//! What a mount shows of itself in `.lode`: what the commands of these names print.

use std::path::Path;

use lode_fuse::{Ask, View};
use serde_json::{Value, json};

use crate::ask::Asked;
use crate::failure::Result;
use crate::output::Output;

/// The files.
pub(crate) fn views() -> Vec<View> {
    vec![
        View { name: "info.json", text: |ask| told(ask, info) },
        View { name: "stats.json", text: |ask| told(ask, stats) },
        View { name: "metrics", text: |ask| told(ask, metrics) },
    ]
}

/// A view of the mount that answers, wherever that is.
fn told(
    ask: &mut Ask<'_>,
    view: fn(&Path, &mut Asked<'_>) -> Result<String>,
) -> std::result::Result<String, String> {
    let answer = ask(&json!({ "op": "info" }))?;
    let dir = Path::new(answer.get("mount").and_then(Value::as_str).unwrap_or_default());
    view(dir, &mut Asked::within(dir, ask)).map_err(|failure| failure.to_string())
}

fn info(dir: &Path, mount: &mut Asked<'_>) -> Result<String> {
    let report = mount.info()?.report(dir);
    Output::of_json("info").json_document(&report)
}

fn stats(_: &Path, mount: &mut Asked<'_>) -> Result<String> {
    let pool = mount.info()?.pool;
    Output::of_json("stats").json_document(&mount.stats(&pool)?)
}

fn metrics(_: &Path, mount: &mut Asked<'_>) -> Result<String> {
    let pool = mount.info()?.pool;
    mount.metrics(&pool)
}
