//! Making inodes and links: one fence, no log page for a small file (PROTOCOL I7).

use alloc::sync::Arc;

use lode_pmem::{Line, Medium};

use crate::file::Staged;
use crate::index::hash;
use crate::inode::{Body as Kind, Directory, File, Node, State, Target, entry_lines, head_of_word};
use crate::inode::{bring_inline, find_among, has_first_page, tidy, valid_name};
use crate::layout::{Anchor, Body, Identity, LINE, slot_at, stored_seal, tag_of};
use crate::log::{INLINE, Log, Placed, Plan};
use crate::pool::Found;
use crate::space::{Run, Use};
use crate::store::{Purpose, Slot, Tx};
use crate::{
    Attr, Error, Host, Ino, NewInode, Op, Pool, Result, Rule, SYMLINK_MAX, XattrChange, mode,
};

/// The longest target of a symbolic link that is kept in its log.
const TARGET_IN_LOG: usize = 136;
/// Names of one hash that a directory can tell apart.
const COLLISIONS_MAX: usize = 255;
/// Most links an inode can have.
const LINKS_MAX: u32 = i32::MAX as u32;

/// An inode that is about to be made.
pub(super) struct Birth<'a> {
    pub(super) mode: u32,
    /// 1, or 0 for a file without a name.
    pub(super) links: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) extra: [u8; 16],
    pub(super) rdev: u64,
    pub(super) target: &'a [u8],
    pub(super) xattrs: &'a [XattrChange<'a>],
}

/// Where an inode gets its name, and the name's hash.
pub(super) type Entry<'e> = (&'e mut State, &'e [u8], u64);

/// What a birth has taken before its first record.
struct Ready {
    /// Where a long target is.
    target: Option<Run>,
    staged: Staged,
    /// For the parent's log, and for its own.
    plan: Plan,
    own: Plan,
    /// Lines of the entry.
    entry_lines: u32,
}

impl<M: Medium, H: Host> Pool<M, H> {
    /// Makes a file, directory, FIFO, socket or device.
    pub fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr> {
        self.create_with(dir, name, new, &[])
    }

    /// As [`Pool::create`], with extended attributes: all of it is one atomic operation.
    ///
    /// # Errors
    /// Those of [`Pool::setxattr`], too; [`Error::Invalid`] where a name is there twice.
    pub fn create_with(
        &self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        Ok(self.create_node(&*self.node_to_change(dir)?, name, new, xattrs)?.1)
    }

