//! `lode crash`: what it takes, what it prints, how it ends.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{LODE, Scratch, lode, text};
use rustix::process::{Pid, Signal, kill_process};

const SCRIPT: &str = "name two names\nbefore:\n  create /a\nops:\n  link /a /b\n  unlink /a\n";

fn script(scratch: &Scratch) -> String {
    let path = scratch.path("script");
    fs::write(&path, SCRIPT).unwrap();
    text(&path).to_owned()
}

#[test]
fn wrong_command_lines_are_told() {
    for args in [
        &["crash"][..],
        &["crash", "walk"],
        &["crash", "run", "--seq", "3"],
        &["crash", "run", "--seq", "1", "--quick"],
        &["crash", "run", "--full", "--quick"],
        &["crash", "run", "--profile", "pdr"],
        &["crash", "run", "--jobs", "0"],
        &["crash", "run", "--time", "0"],
        &["crash", "run", "--seed", "x"],
        &["crash", "replay"],
        &["crash", "replay", "seq1"],
        &["crash", "replay", "seq1-0:adr:1:s0"],
        &["crash", "replay", "script-0:adr:1:s0p0c0"],
        &["crash", "mutants", "--quick"],
    ] {
        let ran = lode(args).expect(2);
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{args:?}");
        let with_json: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let error = lode(&with_json).expect(2).error_json();
        assert_eq!(error["error"]["kind"], "usage", "{args:?}");
        let named = args.get(1).filter(|word| **word != "walk");
        let command = named.map_or("crash".to_owned(), |word| format!("crash {word}"));
        assert_eq!(error["command"], command, "{args:?}");
    }
}

#[test]
fn a_script_that_is_none_is_told_by_its_line() {
    let scratch = Scratch::new();
    let path = scratch.path("script");
    fs::write(&path, "create /a\nfrobnicate /a\n").unwrap();
    let error = lode(&["crash", "run", "--script", text(&path), "--json"]).expect(2).error_json();
    assert!(error["error"]["what"].as_str().unwrap().starts_with("line 2:"), "{error}");
    assert_eq!(error["error"]["where"], text(&path));
    let none = scratch.path("none");
    lode(&["crash", "run", "--script", text(&none)]).expect(8);
    fs::write(&path, "create /a").unwrap();
    let page = scratch.path("no/page.html");
    lode(&["crash", "run", "--script", text(&path), "--html", text(&page)]).expect(8);
}

#[test]
fn a_script_is_run_under_each_profile() {
    let scratch = Scratch::new();
    let script = script(&scratch);
    let page = scratch.path("page.html");
    let ran = lode(&["crash", "run", "--script", &script, "--html", text(&page)]).expect(0);
    for word in ["operation", "link", "unlink", "No failing state", "adr, eadr, file", "a second"] {
        assert!(ran.out.contains(word), "{word} in:\n{}", ran.out);
    }
    assert!(ran.err.is_empty(), "{}", ran.err);
    assert!(fs::read_to_string(&page).unwrap().contains("</html>"));

    let one = ["crash", "run", "--script", &script, "--profile", "eadr", "--seed", "7", "--json"];
    let json = lode(&one).expect(0).json();
    for key in ["judged", "states", "pruned", "failures", "mutants", "mutants_killed", "seconds"] {
        assert!(json[key].is_number(), "{key}");
    }
    assert_eq!((&json["schema"], &json["command"]), (&1.into(), &"crash run".into()));
    assert_eq!((&json["failures"], &json["seed"]), (&0.into(), &7.into()));
    assert_eq!(json["profiles"], serde_json::json!(["eadr"]));
    assert!(json["judged"].as_u64().unwrap() > 50, "{json}");
}

#[test]
fn operations_of_a_script_that_fail_are_named() {
    let scratch = Scratch::new();
    let path = scratch.path("script");
    fs::write(&path, "create /d/a\n").unwrap();
    let args = ["crash", "run", "--script", text(&path), "--profile", "eadr"];
    let ran = lode(&args).expect(0);
    assert!(ran.out.contains("Fails, as it must: create /d/a: no such file"), "{}", ran.out);
    let json = lode(&[&args[..], &["--json"]].concat()).expect(0).json();
    assert_eq!(json["refused"][0]["why"], "no such file or directory");
}

#[test]
fn a_run_that_is_short_of_time_says_what_it_left_out() {
    let args = ["crash", "run", "--seq", "1", "--time", "1", "--profile", "adr", "--json"];
    let json = lode(&args).expect(0).json();
    let [all, left] = ["cases", "cases_left_out"].map(|key| json[key].as_u64().unwrap());
    assert!(left > 0 && left < all, "{left} of {all}");
}

