//! The command line, parsed by clap.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand};
use lode_bench::plan::THREADS_MAX;
use lode_bench::workload::Workload;
use lode_crash::corrupt::InjectionId;
use lode_crash::region::Profile;
use lode_crash::run::ReplayId;
use lode_engine::{PageClass, Protection};
use lode_pmem::{FlushStrategy, WindowMode};

use crate::commands::bench::{BlockBenchArgs, HeapBenchArgs, ProgramsArgs};
use crate::commands::block::BlockCommand;
use crate::commands::fsck::FsckArgs;
use crate::commands::heap::HeapCommand;
use crate::commands::receive::ReceiveArgs;
use crate::commands::resize::ResizeArgs;
use crate::commands::scrub::ScrubArgs;
use crate::commands::send::SendArgs;
use crate::commands::snapshot::SnapshotCommand;
use crate::emulation::EmulationArgs;
use crate::human::parse_uuid;
use crate::options::{MountOptions, OptionList};
use crate::sizes::parse_size;

mod values;

pub(crate) use values::parse_interval;
use values::{
    LEVELS, PAGE_SIZES, PROFILES, SUBJECTS, SubjectId, WINDOWS, WORKLOADS, parse_dead_zone,
    parse_flush, parse_injection_id, parse_label, parse_replay_id, parse_strip,
};

const AFTER_HELP: &str = "\
Sizes: a whole number and K, M, G or T, powers of 1024.
Exit codes: 0 done, 1 failed, 2 usage, 3 not a pool, 4 damaged, 5 unsupported format, 6 busy,
7 no space, 8 not found, 9 not permitted, 10 exists already, 11 not mounted.
`lode crash` ends with 4 if a state is wrong or a mutant is not noticed.
`lode fsck` and `scrub` have those of fsck programs: 0 clean, 1 repaired, 4 damage left, 8 failed, 16 usage,
32 interrupted.";

/// A file system on persistent memory: make, mount, check and look at pools.
#[derive(Parser, Debug)]
#[command(name = "lode", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    /// Print JSON, also for errors (keys in docs/json.md)
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show progress even where standard error is no terminal
    #[arg(long, global = true)]
    pub(crate) progress: bool,
    /// Read what the system knows of the memory below DIR instead of /sys: for tests
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    pub(crate) sysfs_root: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Make a new pool in a file or on a device
    Mkfs(MkfsArgs),
    /// Mount a pool; returns once the mount answers
    Mount(MountArgs),
    /// Unmount; returns once the pool is cleanly closed
    Umount(UmountArgs),
    /// Check a pool that is not mounted, and repair it
    Fsck(FsckArgs),
    /// Load all that a pool has, mounted or not, and repair what can be repaired
    Scrub(ScrubArgs),
    /// Keep what a pool is now, look at what is kept, return to it
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Volumes: block devices in a pool, made, listed, resized, deleted, given to the kernel
    #[command(subcommand)]
    Block(BlockCommand),
    /// Main memory from the pool: lent to programs while no file needs it
    #[command(subcommand)]
    Heap(HeapCommand),
    /// Write a snapshot, or what differs between two, as a stream to standard output
    Send(SendArgs),
    /// Apply a stream from standard input to a pool that is not mounted, wholly or not at all
    Receive(ReceiveArgs),
    /// Show what a pool is, mounted or not
    Info(InfoArgs),
    /// Show or change the label of a pool that is not mounted
    Label(LabelArgs),
    /// Make a pool that is not mounted larger
    Resize(ResizeArgs),
    /// Give a pool that is not mounted another protection level
    Protect(ProtectArgs),
    /// Show what a mounted pool has counted since it was mounted
    Stats(StatsArgs),
    /// Show the bytes of a pool: superblocks, inodes, records, extents
    Dump(DumpArgs),
    /// Cut the power everywhere, in a simulated memory, and judge every state that is left
    #[command(subcommand)]
    Crash(CrashCommand),
    /// Measure Lode beside other file systems, in one run
    Bench(BenchArgs),
    /// Write the man pages
    Man(ManArgs),
    /// Print what a shell needs to complete command lines
    Completions(CompletionsArgs),
}

