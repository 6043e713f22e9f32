//! Names, types and sizes in memory, and the answers to the kernel made of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fuse_abi::linux::{fuse_attr, fuse_entry_out, fuse_kstatfs};
use lode_fuse::bare::{FOREVER, Keeping, ROOT_TTL};
use lode_fuse::wire::{
    Answer, Entry, Errno, Handler, Listing, NodeId, Operation, Request, Room, Scratch, Who,
};
use parking_lot::RwLock;

/// `d_off` of `.` and `..`, behind which entries begin.
const DOTS: u64 = 2;

/// What the server knows of a file or directory.
struct Node {
    number: u64,
    mode: u32,
    who: Who,
    size: AtomicU64,
    /// No name leads to it: it goes when the kernel forgets it.
    nameless: AtomicBool,
    /// Of a directory: names in it, by a number that stays, for listings.
    names: RwLock<Names>,
}

#[derive(Default)]
struct Names {
    by_name: HashMap<Box<[u8]>, (u64, u64)>,
    by_place: BTreeMap<u64, (Box<[u8]>, u64)>,
    next: u64,
}

impl Names {
    /// Returns what had the name.
    fn add(&mut self, name: &[u8], node: u64) -> Option<u64> {
        let before = self.remove(name);
        self.next += 1;
        let place = DOTS + self.next;
        self.by_name.insert(name.into(), (place, node));
        self.by_place.insert(place, (name.into(), node));
        before
    }

    fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let (place, node) = self.by_name.remove(name)?;
        self.by_place.remove(&place);
        Some(node)
    }
}

/// A server that stores nothing.
pub struct Nodes {
    keeping: Keeping,
    all: RwLock<HashMap<u64, Arc<Node>>>,
    next: AtomicU64,
}

impl Nodes {
    /// An empty root directory.
    pub fn new(keeping: Keeping) -> Self {
        let root = Node {
            number: NodeId::ROOT.0,
            mode: libc::S_IFDIR | 0o755,
            who: Who { uid: rustix::process::geteuid().as_raw(), gid: 0, pid: 0 },
            size: AtomicU64::new(0),
            nameless: AtomicBool::new(false),
            names: RwLock::default(),
        };
        let all = RwLock::new(HashMap::from([(root.number, Arc::new(root))]));
        Self { keeping, all, next: AtomicU64::new(NodeId::ROOT.0 + 1) }
    }

    fn node(&self, number: NodeId) -> Result<Arc<Node>, Errno> {
        self.all.read().get(&number.0).cloned().ok_or(Errno::ENOENT)
    }

    fn attr_ttl(node: &Node) -> Duration {
        if node.number == NodeId::ROOT.0 { ROOT_TTL } else { FOREVER }
    }

    fn attr(node: &Node) -> fuse_attr {
        let size = node.size.load(Relaxed);
        fuse_attr {
            ino: node.number,
            size,
            // Nothing has holes: who asks for space would be told that it is there.
            blocks: size.div_ceil(512),
            mode: node.mode,
            nlink: 1,
            uid: node.who.uid,
            gid: node.who.gid,
            blksize: 4096,
            ..fuse_attr::default()
        }
    }

    fn entry(node: &Node) -> Entry {
        let (attr, attr_ttl) = (Self::attr(node), Self::attr_ttl(node));
        Entry { node: NodeId(attr.ino), attr, generation: 1, attr_ttl, entry_ttl: FOREVER }
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Answer<'static>, Errno> {
        let found = self.node(dir)?.names.read().by_name.get(name).map(|(_, node)| NodeId(*node));
        match found {
            Some(number) => Ok(Answer::entry(Self::entry(&*self.node(number)?))),
            None => Ok(Answer::absent(FOREVER)),
        }
    }

    fn make(&self, who: Who, dir: NodeId, name: &[u8], mode: u32) -> Result<Entry, Errno> {
        let number = self.next.fetch_add(1, Relaxed);
        let node = Arc::new(Node {
            number,
            mode,
            who,
            size: AtomicU64::new(0),
            nameless: AtomicBool::new(false),
            names: RwLock::default(),
        });
        let entry = Self::entry(&node);
        self.all.write().insert(number, node);
        self.node(dir)?.names.write().add(name, number);
        Ok(entry)
    }

