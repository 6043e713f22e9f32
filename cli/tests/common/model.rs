//! What one worker's directory must hold, from the journal of its operations.
//!
//! The journal lies outside the pool. `B seq operation` is written before an operation, `A seq`
//! after it returned, `F seq why` after it failed, and `U seq` by a judge who found that a
//! failed operation did not happen. Contents follow from the sequence number alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::random::Random;

/// An operation, names relative to the worker's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Create {
        name: String,
    },
    /// At the end, or over what is there.
    Write {
        name: String,
        offset: u64,
        len: u64,
    },
    Truncate {
        name: String,
        size: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Unlink {
        name: String,
    },
}

impl Op {
    pub fn text(&self) -> String {
        match self {
            Op::Create { name } => format!("create {name}"),
            Op::Write { name, offset, len } => format!("write {name} {offset} {len}"),
            Op::Truncate { name, size } => format!("truncate {name} {size}"),
            Op::Rename { from, to } => format!("rename {from} {to}"),
            Op::Unlink { name } => format!("unlink {name}"),
        }
    }

    fn parse(words: &[&str]) -> Option<Self> {
        let name = |at: usize| words.get(at).map(|word| (*word).to_owned());
        let number = |at: usize| words.get(at)?.parse().ok();
        Some(match *words.first()? {
            "create" => Op::Create { name: name(1)? },
            "write" => Op::Write { name: name(1)?, offset: number(2)?, len: number(3)? },
            "truncate" => Op::Truncate { name: name(1)?, size: number(2)? },
            "rename" => Op::Rename { from: name(1)?, to: name(2)? },
            "unlink" => Op::Unlink { name: name(1)? },
            _ => return None,
        })
    }
}

/// The bytes that operation `seq` of `worker` writes: they say who wrote them, when, and how
/// many they are, and carry a checksum.
pub fn content(worker: u64, seq: u64, len: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len as usize + 8);
    bytes.extend_from_slice(b"LODETEST");
    bytes.extend_from_slice(&worker.to_le_bytes());
    bytes.extend_from_slice(&seq.to_le_bytes());
    bytes.extend_from_slice(&len.to_le_bytes());
    let mut random = Random::new(worker << 48 ^ seq);
    while (bytes.len() as u64) < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len as usize);
    if len >= 64 {
        let crc = lode_pmem::crc32c(0, &bytes[..len as usize - 4]);
        bytes[len as usize - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

/// A file as the pieces that were written, later ones on top.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileModel {
    pub size: u64,
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    seq: u64,
    offset: u64,
    len: u64,
    /// Bytes of it that a truncation left.
    kept: u64,
}

impl FileModel {
    fn write(&mut self, seq: u64, offset: u64, len: u64) {
        let end = offset + len;
        self.pieces.retain(|piece| piece.offset < offset || piece.offset + piece.kept > end);
        self.pieces.push(Piece { seq, offset, len, kept: len });
        self.size = self.size.max(end);
    }

    fn truncate(&mut self, size: u64) {
        for piece in &mut self.pieces {
            piece.kept = piece.kept.min(size.saturating_sub(piece.offset));
        }
        self.pieces.retain(|piece| piece.kept > 0);
        self.size = size;
    }

    /// The bytes it must hold.
    pub fn bytes(&self, worker: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        for piece in &self.pieces {
            let written = content(worker, piece.seq, piece.len);
            let (start, kept) = (piece.offset as usize, piece.kept as usize);
            bytes[start..start + kept].copy_from_slice(&written[..kept]);
        }
        bytes
    }
}

/// The files of one worker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    pub files: BTreeMap<String, FileModel>,
}

impl State {
    /// Does operation `seq`.
    pub fn apply(&mut self, seq: u64, op: &Op) {
        match op {
            Op::Create { name } => {
                self.files.insert(name.clone(), FileModel::default());
            }
            Op::Write { name, offset, len } => {
                self.files.get_mut(name).expect("a journal in order").write(seq, *offset, *len);
            }
            Op::Truncate { name, size } => {
                self.files.get_mut(name).expect("a journal in order").truncate(*size);
            }
            Op::Rename { from, to } => {
                let file = self.files.remove(from).expect("a journal in order");
                self.files.insert(to.clone(), file);
            }
            Op::Unlink { name } => {
                self.files.remove(name);
            }
        }
    }
}

/// A journal, read.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// What was acknowledged.
    pub state: State,
    /// The operation in flight, if the journal ends in one.
    pub pending: Option<(u64, Op)>,
    /// The next sequence number.
    pub next: u64,
    /// Operations acknowledged.
    pub acknowledged: u64,
}

