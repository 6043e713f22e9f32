//! The state of an inode, and how each record changes it.
//!
//! Replaying a log and running an operation use the same functions, so that what is
//! in memory after an operation is what a later replay will find.

use core::mem::offset_of;
use core::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::file::File;
use crate::index::{Entries, Entry, Extent, Xattr, Xattrs};
use crate::layout::Body as Record;
use crate::log::Log;
use crate::space::{Ended, Run};
use crate::store::Room;
use crate::{Attr, Error, IndexMemory, Ino, PAGE_BYTES, PageClass, Result, mode};

/// What the kinds of inode have of their own.
pub(crate) enum Body {
    /// A regular file, or a symbolic link whose target is too long for its log.
    File(File),
    /// A directory.
    Directory(Directory),
    /// A symbolic link.
    Symlink(Target),
    /// A device, FIFO or socket.
    Special,
}

/// The entries of a directory.
#[derive(Default)]
pub(crate) struct Directory {
    pub(crate) entries: Entries,
    /// Record lines that the entries take.
    pub(crate) lines: u64,
}

/// Where the target of a symbolic link is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Offset of the INODE record.
    pub(crate) at: u64,
    /// Ordinal of its page.
    pub(crate) ordinal: u32,
    /// Bytes.
    pub(crate) len: u8,
}

/// Which record last said something about the inode itself.
#[derive(Clone, Copy)]
pub(crate) enum Carrier {
    /// Mode and owner.
    Attr = 0,
    /// Link count and parent.
    Links = 1,
    /// Modification time.
    Time = 2,
    /// Size.
    Size = 3,
    /// Extended attributes (the change time).
    Xattr = 4,
    /// That all journalled overwrites before it are home (the horizon of PROTOCOL I16).
    Horizon = 5,
}

/// [`State::died`] of what is not dead.
const ALIVE: u32 = u32::MAX;

/// Kinds of [`Carrier`].
const CARRIERS: usize = 6;

/// The part of an inode that may have come or gone before it is weighed again.
const UNWEIGHED_PART: u32 = 8;

/// All that is known of an inode. In this order: what is asked of each that is looked at shares few lines of memory, and the last
/// of them, in which another inode may begin, has nothing that each change changes or looks at (of this one; of the next one the counts). So two that lie side by side,
/// each changed by a thread of its own, do not have these wait for each other.
#[repr(C)]
pub(crate) struct State {
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The epoch in which its last link went; the highest there is while it has one.
    pub(crate) died: u32,
    /// How many things it had when it was last weighed.
    things: u32,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) atime_ns: AtomicI64,
    carriers: [u32; CARRIERS],
    pub(crate) class: PageClass,
    pub(crate) log: Log,
    pub(crate) body: Body,
    pub(crate) xattrs: Xattrs,
    pub(crate) rdev: u64,
    pub(crate) btime_ns: i64,
    /// Of an inode as a snapshot has it: what its number has besides that of the inode as it is now.
    pub(crate) view: Ino,
    pub(crate) parent: Ino,
    /// Change time of the record that last set the access time.
    pub(crate) atime_set_ns: i64,
    /// What it weighed when it was last weighed, as the room for inodes counts it.
    weight: u64,
}

/// What changes neither change nor look at takes a line at least, with the two counts that the next one may begin with.
const _: () = {
    let counts = 2 * size_of::<usize>();
    assert!(size_of::<State>() - offset_of!(State, rdev) + counts >= lode_pmem::LINE_BYTES);
};

impl State {
    /// The state that an INODE record at `ordinal` begins.
    pub(crate) fn new(
        log: Log,
        mode: u32,
        links: u32,
        owner: (u32, u32),
        time_ns: i64,
        body: Body,
        ordinal: u32,
    ) -> Self {
        let mut state = Self {
            log,
            mode,
            links,
            uid: owner.0,
            gid: owner.1,
            rdev: 0,
            parent: 0,
            size: 0,
            class: PageClass::Small,
            btime_ns: time_ns,
            mtime_ns: time_ns,
            ctime_ns: time_ns,
            atime_ns: AtomicI64::new(time_ns),
            atime_set_ns: time_ns,
            died: ALIVE,
            view: 0,
            body,
            xattrs: Xattrs::default(),
            carriers: [ordinal; CARRIERS],
            things: 0,
            weight: 0,
        };
        // The INODE record itself keeps its page for as long as the log lives.
        state.log.add_live(ordinal, 1 + CARRIERS as u64);
        state
    }

    /// The type bits of the mode.
    #[inline]
    pub(crate) fn kind(&self) -> u32 {
        self.mode & mode::TYPE
    }

