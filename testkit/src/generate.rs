//! Random sequences of operations, by seed.

use lode_engine::{Fallocate, NewInode, RenameMode, XattrWhen, mode};
use lode_model::Model;

use crate::execute::{Handles, execute, resolve};
use crate::op::{Attrs, Fill, ODD_SEEDS, Op, Path, Target, odd_name};
use crate::rng::Rng;

/// What a generator makes.
#[derive(Clone, Debug)]
pub struct Shape {
    /// All paths begin with this one.
    pub below: Path,
    /// Short names to choose from in each directory.
    pub names: u64,
    /// Long and odd names now and then.
    pub odd_names: bool,
    /// The longest of them.
    pub name_max: u64,
    /// Deepest path, in names.
    pub depth: usize,
    /// Largest offset of ordinary writes.
    pub offset_max: u64,
    /// Longest write.
    pub len_max: u64,
    /// Offsets far behind that, now and then.
    pub sparse: bool,
    /// Slots for open files; 0 for none.
    pub slots: usize,
    /// A clean remount and a crash, each once in so many operations; 0 for never.
    pub remount_every: u64,
    /// Background work once in so many operations; 0 for never.
    pub maintain_every: u64,
    /// Owners and devices, which need rights on a real file system.
    pub privileged: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            below: Path::root(),
            names: 8,
            odd_names: true,
            name_max: 256,
            depth: 5,
            offset_max: 64 * 1024,
            len_max: 20_000,
            sparse: true,
            slots: 3,
            remount_every: 0,
            maintain_every: 0,
            privileged: true,
        }
    }
}

/// Makes operations. It does them on a model of its own, so that most of them meet something.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    shape: Shape,
    model: Model,
    handles: Handles,
    /// What there was when it last looked; the first directory is where all begins.
    dirs: Vec<Path>,
    files: Vec<Path>,
    since_look: usize,
}

/// Operations between two looks at what there is.
const LOOK_EVERY: usize = 4;
/// Files from which on more are removed than made.
const MANY: usize = 60;
const EDGES: [u64; 12] = [8, 16, 56, 64, 128, 512, 1024, 4096, 8192, 12_288, 65_536, 2 << 20];

impl Generator {
    /// A generator.
    pub fn new(seed: u64, shape: Shape) -> Self {
        let model = Model::new();
        let new = NewInode { mode: mode::DIRECTORY | 0o755, uid: 0, gid: 0, rdev: 0 };
        let mut dir = model.root();
        for name in &shape.below.0 {
            dir = model.create(dir, name, &new).map_or(dir, |attr| attr.ino);
        }
        let dirs = vec![shape.below.clone()];
        let rng = Rng::new(seed);
        Self { rng, shape, model, handles: Handles::new(), dirs, files: Vec::new(), since_look: 0 }
    }

    /// The next `count` operations.
    pub fn take(&mut self, count: usize) -> Vec<Op> {
        (0..count).map(|_| self.op()).collect()
    }

    /// The next operation.
    pub fn op(&mut self) -> Op {
        let op = self.choose();
        if matches!(op, Op::Remount | Op::Crash) {
            self.handles.clear();
            self.model.release_all();
        }
        let _ = execute(&self.model, &mut self.handles, &op);
        self.since_look += 1;
        if self.since_look >= LOOK_EVERY {
            self.look();
        }
        op
    }

    fn choose(&mut self) -> Op {
        let (remount, maintain) = (self.shape.remount_every, self.shape.maintain_every);
        if remount > 0 && self.rng.once_in(remount) {
            return if self.rng.once_in(2) { Op::Remount } else { Op::Crash };
        }
        if maintain > 0 && self.rng.once_in(maintain) {
            return Op::Maintain;
        }
        if self.files.len() > MANY && self.rng.once_in(4) {
            return Op::Unlink { path: self.rng.pick(&self.files) };
        }
        match self.rng.below(100) {
            0..42 => self.namespace_op(),
            42..85 => self.file_op(),
            _ => self.look_op(),
        }
    }

    /// Looks at what there is now.
    fn look(&mut self) {
        self.since_look = 0;
        self.dirs.clear();
        self.files.clear();
        let below = self.shape.below.clone();
        let Ok(top) = resolve(&self.model, &below) else {
            self.dirs.push(below);
            return;
        };
        let mut todo = vec![(below, top)];
        while let Some((path, dir)) = todo.pop() {
            let _ = self.model.readdir(dir, 0, &mut |entry| {
                let child = path.join(entry.name);
                if entry.kind == mode::DIRECTORY {
                    todo.push((child, entry.ino));
                } else {
                    self.files.push(child);
                }
                true
            });
            self.dirs.push(path);
        }
    }

