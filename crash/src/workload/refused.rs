//! Operations of a case that fail on the oracle. They must fail on the pool, too, which is worth a
//! test; but a script that is full of them was meant differently.

use lode_engine::Error;
use lode_model::Model;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::op::Op;
use lode_testkit::receive::bring;
use lode_testkit::run::time_of;

use crate::case::Case;

/// The operations that fail, each as its line, and why; not those of a second thread, whose fate
/// the schedule decides.
pub fn refused(case: &Case) -> Vec<(String, Error)> {
    let (model, mut handles) = (Model::new(), Handles::new());
    let mut found = Vec::new();
    let all = case.before.iter().chain(&case.ops);
    for (number, op) in all.enumerate() {
        model.set_now(time_of(number));
        let ends = matches!(op, Op::Remount | Op::Crash | Op::Grow | Op::Protect(..));
        if ends || matches!(op, Op::Rollback(_) | Op::Receive(_) | Op::Abandon(_)) {
            handles.clear();
            model.release_all();
            if let Op::Rollback(name) = op
                && let Err(error) = model.rollback(name)
            {
                found.push((op.to_string(), error));
            }
            if let Op::Receive(name) = op
                && let Err(error) =
                    bring(&model, 0, &mut |_| Ok(())).and_then(|()| model.create_snapshot(name))
            {
                found.push((op.to_string(), error));
            }
        } else if let Err(error) = execute(&model, &mut handles, op) {
            found.push((op.to_string(), error));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::parse_script;

    #[test]
    fn operations_that_fail_are_found() {
        let text =
            "create /a\ncreate /a\nopen /a 0\nunlink /a\nwrite @0 0 1\nremount\nwrite @0 0 1";
        let case = parse_script(text).unwrap();
        let wanted = [("create /a", Error::Exists), ("write @0 0 1 1", Error::Invalid)];
        assert_eq!(refused(&case), wanted.map(|(op, error)| (op.to_owned(), error)));
    }
}
