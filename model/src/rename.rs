//! Rename, all cases of `renameat2`.

use lode_engine::{Error, Ino, RenameMode, Result};

use crate::{Model, State};

impl Model {
    /// Renames, replaces or swaps.
    pub fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        to_dir: Ino,
        to_name: &[u8],
        how: RenameMode,
    ) -> Result<()> {
        let mut state = self.lock();
        state.entries(to_dir)?;
        let source = state.child(dir, name)?.ok_or(Error::NotFound)?;
        let target = state.child(to_dir, to_name)?;
        match (how, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        if state.is_within(to_dir, source)? {
            return Err(Error::Invalid);
        }
        if let Some(target) = target {
            if state.is_within(dir, target)? {
                return Err(match how {
                    RenameMode::Exchange => Error::Invalid,
                    _ => Error::NotEmpty,
                });
            }
            if source == target {
                return Ok(());
            }
            if how == RenameMode::Exchange {
                return state.exchange((dir, name, source), (to_dir, to_name, target));
            }
            state.replaceable(source, target)?;
        }
        if state.node(to_dir)?.names == 0 {
            return Err(Error::NotFound);
        }
        state.remove(dir, name)?;
        state.insert(to_dir, to_name, source)?;
        state.moved(source, to_dir)?;
        match target {
            Some(target) => state.unname(target),
            None => Ok(()),
        }
    }
}

impl State {
    /// Whether `dir` is `ancestor` or lies somewhere in it.
    fn is_within(&self, dir: Ino, ancestor: Ino) -> Result<bool> {
        let mut at = dir;
        loop {
            if at == ancestor {
                return Ok(true);
            }
            let parent = self.node(at)?.parent;
            if parent == at {
                return Ok(false);
            }
            at = parent;
        }
    }

    /// Fails unless `source` may take the place of `target`.
    fn replaceable(&self, source: Ino, target: Ino) -> Result<()> {
        match (self.node(source)?.is_dir(), self.node(target)?.is_dir()) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            (true, true) if !self.entries(target)?.is_empty() => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    fn exchange(&mut self, one: (Ino, &[u8], Ino), other: (Ino, &[u8], Ino)) -> Result<()> {
        self.insert(one.0, one.1, other.2)?;
        self.insert(other.0, other.1, one.2)?;
        self.moved(one.2, other.0)?;
        self.moved(other.2, one.0)
    }

    /// An inode has come to `dir`. Whether that is a change of the inode is left open.
    fn moved(&mut self, ino: Ino, dir: Ino) -> Result<()> {
        let now = self.now;
        let node = self.node_mut(ino)?;
        node.changed(now);
        node.loose.ctime = true;
        if node.is_dir() {
            node.parent = dir;
        }
        Ok(())
    }
}