impl Command {
    /// The name, for messages and JSON.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Command::Mkfs(_) => "mkfs",
            Command::Mount(_) => "mount",
            Command::Umount(_) => "umount",
            Command::Fsck(_) => "fsck",
            Command::Scrub(_) => "scrub",
            Command::Snapshot(command) => command.name(),
            Command::Block(command) => command.name(),
            Command::Heap(command) => command.name(),
            Command::Send(_) => "send",
            Command::Receive(_) => "receive",
            Command::Info(_) => "info",
            Command::Label(_) => "label",
            Command::Resize(_) => "resize",
            Command::Protect(_) => "protect",
            Command::Stats(_) => "stats",
            Command::Dump(_) => "dump",
            Command::Bench(BenchArgs { what: Some(command), .. }) => command.name(),
            Command::Bench(_) => "bench",
            Command::Man(_) => "man",
            Command::Completions(_) => "completions",
            Command::Crash(CrashCommand::Run(_)) => "crash run",
            Command::Crash(CrashCommand::Replay(_)) => "crash replay",
            Command::Crash(CrashCommand::Mutants(_)) => "crash mutants",
            Command::Crash(CrashCommand::Corrupt(_)) => "crash corrupt",
        }
    }
}

/// How the region is stored to.
#[derive(Args, Clone, Debug)]
pub(crate) struct RegionArgs {
    /// Guard against stray stores: key, mprotect or none [default: key where the CPU has it]
    #[arg(long, value_name = "MODE", value_parser = WINDOWS, hide_possible_values = true)]
    pub(crate) windows: Option<WindowMode>,
    /// How stores reach the memory, as `lode info` names it: msync, movdir64b+clwb, ...
    /// [default: the best that is safe here]
    #[arg(long, value_name = "NAME", value_parser = parse_flush)]
    pub(crate) flush: Option<FlushStrategy>,
}

/// `lode mkfs`.
#[derive(Args, Debug)]
pub(crate) struct MkfsArgs {
    /// File or device that is to hold the pool
    pub(crate) pool: PathBuf,
    /// Size of the pool [default: that of the file or device, where it exists]
    #[arg(long, short = 's', value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) size: Option<u64>,
    /// Label, at most 64 bytes
    #[arg(long, short = 'L', default_value = "", value_parser = parse_label)]
    pub(crate) label: String,
    /// Overwrite what is there, an existing pool too
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
    /// Say what is done (it always is said)
    #[arg(short = 'v')]
    pub(crate) verbose: bool,
    /// UUID [default: random]
    #[arg(long, short = 'U', value_parser = parse_uuid)]
    pub(crate) uuid: Option<[u8; 16]>,
    /// Default page size of files: 4K, 2M or 1G
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = PAGE_SIZES,
        hide_possible_values = true)]
    pub(crate) page_size: PageClass,
    /// Lanes on the medium: how many threads can write without waiting for each other
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) lanes: u32,
    /// What the pool has twice, or checksums of, so that damage is found and mended: none, metadata or full
    #[arg(long, value_name = "LEVEL", default_value = "none", value_parser = LEVELS,
        hide_possible_values = true)]
    pub(crate) protect: Protection,
    /// Bytes of a scribble that can't reach both copies, at most 511M: they lie farther apart [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = parse_dead_zone)]
    pub(crate) dead_zone: Option<u64>,
    /// Bytes of file data that have a checksum together, at level full: 512, 1024 or 2048 (parity takes as
    /// many of each 4096) [default: 512]
    #[arg(long, value_name = "BYTES", value_parser = parse_strip)]
    pub(crate) strip: Option<u32>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
}

