//! What is received where a snapshot is: always the same changes, each of which can be made twice.

use lode_engine::{Error, Result};

use crate::execute::{Handles, execute};
use crate::fs::Fs;
use crate::op::Op;

/// The changes. What some are about may not be there.
const BROUGHT: [&str; 7] = [
    "create /brought",
    "write /brought 0 5000 3",
    "write /f 0 4096 7",
    "write /f 100 20 8",
    "rename /f /moved",
    "unlink /g",
    "mkdir /brought-d",
];

/// Makes the changes from one on; `each` is called behind each, with how many are made.
///
/// # Errors
/// What a change fails with, but for what is not there, or there already; what `each` gives.
pub fn bring(fs: &dyn Fs, from: usize, each: &mut dyn FnMut(usize) -> Result<()>) -> Result<()> {
    for (number, text) in BROUGHT.iter().enumerate().skip(from) {
        let op: Op = text.parse().map_err(|_| Error::Invalid)?;
        match execute(fs, &mut Handles::new(), &op) {
            Ok(_) | Err(Error::NotFound | Error::Exists) => each(number + 1)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
