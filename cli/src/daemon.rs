//! Starting a server in the background: the command returns once the mount answers.
//!
//! The server is this program again, in a session of its own. Its standard output is a pipe
//! on which it sends one line: that it is mounted, or why not. What it writes to standard
//! error goes to a log file. No `fork` without `exec`, so no state is shared by accident.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use lode_fuse::control::place;
use lode_fuse::mountpoint::path_hash;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::explain::mount_failure;
use crate::failure::{Failure, Kind, Result};

/// The one line a server sends to the command that started it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message<R> {
    /// It answers.
    Ready(Box<R>),
    /// It does not.
    Failed(Failure),
}

/// The log file of the server for the mount at `dir`, emptied.
///
/// # Errors
/// When it can't be made.
pub(crate) fn new_log(dir: &Path) -> Result<(PathBuf, File)> {
    // Beside the server's control socket: this user's alone, and empty after a reboot.
    let logs = place::directory();
    place::prepare(&logs).map_err(|error| mount_failure(&logs, &error))?;
    let path = logs.join(log_name(dir));
    let failed = |error| Failure::io("making the log file", &path, &error);
    // Never the file itself of an earlier server, which may be about to end.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let file = opened.map_err(failed)?;
    Ok((path, file))
}

/// The name of the log of the mount at `dir`: no two places have the same.
fn log_name(dir: &Path) -> String {
    /// Bytes that a name has at most, with room for what stands before and behind.
    const MOST: usize = 200;
    let mut name = String::new();
    let bytes = dir.as_os_str().as_bytes();
    for byte in bytes.strip_prefix(b"/").unwrap_or(bytes) {
        match byte {
            b'/' => name.push('-'),
            b'.' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => name.push(char::from(*byte)),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    // A name has at most 255 bytes: its end tells mounts apart best, a number all of them.
    match name.len().checked_sub(MOST) {
        Some(start) if start > 0 => {
            format!("{:016x}%-{}.log", path_hash(dir), name.get(start..).unwrap_or_default())
        }
        _ => format!("{name}.log"),
    }
}

/// In the server, at its end: removes its log if that says no more than that there was a
/// mount, and nothing bad in it.
pub(crate) fn remove_quiet_log(path: &Path) {
    const QUIET: [&str; 6] = [
        " INFO mounted point=",
        " INFO unmounting signal=",
        " INFO scrubbed: nothing is bad",
        " INFO memory can be had pool=",
        " INFO ending signal=",
        " INFO ending: nobody uses it",
    ];
    let is_quiet = |log: &str| log.lines().all(|line| QUIET.iter().any(|it| line.contains(it)));
    let is_own = || {
        let (own, found) = (rustix::fs::fstat(rustix::stdio::stderr()).ok()?, fs::metadata(path));
        found.ok().filter(|found| (found.dev(), found.ino()) == (own.st_dev, own.st_ino))
    };
    if fs::read_to_string(path).is_ok_and(|log| is_quiet(&log)) && is_own().is_some() {
        // What can't be removed stays, as it did before.
        let _ = fs::remove_file(path);
    }
}

/// Starts `server` in the background and waits until it says that it is mounted.
///
/// # Errors
/// The server's own, or what its log ends with if it died without a word.
pub(crate) fn start<R: DeserializeOwned>(
    mut server: Command,
    log_path: &Path,
    log: File,
) -> Result<R> {
    server.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    server.current_dir("/");
    let mut child = server.spawn().map_err(|error| {
        Failure::io("starting the server", Path::new(server.get_program()), &error)
    })?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // An empty line tells the same as a failed read: the server is gone.
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    match serde_json::from_str(&line) {
        Ok(Message::Ready(report)) => Ok(*report),
        Ok(Message::Failed(failure)) => {
            let _ = child.wait();
            Err(failure)
        }
        Err(_) => Err(died(&mut child, log_path)),
    }
}

fn died(child: &mut Child, log_path: &Path) -> Failure {
    let status = child
        .wait()
        .map_or_else(|error| error.to_string(), |status: ExitStatus| status.to_string());
    let log = fs::read_to_string(log_path).unwrap_or_default();
    let tail: Vec<&str> = log.lines().rev().take(5).collect();
    let mut what = format!("the server ended before it answered ({status})");
    for line in tail.iter().rev() {
        what.push_str("\n  log: ");
        what.push_str(line);
    }
    Failure::new(Kind::Failed, what).at(log_path).advise("run it with --foreground to see more")
}

/// In the server: leaves the terminal's session, so that nothing sent there ends it.
pub(crate) fn detach() {
    // It fails only in a leader of a process group: a person who runs the server by hand.
    let _ = rustix::process::setsid();
}

/// In the server: tells the command that started it that it answers, and lets it go.
///
/// # Errors
/// When standard output can't be turned away from the pipe.
pub(crate) fn tell_ready<R: Serialize>(report: R) -> Result<()> {
    tell(&Message::Ready(Box::new(report)));
    let failed = |error: std::io::Error| {
        Failure::io("closing standard output", Path::new("/dev/null"), &error)
    };
    let null = OpenOptions::new().write(true).open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| failed(error.into()))
}

/// In the server: tells the command that started it why there is no mount.
pub(crate) fn tell_failed(failure: &Failure) {
    tell(&Message::<()>::Failed(failure.clone()));
}

fn tell<R: Serialize>(message: &Message<R>) {
    let line = serde_json::to_string(message).unwrap_or_default();
    // The command may have been interrupted meanwhile; the server goes on.
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_mounts_have_the_same_log() {
        let long = |start: &str| format!("/{start}/{}", "n".repeat(240));
        let dirs =
            ["/x/a-b", "/x/a/b", "/x-a-b", "/x/a%2db", "/x/a b", "/x/a", &long("a"), &long("b")];
        let names = dirs.map(|dir| log_name(Path::new(dir)));
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name}");
            assert!(name.len() <= 255 && !name.contains('/'), "{name}");
        }
        assert_eq!(names[..2], ["x-a%2db.log", "x-a-b.log"]);
        assert_eq!(log_name(Path::new("/")), ".log");
    }
}
