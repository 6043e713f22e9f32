//! Opens an image that may hold anything, looks at all of it, uses it, and demands no more
//! than an error or a sound pool.

use std::collections::HashSet;

use lode_engine::{Error, Fallocate, Ino, NewInode, OpenOptions, Pool, RenameMode, SetAttr, mode};

use crate::fs::TestPool;
use crate::{Memory, TestHost};

/// What became of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// It was not opened.
    Refused,
    /// It was opened and something said that it is damaged.
    Damaged,
    /// Nothing was found wrong.
    Sound,
}

/// Entries and inodes that a walk looks at before it gives up.
const MOST: usize = 20_000;

/// Opens the image read-only, then read-write; walks, reads, checks and uses it.
///
/// # Errors
/// What must not be: a read-only opening that writes, or a pool that its own check calls
/// sound and that then shows damage. (Panics and hangs are the caller's to catch.)
pub fn try_image(image: &[u8]) -> Result<Verdict, String> {
    let memory = Memory::from_image(image);
    let before = memory.stores();
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    if let Ok(pool) = Pool::open(memory.clone(), TestHost::new(1), &read_only) {
        let _ = walk(&pool);
        let _ = pool.check(&mut |_, _| ());
        let made = pool.create(pool.root(), b"x", &new(mode::FILE));
        if !matches!(made, Err(Error::ReadOnly)) {
            return Err(format!("create in a read-only pool: {made:?}"));
        }
        let _ = pool.close();
    }
    if memory.stores() != before {
        return Err("a read-only opening wrote to the pool".to_owned());
    }
    let host = TestHost::with_cpus(2, 2);
    let Ok(pool) = Pool::open(memory.clone(), host, &OpenOptions::default()) else {
        return Ok(Verdict::Refused);
    };
    let check = pool.check(&mut |_, _| ());
    let sound = check.as_ref().is_ok_and(|report| report.damage.is_empty());
    let walked = walk(&pool);
    if sound && let Err((what, error)) = walked {
        return Err(format!("check found nothing, but {what}: {error:?}"));
    }
    let used = using(&pool);
    if sound && let Err(error @ (Error::Corrupt(_) | Error::Media { .. })) = used {
        return Err(format!("check found nothing, but using it: {error:?}"));
    }
    let closed = pool.close();
    drop(pool);
    let again = Pool::open(memory, TestHost::new(3), &OpenOptions::default());
    if sound {
        closed.map_err(|error| format!("check found nothing, but close: {error:?}"))?;
        let again = again.map_err(|error| format!("sound, closed, not opened: {error:?}"))?;
        let report = again.check(&mut |_, _| ()).map_err(|e| format!("second check: {e:?}"))?;
        if let Some(damage) = report.damage.first() {
            return Err(format!("sound, used, and then damaged: {damage}"));
        }
        return Ok(Verdict::Sound);
    }
    Ok(Verdict::Damaged)
}

fn new(kind: u32) -> NewInode {
    NewInode { mode: kind | 0o644, uid: 1, gid: 1, rdev: 0 }
}

/// Looks at everything; the first error, if there is one.
fn walk(pool: &TestPool) -> Result<(), (String, Error)> {
    let mut seen = HashSet::new();
    let mut todo = vec![pool.root()];
    let mut first: Result<(), (String, Error)> = Ok(());
    let mut note = |what: &str, ino: Ino, result: Result<(), Error>| {
        if let Err(error) = result
            && first.is_ok()
        {
            first = Err((format!("{what} of inode {ino}"), error));
        }
    };
    while let Some(ino) = todo.pop() {
        if !seen.insert(ino) || seen.len() > MOST {
            continue;
        }
        let kind = pool.getattr(ino).map(|attr| (attr.mode & mode::TYPE, attr.size));
        note("attributes", ino, kind.map(|_| ()));
        match kind {
            Ok((mode::DIRECTORY, _)) => {
                let mut names = Vec::new();
                let mut visit = |entry: lode_engine::DirEntry<'_>| {
                    names.push(entry.name.to_vec());
                    todo.push(entry.ino);
                    names.len() < MOST
                };
                note("listing", ino, pool.readdir(ino, 0, &mut visit));
                for name in names.iter().take(300) {
                    note("lookup in", ino, pool.lookup(ino, name).map(|_| ()));
                }
            }
            Ok((mode::FILE, size)) => note("contents", ino, read_some(pool, ino, size)),
            Ok((mode::SYMLINK, _)) => note("target", ino, pool.readlink(ino).map(|_| ())),
            _ => {}
        }
    }
    let mut inodes = 0;
    let mut dump = |ino| {
        let _ = pool.dump_inode(ino);
        inodes += 1;
        inodes < MOST
    };
    let _ = pool.for_each_inode(&mut dump);
    first
}

fn read_some(pool: &TestPool, ino: Ino, size: u64) -> Result<(), Error> {
    let mut buffer = vec![0; 10_000];
    for at in [0, size / 2, size.saturating_sub(5000), size] {
        pool.read(ino, at, &mut buffer)?;
    }
    let mut at = 0;
    for _ in 0..200 {
        let Ok(start) = pool.seek(ino, at, true) else { break };
        pool.read(ino, start, &mut buffer)?;
        at = pool.seek(ino, start, false)?;
        if at <= start {
            break;
        }
    }
    Ok(())
}

/// Uses the pool as if nothing were wrong; the first error.
fn using(pool: &TestPool) -> Result<(), Error> {
    let root = pool.root();
    let mut entries = Vec::new();
    let mut visit = |entry: lode_engine::DirEntry<'_>| {
        entries.push((entry.name.to_vec(), entry.ino, entry.kind));
        entries.len() < 40
    };
    let mut worst = pool.readdir(root, 0, &mut visit);
    let mut note = |result: Result<(), Error>| {
        if let Err(error) = result
            && (worst.is_ok() || matches!(error, Error::Corrupt(_)))
        {
            worst = Err(error);
        }
    };
    note(pool.create(root, b"trial-dir", &new(mode::DIRECTORY)).map(|_| ()));
    match pool.create(root, b"trial", &new(mode::FILE)) {
        Ok(file) => {
            note(pool.write(file.ino, 100, &[7; 9000]));
            note(pool.write(file.ino, 4000, &[8; 300]));
            note(pool.link(file.ino, root, b"trial-link").map(|_| ()));
        }
        Err(error) => note(Err(error)),
    }
    for (index, (name, ino, kind)) in entries.iter().enumerate() {
        match (kind, index % 4) {
            (&mode::FILE, 0) => note(pool.append(*ino, &[9; 5000]).map(|_| ())),
            (&mode::FILE, 1) => {
                let size = Some(10);
                note(pool.setattr(*ino, &SetAttr { size, ..SetAttr::default() }).map(|_| ()));
            }
            (&mode::FILE, 2) => note(pool.fallocate(*ino, Fallocate::Punch, 0, 1 << 20)),
            (&mode::DIRECTORY, 0) => {
                note(pool.create(*ino, b"trial", &new(mode::FILE)).map(|_| ()));
            }
            (&mode::DIRECTORY, _) => match pool.rmdir(root, name) {
                Err(Error::NotEmpty) => {}
                other => note(other),
            },
            _ => {
                note(pool.rename(root, name, root, b"trial-moved", RenameMode::Replace));
                note(pool.unlink(root, b"trial-moved"));
            }
        }
    }
    note(pool.maintain());
    worst
}
