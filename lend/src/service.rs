//! The owner's side as a whole: programs come, are lent memory, and go.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lode_loan::{CHUNK_BYTES, Method, Refusal, VERSION};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::complaints::Complaints;
use crate::facts::{Counts, Facts, add, now_ns};
use crate::filler;
use crate::ledger::{Ledger, Lent, Program, SessionId};
use crate::lender::Lender;
use crate::limits::Limits;
use crate::session::{Session, send_line};
use crate::source::Source;
use crate::wish::Wishes;

/// Sessions at a time.
pub const SESSIONS_MOST: usize = 4096;
/// Descriptors that a process needs beside those of sessions.
const OTHER_FILES: u64 = 1024;
/// How long the threads may take to end: each ends behind what it is doing for a chunk.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

thread_local! {
    /// This thread is one of a service's.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Where memory comes from, by method.
pub trait Sources: Send + Sync {
    /// The source for a session: the same one each time, but for [`Method::Mmap`], where each has its own.
    ///
    /// # Errors
    /// [`Refusal::Ending`] where there is none any more.
    fn source(&self, method: Method) -> Result<Arc<dyn Source>, Refusal>;
}

/// What the threads of a service share. Nobody who has the lock of `state` asks a source for anything: that may
/// wait for the pool, and who uses the pool may wait here.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// Something of it is other than it was.
    pub(crate) changed: Condvar,
    /// Wakes the thread that lends.
    pub(crate) wake: OwnedFd,
    pub(crate) sources: Box<dyn Sources>,
    pub(crate) counts: Counts,
    pub(crate) complaints: Complaints,
    region_bytes: u64,
    next: AtomicU64,
}

pub(crate) struct State {
    pub(crate) ledger: Ledger,
    pub(crate) wishes: Wishes,
    pub(crate) newcomers: Vec<Session>,
    /// Programs wait for what is being made ready: the thread that lends is to be woken by it.
    pub(crate) takes_wait: bool,
    /// Chunks without a session are locked still: the thread that lends is to look at them again.
    pub(crate) left_locked: bool,
    /// What programs are to be told.
    pub(crate) wish_to_tell: Option<u64>,
    pub(crate) ending: bool,
}

impl Shared {
    pub(crate) fn wake(&self) {
        // (A full counter wakes, too; any number does, in any order of bytes.)
        let _ = rustix::io::write(&self.wake, &1_u64.to_le_bytes());
    }

    /// Tells those who wait for it that something is, or is not, ready by now.
    pub(crate) fn tell(&self, state: &State) {
        self.changed.notify_all();
        if state.takes_wait {
            self.wake();
        }
    }

    /// Gives chunks back that nobody has.
    pub(crate) fn give(&self, chunks: Vec<Lent>) {
        for (chunk, source) in chunks {
            source.give(chunk);
        }
    }

    /// Gives back those of these chunks, which have no session, that nobody has locked; how many those were. They are
    /// from that session, if from any that goes on.
    pub(crate) fn release(&self, from: Option<SessionId>, chunks: &[u64]) -> u64 {
        let mut released = 0;
        for chunk in chunks {
            let source = self.state.lock().ledger.source_of(*chunk);
            let Some(source) = source.filter(|source| !source.locked(*chunk)) else { continue };
            // First it is nobody's, then it may be somebody else's.
            if self.state.lock().ledger.remove(*chunk).is_some() {
                source.give(*chunk);
                released += 1;
            }
        }
        if released < chunks.len() as u64 {
            self.state.lock().left_locked = true;
        }
        if released > 0 {
            add(&self.counts.returned, released);
            let mut state = self.state.lock();
            // Who gives back what others can have is not silent: files that want more may ask at once.
            if let Some(program) = from.and_then(|from| state.ledger.program(from)) {
                program.asked = None;
            }
            if state.wishes.round.is_some() {
                add(&self.counts.wished, released);
                state.wishes.came_back(released);
            }
            self.changed.notify_all();
        }
        released
    }
}

/// Marks this thread as one that no file may wait for.
pub(crate) fn is_ours() {
    OURS.set(true);
}

