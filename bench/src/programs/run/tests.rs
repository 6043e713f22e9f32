use std::cell::Cell;
use std::path::Path;

use super::super::subject::by_id;
use super::*;

/// Wants no more when it has been asked so often.
struct Patience(Cell<u32>);

impl Watch for Patience {
    fn progress(&self, _done: u64, _all: u64, _what: &str) {}

    fn is_over(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left == 0
    }
}

fn settings(base: &Path) -> Settings {
    Settings {
        programs: vec![],
        subjects: vec![],
        rounds: None,
        quick: true,
        dir: Some(base.to_owned()),
        made_of: Programs { lode: "".into(), emulate: None, mount_options: vec![], quick: true },
    }
}

#[test]
fn a_failed_run_is_told_and_is_no_sound_one() {
    assert_eq!(Counts::default().judged(), []);
    let judged = |failed| Counts { runs: 5, failed, checks: 9 }.judged().remove(0);
    assert_eq!((judged(0).met, judged(1).met), (Some(true), Some(false)));
    assert_eq!(judged(2).measured, "3 of 5 did; 9 sound");
}

#[test]
fn a_row_is_the_median_of_its_rounds_and_only_pools_are_emulated() {
    let program = ALL[0];
    let of = |subject| row(program, by_id(subject).unwrap(), &[3e9, 1e9, 2e9], true);
    let volume = of("ext4-volume");
    assert_eq!((volume.ns_per_op, volume.ops_per_s, volume.repetitions), (2e9, 0.5, 3));
    assert_eq!((volume.p50_ns, volume.spread), (None, 1.0));
    let emulated = ["ext4-volume", "lode-mount", "ext4-ram", "tmpfs"].map(|id| of(id).emulated);
    assert_eq!(emulated, [true, true, false, false]);
}

/// Works, and fails in one run if it is to.
struct Trial {
    fails: bool,
}

impl Program for Trial {
    fn id(&self) -> &'static str {
        "trial"
    }
    fn about(&self) -> &'static str {
        "nothing"
    }
    fn missing(&self, _dir: &Path) -> Option<String> {
        None
    }
    fn prepare(&self, work: &Work<'_>) -> Result<()> {
        // What the last run made is not there: each has new ground.
        let at = work.root.join("made");
        std::fs::create_dir(&at).map_err(|error| BenchError::io("making", &at, error))
    }
    fn run(&self, _work: &Work<'_>) -> Result<f64> {
        Ok(1e6)
    }
    fn verify(&self, _work: &Work<'_>) -> Result<()> {
        let said = "not done".to_owned();
        if self.fails { Err(super::super::program::wrong("trial", said)) } else { Ok(()) }
    }
}

#[test]
fn what_has_not_done_its_work_has_no_time_and_leaves_nothing() {
    let base = tempfile::tempdir().unwrap();
    let place = Place::new(Some(base.path()), 64 << 20).unwrap();
    if !place.is_root() {
        println!("skipped: only root may mount");
        return;
    }
    let made_of = settings(base.path()).made_of;
    let subject = by_id("tmpfs").unwrap();
    let kit = Kit::new(&place, Load { files: 2, units: 2, ..Load::new(true) }).unwrap();
    let ground = Ground::new(&place, &made_of, SIZES_QUICK, &[subject]).unwrap();
    let mut runs = Runs {
        ground: &ground,
        kit: &kit,
        watch: &Patience(Cell::new(u32::MAX)),
        began: Instant::now(),
        time: TIME,
        rounds: Some(3),
        number: 0,
        all: 6,
        counts: Counts::default(),
    };
    let mut report = Report::default();
    runs.program(&Trial { fails: false }, &[subject], 2, false, &mut report);
    assert_eq!((report.rows.len(), report.rows[0].repetitions), (1, 3));
    assert_eq!((report.rows[0].ns_per_op, &report.left_out), (1e6, &vec![]));
    runs.program(&Trial { fails: true }, &[subject], 1, false, &mut report);
    assert_eq!(report.rows.len(), 1);
    assert_eq!(report.left_out[0].what, "tmpfs: trial");
    assert!(report.left_out[0].why.contains("not done"), "{:?}", report.left_out);
    // It is not run again once it has failed.
    assert_eq!((runs.counts.runs, runs.counts.failed), (4, 1));
    for number in 1..=4 {
        assert!(!place.dir().join(format!("run{number}")).exists(), "{number}");
    }
}

#[test]
fn a_run_that_is_interrupted_has_a_report_without_rows_of_what_was_cut_off() {
    for patience in [0, 1, 2] {
        let base = tempfile::tempdir().unwrap();
        let settings =
            Settings { subjects: vec![by_id("tmpfs").unwrap()], ..settings(base.path()) };
        let watch = Patience(Cell::new(patience));
        match run(&settings, &watch) {
            Ok(report) => assert_eq!(report.rows, [], "{patience}"),
            Err(BenchError::NoSubject(why)) => assert!(why.contains("only root"), "{why}"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
