//! `lode fsck`: checks a pool that is not mounted, with the exit statuses of fsck programs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::thread;

use clap::{ArgGroup, Args};
use lode_engine::{CheckReport, Corruption, Opening};
use lode_host::StdHost;
use lode_pmem::RegionOptions;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::scrub::{PATHS, paths_in};
use crate::failure::{Failure, Result};
use crate::human::printable;
use crate::output::Output;
use crate::progress::{Progress, Unit, while_working};
use crate::region::{self, MappedPool};
use crate::report::{DamageFacts, FsckReport, Repairs};

/// `lode fsck`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("mode").args(["no", "preen", "yes"]))]
pub(crate) struct FsckArgs {
    /// File or device that holds the pool
    pub(crate) pool: PathBuf,
    /// Check only, write nothing (the default)
    #[arg(short = 'n')]
    pub(crate) no: bool,
    /// Repair what is safe to repair without asking; -a is the same
    #[arg(short = 'p', short_alias = 'a')]
    pub(crate) preen: bool,
    /// Repair all that can be repaired
    #[arg(short = 'y')]
    pub(crate) yes: bool,
    /// Check even if the pool was cleanly unmounted (it always is checked)
    #[arg(short = 'f')]
    pub(crate) force: bool,
    /// Say what is done (it always is said)
    #[arg(short = 'v')]
    pub(crate) verbose: bool,
    /// Ask before each repair: refused, with what there is instead
    #[arg(short = 'r', hide = true)]
    pub(crate) asking: bool,
}

/// Nothing is wrong.
pub(super) const CLEAN: u8 = 0;
/// Something was wrong and is repaired.
pub(super) const REPAIRED: u8 = 1;
/// Something is wrong and stays so.
pub(super) const DAMAGE_LEFT: u8 = 4;
/// Interrupted by a signal.
const INTERRUPTED: i32 = 32;

/// Runs it; returns the exit status.
///
/// # Errors
/// Where the pool can't be checked at all.
pub(crate) fn run(args: &FsckArgs, output: &Output) -> Result<u8> {
    exit_when_interrupted("fsck");
    let writes = args.preen || args.yes;
    let mode = match (args.preen, args.yes) {
        (true, _) => "preen",
        (_, true) => "repair",
        _ => "check",
    };
    let looked = look(args, true, output)?;
    // Nothing is stored into a pool with damage that stays, nor into one that needs nothing.
    let found = report(args, (mode, false), &looked);
    let differs = !looked.checked.differing.is_empty();
    let needs = !looked.opening.clean || looked.opening.is_damaged() || differs;
    // (What only snapshots have lost nobody can mend, and nothing that is stored makes it worse.)
    let is_damaged = found.damage.iter().any(DamageFacts::is_of_now);
    if args.yes && is_damaged {
        return give_up_damage(args, output);
    }
    if !writes || !needs || is_damaged {
        output.print(&found)?;
        return Ok(found.status);
    }
    let repaired = look(args, false, output)?;
    let report = report(args, (mode, true), &repaired);
    output.print(&report)?;
    Ok(report.status)
}

/// Gives up what can't be read, and makes the rest sound; then checks that it is.
fn give_up_damage(args: &FsckArgs, output: &Output) -> Result<u8> {
    let failed = |error| Failure::engine(&args.pool, &error);
    let region = region::open(&args.pool, &RegionOptions::new())?;
    let mut repairs = Repairs::default();
    while_working("repairing the pool", output.progress, || {
        MappedPool::salvage(region, StdHost::new(), &mut |event| repairs.add(&event))
    })
    .map_err(failed)?;
    let looked = look(args, true, output)?;
    let repaired = FsckReport {
        repairs: repairs.into_facts(),
        repaired: true,
        ..report(args, ("repair", true), &looked)
    };
    let status = if repaired.damage.is_empty() { REPAIRED } else { DAMAGE_LEFT };
    output.print(&FsckReport { status, ..repaired })?;
    Ok(status)
}

/// What was found in a pool.
struct Looked {
    opening: Opening,
    checked: CheckReport,
    /// The damage among that, with its names.
    damage: Vec<DamageFacts>,
}

