//! Operations from their text form: see [`crate::op`].
//!
//! More is read than is printed: a number may end in K, M, G or T and begin with `0o` or
//! `0x`; the fill of data may be left out; and `mknod`, `truncate`, `chmod`, `chown`, `allocate`,
//! `punch` and `zero` are short for forms of `create`, `setattr` and `fallocate`.

use std::iter::Peekable;
use std::str::{FromStr, SplitWhitespace};

use lode_engine::{Fallocate, Protection, RenameMode, XattrWhen, mode};

use crate::harm::{Harm, Harmed, HarmedBy};
use crate::op::{
    Attrs, DIRECTORY_PERMISSIONS, FILE_PERMISSIONS, Fill, Op, Path, Target, fallocate_word,
    odd_name, rename_word, when_word,
};

/// A sequence from lines of text; empty lines and those that begin with `#` are skipped.
pub fn parse(text: &str) -> Result<Vec<Op>, String> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.parse().map_err(|why| format!("{line}: {why}")))
        .collect()
}

/// The fill of data that names none.
const FILL: u64 = 1;

/// Notes that a word was given; it can be once.
///
/// # Errors
/// Where it was before.
pub fn once<'a>(given: &mut Vec<&'a str>, word: &'a str) -> Result<(), String> {
    if given.contains(&word) {
        return Err(format!("{word} is given twice: leave one out"));
    }
    given.push(word);
    Ok(())
}

/// A number: decimal, or after `0o` or `0x`; K, M, G and T at its end are powers of 1024.
pub fn number(word: &str) -> Result<u64, String> {
    let bad = || format!("{word} is not a number; numbers are like 12, 0o644, 0x1F, 4K, 2M, 1T");
    if let Some(octal) = word.strip_prefix("0o") {
        return u64::from_str_radix(octal, 8).map_err(|_| bad());
    }
    if let Some(hex) = word.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map_err(|_| bad());
    }
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let unit = units.iter().find(|(unit, _)| word.ends_with(*unit));
    let digits = if unit.is_some() { &word[..word.len() - 1] } else { word };
    let value: u64 = digits.parse().map_err(|_| bad())?;
    value.checked_mul(1 << unit.map_or(0, |(_, shift)| *shift)).ok_or_else(bad)
}

/// Bytes that one operation writes or reads, at most.
const DATA_MAX: u64 = 4 << 20;
/// Bytes of an odd name or target, at most.
const ODD_MAX: usize = 4096;
/// Permissions: all bits of a mode that are no type.
const PERMISSIONS: u32 = 0o7777;
/// CPUs of a host, at most.
const CPUS_MAX: usize = 256;

struct Words<'a>(Peekable<SplitWhitespace<'a>>);

