//! `lode block create`, `list`, `resize` and `delete`.

use std::os::unix::ffi::OsStrExt;

use lode_block::{Sector, Settings};

use super::volumes::with;
use super::{CreateArgs, ListArgs, NameArgs, ResizeArgs};
use crate::failure::{Failure, Result};
use crate::human::printable;
use crate::output::Output;
use crate::progress::while_working;
use crate::report::{VolumeDeleted, VolumeList, VolumeMade, VolumeResized};

pub(super) fn create(args: &CreateArgs, output: &Output) -> Result<()> {
    let CreateArgs { target, name, size, thin, sector } = args;
    whole_sectors(*size, *sector)?;
    let settings = Settings { sector: *sector, is_thin: *thin };
    let volume = with(target, false, output, |volumes| {
        while_working("making a volume", output.progress, || volumes.create(name, *size, settings))
    })?;
    output.print(&VolumeMade { target: target.display().to_string(), volume })
}

/// Fails for a size that no volume of such sectors has.
fn whole_sectors(size: u64, sector: Sector) -> Result<()> {
    let each = sector.bytes();
    if size > 0 && size.is_multiple_of(each) {
        return Ok(());
    }
    let next = size.max(1).checked_next_multiple_of(each).unwrap_or(each);
    let what = format!("{size} bytes are not one or more whole sectors of {each} bytes");
    Err(Failure::usage(what).advise(format!(
        "choose a multiple of --sector, which is 4096 without it: {next} is the next one, any whole number of M is one"
    )))
}

pub(super) fn list(args: &ListArgs, output: &Output) -> Result<()> {
    let volumes = with(&args.target, true, output, |volumes| volumes.list())?;
    output.print(&VolumeList { target: args.target.display().to_string(), volumes })
}

pub(super) fn resize(args: &ResizeArgs, output: &Output) -> Result<()> {
    let ResizeArgs { target, name, size, shrink } = args;
    let volume = with(target, false, output, |volumes| {
        while_working("resizing", output.progress, || volumes.resize(name, *size, *shrink))
    })?;
    output.print(&VolumeResized { target: target.display().to_string(), volume })
}

pub(super) fn delete(args: &NameArgs, output: &Output) -> Result<()> {
    let NameArgs { target, name } = args;
    with(target, false, output, |volumes| volumes.delete(name))?;
    let name = printable(name.as_bytes());
    output.print(&VolumeDeleted { target: target.display().to_string(), name })
}
