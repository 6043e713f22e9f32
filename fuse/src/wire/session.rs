//! The threads that serve a mount: each reads a request, has it worked on, and answers.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::channel::{Came, Channel};
use super::errno::Errno;
use super::inbox::Inbox;
use super::pace::{Load, Pace};
use super::reply::Answer;
use super::request::{Incoming, Operation, Request, parse};
use super::rings::{self, Queues};
use super::scratch::Scratch;
use super::turns::Turns;

/// Bytes of the largest request before its data; the kernel wants a read to have room for it.
const HEAD_BYTES: usize = 4096;

/// Who knows what requests mean.
pub trait Handler: Send + Sync + 'static {
    /// Held while a request is worked on, until it has been answered.
    type Pass<'a>;

    /// Lets a request in, or says what to answer instead.
    ///
    /// # Errors
    /// Where no requests are served any more.
    fn enter(&self) -> Result<Self::Pass<'_>, Errno>;

    /// Works on a request that was let in. Data of the answer may be in `scratch`.
    ///
    /// # Errors
    /// What the system call that it stands for is to fail with.
    fn answer<'s>(
        &self,
        pass: &Self::Pass<'_>,
        request: &Request<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno>;
}

/// A mount that is served from now on.
///
/// Who may use the mount at all is checked by the kernel.
pub struct Session<H> {
    channel: Channel,
    handler: H,
    max_write: u32,
    /// The threads that requests come to by io_uring.
    queues: Option<Queues>,
}

impl<H: Handler> Session<H> {
    /// Serves what comes through `channel` by `handler`; `max_write` is what was agreed upon.
    pub fn new(channel: Channel, handler: H, max_write: u32) -> Self {
        Self { channel, handler, max_write, queues: None }
    }

    /// The same by these threads, if they were agreed upon.
    pub fn with_queues(self, queues: Option<Queues>) -> Self {
        Self { queues, ..self }
    }

    /// Serves until the mount is gone: with a thread for each CPU that has a queue and one for what still comes
    /// by the device, or else with so many threads.
    ///
    /// # Errors
    /// Where threads or their channels can't be had, or the device or a queue fails: the first error
    /// ends it, and the mount has to be taken off then, which ends the other threads.
    pub fn run(self, threads: usize) -> io::Result<()> {
        let (data, handler) = (self.max_write as usize, Arc::new(self.handler));
        let (tell, ends) = mpsc::channel();
        let mut serving = 0;
        if let Some(queues) = self.queues {
            serving += queues.threads();
            queues.run(|| {
                let (handler, tell) = (Arc::clone(&handler), tell.clone());
                Box::new(move |ring| {
                    let mut work =
                        |incoming: &Incoming<'_>, scratch: &mut Scratch, send: Sending<'_>| {
                            work(&*handler, incoming, scratch, send).1
                        };
                    tell_end(&tell, || rings::serve(ring, data, &mut work));
                })
            });
        }
        // Each thread has a queue of its own for the requests it works on.
        let mut channels = Vec::new();
        for _ in 1..if serving > 0 { 1 } else { threads } {
            channels.push(self.channel.split()?);
        }
        channels.push(self.channel);
        let turns = Arc::new(Turns::default());
        let _watch = Watch::start(&turns)?;
        for (number, channel) in channels.into_iter().enumerate() {
            let (handler, turns) = (Arc::clone(&handler), Arc::clone(&turns));
            let work = move || serve(&channel, &*handler, data, &turns);
            start(format!("lode-serve-{number}"), &tell, work)?;
            serving += 1;
        }
        drop((tell, handler));
        (0..serving).try_for_each(|_| ends.recv().unwrap_or(Ok(())))
    }
}

/// Who watches over the threads that serve, until this is dropped.
struct Watch(Arc<Turns>, Option<JoinHandle<()>>);

