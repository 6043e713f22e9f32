//! The threads that serve a mount: each reads a request, has it worked on, and answers.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use super::channel::Channel;
use super::errno::Errno;
use super::reply::Answer;
use super::request::{Operation, Request, parse};
use super::scratch::Scratch;

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

    /// Works on a request. Data of the answer may be in `scratch`.
    ///
    /// # Errors
    /// What the system call that it stands for is to fail with.
    fn answer<'s>(
        &self,
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
}

impl<H: Handler> Session<H> {
    /// Serves what comes through `channel` by `handler`; `max_write` is what was agreed upon.
    pub fn new(channel: Channel, handler: H, max_write: u32) -> Self {
        Self { channel, handler, max_write }
    }

    /// Serves with so many threads until the mount is gone.
    ///
    /// # Errors
    /// Where threads or their channels can't be had, or the device fails.
    pub fn run(self, threads: usize) -> io::Result<()> {
        let (data, handler) = (self.max_write as usize, Arc::new(self.handler));
        // Each thread has a queue of its own for the requests it works on.
        let mut channels = Vec::new();
        for _ in 1..threads {
            channels.push(self.channel.split()?);
        }
        channels.push(self.channel);
        let mut serving = Vec::new();
        for (number, channel) in channels.into_iter().enumerate() {
            let handler = Arc::clone(&handler);
            let builder = thread::Builder::new().name(format!("lode-serve-{number}"));
            serving.push(builder.spawn(move || serve(&channel, &*handler, data))?);
        }
        let mut ended = Ok(());
        for thread in serving {
            let failed = || io::Error::other("a server thread panicked outside of a request");
            ended = ended.and(thread.join().unwrap_or_else(|_| Err(failed())));
        }
        ended
    }
}

/// Whether a thread goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Receive,
    End,
}

/// Serves until the mount is gone, with at most `data` bytes of data in a request or an answer.
fn serve<H: Handler>(channel: &Channel, handler: &H, data: usize) -> io::Result<()> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(HEAD_BYTES + data).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut scratch = Scratch::new(data);
    while channel.receive(&mut bytes)? {
        if work(channel, handler, &bytes, &mut scratch) == Next::End {
            break;
        }
    }
    Ok(())
}

fn work<H: Handler>(channel: &Channel, handler: &H, bytes: &[u8], scratch: &mut Scratch) -> Next {
    let Some(incoming) = parse(bytes) else {
        tracing::error!(bytes = bytes.len(), "the kernel sent what is no request");
        return Next::Receive;
    };
    let send = |answer: &Result<Answer<'_>, Errno>| {
        if let Some(unique) = incoming.unique {
            channel.answer(unique, answer);
        }
    };
    let request = match incoming.request {
        Ok(Request { operation: Operation::Destroy, .. }) => {
            send(&Ok(Answer::Done));
            return Next::End;
        }
        Ok(request) => request,
        Err(error) => {
            if error != Errno::ENOSYS {
                tracing::error!(code = error.code(), "the kernel sent a request that is malformed");
            }
            send(&Err(error));
            return Next::Receive;
        }
    };
    let worked = catch_unwind(AssertUnwindSafe(|| {
        let pass = handler.enter();
        let answer = match &pass {
            Ok(_) => handler.answer(&request, scratch),
            Err(error) => Err(*error),
        };
        send(&answer);
    }));
    if worked.is_err() {
        // The handler knows of it by its pass. Who waits is not to wait for ever.
        send(&Err(Errno::EIO));
    }
    Next::Receive
}

#[cfg(test)]
mod tests;
