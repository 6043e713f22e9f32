//! Judges a pool that was salvaged: it is sound, what is there is right, and what is not there was told of.

use std::collections::{HashMap, HashSet};

use lode_engine::{Error, Ino, Pool, Salvage, mode};
use lode_testkit::TestHost;
use lode_testkit::execute::Value;
use lode_testkit::fs::Fs;

use super::base::Base;
use super::hurt::Hurt;
use super::look::{Look, is_damage};
use super::medium::Struck;
use super::tree::{Node, Numbers, Tree};

/// What a salvage has told.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// Inodes that were given up.
    discarded: HashSet<Ino>,
    /// Inodes that have other names than before, or fewer.
    moved: HashSet<Ino>,
    /// Inodes that entries led to, and do not any more.
    removed: HashSet<Ino>,
    /// Directories that were made again.
    made: HashSet<Ino>,
    /// Inodes that lost extended attributes.
    attributes: HashSet<Ino>,
    linked: HashSet<Ino>,
    /// Inode tables were searched for.
    tables: bool,
    root: bool,
    snapshots: bool,
}

impl Told {
    /// Takes in what it tells.
    pub(super) fn hear(&mut self, event: &Salvage<'_>) {
        match event {
            Salvage::TablesFound { .. } => self.tables = true,
            Salvage::SnapshotsLost { .. } => self.snapshots = true,
            Salvage::Discarded { damage, .. } => {
                self.discarded.insert(damage.ino);
            }
            Salvage::RootMade => self.root = true,
            Salvage::EntryRemoved { ino, .. } => {
                self.removed.insert(*ino);
                self.moved.insert(*ino);
            }
            Salvage::Attached { ino, .. } => {
                self.moved.insert(*ino);
            }
            Salvage::DirectoryMade { ino, .. } => {
                self.made.insert(*ino);
            }
            Salvage::LinksSet { ino, .. } => {
                self.linked.insert(*ino);
            }
            Salvage::AttributeRemoved { ino, .. } => {
                self.attributes.insert(*ino);
            }
            Salvage::WatermarkReset { .. }
            | Salvage::ChainMended { .. }
            | Salvage::SectorsLost { .. }
            | Salvage::CheckpointLost { .. } => {}
        }
    }

    /// Whether names of this inode may be gone, and that was told.
    fn may_have_lost_names(&self, ino: Ino) -> bool {
        let with_directory = self.root || !self.discarded.is_empty() || !self.made.is_empty();
        with_directory || self.linked.contains(&ino) || self.moved.contains(&ino)
    }

    /// Whether this inode is not what it was, and that was told.
    fn has_lost(&self, ino: Ino) -> bool {
        self.discarded.contains(&ino) || self.made.contains(&ino) || self.tables
    }
}

/// A pool that was salvaged.
pub(super) struct Salvaged<'a> {
    pub(super) base: &'a Base,
    pub(super) hurt: &'a Hurt,
    pub(super) told: &'a Told,
    pub(super) pool: &'a Pool<Struck, TestHost>,
    pub(super) was_used: bool,
}

