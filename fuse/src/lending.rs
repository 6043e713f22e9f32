//! The pool's memory, lent to programs: what `heap` and `heap-stats` on the control socket are answered.
//!
//! It is lent beside all requests: who takes or gives back a chunk passes the gate for it, as requests do.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use lode_engine::{Host, Ino, PAGE_BYTES, Pool};
use lode_host::StdHost;
use lode_lend::kept::{Keepers, PoolFiles};
use lode_lend::source::{self, Owner, Region, Source};
use lode_lend::{Facts, KeptFacts, Limits, Service, Sources};
use lode_loan::kept::VERSION as KEPT_VERSION;
use lode_loan::{CHUNK_BYTES, Method, Refusal, VERSION};
use lode_pmem::Medium;
use serde_json::{Value, json};

use crate::control::HEAP_USER;
use crate::control::listener::{accept, send};
use crate::error::{MountError, Result};
use crate::fs::State;

/// Programs that an answer names, at most: those that have most.
const NAMED: usize = 2048;

/// How long it may take from a mount's first answers to its first loan: who asks in between waits.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);

/// What is asked for of the memory that is lent, in bytes; the pool's own limits hold for what is not said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeapOptions {
    /// What all programs have together.
    pub limit: Option<u64>,
    /// What one program has.
    pub program_limit: Option<u64>,
    /// What is left to files.
    pub reserve: Option<u64>,
    /// Chunks that are kept zeroed.
    pub ready: Option<u64>,
}

impl HeapOptions {
    /// The limits for a pool of so many bytes.
    fn limits(&self, pool_bytes: u64) -> Limits {
        let usual = Limits::of_pool(pool_bytes);
        Limits {
            heap: self.limit,
            program: self.program_limit,
            reserve: self.reserve.unwrap_or(usual.reserve),
            ready: self.ready.unwrap_or(usual.ready),
            ..usual
        }
    }
}

/// Who lends, if somebody does: it is settled when a mount begins.
#[derive(Default)]
pub struct Lending(OnceLock<Option<Service>>, OnceLock<Keepers>);

impl Lending {
    fn service(&self) -> Option<&Service> {
        self.0.get()?.as_ref()
    }

    /// The same, once it is settled.
    fn settled(&self) -> Option<&Service> {
        let end = Instant::now() + SETTLES_WITHIN;
        while self.0.get().is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(2));
        }
        self.service()
    }

    /// Makes a connection a session, of which `request` was the first line.
    ///
    /// # Errors
    /// A sentence for who has asked; nothing was answered then.
    pub fn admit(&self, stream: &UnixStream, request: &Value) -> std::result::Result<(), String> {
        let Some(service) = self.settled() else {
            return Err("this server lends no memory: the pool can't be changed".into());
        };
        let version = request.get("version").and_then(Value::as_u64);
        if request.get("op").and_then(Value::as_str) == Some(HEAP_USER) {
            if service.facts().limits.heap == Some(0) {
                return Err("this server lends no memory: heap_limit=0 says so".into());
            }
            // (A connection that breaks is its peer's affair.)
            let _ = send(&mut &*stream, &accept(HEAP_USER, json!({ "standing": "stays" })));
            return Ok(());
        }
        if request.get("op").and_then(Value::as_str) == Some("kept") {
            return self.keep(stream, version, request);
        }
        if version != Some(VERSION.into()) {
            return Err(format!("memory is lent by version {VERSION} of the protocol alone"));
        }
        let method = request.get("method").and_then(Value::as_str).and_then(Method::of_name);
        let methods = "\"method\" is none of direct, indirect and mmap";
        service.admit(stream, method.ok_or(methods)?)
    }

    fn keep(
        &self,
        stream: &UnixStream,
        version: Option<u64>,
        request: &Value,
    ) -> std::result::Result<(), String> {
        let keepers = self.1.get().ok_or("this server keeps no heaps")?;
        if version != Some(KEPT_VERSION.into()) {
            return Err(format!("heaps are kept by version {KEPT_VERSION} of the protocol alone"));
        }
        let path = request.get("path").and_then(Value::as_str).ok_or("no \"path\"")?;
        // (A connection that breaks is its peer's affair.)
        let _ = keepers.admit(stream, path);
        Ok(())
    }

    /// The part of `stats`: null where nothing is lent.
    pub fn stats(&self) -> Value {
        let of = |service: &Service| Value::Object(stats(&service.facts(), &self.kept()));
        self.service().map_or(Value::Null, of)
    }

    fn kept(&self) -> Vec<KeptFacts> {
        self.1.get().map(Keepers::facts).unwrap_or_default()
    }

    /// The answer to `heap-stats`.
    ///
    /// # Errors
    /// A sentence, where nothing is lent.
    pub fn answer(&self) -> std::result::Result<Value, String> {
        let service =
            self.settled().ok_or("this server lends no memory: the pool can't be changed")?;
        let facts = service.facts();
        let programs = facts.programs.iter().take(NAMED).map(|program| {
            json!({
                "pid": program.pid,
                "uid": program.uid,
                "name": program.name,
                "method": program.method.name(),
                "chunks": program.chunks,
                "bytes": program.chunks.saturating_mul(CHUNK_BYTES),
                "most_bytes": program.chunks_most.saturating_mul(CHUNK_BYTES),
                "since_ns": program.since_ns,
            })
        });
        let programs: Vec<Value> = programs.collect();
        let kept = self.kept();
        let mut values = stats(&facts, &kept);
        let heaps = kept.iter().map(|heap| {
            json!({
                "pid": heap.pid,
                "uid": heap.uid,
                "name": heap.name,
                "path": heap.path,
                "bytes": heap.bytes,
                "since_ns": heap.since_ns,
            })
        });
        values.insert("kept".into(), Value::Array(heaps.collect()));
        values.insert("pid".into(), json!(std::process::id()));
        values.insert("programs".into(), Value::Array(programs));
        Ok(Value::Object(values))
    }

    /// Whether programs have memory or a file, or a session by which they could.
    pub(crate) fn is_used(&self) -> bool {
        let facts = self.service().map(Service::facts);
        facts.is_some_and(|facts| !facts.programs.is_empty() || facts.apart > 0)
            || self.1.get().is_some_and(|keepers| !keepers.facts().is_empty())
    }

    /// Ends all sessions; says whether the pool may be closed: no program has a file of it.
    #[must_use]
    pub fn stop(&self) -> bool {
        if let Some(service) = self.service() {
            service.stop();
        }
        self.1.get().is_none_or(Keepers::stop)
    }
}

