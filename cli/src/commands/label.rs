//! `lode label`: shows the label and UUID of a pool, or gives it another label.

use crate::args::LabelArgs;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::region;
use crate::report::{LabelReport, PoolFacts};

const LABEL_MAX: usize = 64;

/// Runs it.
///
/// # Errors
/// `Usage` for a label that can't be, `Busy` where the pool is mounted, and what opening gives.
pub(crate) fn run(args: &LabelArgs, output: &Output) -> Result<()> {
    let failed = |error| Failure::engine(&args.pool, &error);
    if let Some(label) = &args.label
        && label.len() > LABEL_MAX
    {
        let what = format!("the label has {} bytes, at most {LABEL_MAX} are possible", label.len());
        return Err(Failure::usage(what).at(&args.pool));
    }
    let pool = region::open_pool(&args.pool, args.label.is_none(), output)?;
    if let Some(label) = &args.label {
        pool.set_label(label.as_bytes()).map_err(failed)?;
    }
    pool.close().map_err(failed)?;
    let facts = PoolFacts::new(&args.pool, &pool.info().map_err(failed)?);
    output.print(&LabelReport { changed: args.label.is_some(), pool: facts })
}
