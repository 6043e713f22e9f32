//! `lode heap stats`: who has how much memory of a pool.

use super::HeapStatsArgs;
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;

pub(super) fn stats(_: &HeapStatsArgs, _: &Output) -> Result<()> {
    Err(Failure::new(Kind::Failed, "nothing is told yet"))
}
