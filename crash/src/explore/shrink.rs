//! A failing case is made shorter by leaving out operations.

use super::Failure;
use crate::case::Case;

/// Leaves out operations while `fails` still fails, trying at most `tries` cases. One that is cut
/// off stays: without any, it would be another case, and no script.
pub fn shrink(
    failure: Box<Failure>,
    tries: usize,
    fails: &dyn Fn(&Case) -> Option<Box<Failure>>,
) -> Box<Failure> {
    let mut best = failure;
    let (mut left, mut at) = (tries, 0);
    while left > 0 {
        let Some(case) = without(&best.case, at) else { return best };
        left -= 1;
        match fails(&case).filter(|_| !case.ops.is_empty()) {
            Some(failure) => best = failure,
            None => at += 1,
        }
    }
    best
}

/// The case without one of its operations; `None` if it has not so many.
fn without(case: &Case, mut at: usize) -> Option<Case> {
    let mut fewer = case.clone();
    let lists = [&mut fewer.before, &mut fewer.ops, &mut fewer.beside];
    let found = lists.into_iter().find_map(|ops| {
        let (here, len) = (at, ops.len());
        at = at.saturating_sub(len);
        (here < len).then(|| ops.remove(here))
    });
    found.map(|_| fewer)
}
