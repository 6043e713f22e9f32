//! One file worked on in every way at once: through several descriptors, of which one goes around
//! the caches or waits for the medium, and through mappings. After each step one of them is compared,
//! byte for byte, with what must be there. LODE_FILE_OPS says how many steps, LODE_SEED which.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lode_testkit::rng::Rng;
use rustix::fs::{Advice, FallocateFlags, SeekFrom, copy_file_range, fadvise, fallocate, seek};
use rustix::io::Errno;

use crate::mapping::Map;
use crate::support::Mount;

const OPS: u64 = 8_000;
const SPAN: usize = 96 << 10;
const PAGE: usize = 4096;
/// Steps that a failure shows.
const SHOWN: usize = 40;

#[test]
fn every_way_to_one_file_sees_the_same_bytes() {
    let Some(mount) = Mount::new() else { return };
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("LODE_SEED").unwrap_or(now.as_nanos() as u64 % 1_000_000_000);
    println!("one file: seed {seed} (again with LODE_SEED={seed})");
    let (ops, began) = (number("LODE_FILE_OPS").unwrap_or(OPS), Instant::now());
    let path = mount.path("file");
    let mut file = OneFile::new(&path, seed);
    for _ in 0..ops {
        file.step();
    }
    let model = std::mem::take(&mut file.model);
    drop(file);
    let mount = mount.unmount().mount();
    assert!(std::fs::read(mount.path("file")).unwrap() == model, "seed {seed}: after a mount");
    println!("one file: {ops} operations in {:.1?}", began.elapsed());
}

/// The file, all ways to it, and what it must hold.
struct OneFile {
    path: PathBuf,
    model: Vec<u8>,
    rng: Rng,
    /// Opened for writing: around the kernel's cache.
    plain: File,
    /// The same with other flags, which change.
    other: File,
    appender: File,
    /// Opened for reading alone: through the kernel's cache.
    reader: File,
    map: Map,
    view: Map,
    step: u64,
    last: VecDeque<String>,
    seed: u64,
}

