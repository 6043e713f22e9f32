//! The command line: what it takes, and what it does not.

use super::*;
use clap::CommandFactory;

fn words(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn stats_are_watched_in_every_usual_way() {
    let watched = |line: &str| match Cli::try_parse_from(words(line)).map(|cli| cli.command) {
        Ok(Command::Stats(args)) => Some((args.watch.or(args.every)?.as_secs_f64(), args.count)),
        _ => None,
    };
    for (line, expected) in [
        ("lode stats /d 2", (2.0, None)),
        ("lode stats /d 0.5 10", (0.5, Some(10))),
        ("lode stats /d --watch", (1.0, None)),
        ("lode stats /d -w 3", (3.0, None)),
        ("lode stats --watch 3 /d --json", (3.0, None)),
        ("lode stats --interval=7 /d", (7.0, None)),
    ] {
        assert_eq!(watched(line), Some(expected), "{line}");
    }
    for line in [
        "lode stats --watch /d",
        "lode stats /d 0",
        "lode stats /d NaN",
        "lode stats /d -1",
        "lode stats /d 1e9",
        "lode stats /d 1 0",
        "lode stats /d 1 --watch 2",
        "lode stats /d --prometheus --watch",
        "lode stats /d 1 --prometheus",
        "lode stats /d --prometheus --json",
        "lode stats --json /d --prometheus",
    ] {
        assert!(Cli::try_parse_from(words(line)).is_err(), "{line}");
    }
    let plain = Cli::try_parse_from(words("lode stats /d --prometheus"));
    assert!(matches!(plain.unwrap().command, Command::Stats(args) if args.prometheus));
}

#[test]
fn volumes_are_served_to_clients_or_to_the_kernel() {
    for (line, is_right) in [
        ("lode block serve /p v --socket /s", true),
        ("lode block serve /p v --socket /s --listen 127.0.0.1:0", true),
        ("lode block serve /p v --ublk", true),
        ("lode block serve /p --ublk --read-only", true),
        ("lode block serve /p v", false),
        ("lode block serve /p v --ublk --socket /s", false),
        ("lode block serve /p v --listen 127.0.0.1:0 --ublk", false),
        ("lode block serve /p v --ublk --tls-cert /c --tls-key /k", false),
        ("lode block serve /p v --listen 127.0.0.1:0 --tls-cert /c --tls-key /k", true),
    ] {
        assert_eq!(Cli::try_parse_from(words(line)).is_ok(), is_right, "{line}");
    }
}

#[test]
fn labels_can_be_shown() {
    assert!(parse_label("H\u{e4}user \"1\"").is_ok() && parse_label("").is_ok());
    for label in ["a\nb", "\u{1b}[2J", "tab\t", "\u{7f}", "\u{85}"] {
        assert!(parse_label(label).unwrap_err().contains("control"), "{label:?}");
    }
}

#[test]
fn fsck_takes_one_mode() {
    assert!(Cli::try_parse_from(["lode", "fsck", "-a", "-f", "/p"]).is_ok());
    assert!(Cli::try_parse_from(["lode", "fsck", "-n", "-y", "/p"]).is_err());
}
