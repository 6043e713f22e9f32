//! Commands that use a server which was started for them: it ends when nobody uses it any more.
//!
//! Each has a connection of its own, from the moment it decides to use the server until its command has ended. It may
//! be killed: a connection ends all the same.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde_json::json;

use crate::control::HEAP_USER;
use crate::control::listener::{accept, send};
use crate::server::Event;

/// Commands at a time.
const MOST: usize = 1024;
/// How long the command that started the server may take to come.
const COMES_WITHIN: Duration = Duration::from_secs(30);
/// How often it is looked whether programs still have memory, once no command is there.
const LOOK: Duration = Duration::from_millis(20);
/// How long an answer may take to be taken.
const PATIENCE: Duration = Duration::from_secs(1);

/// The commands that use a server.
pub(crate) struct Users {
    state: Mutex<State>,
    changed: Condvar,
    began: Instant,
    tell: OnceLock<Sender<Event>>,
}

#[derive(Default)]
struct State {
    there: usize,
    came: bool,
    /// Nobody is let in any more.
    ending: bool,
}

impl Users {
    pub(crate) fn new() -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { state, changed, began: Instant::now(), tell: OnceLock::new() })
    }

    /// A connection is a user from now on; it is answered.
    ///
    /// # Errors
    /// A sentence for who has asked.
    pub(crate) fn admit(self: &Arc<Self>, stream: &UnixStream) -> Result<(), String> {
        let mut stream = stream.try_clone().map_err(|error| error.to_string())?;
        let failed = |error| format!("it can't be told to stay: {error}");
        let times = stream.set_read_timeout(None);
        times.and_then(|()| stream.set_write_timeout(Some(PATIENCE))).map_err(failed)?;
        let mut state = self.state.lock();
        if state.there >= MOST {
            return Err(format!("{MOST} commands use it already; try again later"));
        }
        let ending = state.ending;
        if !ending {
            (state.there, state.came) = (state.there + 1, true);
            self.changed.notify_all();
        }
        drop(state);
        let standing = if ending { "ending" } else { "kept" };
        // (A connection that breaks is found out by who reads it.)
        let _ = send(&mut stream, &accept(HEAP_USER, json!({ "standing": standing })));
        if ending {
            return Ok(());
        }
        let users = Arc::clone(self);
        let builder = thread::Builder::new().name("lode-heap-user".into());
        let started = builder.spawn(move || users.attend(stream));
        started.map(drop).map_err(|error| {
            self.left();
            failed(error)
        })
    }

    /// Waits until a user leaves, and tells it whether others are there. One that is the last hears no word, but the
    /// connection's end with the server's.
    fn attend(&self, mut stream: UnixStream) {
        let mut byte = [0];
        while let Err(error) = stream.read(&mut byte) {
            if error.kind() != std::io::ErrorKind::Interrupted {
                break;
            }
        }
        self.left();
        let mut state = self.state.lock();
        while state.ending || state.there == 0 {
            self.changed.wait(&mut state);
        }
        drop(state);
        let _ = send(&mut stream, &accept(HEAP_USER, json!({ "standing": "used" })));
    }

    fn left(&self) {
        let mut state = self.state.lock();
        state.there = state.there.saturating_sub(1);
        drop(state);
        if let Some(tell) = self.tell.get() {
            let _ = tell.send(Event::Left);
        }
    }

    /// Waits for an event that ends the server: none where nobody uses it any more. `is_lent` tells whether programs have
    /// memory.
    pub(crate) fn wait(
        &self,
        events: &Receiver<Event>,
        tell: Sender<Event>,
        is_lent: impl Fn() -> bool,
    ) -> Option<Event> {
        let _ = self.tell.set(tell);
        let event = loop {
            let is_used = self.state.lock().there > 0;
            let event = match is_used {
                true => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => events.recv_timeout(LOOK),
            };
            match event {
                Ok(Event::Left) | Err(RecvTimeoutError::Timeout) => {
                    if !is_lent() && self.end_unless_used() {
                        break None;
                    }
                }
                Ok(event) => break Some(event),
                Err(RecvTimeoutError::Disconnected) => break Some(Event::Failed),
            }
        };
        self.state.lock().ending = true;
        event
    }

    /// Lets nobody in any more, unless somebody is there.
    fn end_unless_used(&self) -> bool {
        let mut state = self.state.lock();
        state.ending = state.there == 0 && (state.came || self.began.elapsed() > COMES_WITHIN);
        state.ending
    }
}
