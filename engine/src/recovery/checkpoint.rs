//! The checkpoint: free space, inode tables and the last seal of each log, written at
//! a clean unmount, so that opening takes milliseconds whatever the size (PROTOCOL I20).

use alloc::vec::Vec;

use lode_pmem::{Medium, crc32c};

use super::manifest::{Manifests, decode_all, encode_all};
use crate::layout::{LINE, PieceHeader, SEGMENT_HEADER_BYTES, Segment, Superblock};
use crate::space::{Near, Run};
use crate::store::{Piece, Store};
use crate::{Corruption, Error, Host, Ino, PAGE_BYTES, PageClass, Result, Rule};

const WORD: usize = 8;
/// Free extents that taking the checkpoint's own pages may add.
const EXTENTS_SLACK: u64 = 64;

/// What a checkpoint says.
pub(crate) struct Loaded {
    pub(crate) pieces: Vec<Piece>,
    pub(super) free: Vec<Run>,
    /// What is kept for snapshots.
    pub(super) manifests: Manifests,
    /// The checkpoint's own pages.
    pub(super) own: Vec<Run>,
}

impl Loaded {
    /// The last seals of all logs by number of the inode, in order.
    pub(crate) fn tails(&self) -> Result<Vec<(Ino, u64)>> {
        let mut tails = Vec::new();
        for piece in &self.pieces {
            for index in (1..piece.slots()).filter(|index| piece.tail(*index) != 0) {
                tails.try_reserve(1)?;
                tails.push((piece.ino(index), piece.tail(index)));
            }
        }
        tails.sort_unstable();
        Ok(tails)
    }
}

/// How the last session ended.
pub(crate) enum Ended {
    /// It did not: the logs tell, as far as they go.
    Not,
    /// With a checkpoint.
    Closed(Loaded),
    /// With one that is damaged: the logs tell, but where each of them ends nobody can say.
    Damaged(Corruption),
}

/// Loads the checkpoint, if the superblock's session has one.
pub(crate) fn load_checkpoint<M: Medium, H: Host>(
    store: &Store<M, H>,
    superblock: &Superblock,
) -> Result<Ended> {
    let any_session = store.host.leaves_out(Rule::CheckpointSession);
    let ended = superblock.checkpoint_session == superblock.session || any_session;
    // (Who ends a session has given the sector journal up before.)
    if !ended || superblock.checkpoint == 0 || superblock.sectors.is_some() {
        return Ok(Ended::Not);
    }
    match load(store, superblock.checkpoint) {
        Ok(loaded) => Ok(Ended::Closed(loaded)),
        Err(Error::Corrupt(damage)) => Ok(Ended::Damaged(damage)),
        Err(Error::Media { at }) => {
            Ok(Ended::Damaged(Corruption { what: "checkpoint can't be read", at, ino: 0 }))
        }
        Err(error) => Err(error),
    }
}

fn load<M: Medium, H: Host>(store: &Store<M, H>, first: u64) -> Result<Loaded> {
    let mut own: Vec<Run> = Vec::new();
    let mut stream: Vec<u8> = Vec::new();
    let mut page = first;
    let any_session = store.host.leaves_out(Rule::CheckpointSession);
    while page != 0 {
        if !store.geometry.holds(page, 1) {
            return Err(Error::corrupt("checkpoint segment outside the pool", 0));
        }
        let at = page * PAGE_BYTES;
        let line = store.door.load_line(at)?;
        let sealed = Segment::parse(&line, &store.seed, at);
        let unsealed = store.host.leaves_out(Rule::CheckpointSeal);
        let segment = if unsealed { Segment::read(&line) } else { sealed };
        let segment = segment
            .filter(|segment| segment.session == store.session() || any_session)
            .filter(|segment| store.geometry.holds(page, segment.pages))
            .filter(|segment| segment.bytes <= segment.pages * PAGE_BYTES - SEGMENT_HEADER_BYTES)
            .ok_or(Error::corrupt("checkpoint segment is damaged", at))?;
        let pages: u64 = own.iter().map(|run| run.pages).sum();
        if pages + segment.pages > store.geometry.pages {
            return Err(Error::corrupt("checkpoint is longer than the pool", at));
        }
        let start = stream.len();
        stream.try_reserve(segment.bytes as usize)?;
        stream.resize(start + segment.bytes as usize, 0);
        let bytes = stream.get_mut(start..).unwrap_or_default();
        store.door.load(at + SEGMENT_HEADER_BYTES, bytes)?;
        let unchecked = store.host.leaves_out(Rule::CheckpointSum);
        if crc32c(0, bytes) != segment.crc && !unchecked {
            return Err(Error::corrupt("checkpoint has a wrong checksum", at));
        }
        own.try_reserve(1)?;
        own.push(Run { page, pages: segment.pages });
        page = segment.next;
    }
    parse(store, &mut Words(&stream), own)
}

