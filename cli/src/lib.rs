//! The command `lode`: makes, mounts, checks and shows pools.
//!
//! * [`args`], [`options`], [`words`]: the command line; [`called_as`]: other names for it; `commands`: one
//!   file a subcommand
//! * [`failure`]: what can go wrong, exit codes; [`output`]: text and JSON
//! * [`report`]: what is printed; [`human`], [`sizes`], [`draw`], [`progress`], [`screen`], [`interrupt`]: how
//! * [`region`], [`superblock`]: pools; [`mounts`], [`server`], [`views`], [`daemon`]: mounted ones;
//!   [`ask`]: questions to them, [`explain`]: their errors
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod args;
mod ask;
mod called_as;
mod commands;
mod daemon;
mod draw;
mod emulation;
mod explain;
mod failure;
mod human;
mod interrupt;
mod mounts;
mod options;
mod output;
mod page;
mod periods;
mod progress;
mod raw;
mod region;
mod report;
mod screen;
mod server;
mod sizes;
mod superblock;
mod views;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Command};
use called_as::CalledAs;
use failure::{Failure, Kind};
use output::Output;

/// Runs the command line `args`, the program's name first; returns the exit code.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let called_as = args.first().map_or(CalledAs::Lode, |program| CalledAs::from(program));
    let silent = called_as.is_silent(&args);
    let args = called_as.rewrite(args);
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return refuse(called_as, &args, &error),
    };
    let (json, progress) = (cli.json, cli.progress);
    let output = Output { command: cli.command.name(), json, progress, silent };
    if let Some(root) = &cli.sysfs_root
        && let Err(failure) = region::read_sysfs_at(root)
    {
        return output.print_failure(&failure, exit_code(called_as, output.command, failure.kind));
    }
    match run(&cli.command, &output) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let code = exit_code(called_as, output.command, failure.kind);
            let is_check = ["fsck", "scrub"].contains(&output.command);
            let failure = if is_check { failure.of_fsck() } else { failure };
            output.print_failure(&failure, code)
        }
    }
}

fn run(command: &Command, output: &Output) -> failure::Result<u8> {
    match command {
        Command::Mkfs(args) => commands::mkfs::run(args, output)?,
        Command::Mount(args) => commands::mount::run(args, output)?,
        Command::Umount(args) => commands::umount::run(args, output)?,
        Command::Fsck(args) if args.asking => return Err(asks_nothing()),
        Command::Fsck(args) => return commands::fsck::run(args, output),
        Command::Scrub(args) => return commands::scrub::run(args, output),
        Command::Snapshot(command) => commands::snapshot::run(command, output)?,
        Command::Block(command) => commands::block::run(command, output)?,
        Command::Heap(command) => return commands::heap::run(command, output),
        Command::Send(args) => commands::send::run(args, output)?,
        Command::Receive(args) => commands::receive::run(args, output)?,
        Command::Info(args) => commands::info::run(args, output)?,
        Command::Label(args) => commands::label::run(args, output)?,
        Command::Resize(args) => commands::resize::run(args, output)?,
        Command::Protect(args) => commands::protect::run(args, output)?,
        Command::Stats(args) => commands::stats::run(args, output)?,
        Command::Dump(args) => commands::dump::run(args, output)?,
        Command::Bench(args) => return commands::bench::run(args, output),
        Command::Crash(command) => return commands::crash::run(command, output),
        Command::Man(args) => commands::generate::man(args, output)?,
        Command::Completions(args) => commands::generate::completions(args, output)?,
    }
    Ok(0)
}

/// `fsck -r` of other file systems' programs.
fn asks_nothing() -> Failure {
    Failure::usage("fsck asks no questions, so there is no -r").advise(
        "-n tells what is wrong, -p repairs what is safe to repair, -y whatever can be repaired",
    )
}

fn exit_code(called_as: CalledAs, command: &str, kind: Kind) -> u8 {
    match called_as {
        CalledAs::MountHelper => kind.mount_code(),
        _ if ["fsck", "scrub"].contains(&command) => kind.fsck_code(),
        // As programs that run others have it: the other codes are the command's.
        _ if command == "heap run" => 125,
        _ => kind.code(),
    }
}

/// The command that a command line names: its first word, or two, that are no options; the options
/// before them have no values.
fn command_of(args: &[OsString]) -> &'static str {
    const COMMANDS: [&str; 40] = [
        "mkfs",
        "mount",
        "umount",
        "fsck",
        "scrub",
        "snapshot create",
        "snapshot list",
        "snapshot delete",
        "snapshot rollback",
        "snapshot",
        "block create",
        "block list",
        "block resize",
        "block delete",
        "block serve",
        "block attach",
        "block detach",
        "block",
        "heap serve",
        "heap run",
        "heap stats",
        "heap",
        "send",
        "receive",
        "info",
        "label",
        "resize",
        "protect",
        "stats",
        "dump",
        "bench programs",
        "bench block",
        "bench heap",
        "bench",
        "crash run",
        "crash replay",
        "crash mutants",
        "crash",
        "man",
        "completions",
    ];
    let words = args.iter().skip(1).map(|arg| arg.to_string_lossy());
    let words: Vec<_> = words.filter(|word| !word.starts_with('-')).take(2).collect();
    let is_named = |name: &&str| {
        let mut parts = name.split(' ').zip(&words);
        name.split(' ').count() <= words.len() && parts.all(|(part, word)| part == word)
    };
    COMMANDS.into_iter().find(is_named).unwrap_or(output::NO_COMMAND)
}

/// A command line that clap did not take: help and version are no errors.
fn refuse(called_as: CalledAs, args: &[OsString], error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Nobody is left to tell when standard output is closed.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let command = command_of(args);
    let code = exit_code(called_as, command, Kind::Usage);
    if args.iter().any(|arg| arg == "--json") {
        let text = error.render().to_string();
        // The sentence, and the arguments it names on lines of their own.
        let lines = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
        let what = lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned();
        let advice = match command {
            output::NO_COMMAND => "see `lode --help`".to_owned(),
            command => format!("see `lode {command} --help`"),
        };
        let output = Output::of_json(command);
        return output.print_failure(&Failure::usage(what).advise(advice), code);
    }
    let _ = error.print();
    ExitCode::from(code)
}
