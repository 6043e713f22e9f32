//! The states that a power cut may leave: what each place may hold, which combinations are tried,
//! and which of them are the same to whoever looks.

mod choice;
mod plan;
mod tree;
mod unit;

pub use choice::Choice;
pub use plan::{Budget, Explored, Judged, explore_point};
pub use tree::Tree;
pub use unit::{Unit, Units, units_of};