    fn namespace_op(&mut self) -> Op {
        match self.rng.below(42) {
            0..9 => self.create(),
            9..14 => {
                let path = self.new_path();
                Op::Create { path, mode: mode::DIRECTORY | self.permissions(), rdev: 0 }
            }
            14..16 => {
                let path = self.new_path();
                Op::Symlink { path, target: self.link_target() }
            }
            16..20 => {
                let (from, to) = (self.target(), self.new_path());
                Op::Link { from, to }
            }
            20..27 => Op::Unlink { path: self.some_file() },
            27..30 => Op::Rmdir { path: self.some_path() },
            _ => self.rename(),
        }
    }

    fn create(&mut self) -> Op {
        let path = self.new_path();
        let rdev = (self.rng.below(200) << 32) | self.rng.below(200);
        let (kind, rdev) = match self.rng.below(14) {
            0 => (mode::FIFO, 0),
            1 => (mode::SOCKET, 0),
            2 if self.shape.privileged => (mode::CHARACTER, rdev),
            3 if self.shape.privileged => (mode::BLOCK, rdev),
            _ => (mode::FILE, 0),
        };
        let mode = kind | self.permissions();
        if self.shape.privileged && rdev == 0 && self.rng.once_in(8) {
            let (name, value) = (self.xattr_name(), self.xattr_value());
            return Op::CreateWith { path, mode, name, value };
        }
        Op::Create { path, mode, rdev }
    }

    fn rename(&mut self) -> Op {
        let from = self.some_path();
        let to = if self.rng.once_in(2) { self.some_path() } else { self.new_path() };
        let how = match self.rng.below(6) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        Op::Rename { from, to, how }
    }

    fn file_op(&mut self) -> Op {
        let to = self.target();
        match self.rng.below(49) {
            0..15 => {
                let (offset, data) = (self.offset(), self.fill());
                Op::Write { to, offset, data }
            }
            15..23 => Op::Append { to, data: self.fill() },
            23..29 => {
                let attrs = Attrs { size: Some(self.offset()), ..Attrs::default() };
                Op::SetAttr { of: to, attrs }
            }
            29..35 => Op::SetAttr { of: to, attrs: self.attrs() },
            35..41 => {
                let how = self.rng.pick(&[
                    Fallocate::Allocate { keep_size: false },
                    Fallocate::Allocate { keep_size: true },
                    Fallocate::Punch,
                    Fallocate::Zero { keep_size: false },
                    Fallocate::Zero { keep_size: true },
                ]);
                let (offset, len) = (self.offset(), self.len());
                Op::Fallocate { of: to, how, offset, len }
            }
            _ => self.xattr_op(to),
        }
    }

    /// Extended attributes, in a namespace that all kinds of inode may have.
    fn xattr_op(&mut self, of: Target) -> Op {
        if !self.shape.privileged {
            return Op::Fsync { of };
        }
        let name = self.xattr_name();
        let when = match self.rng.below(8) {
            0 => XattrWhen::Absent,
            1 => XattrWhen::Present,
            _ => XattrWhen::Always,
        };
        match self.rng.below(10) {
            0 => Op::Fsync { of },
            1 => Op::GetXattr { of, name },
            2..4 => Op::SetXattr { of, name, value: None, when: XattrWhen::Present },
            4 => {
                let (value, attrs) = (self.xattr_value(), self.attrs());
                Op::SetAttrWith { of, name, value, attrs }
            }
            _ => Op::SetXattr { of, name, value: Some(self.xattr_value()), when },
        }
    }

    fn xattr_value(&mut self) -> Fill {
        let len = match self.rng.below(8) {
            0 => self.rng.below(30_000),
            1 => self.rng.pick(&[560, 640, 4096, 8192, 65_536]),
            2..4 => self.rng.below(700),
            _ => self.rng.below(60),
        };
        Fill { len, fill: self.rng.below(1000) }
    }

    fn xattr_name(&mut self) -> Vec<u8> {
        let mut name = b"trusted.".to_vec();
        match self.rng.below(8) {
            0 if self.shape.odd_names => {
                // In pools of short log pages there must be room for where a value is.
                let most = if self.shape.name_max > 255 { 247 } else { self.shape.name_max / 2 };
                let len = 1 + self.rng.below(most);
                name.extend(odd_name(self.rng.below(ODD_SEEDS), len as usize));
            }
            _ => name.push(b'a' + self.rng.below(5) as u8),
        }
        name
    }

    fn look_op(&mut self) -> Op {
        let slots = self.shape.slots as u64;
        match self.rng.below(15) {
            0..5 => {
                let (offset, len) = (self.offset(), self.len());
                Op::Read { from: self.target(), offset, len }
            }
            5..7 => Op::Stat { of: self.target() },
            7 => Op::Readlink { path: self.some_file() },
            8 => Op::List { path: self.some_path() },
            9 if slots > 0 => self.tmpfile(),
            10..13 if slots > 0 => {
                Op::Open { path: self.some_file(), slot: self.rng.below(slots) as usize }
            }
            13..15 if slots > 0 => Op::Close { slot: self.rng.below(slots) as usize },
            _ => Op::Stat { of: Target::Path(self.some_path()) },
        }
    }

