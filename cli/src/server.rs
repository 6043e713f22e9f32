//! The server of a mount: the only file that knows how pools are served.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lode_engine::{Error, Ino, OpenOptions, Opening, Pool};
use lode_fuse::{HeapServer, Server};
use lode_host::StdHost;
use lode_pmem::{Medium, RegionOptions};

use crate::ask::{DURABILITY, EMULATED, FLUSH, MEMORY, OPTIONS, RELAXED, WINDOWS};
use crate::explain::mount_failure;
use crate::failure::{Failure, Kind, Result};
use crate::human::printable;
use crate::options::MountOptions;
use crate::region::{self, MappedPool};
use crate::report::{HeapServeReport, MountReport, OpeningFacts, PoolFacts, RegionFacts};
use crate::views::views;

/// What to serve, and where.
pub(crate) struct Settings {
    /// The pool, an absolute path.
    pub(crate) pool: PathBuf,
    /// The directory, an absolute path.
    pub(crate) dir: PathBuf,
    /// How.
    pub(crate) options: MountOptions,
}

/// Mounts and serves until unmounted; calls `ready` once the mount answers.
///
/// # Errors
/// What opening, mounting and closing give; that of `ready`, when the mount has ended.
pub(crate) fn serve(
    settings: &Settings,
    ready: impl FnOnce(MountReport) -> Result<()>,
) -> Result<()> {
    let pool = open(settings)?;
    check_reserve(settings, &pool)?;
    let report = report(settings, &pool)?;
    let root = root(settings, &pool)?;
    let options = lode_fuse::MountOptions { root, ..mount_options(settings, &report.region) };
    let failed = |error| mount_failure(&settings.dir, &error);
    let server = Server::mount(pool, &settings.dir, &options).map_err(failed)?;
    server.lend(&settings.options.heap).map_err(failed)?;
    let mut told = Ok(());
    server.run_with(|| told = ready(report)).map_err(failed)?;
    told
}

/// Lends the memory of the pool to programs, without a mount, until a signal comes, or, `while_used`, until nobody uses it;
/// calls `ready` once it can be had.
///
/// # Errors
/// As of [`serve`].
pub(crate) fn serve_heap(
    settings: &Settings,
    while_used: bool,
    ready: impl FnOnce(HeapServeReport) -> Result<()>,
) -> Result<()> {
    let pool = open(settings)?;
    check_reserve(settings, &pool)?;
    let MountReport { pid, pool: facts, region, opening, .. } = report(settings, &pool)?;
    let options = mount_options(settings, &region);
    let report = HeapServeReport { pid, log: None, pool: facts, region, opening };
    let failed = |error| mount_failure(&settings.pool, &error);
    let server = match while_used {
        true => HeapServer::start_while_used(pool, &options),
        false => HeapServer::start(pool, &options),
    }
    .map_err(failed)?;
    let mut told = Ok(());
    server.run_with(|| told = ready(report)).map_err(failed)?;
    told
}

/// A reserve that leaves nothing to be lent is a mistake: `heap_limit=0` says that nothing is.
fn check_reserve(settings: &Settings, pool: &MappedPool) -> Result<()> {
    let (reserve, bytes) = (settings.options.heap.reserve.unwrap_or(0), pool.medium().bytes());
    if reserve < bytes {
        return Ok(());
    }
    let what = format!(
        "heap_reserve={reserve} leaves nothing to be lent: the pool has {}",
        crate::sizes::human(bytes)
    );
    let advice = "choose a smaller one, or leave it out: a sixteenth of the pool; a mount with heap_limit=0 lends nothing";
    Err(Failure::usage(what).at(&settings.pool).advise(advice))
}

fn open(settings: &Settings) -> Result<MappedPool> {
    let options = &settings.options;
    let read_only = options.read_only.unwrap_or(false);
    let region = RegionOptions {
        read_only,
        windows: options.windows,
        flush: options.flush,
        emulate: options.emulation.profile(),
        ..RegionOptions::new()
    };
    let region = region::open(&settings.pool, &region)?;
    let options = OpenOptions {
        read_only,
        relaxed: options.relaxed,
        page_class: options.page_class,
        atime: options.atime.unwrap_or_default(),
        index_memory: lode_host::index_memory(options.index_memory),
        ..OpenOptions::default()
    };
    let pool = Pool::open(region, StdHost::new(), &options)
        .map_err(|error| Failure::engine(&settings.pool, &error))?;
    log_damage(&pool.opening(), pool.is_read_only());
    Ok(pool)
}

