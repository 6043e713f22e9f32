//! A failure that was planted is told: as text, as a script, as a page, and again by its id.

use std::time::Duration;

use lode_crash::case::Case;
use lode_crash::explore::{Failure, Limits, Memo, Setup, Stop, explore, replay};
use lode_crash::region::{LeftOut, Profile};
use lode_crash::run::{
    Batch, Job, JobId, Mutant, MutantReport, Outcome, ReplayId, Report, Set, Story, html, jobs_of,
    mutants_of, run_batch, run_mutants, stories,
};
use lode_crash::workload::{flips, parse_script};
use lode_engine::Rule;

const BATCH: Batch = Batch { limits: Limits::QUICK, workers: 2, time_max: None, stop: Stop::NEVER };

fn job() -> Job {
    let text = "name a <b> & \"c\"\nbefore:\n create /x\n mkdir /d\nops:\n create /a\n link /a /b\n \
                rename /a /d/c\n unlink /b";
    let case = parse_script(text).unwrap();
    jobs_of(Set::Script, [case], Profile::Adr, 1).remove(0)
}

/// The job with the fence of every commit left out, and what that breaks.
fn planted() -> (Job, lode_crash::explore::Setup, Box<Failure>) {
    let job = job();
    let sound = explore(&job.case, &job.setup(), &Limits::QUICK, &mut Memo::default()).unwrap();
    for site in sound.sites.iter().filter(|site| matches!(site, LeftOut::Fence(_))) {
        let mut setup = job.setup();
        setup.rules.left_out = Some(*site);
        let failed = explore(&job.case, &setup, &Limits::QUICK, &mut Memo::default()).err();
        if let Some(failure) = failed.filter(|failure| !failure.cuts.is_empty()) {
            return (job, setup, failure);
        }
    }
    panic!("no fence is missed");
}

fn story() -> Story {
    let (job, setup, failure) = planted();
    let shrunk = job.shrink(&setup, failure.clone(), &Limits::QUICK, Duration::from_secs(20));
    Story::new(job.id, &failure, shrunk)
}

fn outcome(failure: &Failure) -> Outcome {
    let failures = vec![(0, Box::new(failure.clone()))];
    Outcome { failures, tallies: vec![None], ..Outcome::default() }
}

/// Every tag that opens is closed, in order.
fn well_formed(page: &str) {
    const VOID: [&str; 3] = ["meta", "br", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "before {:.60}", rest),
            None => {
                let name = tag.split(|c: char| c.is_whitespace()).next().unwrap();
                let letters = name.trim_start_matches('!').chars();
                assert!(letters.clone().count() > 0, "a tag without a name before {rest:.60}");
                assert!({ letters }.all(char::is_alphanumeric), "<{tag}>");
                if !VOID.contains(&name) {
                    open.push(name);
                }
            }
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
}