/// Numbers of 8 bytes, one after the other.
struct Words<'b>(&'b [u8]);

impl Words<'_> {
    fn next(&mut self) -> Result<u64> {
        let short = Error::corrupt("checkpoint ends early", 0);
        let (word, rest) = self.0.split_first_chunk::<WORD>().ok_or(short)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    fn left(&self) -> usize {
        self.0.len() / WORD
    }
}

fn parse<M: Medium, H: Host>(
    store: &Store<M, H>,
    words: &mut Words<'_>,
    own: Vec<Run>,
) -> Result<Loaded> {
    let impossible = |what| Error::corrupt(what, 0);
    let (piece_count, free_count) = (words.next()?, words.next()?);
    let mut pieces = Vec::new();
    for _ in 0..piece_count {
        let (page, log2, lane) = (words.next()?, words.next()?, words.next()?);
        if log2 > 9 || !store.geometry.holds_metadata(page, 1 << log2) {
            return Err(impossible("checkpoint has an impossible table piece"));
        }
        if lane >= u64::from(store.geometry.lanes) {
            return Err(impossible("checkpoint has an impossible table piece"));
        }
        let (log2_pages, lane) = (log2 as u8, lane as u8);
        // (Its header, and the way to it, may be damaged: they are as it is said here.)
        let piece = Piece::new(PieceHeader { log2_pages, lane, page, nonce: words.next()? })?;
        for index in 1..piece.slots() {
            piece.set_tail(index, words.next()?);
        }
        pieces.try_reserve(1)?;
        pieces.push(piece);
    }
    if (words.left() as u64) < free_count.saturating_mul(2) {
        return Err(impossible("checkpoint has another length than it says"));
    }
    let mut free = Vec::new();
    free.try_reserve_exact(free_count as usize)?;
    let mut end = 0;
    for _ in 0..free_count {
        let run = Run { page: words.next()?, pages: words.next()? };
        if run.page < end || !store.geometry.holds(run.page, run.pages) {
            return Err(impossible("checkpoint has an impossible free extent"));
        }
        end = run.page + run.pages;
        free.push(run);
    }
    let manifests = decode_all(&store.geometry, words.0)?;
    Ok(Loaded { pieces, free, manifests, own })
}

