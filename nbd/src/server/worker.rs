//! A thread and its clients: whoever can go on gets a turn, one after the other.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;

use super::connection::{Connection, Wants};
use super::linger::Linger;
use super::listen::Listener;
use super::places::Place;
use super::shared::{Closing, Mailbox, Shared};
use crate::complaints::Complaints;

/// How often is looked for clients that take too long, or rest.
const TICK: Duration = Duration::from_millis(500);
/// The same when the server ends.
const CLOSING_TICK: Duration = Duration::from_millis(10);
/// Events that are taken at a time.
const EVENTS: usize = 256;
/// Clients that are let in before those that are here get their turns.
const ACCEPTS: usize = 64;
/// Names of events: the bell's, and from here on the listeners'. Clients' are numbers behind those.
const BELL: u64 = 0;
const LISTENERS: u64 = 1;

/// A thread of a server.
pub struct Worker {
    shared: Arc<Shared>,
    number: usize,
    epoll: OwnedFd,
    /// Only of the first thread.
    listeners: Vec<Listener>,
    /// Whether clients are let in: not for a while when the system can't.
    accepting: bool,
    complaints: Complaints,
    clients: HashMap<u64, Client>,
    /// Whose turn is next.
    ready: VecDeque<u64>,
    next: u64,
    ticked: Instant,
    linger: Linger,
    /// What was asked since there was nothing to do.
    requests: u32,
}

struct Client {
    connection: Connection,
    /// What is waited for at its socket.
    interest: EventFlags,
    is_ready: bool,
    _place: Place,
}

