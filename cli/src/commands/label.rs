//! `lode label`: shows the label and UUID of a pool, or gives it another label.

use crate::args::LabelArgs;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::region;
use crate::report::{LabelReport, PoolFacts};

/// Runs it.
///
/// # Errors
/// `Busy` where the pool is mounted, and what opening gives.
pub(crate) fn run(args: &LabelArgs, output: &Output) -> Result<()> {
    let failed = |error| Failure::engine(&args.pool, &error);
    let pool = region::open_pool(&args.pool, args.label.is_none(), output)?;
    if let Some(label) = &args.label {
        pool.set_label(label.as_bytes()).map_err(failed)?;
    }
    pool.close().map_err(failed)?;
    let facts = PoolFacts::new(&args.pool, &pool.info().map_err(failed)?);
    output.print(&LabelReport { changed: args.label.is_some(), pool: facts })
}
