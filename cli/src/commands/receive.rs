//! `lode receive`: applies a stream of `lode send` to a pool that is not mounted, wholly or not at all.
//!
//! Until its end the pool is what it was, to all others. What was received stays: the stream goes on where it was cut
//! off, or comes again from its beginning.

use std::io::{self, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lode_engine::{Error as Engine, Pool};
use lode_host::StdHost;
use lode_pmem::RegionOptions;
use lode_stream::{Begun, Error, Receiver, Start, point_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::{Failure, Kind, Result};
use crate::human::printable;
use crate::interrupt::Interrupt;
use crate::mounts;
use crate::output::Output;
use crate::progress::{Progress, Unit, while_working};
use crate::region::{self, MappedPool};
use crate::report::{ReceiveReport, ReceiveState};

/// Bytes of the stream that are read at once.
const READ_BYTES: usize = 256 << 10;
/// How long a read waits until it is asked whether it is still wanted.
const WAIT: Duration = Duration::from_millis(200);

/// `lode receive`.
#[derive(Args, Debug)]
pub(crate) struct ReceiveArgs {
    /// File or device that holds the pool
    pub(crate) pool: PathBuf,
    /// Lose what is in the way: all that is in the pool for a whole snapshot, once it is received; what was changed
    /// since the older snapshot (and later snapshots) for a difference, at once
    #[arg(long)]
    pub(crate) force: bool,
    /// Say what is being received, and where its stream goes on
    #[arg(long, conflicts_with_all = ["force", "abandon"])]
    pub(crate) status: bool,
    /// Give up what is being received: the pool is again what it was
    #[arg(long, conflicts_with = "force")]
    pub(crate) abandon: bool,
}

/// Runs it.
///
/// # Errors
/// `Exists` where something is in the way, `NotFound` where the older snapshot is not there, `Busy` where the pool is
/// mounted or another stream is being received, `Failed` where the stream ends too early or is damaged, and what
/// opening gives.
pub(crate) fn run(args: &ReceiveArgs, output: &Output) -> Result<()> {
    let path = mounts::clean_path(&args.pool)?;
    if args.status {
        return status(args, &path, output);
    }
    if args.abandon {
        return abandon(args, &path, output);
    }
    if io::stdin().is_terminal() {
        return Err(Failure::usage("standard input is a terminal, and no stream").advise(
            "give it one: `lode send OTHER NAME | lode receive POOL`, or `lode receive POOL < FILE`",
        ));
    }
    let interrupt = Interrupt::by_signals()?;
    let mut stream = BufReader::with_capacity(READ_BYTES, Stream { interrupt: interrupt.clone() });
    let failed = |error: &Error| refused(&args.pool, error, &interrupt);
    let mut next = match Start::read(&mut stream) {
        // Nothing came: it goes on where it would have before.
        Err(Error::Cut { .. }) => {
            return Err(failed(&Error::Cut { offset: noted(&path, output)? }));
        }
        start => Some(start.map_err(|error| failed(&error))?),
    };
    while let Some(start) = next {
        one(args, &path, (&start, &mut stream), &failed, output)?;
        next = Start::read_next(&mut stream).map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// Where the stream of what is being received goes on.
fn noted(path: &Path, output: &Output) -> Result<u64> {
    let pool = region::open_pool(path, true, output)?;
    let point = point_of(&pool).map_err(|error| engine_failure(path, &error))?;
    Ok(point.map_or(0, |point| point.offset))
}

/// Receives one stream.
fn one(
    args: &ReceiveArgs,
    path: &Path,
    (start, stream): (&Start, &mut dyn Read),
    failed: &dyn Fn(&Error) -> Failure,
    output: &Output,
) -> Result<()> {
    let mut apply = |force| {
        let pool = region::open_to_receive(path, output)?;
        let received = receive(&pool, start, stream, force, output);
        // What went wrong first is what to tell.
        let closed = pool.close().map_err(|error| Failure::engine(path, &error));
        received.map_err(|error| failed(&error)).and_then(|received| closed.map(|()| received))
    };
    let mut received = apply(args.force)?;
    if let Received::Not(older) = received {
        roll_back(path, &older, output)?;
        received = apply(args.force)?;
    }
    match received {
        Received::As(state, name) => print(args, (state, Some(name), None), output),
        Received::Not(_) => {
            Err(Failure::new(Kind::Busy, "something else changes the pool").at(path))
        }
    }
}

/// What became of a stream.
enum Received {
    As(ReceiveState, Vec<u8>),
    /// The pool is to be rolled back to this snapshot first.
    Not(Vec<u8>),
}

fn receive(
    pool: &MappedPool,
    start: &Start,
    stream: &mut dyn Read,
    force: bool,
    output: &Output,
) -> lode_stream::Result<Received> {
    let mut progress = Progress::of(Unit::Bytes, "receiving", output.progress);
    let mut receiver = match Receiver::begin(pool, start, force)? {
        Begun::Receiver(receiver) => receiver,
        Begun::There => {
            start.skip(stream)?;
            let name = start.header().map(|header| header.name.clone()).unwrap_or_default();
            return Ok(Received::As(ReceiveState::There, name));
        }
        Begun::RollBack(older) => return Ok(Received::Not(older)),
    };
    let name = point_of(pool)?.map(|point| point.name).unwrap_or_default();
    receiver.run(stream, &mut |offset| {
        progress.set(offset, 0);
        true
    })?;
    Ok(Received::As(ReceiveState::Received, name))
}

fn roll_back(path: &Path, older: &[u8], output: &Output) -> Result<()> {
    let region = region::open(path, &RegionOptions::new())?;
    while_working("rolling back", output.progress, || Pool::rollback(region, StdHost::new(), older))
        .map_err(|error| Failure::engine(path, &error))
}

fn print(
    args: &ReceiveArgs,
    (state, name, offset): (ReceiveState, Option<Vec<u8>>, Option<u64>),
    output: &Output,
) -> Result<()> {
    let pool = args.pool.display().to_string();
    let name = name.as_deref().map(printable);
    output.print(&ReceiveReport { pool, state, name, offset })
}

fn status(args: &ReceiveArgs, path: &Path, output: &Output) -> Result<()> {
    let pool = region::open_pool(path, true, output)?;
    let point = point_of(&pool).map_err(|error| engine_failure(path, &error))?;
    let found = match point {
        None => (ReceiveState::Idle, None, None),
        Some(point) => (ReceiveState::Receiving, Some(point.name), Some(point.offset)),
    };
    print(args, found, output)
}

fn abandon(args: &ReceiveArgs, path: &Path, output: &Output) -> Result<()> {
    let pool = region::open_pool(path, true, output)?;
    let point = point_of(&pool).map_err(|error| engine_failure(path, &error))?;
    drop(pool);
    let Some(point) = point else {
        return Err(Failure::new(Kind::NotFound, "nothing is being received").at(path));
    };
    let region = region::open(path, &RegionOptions::new())?;
    while_working("giving up what was received", output.progress, || {
        Pool::abandon_receiving(region, StdHost::new())
    })
    .map_err(|error| Failure::engine(path, &error))?;
    print(args, (ReceiveState::Abandoned, Some(point.name), None), output)
}

/// Standard input, which ends when somebody wants no more of it.
struct Stream {
    interrupt: Interrupt,
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let stdin = rustix::stdio::stdin();
        let wait = Timespec { tv_sec: 0, tv_nsec: WAIT.subsec_nanos().into() };
        loop {
            if self.interrupt.came() {
                return Ok(0);
            }
            let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut ready, Some(&wait)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(rustix::io::read(stdin, into)?),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Why a pool could not do what was asked of it, for the user.
pub(super) fn engine_failure(pool: &Path, error: &Error) -> Failure {
    match error {
        Error::Pool { source, .. } => {
            let failure = Failure::engine(pool, source);
            let failure = match source {
                Engine::NoSpace => failure.advise(
                    "`lode receive --abandon POOL`, then make it larger with `lode resize`, or receive into a larger one",
                ),
                _ => failure,
            };
            Failure { what: error.to_string(), ..failure }
        }
        _ => Failure::new(Kind::Failed, error.to_string()).at(pool),
    }
}

/// Why a stream was not received, for the user.
fn refused(pool: &Path, error: &Error, interrupt: &Interrupt) -> Failure {
    const ABANDON: &str =
        "`lode receive --abandon POOL` gives up what was received; then send it again";
    let (kind, advice) = match error {
        Error::Pool { .. } => return engine_failure(pool, error),
        Error::Cut { offset } | Error::Interrupted { offset } => {
            let why = if interrupt.came() { "interrupted" } else { "the stream ends too early" };
            let advice = match offset {
                0 => "send it again, from its beginning".to_owned(),
                _ => format!(
                    "go on with `lode send ... --from {offset} | lode receive {0}`; `lode receive --status {0}` \
                     says so again, `--abandon` gives it up",
                    pool.display()
                ),
            };
            let what = format!("{why}: received up to {offset}");
            return Failure::new(Kind::Failed, what).at(pool).advise(advice);
        }
        Error::Behind => {
            (Kind::Failed, "what came before it was received: give `lode receive` streams only")
        }
        Error::NotAStream => (Kind::Failed, "give it what `lode send` writes"),
        Error::Version(_) => (Kind::Unsupported, "use a newer version of lode"),
        Error::Damaged { .. } => (
            Kind::Failed,
            "send it again, from where `lode receive --status POOL` says; or give it up with `--abandon`",
        ),
        Error::Impossible { .. } => (Kind::Failed, ABANDON),
        Error::NoOlder => (
            Kind::NotFound,
            "send a whole snapshot, without --since, or since one that the pool has: `lode snapshot list` shows which",
        ),
        Error::NotEmpty => {
            (Kind::Exists, "receive into a new pool, or lose what is in this one with --force")
        }
        Error::Changed { .. } => (
            Kind::Exists,
            "--force rolls the pool back to that snapshot first: what came later is lost",
        ),
        Error::NameTaken(_) => (
            Kind::Exists,
            "delete that one with `lode snapshot delete`, or receive into another pool",
        ),
        Error::OtherStream(_) => (
            Kind::Busy,
            "go on with that one: `lode receive --status POOL` says where; or give it up with `--abandon`",
        ),
        Error::NothingBegun => {
            (Kind::Failed, "send it from its beginning: `lode send` without --from")
        }
        Error::Read(_) | Error::Absent(_) | Error::Deleted(_) | Error::PathTooLong { .. } => {
            (Kind::Failed, "send it again")
        }
    };
    Failure::new(kind, error.to_string()).at(pool).advise(advice)
}
