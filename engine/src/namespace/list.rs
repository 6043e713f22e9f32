//! Listing directories.

use lode_pmem::Medium;

use crate::inode::load_name;
use crate::{DirEntry, Host, Ino, NAME_MAX, Op, Pool, Result};

impl<M: Medium, H: Host> Pool<M, H> {
    /// Lists a directory from behind `cookie` (0: from its start; `.` and `..` are not
    /// listed) until `each` returns false: that entry was not taken. Cookies follow the
    /// names, not the history: they are stable while a name lives, across openings too.
    pub fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.count(Op::Readdir);
        let node = self.node(dir)?;
        let state = node.read(&self.store)?;
        let mut name = [0u8; NAME_MAX];
        let entries = &state.directory()?.entries;
        self.touch(&state);
        for entry in entries.after(cookie) {
            let (_, len) = load_name(&self.store, &state, &entry, &mut name)?;
            let taken = each(DirEntry {
                ino: entry.ino,
                kind: u32::from(entry.kind) << 12,
                cookie: entry.cookie,
                name: name.get(..len).unwrap_or_default(),
            });
            if !taken {
                break;
            }
        }
        Ok(())
    }
}
