//! All of them.

use super::{data, lent, lives, logs, maps, names, renames, sizes, xattrs};
use crate::case::Case;

/// Every operation and every shape of its arguments alone, each with a set-up that matters.
pub fn seq1() -> Vec<Case> {
    let mut cases = names::cases();
    cases.extend(renames::cases());
    cases.extend(data::cases());
    cases.extend(sizes::cases());
    cases.extend(lives::cases());
    cases.extend(logs::cases());
    cases.extend(xattrs::cases());
    cases.extend(maps::cases());
    cases.extend(lent::cases());
    cases
}
