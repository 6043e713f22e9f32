//! What the command prints: a report on standard output, a failure on standard error,
//! both for people or as JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

use crate::failure::{Failure, Kind, Result};

/// The number in every JSON output that changes when keys change their meaning or go away.
pub(crate) const SCHEMA: u32 = 1;

/// A report that a command prints.
pub(crate) trait Report: Serialize {
    /// The text for people.
    fn text(&self) -> String;
}

/// How to print, chosen by the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// The command's name, for messages and JSON.
    pub(crate) command: &'static str,
    /// JSON instead of text.
    pub(crate) json: bool,
    /// Progress even where standard error is no terminal.
    pub(crate) progress: bool,
    /// No text where all went well.
    pub(crate) silent: bool,
}

#[derive(Serialize)]
struct Envelope<'a, T: Serialize> {
    schema: u32,
    command: Option<&'a str>,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorEntry<'a>,
}

#[derive(Serialize)]
struct ErrorEntry<'a> {
    kind: Kind,
    code: u8,
    what: &'a str,
    #[serde(rename = "where")]
    place: Option<&'a str>,
    advice: Option<&'a str>,
}

/// Stands for the command where the command line names none: `null` in JSON.
pub(crate) const NO_COMMAND: &str = "";

impl Output {
    /// JSON, as `command` prints it.
    pub(crate) fn of_json(command: &'static str) -> Self {
        Self { command, json: true, progress: false, silent: false }
    }

    fn envelope<T: Serialize>(&self, body: T) -> Envelope<'_, T> {
        let command = Some(self.command).filter(|name| *name != NO_COMMAND);
        Envelope { schema: SCHEMA, command, body }
    }

    /// Prints a report on standard output.
    ///
    /// # Errors
    /// When it can't be written (a closed pipe is no error).
    pub(crate) fn print<R: Report>(&self, report: &R) -> Result<()> {
        let written = if self.json {
            write_out(self.json_document(report)?.as_bytes())
        } else if self.silent {
            Ok(())
        } else {
            write_out(report.text().as_bytes())
        };
        written.map_err(|error| {
            Failure::new(Kind::Failed, format!("writing the output failed: {error}"))
        })
    }

    /// Prints a report as JSON on standard error, where that is asked for: standard output has something else.
    ///
    /// # Errors
    /// When the report can't be JSON.
    pub(crate) fn print_aside<R: Report>(&self, report: &R) -> Result<()> {
        if self.json {
            let text = self.json_document(report)?;
            // Nobody is left to tell when standard error is closed.
            let _ = io::stderr().write_all(text.as_bytes());
        }
        Ok(())
    }

    /// A body with the `schema` and `command` keys, as JSON text.
    ///
    /// # Errors
    /// When the body can't be JSON.
    pub(crate) fn json_text<T: Serialize>(&self, body: &T) -> Result<String> {
        let envelope = self.envelope(body);
        serde_json::to_string_pretty(&envelope)
            .map_err(|error| Failure::new(Kind::Failed, format!("making JSON failed: {error}")))
    }

    /// The same, ended.
    ///
    /// # Errors
    /// When the body can't be JSON.
    pub(crate) fn json_document<T: Serialize>(&self, body: &T) -> Result<String> {
        self.json_text(body).map(|text| text + "\n")
    }

    /// The same in one line, ended.
    ///
    /// # Errors
    /// When the body can't be JSON.
    pub(crate) fn json_line<T: Serialize>(&self, body: &T) -> Result<String> {
        let line = serde_json::to_string(&self.envelope(body));
        line.map(|line| line + "\n")
            .map_err(|error| Failure::new(Kind::Failed, format!("making JSON failed: {error}")))
    }

    /// Writes a body with the `schema` and `command` keys as JSON, piece by piece.
    ///
    /// # Errors
    /// When it can't be written (a closed pipe is no error).
    pub(crate) fn stream_json<T: Serialize>(&self, body: &T) -> Result<()> {
        let envelope = self.envelope(body);
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written = match serde_json::to_writer(&mut out, &envelope) {
            Ok(()) => out.write_all(b"\n").and_then(|()| out.flush()),
            Err(error) => Err(error.into()),
        };
        forgive_closed_pipe(written).map_err(|error| {
            Failure::new(Kind::Failed, format!("writing the output failed: {error}"))
        })
    }

    /// Prints a failure on standard error; `code` is the exit code it will have.
    pub(crate) fn print_failure(&self, failure: &Failure, code: u8) -> ExitCode {
        let text = if self.json {
            let error = ErrorEntry {
                kind: failure.kind,
                code,
                what: &failure.what,
                place: failure.place.as_deref(),
                advice: failure.advice.as_deref(),
            };
            self.json_text(&ErrorBody { error }).unwrap_or_else(|other| other.to_string())
        } else {
            format!("lode {}: {failure}", self.command)
        };
        // Nobody is left to tell when standard error is closed.
        let _ = writeln!(io::stderr(), "{text}");
        ExitCode::from(code)
    }
}

/// Writes to standard output; a reader that has gone away is no error.
pub(crate) fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    forgive_closed_pipe(out.write_all(bytes).and_then(|()| out.flush()))
}

fn forgive_closed_pipe(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
