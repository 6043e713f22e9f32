//! A place in memory where the kernel puts a request, and takes the answer from.

use std::io;

use fuse_abi::linux::fuse_out_header;

use super::layout::Heads;
use crate::wire::errno::Errno;
use crate::wire::reply::{Answer, Reply};
use crate::wire::request::{Incoming, parse_parts};
use crate::wire::scratch::Scratch;

/// Works on a request and hands its answer on; data of it may be in the memory that is given.
pub type Work<'w, P> =
    dyn FnMut(&Incoming<'_>, &mut Scratch, &mut dyn FnMut(&Result<Answer<'_>, Errno>)) -> P + 'w;

/// One entry of a queue. The kernel has it from when it was registered or committed until the
/// completion of that command is seen.
pub struct Entry {
    /// The queue it belongs to.
    pub queue: u16,
    pub(super) heads: Box<Heads>,
    pub(super) data: Scratch,
}

impl Entry {
    /// An entry of a queue, with room for so many bytes of data. Memory that no request needs is
    /// never touched.
    ///
    /// # Errors
    /// Where there is not so much memory.
    pub fn new(queue: u16, data_bytes: usize) -> io::Result<Self> {
        let data = Scratch::full(data_bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self { queue, heads: Box::new(Heads::empty()), data })
    }

    /// The number by which the request in it is answered.
    pub fn commit(&self) -> u64 {
        self.heads.commit
    }

    /// Has the request in it worked on by `work`, and puts the answer in. What `work` reads for the
    /// answer goes to the memory that it is given: the entry's own, where the request has no data
    /// there, or else `spare`. Where it hands nothing on, the answer is `EIO`. Returns what `work` does, if
    /// it was asked.
    pub fn work<P>(&mut self, spare: &mut Spare, work: &mut Work<'_, P>) -> Option<P> {
        let Some((header, own)) = self.heads.request() else {
            self.heads.answer(&head(0, Errno::EIO), 0);
            return None;
        };
        let Spare { scratch, body } = spare;
        body.clear();
        let (mut reply, mut in_place) = (head(header.unique, Errno::EIO), 0);
        let place = self.data.start();
        let mut take = |answer: &Result<Answer<'_>, Errno>| {
            let answer = Reply::new(header.unique, answer);
            let [one, other] = answer.body();
            reply = answer.header();
            in_place = 0;
            body.clear();
            if other.is_empty() && one.as_ptr() == place {
                in_place = one.len();
            } else {
                body.extend_from_slice(one);
                body.extend_from_slice(other);
            }
        };
        let held = match self.heads.data_bytes as usize {
            0 => Some(work(&parse_parts(&header, own, &[]), &mut self.data, &mut take)),
            bytes => match self.data.room(bytes) {
                Ok(data) => Some(work(&parse_parts(&header, own, data), scratch, &mut take)),
                Err(error) => {
                    take(&Err(error));
                    None
                }
            },
        };
        if body.is_empty() {
            self.heads.answer(&reply, in_place as u32);
            return held;
        }
        match self.data.room(body.len()) {
            Ok(room) => {
                room.copy_from_slice(body);
                self.heads.answer(&reply, body.len() as u32);
            }
            Err(error) => self.heads.answer(&head(header.unique, error), 0),
        }
        held
    }
}

/// Memory of a thread that works on entries.
#[derive(Debug)]
pub struct Spare {
    /// For what is read, where the entry's own has the request's data.
    scratch: Scratch,
    /// An answer on its way to the entry.
    body: Vec<u8>,
}

impl Spare {
    /// For answers of so many bytes at most.
    pub fn new(most: usize) -> Self {
        Self { scratch: Scratch::new(most), body: Vec::new() }
    }
}

/// The header of an answer that is an error.
fn head(unique: u64, error: Errno) -> fuse_out_header {
    let len = size_of::<fuse_out_header>() as u32;
    fuse_out_header { len, error: -error.code(), unique }
}
