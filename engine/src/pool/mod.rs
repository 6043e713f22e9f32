//! The public face: a pool that is open.

mod count;
mod found;
mod gauges;
mod handle;
mod lend;
mod locks;
mod report;

pub(crate) use count::OpCounts;
pub use found::{Found, Seen};
pub use handle::Handle;
pub(crate) use locks::{Child, Look};
pub use report::{CheckReport, ExtentDump, InodeDump, Opening, RecordDump};

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use lock_api::Mutex;
use lode_pmem::Medium;

use crate::VIEW;
use crate::inode::{Cache, Dentries, Grown, Node};
use crate::layout::BadPage;
use crate::space::Run;
use crate::store::{Room, Store};
use crate::{Error, Host, Ino, Op, OpenOptions, PageClass, PoolInfo, Result, StatFs, Stats};

/// One opening of a pool: equal to itself, and to no other. (A pool that is rolled back is opened anew.)
#[derive(Clone, Debug)]
pub struct Life(pub(crate) Arc<()>);

impl PartialEq for Life {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Life {}

/// An open pool. All methods may be called from many threads.
pub struct Pool<M: Medium, H: Host> {
    pub(crate) store: Box<Store<M, H>>,
    pub(crate) nodes: Cache<H>,
    pub(crate) dentries: Dentries,
    pub(crate) grown: Grown,
    pub(crate) options: OpenOptions,
    pub(crate) page_class: PageClass,
    pub(crate) opening: Opening,
    /// Pages of the checkpoint that a read-only opening goes by.
    pub(crate) checkpoint: Vec<Run>,
    /// Held by a rename that moves a directory to another one: the tree's shape is still.
    pub(crate) tree: Mutex<H::Mutex, ()>,
    pub(crate) counts: OpCounts,
}

impl<M: Medium, H: Host> Pool<M, H> {
    #[inline(never)]
    pub(crate) fn over(
        mut store: Box<Store<M, H>>,
        options: &OpenOptions,
        default_class: PageClass,
        opening: Opening,
        checkpoint: Vec<Run>,
    ) -> Result<Self> {
        *store.room = Room::of(options.index_memory);
        let pool = Self {
            nodes: Cache::new()?,
            dentries: Dentries::new(store.geometry.pages)?,
            grown: Grown::new(store.lanes.used(), store.geometry.has_short_pages())?,
            options: *options,
            page_class: options.page_class.unwrap_or(default_class),
            opening,
            checkpoint,
            tree: Mutex::new(()),
            counts: OpCounts::new(store.lanes.used())?,
            store,
        };
        pool.share_memory();
        Ok(pool)
    }

    /// The medium the pool is on.
    pub fn medium(&self) -> &M {
        self.store.door.medium()
    }

    /// How the pool was found.
    pub fn opening(&self) -> Opening {
        self.opening.clone()
    }

    /// The root directory.
    pub fn root(&self) -> Ino {
        self.store.root
    }

    /// Whether changes are refused: asked for at the opening, or forced by damage since.
    pub fn is_read_only(&self) -> bool {
        self.store.writable().is_err()
    }

    /// Whether overwrites may be torn by a crash: asked for at the opening.
    pub fn is_relaxed(&self) -> bool {
        self.options.relaxed
    }

    /// What the pool says of itself.
    pub fn info(&self) -> Result<PoolInfo> {
        let superblock = self.store.superblock.lock();
        let mut label = Vec::new();
        label.try_reserve_exact(superblock.label().len())?;
        label.extend_from_slice(superblock.label());
        let checkpointed = superblock.checkpoint != 0;
        Ok(PoolInfo {
            uuid: superblock.uuid,
            label,
            version: crate::layout::FORMAT_VERSION,
            bytes: superblock.pages * crate::PAGE_BYTES,
            lanes: superblock.lanes,
            protection: superblock.protection,
            dead_zone: superblock.geometry().dead_zone(),
            strip_bytes: superblock.strip_bytes(),
            page_class: superblock.page_class,
            session: superblock.session,
            epoch: superblock.epoch,
            created_ns: superblock.created_ns,
            clean: checkpointed && superblock.checkpoint_session == superblock.session,
            features: superblock.features,
            losses: superblock.losses,
        })
    }

    /// Lines and link words of metadata that were damaged in one of their two copies, and were made good
    /// from the other since the pool was opened.
    pub fn mended(&self) -> u64 {
        self.store.mended()
    }

