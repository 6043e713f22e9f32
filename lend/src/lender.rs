//! The thread that speaks with all programs.
//!
//! A session gets one frame's turn, then the others: who sends much waits for itself. What is asked of a session that
//! does not take its answers waits, unread. So does what is behind a request that is answered later, as a chunk is just
//! being made ready: the others are not to wait for that.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lode_loan::{CHUNKS_MOST, Head, Kind, Refusal};
use rustix::event::{Timespec, epoll};

use crate::facts::add;
use crate::ledger::{Lent, SessionId};
use crate::service::{Shared, State};
use crate::session::{Frame, Pending, Read, Session, WaitsFor};

/// The number that is no session's.
const WAKE: u64 = 0;
/// How long a chunk may take to be made ready before a request is refused.
const ZEROED_IN: Duration = Duration::from_millis(if cfg!(test) { 2000 } else { 200 });
/// Chunks that are zeroed for a request, where none are ready: who wants more asks again, the others wait for so many.
const BATCH: u64 = 8;
/// How often it is looked whether chunks without a session are still locked: soon at first.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LOOK: Duration = Duration::from_millis(100);
/// How many of them at a time.
const LOOKED_AT: usize = 1024;
/// How often it is looked for frames that do not come to their end, at most.
const OVERDUE: Duration = Duration::from_secs(1);
/// Events that are taken at a time.
const EVENTS: usize = 64;

