//! Looking at a whole pool: the full check, and dumps for people and testers.

mod copies;
mod dump;
mod full;