impl<'a> Words<'a> {
    fn word(&mut self) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| "a word is missing".to_owned())
    }

    fn is_at_end(&mut self) -> bool {
        self.0.peek().is_none()
    }

    fn number<T: TryFrom<u64>>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        number(word)?.try_into().map_err(|_| format!("{word} is too large here"))
    }

    /// A number, `otherwise` at the end of the line.
    fn number_or<T: TryFrom<u64>>(&mut self, otherwise: T) -> Result<T, String> {
        if self.is_at_end() { Ok(otherwise) } else { self.number() }
    }

    fn path(&mut self) -> Result<Path, String> {
        path(self.word()?)
    }

    fn target(&mut self) -> Result<Target, String> {
        let word = self.word()?;
        match word.strip_prefix('@') {
            Some(slot) => slot
                .parse()
                .map(Target::Handle)
                .map_err(|_| format!("{word} is no slot; slots are like @0")),
            None => path(word).map(Target::Path),
        }
    }

    /// The length of what is written or read.
    fn length(&mut self) -> Result<u64, String> {
        match self.number()? {
            len if len <= DATA_MAX => Ok(len),
            len => Err(format!("{len} bytes are more than one operation moves: 4M")),
        }
    }

    fn fill(&mut self) -> Result<Fill, String> {
        Ok(Fill { len: self.length()?, fill: self.number_or(FILL)? })
    }

    /// What `create` makes: the type and permissions, and a device's numbers.
    fn created(&mut self) -> Result<(u32, u64), String> {
        let mode = creatable(self.number_or(mode::FILE | FILE_PERMISSIONS)?)?;
        let rdev = self.number_or(0)?;
        let device = matches!(mode & mode::TYPE, mode::CHARACTER | mode::BLOCK);
        if rdev != 0 && !device {
            return Err("only devices have a number: leave it out".to_owned());
        }
        Ok((mode, rdev))
    }

    fn permissions(&mut self, otherwise: Option<u32>) -> Result<u32, String> {
        let permissions = match otherwise {
            Some(otherwise) => self.number_or(otherwise)?,
            None => self.number()?,
        };
        is_permissions(permissions)
    }

    fn symlink_target(&mut self) -> Result<Vec<u8>, String> {
        match unescape(self.word()?)? {
            target if target.is_empty() => Err("a target has at least one byte".to_owned()),
            target => Ok(target),
        }
    }

    fn attrs(&mut self) -> Result<Attrs, String> {
        let mut attrs = Attrs::default();
        let mut given = Vec::new();
        for word in self.0.by_ref() {
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("{word} is no key=number"))?;
            once(&mut given, key)?;
            match key {
                "mode" => attrs.mode = Some(is_permissions(fitting(value)?)?),
                "uid" => attrs.uid = Some(fitting(value)?),
                "gid" => attrs.gid = Some(fitting(value)?),
                "size" => attrs.size = Some(fitting(value)?),
                "atime" => attrs.atime = Some(fitting(value)?),
                "mtime" => attrs.mtime = Some(fitting(value)?),
                _ => {
                    return Err(format!(
                        "unknown attribute {key}; known are mode, uid, gid, size, atime, mtime"
                    ));
                }
            }
        }
        Ok(attrs)
    }

    /// What a file without a name is made of.
    fn tmpfile(&mut self) -> Result<Op, String> {
        let (dir, slot) = (self.path()?, self.number()?);
        let permissions = self.permissions(Some(FILE_PERMISSIONS))?;
        let xattr = match self.0.peek() {
            Some(_) => Some((self.xattr_name()?, self.fill()?)),
            None => None,
        };
        Ok(Op::Tmpfile { dir, slot, permissions, xattr })
    }

    /// A device's kind, and its numbers if it is one.
    fn node(&mut self) -> Result<(u32, u64), String> {
        let kind = match self.word()? {
            "fifo" => return Ok((mode::FIFO, 0)),
            "socket" => return Ok((mode::SOCKET, 0)),
            "char" => mode::CHARACTER,
            "block" => mode::BLOCK,
            other => return Err(format!("{other} is not one of fifo, socket, char, block")),
        };
        let (major, minor): (u32, u32) = (self.number()?, self.number()?);
        Ok((kind, u64::from(major) << 32 | u64::from(minor)))
    }

    fn rename(&mut self) -> Result<RenameMode, String> {
        if self.is_at_end() {
            return Ok(RenameMode::Replace);
        }
        let word = self.word()?;
        let all = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let found = all.into_iter().find(|how| rename_word(*how) == word);
        found.ok_or_else(|| format!("{word} is not one of replace, noreplace, exchange"))
    }

    fn xattr_name(&mut self) -> Result<Vec<u8>, String> {
        match unescape(self.word()?)? {
            name if name.is_empty() || name.contains(&0) => {
                Err("the name of an extended attribute has bytes, none of them 0".to_owned())
            }
            name => Ok(name),
        }
    }

    /// What must be so for an extended attribute to change: nothing, at the end of the line.
    fn when(&mut self) -> Result<XattrWhen, String> {
        if self.is_at_end() {
            return Ok(XattrWhen::Always);
        }
        let word = self.word()?;
        let found = [XattrWhen::Absent, XattrWhen::Present]
            .into_iter()
            .find(|when| when_word(*when).trim() == word);
        found.ok_or_else(|| format!("{word} is not one of create, replace"))
    }

    /// The value of an extended attribute, and what must be so.
    fn xattr_value(&mut self) -> Result<(Fill, XattrWhen), String> {
        let len = self.length()?;
        let is_number = self.0.peek().is_some_and(|word| number(word).is_ok());
        let fill = if is_number { self.number()? } else { FILL };
        Ok((Fill { len, fill }, self.when()?))
    }

    fn harm(&mut self) -> Result<Harm, String> {
        let word = self.word()?;
        let of = Harmed::ALL.into_iter().find(|of| of.name() == word).ok_or_else(|| {
            let all = Harmed::ALL.map(Harmed::name).join(", ");
            format!("{word} is nothing to damage: {all}")
        })?;
        let number = self.number_or(0)?;
        if self.is_at_end() {
            return Ok(Harm { of, number, by: HarmedBy::Flip });
        }
        let word = self.word()?;
        let by = HarmedBy::ALL.into_iter().find(|by| by.name() == word);
        let by = by.ok_or_else(|| format!("{word} is not one of flip, zero, poison, broken"))?;
        match (of, by) {
            (
                Harmed::Checksum | Harmed::Parity | Harmed::ValueChecksum,
                HarmedBy::Poison | HarmedBy::Broken,
            ) => Err(format!("{} that can't be loaded stays so: no scrub repairs it", of.name())),
            _ => Ok(Harm { of, number, by }),
        }
    }

    fn fallocate(&mut self) -> Result<Fallocate, String> {
        let word = self.word()?;
        let all = [
            Fallocate::Allocate { keep_size: false },
            Fallocate::Allocate { keep_size: true },
            Fallocate::Punch,
            Fallocate::Zero { keep_size: false },
            Fallocate::Zero { keep_size: true },
        ];
        let found = all.into_iter().find(|how| fallocate_word(*how) == word);
        found.ok_or_else(|| {
            format!("{word} is not one of allocate, allocate-keep, punch, zero, zero-keep")
        })
    }
}

