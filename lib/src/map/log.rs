//! A log in a mapped file: an append is a streamed store and one fence, and nothing else.
//!
//! It is what the study of whole software stacks found best for logs on such memory (the NOVA
//! dissertation, 5.1): space taken in advance, so that appending changes no metadata; stores past the
//! caches; entries that tell by themselves whether they are whole, so that nothing has to say
//! where the log ends.
//!
//! The file: a line with magic, version and a state word, then entries, each at a multiple of 64:
//! length (4 bytes), CRC32C (4), life (4) and session (4) of the log, then the bytes. The checksum
//! begins with life, session, place and length. The log ends at the first entry that is not right:
//! * Emptying it begins another life, so that what an earlier one left never counts. Its number is random:
//!   nobody who only chooses the bytes of an entry can have them taken for an entry of their own.
//! * Each opening and each emptying begins another session, and sessions never fall from entry to entry: of
//!   several entries that were appended together and cut off, a crash may leave a later one without an earlier
//!   one, and it must not follow what is appended there next. Nor can what is of an earlier life whose number
//!   was the same by chance.
//!
//! Life and session are the two halves of the state word, which changes in one piece.

use std::path::Path;
use std::sync::Arc;

use lode_engine::Ino;
use lode_pmem::crc32c;
use parking_lot::Mutex;

use super::{Map, MapOptions, PAGE};
use crate::error::{Cause, Error, Result};
use crate::file::{File, Open};
use crate::hand::Hand;
use crate::options::OpenOptions;
use crate::pool::Pool;

const LINE: u64 = 64;
const MAGIC: [u8; 8] = *b"LodeLog\0";
const VERSION: u64 = 1;
/// Where the state word is.
const STATE_AT: u64 = 16;
/// Bytes before those of an entry.
const PREFIX: usize = 16;
/// The least and the most bytes that a log grows by.
const GROWTH_LEAST: u64 = 1 << 20;
const GROWTH_MOST: u64 = 256 << 20;

/// Bytes of a file that is no log yet that are looked at together.
const BLANK_AT_A_TIME: usize = 64 << 10;

type Outcome<T> = std::result::Result<T, Cause>;

/// Where an entry of a [`Log`] is: positions grow with each entry.
pub type Position = u64;

/// A log in a file of a pool: entries of any bytes, appended by any thread, each durable when
/// [`Log::append`] returns. See also [`crate::Map`].
///
/// It is open once at a time in a pool. Who else writes to its file, or cuts it, spoils it.
pub struct Log {
    inner: Mutex<Inner>,
    open: Arc<Open>,
}

/// What entries belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    life: u32,
    session: u32,
}

/// The right to append to the log in a file, which one has at a time. Who has it keeps the inode.
struct Appender {
    hand: Arc<Hand>,
    ino: Ino,
}

impl Appender {
    /// The log in the inode `ino`.
    fn new(hand: Arc<Hand>, ino: Ino) -> Outcome<Self> {
        if hand.begin_log(ino) { Ok(Self { hand, ino }) } else { Err(Cause::LogInUse) }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.hand.end_log(self.ino);
    }
}

struct Inner {
    map: Arc<Map>,
    _appender: Appender,
    file: File,
    state: State,
    /// Where the next entry goes.
    end: u64,
}