impl Salvaged<'_> {
    /// How many things were lost, all of which were told.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn judge(&self, trees: &[Tree], numbers: &Numbers) -> Result<usize, String> {
        let mut wrong = Vec::new();
        for tree in trees {
            match self.tree(tree, numbers) {
                Ok(lost) => return Ok(lost),
                Err(what) => wrong.push(format!("after a salvage: {what}")),
            }
        }
        Err(wrong.join("; or, after the operation that was cut off: "))
    }

    fn tree(&self, tree: &Tree, numbers: &Numbers) -> Result<usize, String> {
        let ends = tree.snapshots.first().map_or(tree.nodes.len(), |(_, place)| *place);
        let live = &tree.nodes[..ends];
        let mut lost = usize::from(self.told.snapshots || self.told.root || self.told.tables);
        let mut judged = HashSet::new();
        for node in live.iter().skip(1) {
            let Some(ino) = numbers.get(&node.model_ino).copied() else { continue };
            if judged.insert(ino) {
                lost += self.inode(tree, node, numbers, ino)?;
            }
        }
        let known: HashMap<Ino, &Node> =
            live.iter().filter_map(|node| Some((*numbers.get(&node.model_ino)?, node))).collect();
        lost += self.names(tree, live, numbers)?;
        self.nothing_else(&known)?;
        Ok(lost)
    }

    fn inode(
        &self,
        tree: &Tree,
        node: &Node,
        numbers: &Numbers,
        ino: Ino,
    ) -> Result<usize, String> {
        // (Of one without an identity nothing is left but an entry.)
        let nothing = self.told.removed.contains(&ino) && self.hurt.may_refuse(ino);
        if self.told.has_lost(ino) || nothing {
            return Ok(1);
        }
        let stale = self.hurt.may_be_stale(ino) || self.is_new(ino);
        let generation = self.base.generations.get(&ino);
        let attr = match Fs::getattr(self.pool, ino) {
            // (The slot may be in use again.)
            Ok(attr) if generation.is_none_or(|known| *known == attr.generation) => attr,
            _ if stale || self.was_in_lost(node, tree, numbers) => return Ok(1),
            Ok(_) => return Err(format!("{} is lost untold", node.path)),
            Err(error) if stale || self.stays_bad(error) => return Ok(1),
            Err(error) => return Err(format!("{} is lost untold: {error}", node.path)),
        };
        let mut found = Value::of(&attr);
        if let (Value::Attr { links, mode, .. }, Value::Attr { links: wanted, mode: old, .. }) =
            (&mut found, &node.attr)
        {
            if self.told.may_have_lost_names(ino) || node.kind == mode::DIRECTORY {
                *links = *wanted;
            }
            if self.told.attributes.contains(&ino) {
                *mode = *old;
            }
        }
        if found != node.attr && !stale {
            let (found, wanted) = (found.show(), node.attr.show());
            return Err(format!("{}: {found} found, not {wanted}", node.path));
        }
        let mut look =
            Look::new(self.base, self.hurt, self.was_used || self.hurt.spoils_metadata());
        look.contents(self.pool, node, ino, self.told.attributes.contains(&ino))?;
        Ok(0)
    }

    /// Whether nothing is left of an inode but entries that nobody can read.
    fn was_in_lost(&self, node: &Node, tree: &Tree, numbers: &Numbers) -> bool {
        let dir = numbers.get(&tree.nodes[node.parent].model_ino).copied().unwrap_or_default();
        let ino = numbers.get(&node.model_ino).copied().unwrap_or_default();
        let is_lost = self.told.has_lost(dir) || self.told.removed.contains(&dir);
        is_lost && self.hurt.may_refuse(ino)
    }

    /// What is made again may lie in memory that stays bad.
    fn stays_bad(&self, error: Error) -> bool {
        self.hurt.spoils_metadata() && is_damage(error)
    }

    /// Whether an inode came into being after the damage.
    fn is_new(&self, ino: Ino) -> bool {
        self.was_used && !self.base.numbers.values().any(|known| *known == ino)
    }

    /// Each name leads where it led, or what happened to it was told.
    fn names(&self, tree: &Tree, live: &[Node], numbers: &Numbers) -> Result<usize, String> {
        let mut lost = 0;
        for node in live.iter().skip(1) {
            let wanted = numbers.get(&node.model_ino).copied();
            let found = lode_testkit::execute::resolve(self.pool, &node.path).ok();
            if found.is_some() && found == wanted || wanted.is_none() {
                continue;
            }
            let mut above = node;
            let is_told = loop {
                let ino = numbers.get(&above.model_ino).copied().unwrap_or_default();
                let moved = self.told.moved.contains(&ino) || self.told.linked.contains(&ino);
                let is_undone = self.hurt.undoes_late && self.is_new_name(above);
                if moved || self.told.has_lost(ino) || self.hurt.may_be_stale(ino) || is_undone {
                    break true;
                }
                let up = &tree.nodes[above.parent];
                if up.path == above.path {
                    break self.told.root || self.hurt.may_be_stale(ino);
                }
                above = up;
            };
            if !is_told && !self.hurt.spoils_metadata() {
                return Err(format!("the name {} is lost untold", node.path));
            }
            lost += 1;
        }
        Ok(lost)
    }

    /// Whether something was given this name after the damage.
    fn is_new_name(&self, node: &Node) -> bool {
        let is_it = |old: &Node| old.path == node.path && old.model_ino == node.model_ino;
        !self.base.trees.iter().any(|tree| tree.nodes.iter().any(is_it))
    }

    /// Nothing is there that was not.
    fn nothing_else(&self, known: &HashMap<Ino, &Node>) -> Result<(), String> {
        let mut todo = vec![self.pool.root()];
        let mut seen = HashSet::new();
        while let Some(dir) = todo.pop() {
            if !seen.insert(dir) {
                continue;
            }
            let mut extra = None;
            let listed = self.pool.readdir(dir, 0, &mut |entry| {
                if entry.kind == mode::DIRECTORY {
                    todo.push(entry.ino);
                } else if !known.contains_key(&entry.ino) && !self.told.moved.contains(&entry.ino) {
                    extra = Some(format!("inode {} has a name again: {:?}", entry.ino, entry.name));
                }
                true
            });
            match listed {
                Err(error) if !self.stays_bad(error) => {
                    return Err(format!("listing of inode {dir}: {error}"));
                }
                _ => {}
            }
            if let Some(extra) = extra
                && !self.was_used
                && !self.hurt.may_be_stale_somewhere()
                && !self.told.tables
            {
                return Err(extra);
            }
        }
        Ok(())
    }
}