/// A number that may be negative, where the type has such.
fn fitting<T: TryFrom<i128>>(word: &str) -> Result<T, String> {
    let value = match word.strip_prefix('-') {
        Some(below) => -i128::from(number(below)?),
        None => i128::from(number(word)?),
    };
    value.try_into().map_err(|_| format!("{word} does not fit here"))
}

/// A mode that `create` takes.
fn creatable(mode: u32) -> Result<u32, String> {
    let kinds =
        [mode::FILE, mode::DIRECTORY, mode::CHARACTER, mode::BLOCK, mode::FIFO, mode::SOCKET];
    if mode & !(mode::TYPE | PERMISSIONS) != 0 || !kinds.contains(&(mode & mode::TYPE)) {
        return Err(format!("{mode:#o} is no mode to create; modes are like 0o100644, 0o040755"));
    }
    Ok(mode)
}

fn is_permissions(permissions: u32) -> Result<u32, String> {
    let fits = permissions & !PERMISSIONS == 0;
    fits.then_some(permissions).ok_or_else(|| {
        format!("{permissions:#o} are no permissions; permissions are like 0o644, 0o1777")
    })
}

impl FromStr for Op {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = Words(line.split_whitespace().peekable());
        let verb = words.word()?;
        let op = match short(verb, &mut words)? {
            Some(op) => op,
            None => plain(verb, &mut words)?,
        };
        match words.0.next() {
            Some(extra) => Err(format!("{extra} is one word too many")),
            None => Ok(op),
        }
    }
}