impl OneFile {
    fn new(path: &Path, seed: u64) -> Self {
        let options = || File::options().read(true).write(true).clone();
        let plain = options().create_new(true).open(path).unwrap();
        for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            // The kernel does not pass these to FUSE: a test of them comes with one that does.
            assert_eq!(fallocate(&plain, mode, 0, PAGE as u64), Err(Errno::OPNOTSUPP));
        }
        let reader = File::open(path).unwrap();
        Self {
            model: Vec::new(),
            rng: Rng::new(seed),
            other: options().open(path).unwrap(),
            appender: File::options().append(true).open(path).unwrap(),
            map: Map::shared(&plain, SPAN),
            view: Map::read_only(&reader, SPAN),
            plain,
            reader,
            path: path.to_owned(),
            step: 0,
            last: VecDeque::new(),
            seed,
        }
    }

    fn step(&mut self) {
        self.step += 1;
        match self.rng.below(100) {
            0..22 => self.write(),
            22..29 => self.append(),
            29..37 => self.resize(),
            37..54 => self.store(),
            54..61 => self.zero(),
            61..68 => self.punch(),
            68..73 => self.allocate(),
            73..82 => self.copy(),
            82..90 => self.seek(),
            90..94 => self.sync(),
            94..97 => self.reopen(),
            _ => self.forget_pages(),
        }
        self.compare();
    }

    fn note(&mut self, what: String) {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(format!("{}: {what}", self.step));
    }

    /// A range; it begins or ends at the edge of a page now and then.
    fn range(&mut self, end: usize) -> (usize, usize) {
        let (mut from, mut to) = (self.rng.below(end as u64), self.rng.below(end as u64));
        if self.rng.once_in(4) {
            from = from / PAGE as u64 * PAGE as u64;
        }
        if self.rng.once_in(4) {
            to = to / PAGE as u64 * PAGE as u64;
        }
        if !self.rng.once_in(4) {
            to = from + 1 + self.rng.below(3000);
        }
        let (from, to) = (from.min(to) as usize, (from.max(to) as usize).min(end));
        (from, (to - from).max(1))
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.rng.bits() as u8 | 1).collect()
    }

    fn some_file(&mut self) -> &File {
        if self.rng.once_in(2) { &self.plain } else { &self.other }
    }

    /// What the model does at a write.
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.grow(at + bytes.len());
        self.model[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn grow(&mut self, size: usize) {
        self.model.resize(self.model.len().max(size), 0);
    }

    fn write(&mut self) {
        let (at, len) = self.range(SPAN);
        let bytes = self.bytes(len);
        self.note(format!("write {len} at {at}"));
        self.some_file().write_all_at(&bytes, at as u64).unwrap();
        self.put(at, &bytes);
    }

    fn append(&mut self) {
        let len = 1 + self.rng.below(3000) as usize;
        if self.model.len() + len > SPAN {
            return self.resize();
        }
        let bytes = self.bytes(len);
        self.note(format!("append {len} at {}", self.model.len()));
        self.appender.write_all(&bytes).unwrap();
        self.put(self.model.len(), &bytes);
    }

    fn resize(&mut self) {
        let size = self.rng.below(SPAN as u64) as usize;
        self.note(format!("resize from {} to {size}", self.model.len()));
        self.some_file().set_len(size as u64).unwrap();
        self.model.resize(size, 0);
    }

    /// Through the mapping, inside the file.
    fn store(&mut self) {
        let size = self.model.len();
        if size == 0 {
            return self.write();
        }
        let (at, len) = self.range(size);
        let bytes = self.bytes(len);
        self.note(format!("store {len} at {at}"));
        self.map.write(at, &bytes);
        self.put(at, &bytes);
        if self.rng.once_in(4) {
            self.map.sync();
        }
    }

    fn zero(&mut self) {
        let ((at, len), keep) = (self.range(SPAN), self.rng.once_in(2));
        let keep_flag = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        self.note(format!("zero {len} at {at}, keep the size: {keep}"));
        let mode = FallocateFlags::ZERO_RANGE | keep_flag;
        fallocate(self.some_file(), mode, at as u64, len as u64).unwrap();
        if !keep {
            self.grow(at + len);
        }
        self.clear(at, len);
    }

    fn punch(&mut self) {
        let (at, len) = self.range(SPAN);
        self.note(format!("punch {len} at {at}"));
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.some_file(), mode, at as u64, len as u64).unwrap();
        self.clear(at, len);
    }

    fn clear(&mut self, at: usize, len: usize) {
        let size = self.model.len();
        self.model[at.min(size)..(at + len).min(size)].fill(0);
    }

    fn allocate(&mut self) {
        let ((at, len), keep) = (self.range(SPAN), self.rng.once_in(2));
        let mode = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        self.note(format!("allocate {len} at {at}, keep the size: {keep}"));
        fallocate(self.some_file(), mode, at as u64, len as u64).unwrap();
        if !keep {
            self.grow(at + len);
        }
    }

    fn copy(&mut self) {
        let ((from, len), to) = (self.range(SPAN), self.rng.below(SPAN as u64) as usize);
        let len = len.min(SPAN - to).min(self.model.len().saturating_sub(from));
        if from.abs_diff(to) < len || len == 0 {
            return self.write();
        }
        self.note(format!("copy {len} from {from} to {to}"));
        let (mut input, mut output) = (from as u64, to as u64);
        let copied =
            copy_file_range(&self.plain, Some(&mut input), &self.other, Some(&mut output), len);
        assert_eq!(copied, Ok(len), "{}", self.story());
        let bytes = self.model[from..from + len].to_vec();
        self.put(to, &bytes);
    }

    /// What is called a hole is zeros, and there is one behind the end.
    fn seek(&mut self) {
        // The kernel asks without writing out what was stored through mappings.
        self.map.sync();
        let (size, mut at) = (self.model.len() as u64, 0);
        self.note(format!("seek through {size}"));
        while at < size {
            let data = match seek(&self.reader, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => size,
                found => found.unwrap(),
            };
            let hole = self.model[at as usize..data as usize].iter().all(|byte| *byte == 0);
            assert!(hole, "data from {at} to {data} is called a hole\n{}", self.story());
            if data == size {
                return;
            }
            at = seek(&self.reader, SeekFrom::Hole(data)).unwrap();
            assert!(data < at && at <= size, "data {data}, hole {at} of {size}\n{}", self.story());
        }
    }

    fn sync(&mut self) {
        self.note("sync".to_owned());
        if self.rng.once_in(2) {
            self.other.sync_data().unwrap();
        } else {
            self.map.sync();
        }
    }

    fn reopen(&mut self) {
        let flags = self.rng.pick(&[0, libc::O_DIRECT, libc::O_SYNC, libc::O_DSYNC]);
        self.note(format!("open again with {flags:#o}"));
        let mut options = File::options();
        self.other = options.read(true).write(true).custom_flags(flags).open(&self.path).unwrap();
        self.reader = File::open(&self.path).unwrap();
    }

    fn forget_pages(&mut self) {
        self.note("let go of cached pages".to_owned());
        fadvise(&self.reader, 0, None, Advice::DontNeed).unwrap();
    }

    /// Compares one of the ways, the whole file long.
    fn compare(&mut self) {
        let size = self.model.len();
        // First: a mapping has nothing behind the end, and whoever looks there is killed.
        let told = self.plain.metadata().unwrap().len();
        assert_eq!(told, size as u64, "the size\n{}", self.story());
        let (name, found) = match self.rng.below(5) {
            0 => ("the descriptor", all_of(&self.plain)),
            1 => ("the other descriptor", all_of(&self.other)),
            2 => ("the reading descriptor", all_of(&self.reader)),
            3 => ("the mapping", self.map.read(0, size)),
            _ => ("the mapping for reading", self.view.read(0, size)),
        };
        assert_eq!(found.len(), size, "bytes by {name}\n{}", self.story());
        let differs = found.iter().zip(&self.model).position(|(found, wanted)| found != wanted);
        if let Some(at) = differs {
            let wrong = found.iter().zip(&self.model).filter(|(one, other)| one != other).count();
            let (found, wanted) = (found[at], self.model[at]);
            let story = self.story();
            panic!("{name}: byte {at} is {found}, not {wanted}; {wrong} are wrong\n{story}");
        }
    }

    fn story(&self) -> String {
        let last: Vec<&str> = self.last.iter().map(String::as_str).collect();
        format!("seed {}, the last steps:\n{}", self.seed, last.join("\n"))
    }
}

/// All there is, and whatever would come behind it.
fn all_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xA5; SPAN + PAGE];
    let mut len = 0;
    loop {
        match file.read_at(&mut bytes[len..], len as u64).unwrap() {
            0 => break,
            more => len += more,
        }
    }
    bytes.truncate(len);
    bytes
}
