//! `lode man`, `lode completions`.

use serde::Serialize;

use crate::output::Report;

/// `lode man`.
#[derive(Serialize)]
pub(crate) struct ManReport {
    /// The files that were written.
    pub(crate) pages: Vec<String>,
}

impl Report for ManReport {
    fn text(&self) -> String {
        self.pages.iter().map(|page| format!("{page}\n")).collect()
    }
}

/// `lode completions`.
#[derive(Serialize)]
pub(crate) struct CompletionsReport {
    /// The shell.
    pub(crate) shell: String,
    /// What it is to read.
    pub(crate) script: String,
}

impl Report for CompletionsReport {
    fn text(&self) -> String {
        self.script.clone()
    }
}