/// Why a session ends.
enum End {
    Gone,
    Hostile(String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// The thread's own.
pub(crate) struct Lender {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    sessions: HashMap<SessionId, Session>,
    look_at: Option<(Instant, Duration)>,
    looked_to: usize,
    frame_within: Duration,
}

impl Lender {
    pub(crate) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(WAKE);
        epoll::add(&epoll, &shared.wake, data, epoll::EventFlags::IN)?;
        let look_at = Some((Instant::now() + LOOK, LOOK));
        let frame_within = shared.state.lock().ledger.limits().frame_within;
        let sessions = HashMap::new();
        Ok(Self { shared, epoll, sessions, look_at, looked_to: 0, frame_within })
    }

    /// Goes on until the service ends.
    pub(crate) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            let timeout = self.timeout();
            let timeout = Timespec::try_from(timeout).ok();
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            if epoll::wait(&self.epoll, room, timeout.as_ref()).is_err() {
                // (A signal; anything else must not take all time.)
                std::thread::sleep(Duration::from_millis(1));
            }
            if self.news() {
                return self.end();
            }
            for event in events.drain(..) {
                let id = event.data.u64();
                if id != WAKE {
                    self.serve(id, event.flags);
                }
            }
            self.answer_pending();
            self.look();
            self.end_overdue();
        }
    }

    fn timeout(&self) -> Duration {
        const IDLE: Duration = Duration::from_secs(3600);
        let look = self.look_at.map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let partly = self.sessions.values().any(|session| session.frame_began().is_some());
        let overdue = partly.then(|| OVERDUE.min(self.frame_within / 4));
        let pending = self.sessions.values().filter_map(|session| session.pending);
        let pending = pending.map(|it| it.until.saturating_duration_since(Instant::now())).min();
        look.into_iter().chain(overdue).chain(pending).min().unwrap_or(IDLE)
    }

    /// Takes what others have for this thread; true if it is to end.
    fn news(&mut self) -> bool {
        let mut counter = [0_u8; 8];
        let _ = rustix::io::read(&self.shared.wake, &mut counter);
        let mut state = self.shared.state.lock();
        if state.ending {
            return true;
        }
        let newcomers = std::mem::take(&mut state.newcomers);
        let wish = state.wish_to_tell.take();
        let wish = wish.and_then(|tag| {
            let round = state.wishes.round.as_ref().filter(|round| round.tag == tag)?;
            Some((tag, round.wanted, round.asked.clone()))
        });
        drop(state);
        for session in newcomers {
            let (id, data) = (session.id, epoll::EventData::new_u64(session.id));
            let added = epoll::add(&self.epoll, &session, data, epoll::EventFlags::IN);
            self.sessions.insert(id, session);
            if added.is_err() {
                self.leave(id);
            }
        }
        if let Some((tag, wanted, asked)) = wish {
            for id in asked {
                self.tell_wish(id, tag, wanted);
            }
        }
        false
    }

    fn tell_wish(&mut self, id: SessionId, tag: u64, wanted: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let count = u32::try_from(wanted).unwrap_or(u32::MAX);
        session.wish = tag;
        // (From now on, and not from the round's beginning: some rounds are over before all have heard of them.)
        if let Some(program) = self.shared.state.lock().ledger.program(id) {
            program.owes_answer = true;
        }
        if session.say_count(Kind::Wish, count, tag).is_err() {
            self.leave(id);
        } else {
            self.arm(id);
        }
    }

    /// A session can be read, or written to, or has broken.
    fn serve(&mut self, id: SessionId, flags: epoll::EventFlags) {
        let broken = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        self.with(id, |lender, session| match session.pending {
            Some(_) if broken => Err(End::Gone),
            _ => lender.turn(session),
        });
    }

    /// Does something for a session, and has it waited for, or ended, as it is then.
    fn with(&mut self, id: SessionId, work: impl FnOnce(&Self, &mut Session) -> Result<(), End>) {
        let Some(mut session) = self.sessions.remove(&id) else { return };
        let served = work(self, &mut session);
        let pid = session.pid;
        self.sessions.insert(id, session);
        match served {
            Ok(()) => self.arm(id),
            Err(End::Gone) => self.leave(id),
            Err(End::Hostile(what)) => {
                self.note_hostile(pid, &what);
                self.leave(id);
            }
        }
    }

    fn note_hostile(&self, pid: u32, what: &dyn std::fmt::Display) {
        add(&self.shared.counts.hostile, 1);
        self.shared.complaints.note(pid, what);
    }

    fn turn(&self, session: &mut Session) -> Result<(), End> {
        session.flush()?;
        if session.waits_for() != WaitsFor::Frame {
            return Ok(());
        }
        match session.read() {
            Read::Part => Ok(()),
            Read::Gone => Err(End::Gone),
            Read::Malformed(malformed) => {
                // (It gets the answer if it can.)
                let _ = session.say_count(Kind::Refused, Refusal::Invalid as u32, 0);
                Err(End::Hostile(malformed.to_string()))
            }
            Read::Frame(frame) => self.answer(session, &frame),
        }
    }

    fn answer(&self, session: &mut Session, frame: &Frame) -> Result<(), End> {
        let Head { kind, count, tag } = frame.head;
        let answered = match kind {
            Kind::Take => return self.take(session, count, tag),
            Kind::Return => self
                .take_back(session, &frame.chunks)
                .map(|returned| session.say_count(Kind::Returned, returned, tag)),
            Kind::Hold => Ok(self.hold(session, &frame.chunks, tag)),
            Kind::Spared => return self.spared(session, tag),
            _ => {
                let _ = session.say_count(Kind::Refused, Refusal::Invalid as u32, tag);
                return Err(End::Hostile(format!("a program does not say {kind:?}")));
            }
        };
        match answered {
            Ok(said) => Ok(said?),
            Err(refusal) => {
                self.note_hostile(session.pid, &refusal.words());
                Ok(session.say_count(Kind::Refused, refusal as u32, tag)?)
            }
        }
    }

    fn take(&self, session: &mut Session, count: u32, tag: u64) -> Result<(), End> {
        if count == 0 {
            self.note_hostile(session.pid, &"it wants no chunk at all");
            return Ok(session.say_count(Kind::Refused, Refusal::Invalid as u32, tag)?);
        }
        let until = Instant::now() + ZEROED_IN;
        self.supply(session, Pending { count: count.min(CHUNKS_MOST), tag, until })
    }

    /// Answers a request with some of so many chunks, zeroed, the session's from now on: those that are ready, or else a
    /// few. Where there are none but one is just being made ready, which is space, too, it is answered later.
    fn supply(&self, session: &mut Session, wanted: Pending) -> Result<(), End> {
        session.pending = None;
        let Pending { count, tag, until } = wanted;
        match self.try_chunks(session, u64::from(count)) {
            Ok(chunks) => {
                add(&self.shared.counts.granted, chunks.len() as u64);
                Ok(session.grant(tag, &chunks)?)
            }
            Err(Refusal::NoSpace | Refusal::HeapLimit)
                if Instant::now() < until && self.something_comes() =>
            {
                session.pending = Some(wanted);
                Ok(())
            }
            Err(refusal) => {
                add(&self.shared.counts.refused, 1);
                Ok(session.say_count(Kind::Refused, refusal as u32, tag)?)
            }
        }
    }

    /// Whether there is, or may soon be, what can be had: this thread is told then.
    fn something_comes(&self) -> bool {
        let mut state = self.shared.state.lock();
        let comes = state.ledger.on_the_way() > 0 || state.ledger.ready() > 0;
        state.takes_wait |= comes;
        comes
    }

    /// Answers requests that waited, the oldest first, where there is something by now, or nothing comes.
    fn answer_pending(&mut self) {
        let pending = self.sessions.values().filter_map(|it| Some((it.pending?.until, it.id)));
        let mut pending: Vec<(Instant, SessionId)> = pending.collect();
        pending.sort_unstable();
        for (until, id) in &pending {
            let state = self.shared.state.lock();
            let comes = state.ledger.ready() == 0 && state.ledger.on_the_way() > 0;
            drop(state);
            if !comes || Instant::now() >= *until {
                self.with(*id, |lender, session| match session.pending {
                    Some(wanted) => lender.supply(session, wanted),
                    None => Ok(()),
                });
            }
        }
        if !pending.is_empty() && self.sessions.values().all(|it| it.pending.is_none()) {
            self.shared.state.lock().takes_wait = false;
        }
    }

    fn try_chunks(&self, session: &Session, count: u64) -> Result<Vec<u64>, Refusal> {
        let (shared, id) = (&self.shared, session.id);
        let mut state = shared.state.lock();
        let booked = state.ledger.book(id, count)?;
        let mut chunks = state.ledger.take_ready(session.method, booked);
        let surplus = state.ledger.surplus();
        drop(state);
        shared.give(surplus);
        if chunks.is_empty() {
            let taken = take_some(session, booked.min(BATCH)).or_else(|refusal| {
                // What is ready for others is space, too.
                let ready = shared.state.lock().ledger.drain_ready();
                if ready.is_empty() {
                    return Err(refusal);
                }
                shared.give(ready);
                take_some(session, booked.min(BATCH))
            });
            match taken {
                Ok(taken) => chunks = taken,
                Err(refusal) => {
                    shared.state.lock().ledger.unbook(booked);
                    return Err(refusal);
                }
            }
        }
        let mut state = shared.state.lock();
        let refused = state.ledger.grant(id, booked, &chunks);
        shared.changed.notify_all();
        drop(state);
        if !refused.is_empty() {
            // It stays whose it is. Nobody hears of it but who reads the log.
            tracing::error!(?refused, "memory was taken that somebody has: it is not lent again");
        }
        let granted = chunks.iter().map(|(chunk, _)| *chunk);
        let mut granted: Vec<u64> = granted.filter(|chunk| !refused.contains(chunk)).collect();
        granted.retain(|chunk| self.lock(session, *chunk));
        if granted.is_empty() { Err(Refusal::NoSpace) } else { Ok(granted) }
    }

    /// Locks a chunk for the program whose it is by now. Where that can't be done it is not the program's, but apart.
    fn lock(&self, session: &Session, chunk: u64) -> bool {
        let locked = session.lock(chunk);
        let is_locked = matches!(locked, Ok(true));
        if !is_locked {
            tracing::error!(?locked, chunk, "memory can't be locked for a program: it is not lent");
            let _ = self.take_back(session, &[chunk]);
        }
        is_locked
    }

    fn take_back(&self, session: &Session, chunks: &[u64]) -> Result<u32, Refusal> {
        if chunks.is_empty() {
            return Err(Refusal::Invalid);
        }
        self.shared.state.lock().ledger.take_back(session.id, chunks)?;
        self.shared.release(Some(session.id), chunks);
        Ok(chunks.len() as u32)
    }

    fn hold(&self, session: &mut Session, chunks: &[u64], tag: u64) -> io::Result<()> {
        let mut held: Vec<u64> = Vec::new();
        for chunk in chunks {
            // What nobody has locked may be somebody else's by the time it is answered.
            let source = self.shared.state.lock().ledger.source_of(*chunk);
            if source.is_some_and(|source| source.locked(*chunk))
                && self.shared.state.lock().ledger.claim(session.id, *chunk)
            {
                held.push(*chunk);
            }
        }
        if held.len() < chunks.len() {
            let what =
                format!("{} chunks that it says it holds are not its", chunks.len() - held.len());
            self.note_hostile(session.pid, &what);
        }
        let count = held.len() as u32;
        session.say(Head { kind: Kind::Held, count, tag }, &held)
    }

    fn spared(&self, session: &mut Session, tag: u64) -> Result<(), End> {
        if tag <= session.spared || tag > session.wish {
            return Err(End::Hostile("it answers what it was not asked".to_owned()));
        }
        session.spared = tag;
        let mut state = self.shared.state.lock();
        // (It may be asked again by now, and not have heard of that.)
        if tag == session.wish && !state.wishes.asks_after(session.id, tag) {
            if let Some(program) = state.ledger.program(session.id) {
                program.owes_answer = false;
            }
            if state.wishes.answered(session.id) {
                self.shared.changed.notify_all();
            }
        }
        Ok(())
    }

    /// Has a session waited for as it is now: to be read, or to take what waits for it.
    fn arm(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let waits = session.waits_for();
        if std::mem::replace(&mut session.registered, waits) == waits {
            return;
        }
        let flags = match waits {
            WaitsFor::Frame => epoll::EventFlags::IN,
            WaitsFor::Room => epoll::EventFlags::OUT,
            // (It is always told.)
            WaitsFor::End => epoll::EventFlags::empty(),
        };
        let data = epoll::EventData::new_u64(id);
        if epoll::modify(&self.epoll, &*session, data, flags).is_err() {
            self.leave(id);
        }
    }

    /// A session is over: what it had comes back, unless somebody has it locked.
    fn leave(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id) {
            let _ = epoll::delete(&self.epoll, &session);
            // Closed before its chunks are looked at: the connection is one of those who could still speak for them.
            drop(session);
        }
        let mut state = self.shared.state.lock();
        let chunks = state.ledger.leave(id);
        let surplus = state.ledger.surplus();
        drop(state);
        self.shared.give(surplus);
        // What it had counts for files that wait, and is waited for where it is locked still: its end may not be over.
        let released = self.shared.release(None, &chunks);
        if released == chunks.len() as u64 && self.shared.state.lock().wishes.answered(id) {
            self.shared.changed.notify_all();
        }
    }

    /// Gives back what has no session, and is locked no more.
    fn look(&mut self) {
        if std::mem::take(&mut self.shared.state.lock().left_locked) {
            self.look_at = Some((Instant::now() + FIRST_LOOK, FIRST_LOOK));
        }
        let Some((at, pause)) = self.look_at else { return };
        if Instant::now() < at {
            return;
        }
        let mut apart = self.shared.state.lock().ledger.apart();
        apart.sort_unstable();
        let from = if self.looked_to < apart.len() { self.looked_to } else { 0 };
        let some = apart.iter().skip(from).take(LOOKED_AT).copied().collect::<Vec<u64>>();
        let released = self.shared.release(None, &some);
        self.shared.state.lock().left_locked = false;
        self.looked_to = from + some.len() - released.min(some.len() as u64) as usize;
        let pause = (2 * pause).min(LOOK);
        let is_left = apart.len() as u64 > released;
        self.look_at = is_left.then(|| (Instant::now() + pause, pause));
    }

    fn end_overdue(&mut self) {
        let within = Some(self.frame_within);
        let overdue = |session: &&Session| session.frame_began() > within;
        let overdue: Vec<_> =
            self.sessions.values().filter(overdue).map(|it| (it.id, it.pid)).collect();
        for (id, pid) in overdue {
            self.note_hostile(pid, &"a frame did not come to its end");
            self.leave(id);
        }
    }

    fn end(mut self) {
        let shared = Arc::clone(&self.shared);
        let newcomers = std::mem::take(&mut shared.state.lock().newcomers);
        self.sessions.extend(newcomers.into_iter().map(|session| (session.id, session)));
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            if let Some(session) = self.sessions.get_mut(&id) {
                let _ = session.say_count(Kind::Refused, Refusal::Ending as u32, 0);
            }
            self.leave(id);
        }
        let mut state = shared.state.lock();
        let State { ledger, wishes, .. } = &mut *state;
        let ready = ledger.drain_ready();
        wishes.end();
        shared.changed.notify_all();
        drop(state);
        shared.give(ready);
    }
}

/// Takes up to `count` chunks, zeroed.
fn take_some(session: &Session, count: u64) -> Result<Vec<Lent>, Refusal> {
    let mut taken = Vec::new();
    for _ in 0..count {
        match session.source.take() {
            Ok(chunk) => {
                session.source.zero(chunk);
                taken.push((chunk, Arc::clone(&session.source)));
            }
            Err(refusal) if taken.is_empty() => return Err(refusal),
            Err(_) => break,
        }
    }
    Ok(taken)
}
