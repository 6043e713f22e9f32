//! `lode crash corrupt`: what it prints, and an injection again by its name. (`crash/tests/suite/corrupt.rs` has more of them.)

use crate::common::lode;

#[test]
fn injections_are_counted_by_what_was_damaged() {
    let args = ["crash", "corrupt", "--injections", "600", "--level", "full", "--seed", "2"];
    let json = lode(&[&args[..], &["--json"]].concat()).expect(0).json();
    assert_eq!((json["injections"].as_u64(), json["wrong"].as_u64()), (Some(600), Some(0)));
    let rows = json["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["level"] == "full"));
    let sum: u64 = rows.iter().map(|row| row["injections"].as_u64().unwrap()).sum();
    assert_eq!(sum, 600);
    let text = lode(&args).expect(0).out;
    for part in ["damaged", "full: superblock, both", "600 injections", "0 wrong"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn one_injection_is_done_again_by_its_name() {
    let once = lode(&["crash", "corrupt", "metadata-1-1-21", "--json"]).expect(0).json();
    let again = lode(&["crash", "corrupt", "metadata-1-1-21", "--json"]).expect(0).json();
    assert_eq!(once, again);
    assert_eq!(
        (once["id"].as_str(), once["wrong"].as_bool()),
        (Some("metadata-1-1-21"), Some(false))
    );
    for wrong in ["metadata", "some-1-1-1", "full-1-1", "full-1-x-1"] {
        lode(&["crash", "corrupt", wrong]).expect(2);
    }
}
