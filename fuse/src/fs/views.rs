//! The directory `.lode` in the root: what a mount shows of itself, as files.
//!
//! It is in no listing. Whatever of the pool has that name is there in its place, but for the directory with volumes: of that
//! only `volumes` is seen, in this one. What is in it else can be
//! read and not changed; an open file keeps the text of the time when it was opened. The directory
//! `snapshots` in it is in a file of its own, [`super::snapshots`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fuse_abi::linux::{FOPEN_DIRECT_IO, FOPEN_NOFLUSH, fuse_attr, fuse_entry_out};
use lode_block::{DIRECTORY as NAME, VOLUMES};
use lode_engine::{Attr, Host, mode};
use lode_pmem::Medium;
use parking_lot::Mutex;
use serde_json::Value;

use super::convert::{attributes, attributes_with_birth};
use super::snapshots::{NAME as SNAPSHOTS_NAME, SNAPSHOTS};
use super::{FOREVER, Work};
use crate::lost::without_paths;
use crate::snapshots::Changed;
use crate::views::{Ask, View};
use crate::wire::{Answer, Entry, Errno, Listing, NodeId, Operation, Request, Room, Scratch};

/// Number of the directory; its files have the next ones. A pool's inodes have smaller numbers.
pub const DIRECTORY: u64 = 1 << 62;
/// Files that a user may have open at a time: each keeps its text.
const OPEN_MAX: usize = 64;
/// Bytes of all texts that are kept.
const TEXTS_MAX: usize = 32 << 20;
/// How long the kernel may keep what is no answer.
pub(super) const NEVER: Duration = Duration::ZERO;
/// Position in the listing behind `..`.
pub(super) const BEHIND_DOTS: u64 = 2;

/// What there is to see of a mount.
pub struct Views {
    files: Vec<View>,
    since_ns: i64,
    snapshots: Arc<Changed>,
    /// Lives of the directory: each ends when something of the pool takes its place, and the kernel takes
    /// what is open of it for dead.
    lives: AtomicU64,
    open: Mutex<Open>,
}

/// Texts of open files, by their numbers.
#[derive(Default)]
struct Open {
    last: u64,
    texts: HashMap<u64, Text>,
}

/// What an open file shows, and to whom.
struct Text {
    uid: u32,
    text: Arc<str>,
}

/// The directory, or what is in it.
#[derive(Clone, Copy)]
enum Place {
    Directory,
    Snapshots,
    File(View),
}

impl Views {
    /// These files. Without any there is no directory either. `snapshots` says when there were last other
    /// snapshots.
    pub fn new(files: &[View], snapshots: Arc<Changed>) -> Self {
        let (files, since_ns) = (files.to_vec(), lode_host::now_ns());
        let lives = AtomicU64::new(1);
        Self { files, since_ns, snapshots, lives, open: Mutex::default() }
    }

    /// Whether a name in a directory is theirs, if the pool has no such name.
    pub fn is_meant(&self, parent: NodeId, name: &[u8]) -> bool {
        parent == NodeId::ROOT && name == NAME && self.are_shown()
    }

    /// Whether there is a directory.
    pub fn are_shown(&self) -> bool {
        !self.files.is_empty()
    }

    /// Something of the pool was put in the directory's place.
    pub fn replaced(&self) {
        self.lives.fetch_add(1, Relaxed);
    }

    /// What an answer that names the directory consists of.
    pub fn directory(&self) -> Result<Entry, Errno> {
        self.entry(NodeId(DIRECTORY))
    }

    fn place(&self, node: NodeId) -> Result<Place, Errno> {
        match node.0.checked_sub(DIRECTORY) {
            Some(0) if self.are_shown() => Ok(Place::Directory),
            Some(_) if node == SNAPSHOTS && self.are_shown() => Ok(Place::Snapshots),
            Some(number) => {
                let at = number.checked_sub(1).and_then(|at| usize::try_from(at).ok());
                let file = at.and_then(|at| self.files.get(at));
                file.copied().map(Place::File).ok_or(Errno::ENOENT)
            }
            None => Err(Errno::EPERM),
        }
    }

    fn attr(&self, node: NodeId) -> Result<Attr, Errno> {
        let place = self.place(node)?;
        let (mode, links) = match place {
            Place::Directory => (mode::DIRECTORY | 0o555, 3),
            Place::Snapshots => (mode::DIRECTORY | 0o555, 2),
            Place::File(_) => (mode::FILE | 0o444, 1),
        };
        // The kernel keeps a listing until the time of the last change is another one.
        let changed = matches!(place, Place::Snapshots);
        let time_ns = if changed { self.snapshots.ns() } else { self.since_ns };
        Ok(Attr {
            ino: node.0,
            generation: 0,
            mode,
            links,
            uid: 0,
            gid: 0,
            rdev: 0,
            // Nobody knows before it is opened: as with files of the kernel's own.
            size: 0,
            pages: 0,
            atime_ns: time_ns,
            mtime_ns: time_ns,
            ctime_ns: time_ns,
            btime_ns: time_ns,
            xattrs: 0,
        })
    }

