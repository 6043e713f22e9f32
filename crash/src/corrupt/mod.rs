//! The corruption matrix: damage of every kind, to every structure, in each of its copies, while the pool is at rest, in
//! use, or recovering; and what the engine makes of it, judged by the model.
//!
//! `base` makes pools with all that a pool can have, and `place` lists what lies where in them; `damage` draws
//! what is damaged and how, `more` what is done meanwhile, `hurt` says what that may cost at the pool's level, and `trial` opens, uses, scrubs
//! and salvages the pool, and has all that it shows judged by `look` and, after a salvage, by `salvaged`. `matrix` does
//! that many times, on all processors, and counts.

mod base;
mod damage;
mod hurt;
mod look;
mod matrix;
mod medium;
mod more;
mod place;
mod salvaged;
mod tally;
mod told;
mod tree;
mod trial;

pub use damage::{Copies, Form, Phase};
pub use matrix::{Failed, Injected, InjectionId, Matrix, Outcome, inject, run_matrix};
pub use place::Kind;
pub(crate) use place::waiting;
pub use tally::{Printed, Row, Tally, Verdict};
