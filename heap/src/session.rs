//! A conversation with a pool's owner (`lode-loan` is its language), in fixed room.
//!
//! All of it happens below the lock on memory, and has an end: an owner that doesn't answer in time is as gone.
use lode_loan::{CHUNK_BYTES, CHUNKS_MOST, FRAME_BYTES_MOST, HEAD_BYTES, Head, Kind};

use crate::settings::Settings;
use crate::sys;

/// Milliseconds that an owner has for an answer.
const PATIENCE: u64 = 10_000;
/// Milliseconds before an owner that was not there is looked for again.
const PAUSE: u64 = 200;
/// The same for one that didn't answer.
const LONG_PAUSE: u64 = 5_000;

/// The owner is gone.
#[derive(Debug)]
pub(crate) struct Lost;

/// What became of a wish for chunks.
#[derive(Debug)]
pub(crate) enum Answer {
    /// So many are in [`Session::granted`].
    Granted(usize),
    /// None: the owner says no.
    Refused,
    /// There is no owner.
    Lost,
}

/// What the owner asks for.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) tag: u64,
    pub(crate) chunks: u32,
}

/// A conversation; or none, while `socket` is [`sys::NONE`].
pub(crate) struct Session {
    socket: i32,
    identity: (u64, u64),
    buffer: [u8; FRAME_BYTES_MOST],
    filled: usize,
    /// Bytes of the buffer that the frame read last has.
    read: usize,
    tag: u64,
    /// When an owner may be looked for again.
    next_try: u64,
    /// The last one that nobody has seen to: what files want is in that, and it alone is waited for.
    wish: Option<Wish>,
    granted: [u32; CHUNKS_MOST as usize],
}

impl Session {
    pub(crate) const NONE: Self = Self {
        socket: sys::NONE,
        identity: (0, 0),
        buffer: [0; FRAME_BYTES_MOST],
        filled: 0,
        read: 0,
        tag: 0,
        next_try: 0,
        wish: None,
        granted: [0; CHUNKS_MOST as usize],
    };

    /// Whether there is an owner, as far as is known.
    pub(crate) const fn is_open(&self) -> bool {
        self.socket != sys::NONE
    }

    /// Whether it is time to look for an owner.
    pub(crate) fn may_try(&self) -> bool {
        !self.is_open() && sys::now() >= self.next_try
    }

    /// To wait for frames at.
    pub(crate) const fn socket(&self) -> i32 {
        self.socket
    }

    /// The chunks that were granted last.
    pub(crate) fn granted(&self, count: usize) -> &[u32] {
        self.granted.get(..count).unwrap_or_default()
    }

    /// Looks for the owner; the descriptor of its pool.
    pub(crate) fn open(&mut self, settings: &Settings) -> Result<i32, Lost> {
        self.close();
        self.next_try = sys::now() + PAUSE;
        let socket = sys::connect(settings.socket.bytes()).map_err(|_| Lost)?;
        if sys::peer(socket) == Some(sys::pid()) {
            // It would wait for itself.
            sys::close(socket);
            self.next_try = sys::now() + LONG_PAUSE;
            return Err(Lost);
        }
        (self.socket, self.identity) = (socket, sys::identity(socket).unwrap_or_default());
        (self.filled, self.read, self.wish) = (0, 0, None);
        let greeted = self.greet(settings);
        if greeted.is_err() {
            self.close();
        }
        greeted
    }

