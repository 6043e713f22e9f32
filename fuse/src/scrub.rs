//! Scrubbing a mounted pool: a step for each question on the control socket, so that who asks decides how fast
//! it goes, and nothing goes on when nobody asks any more.

use lode_engine::{Finding, Host, Ino, Pool, Scrub};
use lode_pmem::Medium;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The most bytes of a step.
const STEP_MAX: u64 = 16 << 20;
/// The most findings in an answer, which is a line of bounded length.
const FINDINGS_MAX: usize = 4000;
/// The most inodes whose paths are asked for at once.
const PATHS_MAX: usize = 100;

/// The scrub that goes on, if one does.
#[derive(Default)]
pub struct Scrubs(Mutex<Option<Scrub>>);

impl Scrubs {
    /// Does a step of about `bytes` bytes of a scrub, of a new one where `start` is asked for.
    pub fn step<M: Medium, H: Host>(
        &self,
        pool: &Pool<M, H>,
        request: &Value,
    ) -> Result<Value, String> {
        let failed = |error: lode_engine::Error| error.to_string();
        let bytes = request.get("bytes").and_then(Value::as_u64).unwrap_or(STEP_MAX);
        let mut going_on = self.0.lock();
        if request.get("start").and_then(Value::as_bool) == Some(true) {
            *going_on = Some(pool.begin_scrub().map_err(failed)?);
        }
        let scrub = going_on.as_mut().ok_or("another scrub has begun, or none has")?;
        pool.scrub(scrub, bytes.min(STEP_MAX)).map_err(failed)?;
        let mut findings = scrub.take_findings();
        let more = findings.len().saturating_sub(FINDINGS_MAX) as u64;
        findings.truncate(FINDINGS_MAX);
        let answer = json!({
            "done": scrub.done(),
            "all": scrub.all(),
            "over": scrub.is_over(),
            "forgotten": scrub.forgotten() + more,
            "findings": findings.iter().map(finding).collect::<Vec<_>>(),
        });
        if scrub.is_over() {
            *going_on = None;
        }
        Ok(answer)
    }
}

fn finding(found: &Finding) -> Value {
    json!({
        "what": found.what.name(),
        "outcome": found.outcome.name(),
        "ino": found.ino,
        "at": found.at,
        "offset": found.offset,
        "bytes": found.bytes,
    })
}

/// Paths of inodes, where they have any.
pub fn paths<M: Medium, H: Host>(pool: &Pool<M, H>, request: &Value) -> Result<Value, String> {
    let inos = request.get("inos").and_then(Value::as_array).ok_or("no \"inos\"")?;
    let inos: Vec<Ino> = inos.iter().filter_map(Value::as_u64).take(PATHS_MAX).collect();
    let found = pool.paths_of(&inos).map_err(|error| error.to_string())?;
    let path = |(ino, path): &(Ino, Vec<u8>)| json!([ino, String::from_utf8_lossy(path)]);
    Ok(json!({ "paths": found.iter().map(path).collect::<Vec<_>>() }))
}
