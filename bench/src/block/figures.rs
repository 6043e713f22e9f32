//! Which subjects belong to which figure of the paper.

use super::cell::Cell;

/// A figure: workloads, and the subjects that are drawn side by side.
pub struct Figure {
    /// As the paper numbers it, and what it shows.
    pub title: &'static str,
    /// What is drawn: bare reads of a subject's own memory, `-limit`, before the subject.
    pub subjects: &'static [&'static str],
    /// Whether these are of it.
    pub has: fn(&Cell) -> bool,
}

/// The paper's figures of micro-benchmarks. Its baseline is a region that nothing protects.
pub const FIGURES: [Figure; 7] = [
    Figure {
        title: "Figure 3: protection by page tables",
        subjects: &["none", "mprotect"],
        has: |cell| cell.writes,
    },
    Figure {
        title: "Figure 5: buffering and batching",
        subjects: &["none", "mprotect", "mprotect-buffer", "mprotect-batch"],
        has: |cell| cell.writes,
    },
    Figure {
        title: "Figure 6: one buffer and sixteen",
        subjects: &["none", "mprotect-batch", "mprotect-batch-16"],
        has: |cell| cell.writes,
    },
    Figure {
        title: "Figure 8: pages mapped for each access, and keys",
        subjects: &["none", "private-map", "key", "key-rw"],
        has: |_| true,
    },
    Figure {
        title: "Figure 9: how stores reach the memory",
        subjects: &["cached", "none", "clwb", "clflush"],
        has: |cell| cell.writes,
    },
    Figure {
        title: "Figure 11: all in all, beside what physics asks for",
        subjects: &["limit", "none-limit", "none", "key-limit", "key"],
        has: |_| true,
    },
    Figure {
        title: "Volumes, whose sectors are atomic",
        subjects: &[
            "volume-once",
            "volume-limit",
            "volume-512-limit",
            "volume-512",
            "volume-4096-limit",
            "volume-4096",
            "volume-redirected",
        ],
        has: |_| true,
    },
];

#[cfg(test)]
mod tests {
    use super::super::{same, subject};
    use super::*;

    #[test]
    fn each_figure_is_of_subjects_that_there_are_and_each_subject_is_in_one() {
        let every = subject::every();
        for figure in &FIGURES {
            for id in figure.subjects {
                let bare = same::JUDGED.iter().any(|judged| same::name(judged) == *id);
                assert!(bare || every.iter().any(|subject| subject.id == *id), "{id}");
            }
        }
        for subject in every {
            let drawn = |figure: &Figure| figure.subjects.contains(&subject.id);
            assert!(FIGURES.iter().any(drawn), "{}", subject.id);
        }
        for bare in same::JUDGED.map(same::name) {
            let drawn = |figure: &Figure| figure.subjects.contains(&&*bare);
            assert!(FIGURES.iter().any(drawn), "{bare}");
        }
    }
}
