//! The FUSE protocol: what the kernel asks through its device, and how it is answered.
//!
//! Everything read from the device is checked here, once, and becomes a [`Request`] whose
//! parts can't be wrong; everything written has the size the kernel expects. What a request
//! means is for a [`Handler`] to say: it returns an [`Answer`] or an [`Errno`], and
//! [`Session`] sends exactly one of them, or nothing where the kernel waits for nothing.
//!
//! * `arguments`, `request`: from bytes to requests
//! * `listing`, `reply`: from answers to bytes
//! * `channel`, `clone`: the device; `notices`: what the kernel is told unasked
//! * `rings`: requests by io_uring, a queue for each CPU
//! * `scratch`: memory that a thread answers from
//! * `turns`: which threads wait for requests; `pace`: how; `inbox`: what from
//! * `init`: what version and capabilities are agreed upon; `session`: the threads that serve

mod arguments;
mod channel;
mod clone;
mod errno;
mod inbox;
mod init;
mod listing;
mod notices;
mod pace;
mod reply;
mod request;
mod rings;
#[cfg(test)]
pub(crate) mod samples;
mod scratch;
mod session;
mod turns;

pub use channel::{Channel, DEVICE};
pub use errno::Errno;
pub use init::{Agreed, InitError, Offer, Wish, agree, shake_hands};
pub use listing::{Listing, Room};
pub use notices::Notices;
pub use reply::{Answer, Entry, Reply};
pub use request::{
    Changes, Forgets, Incoming, NewData, NewFile, NodeId, Operation, Request, TimeOrNow, Who, parse,
};
pub use rings::{ALLOWED as RINGS_ALLOWED, OVER_IO_URING, Queues};
pub use scratch::Scratch;
pub use session::{Handler, Session};
