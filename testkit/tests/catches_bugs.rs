//! The harness itself: the model equals itself, and a model with a bug put into it is
//! caught, with a sequence that is short and can be replayed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::sync::Mutex;

use lode_engine::{
    Attr, DirEntry, Error, Fallocate, Ino, NewInode, RenameMode, Result, SetAttr, XattrChange, mode,
};
use lode_model::{Loose, Model};
use lode_testkit::fs::Fs;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::print;
use lode_testkit::parse::parse;
use lode_testkit::run::{Rules, run, run_and_shrink};
use lode_testkit::system::System;

/// Mistakes that file systems have made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    None,
    LastByteOfAPageCrossingWriteLost,
    CutBytesComeBack,
    RenameOverLosesTheTarget,
    RenameIntoOwnSubtreeAllowed,
    LinkNotCounted,
    UnlinkedOpenFileLosesItsWrites,
    MtimeForgottenByAppend,
    CtimeForgottenByLink,
    SeekMissesData,
    ListingDropsTheEighthEntry,
    LongNamesCutInListing,
    CrashLosesTheLastOperation,
    CrashKeepsAnOpenUnlinkedFile,
    NoSpaceAlthoughEmpty,
    PunchLeavesTheEdge,
    ExchangeDoesNothing,
    ParentNotUpdated,
    AttributeOfOtherFile,
    AppendAtPageEndOverwrites,
    LongValueCut,
    RemovedXattrStays,
}

const ALL: [Bug; 21] = [
    Bug::LastByteOfAPageCrossingWriteLost,
    Bug::CutBytesComeBack,
    Bug::RenameOverLosesTheTarget,
    Bug::RenameIntoOwnSubtreeAllowed,
    Bug::LinkNotCounted,
    Bug::UnlinkedOpenFileLosesItsWrites,
    Bug::MtimeForgottenByAppend,
    Bug::CtimeForgottenByLink,
    Bug::SeekMissesData,
    Bug::ListingDropsTheEighthEntry,
    Bug::LongNamesCutInListing,
    Bug::CrashLosesTheLastOperation,
    Bug::CrashKeepsAnOpenUnlinkedFile,
    Bug::NoSpaceAlthoughEmpty,
    Bug::PunchLeavesTheEdge,
    Bug::ExchangeDoesNothing,
    Bug::ParentNotUpdated,
    Bug::AttributeOfOtherFile,
    Bug::AppendAtPageEndOverwrites,
    Bug::LongValueCut,
    Bug::RemovedXattrStays,
];

/// A model with a bug.
struct Buggy {
    model: Model,
    /// Before the last change: what a crash goes back to.
    before: Mutex<Cell<Option<Model>>>,
    bug: Bug,
}

impl Buggy {
    fn new(bug: Bug) -> Self {
        Self { model: Model::new(), before: Mutex::default(), bug }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    /// Remembers what was before a change.
    fn change(&self) -> &Model {
        if self.has(Bug::CrashLosesTheLastOperation) {
            self.before.lock().unwrap().set(Some(self.model.clone()));
        }
        &self.model
    }
}

impl System for Buggy {
    fn fs(&self) -> &dyn Fs {
        self
    }

    fn set_now(&self, now_ns: i64) {
        self.model.set_now(now_ns);
    }

    fn remount(&mut self, clean: bool) -> std::result::Result<(), String> {
        if let Some(before) = self.before.lock().unwrap().take()
            && !clean
        {
            self.model = before;
        }
        if clean || !self.has(Bug::CrashKeepsAnOpenUnlinkedFile) {
            self.model.release_all();
        }
        Ok(())
    }

    fn check(&self) -> std::result::Result<(), String> {
        Ok(())
    }
}

impl Fs for Buggy {
    lode_testkit::forward_maps!(self => Model, &self.model);

    fn root(&self) -> Ino {
        self.model.root()
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.model.lookup(dir, name)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let mut attr = self.model.getattr(ino)?;
        if self.has(Bug::LinkNotCounted) && attr.mode & mode::TYPE == mode::FILE && attr.links > 1 {
            attr.links -= 1;
        }
        Ok(attr)
    }