    pub(super) fn entry(&self, node: NodeId) -> Result<Entry, Errno> {
        let attr = attributes(&self.attr(node)?, node)?;
        let generation = if node.0 == DIRECTORY { self.lives.load(Relaxed) } else { 0 };
        let ttl = keeps(node);
        Ok(Entry { node, attr, generation, attr_ttl: ttl, entry_ttl: ttl })
    }

    /// Names with their numbers and positions behind them.
    fn names(&self) -> impl Iterator<Item = (NodeId, u64, &str)> {
        let dots = [(NodeId(DIRECTORY), 1, "."), (NodeId::ROOT, BEHIND_DOTS, "..")];
        let last = BEHIND_DOTS + 1 + self.files.len() as u64;
        let files =
            self.files.iter().zip(1..).map(|(file, number)| {
                (NodeId(DIRECTORY + number), BEHIND_DOTS + number, file.name)
            });
        dots.into_iter().chain(files).chain([(SNAPSHOTS, last, SNAPSHOTS_NAME)])
    }

    fn lookup(&self, node: NodeId, name: &[u8]) -> Result<Answer<'static>, Errno> {
        let named = match (name, self.place(node)?) {
            (b".", _) => Some(node),
            (_, Place::File(_)) => return Err(Errno::new(libc::ENOTDIR)),
            (name, _) => {
                self.names().find(|(_, _, other)| other.as_bytes() == name).map(|found| found.0)
            }
        };
        match named {
            None => Ok(Answer::absent(FOREVER)),
            Some(found) => Ok(Answer::entry(self.entry(found)?)),
        }
    }

    /// A listing from `position` on; with what a lookup of each name would answer, if `looked_up`.
    fn list<'s>(
        &self,
        (position, volumes): (u64, Option<NodeId>),
        looked_up: bool,
        room: &'s mut [u8],
    ) -> Result<Answer<'s>, Errno> {
        let mut list = Listing::new(room);
        let last = BEHIND_DOTS + 2 + self.files.len() as u64;
        for (node, behind, name) in self.names().filter(|(_, behind, _)| *behind > position) {
            let below = behind > BEHIND_DOTS;
            let file = below && node != SNAPSHOTS;
            let kind = if file { mode::FILE } else { mode::DIRECTORY };
            let added = if looked_up {
                let attr = fuse_attr { ino: node.0, mode: kind, ..fuse_attr::default() };
                // The kernel takes no inode from the first two.
                let dots = Entry { node, attr, generation: 0, attr_ttl: NEVER, entry_ttl: NEVER };
                let entry = if below { self.entry(node)? } else { dots };
                list.add_entry(&entry.into(), behind, kind, name.as_bytes())
            } else {
                list.add(node, behind, kind, name.as_bytes())
            };
            if added == Room::Full {
                return Ok(list.finish());
            }
        }
        if let Some(node) = volumes.filter(|_| position < last) {
            // (Of this one the kernel takes no attributes.)
            let attr = fuse_attr { ino: node.0, mode: mode::DIRECTORY, ..fuse_attr::default() };
            let unknown = fuse_entry_out { attr, ..fuse_entry_out::default() };
            let _ = match looked_up {
                true => list.add_entry(&unknown, last, mode::DIRECTORY, VOLUMES),
                false => list.add(node, last, mode::DIRECTORY, VOLUMES),
            };
        }
        Ok(list.finish())
    }

    /// Opens a file for reading: its text is written now, by what `ask` tells.
    fn open(
        &self,
        node: NodeId,
        flags: u32,
        uid: u32,
        ask: &mut Ask<'_>,
    ) -> Result<Answer<'static>, Errno> {
        let Place::File(file) = self.place(node)? else {
            return Err(Errno::new(libc::EISDIR));
        };
        if flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY {
            return Err(Errno::EPERM);
        }
        let text = (file.text)(ask).map_err(|error| {
            tracing::warn!(name = file.name, error, "a view could not be written");
            Errno::EIO
        })?;
        let mut open = self.open.lock();
        if open.texts.values().filter(|text| text.uid == uid).count() >= OPEN_MAX {
            return Err(Errno::new(libc::EMFILE));
        }
        let kept: usize = open.texts.values().map(|text| text.text.len()).sum();
        if kept + text.len() > TEXTS_MAX {
            return Err(Errno::new(libc::ENFILE));
        }
        open.last += 1;
        let handle = open.last;
        open.texts.insert(handle, Text { uid, text: text.into() });
        Ok(Answer::opened_as(handle, FOPEN_DIRECT_IO | FOPEN_NOFLUSH))
    }

    fn read<'s>(&self, handle: u64, offset: u64, room: &'s mut [u8]) -> Result<Answer<'s>, Errno> {
        let text = self.open.lock().texts.get(&handle).map(|text| Arc::clone(&text.text));
        let text = text.ok_or(Errno::EINVAL)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = text.as_bytes().get(from..).unwrap_or_default();
        let len = rest.len().min(room.len());
        let (Some(read), Some(rest)) = (room.get_mut(..len), rest.get(..len)) else {
            return Err(Errno::EIO);
        };
        read.copy_from_slice(rest);
        Ok(Answer::data(read))
    }

    fn close(&self, handle: u64) -> Answer<'static> {
        self.open.lock().texts.remove(&handle);
        Answer::Done
    }
}

