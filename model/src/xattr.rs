//! Extended attributes.

use lode_engine::{
    Attr, Error, Ino, NAME_MAX, NewInode, Result, SetAttr, XATTR_LIST_MAX, XATTR_VALUE_MAX,
    XattrChange, XattrWhen,
};

use crate::Model;
use crate::node::Node;

impl Model {
    /// Changes one extended attribute.
    pub fn setxattr(&self, ino: Ino, change: &XattrChange<'_>) -> Result<()> {
        let mut state = self.lock();
        let now = state.now;
        set(state.node_mut(ino)?, change, now)
    }

    /// As [`Model::create`], with extended attributes.
    pub fn create_with(
        &self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        self.whole(|model| {
            let ino = model.create(dir, name, new)?.ino;
            model.set_all(ino, xattrs)
        })
    }

    /// As [`Model::setattr`], with extended attributes.
    pub fn setattr_with(
        &self,
        ino: Ino,
        changes: &SetAttr,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        self.whole(|model| {
            model.setattr(ino, changes)?;
            model.set_all(ino, xattrs)
        })
    }

    fn set_all(&self, ino: Ino, xattrs: &[XattrChange<'_>]) -> Result<Attr> {
        for (index, change) in xattrs.iter().enumerate() {
            if xattrs.iter().take(index).any(|other| other.name == change.name) {
                return Err(Error::Invalid);
            }
            self.setxattr(ino, change)?;
        }
        self.getattr(ino)
    }

    /// Does `work` wholly or not at all. (What else is done to the model meanwhile is lost with it:
    /// the model is used by one at a time.)
    fn whole(&self, work: impl FnOnce(&Model) -> Result<Attr>) -> Result<Attr> {
        let before = self.lock().clone();
        work(self).inspect_err(|_| *self.lock() = before)
    }

    /// The value of an extended attribute.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.lock().node(ino)?.xattrs.get(name).cloned().ok_or(Error::NoAttribute)
    }

    /// The names of all extended attributes.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.lock().node(ino)?.xattrs.keys().cloned().collect())
    }
}

fn set(node: &mut Node, change: &XattrChange<'_>, now: i64) -> Result<()> {
    if change.name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if change.name.is_empty() || change.name.contains(&0) {
        return Err(Error::Invalid);
    }
    let there = node.xattrs.contains_key(change.name);
    match change.when {
        XattrWhen::Absent if there => return Err(Error::Exists),
        XattrWhen::Present if !there => return Err(Error::NoAttribute),
        _ => {}
    }
    let Some(value) = change.value else {
        if node.xattrs.remove(change.name).is_some() {
            node.changed(now);
        }
        return Ok(());
    };
    if value.len() > XATTR_VALUE_MAX {
        return Err(Error::TooLong);
    }
    let names: usize = node.xattrs.keys().map(|name| name.len() + 1).sum();
    if !there && names + change.name.len() + 1 > XATTR_LIST_MAX {
        return Err(Error::NoSpace);
    }
    node.xattrs.insert(change.name.to_vec(), value.to_vec());
    node.changed(now);
    Ok(())
}
