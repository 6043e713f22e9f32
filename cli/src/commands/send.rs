//! `lode send`: writes a snapshot of a pool, or what differs between two, as a stream to standard output.
//!
//! The stream is the same each time, so one that was cut off goes on by making it again and leaving out what the
//! receiver has.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use lode_fuse::control::Client;
use lode_stream::{Error, Sender};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::ask::understand;
use crate::explain::mount_failure;
use crate::failure::{Failure, Kind, Result};
use crate::human::printable;
use crate::interrupt::Interrupt;
use crate::mounts;
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::region::{self, MappedPool};
use crate::report::SendReport;

/// `lode send`.
#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    /// The pool, or the directory it is mounted at
    #[arg(value_name = "POOL|DIR")]
    pub(crate) target: PathBuf,
    /// Name of the snapshot
    pub(crate) name: OsString,
    /// Send what differs from this older snapshot only: the receiver must have it
    #[arg(long, value_name = "OLDER")]
    pub(crate) since: Option<OsString>,
    /// Begin here, in bytes from the beginning of the stream: `lode receive --status` says where
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    pub(crate) from: u64,
}

/// A stream that is made piece by piece.
trait Source {
    /// Puts the next bytes into `out`, which is empty; perhaps none. `false` where that was the end.
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool>;
}

/// Runs it.
///
/// # Errors
/// `NotFound` where there is no such snapshot, `Usage` where standard output is a terminal or the stream ends before
/// `--from`, `Failed` where nobody reads the stream to its end, and what opening gives.
pub(crate) fn run(args: &SendArgs, output: &Output) -> Result<()> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(Failure::usage("the stream would go to a terminal").advise(
            "send it through a pipe, or to a file: `lode send POOL NAME | lode receive OTHER`, `> FILE`",
        ));
    }
    let handle = stdout.as_fd().try_clone_to_owned();
    let mut out = File::from(handle.map_err(|error| unwritten(args, 0, &error))?);
    let interrupt = Interrupt::by_signals()?;
    let clean = mounts::clean_path(&args.target)?;
    if let Some(mount) = super::snapshot::mount_of(&args.target, &clean)? {
        mounts::must_answer(&mount)?;
        let mut source = InMount::begin(&mount.point, args)?;
        let bytes = copy(&mut source, &mut out, args, &interrupt, output)?;
        return told(args, bytes, output);
    }
    let pool = region::open_pool(&clean, true, output)?;
    let older = args.since.as_ref().map(|older| older.as_bytes());
    let sender = Sender::new(&pool, args.name.as_bytes(), older);
    let sender = sender.map_err(|error| unsendable(&clean, &error))?;
    let mut source = InPool { path: &clean, pool: &pool, sender };
    let bytes = copy(&mut source, &mut out, args, &interrupt, output)?;
    told(args, bytes, output)
}

fn told(args: &SendArgs, bytes: u64, output: &Output) -> Result<()> {
    output.print_aside(&SendReport {
        target: args.target.display().to_string(),
        name: printable(args.name.as_bytes()),
        since: args.since.as_ref().map(|older| printable(older.as_bytes())),
        from: args.from,
        bytes,
    })
}

/// Writes the stream from `--from` on; returns how many bytes that were.
fn copy(
    source: &mut dyn Source,
    out: &mut dyn Write,
    args: &SendArgs,
    interrupt: &Interrupt,
    output: &Output,
) -> Result<u64> {
    let mut progress = Progress::of(Unit::Bytes, "sending", output.progress);
    let (mut made, mut goes_on, mut piece) = (0u64, true, Vec::new());
    while goes_on {
        if interrupt.came() {
            let what = format!("interrupted at {made}");
            return Err(Failure::new(Kind::Failed, what).advise(GO_ON));
        }
        piece.clear();
        goes_on = source.next(&mut piece)?;
        let skip = args.from.saturating_sub(made).min(piece.len() as u64) as usize;
        made += piece.len() as u64;
        let rest = piece.get(skip..).unwrap_or_default();
        out.write_all(rest).map_err(|error| unwritten(args, made, &error))?;
        progress.set(made, 0);
    }
    made.checked_sub(args.from).ok_or_else(|| {
        let from = args.from;
        Failure::usage(format!("the stream has {made} bytes, and can't begin at {from}"))
            .advise("`lode receive --status POOL` says where it goes on")
    })
}

