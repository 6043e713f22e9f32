//! Looking at a whole pool: the full check, and dumps for people and testers, and what pages are used for.

mod copies;
mod dump;
mod full;
mod kept;
mod uses;

pub use uses::{PagesUsed, Use};