/// A pool's memory, as it is lent to programs.
pub struct Service {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Service {
    /// Lends memory from `sources`, of a region of so many bytes. `held` are chunks that programs of a former owner
    /// have: taken as lent, and of the source for [`Method::Direct`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(
        sources: Box<dyn Sources>,
        limits: Limits,
        region_bytes: u64,
        held: &[u64],
    ) -> io::Result<Self> {
        allow_files();
        let mut ledger = Ledger::new(limits);
        if !held.is_empty() {
            let direct = sources.source(Method::Direct);
            let direct = direct.map_err(|refusal| io::Error::other(refusal.words()))?;
            for chunk in held {
                ledger.was_held(*chunk, Arc::clone(&direct));
            }
        }
        let state = State {
            ledger,
            wishes: Wishes::default(),
            newcomers: Vec::new(),
            takes_wait: false,
            left_locked: false,
            wish_to_tell: None,
            ending: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            sources,
            counts: Counts::default(),
            complaints: Complaints::new(),
            region_bytes,
            next: AtomicU64::new(1),
        });
        let service = Self { shared: Arc::clone(&shared), threads: Mutex::new(Vec::new()) };
        let lender = Lender::new(Arc::clone(&shared))?;
        service.spawn("lode-lend", move || lender.run())?;
        if limits.ready > 0 {
            service.spawn("lode-lend-ready", move || filler::run(&shared))?;
        }
        Ok(service)
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let builder = thread::Builder::new().name(name.into());
        let thread = builder.spawn(move || {
            is_ours();
            work();
        });
        self.threads.lock().push(thread?);
        Ok(())
    }

    /// Makes a connection, whose program has said by which method it wants memory and nothing behind it, a session,
    /// and answers it.
    ///
    /// # Errors
    /// Why it is refused, a sentence; then nothing was answered.
    pub fn admit(&self, stream: &UnixStream, method: Method) -> Result<(), String> {
        let shared = &self.shared;
        let peer = socket_peercred(stream).map_err(|error| format!("who are you? {error}"))?;
        let (pid, uid) = (peer.pid.as_raw_pid().unsigned_abs(), peer.uid.as_raw());
        if !may(uid) {
            let what = "memory is lent to the pool's user alone";
            self.refuse(pid, &format!("{what}, not to user {uid}"));
            return Err(what.to_owned());
        }
        let source = shared.sources.source(method).map_err(|refusal| refusal.words().to_owned())?;
        let descriptor = source
            .descriptor()
            .map_err(|error| format!("the pool can't be passed to another process: {error}"))?;
        let stream = stream.try_clone().map_err(|error| error.to_string())?;
        let id = shared.next.fetch_add(1, Relaxed);
        let program = Program {
            pid,
            uid,
            name: name_of(pid),
            method,
            since_ns: now_ns(),
            chunks: Default::default(),
            most: 0,
            asked: None,
        };
        let mut state = shared.state.lock();
        if state.ending {
            return Err(Refusal::Ending.words().to_owned());
        }
        if state.ledger.programs().count() >= SESSIONS_MOST {
            drop(state);
            let what = format!("{SESSIONS_MOST} programs have memory already; try again later");
            self.refuse(pid, &what);
            return Err(what);
        }
        let line = format!(
            "{{\"schema\":1,\"ok\":true,\"op\":\"heap\",\"version\":{VERSION},\"chunk_bytes\":{CHUNK_BYTES},\"region_bytes\":{}}}\n",
            shared.region_bytes
        );
        // (Whose connection broke is gone, and no session.)
        if send_line(&stream, &line, &descriptor).is_ok() {
            state.ledger.join(id, program);
            state.newcomers.push(Session::new((id, pid), method, source, (stream, descriptor)));
            add(&shared.counts.sessions, 1);
            shared.changed.notify_all();
            drop(state);
            shared.wake();
        }
        Ok(())
    }

    fn refuse(&self, pid: u32, what: &dyn std::fmt::Display) {
        add(&self.shared.counts.hostile, 1);
        self.shared.complaints.note(pid, what);
    }

    /// Files are short of `pages` pages of 4 KiB: gets back what is not in use. True where something came back, so
    /// that it is worth trying again. It takes [`crate::wish::PATIENCE`] at most; nobody may have a lock of the pool
    /// meanwhile that giving back takes.
    pub fn spare(&self, pages: u64) -> bool {
        if OURS.get() {
            return false;
        }
        let shared = &self.shared;
        let mut state = shared.state.lock();
        if state.ending {
            return false;
        }
        state.wishes.note_short();
        let ready = state.ledger.drain_ready();
        if !ready.is_empty() {
            shared.changed.notify_all();
            drop(state);
            shared.give(ready);
            return true;
        }
        let wanted = pages.div_ceil(CHUNK_BYTES / lode_engine::PAGE_BYTES).max(1);
        let State { ledger, wishes, wish_to_tell, .. } = &mut *state;
        let Some((tag, is_new)) = wishes.begin(ledger, wanted) else { return false };
        if is_new {
            *wish_to_tell = Some(tag);
            add(&shared.counts.wishes, 1);
            shared.wake();
        }
        loop {
            if let Some(returned) = state.wishes.outcome(tag) {
                return returned > 0;
            }
            let until = state.wishes.round.as_ref().map_or_else(Instant::now, |round| round.until);
            if shared.changed.wait_until(&mut state, until).timed_out()
                && state.wishes.round.as_ref().is_some_and(|round| round.tag == tag)
            {
                state.wishes.end();
                shared.changed.notify_all();
            }
        }
    }

    /// What is lent, and to whom.
    pub fn facts(&self) -> Facts {
        Facts::of(&self.shared.state.lock().ledger, &self.shared.counts)
    }

    /// Ends all sessions; gives back all that nobody has locked. What is left stays lent to the end of the pool's
    /// use: programs have it.
    pub fn stop(&self) {
        self.shared.state.lock().ending = true;
        self.shared.changed.notify_all();
        self.shared.wake();
        let end = Instant::now() + ENDS_WITHIN;
        for thread in self.threads.lock().drain(..) {
            while !thread.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                tracing::warn!("a thread that lends memory does not end");
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether a process of this user may have memory: the owner's own, and root's.
pub(crate) fn may(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The name of a process, or a question mark.
pub(crate) fn name_of(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    let name: String = name.chars().filter(|letter| !letter.is_control()).collect();
    if name.is_empty() { "?".to_owned() } else { name }
}

/// Sessions take two descriptors each: more than a process may have where nothing else is said.
fn allow_files() {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = 2 * SESSIONS_MOST as u64 + OTHER_FILES;
    let most = limit.maximum.unwrap_or(u64::MAX).min(wanted);
    if limit.current.is_some_and(|current| current < most) {
        limit.current = Some(most);
        // (Who comes when there are no more waits.)
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_for_the_owner_and_root_alone() {
        let own = rustix::process::geteuid().as_raw();
        assert!(may(own) && may(0));
        assert!(!may(own + 1) && !may(u32::MAX));
    }
}
