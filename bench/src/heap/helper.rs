//! Processes of a run: started, listened to, and ended whatever happens.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a process may take to end by itself.
const ENDING: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);

/// A process, with all that it has started in its group. It ends with this.
pub(super) struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Helper {
    /// Starts it; what it says on standard error goes to the file `log`.
    pub(super) fn start(command: &mut Command, log: PathBuf) -> io::Result<Self> {
        let errors = File::create(&log)?;
        // (A group of its own: an interrupt at the terminal is the run's, which ends them all.)
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).process_group(0);
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (sender, lines) = channel();
        let helper = Self { child, input, lines, log };
        if let Some(output) = output {
            let listen = move || {
                // (It is read to its end even where nobody wants it: it must not wait for us.)
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            };
            thread::Builder::new().name("bench-heap".into()).spawn(listen)?;
        }
        Ok(helper)
    }

    /// The next line that it says.
    pub(super) fn hear(&mut self, patience: Duration) -> io::Result<String> {
        self.lines.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => io::ErrorKind::TimedOut.into(),
            RecvTimeoutError::Disconnected => self.failed(),
        })
    }

    /// The next line, asked for by one.
    pub(super) fn ask(&mut self, patience: Duration) -> io::Result<String> {
        if let Some(input) = &mut self.input {
            let told = input.write_all(b"\n");
            told.map_err(|_| self.failed())?;
        }
        self.hear(patience)
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        let end = Instant::now() + patience;
        self.input = None;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(PAUSE);
        }
    }

    /// What it said last before it failed.
    pub(super) fn failed(&self) -> io::Error {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        io::Error::other(last.unwrap_or("a process of the run ended").trim().to_owned())
    }

    fn signal(&self, signal: Signal) {
        // (They may have ended.)
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.signal(Signal::TERM);
            if self.wait(ENDING).is_err() {
                self.signal(Signal::KILL);
            }
        }
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn shell(script: &str, dir: &tempfile::TempDir) -> Helper {
        Helper::start(Command::new("sh").args(["-c", script]), dir.path().join("log")).unwrap()
    }

    #[test]
    fn it_answers_line_by_line_and_what_it_fails_of_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut echo = shell("read a; echo one; read a; echo why >&2; exit 3", &dir);
        assert_eq!(echo.ask(SOON).unwrap(), "one");
        assert_eq!(echo.ask(SOON).unwrap_err().to_string(), "why");
        assert_eq!(echo.wait(SOON).unwrap().code(), Some(3));
    }

    #[test]
    fn it_is_not_waited_for_forever_and_ends_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let mut sleeper = shell("sleep 1000 & echo $!; wait", &dir);
        let pid = sleeper.hear(SOON).unwrap();
        let error = sleeper.hear(Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let begin = Instant::now();
        drop(sleeper);
        assert!(begin.elapsed() < ENDING);
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while !(state().is_empty() || state().contains(") Z ")) {
            assert!(begin.elapsed() < SOON, "{}", state());
            thread::sleep(PAUSE);
        }
        assert!(!dir.path().join("log").exists());
    }
}
