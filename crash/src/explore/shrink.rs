//! A failing case is made shorter by leaving out operations.

use super::Failure;
use crate::case::Case;

/// Leaves out operations while `fails` still fails, trying at most `tries` cases.
pub fn shrink(
    failure: Box<Failure>,
    tries: usize,
    fails: &dyn Fn(&Case) -> Option<Box<Failure>>,
) -> Box<Failure> {
    let mut best = failure;
    let (mut left, mut at) = (tries, 0);
    loop {
        let (before, ops) = (best.case.before.len(), best.case.ops.len());
        if at >= before + ops || left == 0 {
            return best;
        }
        left -= 1;
        let mut case = best.case.clone();
        if at < before {
            case.before.remove(at);
        } else {
            case.ops.remove(at - before);
        }
        // Without operations it is another case: the making of the pool.
        let another = case.ops.is_empty() && case.before.is_empty();
        match fails(&case).filter(|_| !another) {
            Some(failure) => best = failure,
            None => at += 1,
        }
    }
}
