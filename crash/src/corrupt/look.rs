//! Looks at all that a damaged pool shows, and holds it against what it may show.
//!
//! What this file guarantees: each name, attribute and byte was compared with the model, or an error came in its place that
//! the damage may cause there; files are read strip by strip where reading them whole fails.

use lode_engine::{Attr, Error, Ino, Protection, mode};
use lode_testkit::execute::Value;
use lode_testkit::fs::Fs;

use super::base::{Base, LATER_NS};
use super::hurt::Hurt;
use super::told::Refused;
use super::tree::{Node, Numbers, Tree};

/// What was not as it should be, but may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Seen {
    /// Things that were refused.
    pub(super) refused: usize,
    /// Bytes and records that nothing protects, and that were damaged.
    pub(super) unprotected: usize,
}

/// How to look.
pub(super) struct Look<'a> {
    pub(super) base: &'a Base,
    pub(super) hurt: &'a Hurt,
    /// Operations were done since the damage: fresh pages may lie in bad memory, too.
    pub(super) was_used: bool,
    pub(super) seen: Seen,
    /// What was refused as damaged.
    pub(super) refused: Vec<Refused>,
    /// The inode that is looked at was changed after the damage.
    is_late: bool,
}

/// Whether an error says that something is damaged.
pub(super) fn is_damage(error: Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Lost(_) | Error::Media { .. })
}

/// Whether an error says that something is not there.
fn is_gone(error: Error) -> bool {
    matches!(error, Error::Stale | Error::NotFound)
}

/// What should be there, and the inode that is.
struct There<'t> {
    node: &'t Node,
    ino: Ino,
}

impl<'a> Look<'a> {
    /// At a pool that is damaged so.
    pub(super) fn new(base: &'a Base, hurt: &'a Hurt, was_used: bool) -> Self {
        Self { base, hurt, was_used, seen: Seen::default(), refused: Vec::new(), is_late: false }
    }

