//! Calls as words, done by std in a directory and by the library in a pool, outcomes compared.
//!
//! All paths begin at a root: a directory for std, the root of the pool for the library.

use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lode::{Pool, RenameMode};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

use super::{pool, scratch, tree};

/// What a call gave, or its error number.
pub type Outcome = Result<String, i32>;

/// A directory of a tmpfs and a pool that have the same in them.
pub struct Twin {
    pub dir: TempDir,
    pub pool: Pool,
}

impl Twin {
    pub fn new() -> Self {
        Self { dir: scratch(), pool: pool(16) }
    }

    /// Where a path is in std's tree. The empty one stays so.
    pub fn at(&self, path: &str) -> String {
        let root = self.dir.path().to_str().unwrap();
        if path.is_empty() { String::new() } else { format!("{root}/{path}") }
    }

    /// Does one call in both, which must have the same outcome. Returns that.
    #[track_caller]
    pub fn call(&self, line: &str) -> Outcome {
        let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('"')).collect();
        let wanted = self.by_std(&words);
        let found = self.by_pool(&words);
        assert_eq!(found, wanted, "{line}: std on the right");
        wanted
    }

    /// Does one call a line.
    #[track_caller]
    pub fn run(&self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let _ = self.call(line);
        }
    }

    /// Both trees are equal.
    #[track_caller]
    pub fn compare(&self, what: &str) {
        let system = tree::of_system(self.dir.path());
        let differs = tree::difference(&system, &tree::of_pool(&self.pool, Path::new("/")));
        assert_eq!(differs, None, "after {what}");
    }

    fn by_std(&self, words: &[&str]) -> Outcome {
        let path = |at: usize| self.at(words.get(at).unwrap_or(&""));
        let done = match *words {
            ["stat", _] => fs::metadata(path(1)).map(|found| kind(found.is_dir(), found.is_file())),
            ["lstat", _] => {
                fs::symlink_metadata(path(1)).map(|found| kind(found.is_dir(), found.is_file()))
            }
            ["exists", _] => Path::new(&path(1)).try_exists().map(|there| there.to_string()),
            ["readlink", _] => fs::read_link(path(1)).map(|target| self.shorten(&target)),
            ["canonicalize", _] => fs::canonicalize(path(1)).map(|path| self.shorten(&path)),
            ["list", _] => fs::read_dir(path(1)).map(|entries| {
                sorted(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()))
            }),
            ["read", _] => fs::read_to_string(path(1)),
            ["write", _, text] => fs::write(path(1), text).map(done),
            ["mkdir", _] => fs::create_dir(path(1)).map(done),
            ["mkdir_all", _] => fs::create_dir_all(path(1)).map(done),
            ["unlink", _] => fs::remove_file(path(1)).map(done),
            ["rmdir", _] => fs::remove_dir(path(1)).map(done),
            ["rm_all", _] => fs::remove_dir_all(path(1)).map(done),
            ["rename", _, _] => fs::rename(path(1), path(2)).map(done),
            ["noreplace", _, _] => rename_at(&path(1), &path(2), RenameFlags::NOREPLACE),
            ["exchange", _, _] => rename_at(&path(1), &path(2), RenameFlags::EXCHANGE),
            ["link", _, _] => fs::hard_link(path(1), path(2)).map(done),
            ["copy", _, _] => fs::copy(path(1), path(2)).map(|bytes| bytes.to_string()),
            ["symlink", target, _] => {
                // Absolute ones begin at the root.
                let target = match target.strip_prefix('/') {
                    Some(rest) => self.at(rest),
                    None => target.to_owned(),
                };
                std::os::unix::fs::symlink(target, path(2)).map(done)
            }
            ["chmod", _, mode] => {
                let mode = u32::from_str_radix(mode, 8).unwrap();
                fs::set_permissions(path(1), PermissionsExt::from_mode(mode)).map(done)
            }
            ["open", how, _] => {
                let mut options = fs::OpenOptions::new();
                let has = |letter| how.contains(letter);
                options.read(has('r')).write(has('w')).append(has('a')).truncate(has('t'));
                options.create(has('c')).create_new(has('n')).custom_flags(flags(how));
                options.open(path(2)).and_then(|file| {
                    let found = file.metadata()?;
                    Ok(kind(found.is_dir(), found.is_file()))
                })
            }
            _ => panic!("{words:?} is no call"),
        };
        done.map_err(|error| number(&error))
    }

    fn by_pool(&self, words: &[&str]) -> Outcome {
        let (pool, path) = (&self.pool, |at: usize| words[at]);
        let done = match *words {
            ["stat", _] => {
                pool.metadata(path(1)).map(|found| kind(found.is_dir(), found.is_file()))
            }
            ["lstat", _] => {
                pool.symlink_metadata(path(1)).map(|found| kind(found.is_dir(), found.is_file()))
            }
            ["exists", _] => pool.try_exists(path(1)).map(|there| there.to_string()),
            ["readlink", _] => pool.read_link(path(1)).map(text),
            ["canonicalize", _] => pool.canonicalize(path(1)).map(text),
            ["list", _] => pool.read_dir(path(1)).map(|entries| {
                sorted(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()))
            }),
            ["read", _] => pool.read_to_string(path(1)),
            ["write", _, text] => pool.write(path(1), text).map(done),
            ["mkdir", _] => pool.create_dir(path(1)).map(done),
            ["mkdir_all", _] => pool.create_dir_all(path(1)).map(done),
            ["unlink", _] => pool.remove_file(path(1)).map(done),
            ["rmdir", _] => pool.remove_dir(path(1)).map(done),
            ["rm_all", _] => pool.remove_dir_all(path(1)).map(done),
            ["rename", _, _] => pool.rename(path(1), path(2)).map(done),
            ["noreplace", _, _] => {
                pool.rename_with(path(1), path(2), RenameMode::NoReplace).map(done)
            }
            ["exchange", _, _] => {
                pool.rename_with(path(1), path(2), RenameMode::Exchange).map(done)
            }
            ["link", _, _] => pool.hard_link(path(1), path(2)).map(done),
            ["copy", _, _] => pool.copy(path(1), path(2)).map(|bytes| bytes.to_string()),
            ["symlink", target, _] => pool.symlink(target, path(2)).map(done),
            ["chmod", _, mode] => {
                let mode = u32::from_str_radix(mode, 8).unwrap();
                pool.set_permissions(path(1), PermissionsExt::from_mode(mode)).map(done)
            }
            ["open", how, _] => {
                let mut options = lode::OpenOptions::new();
                let has = |letter| how.contains(letter);
                options.read(has('r')).write(has('w')).append(has('a')).truncate(has('t'));
                options.create(has('c')).create_new(has('n')).custom_flags(flags(how));
                pool.open_with(path(2), &options).and_then(|file| {
                    let found = file.metadata()?;
                    Ok(kind(found.is_dir(), found.is_file()))
                })
            }
            _ => panic!("{words:?} is no call"),
        };
        done.map_err(|error| {
            let told = io::Error::from(error);
            number(&told)
        })
    }

    /// A path as it is where the root is `/`.
    fn shorten(&self, path: &Path) -> String {
        let root = self.dir.path();
        let rest = path.strip_prefix(root).map(|rest| Path::new("/").join(rest));
        text(rest.unwrap_or_else(|_| path.to_owned()))
    }
}

/// `F` follows no link, `D` wants a directory.
fn flags(how: &str) -> i32 {
    let flag = |letter, flag| if how.contains(letter) { flag } else { 0 };
    flag('F', libc::O_NOFOLLOW) | flag('D', libc::O_DIRECTORY)
}

fn rename_at(from: &str, to: &str, flags: RenameFlags) -> io::Result<String> {
    Ok(renameat_with(CWD, from, CWD, to, flags).map(done)?)
}

fn kind(is_dir: bool, is_file: bool) -> String {
    match (is_dir, is_file) {
        (true, _) => "directory".into(),
        (_, true) => "file".into(),
        _ => "other".into(),
    }
}

/// The error number; std has errors of its own for what it does not ask the system.
pub fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::InvalidData => libc::EILSEQ,
        other => panic!("{other:?}: {error}"),
    })
}

fn done((): ()) -> String {
    String::new()
}

fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().unwrap()
}

fn sorted(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.join(" ")
}