    /// A file without a name, which other operations may give one.
    fn tmpfile(&mut self) -> Op {
        let dir = if self.rng.once_in(8) { self.some_path() } else { self.rng.pick(&self.dirs) };
        let slot = self.rng.below(self.shape.slots as u64) as usize;
        let with_xattr = self.shape.privileged && self.rng.once_in(4);
        let xattr = with_xattr.then(|| (self.xattr_name(), self.xattr_value()));
        Op::Tmpfile { dir, slot, permissions: self.permissions(), xattr }
    }

    fn attrs(&mut self) -> Attrs {
        let mut attrs = Attrs::default();
        match self.rng.below(5) {
            0 => attrs.mode = Some(self.permissions()),
            1 if self.shape.privileged => attrs.uid = Some(self.rng.below(9) as u32),
            2 if self.shape.privileged => attrs.gid = Some(self.rng.below(9) as u32),
            3 => attrs.atime = Some(self.rng.below(1 << 50) as i64),
            _ => attrs.mtime = Some(self.rng.below(1 << 50) as i64 - (1 << 40)),
        }
        if self.rng.once_in(4) {
            attrs.mode = Some(self.permissions());
            attrs.atime = Some(self.rng.below(1 << 50) as i64);
        }
        attrs
    }

    fn permissions(&mut self) -> u32 {
        self.rng.below(0o1000) as u32
    }

    fn target(&mut self) -> Target {
        if self.shape.slots > 0 && self.rng.once_in(5) {
            return Target::Handle(self.rng.below(self.shape.slots as u64) as usize);
        }
        Target::Path(if self.rng.once_in(12) { self.some_path() } else { self.some_file() })
    }

    fn some_file(&mut self) -> Path {
        if self.files.is_empty() || self.rng.once_in(12) {
            return self.some_path();
        }
        self.rng.pick(&self.files)
    }

    fn some_path(&mut self) -> Path {
        let path = match self.rng.below(8) {
            0 => self.new_path(),
            1..4 if !self.files.is_empty() => self.rng.pick(&self.files),
            _ => self.rng.pick(&self.dirs),
        };
        if path == self.shape.below { self.new_path() } else { path }
    }

    /// A name in some directory; now and then below a file, which can't be.
    fn new_path(&mut self) -> Path {
        let dir = match self.rng.below(25) {
            0 if !self.files.is_empty() => self.rng.pick(&self.files),
            _ => self.rng.pick(&self.dirs),
        };
        let most = self.shape.below.0.len() + self.shape.depth;
        let dir = if dir.0.len() >= most { self.shape.below.clone() } else { dir };
        let name = self.name();
        dir.join(&name)
    }

    fn name(&mut self) -> Vec<u8> {
        if self.shape.odd_names && self.rng.once_in(8) {
            let len = match self.rng.below(10) {
                0 => 256,
                1..4 => self.rng.pick(&[15, 16, 17, 55, 56, 57, 95, 96, 97, 254, 255]),
                _ => 1 + self.rng.below(255),
            };
            let len = len.min(self.shape.name_max);
            return odd_name(self.rng.below(ODD_SEEDS), len as usize);
        }
        vec![b'a' + self.rng.below(self.shape.names.clamp(1, 26)) as u8]
    }

    fn link_target(&mut self) -> Vec<u8> {
        let len = match self.rng.below(8) {
            0 => self.rng.pick(&[1, 16, 17, 56, 57, 136, 137, 255, 4095, 4096]),
            _ => 1 + self.rng.below(200),
        };
        match len {
            0..12 => (0..len).map(|_| self.rng.pick(b"abc/.%xyz")).collect(),
            _ => odd_name(self.rng.below(ODD_SEEDS), len as usize),
        }
    }

    fn offset(&mut self) -> u64 {
        let max = self.shape.offset_max;
        match self.rng.below(20) {
            0 if self.shape.sparse => (1 << (22 + self.rng.below(30))) + self.rng.below(9000),
            1..12 => {
                let edge = self.rng.pick(&EDGES);
                let times = if edge >= 4096 { 1 } else { 1 + self.rng.below(70) };
                (edge * times + self.rng.below(17)).saturating_sub(8).min(max)
            }
            12..15 => self.rng.below(max + 1) / 4096 * 4096,
            _ => self.rng.below(max + 1),
        }
    }

    fn len(&mut self) -> u64 {
        let max = self.shape.len_max;
        let len = match self.rng.below(8) {
            0..3 => 1 + self.rng.below(17),
            3..5 => (self.rng.pick(&EDGES) + self.rng.below(5)).saturating_sub(2),
            5 => 4096 * (1 + self.rng.below(4)),
            _ => 1 + self.rng.below(max),
        };
        len.min(max)
    }

    fn fill(&mut self) -> Fill {
        Fill { len: self.len(), fill: if self.rng.once_in(15) { 0 } else { self.rng.below(1000) } }
    }
}