/// `lode mount`.
#[derive(Args, Clone, Debug)]
pub(crate) struct MountArgs {
    /// File or device that holds the pool
    pub(crate) pool: PathBuf,
    /// Directory to mount it at
    pub(crate) dir: PathBuf,
    /// Options, separated by commas: ro, relaxed, noatime, strictatime, allow_other, dev, suid, noexec,
    /// noviews, io_uring, noio_uring, awake, noawake, page-size=SIZE, index-memory=SIZE, windows=MODE, flush=NAME, heap_limit=SIZE,
    /// heap_program_limit=SIZE, heap_reserve=SIZE, snapshot=NAME, scrub=PERIOD, scrub-rate=SIZE, emulate=NAME and its like, and those that mount(8)
    /// handles; remount, to change ro, dev, suid and exec of what is mounted
    #[arg(short = 'o', value_name = "OPTIONS", value_parser = OptionList)]
    pub(crate) options: Vec<MountOptions>,
    /// Page size of files made in this mount: 4K, 2M or 1G [default: the pool's]
    #[arg(long, value_name = "SIZE", value_parser = PAGE_SIZES, hide_possible_values = true)]
    pub(crate) page_size: Option<PageClass>,
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    #[command(flatten)]
    pub(crate) emulation: EmulationArgs,
    /// Serve in this process until unmounted, logging to standard error
    #[arg(long, short = 'f')]
    pub(crate) foreground: bool,
    /// Check what was given, and mount nothing: what mount(8) means by -f
    #[arg(long, hide = true, overrides_with = "fake")]
    pub(crate) fake: bool,
    /// Be the server of another `lode mount`: report to it on standard output
    #[arg(long, hide = true, value_name = "LOG")]
    pub(crate) serve_with_log: Option<PathBuf>,
}

/// `lode umount`.
#[derive(Args, Debug)]
pub(crate) struct UmountArgs {
    /// The mount point
    pub(crate) dir: PathBuf,
    /// Detach it now, even if it is in use (the pool closes when the last user ends)
    #[arg(long, short = 'l')]
    pub(crate) lazy: bool,
}

/// `lode label`.
#[derive(Args, Debug)]
pub(crate) struct LabelArgs {
    /// File or device that holds the pool
    pub(crate) pool: PathBuf,
    /// The new label, at most 64 bytes; "" for none [default: show the label and the UUID]
    #[arg(value_parser = parse_label)]
    pub(crate) label: Option<String>,
}

/// `lode protect`.
#[derive(Args, Debug)]
pub(crate) struct ProtectArgs {
    /// File or device that holds the pool
    pub(crate) pool: PathBuf,
    /// What the pool is to have twice, so that damage to one copy is mended: none, metadata, or full, which is
    /// metadata and checksums and parity of the contents of files
    #[arg(value_parser = LEVELS, hide_possible_values = true)]
    pub(crate) level: Protection,
    /// Bytes of a scribble that can't reach both copies, at most 511M: they lie farther apart [default: what the
    /// pool has; 1M where it has no second copies]
    #[arg(long, value_name = "SIZE", value_parser = parse_dead_zone)]
    pub(crate) dead_zone: Option<u64>,
}

/// `lode info`.
#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
}

const AFTER_STATS_HELP: &str = "\
Watching ends with 0 at SIGINT, SIGTERM or after COUNT, with 11 when the mount goes away. The
first report counts from the mount, later ones also say how much it was a second since the last.
Wear is what was stored since the mount, in whole lines of 64 bytes.";