impl Log {
    /// Opens the log in the file at `path`, or makes it, with room for so many bytes; it grows when
    /// they are full. Finding its end reads all entries: it ends before the first that is not whole, as a crash
    /// leaves the last one, and so does damage; what is appended then takes the place of those behind.
    ///
    /// # Errors
    /// As [`Pool::open_with`] and [`File::map`]; `EINVAL` for a file that holds something else, `EBUSY` while the
    /// log is open already, `EFBIG` for more than a file can have.
    pub fn open(pool: &Pool, path: impl AsRef<Path>, capacity: u64) -> Result<Self> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        let file = pool.open_with(path, options.read(true).write(true).create(true))?;
        let open = Arc::clone(&file.open);
        let inner = Appender::new(pool.inner.here(), open.ino());
        let inner = inner.and_then(|appender| Inner::open(file, appender, capacity));
        let inner = inner.map_err(|cause| Error::at(cause, path))?;
        Ok(Self { inner: Mutex::new(inner), open })
    }

    /// Appends an entry, durable when this returns; a crash leaves it wholly or not at all. Returns
    /// its position.
    ///
    /// # Errors
    /// `EMSGSIZE` for 4 GiB and more; `ENOSPC`, `ENOMEM` where the log has to grow; `EIO`.
    pub fn append(&self, entry: &[u8]) -> Result<Position> {
        self.append_all(&[entry])
    }

    /// Appends entries under one fence, durable when this returns; a crash before leaves the first of
    /// them, any number. Returns the position of the first.
    ///
    /// # Errors
    /// As [`Log::append`]; nothing has been appended then.
    pub fn append_all(&self, entries: &[&[u8]]) -> Result<Position> {
        let mut inner = self.inner.lock();
        let _pass = self.open.enter()?;
        Ok(inner.append(entries)?)
    }

    /// The entries from `from` on, which is 0 or a position; as many as there are now. One that is
    /// damaged is an `EIO`, and the last that is read; so is a place where no entry begins.
    ///
    /// # Errors
    /// `EINVAL` where no entry can begin.
    pub fn entries(&self, from: Position) -> Result<Entries> {
        let inner = self.inner.lock();
        let at = from.max(LINE);
        if at > inner.end || !at.is_multiple_of(LINE) {
            return Err(Cause::Number(libc::EINVAL).into());
        }
        let (map, state, end) = (Arc::clone(&inner.map), inner.state, inner.end);
        Ok(Entries { map, state, session: 0, at, end })
    }

    /// Where the next entry will be.
    pub fn end(&self) -> Position {
        self.inner.lock().end
    }

    /// Empties the log, in one atomic, durable step; its space stays taken. Entries that are being read
    /// ([`Log::entries`]) end.
    ///
    /// # Errors
    /// `EIO`.
    pub fn clear(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        let _pass = self.open.enter()?;
        Ok(inner.clear()?)
    }
}

impl Inner {
    fn open(file: File, _appender: Appender, capacity: u64) -> Outcome<Self> {
        let size = file.len_or_cause()?;
        let wanted = capacity.checked_add(LINE).and_then(|end| end.checked_next_multiple_of(PAGE));
        let wanted = wanted.ok_or(Cause::Number(libc::EFBIG))?;
        // What is no log stays as it is.
        let begun = find_state(|at| {
            let mut word = [0; 8];
            file.read_some_at(&mut word, at).map(|_| word)
        })?;
        if begun.is_none() && !is_blank(&file)? {
            return Err(Cause::Number(libc::EINVAL));
        }
        if size < wanted {
            extend(&file, size, wanted)?;
        }
        let map = Arc::new(mapped(&file, size.max(wanted))?);
        let last = read_state(&map)?;
        let mut inner = Self { map, _appender, file, state: last, end: LINE };
        let mut session = 0;
        while let Some(entry) = entry_at(&inner.map, last, session, inner.end, inner.map.len())? {
            (inner.end, session) = (entry.end, entry.session);
        }
        inner.set_state(State { session: session_after(last)?, ..last })?;
        Ok(inner)
    }

    /// Another life: what is in the log counts no more.
    fn clear(&mut self) -> Outcome<()> {
        self.set_state(another_life(&self.map, self.state)?)?;
        self.end = LINE;
        Ok(())
    }

    fn set_state(&mut self, state: State) -> Outcome<()> {
        let word = u64::from(state.life) << 32 | u64::from(state.session);
        let stored = self.map.store(STATE_AT, &word.to_le_bytes());
        let durable = stored.and_then(|()| self.map.persist(STATE_AT..STATE_AT + 8));
        durable.map_err(Error::into_cause)?;
        self.state = state;
        Ok(())
    }

    fn append(&mut self, entries: &[&[u8]]) -> Outcome<Position> {
        let first = self.end;
        let mut end = first;
        for entry in entries {
            if u32::try_from(entry.len()).is_err() {
                return Err(Cause::Number(libc::EMSGSIZE));
            }
            end = next_place(end, entry.len() as u64).ok_or(Cause::Number(libc::EFBIG))?;
        }
        self.make_room(end)?;
        let mut at = first;
        for entry in entries {
            self.put(at, entry).map_err(Error::into_cause)?;
            at = next_place(at, entry.len() as u64).unwrap_or(end);
        }
        if first < end {
            self.map.fence(first..end).map_err(Error::into_cause)?;
        }
        self.end = end;
        Ok(first)
    }

