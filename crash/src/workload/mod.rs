//! What the explorer runs: [`seq1()`] every operation alone, [`pairs`] all pairs of them,
//! [`two_threads`], [`flips`] of bits, [`scenarios`] where bugs have been, random ones, and those of others
//! as text ([`parse_script`]).

mod aged;
mod alone;
mod bits;
mod build;
mod hard;
mod pairs;
mod raised;
mod random;
mod refused;
mod script;
mod scrubbed;
mod sectors;
mod seen;
mod seq2;
mod side_by_side;
mod writers;

pub use alone::seq1;
pub use bits::flips;
pub use hard::{case_of, scenarios};
pub use pairs::two_threads;
pub use random::random_case;
pub use refused::refused;
pub use script::{ScriptError, parse_script, pool_words, print_script};
pub use seq2::{pair, pair_count, pairs, share};
