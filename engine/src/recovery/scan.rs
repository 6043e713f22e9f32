//! Recovery steps 2 and 3: the inode tables and logs are walked by their pointers,
//! in parallel; each page is claimed once; file data is never read.

use alloc::sync::Arc;
use alloc::vec::Vec;

use lock_api::Mutex;
use lode_pmem::Medium;

use crate::inode::{File, Scanned, load_for_scan};
use crate::layout::{Body, DEATH_LINE, Header, Identity, LINE, Parsed, SEAL_AT, Txid, slot_at};
use crate::log::{Holds, Step, Walk, read_death, read_identity};
use crate::space::{Claims, Ended, Run};
use crate::store::{Item, Kept, LinkFound, Owner, Piece, Store};
use crate::{Corruption, Error, Host, Ino, PAGE_BYTES, Result, Rule};

/// Slots that one job of the parallel scan looks at.
const JOB_SLOTS: u32 = 512;
/// Tail of an inode that is damaged: it is there, and loading it says so.
pub(crate) const DAMAGED_TAIL: u64 = u64::MAX;
/// Damage that is remembered.
const DAMAGE_MAX: usize = 10_000;

/// Where a line of a transaction in doubt was found.
#[derive(Clone, Copy)]
enum Found {
    InChain,
    Beyond { in_ruin: bool },
}

/// A line of a transaction that may be cut off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) header: Header,
    pub(super) at: u64,
    pub(super) ino: Ino,
    /// Found in its log's chain, not behind its end.
    pub(super) in_chain: bool,
    /// Found in a page whose header is lost.
    pub(super) in_ruin: bool,
    /// A record of another transaction follows in the same log.
    pub(super) followed: bool,
}

/// What a scan has found.
#[derive(Default)]
pub(crate) struct Scan {
    /// Lines of transactions in doubt.
    pub(super) parts: Vec<Part>,
    /// Inodes that wait for the verdict.
    pub(super) deferred: Vec<(usize, u32)>,
    /// Link words that lead past the end of their log.
    pub(super) links: Vec<u64>,
    /// Lines (offset of the first, how many) where something is left that never came to be: behind
    /// the ends of logs, in the places of deaths that did not happen.
    pub(super) remains: Vec<(u64, u32)>,
    /// The same of identities without a life.
    pub(crate) lifeless: Vec<(u64, u32)>,
    pub(crate) damage: Vec<Corruption>,
    /// The highest sequence seen of each lane in this session.
    pub(super) highest: Vec<u64>,
    pub(super) inodes: u64,
    pub(super) log_pages: u64,
    /// Files without a name, which end here.
    pub(super) nameless: u64,
    /// Files with pages that are exempt from checksums, and how many pages.
    pub(super) exempt: Vec<Ino>,
    pub(super) exempt_pages: u64,
}

/// The ground of a scan.
pub(super) struct Scanner<'s, M: Medium, H: Host> {
    pub(super) store: &'s Store<M, H>,
    pub(super) claims: &'s Claims,
    pub(super) watermarks: &'s [u64],
}

impl Scan {
    fn merge(&mut self, other: Scan) -> Result<()> {
        append(&mut self.parts, other.parts)?;
        append(&mut self.deferred, other.deferred)?;
        append(&mut self.links, other.links)?;
        append(&mut self.remains, other.remains)?;
        append(&mut self.lifeless, other.lifeless)?;
        append(&mut self.damage, other.damage)?;
        append(&mut self.exempt, other.exempt)?;
        self.exempt_pages += other.exempt_pages;
        self.inodes += other.inodes;
        self.log_pages += other.log_pages;
        self.nameless += other.nameless;
        for (mine, theirs) in self.highest.iter_mut().zip(other.highest) {
            *mine = (*mine).max(theirs);
        }
        Ok(())
    }

