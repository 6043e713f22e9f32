//! Pages for a browser, written beside the report.

use std::fs;
use std::path::Path;

use crate::failure::{Failure, Result};

/// Writes a page, if one is asked for.
///
/// # Errors
/// Where it can't be written.
pub(crate) fn write_page(path: Option<&Path>, page: impl FnOnce() -> String) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, page()).map_err(|error| {
        let failure = Failure::io("writing the page", path, &error);
        failure.advise("check the directory of --html, and that there is space")
    })
}

/// Finds out before long work whether a page can be written; what is there stays until then.
///
/// # Errors
/// Where it can't.
pub(crate) fn check(path: &Path) -> Result<()> {
    let is_new = !path.exists();
    fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(
        |error| {
            let failure = Failure::io("writing the page", path, &error);
            failure.advise("name a file in a directory that can be written for --html")
        },
    )?;
    if is_new {
        // (It was there a moment ago.)
        let _ = fs::remove_file(path);
    }
    Ok(())
}