    /// The same, in a directory that was found.
    pub fn create_in(
        &self,
        dir: &Found<H>,
        name: &[u8],
        new: &NewInode,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Found<H>> {
        self.store.before_operation()?;
        let (node, attr) = self.create_node(&dir.node, name, new, xattrs)?;
        let node = node.map_or_else(|| self.node(attr.ino), Ok)?;
        Ok(Found { node, attr })
    }

    fn create_node(
        &self,
        dir: &Node<H>,
        name: &[u8],
        new: &NewInode,
        xattrs: &[XattrChange<'_>],
    ) -> Result<(Option<Arc<Node<H>>>, Attr)> {
        let NewInode { mode, uid, gid, rdev } = *new;
        if mode > mode::ALL {
            return Err(Error::Invalid);
        }
        // What is no device has no device's number.
        let (op, extra, rdev) = match mode & mode::TYPE {
            mode::FILE => (Op::Create, head_of_word(u64::from(self.page_class as u8)), 0),
            mode::DIRECTORY => (Op::Mkdir, head_of_word(dir.ino()), 0),
            mode::FIFO | mode::SOCKET => (Op::Mknod, head_of_word(0), 0),
            mode::CHARACTER | mode::BLOCK => (Op::Mknod, head_of_word(rdev.rotate_left(32)), rdev),
            _ => return Err(Error::Invalid),
        };
        self.count(op);
        let birth = Birth { mode, links: 1, uid, gid, extra, rdev, target: &[], xattrs };
        self.give_birth(dir, name, &birth)
    }

    /// Makes a symbolic link. A target of up to 136 bytes is in the inode's own log.
    pub fn symlink(
        &self,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<Attr> {
        self.symlink_node(&*self.node_to_change(dir)?, name, target, (uid, gid))
    }

    /// The same, in a directory that was found.
    pub fn symlink_in(
        &self,
        dir: &Found<H>,
        name: &[u8],
        target: &[u8],
        owner: (u32, u32),
    ) -> Result<Attr> {
        self.store.before_operation()?;
        self.symlink_node(&dir.node, name, target, owner)
    }

    fn symlink_node(
        &self,
        dir: &Node<H>,
        name: &[u8],
        target: &[u8],
        (uid, gid): (u32, u32),
    ) -> Result<Attr> {
        self.count(Op::Symlink);
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() > SYMLINK_MAX {
            return Err(Error::NameTooLong);
        }
        let extra = Body::head_of(target);
        let mode = mode::SYMLINK | 0o777;
        let birth = Birth { mode, links: 1, uid, gid, extra, rdev: 0, target, xattrs: &[] };
        Ok(self.give_birth(dir, name, &birth)?.1)
    }

    fn give_birth(
        &self,
        node: &Node<H>,
        name: &[u8],
        birth: &Birth<'_>,
    ) -> Result<(Option<Arc<Node<H>>>, Attr)> {
        let mut parent = node.write(&self.store)?;
        parent.directory()?;
        valid_name(&self.store.geometry, name)?;
        let hash = self.may_enter(&parent, name)?;
        let slot = self.store.take_slot()?;
        let ino = slot.ino();
        match self.give_birth_in(Some((&mut parent, name, hash)), slot, birth) {
            Ok(mut born) => {
                node.slot.set_tail(parent.log.tail.last_seal);
                self.store.table.count_used(&born.slot, true);
                let state = Node::newborn(&mut born)?;
                let (attr, tail) = (state.attr(), state.log.tail.last_seal);
                let born = self.nodes.insert(&self.store, born, tail);
                self.tidy(&node.slot, &mut parent);
                Ok((born.ok(), attr))
            }
            Err(error) => {
                parent.log.unreserve(&self.store);
                self.store.table.give_slot(ino);
                Err(error)
            }
        }
    }

    /// Whether an entry with this name can be made; returns the name's hash.
    pub(crate) fn may_enter(&self, parent: &State, name: &[u8]) -> Result<u64> {
        parent.directory()?;
        if parent.is_dead() {
            return Err(Error::NotFound);
        }
        let hash = hash(self.store.secret, name);
        let (found, same) = find_among(&self.store, parent, hash, name)?;
        match found {
            Some(_) => Err(Error::Exists),
            None if same >= COLLISIONS_MAX => Err(Error::NoSpace),
            None => Ok(hash),
        }
    }

    /// Stores a new inode and its entry. If that fails, nothing is left of it but what the
    /// parent's log has reserved.
    #[inline(never)]
    pub(super) fn give_birth_in(
        &self,
        mut under: Option<Entry<'_>>,
        slot: Slot,
        birth: &Birth<'_>,
    ) -> Result<Arc<Node<H>>> {
        let store = &self.store;
        let ino = slot.ino();
        let same = store.host.leaves_out(Rule::SlotNonce);
        let nonce = if same { 1 << 32 | ino } else { store.nonce() };
        let at = slot_at(ino);
        let identity = Identity { ino, nonce }.line(&store.seed, at, None);
        let seed = store.seed.log(ino, nonce, at / crate::PAGE_BYTES, 0);
        let log = Log::new(&store.geometry, (ino, nonce), stored_seal(&identity), seed);
        let (mut node, first) = self.newborn(slot, log, birth);
        let state = Node::newborn(&mut node)?;
        let mut ready = self.prepare_birth(&mut under, state, &first, birth)?;
        let mut tx = match self.begin_birth(&ready) {
            Ok(tx) => tx,
            Err(error) => {
                self.undo_birth(state, &ready);
                return Err(error);
            }
        };
        let parts = (&mut *state, &first, &mut ready);
        let entry = self.store_birth(&mut tx, (at, &identity), under.as_mut(), parts, birth);
        let epoch = tx.epoch();
        tx.commit_while(|| self.note_birth((&mut under, &entry), state, (&mut ready, epoch)))?;
        Ok(node)
    }

    /// Stores what a birth consists of; says where its entry is.
    #[inline(never)]
    fn store_birth(
        &self,
        tx: &mut Tx<'_, M, H>,
        (at, identity): (u64, &Line),
        under: Option<&mut Entry<'_>>,
        (state, first, ready): (&mut State, &Body, &mut Ready),
        birth: &Birth<'_>,
    ) -> Option<Placed> {
        let store = &self.store;
        tx.line(at, identity);
        let place = state.log.append_text(tx, store, first, birth_text(state, birth));
        if let Some(run) = ready.target {
            self.map_target(tx, state, run, place.ordinal, birth.target.len() as u64);
        }
        let late = store.host.leaves_out(Rule::XattrInOne);
        if !late {
            self.append_xattrs(tx, state, &mut ready.staged);
        }
        let entry = under.map(|(parent, name, _)| {
            let add = self.entry_of(state, name, state.btime_ns);
            parent.log.append_text(tx, store, &add, name)
        });
        if late {
            self.append_xattrs(tx, state, &mut ready.staged);
        }
        entry
    }

    /// Makes memory say what the records of a birth do.
    #[inline(never)]
    fn note_birth(
        &self,
        (under, entry): (&mut Option<Entry<'_>>, &Option<Placed>),
        state: &mut State,
        (ready, epoch): (&mut Ready, u32),
    ) -> Result<()> {
        self.show_xattrs(state, core::mem::take(&mut ready.staged), epoch);
        if let (Some((parent, name, hash)), Some(entry)) = (under, entry) {
            let place = (entry.at, entry.ordinal);
            let child = (state.log.ino, (state.mode >> 12) as u8);
            parent.add_entry(*hash, child, place, entry_lines(name.len()), state.btime_ns)?;
        }
        state.put_in(&self.store.room);
        Ok(())
    }

    /// Begins the transaction of a birth.
    #[inline(never)]
    fn begin_birth(&self, ready: &Ready) -> Result<Tx<'_, M, H>> {
        let Ready { plan, own, staged, entry_lines, .. } = ready;
        let extra_bytes = LINE + plan.extra_bytes() + own.extra_bytes();
        let mut tx = self.store.begin(plan.lines + own.lines, extra_bytes)?;
        let attributes: u32 = staged.lines().sum();
        if *entry_lines > 0 {
            tx.split(Rule::CreateInOne, own.lines);
            tx.split(Rule::NameInOne, plan.lines + own.lines + 1 - entry_lines);
        }
        tx.split(Rule::XattrInOne, plan.lines + own.lines - attributes);
        Ok(tx)
    }

    /// An entry that leads to an inode.
    #[inline(never)]
    fn entry_of(&self, state: &State, name: &[u8], time_ns: i64) -> Body {
        Body::Add {
            name_len: name.len() as u8,
            replaces: false,
            tag: tag_of(state.log.nonce),
            time_ns,
            ino: state.log.ino,
            kind: (state.mode >> 12) as u8,
            head: Body::head_of(name),
        }
    }

    /// Reserves what a birth needs, and streams what is durable before its records. If it
    /// fails, nothing is left but what the parent's log has reserved.
    #[inline(never)]
    fn prepare_birth(
        &self,
        under: &mut Option<Entry<'_>>,
        state: &mut State,
        first: &Body,
        birth: &Birth<'_>,
    ) -> Result<Ready> {
        let store = &self.store;
        let in_page = birth.target.len() > TARGET_IN_LOG;
        let target = in_page.then(|| self.store.on_good_pages(|| self.stream_target(birth.target)));
        let target = target.transpose()?;
        let staged = match self.stage_xattrs(state, birth.xattrs, self.now_ns()) {
            Ok(staged) => staged,
            Err(error) => {
                target.into_iter().for_each(|run| store.give(run));
                return Err(error);
            }
        };
        let entry_lines = under.as_ref().map_or(0, |(_, name, _)| entry_lines(name.len()));
        let plan = under.as_ref().map(|(parent, ..)| parent.log.plan([entry_lines]));
        let plan = plan.unwrap_or_default();
        let lines = [first.lines(), u32::from(in_page)];
        let own = state.log.plan(lines.into_iter().chain(staged.lines()));
        let ready = Ready { target, staged, plan, own, entry_lines };
        let reserved = match under {
            Some((parent, ..)) => parent.log.reserve(store, &plan, Purpose::Grows),
            None => Ok(()),
        };
        let reserved = reserved.and_then(|()| state.log.reserve(store, &own, Purpose::Grows));
        match reserved.and_then(|()| self.nodes.reserve(store, state.log.ino)) {
            Ok(()) => Ok(ready),
            Err(error) => {
                self.undo_birth(state, &ready);
                Err(error)
            }
        }
    }

    /// Gives back what a birth took that does not happen.
    #[cold]
    #[inline(never)]
    fn undo_birth(&self, state: &mut State, ready: &Ready) {
        ready.target.into_iter().for_each(|run| self.store.give(run));
        self.give_staged(&ready.staged);
        state.log.unreserve(&self.store);
    }

    /// Stores where a long target is.
    #[inline(never)]
    fn map_target(
        &self,
        tx: &mut Tx<'_, M, H>,
        state: &mut State,
        run: Run,
        origin: u32,
        size: u64,
    ) {
        let (epoch, time_ns) = (tx.epoch(), state.btime_ns);
        let (page, class) = (run.page, crate::PageClass::Small);
        let map = Body::Map { class, pages: 1, file_page: 0, page, time_ns, size };
        state.log.append(tx, &self.store, &map);
        let extent = crate::index::Extent { file_page: 0, page, pages: 1, class, epoch, origin };
        state.map(extent, size, time_ns, &mut |_| ());
    }

    /// A new inode, and its first record.
    #[inline(never)]
    fn newborn(&self, slot: Slot, log: Log, birth: &Birth<'_>) -> (Arc<Node<H>>, Body) {
        let time_ns = self.now_ns();
        let kind = birth.mode & mode::TYPE;
        let in_log = if birth.target.len() > TARGET_IN_LOG { 0 } else { birth.target.len() as u8 };
        let first = Body::Inode {
            mode: birth.mode as u16,
            links: birth.links,
            uid: birth.uid,
            gid: birth.gid,
            time_ns,
            extra: if kind == mode::SYMLINK && in_log == 0 { [0; 16] } else { birth.extra },
            text: in_log,
        };
        let body = match kind {
            mode::DIRECTORY => Kind::Directory(Directory::default()),
            mode::SYMLINK if in_log > 0 => {
                let at = log.tail.at;
                Kind::Symlink(Target { at, ordinal: INLINE, len: in_log })
            }
            mode::SYMLINK | mode::FILE => Kind::File(File::empty()),
            _ => Kind::Special,
        };
        let owner = (birth.uid, birth.gid);
        let mode = birth.mode & 0o177_777;
        let mut state = State::new(log, mode, birth.links.into(), owner, time_ns, body, INLINE);
        state.rdev = birth.rdev;
        state.size = birth.target.len() as u64;
        if kind == mode::FILE {
            state.class = self.page_class;
        }
        if kind == mode::DIRECTORY {
            let word = birth.extra.first_chunk::<8>().copied().unwrap_or_default();
            state.parent = u64::from_le_bytes(word);
        }
        // (Who makes one without a name has it open.)
        let opens = u32::from(birth.links == 0);
        (Arc::new(Node::new(slot, Some(state), opens)), first)
    }

    /// Streams a long target to a page of its own, and fences (PROTOCOL I8).
    #[inline(never)]
    fn stream_target(&self, target: &[u8]) -> Result<Run> {
        let run = Run { page: self.store.take_page(Purpose::Grows, Use::Data)?, pages: 1 };
        let short = self.store.host.leaves_out(Rule::TargetTail);
        let target = if short { target.as_chunks::<8>().0.as_flattened() } else { target };
        let mut held = self.store.hold_lane();
        let counters = held.counters();
        let page = held.page();
        match page.split_at_mut_checked(target.len()) {
            Some((head, rest)) => {
                head.copy_from_slice(target);
                rest.fill(0);
                if let Err(error) = self.store.stream_pages(run.page, page, counters) {
                    self.store.give(run);
                    return Err(error);
                }
            }
            None => {
                let at = run.page * crate::PAGE_BYTES;
                self.store.door.window(target.len() as u64, counters).copy_nt(at, target);
            }
        }
        self.store.door.fence(counters)?;
        Ok(run)
    }

    /// Makes another link to an inode that is not a directory.
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.link_node(ino, &*self.node_to_change(dir)?, name)
    }

    /// The same, in a directory that was found.
    pub fn link_in(&self, ino: Ino, dir: &Found<H>, name: &[u8]) -> Result<Attr> {
        self.store.before_operation()?;
        self.link_node(ino, &dir.node, name)
    }

    fn link_node(&self, ino: Ino, dir_node: &Node<H>, name: &[u8]) -> Result<Attr> {
        self.count(Op::Link);
        let node = self.node(ino)?;
        dir_node.read(&self.store)?.directory()?;
        valid_name(&self.store.geometry, name)?;
        let mut locked = self.lock_all([Some(dir_node), Some(&*node)])?;
        let [Some(parent), child] = &mut locked else { return Err(Error::Invalid) };
        self.may_enter(parent, name)?;
        // What is linked into itself is locked once.
        let child = child.as_mut().filter(|child| child.kind() != mode::DIRECTORY);
        let child = child.ok_or(Error::DirectoryLink)?;
        if child.is_dead() {
            return Err(Error::NotFound);
        }
        if child.links >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let links = child.links + 1;
        self.add_name((&node, child, links), (dir_node, parent), name)?;
        Ok(child.attr())
    }

    /// Gives an inode a name, and says that it has so many links; a directory gets a parent.
    pub(crate) fn add_name(
        &self,
        (node, child, links): (&Node<H>, &mut State, u32),
        (dir, parent): (&Node<H>, &mut State),
        name: &[u8],
    ) -> Result<()> {
        let plans = [parent.log.plan([entry_lines(name.len())]), child.log.plan([1])];
        self.reserve_both(parent, child, &plans, Purpose::Grows)?;
        let time_ns = self.now_ns();
        let mut tx = self.begin_plans(&plans, 0)?;
        tx.split(Rule::LinkInOne, plans[0].lines);
        let add = self.entry_of(child, name, time_ns);
        let entry = parent.log.append_text(&mut tx, &self.store, &add, name);
        let above = if child.kind() == mode::DIRECTORY { parent.log.ino } else { 0 };
        let record = Body::Links { links, parent: above, ctime_ns: time_ns };
        let placed = child.log.append(&mut tx, &self.store, &record);
        tx.commit_while(|| {
            child.set_links(placed.ordinal, links, above, time_ns);
            let place = (entry.at, entry.ordinal);
            let hash = hash(self.store.secret, name);
            let named = (child.log.ino, (child.mode >> 12) as u8);
            let lines = entry_lines(name.len());
            parent.add_entry(hash, named, place, lines, time_ns).map(|_| ())
        })?;
        node.slot.set_tail(child.log.tail.last_seal);
        dir.slot.set_tail(parent.log.tail.last_seal);
        self.tidy(&node.slot, child);
        self.tidy(&dir.slot, parent);
        Ok(())
    }

    /// Reserves what two logs need, or nothing.
    pub(crate) fn reserve_both(
        &self,
        first: &mut State,
        second: &mut State,
        plans: &[Plan; 2],
        purpose: Purpose,
    ) -> Result<()> {
        first.log.reserve(&self.store, &plans[0], purpose)?;
        second.log.reserve(&self.store, &plans[1], purpose).inspect_err(|_| {
            first.log.unreserve(&self.store);
        })
    }

    /// Begins a transaction of these plans and `more` lines outside of logs.
    pub(crate) fn begin_plans(&self, plans: &[Plan], more: u32) -> Result<Tx<'_, M, H>> {
        let lines = plans.iter().map(|plan| plan.lines).sum::<u32>() + more;
        let extra = plans.iter().map(Plan::extra_bytes).sum();
        self.store.begin(lines, extra)
    }

    /// Collects a log where that is worth it, and counts it.
    pub(crate) fn tidy(&self, slot: &Slot, state: &mut State) {
        if let Some((op, pages)) = tidy(&self.store, slot, state) {
            self.count(op);
            self.counts.add_collected(op, pages);
        }
        if has_first_page(&self.store, state)
            && let Some(older) = self.grown.note(self.store.lane(), state.log.ino)
        {
            self.bring_inline(older);
        }
    }

    /// Gives the log page of a file back that is not needed. Where somebody has the file locked, it is in use.
    #[cold]
    fn bring_inline(&self, ino: Ino) {
        let Some(node) = self.nodes.peek(ino) else { return };
        let Ok(Some(mut state)) = node.try_write(&self.store) else { return };
        if let Some(pages) = bring_inline(&self.store, &node.slot, &mut state) {
            self.count(Op::CollectThorough);
            self.counts.add_collected(Op::CollectThorough, pages);
        }
    }
}

/// The text that a new inode's first record carries.
fn birth_text<'a>(state: &State, birth: &Birth<'a>) -> &'a [u8] {
    match &state.body {
        Kind::Symlink(_) => birth.target,
        _ => &[],
    }
}