    fn greet(&mut self, settings: &Settings) -> Result<i32, Lost> {
        let end = sys::now() + PATIENCE;
        self.send(lode_loan::hello(settings.method).as_bytes(), end)?;
        let mut pool = None;
        let line = loop {
            let bytes = self.buffer.get(..self.filled).unwrap_or_default();
            if let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
                break at;
            }
            match self.fill(end) {
                Ok(descriptor) => pool = pool.or(descriptor),
                Err(lost) => {
                    pool.into_iter().for_each(sys::close);
                    return Err(lost);
                }
            }
        };
        let said = self.buffer.get(..line).unwrap_or_default();
        let good = has(said, b"\"ok\":true") && has(said, b"\"version\":1") && has(said, CHUNK);
        self.read = line + 1;
        match pool {
            Some(pool) if good => Ok(pool),
            pool => {
                pool.into_iter().for_each(sys::close);
                self.next_try = sys::now() + LONG_PAUSE;
                Err(Lost)
            }
        }
    }

    /// Forgets the conversation, and closes its socket unless the program has another file there by now.
    pub(crate) fn close(&mut self) {
        if self.is_open() && sys::identity(self.socket) == Some(self.identity) {
            sys::close(self.socket);
        }
        self.socket = sys::NONE;
        self.wish = None;
    }

    /// Asks for chunks.
    pub(crate) fn take(&mut self, count: usize) -> Answer {
        let count = (count as u32).clamp(1, CHUNKS_MOST);
        match self.ask(Kind::Take, count, &[]) {
            Ok(Head { kind: Kind::Granted, count, .. }) => {
                for at in 0..count as usize {
                    let chunk = u32::try_from(self.listed(at)).unwrap_or(u32::MAX);
                    if let Some(place) = self.granted.get_mut(at) {
                        *place = chunk;
                    }
                }
                Answer::Granted(count as usize)
            }
            Ok(Head { kind: Kind::Refused, .. }) => Answer::Refused,
            _ => {
                self.close();
                Answer::Lost
            }
        }
    }

    /// Gives back chunks, 512 at most, which are neither mapped nor locked any more.
    pub(crate) fn give(&mut self, chunks: &[u32]) {
        if !self.is_open() {
            return;
        }
        match self.ask(Kind::Return, chunks.len() as u32, chunks) {
            // One of them is none of this session's, as a new owner sees it: that is no reason to keep the others.
            Ok(Head { kind: Kind::Refused, .. }) if chunks.len() > 1 => {
                chunks.chunks(1).for_each(|chunk| self.give(chunk));
            }
            Ok(_) => {}
            Err(Lost) => self.close(),
        }
    }

    /// Tells a new owner of chunks, 512 at most, that are this program's.
    pub(crate) fn hold(&mut self, chunks: &[u32]) -> Result<u32, Lost> {
        let answer = self.ask(Kind::Hold, chunks.len() as u32, chunks)?;
        Ok(if answer.kind == Kind::Held { answer.count } else { 0 })
    }

    /// Tells what became of a wish.
    pub(crate) fn spared(&mut self, wish: Wish, count: u32) {
        let head = Head { kind: Kind::Spared, count, tag: wish.tag };
        if self.is_open() && self.send(&head.bytes(), sys::now() + PATIENCE).is_err() {
            self.close();
        }
    }

    /// A wish that nobody has seen to.
    pub(crate) fn next_wish(&mut self) -> Option<Wish> {
        self.wish.take()
    }

    /// Whether there is such a wish, or may be: behind an answer there can be frames that nobody has looked at.
    pub(crate) const fn has_wishes(&self) -> bool {
        self.wish.is_some() || self.filled > self.read
    }

    /// Takes in what has come of itself, without waiting for more.
    pub(crate) fn drain(&mut self) {
        while self.is_open() && self.is_mine() {
            // (What came with the last answer is in no socket any more.)
            if self.filled == self.read && !sys::poll([self.socket], false, 0)[0] {
                return;
            }
            // A frame that has begun comes whole.
            match self.frame(sys::now() + PATIENCE) {
                Ok(head) => self.note(head),
                Err(Lost) => self.close(),
            }
        }
    }

    fn note(&mut self, head: Head) {
        if head.kind == Kind::Wish {
            self.wish = Some(Wish { tag: head.tag, chunks: head.count });
        }
    }

    /// Whether the number still is the socket's: programs close descriptors that aren't theirs.
    pub(crate) fn is_mine(&mut self) -> bool {
        let mine = sys::identity(self.socket) == Some(self.identity);
        if !mine {
            self.socket = sys::NONE;
        }
        mine
    }

    fn ask(&mut self, kind: Kind, count: u32, list: &[u32]) -> Result<Head, Lost> {
        if !self.is_open() || !self.is_mine() {
            return Err(Lost);
        }
        self.tag += 1;
        let (tag, end) = (self.tag, sys::now() + PATIENCE);
        let mut frame = [0_u8; FRAME_BYTES_MOST];
        let head = Head { kind, count, tag };
        let numbers = list.iter().flat_map(|chunk| u64::from(*chunk).to_le_bytes());
        for (to, from) in frame.iter_mut().zip(head.bytes().into_iter().chain(numbers)) {
            *to = from;
        }
        let bytes = HEAD_BYTES + 8 * list.len();
        self.send(frame.get(..bytes).ok_or(Lost)?, end)?;
        loop {
            let head = self.frame(end)?;
            let answer =
                matches!(head.kind, Kind::Granted | Kind::Refused | Kind::Returned | Kind::Held);
            if answer && head.tag == tag {
                return Ok(head);
            }
            self.note(head);
        }
    }

    /// The next frame; its list is there until the one after it is read.
    fn frame(&mut self, end: u64) -> Result<Head, Lost> {
        self.buffer.copy_within(self.read..self.filled, 0);
        self.filled -= self.read;
        self.read = 0;
        loop {
            if let Some(head) = self.buffer.get(..self.filled).and_then(|b| b.first_chunk()) {
                let head = Head::parse(head).map_err(|_| Lost)?;
                let bytes = HEAD_BYTES + head.list_bytes();
                if self.filled >= bytes {
                    self.read = bytes;
                    return Ok(head);
                }
            }
            if let Some(stray) = self.fill(end)? {
                sys::close(stray);
            }
        }
    }

    /// A number of the list of the frame read last.
    fn listed(&self, at: usize) -> u64 {
        let bytes = self.buffer.get(HEAD_BYTES + 8 * at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Waits for bytes, and puts them behind those that are there.
    fn fill(&mut self, end: u64) -> Result<Option<i32>, Lost> {
        loop {
            let room = self.buffer.get_mut(self.filled..).filter(|room| !room.is_empty());
            match sys::receive(self.socket, room.ok_or(Lost)?) {
                Ok((0, _)) => return Err(Lost),
                Ok((bytes, descriptor)) => {
                    self.filled += bytes;
                    return Ok(descriptor);
                }
                Err(libc::EAGAIN) => self.wait(false, end)?,
                Err(_) => return Err(Lost),
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8], end: u64) -> Result<(), Lost> {
        while !bytes.is_empty() {
            match sys::send(self.socket, bytes) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(libc::EAGAIN) => self.wait(true, end)?,
                Err(_) => return Err(Lost),
            }
        }
        Ok(())
    }

    fn wait(&mut self, write: bool, end: u64) -> Result<(), Lost> {
        let left = end.saturating_sub(sys::now());
        if left == 0 {
            self.next_try = sys::now() + LONG_PAUSE;
            return Err(Lost);
        }
        sys::poll([self.socket], write, left);
        Ok(())
    }
}

const CHUNK: &[u8] = b"\"chunk_bytes\":2097152";
const _: () = assert!(CHUNK_BYTES == 2_097_152, "as the answer's line has to say");

fn has(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_wish_that_came_last_is_the_one_that_is_answered() {
        let mut session = Session::NONE;
        for tag in 1..=9 {
            session.note(Head { kind: Kind::Wish, count: 2 * tag as u32, tag });
        }
        assert!(session.has_wishes());
        let wish = session.next_wish().unwrap();
        assert_eq!((wish.tag, wish.chunks), (9, 18));
        // (An owner ends who answers an older one after that.)
        assert!(session.next_wish().is_none() && !session.has_wishes());
    }
}
