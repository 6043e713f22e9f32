//! Snapshots: copies of everything, under numbers of their own.

use lode_engine::{Error, Ino, Result};

use crate::node::Body;
use crate::{Model, ROOT, State};

/// Inodes of snapshots have numbers from here on.
pub(crate) const VIEW: Ino = 1 << 40;

/// A snapshot: its name, and what the numbers of its inodes have besides.
pub(crate) type Snapshot = (Vec<u8>, Ino);

impl Model {
    /// Keeps all that has a name as it is now.
    pub fn create_snapshot(&self, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        if state.view_of(name).is_some() {
            return Err(Error::Exists);
        }
        state.last_view += 1;
        let view = state.last_view * VIEW;
        let mut kept = Vec::new();
        for node in state.nodes.values().filter(|node| node.ino < VIEW && node.names > 0) {
            let mut node = node.clone();
            (node.ino, node.parent) = (node.ino | view, node.parent | view);
            (node.opens, node.maps) = (0, 0);
            if let Body::Directory(entries) = &mut node.body {
                entries.move_children(view);
            }
            kept.push((node.ino, node));
        }
        state.nodes.extend(kept);
        state.snapshots.push((name.to_vec(), view));
        Ok(())
    }

    /// Forgets a snapshot.
    pub fn delete_snapshot(&self, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let view = state.view_of(name).ok_or(Error::NotFound)?;
        state.nodes.retain(|ino, _| ino & !(VIEW - 1) != view);
        state.snapshots.retain(|(_, other)| *other != view);
        Ok(())
    }

    /// All snapshots, the oldest first, and the root directory of each.
    pub fn snapshots(&self) -> Vec<(Vec<u8>, Ino)> {
        self.lock().snapshots.iter().map(|(name, view)| (name.clone(), ROOT | view)).collect()
    }

    /// Makes all what it was; later snapshots are gone.
    pub fn rollback(&self, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let view = state.view_of(name).ok_or(Error::NotFound)?;
        state.nodes.retain(|ino, _| (VIEW..view + VIEW).contains(ino));
        state.snapshots.retain(|(_, other)| *other <= view);
        let mut back = Vec::new();
        for node in state.nodes.range(view..view + VIEW).map(|(_, node)| node) {
            let mut node = node.clone();
            (node.ino, node.parent) = (node.ino - view, node.parent - view);
            if let Body::Directory(entries) = &mut node.body {
                entries.move_children(view);
            }
            back.push((node.ino, node));
        }
        state.nodes.extend(back);
        Ok(())
    }
}

impl State {
    fn view_of(&self, name: &[u8]) -> Option<Ino> {
        self.snapshots.iter().find(|(other, _)| other == name).map(|(_, view)| *view)
    }
}
