//! Explores a case: every operation with the power failing at each of its fences and after it,
//! inside the recovery that follows, and once more a few operations later.

mod cuts;
mod failure;
mod flips;
mod harm;
mod images;
mod making;
mod memo;
mod path;
mod poison;
mod run;
mod salvage;
mod setup;
mod shrink;
mod stop;
mod tally;
mod threads;
mod walked;

pub use cuts::{Explorer, Replay, explore, replay};
pub use failure::{CutReport, Failure, StoreReport};
pub use images::Images;
pub use memo::Memo;
pub(crate) use memo::{Opening, Question};
pub use path::{CrashPath, Leg, Stage};
pub use setup::{Limits, Setup, SimulatedPool};
pub use shrink::shrink;
pub use stop::Stop;
pub use tally::Tally;