/// The forms that are printed.
fn plain(verb: &str, w: &mut Words<'_>) -> Result<Op, String> {
    Ok(match verb {
        "create" => {
            let (path, (mode, rdev)) = (w.path()?, w.created()?);
            Op::Create { path, mode, rdev }
        }
        "symlink" => Op::Symlink { path: w.path()?, target: w.symlink_target()? },
        "link" => Op::Link { from: w.target()?, to: w.path()? },
        "unlink" => Op::Unlink { path: w.path()? },
        "rmdir" => Op::Rmdir { path: w.path()? },
        "rename" => Op::Rename { from: w.path()?, to: w.path()?, how: w.rename()? },
        "setattr" => Op::SetAttr { of: w.target()?, attrs: w.attrs()? },
        "create-with" => {
            let (path, mode) = (w.path()?, w.number()?);
            Op::CreateWith { path, mode: creatable(mode)?, name: w.xattr_name()?, value: w.fill()? }
        }
        "tmpfile" => w.tmpfile()?,
        "setattr-with" => {
            let (of, name, len) = (w.target()?, w.xattr_name()?, w.length()?);
            let value = Fill { len, fill: w.number()? };
            Op::SetAttrWith { of, name, value, attrs: w.attrs()? }
        }
        "setxattr" => {
            let (of, name, (value, when)) = (w.target()?, w.xattr_name()?, w.xattr_value()?);
            Op::SetXattr { of, name, value: Some(value), when }
        }
        "removexattr" => {
            let (of, name) = (w.target()?, w.xattr_name()?);
            Op::SetXattr { of, name, value: None, when: XattrWhen::Present }
        }
        "getxattr" => Op::GetXattr { of: w.target()?, name: w.xattr_name()? },
        "write" => Op::Write { to: w.target()?, offset: w.number()?, data: w.fill()? },
        "append" => Op::Append { to: w.target()?, data: w.fill()? },
        "sectors" => Op::Sectors { to: w.target()?, offset: w.number()?, data: w.fill()? },
        "map" => Op::Map { of: w.target()? },
        "unmap" => Op::Unmap { of: w.target()? },
        "poke" => Op::Poke { to: w.target()?, offset: w.number()?, data: w.fill()? },
        "leave" => Op::Leave { to: w.target()?, offset: w.number()?, data: w.fill()? },
        "swap" => Op::Swap { to: w.target()?, offset: w.number()?, data: w.fill()? },
        "read" => Op::Read { from: w.target()?, offset: w.number()?, len: w.length()? },
        "fallocate" => {
            let (of, how) = (w.target()?, w.fallocate()?);
            Op::Fallocate { of, how, offset: w.number()?, len: w.number()? }
        }
        "stat" => Op::Stat { of: w.target()? },
        "readlink" => Op::Readlink { path: w.path()? },
        "list" => Op::List { path: w.path()? },
        "open" => Op::Open { path: w.path()?, slot: w.number()? },
        "close" => Op::Close { slot: w.number()? },
        "fsync" => Op::Fsync { of: w.target()? },
        "lend" => Op::Lend,
        "lend-part" => Op::LendPart { of: w.target()?, offset: w.number()? },
        "give-back" => Op::GiveBack(w.number()?),
        "scribble" => Op::Scribble(w.number()?),
        "maintain" => Op::Maintain,
        "remount" => Op::Remount,
        "crash" => Op::Crash,
        "grow" => Op::Grow,
        "protect" => match w.word()? {
            "none" => Op::Protect(Protection::None, 0),
            "metadata" => Op::Protect(Protection::Metadata, w.number()?),
            "full" => Op::Protect(Protection::Full, w.number()?),
            other => return Err(format!("{other} is no level: none, metadata or full")),
        },
        "snapshot" => Op::Snapshot(name(w.word()?)?),
        "drop" => Op::Drop(name(w.word()?)?),
        "rollback" => Op::Rollback(name(w.word()?)?),
        "receive" => Op::Receive(name(w.word()?)?),
        "abandon" => Op::Abandon(name(w.word()?)?),
        "cpus" => match w.number()? {
            0 => return Err("a host has at least 1 CPU".to_owned()),
            count if count > CPUS_MAX => return Err("a host has at most 256 CPUs".to_owned()),
            count => Op::Cpus(count),
        },
        "damage" => Op::Damage(w.harm()?),
        "heal" => Op::Heal,
        "scrub" => Op::Scrub,
        other => return Err(format!("unknown operation {other}")),
    })
}