    /// The pool shows one of these trees.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn any(
        &mut self,
        fs: &dyn Fs,
        trees: &[Tree],
        numbers: &Numbers,
    ) -> Result<(), String> {
        let mut wrong = Vec::new();
        for tree in trees {
            self.seen = Seen::default();
            self.refused.clear();
            match self.tree(fs, tree, numbers) {
                Ok(()) => {
                    self.ask_again(fs);
                    return Ok(());
                }
                Err(what) => wrong.push(what),
            }
        }
        Err(wrong.join("; or, after the operation that was cut off: "))
    }

    fn tree(&mut self, fs: &dyn Fs, tree: &Tree, numbers: &Numbers) -> Result<(), String> {
        // (Before anything else: it decides the numbers of inodes in snapshots.)
        let kept = fs.snapshots();
        self.node(fs, tree, numbers, 0, Ok(fs.root()))?;
        let list = self.base.list;
        let kept = match kept {
            Ok(kept) => kept,
            Err(error)
                if list != 0
                    && (is_damage(error) && self.hurt.may_refuse(list)
                        || error == Error::Stale && self.hurt.may_be_gone(list)) =>
            {
                self.note(list, error);
                return Ok(());
            }
            Err(error) => return Err(format!("snapshots: {error}")),
        };
        let names =
            |all: &[(Vec<u8>, Ino)]| all.iter().map(|one| one.0.clone()).collect::<Vec<_>>();
        let wanted: Vec<Vec<u8>> = tree.snapshots.iter().map(|one| one.0.clone()).collect();
        if names(&kept) != wanted {
            return self.stale(list, || "other snapshots than there were".to_owned());
        }
        for ((_, root), (_, place)) in kept.iter().zip(&tree.snapshots) {
            self.node(fs, tree, numbers, *place, Ok(*root))?;
        }
        Ok(())
    }

    /// Whether an inode may be what it was before its last change, or the one that is looked at before its last one in
    /// a session that was not ended: another log has a part of that, and can't be read.
    fn may_be_stale(&self, ino: Ino) -> bool {
        self.hurt.may_be_stale(ino) || self.is_late && self.hurt.undoes_late
    }

    /// The same of one that may never have been there.
    fn may_be_gone(&self, ino: Ino) -> bool {
        self.hurt.may_be_gone(ino) || self.is_late && self.hurt.undoes_late
    }

    /// What is wrong with an inode, unless its log may have lost its end.
    fn stale(&mut self, ino: Ino, what: impl FnOnce() -> String) -> Result<(), String> {
        if !self.may_be_stale(ino) {
            return Err(what());
        }
        self.seen.unprotected += 1;
        Ok(())
    }

    /// Notes that something of an inode was refused.
    fn note(&mut self, ino: Ino, error: Error) {
        self.seen.refused += 1;
        if is_damage(error) {
            self.refused.push(Refused { ino, error, bytes: None, dir: None });
        }
    }

    /// The same of a name in a directory.
    fn note_name(&mut self, dir: Ino, ino: Ino, error: Error) {
        self.seen.refused += 1;
        self.refused.push(Refused { ino, error, bytes: None, dir: Some(dir) });
    }

    /// An error that came in place of something of an inode. What is damaged is refused, not gone: only where its beginning
    /// can't be told from what a crash has cut off was it never there.
    fn refused(&mut self, ino: Ino, may: bool, error: Error, node: &Node) -> Result<(), String> {
        if is_damage(error) && may || is_gone(error) && self.may_be_gone(ino) {
            self.note(ino, error);
            return Ok(());
        }
        Err(format!("{}: {error} ({error:?})", node.path))
    }

    fn node(
        &mut self,
        fs: &dyn Fs,
        tree: &Tree,
        numbers: &Numbers,
        place: usize,
        ino: Result<Ino, Error>,
    ) -> Result<(), String> {
        let node = &tree.nodes[place];
        self.is_late = node.times.iter().flatten().any(|time| *time >= LATER_NS);
        let known = numbers.get(&node.model_ino).copied();
        let may = |ino: Ino| self.hurt.may_refuse(ino) || self.is_fresh_loss(known);
        let above = numbers.get(&tree.nodes[node.parent].model_ino).copied().unwrap_or_default();
        let ino = match ino {
            Ok(ino) => ino,
            Err(error) => {
                let ino = known.unwrap_or_default();
                return self.refused(ino, may(ino), error, node);
            }
        };
        if known.is_some_and(|known| known != ino) {
            return self.stale(above, || format!("{}: inode {ino}, not {known:?}", node.path));
        }
        let attr = match fs.getattr(ino) {
            Ok(attr) => attr,
            Err(error) => return self.refused(ino, may(ino), error, node),
        };
        let there = There { node, ino };
        self.attributes(&there, &attr)?;
        self.xattrs(fs, &there)?;
        match node.kind {
            mode::DIRECTORY => self.directory(fs, tree, numbers, &there),
            mode::FILE => self.file(fs, &there),
            mode::SYMLINK => self.target(fs, &there),
            _ => Ok(()),
        }
    }

    /// Looks at what an inode holds, wherever its name is; without the extended attributes where some were given up.
    pub(super) fn contents(
        &mut self,
        fs: &dyn Fs,
        node: &Node,
        ino: Ino,
        gave_up_xattrs: bool,
    ) -> Result<(), String> {
        let there = There { node, ino };
        if !gave_up_xattrs {
            self.xattrs(fs, &there)?;
        }
        match node.kind {
            mode::FILE => self.file(fs, &there),
            mode::SYMLINK => self.target(fs, &there),
            _ => Ok(()),
        }
    }

    /// Whether an inode is new since the damage, or its log may have grown since, into memory that was bad.
    fn is_fresh_loss(&self, known: Option<Ino>) -> bool {
        let is_new = known.is_none() && self.hurt.metadata;
        self.was_used && (is_new || self.hurt.spoils_metadata())
    }

    fn attributes(&mut self, there: &There<'_>, attr: &Attr) -> Result<(), String> {
        let (node, found) = (there.node, Value::of(attr));
        if found != node.attr {
            let what =
                || format!("{}: {} found, not {}", node.path, found.show(), node.attr.show());
            return self.stale(there.ino, what);
        }
        let times = [attr.atime_ns, attr.mtime_ns, attr.ctime_ns, attr.btime_ns];
        let free = self.hurt.hits_atime(there.ino);
        for (index, (found, wanted)) in times.into_iter().zip(node.times).enumerate() {
            if wanted.is_none_or(|wanted| wanted == found) {
                continue;
            }
            if index == 0 && free {
                self.seen.unprotected += 1;
                continue;
            }
            let what = || format!("{}: time {index}: {found} found, not {wanted:?}", node.path);
            self.stale(there.ino, what)?;
        }
        Ok(())
    }

    fn xattrs(&mut self, fs: &dyn Fs, there: &There<'_>) -> Result<(), String> {
        let (node, may) = (there.node, self.hurt.may_refuse(there.ino));
        let mut names = match fs.listxattr(there.ino) {
            Ok(names) => names,
            Err(error) => return self.refused(there.ino, may, error, node),
        };
        names.sort();
        if !names.iter().eq(node.xattrs.iter().map(|(name, _)| name)) {
            return self.stale(there.ino, || format!("{}: other extended attributes", node.path));
        }
        for (name, wanted) in &node.xattrs {
            match fs.getxattr(there.ino, name) {
                Ok(value) if value == *wanted => {}
                Ok(_) => {
                    let what = || format!("{}: another value of {name:?}", node.path);
                    self.stale(there.ino, what)?;
                }
                Err(error) => {
                    let may = may || self.hurt.may_refuse_values(there.ino);
                    let fresh = self.was_used && self.hurt.spoils_data();
                    self.refused(there.ino, may || fresh, error, node)?;
                }
            }
        }
        Ok(())
    }

    fn directory(
        &mut self,
        fs: &dyn Fs,
        tree: &Tree,
        numbers: &Numbers,
        there: &There<'_>,
    ) -> Result<(), String> {
        let node = there.node;
        let mut names = Vec::new();
        let listed = fs.readdir(there.ino, 0, &mut |entry| {
            names.push((entry.name.to_vec(), entry.kind));
            true
        });
        if let Err(error) = listed {
            return self.refused(there.ino, self.hurt.may_refuse(there.ino), error, node);
        }
        names.sort();
        let child = |place: &usize| (&tree.nodes[*place].name, tree.nodes[*place].kind);
        let wanted = node.children.iter().map(child);
        if !names.iter().map(|(name, kind)| (name, *kind)).eq(wanted) {
            self.stale(there.ino, || format!("{}: other names than there were", node.path))?;
        }
        let is_late = self.is_late;
        for place in &node.children {
            let child = &tree.nodes[*place];
            self.is_late = is_late;
            let found = fs.lookup(there.ino, &child.name).map(|attr| attr.ino);
            match found {
                Err(error) if self.hurt.may_refuse(there.ino) && is_damage(error) => {
                    // (The error tells whose record leads there.)
                    let known = numbers.get(&child.model_ino).copied();
                    self.note_name(there.ino, known.unwrap_or(there.ino), error);
                }
                Err(Error::NotFound) if self.may_be_stale(there.ino) => {
                    self.seen.unprotected += 1;
                }
                found => self.node(fs, tree, numbers, *place, found)?,
            }
        }
        Ok(())
    }

    fn target(&mut self, fs: &dyn Fs, there: &There<'_>) -> Result<(), String> {
        let (node, hit) = (there.node, self.hurt.hits_target(self.base, there.ino));
        match fs.readlink(there.ino) {
            Ok(target) if target == node.target => Ok(()),
            // (It is file data where it is long.)
            Ok(_) if hit && self.base.level < Protection::Full => {
                self.seen.unprotected += 1;
                Ok(())
            }
            Ok(_) => self.stale(there.ino, || format!("{}: another target", node.path)),
            Err(error) => {
                let may = hit || self.hurt.may_refuse(there.ino);
                self.refused(there.ino, may, error, node)
            }
        }
    }

    fn file(&mut self, fs: &dyn Fs, there: &There<'_>) -> Result<(), String> {
        let wanted = &there.node.data;
        let mut found = vec![0xA5; wanted.len()];
        match fs.read(there.ino, 0, &mut found) {
            Ok(read) => self.bytes(there, 0, (&found, read), wanted),
            Err(error) if is_damage(error) => self.pieces(fs, there),
            Err(error) => Err(format!("{}: {error} ({error:?})", there.node.path)),
        }
    }

    /// Reads what can be lost in one piece by itself.
    fn pieces(&mut self, fs: &dyn Fs, there: &There<'_>) -> Result<(), String> {
        let piece = if self.base.strips.are_kept() { self.base.strips.bytes() } else { 64 };
        let ino = there.ino;
        for (offset, wanted) in
            (0u64..).step_by(piece as usize).zip(there.node.data.chunks(piece as usize))
        {
            let mut found = vec![0xA5; wanted.len()];
            match fs.read(ino, offset, &mut found) {
                Ok(read) => self.bytes(there, offset, (&found, read), wanted)?,
                Err(error) => {
                    let len = wanted.len() as u64;
                    let may = self.hurt.may_refuse(ino)
                        || self.hurt.may_refuse_data(self.base, ino, offset, len)
                        || self.was_used && self.hurt.spoils_data();
                    if !(may && is_damage(error)) {
                        let path = &there.node.path;
                        return Err(format!(
                            "{path}: {len} bytes at {offset}: {error} ({error:?})"
                        ));
                    }
                    self.seen.refused += 1;
                    self.refused.push(Refused {
                        ino,
                        error,
                        bytes: Some((offset, len)),
                        dir: None,
                    });
                }
            }
        }
        Ok(())
    }

    /// Forgets bytes that were refused and are there by now: a strip may be rebuilt when another of its page was, or when a snapshot was
    /// read in which the file ends elsewhere. That is no loss to be told of.
    fn ask_again(&mut self, fs: &dyn Fs) {
        self.refused.retain(|one| {
            let read = one
                .bytes
                .map(|(offset, len)| fs.read(one.ino, offset, &mut vec![0xA5; len as usize]));
            read.is_none_or(|read| read.is_err())
        });
    }

    fn bytes(
        &mut self,
        there: &There<'_>,
        offset: u64,
        (found, read): (&[u8], usize),
        wanted: &[u8],
    ) -> Result<(), String> {
        if read == wanted.len() && found == wanted {
            return Ok(());
        }
        let path = &there.node.path;
        if self.may_be_stale(there.ino) {
            self.seen.unprotected += 1;
            return Ok(());
        }
        if read != wanted.len() {
            return Err(format!("{path}: {read} bytes read at {offset}, of {}", wanted.len()));
        }
        let differing = found.iter().zip(wanted).enumerate().filter(|(_, (one, two))| one != two);
        for (index, (one, two)) in differing {
            let at = offset + index as u64;
            if !self.hurt.may_differ(self.base, there.ino, at) {
                return Err(format!("{path}: byte {at} is {one:#04x}, not {two:#04x}"));
            }
        }
        self.seen.unprotected += 1;
        Ok(())
    }
}
