//! Extended attributes.

use lode_engine::{
    Attr, Error, Ino, NAME_MAX, NewInode, Result, SetAttr, XATTR_LIST_MAX, XATTR_VALUE_MAX,
    XattrChange, XattrWhen, mode,
};

use crate::node::Xattrs;
use crate::{Model, State};

impl Model {
    /// Changes one extended attribute.
    pub fn setxattr(&self, ino: Ino, change: &XattrChange<'_>) -> Result<()> {
        let mut state = self.lock();
        let now = state.now;
        let node = state.node_mut(ino)?;
        if set(&mut node.xattrs, change)? {
            node.changed(now);
        }
        Ok(())
    }

    /// As [`Model::create`], with extended attributes.
    pub fn create_with(
        &self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        let mut state = self.lock();
        state.vacant(dir, name)?;
        let body = State::new_body(new.mode & mode::TYPE).ok_or(Error::Invalid)?;
        let (xattrs, _) = changed(&Xattrs::new(), xattrs)?;
        let ino = state.make(dir, name, new, body)?.ino;
        state.node_mut(ino)?.xattrs = xattrs;
        state.attr(ino)
    }

    /// Makes a regular file without a name; the caller has it open.
    pub fn create_nameless(
        &self,
        dir: Ino,
        new: &NewInode,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        let mut state = self.lock();
        let removed = state.node(dir)?.names == 0;
        state.entries(dir)?;
        if removed {
            return Err(Error::NotFound);
        }
        if new.mode & mode::TYPE != mode::FILE {
            return Err(Error::Invalid);
        }
        let body = State::new_body(mode::FILE).ok_or(Error::Invalid)?;
        let (xattrs, _) = changed(&Xattrs::new(), xattrs)?;
        let ino = state.node_of(dir, new, body);
        let node = state.node_mut(ino)?;
        (node.names, node.nameless, node.opens, node.xattrs) = (0, true, 1, xattrs);
        state.attr(ino)
    }

    /// As [`Model::setattr`], with extended attributes.
    pub fn setattr_with(
        &self,
        ino: Ino,
        changes: &SetAttr,
        xattrs: &[XattrChange<'_>],
    ) -> Result<Attr> {
        let mut state = self.lock();
        let before = state.node(ino)?.clone();
        state.setattr(ino, changes)?;
        let now = state.now;
        let node = state.node_mut(ino)?;
        match changed(&before.xattrs, xattrs) {
            Ok((xattrs, any)) => {
                node.xattrs = xattrs;
                if any {
                    node.changed(now);
                }
            }
            Err(error) => {
                *node = before;
                return Err(error);
            }
        }
        state.attr(ino)
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

/// Attributes after several changes, and whether that is anything new.
fn changed(before: &Xattrs, changes: &[XattrChange<'_>]) -> Result<(Xattrs, bool)> {
    let (mut xattrs, mut any) = (before.clone(), false);
    for (index, change) in changes.iter().enumerate() {
        if changes.iter().take(index).any(|other| other.name == change.name) {
            return Err(Error::Invalid);
        }
        any |= set(&mut xattrs, change)?;
    }
    Ok((xattrs, any))
}

/// Changes one attribute; says whether that did anything.
fn set(xattrs: &mut Xattrs, change: &XattrChange<'_>) -> Result<bool> {
    if change.name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if change.name.is_empty() || change.name.contains(&0) {
        return Err(Error::Invalid);
    }
    let there = xattrs.contains_key(change.name);
    match change.when {
        XattrWhen::Absent if there => return Err(Error::Exists),
        XattrWhen::Present if !there => return Err(Error::NoAttribute),
        _ => {}
    }
    let Some(value) = change.value else {
        return Ok(xattrs.remove(change.name).is_some());
    };
    if value.len() > XATTR_VALUE_MAX {
        return Err(Error::TooLong);
    }
    let names: usize = xattrs.keys().map(|name| name.len() + 1).sum();
    if !there && names + change.name.len() + 1 > XATTR_LIST_MAX {
        return Err(Error::NoSpace);
    }
    xattrs.insert(change.name.to_vec(), value.to_vec());
    Ok(true)
}