const GO_ON: &str = "`lode receive --status POOL`, where it was received, says where to go on: `lode send ... --from OFFSET`";

fn unwritten(args: &SendArgs, made: u64, error: &io::Error) -> Failure {
    let what = match error.kind() {
        io::ErrorKind::BrokenPipe => format!("nobody reads the stream any more, at {made}"),
        _ => format!("writing the stream failed at {made}: {error}"),
    };
    Failure::new(Kind::Failed, what).at(&args.target).advise(GO_ON)
}

/// A pool that this command has opened.
struct InPool<'a> {
    path: &'a Path,
    pool: &'a MappedPool,
    sender: Sender,
}

impl Source for InPool<'_> {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        self.sender.next(self.pool, out).map_err(|error| unsendable(self.path, &error))
    }
}

/// A pool that a server has mounted.
struct InMount<'a> {
    dir: &'a Path,
    /// The stream, as the server knows it.
    number: u64,
}

/// What a server says that does not go on.
#[derive(Deserialize)]
struct Refused {
    absent: bool,
    why: String,
}

#[derive(Deserialize)]
struct Begun {
    number: u64,
}

#[derive(Deserialize)]
struct Piece {
    bytes: String,
    more: bool,
}

impl<'a> InMount<'a> {
    fn begin(dir: &'a Path, args: &SendArgs) -> Result<Self> {
        let mut mount = Self { dir, number: 0 };
        let since = args.since.as_ref().map(|older| older.as_bytes());
        let request = json!({ "op": "send", "name": args.name.as_bytes(), "since": since });
        mount.number = mount.ask::<Begun>(&request)?.number;
        Ok(mount)
    }

    /// Over a connection of its own: a server does not wait for who has to wait for his reader.
    fn ask<T: DeserializeOwned>(&self, request: &Value) -> Result<T> {
        let answer = Client::for_mount(self.dir).and_then(|mut client| client.request(request));
        let answer = answer.map_err(|error| mount_failure(self.dir, &error))?;
        let Some(refused) = answer.get("refused") else { return understand(self.dir, answer) };
        let Refused { absent, why } = understand(self.dir, refused.clone())?;
        let failure = Failure::new(if absent { Kind::NotFound } else { Kind::Failed }, why);
        let failure = failure.at(self.dir);
        Err(match absent {
            true => failure.advise("`lode snapshot list` shows which snapshots there are"),
            false => failure,
        })
    }
}

impl Source for InMount<'_> {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let request = json!({ "op": "send", "number": self.number });
        let Piece { bytes, more } = self.ask(&request)?;
        let digit = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
        let pairs = bytes.as_bytes().as_chunks::<2>().0;
        out.extend(pairs.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)));
        Ok(more)
    }
}

/// Why a snapshot can't be sent, for the user.
fn unsendable(pool: &Path, error: &Error) -> Failure {
    match error {
        Error::Pool { source, .. } => {
            Failure { what: error.to_string(), ..Failure::engine(pool, source) }
        }
        Error::Absent(_) | Error::Deleted(_) => Failure::new(Kind::NotFound, error.to_string())
            .at(pool)
            .advise("`lode snapshot list` shows which there are"),
        Error::PathTooLong { .. } => Failure::new(Kind::Unsupported, error.to_string())
            .at(pool)
            .advise("give directories on the way shorter names, and make another snapshot"),
        _ => Failure::new(Kind::Failed, error.to_string()).at(pool),
    }
}