    fn put(&self, at: u64, entry: &[u8]) -> Result<()> {
        let prefix = prefix(self.state, at, entry);
        // What fits in a line with its prefix is stored in one go.
        let mut line = [0; LINE as usize];
        let inside = entry.len().min(LINE as usize - PREFIX);
        let (head, rest) = entry.split_at(inside);
        for (to, byte) in line.iter_mut().zip(prefix.iter().chain(head)) {
            *to = *byte;
        }
        self.map.stream(at, &line)?;
        if rest.is_empty() { Ok(()) } else { self.map.stream(at + LINE, rest) }
    }

    fn make_room(&mut self, end: u64) -> Outcome<()> {
        let size = self.map.len();
        if end <= size {
            return Ok(());
        }
        let growth = size.clamp(GROWTH_LEAST, GROWTH_MOST);
        let pages = |end: u64| end.checked_next_multiple_of(PAGE);
        let least = pages(end).ok_or(Cause::Number(libc::EFBIG))?;
        let wanted = pages(end.max(size.saturating_add(growth))).unwrap_or(least);
        // Where there is no room for that, what is needed now will do.
        if extend(&self.file, size, wanted).is_err() {
            extend(&self.file, size, least)?;
        }
        self.map = Arc::new(mapped(&self.file, self.file.len_or_cause()?)?);
        Ok(())
    }
}

/// Entries of a log, in their order: position and bytes.
pub struct Entries {
    map: Arc<Map>,
    state: State,
    session: u32,
    at: u64,
    end: u64,
}

impl Iterator for Entries {
    type Item = Result<(Position, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        if at >= self.end {
            return None;
        }
        let read = self.read();
        // Last: until then the log may have been emptied, and another entry begun in this place.
        let state = find_state(|at| load_word(&self.map, at)).ok().flatten();
        if state.map(|state| state.life) != Some(self.state.life) {
            self.at = self.end;
            return None;
        }
        if read.is_err() {
            self.at = self.end;
        }
        Some(read.map(|bytes| (at, bytes)).map_err(Error::from))
    }
}

impl Entries {
    /// The bytes of the next entry, which there is.
    fn read(&mut self) -> Outcome<Vec<u8>> {
        let entry = entry_at(&self.map, self.state, self.session, self.at, self.end)?;
        let entry = entry.ok_or(Cause::LogDamaged)?;
        let mut bytes = vec![0; entry.len as usize];
        let loaded = self.map.load(self.at + PREFIX as u64, &mut bytes);
        loaded.map_err(Error::into_cause)?;
        (self.at, self.session) = (entry.end, entry.session);
        Ok(bytes)
    }
}

fn extend(file: &File, size: u64, to: u64) -> Outcome<()> {
    file.allocate(size, to - size, false).map_err(Error::into_cause)
}

fn mapped(file: &File, len: u64) -> Outcome<Map> {
    file.map(0, len, MapOptions::new().write(true)).map_err(Error::into_cause)
}

/// Whether there is nothing but zeros where a log's entries would be.
fn is_blank(file: &File) -> Outcome<bool> {
    let mut bytes = vec![0; BLANK_AT_A_TIME];
    let mut at = STATE_AT;
    loop {
        let read = file.read_some_at(&mut bytes, at)?;
        let bytes = bytes.get(..read).unwrap_or_default();
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
        at += read as u64;
    }
}

/// The words of the first line before the state.
fn header() -> [[u8; 8]; 2] {
    [MAGIC, VERSION.to_le_bytes()]
}

/// The state of the log, by a look at its first words; `None` of one that was not begun.
fn find_state(load: impl Fn(u64) -> Outcome<[u8; 8]>) -> Outcome<Option<State>> {
    let found = [load(0)?, load(8)?];
    let word = u64::from_le_bytes(load(STATE_AT)?);
    let is_new = |(word, wanted): (&[u8; 8], [u8; 8])| *word == [0; 8] || *word == wanted;
    if word == 0 && found.iter().zip(header()).all(is_new) {
        return Ok(None);
    }
    if found != header() {
        return Err(Cause::Number(libc::EINVAL));
    }
    Ok(Some(State { life: (word >> 32) as u32, session: word as u32 }))
}