#[test]
fn mutants_without_time_to_be_sure_of_them_are_no_success() {
    let cut = lode(&["crash", "mutants", "--time", "1", "--json"]).expect(1).json();
    assert_eq!(cut["all_places"], false);
    assert!(cut["verdicts"].as_array().unwrap().iter().any(|verdict| verdict["late"] == true));
    // (What stores to that place comes late, or not at all.)
    let none = lode(&["crash", "mutants", "--time", "1", "level/change.rs", "--json"]).expect(1);
    assert!(none.err.contains("no time"), "{}", none.err);
}

#[test]
fn different_images_without_file_data_are_no_more_than_different_images() {
    let scratch = Scratch::new();
    for ops in ["mkdir /d\nunlink /x\n", "create /a\n", "create /a\nappend /a 5000\nunlink /a\n"] {
        let path = scratch.path("script");
        fs::write(&path, ops).unwrap();
        let run = ["crash", "run", "--profile", "adr", "--json", "--script", text(&path)];
        let json = lode(&run).expect(0).json();
        let [all, bare] = ["distinct", "distinct_metadata"].map(|key| json[key].as_u64().unwrap());
        assert!(0 < bare && bare <= all, "{bare} of {all} after {ops}");
    }
}

#[test]
fn a_run_that_is_interrupted_says_what_it_has_found() {
    let mut run = Command::new(LODE);
    run.args(["crash", "run", "--seq", "1", "--json"]).stdout(Stdio::piped());
    let run = run.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let ended = run.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let json: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert!(json["judged"].as_u64().unwrap() > 0 && json["cases_left_out"].as_u64().unwrap() > 0);
}

#[test]
fn a_state_is_shown_by_its_id() {
    let scratch = Scratch::new();
    let script = script(&scratch);
    let page = scratch.path("page.html");
    let id = "script-0:adr:1:s1p0c1";
    let replay = ["crash", "replay", id, "--script", &script, "--html", text(&page)];
    let ran = lode(&replay).expect(0);
    for word in ["unlink /a", "power fails in", "judged right", "#", "streamed"] {
        assert!(ran.out.contains(word), "{word} in:\n{}", ran.out);
    }
    assert!(fs::read_to_string(&page).unwrap().contains(id));
    let json = lode(&["crash", "replay", id, "--script", &script, "--json"]).expect(0).json();
    assert_eq!((&json["id"], &json["wrong"]), (&id.into(), &false.into()));
    assert_eq!(json["cuts"].as_array().unwrap().len(), 1);
    lode(&["crash", "replay", "script-0:adr:1:s7p0c1", "--script", &script]).expect(8);
    lode(&["crash", "replay", "seq2-999999:adr:1:s0p0c0"]).expect(8);
    lode(&["crash", "replay", "seq1-0:adr:1:s0p0c0", "--script", &script]).expect(2);
    lode(&["crash", "replay", "seq1-0:adr:1:s0p0c0"]).expect(0);
    // The one that the documents show.
    lode(&["crash", "replay", "seq1-37:adr:1:s1p1c1"]).expect(0);
    lode(&["crash", "replay", "seq1-37:adr:1:s1p1c1", "--without", "engine/src/none.rs:1"])
        .expect(8);
    // Schedules of other cases.
    lode(&["crash", "replay", "seq1-37:adr:1:t0:s1p1c1"]).expect(8);
    lode(&["crash", "replay", "pair-0:adr:1:t0x4000000.1:s0p0c0"]).expect(8);
}

#[test]
fn no_page_takes_the_place_of_what_is_there_before_there_is_one() {
    let scratch = Scratch::new();
    let script = script(&scratch);
    lode(&["crash", "run", "--script", &script, "--html", &script]).expect(2);
    assert_eq!(fs::read_to_string(&script).unwrap(), SCRIPT);
    let (page, none) = (scratch.path("page.html"), scratch.path("none"));
    fs::write(&page, "old").unwrap();
    lode(&["crash", "run", "--script", text(&none), "--html", text(&page)]).expect(8);
    let stale = ["crash", "replay", "seq1-37:adr:1:s9p0c0", "--html", text(&page)];
    lode(&stale).expect(8);
    assert_eq!(fs::read_to_string(&page).unwrap(), "old");
}

#[test]
fn no_script_is_too_much() {
    let scratch = Scratch::new();
    let path = scratch.path("script");
    let many = "create /a\n".repeat(1001);
    for (script, why) in [
        ("pool 70000\ncreate /a", "write 72K"),
        ("pool 64K lanes 256\ncreate /a", "no such pool"),
        ("write /a 0 1T", "4M"),
        ("read /a 0 18446744073709551615", "4M"),
        ("create /%=0.99999999999", "too long"),
        ("create /..", "can't be a name"),
        (&many, "at most 1000 operations"),
    ] {
        fs::write(&path, script).unwrap();
        let ran = lode(&["crash", "run", "--script", text(&path)]).expect(2);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
    fs::write(&path, b"create /\xff\xfe").unwrap();
    assert!(lode(&["crash", "run", "--script", text(&path)]).expect(2).err.contains("no text"));
    assert!(lode(&["crash", "run", "--script", "/dev/zero"]).expect(2).err.contains("longer"));
}
