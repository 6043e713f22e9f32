//! Extended attributes.

use lode_engine::{
    Error, Ino, NAME_MAX, Result, XATTR_LIST_MAX, XATTR_VALUE_MAX, XattrChange, XattrWhen,
};

use crate::Model;

impl Model {
    /// Changes one extended attribute.
    pub fn setxattr(&self, ino: Ino, change: &XattrChange<'_>) -> Result<()> {
        let mut state = self.lock();
        let now = state.now;
        let node = state.node_mut(ino)?;
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

    /// The value of an extended attribute.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.lock().node(ino)?.xattrs.get(name).cloned().ok_or(Error::NoAttribute)
    }

    /// The names of all extended attributes.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.lock().node(ino)?.xattrs.keys().cloned().collect())
    }
}