/// Opens the pool, which recovers it, checks it, and closes it. Read-only all of that is in
/// memory alone.
fn look(args: &FsckArgs, read_only: bool, output: &Output) -> Result<Looked> {
    let failed = |error| Failure::engine(&args.pool, &error);
    // (Of a pool that a snapshot is being received into, what has come is repaired, and stays.)
    let pool = match read_only {
        true => region::open_pool(&args.pool, true, output)?,
        false => region::open_to_receive(&args.pool, output)?,
    };
    let opening = pool.opening();
    let mut progress = Progress::of(Unit::Share, "checking the pool", output.progress);
    let checked = pool.check(&mut |done, all| progress.set(done, all)).map_err(failed)?;
    drop(progress);
    let damage = named(&pool, &checked).map_err(failed)?;
    if !read_only {
        pool.close().map_err(failed)?;
    }
    Ok(Looked { opening, checked, damage })
}

/// The damage that was found. What only snapshots see is named as one gets at it in a mount.
fn named(pool: &MappedPool, checked: &CheckReport) -> lode_engine::Result<Vec<DamageFacts>> {
    let mut facts: Vec<DamageFacts> = checked.damage.iter().map(DamageFacts::from).collect();
    let kept = checked.damage.iter().map(|damage| damage.ino);
    let mut kept: Vec<u64> = kept.filter(|ino| MappedPool::is_in_snapshot(*ino)).collect();
    kept.sort_unstable();
    kept.dedup();
    for some in kept.chunks(PATHS) {
        let paths: HashMap<u64, String> = paths_in(pool, some)?.into_iter().collect();
        for ino in some {
            let name = pool.snapshot_of(*ino)?.as_deref().map(printable);
            let of_it = checked.damage.iter().zip(&mut facts).filter(|(it, _)| it.ino == *ino);
            for (_, fact) in of_it {
                (fact.snapshot, fact.path) = (name.clone(), paths.get(ino).cloned());
            }
        }
    }
    Ok(facts)
}

fn report(args: &FsckArgs, (mode, writes): (&str, bool), looked: &Looked) -> FsckReport {
    let Looked { opening, checked, damage: named } = looked;
    let mut damage: Vec<DamageFacts> = opening.damage.iter().map(DamageFacts::from).collect();
    // (What the opening knows how to repair it tells itself.)
    let known = |at| opening.chain_damage.iter().any(|known| known.at == at);
    for found in named.iter().filter(|damage| !known(damage.at)) {
        if !damage.contains(found) {
            damage.push(found.clone());
        }
    }
    let repairable = repairable(opening, checked);
    let repaired = writes && (!repairable.is_empty() || checked.mended > 0);
    if !writes {
        damage.extend(repairable);
    }
    let status = match (damage.is_empty(), repaired) {
        (false, _) => DAMAGE_LEFT,
        (true, true) => REPAIRED,
        (true, false) => CLEAN,
    };
    FsckReport {
        pool: args.pool.display().to_string(),
        status,
        mode: mode.to_owned(),
        repaired,
        opening: opening.into(),
        files: checked.files,
        directories: checked.directories,
        others: checked.others,
        pages_used: checked.pages_used,
        pages_free: checked.pages_free,
        damage,
        repairs: Vec::new(),
    }
}

/// What opening the pool for writing repairs, or checking it then.
fn repairable(opening: &Opening, checked: &CheckReport) -> Vec<DamageFacts> {
    let fact = |what: &str, at| {
        let none = DamageFacts::from(&Corruption { what: "", at, ino: 0 });
        DamageFacts { what: what.to_owned(), repairable: true, ..none }
    };
    let superblock = opening.superblock_damage.iter().map(|damage| {
        fact(&format!("{} is damaged (fsck -p repairs it)", damage.what.words()), damage.at)
    });
    let chains = opening.chain_damage.iter().map(|damage| {
        fact(&format!("{} (fsck -p repairs it by the checkpoint)", damage.what), damage.at)
    });
    let checkpoint = opening.checkpoint_damage.map(|damage| {
        let what = format!(
            "{} (fsck -p makes a new one from the logs; whether the last changes of a file are missing, too, nobody can tell)",
            damage.what
        );
        fact(&what, damage.at)
    });
    let copies = checked.differing.iter().map(|damage| {
        fact(&format!("{} (fsck -p repairs the one that is damaged)", damage.what), damage.at)
    });
    superblock.chain(chains).chain(checkpoint).chain(copies).collect()
}

/// Ends with the status for it on SIGINT and SIGTERM: a check writes nothing, and a
/// recovery can be cut off anywhere.
pub(super) fn exit_when_interrupted(command: &'static str) {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else {
        return;
    };
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            eprintln!("lode {command}: interrupted");
            std::process::exit(INTERRUPTED);
        }
    });
}
