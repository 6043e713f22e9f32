//! `lode block`: volumes of a pool, mounted or not, and what becomes of them.

mod listen;
mod loops;
mod manage;
mod mounted;
mod only_read;
mod outlet;
mod raw;
mod serve;
mod taken;
mod tls;
mod ublk;
mod volumes;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use lode_block::{Error, Sector};

use listen::Listen;
use raw::RawArgs;

use crate::failure::{Failure, Kind, Result};
use crate::human::printable;
use crate::output::Output;
use crate::sizes::parse_size;

/// `lode block`.
#[derive(Subcommand, Debug)]
pub(crate) enum BlockCommand {
    /// Make a volume: a block device in a pool, mounted or not
    Create(CreateArgs),
    /// Show which volumes a pool has
    List(ListArgs),
    /// Give a volume another size
    Resize(ResizeArgs),
    /// Delete a volume, with all that it holds
    Delete(NameArgs),
    /// Serve volumes of a pool by NBD, or as devices of the kernel, until SIGTERM or SIGINT
    Serve(ServeArgs),
    /// Make a volume of a mounted pool a loop device of the kernel, and print its name
    Attach(AttachArgs),
    /// End the loop devices of a volume
    Detach(DetachArgs),
}

const AFTER_ATTACH_HELP: &str = "\
It is a loop device, as that is of a file of a mount, stays without a process of its own, and is in every kernel. What goes
through it crosses the kernel twice, and is in two caches. Where /dev/ublk-control is, and nothing else needs the pool mounted,
`lode block serve POOL NAME --ublk` gives a device without both: for that a process stays, and the pool is its own.";

impl BlockCommand {
    /// The name, for messages and JSON.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "block create",
            Self::List(_) => "block list",
            Self::Resize(_) => "block resize",
            Self::Delete(_) => "block delete",
            Self::Serve(_) => "block serve",
            Self::Attach(_) => "block attach",
            Self::Detach(_) => "block detach",
        }
    }
}

/// `lode block create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
    /// Name of the volume, at most 128 bytes
    pub(crate) name: OsString,
    /// Its size: K, M, G and T are powers of 1024
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) size: u64,
    /// Take space only for what is written; what is discarded gives it back
    #[arg(long)]
    pub(crate) thin: bool,
    /// Bytes that are written wholly or not at all: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = parse_sector)]
    pub(crate) sector: Sector,
}

/// `lode block list`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
}

/// `lode block resize`.
#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
    /// Name of the volume
    pub(crate) name: OsString,
    /// Its new size: K, M, G and T are powers of 1024
    #[arg(long, value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) size: u64,
    /// Make it smaller, too: what is behind its new end is lost
    #[arg(long)]
    pub(crate) shrink: bool,
}

/// `lode block delete`.
#[derive(Args, Debug)]
pub(crate) struct NameArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
    /// Name of the volume
    pub(crate) name: OsString,
}

/// `lode block serve`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("where").args(["socket", "listen", "ublk"]).required(true).multiple(true))]
pub(crate) struct ServeArgs {
    /// The pool, or the directory it is mounted at; with --raw a file or DAX device that is no pool
    #[arg(value_name = "POOL|DIR|REGION")]
    pub(crate) pool: PathBuf,
    /// Names of volumes; all of them if there are none
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<OsString>,
    /// A Unix socket, which is made, for its owner alone
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// An address or a name, and a port (0: any that is free), as 127.0.0.1:10809 or localhost:10809: a loopback address for all
    /// users of this machine, any other with a certificate for clients that use TLS; of a name the first address that can be had
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = Listen::parse)]
    pub(crate) listen: Option<Listen>,
    /// The server's certificate for TLS, in PEM, and those that lead to who signed it
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Let only clients use TLS that show a certificate which one of these, in PEM, has signed
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Whether clients on the Unix socket or a loopback address have to use TLS, too
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value = "optional",
        requires = "tls_cert"
    )]
    pub(crate) tls: TlsUse,
    /// As devices /dev/ublkbN of the kernel, whose names are printed: for root, with the driver ublk_drv of Linux 6.4
    #[arg(long, conflicts_with_all = ["socket", "listen", "tls_cert"])]
    pub(crate) ublk: bool,
    /// Nothing can be written; --read-only=NAME: not to this volume. May be given for several
    #[arg(
        long,
        short,
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    pub(crate) read_only: Vec<OsString>,
    #[command(flatten)]
    pub(crate) raw: RawArgs,
}

/// Whether clients of this machine use TLS.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TlsUse {
    /// As they like
    Optional,
    /// They have to
    Required,
}