    /// What became of damaged file data since the pool was opened, at level `full`.
    pub fn data_repairs(&self) -> crate::DataRepairs {
        self.store.repairs.read()
    }

    /// Counts since the pool was opened: exact, but that a read by a handle is not counted where its thread is moved to another processor
    /// just then, and another one counts there.
    pub fn stats(&self) -> Stats {
        Stats {
            ops: self.counts.read(),
            door: self.store.lanes.tally() + self.store.sectors.tally(),
            collected: self.counts.collected(),
            dropped_inodes: self.store.room.dropped(),
        }
    }

    /// Space and inodes, used and free.
    pub fn statfs(&self) -> StatFs {
        self.count(Op::Statfs);
        self.space()
    }

    /// The same, for those who only watch: not counted as an operation.
    pub fn space(&self) -> StatFs {
        let pages_free = self.store.space.free_pages() + self.store.quarantined_pages();
        let pages_available = pages_free.saturating_sub(self.store.reserve());
        let slots_a_page = crate::PAGE_BYTES / crate::layout::SLOT_BYTES;
        StatFs {
            pages: self.store.geometry.pages,
            pages_free,
            pages_available,
            // (That with the list of snapshots is nobody's.)
            inodes: self
                .store
                .table
                .used()
                .saturating_sub(u64::from(self.store.snapshots.home() != 0)),
            inodes_free: self.store.table.free() + pages_available * slots_a_page,
        }
    }

    /// Background work that is due: a round, empty table pieces, memory. Call it now and then
    /// (about once a second) from one thread.
    pub fn maintain(&self) -> Result<()> {
        self.share_memory();
        self.nodes.make_all_room(&self.store);
        match self.store.before_operation() {
            Err(Error::ReadOnly) => return Ok(()),
            result => result?,
        }
        self.store.keep_bad()?;
        self.store.end_snapshots();
        if self.store.quarantine_holds() {
            self.count(Op::Round);
            self.store.round()?;
        }
        self.store.release_empty_pieces()
    }

    /// Pages with memory that can't be loaded, as far as that is known, in order.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn bad_memory(&self) -> Result<Vec<BadPage>> {
        self.store.bad.list()
    }

    /// Calls `each` with every inode in use until it returns false.
    pub fn for_each_inode(&self, each: &mut dyn FnMut(Ino) -> bool) -> Result<()> {
        let mut pieces = Vec::new();
        self.store.table.for_each_piece(&mut |piece| {
            pieces.try_reserve(1)?;
            pieces.push(piece.clone());
            Ok(())
        })?;
        for piece in pieces {
            for index in 1..piece.slots() {
                if piece.tail(index) != 0 && !each(piece.ino(index)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The numbers of all inodes in use.
    pub(crate) fn inodes(&self) -> Result<Vec<Ino>> {
        let mut inodes = Vec::new();
        let mut result = Ok(());
        self.for_each_inode(&mut |ino| {
            result = inodes.try_reserve(1).map_err(Error::from);
            if result.is_ok() {
                inodes.push(ino);
            }
            result.is_ok()
        })?;
        result.map(|()| inodes)
    }

    pub(crate) fn node(&self, ino: Ino) -> Result<Arc<Node<H>>> {
        if ino >= VIEW {
            return self.view_node(ino);
        }
        match self.nodes.get(&self.store, ino) {
            Err(Error::Stale) => Err(self.why_absent(ino)),
            found => found,
        }
    }

    /// Why there is no inode of a number: an opening for reading alone goes on without those that it has found to be lost.
    #[cold]
    pub(crate) fn why_absent(&self, ino: Ino) -> Error {
        let lost = self.opening.damage.iter().find(|damage| damage.ino == ino && ino != 0);
        lost.map_or(Error::Stale, |damage| Error::Corrupt(*damage))
    }

    /// As [`Pool::node`], for one that is to be changed.
    pub(crate) fn node_to_change(&self, ino: Ino) -> Result<Arc<Node<H>>> {
        self.store.before_operation()?;
        self.node(ino)
    }

    #[inline]
    pub(crate) fn count(&self, op: Op) {
        self.counts.add(self.store.lane(), op);
    }

    /// The same of what changes nothing, with no barrier: [`OpCounts::add_here`].
    #[inline]
    pub(crate) fn count_look(&self, op: Op) {
        self.counts.add_here(self.store.lane(), op);
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> i64 {
        self.store.host.now_ns()
    }
}
