//! Contents: read, write, append, truncate, fallocate, seek.

use lode_engine::{Error, FILE_MAX, Fallocate, Ino, PAGE_BYTES, Result};

use crate::Model;
use crate::data::Data;
use crate::node::{Body, Node};

impl Model {
    /// Reads; fewer bytes than asked only at the end of the file. Access times stay.
    pub fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        match &self.lock().node(ino)?.body {
            Body::File(data) => Ok(data.read(offset, into)),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let now = state.now;
        write_at(state.node_mut(ino)?, Some(offset), bytes, now).map(|_| ())
    }

    /// Writes whole sectors; the times may stay, or move.
    pub fn write_sectors(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let now = state.now;
        if !offset.is_multiple_of(512) || !bytes.len().is_multiple_of(512) {
            return Err(Error::Invalid);
        }
        let node = state.node_mut(ino)?;
        let grows = offset + bytes.len() as u64 > file(node)?.size();
        write_at(node, Some(offset), bytes, now)?;
        if !grows {
            node.perhaps_modified(now);
        }
        Ok(())
    }

    /// Writes all of `bytes` at the end; returns where that was.
    pub fn append(&self, ino: Ino, bytes: &[u8]) -> Result<u64> {
        let mut state = self.lock();
        let now = state.now;
        write_at(state.node_mut(ino)?, None, bytes, now)
    }

    /// Maps all of a file.
    pub fn map(&self, ino: Ino) -> Result<()> {
        let mut state = self.lock();
        let now = state.now;
        let node = state.node_mut(ino)?;
        if file(node)?.size() == 0 {
            return Err(Error::Invalid);
        }
        node.maps += 1;
        backed(node, now)
    }

    /// Ends a [`Model::map`].
    pub fn unmap(&self, ino: Ino) -> Result<()> {
        let mut state = self.lock();
        let node = state.node_mut(ino)?;
        node.maps = node.maps.checked_sub(1).ok_or(Error::Invalid)?;
        Ok(())
    }

    /// Stores bytes through a map: inside of the file, and its times stay.
    pub fn poke(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let now = state.now;
        let node = state.node_mut(ino)?;
        let end = offset.checked_add(bytes.len() as u64).ok_or(Error::Invalid)?;
        if node.maps == 0 || end > file(node)?.size() {
            return Err(Error::Invalid);
        }
        backed(node, now)?;
        file(node)?.write(offset, bytes);
        Ok(())
    }

    /// The same, and ends the map.
    pub fn leave(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
        self.poke(ino, offset, bytes)?;
        self.unmap(ino)
    }

    /// Puts staged pages with these bytes, as many as fit in the file, in the place of its own.
    pub fn swap(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let now = state.now;
        let node = state.node_mut(ino)?;
        let size = file(node)?.size();
        let end = offset.checked_add(bytes.len() as u64).ok_or(Error::Invalid)?;
        let whole = (offset | end).is_multiple_of(PAGE_BYTES) && !bytes.is_empty();
        if node.maps != 1 || !whole || end > size.next_multiple_of(PAGE_BYTES) {
            return Err(Error::Invalid);
        }
        let inside = (size - offset).min(bytes.len() as u64) as usize;
        write_at(node, Some(offset), &bytes[..inside], now).map(|_| ())
    }

    /// Allocates, punches or zeroes a range.
    pub fn fallocate(&self, ino: Ino, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let mut state = self.lock();
        let now = state.now;
        let node = state.node_mut(ino)?;
        let data = file(node)?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        let end = end_of(offset, len)?;
        let before = data.size();
        match how {
            Fallocate::Allocate { keep_size: true } => {}
            Fallocate::Allocate { keep_size: false } => data.grow(end),
            Fallocate::Punch | Fallocate::Zero { keep_size: true } => data.zero(offset, len),
            Fallocate::Zero { keep_size: false } => {
                data.zero(offset, len);
                data.grow(end);
            }
        }
        if data.size() == before {
            node.perhaps_modified(now);
        } else {
            node.modified(now);
        }
        Ok(())
    }

    /// First offset at or after `offset` with (or without) data.
    pub fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<u64> {
        match &self.lock().node(ino)?.body {
            Body::File(bytes) => bytes.seek(offset, data).ok_or(Error::NotFound),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }
}

/// Sets the size of a file. Whether a size set to itself is a modification is left open.
pub(crate) fn truncate(node: &mut Node, size: u64, now: i64) -> Result<()> {
    let data = file(node)?;
    end_of(size, 0)?;
    let before = data.size();
    data.truncate(size);
    if size == before {
        node.perhaps_modified(now);
    } else {
        node.modified(now);
    }
    Ok(())
}

fn write_at(node: &mut Node, offset: Option<u64>, bytes: &[u8], now: i64) -> Result<u64> {
    let data = file(node)?;
    let offset = offset.unwrap_or(data.size());
    end_of(offset, bytes.len() as u64)?;
    if !bytes.is_empty() {
        data.write(offset, bytes);
        node.modified(now);
    }
    Ok(offset)
}

fn file(node: &mut Node) -> Result<&mut Data> {
    match &mut node.body {
        Body::File(data) => Ok(data),
        Body::Directory(_) => Err(Error::IsDirectory),
        _ => Err(Error::Invalid),
    }
}

fn end_of(offset: u64, len: u64) -> Result<u64> {
    let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
    if end > FILE_MAX { Err(Error::FileTooLarge) } else { Ok(end) }
}

/// Holes of a file are backed with pages: that may change its times.
fn backed(node: &mut Node, now: i64) -> Result<()> {
    let data = file(node)?;
    let size = data.size();
    if data.seek(0, false).is_some_and(|hole| hole < size) {
        node.perhaps_modified(now);
    }
    Ok(())
}
