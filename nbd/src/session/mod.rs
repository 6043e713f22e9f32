//! One client's conversation, without any socket.
//!
//! * `turn`: how much is done at a time
//! * `next`: how it goes on
//! * [`Encryption`]: whether it is encrypted
//! * `haggle`: the handshake
//! * `admit`: which requests are served
//! * `extents`: what lies where
//! * `reading`, `ranged`: requests that are done in pieces
//! * `transmit`: requests, one after the other
//! * [`Session`]: both, one after the other

mod admit;
mod conversation;
mod encryption;
mod extents;
mod haggle;
mod next;
mod ranged;
mod reading;
mod transmit;
mod turn;

pub use conversation::{Session, Step};
pub use encryption::Encryption;
pub use turn::Turn;