    fn setattr(&self, ino: Ino, changes: &SetAttr) -> Result<Attr> {
        let model = self.change();
        if self.has(Bug::AttributeOfOtherFile) && changes.mtime_ns.is_some() && ino % 7 == 3 {
            return model.setattr(ino, &SetAttr { uid: Some(0), ..*changes });
        }
        let before = model.getattr(ino)?.size;
        let attr = model.setattr(ino, changes)?;
        if self.has(Bug::CutBytesComeBack) && attr.size > before && !before.is_multiple_of(4096) {
            model.write(ino, before, &[0xDD])?;
        }
        Ok(attr)
    }

    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Attr> {
        if self.has(Bug::NoSpaceAlthoughEmpty) && name.len() == 17 {
            return Err(Error::NoSpace);
        }
        self.change().create(dir, name, new)
    }

    fn symlink(&self, dir: Ino, name: &[u8], to: &[u8], uid: u32, gid: u32) -> Result<Attr> {
        self.change().symlink(dir, name, to, uid, gid)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.model.readlink(ino)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        let model = self.change();
        let before = model.getattr(ino)?.ctime_ns;
        let attr = model.link(ino, dir, name)?;
        if self.has(Bug::CtimeForgottenByLink) {
            model.setattr(ino, &SetAttr { atime_ns: Some(before), ..SetAttr::default() })?;
        }
        Ok(attr)
    }

    fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.change().unlink(dir, name)
    }

    fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.change().rmdir(dir, name)
    }

    fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        to: Ino,
        to_name: &[u8],
        how: RenameMode,
    ) -> Result<()> {
        let model = self.change();
        if self.has(Bug::ExchangeDoesNothing) && how == RenameMode::Exchange {
            model.lookup(dir, name)?;
            return model.lookup(to, to_name).map(|_| ());
        }
        let target = model.lookup(to, to_name);
        let result = model.rename(dir, name, to, to_name, how);
        if self.has(Bug::RenameOverLosesTheTarget) && target.is_ok() && result.is_ok() {
            let _ = model.unlink(to, to_name);
        }
        if self.has(Bug::RenameIntoOwnSubtreeAllowed) && result == Err(Error::Invalid) {
            return Ok(());
        }
        result
    }

    fn setxattr(&self, ino: Ino, change: &XattrChange<'_>) -> Result<()> {
        let model = self.change();
        if self.has(Bug::RemovedXattrStays) && change.value.is_none() {
            return model.getxattr(ino, change.name).map(|_| ());
        }
        model.setxattr(ino, change)
    }

    fn create_with(
        &self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        self.change().create_with(dir, name, new, xattrs)
    }

    fn create_nameless(
        &self,
        dir: Ino,
        new: &NewInode,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        self.change().create_nameless(dir, new, xattrs)
    }

    fn setattr_with(
        &self,
        ino: Ino,
        changes: &SetAttr,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        self.change().setattr_with(ino, changes, xattrs)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let mut value = self.model.getxattr(ino, name)?;
        if self.has(Bug::LongValueCut) {
            value.truncate(4096);
        }
        Ok(value)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.model.listxattr(ino)
    }

    fn acquire(&self, ino: Ino) -> Result<()> {
        self.model.acquire(ino)
    }

    fn release(&self, ino: Ino) {
        self.model.release(ino);
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.model.read(ino, offset, into)
    }

    fn write_sectors(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.change().write_sectors(ino, offset, data)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let model = self.change();
        let crosses = offset / 4096 != (offset + data.len() as u64) / 4096;
        if self.has(Bug::LastByteOfAPageCrossingWriteLost) && crosses && data.len() % 8 == 1 {
            let mut data = data.to_vec();
            *data.last_mut().unwrap() = 0;
            return model.write(ino, offset, &data);
        }
        if self.has(Bug::UnlinkedOpenFileLosesItsWrites) && model.getattr(ino)?.links == 0 {
            return Ok(());
        }
        model.write(ino, offset, data)
    }

    fn append(&self, ino: Ino, data: &[u8]) -> Result<u64> {
        let model = self.change();
        let before = model.getattr(ino)?;
        if self.has(Bug::AppendAtPageEndOverwrites)
            && before.size > 0
            && before.size.is_multiple_of(4096)
        {
            model.write(ino, before.size - 1, data)?;
            return Ok(before.size);
        }
        let at = model.append(ino, data)?;
        if self.has(Bug::MtimeForgottenByAppend) {
            let mtime_ns = Some(before.mtime_ns);
            model.setattr(ino, &SetAttr { mtime_ns, ..SetAttr::default() })?;
        }
        Ok(at)
    }

    fn fallocate(&self, ino: Ino, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let len = match how {
            Fallocate::Punch if self.has(Bug::PunchLeavesTheEdge) && len > 1 => len - 1,
            _ => len,
        };
        self.change().fallocate(ino, how, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<u64> {
        let found = self.model.seek(ino, offset, data)?;
        let skips = self.has(Bug::SeekMissesData) && data && found > 0;
        if skips { self.model.seek(ino, found + 4096, true) } else { Ok(found) }
    }

    fn readdir(
        &self,
        dir: Ino,
        from: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut count = 0;
        self.model.readdir(dir, from, &mut |entry| {
            count += 1;
            if self.has(Bug::ListingDropsTheEighthEntry) && count == 8 {
                return true;
            }
            let long = self.has(Bug::LongNamesCutInListing) && entry.name.len() > 200;
            let name = if long { &entry.name[..200] } else { entry.name };
            each(DirEntry { name, ..entry })
        })
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let parent = self.model.parent(dir)?;
        let root = self.model.root();
        Ok(if self.has(Bug::ParentNotUpdated) && dir.is_multiple_of(3) { root } else { parent })
    }

    fn fsync(&self, ino: Ino) -> Result<()> {
        self.model.fsync(ino)
    }

    fn maintain(&self) -> Result<()> {
        Ok(())
    }

    fn loose(&self, ino: Ino) -> Loose {
        self.model.loose(ino)
    }

    fn pages_free(&self) -> Option<u64> {
        Some(100_000)
    }

    fn inodes(&self) -> u64 {
        self.model.inodes()
    }
}

fn shape() -> Shape {
    Shape { remount_every: 25, ..Shape::default() }
}

#[test]
fn the_model_equals_itself() {
    for seed in 0..30 {
        let ops = Generator::new(seed, shape()).take(400);
        if let Err(failure) = run(&mut Buggy::new(Bug::None), &ops, &Rules::default()) {
            panic!("seed {seed}: {failure}");
        }
    }
}

#[test]
fn each_bug_is_caught_with_a_short_sequence_that_can_be_replayed() {
    for bug in ALL {
        let caught = (0..40).find_map(|seed| {
            let ops = Generator::new(seed, shape()).take(400);
            let new = || Ok(Buggy::new(bug));
            run_and_shrink(&new, &ops, &Rules::default(), 400).err().map(|failure| (seed, failure))
        });
        let Some((seed, failure)) = caught else { panic!("{bug:?} was not caught") };
        println!("{bug:?}: seed {seed}, {} operations: {}", failure.ops.len(), failure.what);
        assert!(failure.ops.len() <= 20, "{bug:?} was not shrunk: {failure}");
        let again = parse(&print(&failure.ops)).unwrap();
        let eager = Rules { tree_every: 1, ..Rules::default() };
        assert!(run(&mut Buggy::new(bug), &again, &eager).is_err(), "{bug:?}: not replayed");
    }
}

#[test]
fn random_operations_mostly_do_something() {
    use lode_testkit::execute::{Handles, execute};
    let model = Model::new();
    let mut handles = Handles::new();
    let ops = Generator::new(11, Shape::default()).take(3000);
    let good = ops.iter().filter(|op| execute(&model, &mut handles, op).is_ok()).count();
    println!("{good} of 3000 operations succeed");
    assert!((1000..2500).contains(&good), "{good} of 3000 operations succeed");
}