fn self_contained(page: &str) {
    well_formed(page);
    for word in ["http", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(word), "the page has {word}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
}

#[test]
fn the_page_of_a_run_has_each_failure() {
    let (job, _, failure) = planted();
    let story = story();
    let jobs = [job];
    let report = Report::new(&jobs, &outcome(&failure), std::slice::from_ref(&story));
    assert_eq!((report.failures, report.failed.len()), (1, 1));
    let rows = report.by_operation.iter().map(|row| row.failures).sum::<usize>();
    assert_eq!(rows, 1, "the failure is in no row");
    let page = html::run_page(&report, std::slice::from_ref(&story), "Seed <1>.");
    self_contained(&page);
    for text in [story.id.to_string(), story.script_id().to_string()] {
        assert!(page.contains(&text), "{text}");
    }
    assert!(page.contains("a &lt;b&gt; &amp; &quot;c&quot;") && !page.contains("a <b>"));
    assert!(page.contains("Seed &lt;1&gt;."));
    assert!(page.contains("word kept") && page.contains("word lost"));
    assert!(page.contains("class=\"cut\"") && page.contains("engine/src/"));
}

#[test]
fn a_failure_shrinks_to_a_script_that_fails_the_same_way() {
    let (job, setup, found) = planted();
    let story = story();
    let short: Case = parse_script(&story.script()).unwrap();
    assert_eq!(short, story.shrunk.case);
    assert!(short.before.len() + short.ops.len() < job.case.before.len() + job.case.ops.len());
    let again = replay(&short, &setup, &story.script_id().path);
    assert!(again.wrong && again.reached);
    assert_eq!(again.story.what, story.shrunk.what);
    // As it was found, too.
    let id: ReplayId = story.id.to_string().parse().unwrap();
    assert_eq!(replay(&job.case, &setup, &id.path).story.what, found.what);
}

#[test]
fn a_replay_of_what_is_right_now_tells_the_way_all_the_same() {
    let (job, _, failure) = planted();
    let now = job.replay(&failure.path, None);
    // Without the fence there were fewer points; where the id still leads to a state, it is right.
    assert!(!now.wrong, "{}", now.story);
    let sound = explore(&job.case, &job.setup(), &Limits::QUICK, &mut Memo::default()).unwrap();
    assert!(sound.judged() > 0);
    let right = job.replay(&"s1p0c1:r0p0c0".parse().unwrap(), None);
    assert!(right.reached && !right.wrong);
    assert_eq!(right.story.cuts.len(), 2);
    assert!(right.story.what.contains("judged right"));
    let id = ReplayId { job: job.id, path: right.story.path.clone() };
    let page = html::replay_page(&id, &right.story, right.wrong, None);
    self_contained(&page);
    assert!(page.contains("judged right") && page.contains("the recovery (point 1 of"));
    assert!(page.contains("the power fails here") && !page.contains("ran without"));
    // Who is shown the page of a mutant must not take it for the engine's fault.
    let mutant = Some(Mutant::Rule(Rule::RecordSeal));
    let page = html::replay_page(&id, &right.story, right.wrong, mutant);
    self_contained(&page);
    assert!(page.contains("ran without <code>rule record-seal</code>"));
}

#[test]
fn the_page_of_a_bit_that_flips_cuts_no_operation() {
    let job = jobs_of(Set::Bits, flips(), Profile::Adr, 1).remove(0);
    let flipped = job.replay(&"b1p0c4".parse().unwrap(), None);
    assert!(flipped.reached && !flipped.wrong, "{}", flipped.story);
    let id = ReplayId { job: job.id, path: flipped.story.path.clone() };
    let page = html::replay_page(&id, &flipped.story, flipped.wrong, None);
    assert!(page.contains("One bit flips in a pool left closed"), "{page}");
    assert!(!page.contains("the power fails here") && !page.contains("class=\"later\""));
}

#[test]
fn a_failure_is_made_no_shorter_when_it_is_time_to_stop() {
    let (job, setup, found) = planted();
    let setup = Setup { stop: Stop::when(|| true), ..setup };
    let shrunk = job.shrink(&setup, found.clone(), &Limits::QUICK, Duration::from_secs(20));
    assert_eq!(shrunk.to_string(), found.to_string());
}

#[test]
fn a_salvage_that_was_cut_off_shows_its_stores() {
    let job = jobs_of(Set::Bits, flips(), Profile::Adr, 1).remove(0);
    let sound = explore(&job.case, &job.setup(), &Limits::QUICK, &mut Memo::default()).unwrap();
    let in_salvage = |site: &&LeftOut| site.site().file.starts_with("engine/src/salvage/change");
    let fences = sound.sites.iter().filter(|site| matches!(site, LeftOut::Fence(_)));
    let told = fences.filter(in_salvage).find_map(|site| {
        let mut setup = job.setup();
        setup.rules.left_out = Some(*site);
        explore(&job.case, &setup, &Limits::QUICK, &mut Memo::default()).err()
    });
    let failure = told.expect("a fence of a salvage is missed");
    let cut = failure.cuts.last().unwrap();
    assert!(cut.place.starts_with("a salvage"), "{failure}");
    assert!(!cut.stores.is_empty(), "{failure}");
    assert!(failure.to_string().contains("streamed by engine/src/store/"), "{failure}");
}

#[test]
fn what_panics_outside_a_state_is_told_by_a_replay_too() {
    let mut job = job();
    // No whole pages: the region itself refuses it.
    job.case.geometry.bytes = 70_000;
    let failure = explore(&job.case, &job.setup(), &Limits::QUICK, &mut Memo::default());
    let failure = failure.unwrap_err();
    let again = job.replay(&failure.path, None);
    assert!(again.wrong && again.reached);
    assert_eq!(again.story.what, failure.what);
}

#[test]
fn ids_that_lead_nowhere_are_told_apart() {
    for path in ["s99p0c0", "s0p99c0", "s0p0c9999", "s0p0c0x500.1", "s0p0c0:r0p99c0"] {
        let replay = job().replay(&path.parse().unwrap(), None);
        assert!(!replay.reached && !replay.wrong, "{path}");
    }
}

#[test]
fn mutants_have_a_page() {
    let jobs = [job()];
    let sound = run_batch(&jobs, &BATCH, &());
    let mut mutants = mutants_of(&sound);
    mutants.retain(|mutant| mutant.kind() != "rule");
    assert!(mutants.len() > 3, "{mutants:?}");
    let verdicts = run_mutants(&mutants, &jobs, &sound, &BATCH, &());
    let reports: Vec<_> = verdicts.iter().map(MutantReport::from).collect();
    let page = html::mutants_page(&reports);
    self_contained(&page);
    for report in &reports {
        assert!(page.contains(&report.site), "{}", report.site);
        assert!(report.killed_by.iter().all(|id| page.contains(id)));
    }
    assert!(reports.iter().any(|report| report.killed_by.is_some()));
}

#[test]
fn a_batch_tells_its_failures() {
    let (job, _, failure) = planted();
    let jobs = [Job { id: JobId { seed: 1, ..job.id }, case: job.case }];
    let told = stories(&jobs, &outcome(&failure), &BATCH, Duration::ZERO);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].shrunk.to_string(), failure.to_string());
}