    pub(super) fn new(lanes: u32) -> Result<Self> {
        let mut highest = Vec::new();
        highest.try_reserve_exact(lanes as usize)?;
        highest.resize(lanes as usize, 0);
        Ok(Self { highest, ..Self::default() })
    }

    /// Notes damage; other errors go on to the caller.
    pub(super) fn note(&mut self, error: Error, ino: Ino) -> Result<()> {
        let damage = error.into_damage()?;
        let damage = Corruption { ino: damage.ino.max(ino), ..damage };
        if self.damage.len() < DAMAGE_MAX {
            self.damage.try_reserve(1)?;
            self.damage.push(damage);
        }
        Ok(())
    }
}

fn append<T>(to: &mut Vec<T>, from: Vec<T>) -> Result<()> {
    to.try_reserve(from.len())?;
    to.extend(from);
    Ok(())
}

impl<M: Medium, H: Host> Scanner<'_, M, H> {
    /// Follows the chains of inode table pieces.
    pub(super) fn pieces(&self, scan: &mut Scan) -> Result<Vec<Arc<Piece>>> {
        let mut pieces = Vec::new();
        let all = !self.store.host.leaves_out(Rule::EveryLane);
        let used = self.store.lanes.used() as u32;
        for lane in 0..if all { self.store.geometry.lanes } else { used } {
            let chain = self.store.walk_chain(lane, &mut |piece| {
                // Claimed once: a chain that comes back to itself ends here.
                self.claim_metadata(piece.run(), 0)?;
                pieces.try_reserve(1)?;
                pieces.push(Arc::new(piece));
                Ok(())
            });
            if let Err(error) = chain {
                scan.note(error, 0)?;
            }
        }
        Ok(pieces)
    }

    /// Looks at all slots of all pieces.
    pub(super) fn inodes(&self, pieces: &[Arc<Piece>], scan: &mut Scan) -> Result<()> {
        let mut jobs = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            let mut from = 1;
            while from < piece.slots() {
                jobs.try_reserve(1)?;
                let to = piece.slots().min(from + JOB_SLOTS);
                jobs.push((number, from, to));
                from = to;
            }
        }
        let lanes = self.store.geometry.lanes;
        let merged: Mutex<H::Mutex, Result<Scan>> = Mutex::new(Scan::new(lanes));
        self.store.host.parallel(jobs.len(), &|job| {
            let Some(&(number, from, to)) = jobs.get(job) else { return };
            let Some(piece) = pieces.get(number) else { return };
            let found = self.slots(number, piece, from, to);
            let mut merged = merged.lock();
            let result = match (&mut *merged, found) {
                (Ok(all), Ok(found)) => all.merge(found),
                (Ok(_), Err(error)) => Err(error),
                (Err(_), _) => Ok(()),
            };
            if let Err(error) = result {
                *merged = Err(error);
            }
        });
        scan.merge(merged.into_inner()?)
    }

    #[inline(never)]
    fn slots(&self, number: usize, piece: &Piece, from: u32, to: u32) -> Result<Scan> {
        let mut scan = Scan::new(self.store.geometry.lanes)?;
        for index in from..to {
            let ino = piece.ino(index);
            let parts = scan.parts.len();
            match self.inode(piece, index, &mut scan) {
                Ok(true) => {}
                Ok(false) => {
                    scan.deferred.try_reserve(1)?;
                    scan.deferred.push((number, index));
                }
                Err(error) => {
                    // What was in doubt here stays known: others may share it.
                    debug_assert!(scan.parts.len() >= parts);
                    piece.set_tail(index, DAMAGED_TAIL);
                    scan.note(error, ino)?;
                }
            }
        }
        Ok(scan)
    }

    /// Looks at one slot. `false`: it has lines of a transaction in doubt.
    #[inline(never)]
    fn inode(&self, piece: &Piece, index: u32, scan: &mut Scan) -> Result<bool> {
        let ino = piece.ino(index);
        let Some((identity, head, _, seal)) = read_identity(self.store, ino)? else {
            self.remains(&mut scan.lifeless, slot_at(ino), 1)?;
            return Ok(true);
        };
        let first_part = scan.parts.len();
        let honoured = !self.store.host.leaves_out(Rule::DeathHonoured);
        let death = read_death(self.store, &identity);
        if let Err(Error::Corrupt(_) | Error::Media { .. }) = death {
            // Nobody knows whether it ended. But what its log says that it took part in is known.
            self.dead_parts(&identity, head, seal, scan)?;
        }
        if let Some(death) = death?.filter(|_| honoured) {
            self.see(scan, death.header)?;
            if !self.in_doubt(ino, &death.header) {
                if !self.store.host.leaves_out(Rule::DeadEvidence) {
                    self.dead_parts(&identity, head, seal, scan)?;
                }
                if self.is_seen(&death) {
                    // It is taken in when all is known of the last transaction of its log.
                    self.dead_beyond(&identity, head, seal, &death, scan)?;
                    return Ok(false);
                }
                return Ok(true);
            }
            if !self.store.host.leaves_out(Rule::DeathApart) {
                let at = slot_at(ino) + DEATH_LINE * LINE;
                self.part(scan, death.header, at, ino, Found::InChain)?;
            }
        }
        self.live(piece, index, (&identity, head, seal), first_part, scan)
    }

    /// Walks the log of an inode that is not known to be dead.
    #[inline(never)]
    fn live(
        &self,
        piece: &Piece,
        index: u32,
        (identity, head, seal): (&Identity, LinkFound, u64),
        first_part: usize,
        scan: &mut Scan,
    ) -> Result<bool> {
        let ino = identity.ino;
        let walk = Walk::new(self.store, identity, head, seal)?;
        let mut noted = Ok(());
        let mut last = Txid::default();
        let mut unfollowed = scan.parts.len();
        let mut scanned = load_for_scan(self.store, walk, None, &mut |(at, header)| {
            if header.txid != last {
                for part in scan.parts.iter_mut().skip(unfollowed) {
                    part.followed = true;
                }
                unfollowed = scan.parts.len();
                last = header.txid;
            }
            let result = self.see(scan, header).and_then(|()| {
                if self.in_doubt(ino, &header) {
                    self.part(scan, header, at, ino, Found::InChain)
                } else {
                    Ok(())
                }
            });
            if noted.is_ok() {
                noted = result;
            }
        })?;
        noted?;
        self.look_beyond(&mut scanned.walk, scan)?;
        self.judge_link(&scanned.walk)?;
        if scan.parts.len() > first_part {
            return Ok(false);
        }
        self.take_in(piece, index, &mut scanned, scan)?;
        Ok(true)
    }

    /// A bad link word is what a crash left only where nothing but a transaction in doubt
    /// is in its page: then the anchor line may never have become durable as a whole.
    #[inline(never)]
    fn judge_link(&self, walk: &Walk<'_, M, H>) -> Result<()> {
        if self.store.host.leaves_out(Rule::LinkBad) {
            return Ok(());
        }
        match walk.bad_link() {
            Some(bad) if !self.may_be_torn(bad.holds) => {
                Err(Error::corrupt_inode(bad.what, bad.at, walk.ino))
            }
            _ => Ok(()),
        }
    }

    /// Whether a crash may have torn the anchor line of a page that holds this: it is stored in one
    /// transaction with the page's first record.
    fn may_be_torn(&self, holds: Holds) -> bool {
        match holds {
            Holds::Nothing => true,
            Holds::One(first) => self.is_unsettled(&first),
            Holds::Several => false,
        }
    }

    fn look_beyond(&self, walk: &mut Walk<'_, M, H>, scan: &mut Scan) -> Result<()> {
        // (What is rolled back is not damage.)
        if self.store.host.leaves_out(Rule::LookBeyond) || walk.has_passed() {
            return Ok(());
        }
        let (ino, end, list) = (walk.ino, walk.tail().at, self.store.snapshots.home());
        let mut result = Ok(());
        let believed = self.store.host.leaves_out(Rule::LinkDoubted);
        walk.beyond(&mut |beyond| {
            if ino != list && beyond.is_void(self.store) {
                return;
            }
            // Only a page's header is in doubt with a transaction of one line; a line before
            // it in its own page was durable first.
            let header = beyond.header();
            let may_be_cut_off =
                self.in_doubt(ino, &header) || beyond.in_ruin && self.is_unsettled(&header);
            let found = if may_be_cut_off {
                // (Behind damage, too: else what happened to others would be taken for cut off.)
                self.part(scan, header, beyond.at, ino, Found::Beyond { in_ruin: beyond.in_ruin })
            } else if !believed && beyond.is_stale(|holds| self.may_be_torn(holds)) {
                Ok(())
            } else {
                let what = "damaged line in the middle of a log";
                Err(Error::corrupt_inode(what, end, ino))
            };
            if result.is_ok() {
                result = found;
            }
        })?;
        result
    }

    /// Takes in an inode whose log was walked once more, when all that was in doubt is judged. Memory can go bad
    /// between the two walks: so behind the log's end there must still be nothing that happened.
    pub(super) fn settle(
        &self,
        piece: &Piece,
        index: u32,
        scanned: &mut Scanned<'_, M, H>,
        scan: &mut Scan,
    ) -> Result<()> {
        let walk = &mut scanned.walk;
        let (ino, end, list) = (walk.ino, walk.tail().at, self.store.snapshots.home());
        // (What `judge` asks of the first walk.)
        let left_out = [Rule::LookBeyond, Rule::FinishedBehind];
        let looks = !left_out.iter().any(|rule| self.store.host.leaves_out(*rule));
        let looks = looks && !walk.has_passed();
        let mut is_cut = false;
        if looks {
            walk.beyond(&mut |beyond| {
                let is_void = ino != list && beyond.is_void(self.store);
                let is_explained = is_void || beyond.is_stale(|holds| self.may_be_torn(holds));
                is_cut |= !is_explained && !self.store.aborted.contains(&beyond.header().txid);
            })?;
        }
        if is_cut {
            return Err(Error::corrupt_inode("damaged line in the middle of a log", end, ino));
        }
        self.judge_link(walk)?;
        self.take_in(piece, index, scanned, scan)
    }

    /// Takes in an inode whose log has nothing in doubt (any more).
    fn take_in(
        &self,
        piece: &Piece,
        index: u32,
        scanned: &mut Scanned<'_, M, H>,
        scan: &mut Scan,
    ) -> Result<()> {
        let Scanned { walk, state, cut, seen, .. } = scanned;
        let state = state.take();
        if cut.is_some() {
            // Nothing in doubt explains it.
            let at = walk.tail().at;
            return Err(Error::corrupt_inode("text of a record is missing", at, walk.ino));
        }
        let ino = walk.ino;
        let identity = slot_at(ino);
        let Some(state) = state else { return self.remains(&mut scan.lifeless, identity, 1) };
        let is_list = ino == self.store.snapshots.home();
        if !is_list && state.is_nameless() && !self.store.host.leaves_out(Rule::NamelessErased) {
            // Its pages are nobody's. No other log has a part of a transaction that it took
            // part in and that happened: only a link could be such.
            scan.nameless += 1;
            return self.remains(&mut scan.lifeless, identity, 1);
        }
        for page in &state.log.pages {
            self.claim_metadata(Run { page: page.page, pages: 1 }, ino)?;
        }
        let mut result = Ok(());
        state.for_each_data_run(&mut |run| {
            if result.is_ok() {
                result = self.claim(run, ino);
            }
        });
        result?;
        self.keep_seen(core::mem::take(seen), ino)?;
        self.remains(&mut scan.remains, identity + DEATH_LINE * LINE, 1)?;
        self.behind_end(walk, scan)?;
        if let Some(pages) = state.file().ok().map(File::exempt_pages).filter(|pages| *pages > 0) {
            scan.exempt.try_reserve(1)?;
            scan.exempt.push(ino);
            scan.exempt_pages += pages;
        }
        scan.log_pages += state.log.pages.len() as u64;
        piece.set_tail(index, walk.tail().last_seal);
        scan.inodes += 1;
        Ok(())
    }

    /// Whether a snapshot sees the inode that this death ended.
    fn is_seen(&self, death: &Parsed) -> bool {
        let Body::Death { born, .. } = death.body else { return false };
        self.store.snapshots.sees(born, death.epoch)
    }

    /// Keeps what has ended for the snapshots that see it.
    fn keep_seen(&self, seen: Vec<(Ended, u32)>, ino: Ino) -> Result<()> {
        for (Ended { run, born }, died) in seen {
            self.claim(run, ino)?;
            self.store.snapshots.keep(Item::new(Kept::Data, run, born), died);
        }
        Ok(())
    }

    /// Counts the lines in doubt behind the end of the log of a dead inode that a snapshot sees: who had it open
    /// may have been writing to it.
    #[inline(never)]
    fn dead_beyond(
        &self,
        identity: &Identity,
        head: LinkFound,
        seal: u64,
        death: &Parsed,
        scan: &mut Scan,
    ) -> Result<()> {
        let walk = Walk::new(self.store, identity, head, seal)?;
        let mut scanned = load_for_scan(self.store, walk, Some(death.epoch), &mut |_| ())?;
        self.look_beyond(&mut scanned.walk, scan)?;
        self.judge_link(&scanned.walk)
    }

    /// Keeps a dead inode for the snapshots that see it. What is left behind the end of its log is erased as in
    /// that of one that lives.
    #[inline(never)]
    pub(super) fn settle_dead(
        &self,
        (identity, head, seal): (&Identity, LinkFound, u64),
        death: &Parsed,
        scan: &mut Scan,
    ) -> Result<()> {
        if !self.is_seen(death) {
            return Ok(());
        }
        let (ino, died) = (identity.ino, death.epoch);
        let walk = Walk::new(self.store, identity, head, seal)?;
        let mut scanned = load_for_scan(self.store, walk, Some(died), &mut |_| ())?;
        let mut damaged = scanned.cut.is_some();
        let aborted = &self.store.aborted;
        let store = self.store;
        scanned.walk.beyond(&mut |line| {
            damaged |= !line.is_void(store) && !aborted.contains(&line.header().txid);
        })?;
        let Some(state) = scanned.state.filter(|_| !damaged) else {
            let at = scanned.walk.tail().at;
            return Err(Error::corrupt_inode("damaged line in the middle of a log", at, ino));
        };
        let born = state.log.born;
        self.keep_seen(scanned.seen, ino)?;
        for page in &state.log.pages {
            let run = Run { page: page.page, pages: 1 };
            self.claim_metadata(run, ino)?;
            self.store.snapshots.keep(Item::new(Kept::Log, run, born), died);
        }
        let mut data = Vec::new();
        let mut noted: Result<()> = Ok(());
        state.for_each_data(&mut |ended| match data.try_reserve(1) {
            Ok(()) if self.store.snapshots.sees(ended.born, died) => data.push((ended, died)),
            Ok(()) => {}
            Err(error) => noted = Err(error.into()),
        });
        noted?;
        self.keep_seen(data, ino)?;
        self.store.snapshots.keep(Item::slot(ino, born), died);
        self.behind_end(&scanned.walk, scan)
    }

    /// Notes what is left behind the end of a log whose pages are all claimed: those of one that had ended, and is there
    /// again, may be somebody's data by now, of which nothing must be erased.
    fn behind_end(&self, walk: &Walk<'_, M, H>, scan: &mut Scan) -> Result<()> {
        self.remains(&mut scan.remains, walk.tail().at, walk.tail().left)?;
        if let Some(link_at) = walk.link_past_end()? {
            scan.links.try_reserve(1)?;
            scan.links.push(link_at);
        }
        Ok(())
    }

    /// Notes lines that say nothing, where they are not empty. A torn one must not stay: the
    /// next line stored there may be torn so that it completes the old one, whose
    /// transaction would by then count as committed.
    fn remains(&self, all: &mut Vec<(u64, u32)>, at: u64, lines: u32) -> Result<()> {
        for line in 0..u64::from(lines) {
            if !self.store.is_word(at + line * LINE + SEAL_AT, 0)? {
                all.try_reserve(1)?;
                all.push((at, lines));
                break;
            }
        }
        Ok(())
    }

    /// Claims pages of metadata, with their twins if they have such.
    fn claim_metadata(&self, run: Run, ino: Ino) -> Result<()> {
        self.claim(run, ino)?;
        match self.store.twin_run(run) {
            Some(twin) => self.claim(twin, ino),
            None => Ok(()),
        }
    }

    pub(super) fn claim(&self, run: Run, ino: Ino) -> Result<()> {
        self.claims.claim(run).map_err(|page| {
            Error::corrupt_inode("page belongs to two owners", page * PAGE_BYTES, ino)
        })
    }

    /// Whether it is to be found out if the transaction of this line in an inode's log happened. (Where all is to be
    /// what it was at a snapshot, all that counts did: the snapshot waited for it.)
    fn in_doubt(&self, ino: Ino, header: &Header) -> bool {
        let is_known = self.store.counted != u32::MAX && ino != self.store.snapshots.home();
        header.parts > 1 && !is_known && self.is_unsettled(header)
    }

    fn is_unsettled(&self, header: &Header) -> bool {
        let Txid { session, lane, sequence } = header.txid;
        let host = &self.store.host;
        let lane = if host.leaves_out(Rule::WatermarkLane) { 0 } else { lane };
        let settled = self.watermarks.get(usize::from(lane)).copied().unwrap_or(0);
        let ours = session == self.store.session() || host.leaves_out(Rule::TransactionSession);
        ours && sequence > settled
    }

    /// Counts the lines of transactions in doubt in the log of an inode whose death is
    /// settled: a round that was cut off may have settled one lane and not another, and
    /// the inode's slot is not used again before the round has ended. If it is by now, its
    /// log ends early, and nothing in doubt was in it.
    #[inline(never)]
    fn dead_parts(
        &self,
        identity: &Identity,
        head: LinkFound,
        seal: u64,
        scan: &mut Scan,
    ) -> Result<()> {
        let mut walk = Walk::new_of(Owner::Dead, self.store, identity, head, seal)?;
        loop {
            match walk.step() {
                Ok(Step::Record(found)) if self.in_doubt(identity.ino, &found.parsed.header) => {
                    self.part(scan, found.parsed.header, found.at, identity.ino, Found::InChain)?;
                }
                Ok(Step::End) | Err(Error::Corrupt(_) | Error::Media { .. }) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn see(&self, scan: &mut Scan, header: Header) -> Result<()> {
        let Txid { session, lane, sequence } = header.txid;
        let highest = scan.highest.get_mut(usize::from(lane));
        let highest = highest.ok_or(Error::corrupt("record of an unknown lane", 0))?;
        if session == self.store.session() {
            *highest = (*highest).max(sequence);
        }
        Ok(())
    }

    fn part(&self, scan: &mut Scan, header: Header, at: u64, ino: Ino, found: Found) -> Result<()> {
        scan.parts.try_reserve(1)?;
        let in_chain = matches!(found, Found::InChain);
        let in_ruin = matches!(found, Found::Beyond { in_ruin: true });
        scan.parts.push(Part { header, at, ino, in_chain, in_ruin, followed: false });
        Ok(())
    }
}
