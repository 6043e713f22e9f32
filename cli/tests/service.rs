//! The unit template for systemd: its commands work, and say when the files are there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{LODE, Scratch, fsck, lode, text};

fn template() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/lode@.service");
    fs::read_to_string(path).unwrap().replace("/usr/local/bin/lode", LODE)
}

/// A command of the unit, as systemd runs it: variables replaced word by word.
fn command(unit: &str, key: &str, variables: &[(&str, &str)]) -> Command {
    let line = unit.lines().find_map(|line| line.strip_prefix(&format!("{key}="))).unwrap();
    let mut words = line.split(' ').map(|word| {
        let known = variables.iter().find(|(name, _)| word == format!("${{{name}}}"));
        known.map_or(word, |(_, value)| value)
    });
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    command
}

#[test]
fn the_unit_starts_says_that_it_is_ready_and_stops() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let unit = template();
    let socket = scratch.path("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let said = || {
        let mut message = [0; 64];
        let len = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..len].to_vec()).unwrap()
    };
    for options in ["", "ro,noatime"] {
        let variables = [("POOL", text(&pool)), ("DIR", text(&dir)), ("OPTIONS", options)];
        let mut server = command(&unit, "ExecStart", &variables)
            .env("NOTIFY_SOCKET", &socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert_eq!(said(), "READY=1");
        let info = lode(&["info", text(&dir), "--json"]).expect(0).json();
        assert_eq!(
            info["mount"]["read_only"],
            options.starts_with("ro"),
            "mounted when it said so"
        );
        let stopped = command(&unit, "ExecStop", &variables).stdout(Stdio::null()).status();
        assert!(stopped.unwrap().success() && server.wait().unwrap().success());
        fsck(&pool).expect(0);
    }
}

#[test]
fn systemd_understands_the_unit() {
    let scratch = Scratch::new();
    let path = scratch.path("lode@test.service");
    fs::write(&path, template()).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
    let Ok(verified) = verified else {
        println!("skipped: systemd-analyze is not here");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    // It may have something to say of the machine's other units.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("lode@test")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}