/// How long the kernel may keep the name of what is here, and its attributes.
fn keeps(node: NodeId) -> Duration {
    if node == SNAPSHOTS { NEVER } else { FOREVER }
}

/// Whether a request is about what is here.
pub fn is_view(request: &Request<'_>) -> bool {
    request.nodes().iter().any(|node| node.0 >= DIRECTORY)
}

impl<M: Medium + 'static, H: Host> Work<'_, M, H> {
    /// Requests about the directory and its files. Those that would change something are
    /// not permitted; none of the answers lets the kernel ask less of other files.
    pub(super) fn answer_view<'s>(
        &self,
        request: &Request<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        if request.nodes().contains(&SNAPSHOTS) && self.views.place(SNAPSHOTS).is_ok() {
            return self.answer_snapshots(request, scratch);
        }
        self.answer_any_view(request, scratch)
    }

    /// The directory that volumes are in, if there is one.
    pub(super) fn volumes(&self) -> Result<Option<NodeId>, Errno> {
        let found = lode_block::home(self.pool(), self.ino(NodeId::ROOT));
        let failed = |error: lode_block::Error| Errno::new(error.errno());
        Ok(found.map_err(failed)?.map(|ino| self.served.node(ino)))
    }

    /// It is an inode as others are; but its name here comes and goes without the kernel.
    fn lookup_volumes(&self) -> Result<Answer<'static>, Errno> {
        let Some(node) = self.volumes()? else { return Ok(Answer::absent(NEVER)) };
        let ino = self.ino(node);
        let attr = self.pool().getattr(ino).map_err(|error| self.errno_in(ino, &error))?;
        Ok(Answer::entry(Entry { entry_ttl: NEVER, ..self.named(&attr)? }))
    }

    /// The same, as far as it is the same for all of them.
    pub(super) fn answer_any_view<'s>(
        &self,
        request: &Request<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        let (node, views) = (request.node, &self.views);
        match request.operation {
            Operation::Lookup { name: b".." } => self.do_lookup(NodeId::ROOT, b"."),
            Operation::Lookup { name: VOLUMES } if node.0 == DIRECTORY => self.lookup_volumes(),
            Operation::Lookup { name } => views.lookup(node, name),
            Operation::Forget { .. } | Operation::BatchForget(_) => Ok(Answer::Done),
            Operation::Getattr => {
                Ok(Answer::attr(attributes(&views.attr(node)?, node)?, keeps(node)))
            }
            Operation::Statx => {
                Ok(Answer::statx(attributes_with_birth(&views.attr(node)?, node)?, keeps(node)))
            }
            Operation::Open { flags } => {
                let uid = request.who.uid;
                let sees_all = uid == 0 || uid == rustix::process::geteuid().as_raw();
                let mut ask = |request: &Value| {
                    let mut answer = self.desk.ask(self.served, request)?;
                    if !sees_all {
                        without_paths(&mut answer);
                    }
                    Ok(answer)
                };
                views.open(node, flags, uid, &mut ask)
            }
            Operation::Read { handle, offset, size, .. } => {
                views.read(handle, offset, scratch.room(size as usize)?)
            }
            Operation::Release { handle } => Ok(views.close(handle)),
            Operation::Opendir => self.keeping.opendir(),
            Operation::Readdir { position, size } => {
                views.list((position, self.volumes()?), false, scratch.room(size as usize)?)
            }
            Operation::Readdirplus { position, size } => {
                views.list((position, self.volumes()?), true, scratch.room(size as usize)?)
            }
            Operation::Releasedir | Operation::Fsync | Operation::Fsyncdir => Ok(Answer::Done),
            Operation::Statfs => Ok(self.do_statfs()),
            Operation::Getxattr { .. } => Err(Errno::new(libc::ENODATA)),
            Operation::Listxattr { size: 0 } => Ok(Answer::size(0)),
            Operation::Listxattr { .. } => Ok(Answer::data(&[])),
            Operation::Lseek { .. } => Err(Errno::ENXIO),
            Operation::Ioctl => Err(Errno::ENOTTY),
            Operation::Flush | Operation::Access => Err(Errno::ENOSYS),
            _ => Err(Errno::EPERM),
        }
    }
}