/// `lode stats`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_STATS_HELP)]
pub(crate) struct StatsArgs {
    /// The mount point, or a pool that `lode heap serve` serves
    pub(crate) dir: PathBuf,
    /// Show it again and again, every so many seconds, like iostat and vmstat
    #[arg(value_name = "SECONDS", value_parser = parse_interval)]
    pub(crate) every: Option<Duration>,
    /// End after so many reports [default: go on]
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Show it again and again, every second or every SECONDS; with --json, one object a line
    #[arg(long, short = 'w', visible_alias = "interval", value_name = "SECONDS", num_args = 0..=1,
        default_missing_value = "1", value_parser = parse_interval, conflicts_with = "every")]
    pub(crate) watch: Option<Duration>,
    /// Print Prometheus' text format, for node_exporter's textfile collector
    #[arg(long, conflicts_with_all = ["json", "watch", "every"])]
    pub(crate) prometheus: bool,
}

/// `lode dump`.
#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// File or device that holds the pool
    pub(crate) pool: PathBuf,
    /// Only this inode: its number, or a path in the pool (/dir/file) [default: all inodes]
    #[arg(value_name = "INODE|PATH")]
    pub(crate) inode: Option<OsString>,
    /// One line an inode, without records and extents
    #[arg(long)]
    pub(crate) brief: bool,
}

const AFTER_BENCH_HELP: &str = "\
Figures are comparable within one run only. docs/bench.md tells what is measured, and how.
Ends with 0 whatever the figures are, and with 130 when it was interrupted: then what was measured by then is told.";

/// `lode bench`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_BENCH_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: Option<BenchCommand>,
    /// Be done in 90 seconds: short rounds, and two threads only where scaling is judged
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these workloads, separated by commas [default: all]
    #[arg(long = "workload", value_name = "ID,..", value_delimiter = ',', value_parser = WORKLOADS,
        hide_possible_values = true)]
    pub(crate) workloads: Vec<&'static Workload>,
    /// Only these subjects, separated by commas [default: all that this machine and user can have]
    #[arg(long = "subject", value_name = "ID,..", value_delimiter = ',', value_parser = SUBJECTS,
        hide_possible_values = true)]
    pub(crate) subjects: Vec<SubjectId>,
    /// Numbers of threads, separated by commas [default: 1, 2 and 4]
    #[arg(long, value_name = "N,..", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=THREADS_MAX as i64))]
    pub(crate) threads: Vec<u16>,
    /// Compare protection levels, with windows and relaxed, and snapshots, in five operations if no others are asked for
    #[arg(long, conflicts_with = "subjects")]
    pub(crate) protect: bool,
    /// Look what pools can be trusted with, and what that takes: metadata at risk by scribbles, space, snapshots
    #[arg(long, conflicts_with_all = ["subjects", "protect"])]
    pub(crate) trust: bool,
    /// Look into operations of the engine, too: how much of each is copies, fences, allocation, index, records
    #[arg(long)]
    pub(crate) breakdown: bool,
    /// Let processors fall asleep as the machine does by itself; else none does during a run as root
    #[arg(long)]
    pub(crate) may_sleep: bool,
    /// Write a page for a browser, too
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Directory for the mounts, pools and images of the run [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) emulation: EmulationArgs,
    /// Tell all workloads and subjects, and measure nothing
    #[arg(long, conflicts_with_all = ["quick", "html", "breakdown"])]
    pub(crate) list: bool,
    /// Take away what a run that was killed has left, and measure nothing
    #[arg(long, conflicts_with_all = ["quick", "html", "breakdown", "list"])]
    pub(crate) clean: bool,
    /// Be the FUSE server that stores nothing, at this directory
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) serve_null_fuse: Option<PathBuf>,
    /// Tell what memory this pool takes
    #[arg(long, hide = true, value_name = "POOL")]
    pub(crate) weigh: Option<PathBuf>,
}

/// What else `lode bench` measures.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// Run whole programs on file systems on volumes, beside memory and RAM disks
    Programs(ProgramsArgs),
    /// Draw what the paper on PMBD draws of block devices: protection, write schemes, depths, slower memory; volumes, and NBD
    Block(BlockBenchArgs),
    /// Draw what the paper by Oikawa draws of main memory from a pool: its methods, anonymous memory, swapping, a build
    Heap(HeapBenchArgs),
}

