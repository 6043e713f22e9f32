//! Memory that has lost what it had been given: all of the pool is checked before it is believed.
//!
//! Guarantees: where the memory says that it has, since the pool was opened for writing before, an opening for writing looks at
//! everything first, and has stored nothing when it fails for what it finds. What the superblock says of it moves with
//! the session, after that: a crash before leaves the next opening the same to do.

use lode_pmem::{Door, Medium};

use crate::layout::Superblock;
use crate::store::Store;
use crate::{Error, Host, Ino, OpenOptions, Pool, Result, VIEW};

/// How often the memory has lost what was stored since the superblock was. Other modules than those it knows tell nothing.
pub(super) fn losses_since<M: Medium>(door: &Door<M>, superblock: &Superblock) -> u64 {
    match (door.losses(), superblock.losses) {
        (Some(now), Some(then)) if now.of == then.of => now.count.abs_diff(then.count),
        _ => 0,
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Checks all of a pool that is about to be opened for writing, if its memory has lost anything.
    ///
    /// # Errors
    /// [`Error::Lost`] with the first damage; those of a read-only opening.
    #[inline(never)]
    pub(super) fn heed_losses(
        losses: u64,
        door: Door<M>,
        host: H,
        options: &OpenOptions,
    ) -> Result<(Door<M>, H)> {
        if losses == 0 || options.read_only {
            return Ok((door, host));
        }
        let pool = Self::open_door(door, host, &OpenOptions { read_only: true, ..*options })?;
        let report = pool.check(&mut |_, _| ())?;
        // (Nothing that is stored from now on makes worse what only snapshots see, and that ends with them.)
        if let Some(damage) = report.damage.iter().find(|damage| damage.ino < VIEW) {
            return Err(Error::Lost(*damage));
        }
        let Store { door, host, .. } = *pool.store;
        Ok((door, host))
    }

    /// The last of an opening: what the system knows to be bad is known to the pool, what programs had mapped in `exempt` is
    /// whole again, and copies of metadata of which a loss may have spared one are the same.
    #[inline(never)]
    pub(super) fn make_sound(&self, exempt: &[Ino]) -> Result<()> {
        self.store.take_listed_bad()?;
        if self.is_read_only() {
            self.tell_left_exempt(exempt);
            return Ok(());
        }
        self.make_all_whole(exempt)?;
        self.store.keep_listed_bad()?;
        if self.opening.losses == 0 {
            return Ok(());
        }
        self.check(&mut |_, _| ()).map(|_| ())
    }
}
