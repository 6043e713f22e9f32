//! The unit templates for systemd: their commands work, and say when the files are there.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{LODE, Scratch, fsck, lode, text};

fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(name);
    fs::read_to_string(path).unwrap().replace("/usr/local/bin/lode", LODE)
}

fn template() -> String {
    packaged("lode@.service")
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

/// The command that a unit gives to a shell, and what it gives with it.
fn shell(unit: &str, variables: &[(&str, &str)]) -> Command {
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '")).unwrap();
    let (script, words) = line.split_once("' ").unwrap();
    let mut command = Command::new("/bin/sh");
    // A dollar sign of the shell is two of a unit.
    command.args(["-c", &script.replace("$$", "$")]);
    for word in words.split(' ') {
        let known =
            variables.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value));
        command.arg(known);
    }
    command
}

#[test]
fn the_unit_for_statistics_writes_a_whole_file_or_none() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    let collected = scratch.dir("collected");
    let unit = packaged("lode-stats@.service");
    let variables = [
        ("${DIR}", text(&dir)),
        ("%i", "home"),
        ("/var/lib/prometheus/node-exporter", text(&collected)),
    ];
    let file = collected.join("lode-home.prom");
    let run = || shell(&unit, &variables).stderr(Stdio::null()).status().unwrap();
    assert!(!run().success() && !file.exists(), "nothing is mounted");
    lode(&["mount", text(&pool), text(&dir)]).expect(0);
    assert!(run().success());
    let first = fs::read_to_string(&file).unwrap();
    crate::common::prometheus::parse(&first).unwrap();
    lode(&["umount", text(&dir)]).expect(0);
    assert!(!run().success());
    assert_eq!(fs::read_to_string(&file).unwrap(), first, "the last one stays");
}

#[test]
fn a_pool_that_comes_late_is_waited_for() {
    let unit = template();
    let has = |line: &str| unit.lines().any(|own| own == line);
    assert!(has("Restart=on-failure") && has("RestartSec=1") && has("StartLimitIntervalSec=0"));
    assert!(unit.contains("RequiresMountsFor="), "how to name the mount that has the pool");
    // A recovery that is cut off by a limit of time would begin anew for ever.
    assert!(has("TimeoutStartSec=infinity"));
}

#[test]
fn statistics_are_collected_as_long_as_the_pool_is_mounted() {
    let timer = packaged("lode-stats@.timer");
    for key in ["BindsTo", "After", "WantedBy"] {
        let line = format!("{key}=lode@%i.service");
        assert!(timer.lines().any(|own| own == line), "{line}");
    }
}

#[test]
fn systemd_understands_the_units() {
    let scratch = Scratch::new();
    let units = ["lode@.service", "lode-stats@.service", "lode-stats@.timer"];
    let paths = units.map(|name| {
        let path = scratch.path(&name.replace('@', "@test"));
        fs::write(&path, packaged(name)).unwrap();
        path
    });
    let verified =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&paths).output();
    let Ok(verified) = verified else {
        println!("skipped: systemd-analyze is not here");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    // It may have something to say of the machine's other units.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("@test")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}