impl Journal {
    /// Reads a journal; a last line that is not whole counts as not written.
    pub fn parse(text: &str) -> Self {
        let mut journal = Self { next: 1, ..Self::default() };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let seq: u64 = words[1].parse().expect("a sequence number");
            match words[0] {
                "B" => {
                    let op = Op::parse(&words[2..]).expect("an operation");
                    assert!(journal.pending.is_none(), "two operations at once: {line}");
                    journal.pending = Some((seq, op));
                    journal.next = seq + 1;
                }
                "A" => {
                    let (begun, op) = journal.pending.take().expect("an operation in flight");
                    assert_eq!(begun, seq);
                    journal.state.apply(seq, &op);
                    journal.acknowledged += 1;
                }
                "U" => journal.pending = None,
                "F" => {}
                other => panic!("no such line in a journal: {other}"),
            }
        }
        journal
    }

    /// Compares `dir` with the journal: all that was acknowledged, and the operation in flight
    /// wholly or not at all. Returns the line that settles that one.
    ///
    /// # Errors
    /// What differs.
    pub fn judge(&self, worker: u64, dir: &Path) -> Result<Option<String>, String> {
        let without = differs(&self.state, worker, dir);
        let Some((seq, op)) = &self.pending else {
            return without.map_or(Ok(None), Err);
        };
        let Some(without) = without else {
            return Ok(Some(format!("U {seq}\n")));
        };
        let mut after = self.state.clone();
        after.apply(*seq, op);
        match differs(&after, worker, dir) {
            None => Ok(Some(format!("A {seq}\n"))),
            Some(with) => Err(format!(
                "operation {seq} ({}) was in flight.\n  without it: {without}\n  with it: {with}",
                op.text()
            )),
        }
    }
}

/// The first difference between a directory and what it must hold.
fn differs(state: &State, worker: u64, dir: &Path) -> Option<String> {
    let mut found = Vec::new();
    if let Err(error) = list(dir, "", &mut found) {
        return Some(format!("listing {}: {error}", dir.display()));
    }
    found.sort();
    let expected: Vec<&String> = state.files.keys().collect();
    if let Some(missing) = expected.iter().find(|name| found.binary_search(name).is_err()) {
        return Some(format!("{missing} is missing"));
    }
    if let Some(more) = found.iter().find(|name| !state.files.contains_key(*name)) {
        return Some(format!("{more} should not be there"));
    }
    state.files.iter().find_map(|(name, file)| file_differs(file, worker, &dir.join(name)))
}

fn list(dir: &Path, prefix: &str, found: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_str().expect("our names are ASCII"));
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &format!("{name}/"), found)?;
        } else {
            found.push(name);
        }
    }
    Ok(())
}

fn file_differs(file: &FileModel, worker: u64, path: &Path) -> Option<String> {
    let name = path.display();
    let size = match fs::metadata(path) {
        Ok(metadata) => metadata.size(),
        Err(error) => return Some(format!("{name}: {error}")),
    };
    if size != file.size {
        return Some(format!("{name} has {size} bytes, should have {}", file.size));
    }
    let found = match fs::read(path) {
        Ok(found) => found,
        Err(error) => return Some(format!("reading {name}: {error}")),
    };
    let expected = file.bytes(worker);
    if found.len() != expected.len() {
        return Some(format!("{name}: {} bytes were read, its size is {size}", found.len()));
    }
    let at = found.iter().zip(&expected).position(|(found, expected)| found != expected)?;
    let last = found.iter().zip(&expected).rposition(|(found, expected)| found != expected)?;
    let some = |bytes: &[u8]| format!("{:02x?}", &bytes[at..bytes.len().min(at + 16)]);
    Some(format!(
        "{name}: wrong from byte {at} to {last} of {size}: {} should be {}; written by {:?}",
        some(&found),
        some(&expected),
        file.pieces
            .iter()
            .filter(|p| p.offset <= at as u64 && at as u64 <= p.offset + p.kept)
            .collect::<Vec<_>>()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_tells_what_must_be_there() {
        let journal = Journal::parse(
            "B 1 create a\nA 1\nB 2 write a 0 100\nA 2\nB 3 write a 50 10\nA 3\nB 4 truncate a 80\nA 4\n\
             B 5 rename a b\nF 5 107\nU 5\nB 6 unlink a\nA",
        );
        assert_eq!((journal.next, journal.acknowledged), (7, 4));
        assert_eq!(journal.pending, Some((6, Op::Unlink { name: "a".into() })));
        let bytes = journal.state.files["a"].bytes(9);
        let (first, second) = (content(9, 2, 100), content(9, 3, 10));
        assert_eq!(bytes.len(), 80);
        assert_eq!(
            (&bytes[..50], &bytes[50..60], &bytes[60..]),
            (&first[..50], &second[..], &first[60..80])
        );
    }

    #[test]
    fn the_judge_accepts_whole_or_absent_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::parse("B 1 create a\nA 1\nB 2 write a 0 100\n");
        assert!(journal.judge(1, dir.path()).unwrap_err().contains("missing"));
        fs::write(dir.path().join("a"), b"").unwrap();
        assert_eq!(journal.judge(1, dir.path()), Ok(Some("U 2\n".into())));
        fs::write(dir.path().join("a"), content(1, 2, 100)).unwrap();
        assert_eq!(journal.judge(1, dir.path()), Ok(Some("A 2\n".into())));
        fs::write(dir.path().join("a"), &content(1, 2, 100)[..64]).unwrap();
        assert!(journal.judge(1, dir.path()).is_err());
        let mut torn = content(1, 2, 100);
        torn[70] ^= 1;
        fs::write(dir.path().join("a"), torn).unwrap();
        assert!(journal.judge(1, dir.path()).unwrap_err().contains("byte 70"));
    }
}