/// The root of the snapshot that is to be mounted, if one is.
fn root(settings: &Settings, pool: &MappedPool) -> Result<Option<Ino>> {
    let Some(name) = &settings.options.snapshot else { return Ok(None) };
    match pool.snapshot_root(name.as_bytes()) {
        Ok(root) => Ok(Some(root)),
        Err(Error::NotFound) => {
            let what = format!("there is no snapshot {}", printable(name.as_bytes()));
            let list =
                format!("`lode snapshot list {}` shows which there are", settings.pool.display());
            Err(Failure::new(Kind::NotFound, what).at(&settings.pool).advise(list))
        }
        Err(error) => Err(Failure::engine(&settings.pool, &error)),
    }
}

/// What an opening that went on over damage tells, for who reads the log later.
fn log_damage(opening: &Opening, read_only: bool) {
    if opening.losses > 0 {
        let what = match read_only {
            true => "nothing was checked, as the mount is read-only",
            false => "the whole pool was checked",
        };
        tracing::warn!(
            moved_by = opening.losses,
            "the memory has lost what was stored, by its dirty-shutdown count: {what}"
        );
    }
    if opening.given_up {
        tracing::info!("what was being received is given up, which had been cut off");
    }
    if opening.exempt_pages > 0 {
        let pages = opening.exempt_pages;
        tracing::warn!(
            pages,
            "programs had pages mapped to store into when the pool was left, without checksums"
        );
    }
    for damage in &opening.superblock_damage {
        tracing::warn!(offset = damage.at, "{} is damaged", damage.what.words());
    }
    if let Some(damage) = opening.chain_damage.first() {
        tracing::warn!(
            offset = damage.at,
            "{}: its place is known from the checkpoint",
            damage.what
        );
    }
    if let Some(damage) = opening.checkpoint_damage {
        tracing::warn!(
            offset = damage.at,
            "{}: recovered from the logs; whether the last changes of a file are missing, too, nobody can tell",
            damage.what
        );
    }
    if let Some(damage) = opening.damage.first() {
        let places = opening.damage.len();
        tracing::error!(places, "the pool is damaged: {damage}; run lode fsck");
    }
}

fn report(settings: &Settings, pool: &MappedPool) -> Result<MountReport> {
    let info = pool.info().map_err(|error| Failure::engine(&settings.pool, &error))?;
    Ok(MountReport {
        dir: settings.dir.display().to_string(),
        pid: std::process::id(),
        log: None,
        read_only: settings.options.read_only.unwrap_or(false),
        snapshot: settings.options.snapshot.as_ref().map(|name| printable(name.as_bytes())),
        relaxed: settings.options.relaxed,
        pool: PoolFacts::new(&settings.pool, &info),
        region: region::facts(pool.medium()),
        opening: OpeningFacts::from(&pool.opening()),
    })
}

fn mount_options(settings: &Settings, region_facts: &RegionFacts) -> lode_fuse::MountOptions {
    let said = &settings.options;
    let facts = [
        (DURABILITY, &region_facts.durability),
        (FLUSH, &region_facts.flush),
        (WINDOWS, &region_facts.windows),
        (RELAXED, &said.relaxed.to_string()),
        (OPTIONS, &said.text()),
    ];
    let mut region: BTreeMap<String, String> =
        facts.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    // (Numbers and text always have a text in JSON.)
    let emulated = region_facts.emulated.as_ref().and_then(|it| serde_json::to_string(it).ok());
    region.extend(emulated.map(|text| (EMULATED.to_owned(), text)));
    let memory = serde_json::to_string(&region_facts.memory).ok();
    region.extend(memory.map(|text| (MEMORY.to_owned(), text)));
    lode_fuse::MountOptions {
        read_only: said.read_only.unwrap_or(false),
        atime: said.atime.unwrap_or_default(),
        allow_other: said.allow_other.then_some(true),
        suid: said.suid.unwrap_or(false),
        dev: said.dev.unwrap_or(false),
        noexec: said.noexec.unwrap_or(false),
        rings: said.io_uring,
        awake: said.awake.unwrap_or(false),
        scrub_period: said.scrub.filter(|period| !period.is_zero()),
        scrub_rate: said.scrub_rate,
        views: if said.noviews { Vec::new() } else { views() },
        heap: said.heap,
        region,
        ..lode_fuse::MountOptions::new(&settings.pool)
    }
}
