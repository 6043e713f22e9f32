//! `lode heap serve`: a pool whose memory programs use, without a mount.

use super::ServeArgs;
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;

pub(super) fn serve(_: &ServeArgs, _: &Output) -> Result<()> {
    Err(Failure::new(Kind::Failed, "nothing is served yet"))
}
