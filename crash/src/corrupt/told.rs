//! Whether a scrub tells of what a look was refused, and of nothing that was not damaged.
//!
//! What this file guarantees: of each inode something of which was refused the scrub that followed said that something is lost; and
//! what it said to be lost is something that this damage may have cost.

use lode_engine::{Error, Finding, Ino, Outcome, What};

use super::base::Base;
use super::hurt::{Hurt, NUMBER};

/// Something that a look was refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// What was asked.
    pub(super) ino: Ino,
    pub(super) error: Error,
    /// Of a file: offset and number of the bytes.
    pub(super) bytes: Option<(u64, u64)>,
    /// Of a name that was looked up: the directory.
    pub(super) dir: Option<Ino>,
}

impl Refused {
    /// Whether a finding tells of it: of the same inode, as it is now or in any snapshot, or of the same bytes.
    fn is_in(&self, hurt: &Hurt, finding: &Finding) -> bool {
        let is_its = |ino: Ino| ino != 0 && ino & NUMBER == finding.ino & NUMBER;
        let is_there = |at: u64| at / 64 == finding.at / 64;
        let is_meant = match self.error {
            // (A name may be refused for what it leads to.)
            // (An entry that is there again, as the log of its directory has lost its end, leads to who knows whom.)
            Error::Corrupt(damage) => {
                let leads_anywhere = damage.what.starts_with("entry leads to");
                let is_old = leads_anywhere && hurt.may_be_gone(damage.ino);
                is_its(damage.ino) || is_there(damage.at) || is_old
            }
            Error::Media { at } => is_there(at),
            _ => false,
        };
        // (An old entry that leads to a later life of its inode is told of with the directory. In a snapshot nobody knows of that life but what
        // has become of it since.)
        let is_of_dir = self.dir.is_some_and(|dir| hurt.may_be_stale(dir) && is_its(dir));
        finding.outcome == Outcome::Lost && (is_meant || is_its(self.ino) || is_of_dir)
    }
}

/// Holds what a scrub found against what was refused before it, and against the damage.
///
/// # Errors
/// What is wrong.
pub(super) fn tells(
    (base, hurt): (&Base, &Hurt),
    was_used: bool,
    refused: &[Refused],
    found: &[Finding],
) -> Result<(), String> {
    let untold = refused.iter().find(|one| !found.iter().any(|finding| one.is_in(hurt, finding)));
    if let Some(Refused { ino, error, .. }) = untold {
        return Err(format!("inode {ino}: {error} ({error:?}), and found was: {found:?}"));
    }
    let fresh_metadata = was_used && hurt.spoils_metadata();
    let may_be_lost = |one: &Finding| match one.what {
        What::Metadata => hurt.metadata || fresh_metadata,
        // (Bytes are taken for lost, too, where a record is that says what they are.)
        What::Attribute | What::Data => {
            let is_other = hurt.may_refuse(one.ino) || hurt.may_be_stale(one.ino);
            hurt.data || hurt.spoils_data() || is_other || hurt.hits_target(base, one.ino)
        }
        _ => false,
    };
    let lost = found.iter().filter(|one| one.outcome == Outcome::Lost);
    match lost.copied().find(|one| !may_be_lost(one)) {
        Some(one) => Err(format!("nothing was damaged that may be lost, and yet: {one:?}")),
        None => Ok(()),
    }
}