fn stats(facts: &Facts, kept: &[KeptFacts]) -> serde_json::Map<String, Value> {
    let values = json!({
        "limit_bytes": facts.limits.heap,
        "program_limit_bytes": facts.limits.program,
        "reserve_bytes": facts.limits.reserve,
        "sessions": facts.programs.len(),
        "sessions_begun": facts.sessions,
        "lent_bytes": facts.lent,
        "apart_bytes": facts.apart,
        "ready_bytes": facts.ready,
        "granted_bytes": facts.granted,
        "returned_bytes": facts.returned,
        "refused": facts.refused,
        "wishes": facts.wishes,
        "wished_bytes": facts.wished,
        "hostile": facts.hostile,
        "kept_heaps": kept.len(),
        "kept_bytes": kept.iter().map(|heap| heap.bytes).sum::<u64>(),
    });
    match values {
        Value::Object(values) => values,
        _ => serde_json::Map::new(),
    }
}

/// Lends the memory of the pool behind the gate from now on, unless it can't be changed.
///
/// # Errors
/// Those of starting threads.
pub fn lend<M: Region + 'static>(
    state: &Arc<State<M, StdHost>>,
    options: &HeapOptions,
) -> Result<()> {
    let failed = |source| MountError::System { what: "lend memory", source };
    let gated = Gated(Arc::downgrade(state));
    let pool_facts = gated.with(|pool| {
        let facts = (pool.medium().bytes(), pool.lent());
        (!pool.is_read_only()).then_some(facts)
    });
    let Some(Some((bytes, held))) = pool_facts else {
        let _ = state.lending.0.set(None);
        return Ok(());
    };
    let held = held.map_err(|error| failed(io::Error::other(error)))?;
    let limits = options.limits(bytes);
    let spared = limits.reserve / PAGE_BYTES;
    let shared = |method| source::of(method, gated.clone(), spared);
    let (direct, indirect) = (shared(Method::Direct), shared(Method::Indirect));
    let from = From { gated: gated.clone(), spared, direct, indirect };
    let _ = state.lending.1.set(Keepers::new(Box::new(PoolFiles(gated.clone())), bytes));
    let service = Service::start(Box::new(from), limits, bytes, &held).map_err(failed)?;
    if state.lending.0.set(Some(service)).is_ok() {
        let state = Arc::downgrade(state);
        let spare = move |pages| {
            let state = state.upgrade();
            state.and_then(|state| Some(state.lending.service()?.spare(pages))).unwrap_or(false)
        };
        gated.with(|pool| pool.host().ask(Some(Arc::new(spare))));
    }
    Ok(())
}

/// The pool behind the gate, whichever it is.
struct Gated<M: Medium, H: Host>(Weak<State<M, H>>);

impl<M: Medium, H: Host> Clone for Gated<M, H> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<M: Region + 'static, H: Host> Owner for Gated<M, H> {
    type Medium = M;
    type Host = H;

    fn with<R>(&self, work: impl FnOnce(&Pool<M, H>) -> R) -> Option<R> {
        let state = self.0.upgrade()?;
        let pass = state.gate.enter().ok()?;
        Some(work(&pass.pool))
    }

    fn root(&self) -> Option<Ino> {
        let state = self.0.upgrade()?;
        let pass = state.gate.enter().ok()?;
        Some(pass.root)
    }
}

/// Where memory comes from.
struct From<M: Medium, H: Host> {
    gated: Gated<M, H>,
    spared: u64,
    direct: Arc<dyn Source>,
    indirect: Arc<dyn Source>,
}

impl<M: Region + 'static, H: Host> Sources for From<M, H> {
    fn source(&self, method: Method) -> std::result::Result<Arc<dyn Source>, Refusal> {
        Ok(match method {
            Method::Direct => Arc::clone(&self.direct),
            Method::Indirect => Arc::clone(&self.indirect),
            Method::Mmap => source::of(method, self.gated.clone(), self.spared),
        })
    }
}
