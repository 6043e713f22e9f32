//! The structures and numbers of the protocol: all that comes from a client is parsed here, once, and all that goes to
//! one is laid out here.

mod greeting;
mod options;
mod replies;
mod reply;
mod request;

pub use greeting::{CLIENT_FLAGS_BYTES, ClientFlags, Terms, greet};
pub use options::{
    Choice, MAX_OPTION_BYTES, MAX_SKIPPED_BYTES, MetaQuery, OPTION_HEADER_BYTES, Opt, OptionHeader,
};
pub use replies::{ALLOCATION, Info, Refused, Replies};
pub use reply::{Chunk, Refusal, data_header, patch_done, reply_error, reply_hole, reply_ok};
pub use reply::{reply_nothing, reply_status, simple_header};
pub use request::{Command, Flags, REQUEST_BYTES, Request};