/// The forms that are only read.
fn short(verb: &str, w: &mut Words<'_>) -> Result<Option<Op>, String> {
    let none = Attrs::default();
    Ok(Some(match verb {
        "mkdir" => {
            let path = w.path()?;
            let permissions = w.permissions(Some(DIRECTORY_PERMISSIONS))?;
            Op::Create { path, mode: mode::DIRECTORY | permissions, rdev: 0 }
        }
        "mknod" => {
            let (path, (kind, rdev)) = (w.path()?, w.node()?);
            Op::Create { path, mode: kind | FILE_PERMISSIONS, rdev }
        }
        "truncate" => {
            let of = w.target()?;
            Op::SetAttr { of, attrs: Attrs { size: Some(w.number()?), ..none } }
        }
        "chmod" => {
            let of = w.target()?;
            Op::SetAttr { of, attrs: Attrs { mode: Some(w.permissions(None)?), ..none } }
        }
        "chown" => {
            let (of, uid, gid) = (w.target()?, Some(w.number()?), Some(w.number()?));
            Op::SetAttr { of, attrs: Attrs { uid, gid, ..none } }
        }
        "allocate" | "punch" | "zero" => {
            let how = match verb {
                "allocate" => Fallocate::Allocate { keep_size: false },
                "punch" => Fallocate::Punch,
                _ => Fallocate::Zero { keep_size: false },
            };
            Op::Fallocate { of: w.target()?, how, offset: w.number()?, len: w.number()? }
        }
        _ => return Ok(None),
    }))
}

fn path(word: &str) -> Result<Path, String> {
    if !word.starts_with('/') {
        return Err(format!("{word} is no path; paths are like /a and /d/a"));
    }
    let names = word.split('/').filter(|name| !name.is_empty());
    names.map(name).collect::<Result<Vec<_>, _>>().map(Path)
}

/// One name of a path; what a kernel would never hand on is none.
fn name(word: &str) -> Result<Vec<u8>, String> {
    let name = unescape(word)?;
    if name.is_empty() || name == b"." || name == b".." {
        return Err(format!("{word} can't be a name in a path here: write the path without it"));
    }
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(format!("{word} has a byte that no name has (0, or a slash)"));
    }
    Ok(name)
}

