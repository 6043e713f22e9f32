//! Which rows are compared with which: what three figures of the paper on PMBD show.

use crate::report::Row;

use super::program::by_id;

/// Times of programs as multiples of those of one subject.
pub(crate) struct Comparison {
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// Whose time is 1.
    pub(crate) baseline: &'static str,
    /// For each program, each subject's time and the spread of its rounds.
    pub(crate) groups: Vec<(String, Vec<Bar>)>,
}

/// A subject's time with a program.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bar {
    pub(crate) subject: String,
    /// As a multiple of the baseline's.
    pub(crate) times: f64,
    pub(crate) spread: f64,
}

/// A comparison: who is compared.
struct Scheme {
    title: &'static str,
    about: &'static str,
    baseline: &'static str,
    /// In the order they are drawn.
    subjects: &'static [&'static str],
}

const WITHOUT_BARRIERS: &[&str] =
    &["cached-nobarrier", "unguarded-nobarrier", "ext4-nobarrier", "mprotect-nobarrier"];
const WITH_BARRIERS: &[&str] = &["ext4-cached", "ext4-unguarded", "ext4-volume", "ext4-mprotect"];
const DEVICES: &[&str] = &[
    "tmpfs",
    "ramfs",
    "lode-mount",
    "ext2-ram",
    "ext2-volume",
    "ext4-ram",
    "ext4-volume",
    "xfs-ram",
    "xfs-volume",
    "btrfs-ram",
    "btrfs-volume",
];

const SCHEMES: [Scheme; 3] = [
    Scheme {
        title: "Memory, RAM disks and volumes",
        about: "What Figure 13 of the paper shows: what it costs that there is a device, and a file system for disks on it.",
        baseline: "tmpfs",
        subjects: DEVICES,
    },
    Scheme {
        title: "Write schemes and guards, without barriers",
        about: "What Figure 10 shows: ext4 that asks for no order of its writes, on volumes that are stored to and guarded in several ways.",
        baseline: "cached-nobarrier",
        subjects: WITHOUT_BARRIERS,
    },
    Scheme {
        title: "Write schemes and guards, with barriers",
        about: "What Figure 12 shows: the same with the order that ext4 asks for where nothing is said. The unit is that of the figure before.",
        baseline: "cached-nobarrier",
        subjects: WITH_BARRIERS,
    },
];

/// The comparisons that these rows allow.
pub(crate) fn comparisons(rows: &[Row]) -> Vec<Comparison> {
    SCHEMES.iter().filter_map(|scheme| compared(scheme, rows)).collect()
}

fn compared(scheme: &Scheme, rows: &[Row]) -> Option<Comparison> {
    let Scheme { title, about, baseline, subjects } = *scheme;
    let rows = || rows.iter().filter(|row| by_id(&row.workload).is_some());
    let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
    for one in rows().filter(|row| row.subject == baseline && row.ns_per_op > 0.0) {
        let of = |subject: &&str| {
            let row =
                rows().find(|row| row.subject == **subject && row.workload == one.workload)?;
            let times = row.ns_per_op / one.ns_per_op;
            Some(Bar { subject: row.subject.clone(), times, spread: row.spread })
        };
        let bars: Vec<_> = subjects.iter().filter_map(of).collect();
        if bars.iter().any(|bar| bar.subject != baseline) {
            groups.push((one.workload.clone(), bars));
        }
    }
    (!groups.is_empty()).then_some(Comparison { title, about, baseline, groups })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::subject;
    use super::*;

    /// Rows of these programs, subjects and times.
    pub(crate) fn rows_of(all: &[(&str, &str, f64)]) -> Vec<Row> {
        let row = |(workload, subject, ns_per_op): &(&str, &str, f64)| Row {
            workload: (*workload).to_owned(),
            subject: (*subject).to_owned(),
            threads: 1,
            size: 0,
            mode: "private".to_owned(),
            ns_per_op: *ns_per_op,
            ops_per_s: 1e9 / ns_per_op,
            p50_ns: None,
            p99_ns: None,
            repetitions: 3,
            spread: 0.1,
            emulated: false,
        };
        all.iter().map(row).collect()
    }

    #[test]
    fn times_are_multiples_of_the_baselines_of_the_same_program() {
        let rows = rows_of(&[
            ("untar", "tmpfs", 100.0),
            ("untar", "ext4-volume", 300.0),
            ("tar", "ext4-volume", 80.0),
            ("tar", "tmpfs", 40.0),
            ("untar", "cached-nobarrier", 200.0),
            ("untar", "ext4-nobarrier", 250.0),
            // Of other workloads.
            ("create", "tmpfs", 1.0),
            ("create", "ext4-volume", 9.0),
        ]);
        let all = comparisons(&rows);
        let told: Vec<_> = all.iter().map(|one| (one.baseline, one.groups.len())).collect();
        assert_eq!(told, [("tmpfs", 2), ("cached-nobarrier", 1), ("cached-nobarrier", 1)]);
        let bar = |subject: &str, times| Bar { subject: subject.to_owned(), times, spread: 0.1 };
        let untar = [bar("tmpfs", 1.0), bar("ext4-volume", 3.0)].to_vec();
        let tar = [bar("tmpfs", 1.0), bar("ext4-volume", 2.0)].to_vec();
        assert_eq!(all[0].groups, [("untar".to_owned(), untar), ("tar".to_owned(), tar)]);
        assert_eq!(all[1].groups[0].1[1], bar("ext4-nobarrier", 1.25));
        assert_eq!(all[2].groups[0].1, [bar("ext4-volume", 1.5)]);
    }

    #[test]
    fn what_has_no_baseline_is_not_compared() {
        assert!(comparisons(&rows_of(&[("untar", "ext4-volume", 1.0)])).is_empty());
        assert!(comparisons(&rows_of(&[("untar", "tmpfs", 1.0)])).is_empty());
        assert!(comparisons(&[]).is_empty());
    }

    #[test]
    fn all_subjects_are_compared_with_some_other() {
        let compared = |id: &str| SCHEMES.iter().any(|scheme| scheme.subjects.contains(&id));
        for subject in subject::ALL {
            assert!(compared(subject.id), "{}", subject.id);
        }
        for scheme in &SCHEMES {
            for id in scheme.subjects.iter().chain([&scheme.baseline]) {
                assert!(subject::by_id(id).is_some(), "{id}");
            }
        }
    }
}
