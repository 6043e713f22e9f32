//! An owner for tests: a file of chunks in memory, lent over a socket by threads of the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lode_loan::{CHUNK_BYTES, HEAD_BYTES, Head, Kind, Refusal};

/// What an owner knows.
#[derive(Default)]
pub struct Books {
    free: BTreeSet<u64>,
    lent: BTreeMap<u64, u64>,
    /// Locked by somebody, of no session.
    orphans: BTreeSet<u64>,
    streams: BTreeMap<u64, UnixStream>,
    next: u64,
    limit: usize,
    /// Chunks lent, ever.
    pub granted: usize,
    /// The most chunks out at a time.
    pub most: usize,
    /// Sessions there were.
    pub sessions: usize,
    /// Chunks that programs said they have given for wishes.
    pub spared: usize,
    /// Chunks that were said to be held, and are.
    pub held: usize,
    /// From so many sessions on, programs that come are not answered.
    pub silent_from: usize,
    /// Processes that were not answered.
    pub unanswered: Vec<u32>,
    /// The next session that is granted something ends then, and so many bytes of the frame that says it are not sent.
    pub ends_granting: Option<usize>,
    /// What should not have been.
    pub wrong: Vec<String>,
}

pub struct Owner {
    socket: PathBuf,
    file: Arc<File>,
    books: Arc<Mutex<Books>>,
    ending: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

/// A file of so many chunks in memory, without a name.
pub fn pool(chunks: u64) -> Arc<File> {
    // SAFETY: the name ends.
    let made = unsafe { libc::memfd_create(c"pool".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(made >= 0);
    // SAFETY: just made.
    let file = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(made) };
    file.set_len(chunks * CHUNK_BYTES).unwrap();
    Arc::new(file)
}

impl Owner {
    /// One that lends at most `limit` chunks of a file, without those that are locked.
    pub fn new(socket: &Path, file: Arc<File>, limit: usize) -> Self {
        let chunks = file.metadata().unwrap().len() / CHUNK_BYTES;
        let mut books = Books { limit, silent_from: usize::MAX, ..Books::default() };
        for chunk in 0..chunks {
            let side = if is_locked(&file, chunk) { &mut books.orphans } else { &mut books.free };
            side.insert(chunk);
        }
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let books = Arc::new(Mutex::new(books));
        let ending = Arc::new(AtomicBool::new(false));
        let shared = (Arc::clone(&file), Arc::clone(&books), Arc::clone(&ending));
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                let (file, books, ending) = shared.clone();
                if ending.load(Ordering::Acquire) {
                    return;
                }
                let stream = stream.unwrap();
                thread::spawn(move || serve(stream, &file, &books));
            }
        });
        Self { socket: socket.into(), file, books, ending, accepting: Some(accepting) }
    }

    /// As if it were killed: all its connections end.
    pub fn kill(mut self) -> Arc<File> {
        self.ending.store(true, Ordering::Release);
        for stream in self.books.lock().unwrap().streams.values() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        let _ = UnixStream::connect(&self.socket);
        self.accepting.take().unwrap().join().unwrap();
        std::fs::remove_file(&self.socket).unwrap();
        Arc::clone(&self.file)
    }

    pub fn books<T>(&self, look: impl FnOnce(&mut Books) -> T) -> T {
        let mut books = self.books.lock().unwrap();
        let wrong = std::mem::take(&mut books.wrong);
        assert!(wrong.is_empty(), "{wrong:?}");
        look(&mut books)
    }

    /// Chunks that are out.
    pub fn out(&self) -> usize {
        self.books(|books| {
            let orphans: Vec<u64> = books.orphans.iter().copied().collect();
            for chunk in orphans.into_iter().filter(|chunk| !is_locked(&self.file, *chunk)) {
                books.orphans.remove(&chunk);
                books.free.insert(chunk);
            }
            books.lent.len() + books.orphans.len()
        })
    }

    /// Asks all programs for so many chunks.
    pub fn wish(&self, count: u32) {
        self.books(|books| {
            let frame = Head { kind: Kind::Wish, count, tag: 7 }.bytes();
            for stream in books.streams.values_mut() {
                let _ = stream.write_all(&frame);
            }
        });
    }

    /// Waits until something holds, for ten seconds at most.
    pub fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !holds(self) {
            assert!(Instant::now() < end, "not in time: {what}; {} chunks are out", self.out());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            self.ending.store(true, Ordering::Release);
            // (Where a test has moved the socket, nobody comes any more: it ends with the test.)
            if UnixStream::connect(&self.socket).is_ok() {
                let _ = accepting.join();
            }
        }
    }
}

fn is_locked(file: &File, chunk: u64) -> bool {
    i32::from(lock(file, chunk, libc::F_OFD_GETLK).unwrap().l_type) != libc::F_UNLCK
}