/// `lode block attach`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_ATTACH_HELP)]
pub(crate) struct AttachArgs {
    /// The pool, which is mounted, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) dir: PathBuf,
    /// Name of the volume
    pub(crate) name: OsString,
    /// Nothing can be written to it
    #[arg(long, short)]
    pub(crate) read_only: bool,
    /// Look for partitions on it
    #[arg(long, short = 'P')]
    pub(crate) partscan: bool,
}

/// `lode block detach`.
#[derive(Args, Debug)]
pub(crate) struct DetachArgs {
    /// The pool, which is mounted, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) dir: PathBuf,
    /// Name of the volume
    pub(crate) name: OsString,
}

fn parse_sector(text: &str) -> std::result::Result<Sector, String> {
    let bytes = parse_size(text)?;
    Sector::of(bytes).ok_or_else(|| format!("`{text}` is not a sector size: choose 512 or 4096"))
}

/// Runs it.
///
/// # Errors
/// `Exists` and `NotFound` for names, `Busy` for what is open, `NoSpace`, `Denied` where it is mounted read-only, and what opening, or asking the
/// server, gives.
pub(crate) fn run(command: &BlockCommand, output: &Output) -> Result<()> {
    named(command)?;
    match command {
        BlockCommand::Create(args) => manage::create(args, output),
        BlockCommand::List(args) => manage::list(args, output),
        BlockCommand::Resize(args) => manage::resize(args, output),
        BlockCommand::Delete(args) => manage::delete(args, output),
        BlockCommand::Serve(args) => serve::serve(args, output),
        BlockCommand::Attach(args) => loops::attach(args, output),
        BlockCommand::Detach(args) => loops::detach(args, output),
    }
}

/// Whoever is to name a volume has.
fn named(command: &BlockCommand) -> Result<()> {
    let (target, names) = match command {
        BlockCommand::Create(_) | BlockCommand::List(_) => return Ok(()),
        BlockCommand::Resize(ResizeArgs { target, name, .. })
        | BlockCommand::Delete(NameArgs { target, name })
        | BlockCommand::Attach(AttachArgs { dir: target, name, .. })
        | BlockCommand::Detach(DetachArgs { dir: target, name }) => {
            (target, std::slice::from_ref(name))
        }
        BlockCommand::Serve(ServeArgs { pool, names, .. }) => (pool, names.as_slice()),
    };
    match names.iter().find(|name| name.is_empty()) {
        Some(name) => Err(refused(target, name, &Error::BadName)),
        None => Ok(()),
    }
}

/// Why nothing was done with this volume, for the user.
fn refused(target: &Path, name: &OsStr, error: &Error) -> Failure {
    let shown = printable(std::os::unix::ffi::OsStrExt::as_bytes(name));
    let failure = match error {
        Error::NotFound => Failure::new(Kind::NotFound, format!("there is no volume {shown}"))
            .advise("`lode block list` shows which there are"),
        Error::Exists => Failure::new(Kind::Exists, format!("there is a volume or file {shown} already"))
            .advise("choose another name, or delete that volume with `lode block delete`; a file that is none is removed in a mount, from .lode/volumes"),
        Error::BadName => Failure::usage(format!("`{shown}` can't be the name of a volume"))
            .advise("choose one of 1 to 128 bytes of UTF-8 without / and control characters, which is not `.` or `..`"),
        Error::BadSize { .. } => Failure::usage(error.to_string())
            .advise("choose a multiple of the volume's sector, which `lode block list` shows: any whole number of M is one"),
        Error::Shrinks { .. } => Failure::usage(format!("{shown} is larger than that: {error}"))
            .advise("--shrink makes it smaller: what is behind its new end is lost"),
        Error::InUse => Failure::new(Kind::Busy, "the volume is in use").advise(
            "`lode block detach` ends its loop devices, SIGTERM who serves it; close it, then try again",
        ),
        Error::NotAVolume => Failure::new(Kind::Failed, format!("{shown}: {error}")).advise(
            "the file was put there by hand, or its extended attribute user.lode.volume was changed: in a mount it is in .lode/volumes",
        ),
        Error::Outside { .. } => Failure::new(Kind::Failed, error.to_string()),
        Error::Pool(lode_engine::Error::NoSpace) => {
            Failure::new(Kind::NoSpace, "no space left in the pool")
                .advise("choose a smaller size, make it --thin if it is not, or delete files or snapshots first")
        }
        Error::Pool(lode_engine::Error::ReadOnly) => {
            Failure::new(Kind::Denied, "the pool is mounted read-only")
                .advise("mount it read-write to make, resize or delete volumes")
        }
        Error::Pool(error) => return Failure::engine(target, error),
    };
    failure.at(target)
}