    fn remove(&self, dir: NodeId, name: &[u8]) -> Result<Answer<'static>, Errno> {
        let removed = self.node(dir)?.names.write().remove(name).ok_or(Errno::ENOENT)?;
        self.node(NodeId(removed))?.nameless.store(true, Relaxed);
        Ok(Answer::Done)
    }

    fn rename(
        &self,
        (from, name): (NodeId, &[u8]),
        (to, new_name): (NodeId, &[u8]),
    ) -> Result<Answer<'static>, Errno> {
        let node = self.node(from)?.names.write().remove(name).ok_or(Errno::ENOENT)?;
        if let Some(replaced) = self.node(to)?.names.write().add(new_name, node) {
            self.node(NodeId(replaced))?.nameless.store(true, Relaxed);
        }
        Ok(Answer::Done)
    }

    /// (The kernel forgets an inode with all lookups of it.)
    fn forget(&self, number: NodeId) {
        if self.node(number).is_ok_and(|node| node.nameless.load(Relaxed)) {
            self.all.write().remove(&number.0);
        }
    }

    fn list<'s>(
        &self,
        dir: NodeId,
        position: u64,
        room: &'s mut [u8],
        with_attributes: bool,
    ) -> Result<Answer<'s>, Errno> {
        let dir = self.node(dir)?;
        let mut listing = Listing::new(room);
        for (behind, name) in [(1, &b"."[..]), (DOTS, b"..")] {
            if behind <= position {
                continue;
            }
            let none = fuse_entry_out::default();
            let added = match with_attributes {
                true => listing.add_entry(&none, behind, libc::S_IFDIR, name),
                false => listing.add(NodeId(dir.number), behind, libc::S_IFDIR, name),
            };
            if added == Room::Full {
                return Ok(listing.finish());
            }
        }
        let names = dir.names.read();
        for (behind, (name, number)) in names.by_place.range(position.max(DOTS) + 1..) {
            let node = self.node(NodeId(*number))?;
            let added = match with_attributes {
                true => listing.add_entry(&Self::entry(&node).into(), *behind, node.mode, name),
                false => listing.add(NodeId(*number), *behind, node.mode, name),
            };
            if added == Room::Full {
                break;
            }
        }
        Ok(listing.finish())
    }

    fn read<'s>(
        &self,
        node: NodeId,
        offset: u64,
        size: u32,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        let left = self.node(node)?.size.load(Relaxed).saturating_sub(offset);
        let bytes = left.min(u64::from(size)) as usize;
        Ok(Answer::data(scratch.room(bytes)?))
    }

    fn space() -> Answer<'static> {
        const BLOCKS: u64 = 1 << 20;
        Answer::space(fuse_kstatfs {
            blocks: BLOCKS,
            bfree: BLOCKS,
            bavail: BLOCKS,
            files: BLOCKS,
            ffree: BLOCKS,
            bsize: 4096,
            namelen: 255,
            frsize: 4096,
            ..fuse_kstatfs::default()
        })
    }
}

impl Handler for Nodes {
    type Pass<'a> = ();

    fn enter(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn answer<'s>(
        &self,
        (): &(),
        request: &Request<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        let Request { node, who, operation } = *request;
        match operation {
            Operation::Lookup { name } => self.lookup(node, name),
            Operation::Getattr => {
                let node = self.node(node)?;
                Ok(Answer::attr(Self::attr(&node), Self::attr_ttl(&node)))
            }
            Operation::Setattr(changes) => {
                let node = self.node(node)?;
                if let Some(size) = changes.size {
                    node.size.store(size, Relaxed);
                }
                Ok(Answer::attr(Self::attr(&node), Self::attr_ttl(&node)))
            }
            Operation::Create(file) => {
                let entry = self.make(who, node, file.name, file.mode & !file.umask)?;
                Ok(Answer::created(entry, self.keeping.open_flags(file.flags, false)))
            }
            Operation::Mkdir { name, mode, umask } => {
                let mode = libc::S_IFDIR | mode & 0o7777 & !umask;
                self.make(who, node, name, mode).map(Answer::entry)
            }
            Operation::Unlink { name } | Operation::Rmdir { name } => self.remove(node, name),
            Operation::Rename { name, to, new_name, .. } => {
                self.rename((node, name), (to, new_name))
            }
            // (`map-store-64` and `map-read-4k` map files. None of these is opened again, and nobody looks at what they hold: so
            // that they are mapped need not be known.)
            Operation::Open { flags } => Ok(Answer::opened(self.keeping.open_flags(flags, false))),
            Operation::Opendir => self.keeping.opendir(),
            Operation::Read { offset, size, .. } => self.read(node, offset, size, scratch),
            Operation::Write(new) => {
                let bytes = new.data.len();
                let end = new.offset.saturating_add(bytes as u64);
                self.node(node)?.size.fetch_max(end, Relaxed);
                Ok(Answer::written(bytes as u32))
            }
            Operation::Readdir { position, size } => {
                self.list(node, position, scratch.room(size as usize)?, false)
            }
            Operation::Readdirplus { position, size } => {
                self.list(node, position, scratch.room(size as usize)?, true)
            }
            Operation::Fallocate { offset, length, .. } => {
                self.node(node)?.size.fetch_max(offset.saturating_add(length), Relaxed);
                Ok(Answer::Done)
            }
            Operation::Statfs => Ok(Self::space()),
            Operation::Forget { .. } => {
                self.forget(node);
                Ok(Answer::Done)
            }
            Operation::BatchForget(forgets) => {
                forgets.each().for_each(|(node, _)| self.forget(node));
                Ok(Answer::Done)
            }
            Operation::Release { .. } | Operation::Releasedir => Ok(Answer::Done),
            Operation::Getxattr { .. } => Err(Errno::new(libc::ENODATA)),
            // As the mount answers: durable already, or made of simpler requests from now on.
            _ => Err(Errno::ENOSYS),
        }
    }
}