/// Locks a chunk, or asks who has.
fn lock(file: &File, chunk: u64, how: libc::c_int) -> std::io::Result<libc::flock> {
    // SAFETY: a structure of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_start = (chunk * CHUNK_BYTES) as i64;
    lock.l_len = CHUNK_BYTES as i64;
    // SAFETY: a descriptor and a lock.
    match unsafe { libc::fcntl(file.as_raw_fd(), how, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn peer(stream: &UnixStream) -> u32 {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let place = (&raw mut found).cast();
    // SAFETY: a socket, and room for what is asked of it.
    let done =
        unsafe { libc::getsockopt(stream.as_raw_fd(), level, option, place, &raw mut bytes) };
    assert_eq!(done, 0);
    found.pid as u32
}

fn serve(stream: UnixStream, file: &File, books: &Mutex<Books>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).is_err() || !line.contains("\"op\":\"heap\"") {
        return;
    }
    {
        let mut books = books.lock().unwrap();
        if books.sessions >= books.silent_from {
            let pid = peer(&stream);
            books.unanswered.push(pid);
            drop(books);
            let _ = reader.read_line(&mut line);
            return;
        }
    }
    // A description of its own: locks belong to descriptions.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let pool = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let answer = format!(
        "{{\"schema\":1,\"ok\":true,\"op\":\"heap\",\"version\":1,\"chunk_bytes\":{CHUNK_BYTES},\"region_bytes\":{}}}\n",
        file.metadata().unwrap().len()
    );
    send_with(&stream, answer.as_bytes(), pool.as_raw_fd());
    let id = {
        let mut books = books.lock().unwrap();
        books.next += 1;
        books.sessions += 1;
        let id = books.next;
        books.streams.insert(id, stream.try_clone().unwrap());
        id
    };
    let mut head = [0; HEAD_BYTES];
    while reader.read_exact(&mut head).is_ok() {
        let head = Head::parse(&head).unwrap();
        let list: Vec<u64> = (0..head.list_bytes() / 8)
            .map(|_| {
                let mut number = [0; 8];
                reader.read_exact(&mut number).map(|()| u64::from_le_bytes(number)).unwrap_or(0)
            })
            .collect();
        let mut books = books.lock().unwrap();
        let answer = books.answer(id, head, &list, (file, &pool));
        let granted = head.kind == Kind::Take && answer.as_ref().is_some_and(|it| it.len() > 16);
        let less = if granted { books.ends_granting.take() } else { None };
        if let Some(bytes) = answer
            && (&stream).write_all(&bytes[..bytes.len() - less.unwrap_or(0)]).is_err()
        {
            break;
        }
        if less.is_some() {
            stream.shutdown(std::net::Shutdown::Both).unwrap();
            break;
        }
    }
    drop(pool);
    let mut books = books.lock().unwrap();
    books.streams.remove(&id);
    let its: Vec<u64> =
        books.lent.iter().filter(|lent| *lent.1 == id).map(|lent| *lent.0).collect();
    for chunk in its {
        books.lent.remove(&chunk);
        let side = if is_locked(file, chunk) { &mut books.orphans } else { &mut books.free };
        side.insert(chunk);
    }
}

impl Books {
    fn answer(
        &mut self,
        id: u64,
        head: Head,
        list: &[u64],
        (file, pool): (&File, &File),
    ) -> Option<Vec<u8>> {
        let say = |kind, count, list: &[u64]| {
            let mut bytes = Head { kind, count, tag: head.tag }.bytes().to_vec();
            bytes.extend(list.iter().flat_map(|chunk| chunk.to_le_bytes()));
            Some(bytes)
        };
        match head.kind {
            Kind::Take => {
                let room = self.limit.saturating_sub(self.lent.len() + self.orphans.len());
                let count = room.min(head.count as usize);
                let taken: Vec<u64> = self.free.iter().copied().take(count).collect();
                if taken.is_empty() {
                    return say(Kind::Refused, Refusal::HeapLimit as u32, &[]);
                }
                for chunk in &taken {
                    self.free.remove(chunk);
                    if is_locked(file, *chunk) {
                        self.wrong.push(format!("free chunk {chunk} is locked"));
                    }
                    file.write_all_at(&vec![0; CHUNK_BYTES as usize], chunk * CHUNK_BYTES).unwrap();
                    lock(pool, *chunk, libc::F_OFD_SETLK).unwrap();
                    self.lent.insert(*chunk, id);
                }
                self.granted += taken.len();
                self.most = self.most.max(self.lent.len() + self.orphans.len());
                say(Kind::Granted, taken.len() as u32, &taken)
            }
            Kind::Return => {
                for chunk in list {
                    if self.lent.get(chunk) != Some(&id) {
                        self.wrong.push(format!("{id} returns {chunk}, which it doesn't have"));
                    } else if is_locked(file, *chunk) {
                        self.wrong.push(format!("{id} returns {chunk} with its lock on"));
                    } else {
                        self.lent.remove(chunk);
                        self.free.insert(*chunk);
                    }
                }
                say(Kind::Returned, list.len() as u32, &[])
            }
            Kind::Hold => {
                let held: Vec<u64> =
                    list.iter().copied().filter(|chunk| self.orphans.remove(chunk)).collect();
                held.iter().for_each(|chunk| {
                    self.lent.insert(*chunk, id);
                });
                self.held += held.len();
                say(Kind::Held, held.len() as u32, &held)
            }
            Kind::Spared => {
                self.spared += head.count as usize;
                None
            }
            kind => {
                self.wrong.push(format!("{kind:?} from a program"));
                None
            }
        }
    }
}

fn send_with(stream: &UnixStream, bytes: &[u8], descriptor: RawFd) {
    let mut part = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    let mut room = [0_u64; 4];
    // SAFETY: a message as sendmsg(2) has it, of parts that live as long as the call.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let head = &mut *libc::CMSG_FIRSTHDR(&raw const message);
        head.cmsg_level = libc::SOL_SOCKET;
        head.cmsg_type = libc::SCM_RIGHTS;
        head.cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(head).cast::<i32>().write_unaligned(descriptor);
        libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL);
    }
}
