//! Receiving a snapshot, and going on with it from whatever a crash left: that must end as if there had been no crash.

use lode_engine::{Error, OpenOptions, Pool, SnapshotId};
use lode_testkit::receive::bring;
use lode_testkit::snapshot::{Times, difference, snapshot};

use super::inspect::{Allowed, sound};
use crate::explore::{Setup, SimulatedPool};
use crate::region::Simulated;
use crate::schedule::SchedHost;

/// Which snapshot it is.
const ID: SnapshotId = SnapshotId { pool: [5; 16], epoch: 7, created_ns: 8 };

fn open(medium: &Simulated, host: &SchedHost, setup: &Setup) -> Result<SimulatedPool, String> {
    let options = OpenOptions { receiving: true, ..setup.options() };
    Pool::open(medium.clone(), host.clone(), &options)
        .map_err(|error| format!("open to receive: {error:?}"))
}

/// Brings what is missing. What is noted is how many changes were made, and whether there will be an end.
fn bring_rest(pool: &SimulatedPool, from: usize, wholly: bool) -> lode_engine::Result<()> {
    bring(pool, from, &mut |made| pool.note_receiving(&[made as u8, u8::from(wholly)]))?;
    if wholly { pool.finish_receiving() } else { Ok(()) }
}

/// Receives a snapshot into a pool that is closed, wholly or not, and leaves it closed. Says whether it is there:
/// what the pool has no space for is given up.
pub(crate) fn receive(
    medium: &Simulated,
    host: &SchedHost,
    setup: &Setup,
    (name, wholly): (&[u8], bool),
) -> Result<bool, String> {
    let pool = open(medium, host, setup)?;
    let begun = pool.begin_receiving(name, &ID, &[0, u8::from(wholly)]);
    let is_there = begun == Err(Error::Exists);
    let received = begun.and_then(|()| bring_rest(&pool, 0, wholly));
    pool.close().map_err(|error| format!("close: {error:?}"))?;
    match received {
        Ok(()) if wholly => return Ok(true),
        Ok(()) | Err(Error::NoSpace) => {}
        Err(Error::Exists) if is_there => return Ok(false),
        Err(error) => return Err(format!("receive: {error:?}")),
    }
    match Pool::abandon_receiving(medium.clone(), host.clone()) {
        Ok(()) => Ok(false),
        // There was no space to begin.
        Err(Error::NotFound) if received == Err(Error::NoSpace) => Ok(false),
        Err(error) => Err(format!("give up: {error:?}")),
    }
}

/// Goes on with what is being received into a copy of the pool: it ends at what is allowed. (What that loads is
/// logged with the rest.)
pub(super) fn go_on(
    medium: &Simulated,
    setup: &Setup,
    allowed: &[Allowed<'_>],
) -> Result<(), String> {
    let copy = medium.fork();
    copy.watch(medium.take_watches());
    let ended = go_on_with(&copy, setup, allowed);
    medium.watch(copy.take_watches());
    ended
}

fn go_on_with(medium: &Simulated, setup: &Setup, allowed: &[Allowed<'_>]) -> Result<(), String> {
    let failed = |error: Error| format!("going on: {error:?}");
    let host = setup.lone_host();
    let pool = open(medium, &host, setup)?;
    let mark = pool.receiving().map_err(failed)?.ok_or("nothing is being received")?;
    let [made, wholly] = mark.note.as_slice() else { return Err("another note".to_owned()) };
    if *made > 0 && pool.lookup(pool.root(), b"brought").is_err() {
        return Err("what was received is gone, and goes on".to_owned());
    }
    // (Where one tree is known, it is that of before.)
    if *wholly == 0 || allowed.len() < 2 {
        return Ok(());
    }
    match bring_rest(&pool, usize::from(*made), true) {
        Err(Error::NoSpace) => return Ok(()),
        brought => brought.map_err(failed)?,
    }
    let found = snapshot(&pool, Times::NONE, None)?;
    sound(&pool, "check behind going on")?;
    let mut all = allowed.iter().map(|allowed| difference(&allowed.expected.tree, &found));
    if all.any(|what| what.is_none()) {
        return Ok(());
    }
    let what = allowed.last().and_then(|last| difference(&last.expected.tree, &found));
    Err(format!("going on ends elsewhere: {}", what.unwrap_or_default()))
}
