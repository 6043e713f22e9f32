//! Operations from their text form: see [`crate::op`].

use std::str::FromStr;

use lode_engine::{Fallocate, RenameMode};

use crate::op::{Attrs, Fill, Op, Path, Target, fallocate_word, odd_name, rename_word};

/// A sequence from lines of text; empty lines and those that begin with `#` are skipped.
pub fn parse(text: &str) -> Result<Vec<Op>, String> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.parse().map_err(|why| format!("{line}: {why}")))
        .collect()
}

struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn word(&mut self) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| "a word is missing".to_owned())
    }

    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse().map_err(|_| format!("{word} is not a number here"))
    }

    fn path(&mut self) -> Result<Path, String> {
        path(self.word()?)
    }

    fn target(&mut self) -> Result<Target, String> {
        let word = self.word()?;
        match word.strip_prefix('@') {
            Some(slot) => slot.parse().map(Target::Handle).map_err(|_| "bad slot".to_owned()),
            None => path(word).map(Target::Path),
        }
    }

    fn fill(&mut self) -> Result<Fill, String> {
        Ok(Fill { len: self.number()?, fill: self.number()? })
    }

    fn attrs(&mut self) -> Result<Attrs, String> {
        let mut attrs = Attrs::default();
        for word in self.0.by_ref() {
            let (key, value) = word.split_once('=').ok_or("key=value is needed")?;
            let value: i128 = value.parse().map_err(|_| format!("bad number {value}"))?;
            match key {
                "mode" => attrs.mode = Some(value as u32),
                "uid" => attrs.uid = Some(value as u32),
                "gid" => attrs.gid = Some(value as u32),
                "size" => attrs.size = Some(value as u64),
                "atime" => attrs.atime = Some(value as i64),
                "mtime" => attrs.mtime = Some(value as i64),
                _ => return Err(format!("unknown attribute {key}")),
            }
        }
        Ok(attrs)
    }

    fn rename(&mut self) -> Result<RenameMode, String> {
        let word = self.word()?;
        let all = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let found = all.into_iter().find(|how| rename_word(*how) == word);
        found.ok_or_else(|| format!("unknown way to rename: {word}"))
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
        found.ok_or_else(|| format!("unknown way to fallocate: {word}"))
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = Words(line.split_whitespace());
        let w = &mut words;
        Ok(match w.word()? {
            "create" => Op::Create { path: w.path()?, mode: w.number()?, rdev: w.number()? },
            "symlink" => Op::Symlink { path: w.path()?, target: unescape(w.word()?)? },
            "link" => Op::Link { from: w.target()?, to: w.path()? },
            "unlink" => Op::Unlink { path: w.path()? },
            "rmdir" => Op::Rmdir { path: w.path()? },
            "rename" => Op::Rename { from: w.path()?, to: w.path()?, how: w.rename()? },
            "setattr" => Op::SetAttr { of: w.target()?, attrs: w.attrs()? },
            "write" => Op::Write { to: w.target()?, offset: w.number()?, data: w.fill()? },
            "append" => Op::Append { to: w.target()?, data: w.fill()? },
            "read" => Op::Read { from: w.target()?, offset: w.number()?, len: w.number()? },
            "fallocate" => Op::Fallocate {
                of: w.target()?,
                how: w.fallocate()?,
                offset: w.number()?,
                len: w.number()?,
            },
            "stat" => Op::Stat { of: w.target()? },
            "readlink" => Op::Readlink { path: w.path()? },
            "list" => Op::List { path: w.path()? },
            "open" => Op::Open { path: w.path()?, slot: w.number()? },
            "close" => Op::Close { slot: w.number()? },
            "fsync" => Op::Fsync { of: w.target()? },
            "maintain" => Op::Maintain,
            "remount" => Op::Remount,
            "crash" => Op::Crash,
            other => return Err(format!("unknown operation {other}")),
        })
    }
}

fn path(word: &str) -> Result<Path, String> {
    let names = word.split('/').filter(|name| !name.is_empty());
    names.map(unescape).collect::<Result<Vec<_>, _>>().map(Path)
}

fn unescape(word: &str) -> Result<Vec<u8>, String> {
    if let Some(odd) = word.strip_prefix("%=") {
        let (seed, len) = odd.split_once('.').ok_or("bad name")?;
        let number = |text: &str| text.parse().map_err(|_| "bad name".to_owned());
        return Ok(odd_name(number(seed)?, number(len)? as usize));
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
        bytes.push(byte.ok_or("bad escape")?);
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
}