    /// Whether the last link is gone.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.died != ALIVE
    }

    /// The epoch in which what the last record ends ceased to be seen: not after the inode's own end.
    #[inline]
    pub(crate) fn ends_in(&self) -> u32 {
        self.log.epoch.min(self.died)
    }

    /// Whether another one that was loaded as of the same epoch has the same things and attributes: were its log cut off, the last of them
    /// would be others. (Places of records tell nothing: a log may have been written anew in between.)
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let attributes = |it: &Self| {
            let owner = (it.uid, it.gid);
            (it.mode, it.links, owner, it.size, it.mtime_ns, it.ctime_ns, it.xattrs.digest())
        };
        attributes(self) == attributes(other)
            && match (&self.body, &other.body) {
                (Body::Directory(one), Body::Directory(two)) => {
                    one.entries.digest() == two.entries.digest()
                }
                (Body::File(one), Body::File(two)) => one.extents.are_those_of(&two.extents),
                _ => true,
            }
    }

    /// Whether it was made without a name and has none yet.
    #[inline]
    pub(crate) fn is_nameless(&self) -> bool {
        self.links == 0 && !self.is_dead() && self.kind() != mode::DIRECTORY
    }

    /// Adds to `memory` what this state takes, besides `Self`.
    pub(crate) fn weigh(&self, memory: &mut IndexMemory) {
        memory.inodes += self.log.memory_bytes();
        memory.inodes += self.xattrs.memory_bytes();
        match &self.body {
            Body::File(file) => {
                memory.extents += file.extents.memory_bytes();
                memory.inodes += file.journal.memory_bytes() + file.beside_size.memory_bytes();
                memory.inodes += file.maps.as_ref().map_or(0, |maps| maps.memory_bytes());
                memory.extents += file.exempt.as_ref().map_or(0, |it| it.pages.memory_bytes());
            }
            Body::Directory(directory) => memory.entries += directory.entries.memory_bytes(),
            Body::Symlink(_) | Body::Special => {}
        }
    }

    /// How many things it has that take memory each.
    #[inline]
    fn things(&self) -> u32 {
        let of_body = match &self.body {
            Body::File(file) => file.extents.len() + file.journal.pending().len(),
            Body::Directory(directory) => directory.entries.len(),
            Body::Symlink(_) | Body::Special => 0,
        };
        (of_body + self.log.pages.len() + self.xattrs.len()) as u32
    }

    /// Weighs it, if it has grown or shrunk enough since it was last weighed: that takes a while for
    /// much, but there are as many changes between.
    #[inline(never)]
    pub(super) fn weigh_again(&mut self, room: &Room) {
        let things = self.things();
        if things.abs_diff(self.things) > self.things / UNWEIGHED_PART {
            self.put_in(room);
        }
    }

    /// Weighs it, and counts it in the room for inodes.
    #[inline(never)]
    pub(crate) fn put_in(&mut self, room: &Room) {
        let mut memory = IndexMemory::default();
        self.weigh(&mut memory);
        room.change(self.weight, memory.total());
        (self.weight, self.things) = (memory.total(), self.things());
    }

    /// Takes it out of the room for inodes.
    pub(super) fn take_out(&mut self, room: &Room) {
        room.change(self.weight, 0);
        (self.weight, self.things) = (0, 0);
    }

    /// The directory, or `NotDirectory`.
    #[inline]
    pub(crate) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// The data of a regular file, or why there is none.
    #[inline]
    pub(crate) fn file(&self) -> Result<&File> {
        match &self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// As [`State::file`].
    #[inline]
    pub(crate) fn file_mut(&mut self) -> Result<&mut File> {
        match &mut self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// What `stat` says.
    pub(crate) fn attr(&self) -> Attr {
        let (size, pages, links) = match &self.body {
            Body::File(file) => (self.size, file.extents.pages(), self.links),
            Body::Directory(directory) => {
                let entries = directory.entries.len() as u64;
                let links = if self.is_dead() { 0 } else { 2 + directory.entries.subdirectories() };
                (entries * 64, self.log.pages.len() as u64, links as u32)
            }
            Body::Symlink(target) => (u64::from(target.len), 0, self.links),
            Body::Special => (0, 0, self.links),
        };
        Attr {
            ino: self.log.ino | self.view,
            generation: self.log.nonce,
            mode: self.mode,
            links: if self.is_dead() { 0 } else { links },
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            pages,
            atime_ns: self.atime_ns.load(Relaxed),
            mtime_ns: self.mtime_ns,
            ctime_ns: self.ctime_ns,
            btime_ns: self.btime_ns,
            xattrs: self.xattrs.len() as u32,
        }
    }

    /// The record that says of mode, owner and times what they are.
    pub(crate) fn attr_record(&self) -> Record {
        Record::Attr {
            mode: self.mode as u16,
            uid: self.uid,
            gid: self.gid,
            mtime_ns: self.mtime_ns,
            ctime_ns: self.ctime_ns,
            atime_ns: self.atime_ns.load(Relaxed),
        }
    }

    /// Notes that page `ordinal` now holds what was last said of this kind.
    pub(crate) fn carry(&mut self, carrier: Carrier, ordinal: u32) {
        let last = &mut self.carriers[carrier as usize];
        if *last != ordinal {
            let before = core::mem::replace(last, ordinal);
            self.log.outlive(before);
            self.log.add_live(ordinal, 1);
        }
    }

    /// All that was said of the inode itself is in page `ordinal`, which is new. (What was said in a page that
    /// is no more ends with it.)
    pub(crate) fn carry_all(&mut self, ordinal: u32) {
        for before in core::mem::replace(&mut self.carriers, [ordinal; CARRIERS]) {
            self.log.outlive(before);
        }
        self.log.add_live(ordinal, CARRIERS as u64);
    }

    /// ATTR.
    pub(crate) fn set_attr(
        &mut self,
        ordinal: u32,
        mode: u32,
        owner: (u32, u32),
        times: (i64, i64, i64),
    ) {
        self.mode = self.kind() | mode & !mode::TYPE;
        (self.uid, self.gid) = owner;
        (self.mtime_ns, self.ctime_ns) = (times.0, times.1);
        *self.atime_ns.get_mut() = times.2;
        self.atime_set_ns = times.1;
        self.carry(Carrier::Attr, ordinal);
        self.carry(Carrier::Time, ordinal);
    }

    /// LINKS.
    pub(crate) fn set_links(&mut self, ordinal: u32, links: u32, parent: Ino, ctime_ns: i64) {
        self.links = links;
        if self.kind() == mode::DIRECTORY {
            self.parent = parent;
        }
        self.ctime_ns = ctime_ns;
        self.carry(Carrier::Links, ordinal);
    }

    /// Something of the inode changed at this time.
    pub(crate) fn touch(&mut self, ordinal: u32, time_ns: i64) {
        (self.mtime_ns, self.ctime_ns) = (time_ns, time_ns);
        self.carry(Carrier::Time, ordinal);
    }

    /// ADD of `lines` lines.
    pub(crate) fn add_entry(
        &mut self,
        hash: u64,
        entry: (Ino, u8),
        place: (u64, u32),
        lines: u32,
        time_ns: i64,
    ) -> Result<u64> {
        let Body::Directory(directory) = &mut self.body else {
            return Err(Error::NotDirectory);
        };
        let cookie = directory.entries.insert(hash, entry.0, entry.1, place.0, place.1)?;
        directory.lines += u64::from(lines);
        self.log.add_live(place.1, 1);
        self.touch(place.1, time_ns);
        Ok(cookie)
    }

    /// DEL of an entry of `lines` lines, by a record in page `ordinal`.
    pub(crate) fn remove_entry(
        &mut self,
        cookie: u64,
        lines: u32,
        ordinal: u32,
        time_ns: i64,
    ) -> Option<Entry> {
        let Body::Directory(directory) = &mut self.body else {
            return None;
        };
        let entry = directory.entries.remove(cookie)?;
        directory.lines = directory.lines.saturating_sub(u64::from(lines));
        self.log.end_live(entry.origin, 1, ordinal);
        self.touch(ordinal, time_ns);
        Some(entry)
    }

    /// XATTR, in place of the one whose record is at `replaced`. Room for it was made.
    pub(crate) fn set_xattr(
        &mut self,
        xattr: Xattr,
        replaced: Option<u64>,
        time_ns: i64,
        freed: &mut dyn FnMut(Ended),
    ) {
        let ordinal = xattr.origin;
        if let Some(at) = replaced {
            self.end_xattr(at, freed, |log, origin| log.replace_live(origin, 1, ordinal));
        }
        self.log.add_live(ordinal, 1);
        self.xattrs.push(xattr);
        self.ctime_ns = time_ns;
        self.carry(Carrier::Xattr, ordinal);
    }

    /// XDEL, by a record in page `ordinal`, of the one whose record is at `removed`.
    pub(crate) fn remove_xattr(
        &mut self,
        ordinal: u32,
        removed: Option<u64>,
        time_ns: i64,
        freed: &mut dyn FnMut(Ended),
    ) {
        if let Some(at) = removed {
            self.end_xattr(at, freed, |log, origin| log.end_live(origin, 1, ordinal));
        }
        self.ctime_ns = time_ns;
        self.carry(Carrier::Xattr, ordinal);
    }

    fn end_xattr(
        &mut self,
        at: u64,
        freed: &mut dyn FnMut(Ended),
        end: impl FnOnce(&mut Log, u32),
    ) {
        if let Some(ended) = self.xattrs.remove(at) {
            end(&mut self.log, ended.origin);
            let born = ended.epoch;
            ended.runs.iter().for_each(|run| freed(Ended { run: *run, born }));
        }
    }

    /// Calls `each` with all pages that hold data of the inode: of the file, of its journal and its
    /// maps, of its extended attributes.
    pub(crate) fn for_each_data_run(&self, each: &mut dyn FnMut(Run)) {
        self.for_each_data(&mut |data| each(data.run));
    }

    /// The same, with the epochs that these were born in. (What only maps show is seen by no snapshot.)
    pub(crate) fn for_each_data(&self, each: &mut dyn FnMut(Ended)) {
        if let Body::File(file) = &self.body {
            for extent in file.extents.iter() {
                let run = Run { page: extent.page, pages: extent.pages };
                each(Ended { run, born: extent.epoch });
            }
            file.journal.for_each_run(each);
            if let Some(maps) = &file.maps {
                maps.for_each_run(&mut |run| each(Ended { run, born: u32::MAX }));
            }
        }
        for xattr in self.xattrs.iter() {
            let born = xattr.epoch;
            xattr.runs.iter().for_each(|run| each(Ended { run: *run, born }));
        }
    }

    /// MAP. `freed` gets the pages that were mapped before.
    pub(crate) fn map(
        &mut self,
        extent: Extent,
        size: u64,
        time_ns: i64,
        freed: &mut dyn FnMut(Ended),
    ) {
        let around = self.file().map_or([None; 2], |file| file.extents.around(extent.file_page));
        self.map_among(extent, around, size, time_ns, freed);
    }

    /// MAP, where [`Extents::around`] has been asked already for the extent's first page.
    pub(crate) fn map_among(
        &mut self,
        extent: Extent,
        around: [Option<Extent>; 2],
        size: u64,
        time_ns: i64,
        freed: &mut dyn FnMut(Ended),
    ) {
        if let Body::File(file) = &mut self.body {
            let log = &mut self.log;
            file.has_large |= extent.class > PageClass::Small;
            file.extents.replace(extent, around, &mut |piece: Extent| {
                log.replace_live(piece.origin, piece.pages, extent.origin);
                freed(Ended {
                    run: Run { page: piece.page, pages: piece.pages },
                    born: piece.epoch,
                });
            });
        }
        self.log.add_live(extent.origin, extent.pages);
        self.resize(extent.origin, size, time_ns);
    }

    /// SIZE.
    pub(crate) fn set_size(
        &mut self,
        ordinal: u32,
        truncate: bool,
        size: u64,
        time_ns: i64,
        freed: &mut dyn FnMut(Ended),
    ) {
        if truncate {
            let first = size.div_ceil(PAGE_BYTES);
            self.unmap_pages(ordinal, first, u64::MAX / PAGE_BYTES - first, freed);
            if let Body::File(file) = &mut self.body {
                file.journal.clip(size, u64::MAX);
            }
        }
        self.resize(ordinal, size, time_ns);
    }

    /// UNMAP.
    pub(crate) fn unmap(
        &mut self,
        ordinal: u32,
        pages: (u64, u64),
        size: u64,
        time_ns: i64,
        freed: &mut dyn FnMut(Ended),
    ) {
        self.unmap_pages(ordinal, pages.0, pages.1, freed);
        if let Body::File(file) = &mut self.body {
            file.journal.clip(pages.0 * PAGE_BYTES, (pages.0 + pages.1) * PAGE_BYTES);
        }
        self.resize(ordinal, size, time_ns);
    }

    /// JOURNAL (its pieces are noted in the file's journal by the caller).
    pub(crate) fn journalled(&mut self, ordinal: u32, time_ns: i64) {
        self.log.add_live(ordinal, 1);
        self.touch(ordinal, time_ns);
    }

    fn resize(&mut self, ordinal: u32, size: u64, time_ns: i64) {
        self.size = size;
        self.carry(Carrier::Size, ordinal);
        self.touch(ordinal, time_ns);
    }

    fn unmap_pages(&mut self, by: u32, file_page: u64, pages: u64, freed: &mut dyn FnMut(Ended)) {
        let Body::File(file) = &mut self.body else { return };
        let log = &mut self.log;
        file.extents.remove(file_page, pages, &mut |piece: Extent| {
            log.end_live(piece.origin, piece.pages, by);
            freed(Ended { run: Run { page: piece.page, pages: piece.pages }, born: piece.epoch });
        });
        if file.exempt.is_some() || file.maps.is_some() {
            file.show_no_more(log, by, (file_page, pages));
        }
    }
}