fn unescape(word: &str) -> Result<Vec<u8>, String> {
    if let Some(odd) = word.strip_prefix("%=") {
        let bad = || format!("{word} is no name; names of odd bytes are like %=SEED.LENGTH");
        let (seed, len) = odd.split_once('.').ok_or_else(bad)?;
        let number = |text: &str| text.parse().map_err(|_| bad());
        let (seed, len) = (number(seed)?, number(len)? as usize);
        if len > ODD_MAX {
            return Err(format!("{word} is too long: {ODD_MAX} bytes at most"));
        }
        return Ok(odd_name(seed, len));
    }
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = rest.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = digits.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("{word}: behind % go two digits, as in %2F"))?);
        rest = &rest[2..];
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Generator, Shape};

    #[test]
    fn what_is_printed_is_parsed_as_the_same() {
        for seed in 0..20 {
            let ops = Generator::new(seed, Shape::default()).take(300);
            let again = parse(&crate::op::print(&ops));
            assert_eq!(again.as_ref(), Ok(&ops), "seed {seed}");
        }
    }

    #[test]
    fn short_forms_are_read() {
        for (short, printed) in [
            ("create /a", "create /a"),
            ("create /a 33188 0", "create /a"),
            ("create /a 0o100600", "create /a 0o100600"),
            ("mkdir /d", "mkdir /d"),
            ("create /d 0o40700", "mkdir /d 0o700"),
            ("mknod /p fifo", "create /p 0o10644"),
            ("mknod /c char 1 3", "create /c 0o20644 4294967299"),
            ("write /a 4K 100", "write /a 4096 100 1"),
            ("append @0 1M 7", "append @0 1048576 7"),
            ("rename /a /b replace", "rename /a /b"),
            ("truncate /a 0x10", "setattr /a size=16"),
            ("setattr /a mtime=-1K", "setattr /a mtime=-1024"),
            ("chmod /a 0o600", "setattr /a mode=0o600"),
            ("chown /a 4 5", "setattr /a uid=4 gid=5"),
            ("allocate /a 0 8K", "fallocate /a allocate 0 8192"),
            ("punch /a 1 2", "fallocate /a punch 1 2"),
            ("zero /a 1T 2", "fallocate /a zero 1099511627776 2"),
            ("cpus 2", "cpus 2"),
            ("scrub", "scrub"),
            ("heal", "heal"),
            ("damage locator", "damage locator 0"),
            ("damage record 3 flip", "damage record 3"),
            ("damage data 1K poison", "damage data 1024 poison"),
            ("tmpfile / 0", "tmpfile / 0"),
            ("tmpfile /d 1 0x180", "tmpfile /d 1 0o600"),
            ("tmpfile / 2 0o600 user.x 9", "tmpfile / 2 0o600 user.x 9 1"),
        ] {
            let op: Op = short.parse().unwrap();
            assert_eq!(op.to_string(), printed);
            assert_eq!(printed.parse(), Ok(op));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, why) in [
            ("write /a 0", "a word is missing"),
            ("write /a x 1", "x is not a number; numbers are like 12, 0o644, 0x1F, 4K, 2M, 1T"),
            ("unlink /a /b", "/b is one word too many"),
            (
                "truncate /a 99999999T",
                "99999999T is not a number; numbers are like 12, 0o644, 0x1F, 4K, 2M, 1T",
            ),
            ("create /a 5G", "5G is too large here"),
            ("fly /a", "unknown operation fly"),
            ("setattr /a mode=1 uid=1 mode=2", "mode is given twice: leave one out"),
            ("unlink a", "a is no path; paths are like /a and /d/a"),
            ("unlink /%zz", "%zz: behind % go two digits, as in %2F"),
            ("unlink /%=1", "%=1 is no name; names of odd bytes are like %=SEED.LENGTH"),
            ("stat @x", "@x is no slot; slots are like @0"),
            ("rename /a /b over", "over is not one of replace, noreplace, exchange"),
            ("setattr /a size", "size is no key=number"),
            ("create /d/..", ".. can't be a name in a path here: write the path without it"),
            ("stat /a%00", "a%00 has a byte that no name has (0, or a slash)"),
            ("rename /a /%=0.0", "%=0.0 can't be a name in a path here: write the path without it"),
            ("create /%=0.99999999", "%=0.99999999 is too long: 4096 bytes at most"),
            ("symlink /s %=0.0", "a target has at least one byte"),
            ("write /a 0 1T", "1099511627776 bytes are more than one operation moves: 4M"),
            ("read /a 0 5M", "5242880 bytes are more than one operation moves: 4M"),
            ("chmod /a 0o17777", "0o17777 are no permissions; permissions are like 0o644, 0o1777"),
            ("create /a 7", "0o7 is no mode to create; modes are like 0o100644, 0o040755"),
            ("create /a 0o100644 7", "only devices have a number: leave it out"),
            ("setattr /a uid=-1", "-1 does not fit here"),
            ("cpus 257", "a host has at most 256 CPUs"),
            ("cpus 0", "a host has at least 1 CPU"),
            ("damage parity 0 poison", "parity that can't be loaded stays so: no scrub repairs it"),
            ("damage record 1 acid", "acid is not one of flip, zero, poison, broken"),
        ] {
            assert_eq!(line.parse::<Op>(), Err(why.to_owned()), "{line}");
        }
    }
}