fn load_word(map: &Map, at: u64) -> Outcome<[u8; 8]> {
    let mut word = [0; 8];
    map.load(at, &mut word).map_err(Error::into_cause).map(|()| word)
}

/// Reads the state of the log, which is begun if it was not, or was cut off in that.
fn read_state(map: &Map) -> Outcome<State> {
    if let Some(state) = find_state(|at| load_word(map, at))? {
        return Ok(state);
    }
    let stored = map.stream(0, header().as_flattened()).and_then(|()| map.fence(0..LINE));
    stored.map_err(Error::into_cause)?;
    let none = State { life: 0, session: 0 };
    Ok(State { session: 0, ..another_life(map, none)? })
}

/// Another life: nobody knows its number beforehand, and the log has no entry of it.
fn another_life(map: &Map, last: State) -> Outcome<State> {
    let session = session_after(last)?;
    loop {
        let life = lode_host::random() as u32;
        let state = State { life, session };
        // What is of an earlier session can only be at the beginning: behind its entries it counts no more.
        let has_entry = matches!(entry_at(map, state, 0, LINE, map.len()), Ok(Some(_)));
        if ![0, last.life].contains(&life) && !has_entry {
            return Ok(state);
        }
    }
}

fn session_after(last: State) -> Outcome<u32> {
    last.session.checked_add(1).ok_or(Cause::Number(libc::EOVERFLOW))
}

/// Where the entry behind one of so many bytes at `at` is.
fn next_place(at: u64, len: u64) -> Option<u64> {
    at.checked_add(PREFIX as u64)?.checked_add(len)?.checked_next_multiple_of(LINE)
}

fn prefix(state: State, at: u64, entry: &[u8]) -> [u8; PREFIX] {
    let len = (entry.len() as u32).to_le_bytes();
    let crc = crc32c(seed(state, at, len), entry).to_le_bytes();
    let fields = [len, crc, state.life.to_le_bytes(), state.session.to_le_bytes()];
    let mut prefix = [0; PREFIX];
    prefix.copy_from_slice(fields.as_flattened());
    prefix
}

/// What an entry's checksum begins with.
fn seed(state: State, at: u64, len: [u8; 4]) -> u32 {
    let fields = [state.life.to_le_bytes(), state.session.to_le_bytes(), len];
    crc32c(crc32c(0, &at.to_le_bytes()), fields.as_flattened())
}

/// An entry that is whole.
struct Entry {
    len: u32,
    session: u32,
    end: u64,
}

/// The entry at `at`, if there is a whole one before `limit`: of the life of `state`, of no later session, and
/// of none before `session`.
fn entry_at(map: &Map, state: State, session: u32, at: u64, limit: u64) -> Outcome<Option<Entry>> {
    let load = |at, into: &mut [u8]| map.load(at, into).map_err(Error::into_cause);
    if at.checked_add(PREFIX as u64).is_none_or(|end| end > limit) {
        return Ok(None);
    }
    let mut prefix = [[0; 4]; 4];
    load(at, prefix.as_flattened_mut())?;
    let [len, crc, life, of] = prefix.map(u32::from_le_bytes);
    let end = next_place(at, u64::from(len)).filter(|&end| end <= limit);
    let fits = life == state.life && (session..=state.session).contains(&of);
    let Some(end) = end.filter(|_| fits) else { return Ok(None) };
    let mut sum = seed(State { life, session: of }, at, len.to_le_bytes());
    let (mut from, mut left) = (at + PREFIX as u64, u64::from(len));
    let mut piece = [0; 4096];
    while left > 0 {
        let bytes = piece.get_mut(..left.min(PAGE) as usize).unwrap_or_default();
        load(from, bytes)?;
        sum = crc32c(sum, bytes);
        from += bytes.len() as u64;
        left -= bytes.len() as u64;
    }
    Ok((sum == crc).then_some(Entry { len, session: of, end }))
}
