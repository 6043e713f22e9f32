//! Which cells a run measures: workloads, numbers of threads, modes.

use std::fmt;

use crate::workload::{ALL, Mode, Workload};

/// What the subjects are measured in side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// What is done.
    pub workload: &'static Workload,
    /// By so many threads at a time.
    pub threads: usize,
    /// Whether they meet.
    pub mode: Mode,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        write!(f, "{}, {} {threads}, {}", self.workload.id, self.threads, self.mode.name())
    }
}

impl Cell {
    /// Files that hold what is read and written at random.
    pub fn data_files(&self) -> usize {
        if self.mode == Mode::Shared { 1 } else { self.threads.max(1) }
    }
}

/// The most threads of a workload.
pub const THREADS_MAX: usize = 64;

/// The cells of a run of these workloads (all where there are none), with these numbers of
/// threads. Where none are given: 1, 2 and 4; in a quick run 1, and 2 for what scaling is judged by.
pub fn cells(workloads: &[&'static Workload], threads: &[usize], quick: bool) -> Vec<Cell> {
    let wanted = |workload: &&Workload| match workloads {
        [] => !(quick && workload.long),
        some => some.iter().any(|one| one.id == workload.id),
    };
    let mut cells = Vec::new();
    for workload in ALL.iter().filter(wanted) {
        let numbers: &[usize] = match (threads, quick) {
            _ if workload.once => &[1],
            ([], true) => &[1, 2],
            ([], false) => &[1, 2, 4],
            (threads, _) => threads,
        };
        for &threads_of_cell in numbers {
            for mode in [Mode::Private, Mode::Shared] {
                let alone = threads_of_cell <= 1;
                // One thread meets nobody.
                let makes_sense = mode == Mode::Private || (workload.shared && !alone);
                let left_out =
                    quick && threads.is_empty() && !alone && !workload.quick.contains(&mode);
                if makes_sense && !left_out {
                    cells.push(Cell { workload, threads: threads_of_cell, mode });
                }
            }
        }
    }
    // What needs the same files follows each other: making them anew takes long.
    cells.sort_by_key(Cell::data_files);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::by_id;

    fn told(cells: &[Cell]) -> Vec<String> {
        let text =
            |cell: &Cell| format!("{} {} {}", cell.workload.id, cell.threads, cell.mode.name());
        cells.iter().map(text).collect()
    }

    #[test]
    fn a_quick_run_has_all_workloads_and_of_two_threads_those_that_are_judged() {
        let quick = cells(&[], &[], true);
        let usual = ALL.iter().filter(|workload| !workload.long).count();
        assert_eq!(quick.iter().filter(|cell| cell.threads == 1).count(), usual);
        let two: Vec<_> = quick.iter().filter(|cell| cell.threads == 2).copied().collect();
        let mut two = told(&two);
        two.sort();
        assert_eq!(
            two,
            [
                "append-4k 2 private",
                "create-unlink 2 private",
                "overwrite-4k 2 shared",
                "read-4k 2 shared",
            ]
        );
    }

    #[test]
    fn a_long_run_is_one_threads_whatever_is_asked_for_and_in_no_quick_run() {
        let churn = [by_id("churn").unwrap()];
        assert_eq!(told(&cells(&churn, &[2, 4], true)), ["churn 1 private"]);
        assert!(!told(&cells(&[], &[], true)).contains(&"churn 1 private".to_owned()));
        assert!(told(&cells(&[], &[], false)).contains(&"churn 1 private".to_owned()));
    }

    #[test]
    fn threads_that_are_asked_for_are_measured_in_all_modes() {
        let some = [by_id("truncate").unwrap(), by_id("read-4k").unwrap()];
        let all = cells(&some, &[1, 3], true);
        assert_eq!(
            told(&all),
            [
                "read-4k 1 private",
                "read-4k 3 shared",
                "truncate 1 private",
                "read-4k 3 private",
                "truncate 3 private",
            ]
        );
    }
}