/// Writes a checkpoint and returns its first page, or `None` where there is no space for
/// one, or memory is not what was stored there: then the next opening reads the logs. It is durable with
/// the next fence.
pub(super) fn store_checkpoint<M: Medium, H: Host>(store: &Store<M, H>) -> Result<Option<u64>> {
    let whole = store.space.is_whole() && store.snapshots.is_whole();
    let (mut words, mut whole) = (2, whole && store.bad.fits());
    store.table.for_each_piece(&mut |piece| {
        words += 3 + u64::from(piece.slots());
        whole &= piece.is_whole();
        Ok(())
    })?;
    if !whole {
        return Ok(None);
    }
    store.space.for_each_free(&mut |_| {
        words += 2;
        Ok(())
    })?;
    // Lent pages are free for who opens the pool next.
    store.lent.for_each_owed(&mut |_| {
        words += 2;
        Ok(())
    })?;
    words += 2 * EXTENTS_SLACK;
    let manifests = encode_all(store)?;
    words += (manifests.len() / WORD) as u64;
    let runs = match take_runs(store, words * WORD as u64) {
        Ok(runs) => runs,
        Err(Error::NoSpace) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Only now: where the checkpoint goes nobody else stores.
    store.end_lending()?;
    let stream = stream_of(store, words, &manifests)?;
    let capacity: u64 = runs.iter().map(segment_room).sum();
    if stream.len() as u64 > capacity {
        return Ok(None);
    }
    store_segments(store, &runs, &stream);
    Ok(runs.first().map(|run| run.page))
}

/// Bytes of the stream that a segment of these pages holds.
fn segment_room(run: &Run) -> u64 {
    run.pages * PAGE_BYTES - SEGMENT_HEADER_BYTES
}

/// Pages for the checkpoint, the reserve's included: they are free again after the next opening.
fn take_runs<M: Medium, H: Host>(store: &Store<M, H>, bytes: u64) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let pages = (bytes + SEGMENT_HEADER_BYTES).div_ceil(PAGE_BYTES);
    runs.try_reserve(1)?;
    if let Ok(run) = store.space.take(store.lane(), pages, PageClass::Small) {
        runs.push(run);
        return Ok(runs);
    }
    let mut left = bytes;
    while left > 0 {
        let pages = (left + SEGMENT_HEADER_BYTES).div_ceil(PAGE_BYTES);
        runs.try_reserve(1)?;
        match store.space.take_some(store.lane(), pages, Near::ANY) {
            Ok(run) if (runs.len() as u64) < EXTENTS_SLACK => {
                left = left.saturating_sub(segment_room(&run));
                runs.push(run);
            }
            taken => {
                for run in runs.into_iter().chain(taken.ok()) {
                    store.give(run);
                }
                return Err(Error::NoSpace);
            }
        }
    }
    Ok(runs)
}

fn stream_of<M: Medium, H: Host>(
    store: &Store<M, H>,
    words: u64,
    manifests: &[u8],
) -> Result<Vec<u8>> {
    let mut stream: Vec<u8> = Vec::new();
    stream.try_reserve_exact(words as usize * WORD)?;
    let (mut pieces, mut extents) = (0u64, 0u64);
    stream.resize(2 * WORD, 0);
    store.table.for_each_piece(&mut |piece| {
        pieces += 1;
        stream.try_reserve((3 + piece.slots() as usize) * WORD)?;
        let header = &piece.header;
        for word in [header.page, u64::from(header.log2_pages), u64::from(header.lane)] {
            stream.extend_from_slice(&word.to_le_bytes());
        }
        stream.extend_from_slice(&header.nonce.to_le_bytes());
        for index in 1..piece.slots() {
            stream.extend_from_slice(&piece.tail(index).to_le_bytes());
        }
        Ok(())
    })?;
    store.space.for_each_free(&mut |run| {
        extents += 1;
        stream.try_reserve(2 * WORD)?;
        stream.extend_from_slice(&run.page.to_le_bytes());
        stream.extend_from_slice(&run.pages.to_le_bytes());
        Ok(())
    })?;
    stream.try_reserve(manifests.len())?;
    stream.extend_from_slice(manifests);
    for (at, count) in [(0, pieces), (WORD, extents)] {
        if let Some(place) = stream.get_mut(at..at + WORD) {
            place.copy_from_slice(&count.to_le_bytes());
        }
    }
    Ok(stream)
}

fn store_segments<M: Medium, H: Host>(store: &Store<M, H>, runs: &[Run], stream: &[u8]) {
    let counters = store.counters();
    let mut rest = stream;
    for (number, run) in runs.iter().enumerate() {
        let here = rest.len().min(segment_room(run) as usize);
        let (bytes, more) = rest.split_at(here);
        rest = more;
        let segment = Segment {
            session: store.session(),
            pages: run.pages,
            next: runs.get(number + 1).map_or(0, |next| next.page),
            bytes: here as u64,
            crc: crc32c(0, bytes),
        };
        let at = run.page * PAGE_BYTES;
        let stored = SEGMENT_HEADER_BYTES + (here as u64).next_multiple_of(LINE);
        let mut window = store.door.window(stored, counters);
        // (Streamed like its bytes: it has no twin, being told by the logs again where it is damaged.)
        window.copy_nt(at, &segment.line(&store.seed, at).0);
        window.copy_lines(at + SEGMENT_HEADER_BYTES, bytes);
    }
    debug_assert!(rest.is_empty());
}