impl Worker {
    /// The thread of a mailbox, with the sockets where it lets clients in.
    pub fn new(
        shared: Arc<Shared>,
        number: usize,
        listeners: Vec<Listener>,
    ) -> rustix::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if let Some(mailbox) = shared.mailboxes.get(number) {
            epoll::add(&epoll, &mailbox.bell, EventData::new_u64(BELL), EventFlags::IN)?;
        }
        for (event, listener) in (LISTENERS..).zip(&listeners) {
            epoll::add(&epoll, listener, EventData::new_u64(event), EventFlags::IN)?;
        }
        let next = LISTENERS + listeners.len() as u64;
        let waits = shared.mailboxes.get(number).map(|mailbox| Arc::clone(&mailbox.waits));
        Ok(Self {
            shared,
            number,
            epoll,
            listeners,
            accepting: true,
            complaints: Complaints::default(),
            clients: HashMap::new(),
            ready: VecDeque::new(),
            next,
            ticked: Instant::now(),
            linger: Linger::new(waits.unwrap_or_default()),
            requests: 0,
        })
    }

    /// Serves until the server ends.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut noticed = false;
        loop {
            self.wait(&mut events);
            let closing = self.shared.closing();
            for event in events.drain(..) {
                let data = event.data;
                self.notice(data.u64());
            }
            if let Some(closing) = closing {
                if !std::mem::replace(&mut noticed, true) {
                    self.stop_listening();
                    self.wake_all();
                }
                if self.is_over(closing) {
                    break;
                }
            }
            for _ in 0..self.ready.len() {
                let Some(key) = self.ready.pop_front() else {
                    break;
                };
                self.turn(key, closing.is_some());
            }
            self.tick();
        }
    }

    fn wait(&mut self, events: &mut Vec<Event>) {
        if !self.ready.is_empty() {
            return take(&self.epoll, events, Some(Duration::ZERO));
        }
        let most = match () {
            () if self.shared.closing().is_some() => Some(CLOSING_TICK),
            () if self.clients.is_empty() && self.accepting => None,
            () => Some(TICK),
        };
        let requests = std::mem::take(&mut self.requests);
        let is_over = self.linger.look(requests, || {
            take(&self.epoll, events, Some(Duration::ZERO));
            !events.is_empty()
        });
        if !is_over {
            take(&self.epoll, events, most);
        }
    }

    fn notice(&mut self, event: u64) {
        match event {
            BELL => self.take_fresh(),
            _ if event < LISTENERS + self.listeners.len() as u64 => self.accept(event),
            key => self.make_ready(key),
        }
    }

    fn make_ready(&mut self, key: u64) {
        if let Some(client) = self.clients.get_mut(&key)
            && !std::mem::replace(&mut client.is_ready, true)
        {
            self.ready.push_back(key);
        }
    }

    fn accept(&mut self, event: u64) {
        let place = usize::try_from(event - LISTENERS).unwrap_or(usize::MAX);
        let Some(listener) = self.listeners.get(place) else {
            return;
        };
        for _ in 0..ACCEPTS {
            match listener.accept() {
                Ok(Some((stream, origin))) => self.shared.give(stream, origin),
                Ok(None) => return,
                Err(error) => {
                    if let Some(count) = self.complaints.due() {
                        tracing::warn!(%error, count, "clients can't be let in for a while");
                    }
                    self.listen(false);
                    return;
                }
            }
        }
    }

    /// Lets clients in, or not: they wait then.
    fn listen(&mut self, accepting: bool) {
        self.accepting = accepting;
        let flags = if accepting { EventFlags::IN } else { EventFlags::empty() };
        for (event, listener) in (LISTENERS..).zip(&self.listeners) {
            let set = epoll::modify(&self.epoll, listener, EventData::new_u64(event), flags);
            if let Err(error) = set {
                tracing::error!(%error, "a socket can't be listened to");
            }
        }
    }

    /// Lets no more in.
    fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    fn mailbox(&self) -> Option<&Mailbox> {
        self.shared.mailboxes.get(self.number)
    }

    fn take_fresh(&mut self) {
        let fresh = self.mailbox().map(Mailbox::take).unwrap_or_default();
        for (stream, place) in fresh {
            let key = self.next;
            self.next += 1;
            let interest = EventFlags::IN;
            if let Err(error) = epoll::add(&self.epoll, &stream, EventData::new_u64(key), interest)
            {
                tracing::warn!(%error, "a client can't be served");
                self.left();
                continue;
            }
            let connection = Connection::new(stream, Arc::clone(&self.shared.exports));
            let client = Client { connection, interest, is_ready: true, _place: place };
            self.clients.insert(key, client);
            self.ready.push_back(key);
        }
    }

    fn left(&self) {
        if let Some(mailbox) = self.mailbox() {
            mailbox.left();
        }
    }

    fn wake_all(&mut self) {
        let keys: Vec<u64> = self.clients.keys().copied().collect();
        keys.into_iter().for_each(|key| self.make_ready(key));
    }

    /// Gives a client its turn.
    fn turn(&mut self, key: u64, closing: bool) {
        let Some(client) = self.clients.get_mut(&key) else {
            return;
        };
        client.is_ready = false;
        // A device that panics takes its client with it, and no other.
        let turn = catch_unwind(AssertUnwindSafe(|| client.connection.turn(closing)));
        let wants = turn.unwrap_or_else(|_| {
            tracing::error!("serving a client panicked; it is left");
            Wants::Nothing
        });
        self.requests += client.connection.requests();
        let interest = match wants {
            Wants::Turn => {
                client.is_ready = true;
                self.ready.push_back(key);
                return;
            }
            Wants::Input => EventFlags::IN,
            Wants::Output => EventFlags::OUT,
            Wants::Nothing => return self.forget(key),
        };
        if client.interest != interest {
            client.interest = interest;
            let data = EventData::new_u64(key);
            if let Err(error) = epoll::modify(&self.epoll, &client.connection, data, interest) {
                tracing::warn!(%error, "a client can't be waited for");
                self.forget(key);
            }
        }
    }

    fn forget(&mut self, key: u64) {
        if self.clients.remove(&key).is_some() {
            self.left();
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.ticked) < TICK {
            return;
        }
        self.ticked = now;
        if !self.accepting {
            self.listen(true);
        }
        let patience = self.shared.limits.handshake;
        self.forget_where(|connection| {
            let since = connection.is_urged_since();
            since.is_some_and(|since| now.duration_since(since) >= patience)
        });
        self.clients.values_mut().for_each(|client| client.connection.rest());
    }

    fn forget_where(&mut self, is_late: impl Fn(&Connection) -> bool) {
        let late = self.clients.iter().filter(|(_, client)| is_late(&client.connection));
        let late: Vec<u64> = late.map(|(key, _)| *key).collect();
        late.into_iter().for_each(|key| self.forget(key));
    }

    /// Leaves clients of a server that ends; true if there are no more.
    fn is_over(&mut self, closing: Closing) -> bool {
        let now = Instant::now();
        if now >= closing.end {
            for _ in 0..self.clients.len() {
                self.left();
            }
            self.clients.clear();
        } else if now >= closing.linger {
            let idle = self.clients.iter();
            let idle = idle.filter(|(_, client)| !client.is_ready && client.connection.is_idle());
            let idle: Vec<u64> = idle.map(|(key, _)| *key).collect();
            idle.into_iter().for_each(|key| self.forget(key));
        }
        self.clients.is_empty()
    }
}

/// Takes what has happened, or happens within so long.
fn take(epoll: &OwnedFd, events: &mut Vec<Event>, most: Option<Duration>) {
    let most = most.map(|time| Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    });
    match epoll::wait(epoll, spare_capacity(events), most.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => {
            tracing::error!(%error, "events can't be waited for");
            thread::sleep(CLOSING_TICK);
        }
    }
}
