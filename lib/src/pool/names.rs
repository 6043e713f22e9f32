//! Renaming.

use std::path::Path;
use std::sync::Arc;

use lode_engine::{Error as EngineError, RenameMode, mode};

use super::Pool;
use crate::access::Engine;
use crate::error::{Cause, Result};
use crate::pin::parent;
use crate::walk::{Found, Last, is_kind};

/// One end of a rename.
struct End<'p> {
    dir: Arc<Found>,
    name: &'p [u8],
    slashed: bool,
}

impl Pool {
    /// Gives what `from` names the name `to`, in place of what is there.
    ///
    /// # Errors
    /// As `rename(2)`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// The same, or fails where something is there, or exchanges the two: in one step.
    ///
    /// # Errors
    /// As `renameat2(2)`.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        how: RenameMode,
    ) -> Result<()> {
        self.call_two((from.as_ref(), to.as_ref()), |pass, from, to| {
            let from = parent(pass, from)?;
            let to = parent(pass, to)?;
            let from = end(from, libc::EBUSY)?;
            let none = if how == RenameMode::NoReplace { libc::EEXIST } else { libc::EBUSY };
            let to = end(to, none)?;
            if from.slashed || to.slashed {
                check_slashes(pass, &from, &to, how)?;
            }
            Ok(pass.rename_in((&from.dir, from.name), (&to.dir, to.name), how)?)
        })
    }
}

/// An end that is a name; else the error with this number.
fn end<'p>((dir, last): (Arc<Found>, Last<'p>), none: i32) -> std::result::Result<End<'p>, Cause> {
    match last {
        Last::Name { name, slashed } => Ok(End { dir, name, slashed }),
        _ => Err(Cause::Number(none)),
    }
}

/// Slashes stand behind the names of directories alone; a name that is to be a directory's may have
/// one.
fn check_slashes(
    engine: &Engine,
    from: &End<'_>,
    to: &End<'_>,
    how: RenameMode,
) -> std::result::Result<(), Cause> {
    let moved = engine.lookup_in(&from.dir, from.name)?;
    let target = match engine.lookup_in(&to.dir, to.name) {
        Ok(target) => Some(target),
        Err(EngineError::NotFound) => None,
        Err(error) => return Err(error.into()),
    };
    let is_directory = |found: &Found| is_kind(&found.attr, mode::DIRECTORY);
    let exchanges = how == RenameMode::Exchange;
    match (&target, how) {
        (Some(_), RenameMode::NoReplace) => return Err(EngineError::Exists.into()),
        (None, RenameMode::Exchange) => return Err(EngineError::NotFound.into()),
        _ => {}
    }
    let wrong_target = exchanges && to.slashed && !target.as_ref().is_some_and(is_directory);
    let wrong_source = !is_directory(&moved) && (from.slashed || to.slashed && !exchanges);
    if wrong_target || wrong_source {
        return Err(EngineError::NotDirectory.into());
    }
    Ok(())
}
