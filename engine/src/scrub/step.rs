//! A scrub, step by step.
//!
//! What this file guarantees: a step holds no lock for longer than it takes to load about as many bytes as it was
//! asked for, or one inode's log; it stores nothing but what has gone bad, and in a pool that is open
//! read-only not even that. What it tells to be repaired is durable (what another thread has met and mended at the same time
//! is with that thread's next fence). Inodes that are made after it has begun are not
//! looked at. What only snapshots see is looked at with its inode, those that are dead come last; a snapshot that is deleted
//! meanwhile is passed over.

use alloc::vec::Vec;

use lode_pmem::Medium;

use super::exempt::Exempt;
use super::kept::Kept;
use super::report::{Finding, Outcome, What};
use crate::VIEW;
use crate::inode::PastName;
use crate::{Error, Host, Ino, PAGE_BYTES, Pool, Result, Rule};

/// Findings that are remembered.
const FINDINGS_MAX: usize = 10_000;
/// Bytes loaded at a time.
pub(super) const PIECE_BYTES: u64 = 64 << 10;

/// Where a scrub is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// At superblocks and tables.
    Tables,
    /// At the metadata of the inode with this index.
    Inode(usize),
    /// At its data, from this page of the file on.
    Data(usize, u64),
    /// At what only snapshots see of it: that is in [`Scrub::kept`].
    Kept(usize),
    /// At where the entries of the directory with this index lead, behind this cookie.
    Entries(usize, u64),
    /// At those that only snapshots see: they are in [`Scrub::ended`].
    Ended(usize),
    /// Done.
    End,
}

/// A scrub of a pool, which [`Pool::scrub`] takes on. A pool has one at a time.
#[derive(Debug)]
pub struct Scrub {
    place: Place,
    /// Inodes, and behind them those that are dead, as the last snapshots have them that see them.
    inos: Vec<Ino>,
    /// Those that are dead have been looked for.
    has_dead: bool,
    /// What only snapshots see of the inode that it is at.
    pub(super) kept: Kept,
    /// Directories that have been looked at: where they lead comes last, when what that is has been made good.
    directories: Vec<Ino>,
    /// Entries that only snapshots see of the directory that it is at.
    ended: Vec<PastName>,
    /// Bytes of file data at a time.
    pub(super) piece: Vec<u8>,
    pub(super) findings: Vec<Finding>,
    /// Something was repaired since the last fence.
    pub(super) is_unfenced: bool,
    /// Something that was found is lost.
    has_lost: bool,
    /// Findings that were not remembered.
    forgotten: u64,
    /// What is exempt from checksums.
    pub(super) exempt: Exempt,
    done: u64,
    all: u64,
}

impl Scrub {
    /// Bytes that were looked at.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Bytes that there are to be looked at, about.
    pub fn all(&self) -> u64 {
        self.all.max(self.done)
    }

    /// Whether all has been looked at.
    pub fn is_over(&self) -> bool {
        self.place == Place::End
    }

    /// What was found since this was asked last (10,000 at most).
    pub fn take_findings(&mut self) -> Vec<Finding> {
        core::mem::take(&mut self.findings)
    }

    /// Findings that were more than are remembered.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Takes in a finding; bytes that go on from the last one of the same data belong to it.
    pub(super) fn note(&mut self, finding: Finding) -> Result<()> {
        self.is_unfenced |= finding.outcome == Outcome::Repaired;
        self.has_lost |= finding.outcome == Outcome::Lost;
        if let Some(last) = self.findings.last_mut()
            && last.what == What::Data
            && (last.ino, last.offset + last.bytes) == (finding.ino, finding.offset)
            && (last.what, last.outcome) == (finding.what, finding.outcome)
        {
            last.bytes += finding.bytes;
            return Ok(());
        }
        if self.findings.len() >= FINDINGS_MAX {
            self.forgotten += 1;
            return Ok(());
        }
        self.findings.try_reserve(1)?;
        self.findings.push(finding);
        Ok(())
    }

    pub(super) fn note_directory(&mut self, ino: Ino) -> Result<()> {
        self.directories.try_reserve(1)?;
        self.directories.push(ino);
        Ok(())
    }

    /// Takes in that main memory has gone bad: what it is a copy of is right, on the medium.
    fn note_memory(&mut self, error: Error) -> Result<()> {
        let (what, outcome) = (What::Metadata, Outcome::Left);
        let at = error.into_damage()?.at;
        self.note(Finding { what, outcome, ino: 0, at, offset: 0, bytes: 0 })
    }