impl Watch {
    fn start(turns: &Arc<Turns>) -> io::Result<Self> {
        let watched = Arc::clone(turns);
        let builder = thread::Builder::new().name("lode-serve-watch".to_owned());
        let thread = builder.spawn(move || watched.watch())?;
        Ok(Self(Arc::clone(turns), Some(thread)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.end();
        let _ = self.1.take().map(JoinHandle::join);
    }
}

/// Starts a thread that tells how its work ended.
fn start(
    name: String,
    tell: &Sender<io::Result<()>>,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let tell = tell.clone();
    let builder = thread::Builder::new().name(name);
    builder.spawn(move || tell_end(&tell, work))?;
    Ok(())
}

/// Does a thread's work and tells how it ended.
fn tell_end(tell: &Sender<io::Result<()>>, work: impl FnOnce() -> io::Result<()>) {
    let failed = || io::Error::other("a server thread panicked outside of a request");
    let ended = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(failed()));
    let _ = tell.send(ended);
}

/// Sends an answer.
type Sending<'s> = &'s mut dyn FnMut(&Result<Answer<'_>, Errno>);

/// Whether a thread goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Receive,
    End,
}

/// Serves until the mount is gone, with at most `data` bytes of data in a request or an answer.
fn serve<H: Handler>(channel: &Channel, handler: &H, data: usize, turns: &Turns) -> io::Result<()> {
    let mut inbox = Inbox::new(channel, HEAD_BYTES + data)?;
    let mut scratch = Scratch::new(data);
    let (mut pace, mut turn) = (Pace::new(), turns.take());
    loop {
        let (load, mut came) = pace.wait(turn.is_alone(), &mut || inbox.now())?;
        match load {
            Load::Much => turns.more(),
            // (Not with a request in its hands.)
            Load::Little if came == Came::Nothing => turn.rest(),
            Load::Same | Load::Little => {}
        }
        if came == Came::Nothing {
            came = inbox.asleep()?;
        }
        if came == Came::End {
            break;
        }
        let bytes = inbox.bytes();
        let Some(incoming) = parse(bytes) else {
            tracing::error!(bytes = bytes.len(), "the kernel sent what is no request");
            continue;
        };
        let mut send = |answer: &Result<Answer<'_>, Errno>| {
            if let Some(unique) = incoming.unique {
                channel.answer(unique, answer);
            }
        };
        let operation = incoming.request.ok().map(|request| request.operation);
        let long = operation.is_some_and(|operation| operation.is_long());
        let begun = Instant::now();
        let worked = turn.work(long, || work(handler, &incoming, &mut scratch, &mut send).0);
        if worked == Next::End {
            break;
        }
        pace.answered(operation.as_ref(), begun.elapsed());
    }
    Ok(())
}

/// Works on a request. The pass, if there was one, is to be held until the answer has been sent.
fn work<'h, H: Handler>(
    handler: &'h H,
    incoming: &Incoming<'_>,
    scratch: &mut Scratch,
    send: Sending<'_>,
) -> (Next, Option<H::Pass<'h>>) {
    let request = match incoming.request {
        Ok(Request { operation: Operation::Destroy, .. }) => {
            send(&Ok(Answer::Done));
            return (Next::End, None);
        }
        Ok(request) => request,
        Err(error) => {
            if error != Errno::ENOSYS {
                tracing::error!(code = error.code(), "the kernel sent a request that is malformed");
            }
            send(&Err(error));
            return (Next::Receive, None);
        }
    };
    let worked = catch_unwind(AssertUnwindSafe(|| {
        let pass = handler.enter();
        let answer = match &pass {
            Ok(pass) => handler.answer(pass, &request, scratch),
            Err(error) => Err(*error),
        };
        send(&answer);
        pass.ok()
    }));
    let pass = worked.unwrap_or_else(|_| {
        // The handler knows of it by its pass. Who waits is not to wait for ever.
        send(&Err(Errno::EIO));
        None
    });
    (Next::Receive, pass)
}

#[cfg(test)]
mod tests;