impl BenchCommand {
    /// The name, for messages and JSON.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Programs(_) => "bench programs",
            Self::Block(_) => "bench block",
            Self::Heap(_) => "bench heap",
        }
    }
}

/// `lode man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory for manuals, such as ~/.local/share/man: pages go to man1 and man8 in it
    pub(crate) dir: PathBuf,
}

/// `lode completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
    /// The program: lode, mkfs.lode or fsck.lode
    #[arg(default_value = "lode", value_parser = ["lode", "mkfs.lode", "fsck.lode"])]
    pub(crate) program: String,
}

/// `lode crash`.
#[derive(Subcommand, Debug)]
pub(crate) enum CrashCommand {
    /// Explore sequences of operations; ends with 4 if a state is wrong
    Run(CrashRunArgs),
    /// Show one state: the operations, what was in flight, what is found there; ends with 4 if it is wrong
    Replay(CrashReplayArgs),
    /// Leave out every fence, write-back and rule in turn; ends with 4 if one is not noticed
    Mutants(CrashMutantsArgs),
    /// Damage pools in every way, and judge what is made of them; ends with 4 if something is wrong
    Corrupt(CrashCorruptArgs),
}

/// `lode crash run`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").args(["quick", "full", "seq", "script"]))]
pub(crate) struct CrashRunArgs {
    /// Less than a minute: something of everything
    #[arg(long)]
    pub(crate) quick: bool,
    /// Everything there is: one to two hours
    #[arg(long)]
    pub(crate) full: bool,
    /// Only sequences of so many operations, all of them: 1 or 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) seq: Option<u8>,
    /// The sequence in this file (docs/crash-scripts.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// What a crash is: adr (power fails, caches are lost), eadr (caches are saved), file (an
    /// ordinary file); can be given several times [default: all three]
    #[arg(long = "profile", value_name = "P", value_parser = PROFILES, hide_possible_values = true)]
    pub(crate) profiles: Vec<Profile>,
    /// Decides everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) effort: EffortArgs,
    /// Write a page for a browser, too
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// `lode crash replay`.
#[derive(Args, Debug)]
pub(crate) struct CrashReplayArgs {
    /// The id, as a failure prints it: seq1-37:adr:1:s1p1c1
    #[arg(value_parser = parse_replay_id)]
    pub(crate) id: ReplayId,
    /// With this fence, write-back or rule left out: `site` of `lode crash mutants --json`
    #[arg(long, value_name = "SITE")]
    pub(crate) without: Option<String>,
    /// The sequence of an id that begins with `script`
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Write a page for a browser, too
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// `lode crash mutants`.
#[derive(Args, Debug)]
pub(crate) struct CrashMutantsArgs {
    /// Only mutants whose site has one of these texts in it [default: all]
    #[arg(value_name = "TEXT")]
    pub(crate) only: Vec<String>,
    #[command(flatten)]
    pub(crate) effort: EffortArgs,
    /// Write a page for a browser, too
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// `lode crash corrupt`.
#[derive(Args, Debug)]
pub(crate) struct CrashCorruptArgs {
    /// Only this injection, as a failure names it: full-1-12-345
    #[arg(value_parser = parse_injection_id)]
    pub(crate) id: Option<InjectionId>,
    /// Injections in all
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) injections: u64,
    /// Decides everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Only pools of this protection level: none, metadata or full; can be given several times
    /// [default: all three]
    #[arg(long = "level", value_name = "LEVEL", value_parser = LEVELS, hide_possible_values = true)]
    pub(crate) levels: Vec<Protection>,
    #[command(flatten)]
    pub(crate) effort: EffortArgs,
}

/// How long, and on how many processors.
#[derive(Args, Debug)]
pub(crate) struct EffortArgs {
    /// Look no further after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) time: Option<u64>,
    /// Threads [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

#[cfg(test)]
mod tests;