    /// Takes in an error as what is lost; other errors go on to the caller.
    pub(super) fn note_error(&mut self, error: Error, what: What, ino: Ino) -> Result<()> {
        let at = match error {
            Error::Media { at } => at,
            Error::Corrupt(damage) => damage.at,
            // It has gone meanwhile.
            Error::Stale => return Ok(()),
            other => return Err(other),
        };
        self.note(Finding { what, outcome: Outcome::Lost, ino, at, offset: 0, bytes: 0 })
    }
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Begins to scrub: see [`Pool::scrub`].
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn begin_scrub(&self) -> Result<Scrub> {
        let inos = self.inodes()?;
        let mut piece = Vec::new();
        piece.try_reserve_exact(PIECE_BYTES as usize)?;
        piece.resize(PIECE_BYTES as usize, 0);
        self.store.take_differing();
        let space = self.space();
        let all = (space.pages - space.pages_free.min(space.pages)) * PAGE_BYTES;
        let (has_dead, kept, findings) = (false, Kept::default(), Vec::new());
        let (place, forgotten, exempt, done) = (Place::Tables, 0, Exempt::default(), 0);
        let (is_unfenced, has_lost) = (false, false);
        Ok(Scrub {
            place,
            inos,
            has_dead,
            kept,
            directories: Vec::new(),
            ended: Vec::new(),
            piece,
            findings,
            is_unfenced,
            has_lost,
            forgotten,
            exempt,
            done,
            all,
        })
    }

    /// Looks at about `bytes` more bytes of the pool: loads both copies of metadata and makes them the same,
    /// loads the data of files and attributes, and makes good what is kept of it, all that only snapshots see, too. What is in bad memory and known goes elsewhere. The pool may be in use.
    /// What is told to be repaired is durable.
    ///
    /// # Errors
    /// Those that are not about what was looked at: that is in the findings.
    pub fn scrub(&self, scrub: &mut Scrub, bytes: u64) -> Result<()> {
        let scrubbed = self.scrub_some(scrub, bytes);
        // What is told to be repaired is so whatever comes.
        let is_unfenced = core::mem::take(&mut scrub.is_unfenced);
        if is_unfenced && !self.store.host.leaves_out(Rule::RepairsFenced) {
            self.store.door.fence(self.store.counters())?;
        }
        scrubbed
    }

    fn scrub_some(&self, scrub: &mut Scrub, bytes: u64) -> Result<()> {
        let end = scrub.done.saturating_add(bytes.max(1));
        while scrub.done < end {
            match scrub.place {
                Place::Tables => {
                    if self.store.writable().is_ok() {
                        self.store.retest_bad()?;
                    }
                    scrub.done += self.scrub_tables(scrub)?;
                    scrub.place = Place::Inode(0);
                }
                Place::Inode(index) => match scrub.inos.get(index).copied() {
                    Some(ino) if ino >= VIEW => {
                        scrub.done += self.scrub_dead(scrub, ino)?;
                        scrub.place = Place::Kept(index);
                    }
                    Some(ino) => {
                        scrub.done += self.scrub_inode(scrub, ino)?;
                        scrub.place = Place::Data(index, 0);
                    }
                    None if !scrub.has_dead => {
                        scrub.has_dead = true;
                        if let Err(error) = self.list_dead(&mut scrub.inos) {
                            scrub.note_memory(error)?;
                        }
                    }
                    None => scrub.place = Place::Entries(0, 0),
                },
                Place::Entries(index, after) => match scrub.directories.get(index).copied() {
                    Some(dir) => {
                        let (done, next) =
                            self.scrub_entries(scrub, dir, after, end - scrub.done)?;
                        scrub.done += done;
                        scrub.place = match next {
                            Some(after) => Place::Entries(index, after),
                            None => {
                                scrub.ended = self.ended_entries(dir)?;
                                Place::Ended(index)
                            }
                        };
                    }
                    None => {
                        scrub.place = Place::End;
                        // (Of a transaction of which a part is lost the others are found: where that was is told by who misses it.)
                        let is_told = scrub.has_lost;
                        self.note_of_opening(scrub, &|_| !is_told)?;
                        return self.store.keep_bad();
                    }
                },
                Place::Data(index, page) => {
                    let ino = scrub.inos.get(index).copied().unwrap_or_default();
                    let (done, next) = self.scrub_data(scrub, ino, page, end - scrub.done)?;
                    scrub.done += done;
                    scrub.place = match next {
                        Some(page) => Place::Data(index, page),
                        None => {
                            self.leave_bad(scrub, ino)?;
                            scrub.kept = self.kept_of(ino)?;
                            Place::Kept(index)
                        }
                    };
                }
                Place::Kept(index) => {
                    let (done, is_over) = self.scrub_kept(scrub, end - scrub.done)?;
                    scrub.done += done;
                    if is_over {
                        scrub.place = Place::Inode(index + 1);
                    }
                }
                Place::Ended(index) => match scrub.ended.pop() {
                    Some(entry) => {
                        let dir = scrub.directories.get(index).copied().unwrap_or_default();
                        scrub.done += self.scrub_ended(scrub, dir, &entry)?;
                    }
                    None => scrub.place = Place::Entries(index + 1, 0),
                },
                Place::End => return Ok(()),
            }
        }
        Ok(())
    }
}
