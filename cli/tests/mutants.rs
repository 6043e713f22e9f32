//! Every mutant is noticed. It takes minutes, however little runs beside it, and measures nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use common::lode;

#[test]
fn every_mutant_is_noticed() {
    let began = Instant::now();
    let json = lode(&["crash", "mutants", "--json"]).expect(0).json();
    let [all, killed] = ["mutants", "mutants_killed"].map(|key| json[key].as_u64().unwrap());
    println!("mutants: {killed} of {all} killed in {:.1} s", began.elapsed().as_secs_f64());
    assert!(all >= 20 && killed == all, "{killed} of {all}");
    let verdicts = json["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len() as u64, all);
    let sites: Vec<&str> = verdicts.iter().filter_map(|verdict| verdict["site"].as_str()).collect();
    for place in places_of(&engine_sources()) {
        assert!(
            sites.contains(&place.as_str()),
            "no mutant leaves out the fence or flush of {place}"
        );
    }
    for key in ["site", "kind", "killed_by"] {
        assert!(verdicts.iter().all(|verdict| verdict[key].is_string()), "{key}");
    }
    for kind in ["fence", "write-back", "rule"] {
        let one = verdicts.iter().find(|verdict| verdict["kind"] == kind).unwrap();
        let [id, site] = ["killed_by", "site"].map(|key| one[key].as_str().unwrap());
        lode(&["crash", "replay", id, "--without", site]).expect(4);
        lode(&["crash", "replay", id, "--without", &format!("{kind} {site}")]).expect(4);
    }
}

/// The engine's source files.
fn engine_sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src");
    let (mut files, mut todo) = (Vec::new(), vec![root]);
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let list = if path.is_dir() { &mut todo } else { &mut files };
            list.push(path);
        }
    }
    files
}

/// The places of the engine that fence or write back, as mutants name them. Where a function does
/// it for its callers (`#[track_caller]`), these are the places.
fn places_of(files: &[PathBuf]) -> BTreeSet<String> {
    let files: Vec<(String, String)> = files
        .iter()
        .map(|path| {
            let name = path.to_str().unwrap();
            let name = name[name.rfind("engine/src").unwrap()..].to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    let mut lines = Vec::new();
    for (file, text) in &files {
        let (mut function, mut tracked, mut next_is_tracked) = (String::new(), false, false);
        for (number, line) in text.lines().enumerate() {
            next_is_tracked |= line.trim() == "#[track_caller]";
            if let Some(name) = line.split("fn ").nth(1).filter(|_| !line.contains("//")) {
                function = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                tracked = std::mem::take(&mut next_is_tracked);
            }
            // (`halves` is what a mutant does.)
            if function != "halves" {
                lines.push((format!("{file}:{}", number + 1), line, function.clone(), tracked));
            }
        }
    }
    let stores = ["door.fence(", "door.fence_more(", "window.flush("];
    let opens = |line: &str| line.contains("door.window(") && line.contains(").flush(");
    let fences = |line: &str| opens(line) || stores.iter().any(|call| line.contains(call));
    let direct = lines.iter().filter(|(_, line, ..)| fences(line));
    let (for_callers, here): (Vec<_>, Vec<_>) = direct.partition(|(.., tracked)| *tracked);
    let mut places: BTreeSet<String> = here.into_iter().map(|line| line.0.clone()).collect();
    let mut names: BTreeSet<&String> = for_callers.into_iter().map(|line| &line.2).collect();
    let calls = |line: &str, name: &str| {
        let before = line.split(&format!("{name}(")).next().unwrap_or_default();
        let is_call = before.ends_with(['.', ' ', ':']) && !before.ends_with("fn ");
        before.len() < line.len() && is_call && !line.trim().starts_with("//")
    };
    // Those do it for their callers that call such a one, too.
    loop {
        let known = names.len();
        let in_tracked = lines.iter().filter(|(.., tracked)| *tracked);
        let more = in_tracked.filter(|line| names.iter().any(|name| calls(line.1, name)));
        let more: Vec<&String> = more.map(|line| &line.2).collect();
        names.extend(more);
        if names.len() == known {
            break;
        }
    }
    assert!(names.iter().any(|name| *name == "commit"), "{names:?}");
    for (place, line, _, tracked) in &lines {
        if !tracked && names.iter().any(|name| calls(line, name)) {
            places.insert(place.clone());
        }
    }
    assert!(places.len() > 25, "{places:?}");
    places
}
