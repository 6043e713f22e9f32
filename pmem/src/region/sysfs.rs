//! What Linux tells in sysfs of the memory below a region: what a power failure leaves of it, and where it is bad.
//!
//! What this file guarantees: what is not told, or can't be understood, is not known; nothing here fails an opening.

use std::fs::File;
use std::io::Read;
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{Losses, crc32c};

/// Where sysfs is, if nothing else was said.
pub(super) const ROOT: &str = "/sys";

/// The most that an attribute is read of; Linux gives a page.
const ATTRIBUTE_BYTES_MAX: u64 = 64 << 10;
/// The most parts of modules that a region is made of; Linux has 32.
const MAPPINGS_MAX: usize = 64;
const SECTOR_BYTES: u64 = 512;

/// What kind of number a device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// That of a file's file system.
    Block,
    /// That of a DAX device.
    Char,
}

/// A device that sysfs knows.
pub(super) struct Device {
    root: PathBuf,
    /// Without symbolic links, so that what it is a part of is what it lies in.
    dir: PathBuf,
    class: Class,
}

impl Device {
    /// The device of this number, where sysfs, mounted at `root`, has it.
    pub(super) fn find(root: &Path, class: Class, number: u64) -> Option<Self> {
        let root = std::fs::canonicalize(root).ok()?;
        let (major, minor) = (libc::major(number), libc::minor(number));
        let class_name = match class {
            Class::Block => "block",
            Class::Char => "char",
        };
        let dir = root.join("dev").join(class_name).join(format!("{major}:{minor}"));
        let dir = std::fs::canonicalize(dir).ok().filter(|dir| dir.starts_with(&root))?;
        Some(Self { root, dir, class })
    }

    /// Its name, as in /dev.
    pub(super) fn name(&self) -> Option<String> {
        self.dir.file_name()?.to_str().filter(|name| is_word(name)).map(str::to_owned)
    }

    /// Whether it is of this subsystem.
    pub(super) fn is_of(&self, subsystem: &str) -> bool {
        let link = std::fs::canonicalize(self.dir.join("subsystem"));
        link.is_ok_and(|link| link.file_name().is_some_and(|name| name == subsystem))
    }

    /// A number that it tells.
    pub(super) fn number(&self, attribute: &str) -> Option<u64> {
        number(&self.dir, attribute)
    }

    /// The region of memory that it is a part of: `.../ndbus0/region0/namespace0.0/block/pmem0` is one of `region0`.
    fn region(&self) -> Option<&Path> {
        let mut inside = self.dir.ancestors().take_while(|dir| dir.starts_with(&self.root));
        inside.find(|dir| {
            ["persistence_domain", "mappings"].iter().any(|name| dir.join(name).is_file())
        })
    }

    /// Whether it is a part of persistent memory.
    pub(super) fn is_persistent(&self) -> bool {
        self.region().is_some()
    }

    /// What of the CPU's stores a power failure spares: `cpu_cache`, `memory_controller`, or nothing that is known.
    pub(super) fn persistence_domain(&self) -> Option<String> {
        let domain = text(self.region()?, "persistence_domain")?;
        is_word(&domain).then_some(domain)
    }

    /// How often its modules have failed to save what they had been given, all together. (Each counts upwards.) Not known where one
    /// that counts does not say which it is.
    pub(super) fn losses(&self) -> Option<Losses> {
        let region = self.region()?;
        let bus = region.parent()?;
        let (mut ids, mut count) = (Vec::new(), None);
        for mapping in 0..MAPPINGS_MAX {
            let Some(text) = text(region, &format!("mapping{mapping}")) else { break };
            let name = text.split(',').next().filter(|name| !name.contains('/'))?;
            let module = bus.join(name);
            let kinds = ["nfit", "papr", "cxl"].map(|kind| module.join(kind));
            let id = kinds.iter().find_map(|kind| self::text(kind, "id"));
            if let Some(lost) = kinds.iter().find_map(|kind| number(kind, "dirty_shutdown")) {
                count = Some(count.unwrap_or(0u64).wrapping_add(lost));
                ids.push(id?);
            }
        }
        // (In which order they are is not theirs to say.)
        ids.sort_unstable();
        let of = ids.iter().fold(0, |of, id| crc32c(of, id.as_bytes()));
        let of = NonZeroU32::new(of).unwrap_or(NonZeroU32::MIN);
        count.map(|count| Losses { of, count })
    }

    /// Its bytes that Linux knows to be bad.
    pub(super) fn bad(&self) -> Vec<Range<u64>> {
        match self.class {
            Class::Block => self.bad_of_disk(),
            Class::Char => self.bad_of_region(),
        }
        .unwrap_or_default()
    }

    /// Those of a disk are counted from its start, also where this is a partition of it.
    fn bad_of_disk(&self) -> Option<Vec<Range<u64>>> {
        let bytes = self.number("size")?.checked_mul(SECTOR_BYTES)?;
        let (disk, start) = match self.number("partition") {
            Some(_) => (self.dir.parent()?, self.number("start")?.checked_mul(SECTOR_BYTES)?),
            None => (self.dir.as_path(), 0),
        };
        Some(part_of(&bad_in(&text(disk, "badblocks")?), start, bytes))
    }

    /// Those of a region of memory are counted from its start; a DAX device says where it begins.
    fn bad_of_region(&self) -> Option<Vec<Range<u64>>> {
        let region = self.region()?;
        let start = self.number("resource")?.checked_sub(number(region, "resource")?)?;
        Some(part_of(&bad_in(&text(region, "badblocks")?), start, self.number("size")?))
    }
}

/// What may be printed as it is.
fn is_word(text: &str) -> bool {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !text.is_empty() && text.bytes().all(is_right)
}

fn text(dir: &Path, attribute: &str) -> Option<String> {
    let mut text = String::new();
    // (What is no file might never answer.)
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(dir.join(attribute)).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.take(ATTRIBUTE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

fn number(dir: &Path, attribute: &str) -> Option<u64> {
    let text = text(dir, attribute)?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// What a list of bad blocks says: a line for each piece, its first sector and how many there are.
fn bad_in(list: &str) -> Vec<Range<u64>> {
    let piece = |line: &str| {
        let (first, sectors) = line.trim().split_once(' ')?;
        let start = first.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)?;
        let len = sectors.trim().parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)?;
        let end = start.checked_add(len)?;
        (start < end).then_some(start..end)
    };
    list.lines().filter_map(piece).collect()
}

/// What of these pieces lies in `bytes` bytes from `start` on, counted from there, in order and each byte once.
pub(super) fn part_of(pieces: &[Range<u64>], start: u64, bytes: u64) -> Vec<Range<u64>> {
    let end = start.saturating_add(bytes);
    let within = |piece: &Range<u64>| {
        let (from, to) = (piece.start.max(start), piece.end.min(end));
        (from < to).then(|| from - start..to - start)
    };
    let mut found: Vec<Range<u64>> = pieces.iter().filter_map(within).collect();
    found.sort_unstable_by_key(|piece| piece.start);
    found.dedup_by(|next, piece| {
        let joins = next.start <= piece.end;
        if joins {
            piece.end = piece.end.max(next.end);
        }
        joins
    });
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use std::fs;

    /// A sysfs with one region of two modules, a disk with a partition on it, and a DAX device.
    fn sysfs(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("lode-sysfs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let files = [
            ("devices/ndbus0/region0/persistence_domain", "memory_controller\n"),
            ("devices/ndbus0/region0/mappings", "2\n"),
            ("devices/ndbus0/region0/mapping0", "nmem0,0,536870912,0\n"),
            ("devices/ndbus0/region0/mapping1", "nmem1,0,536870912,1\n"),
            ("devices/ndbus0/region0/resource", "0x100000000\n"),
            ("devices/ndbus0/region0/badblocks", "4096 1\n8192 8\n"),
            ("devices/ndbus0/nmem0/nfit/id", "8089-01\n"),
            ("devices/ndbus0/nmem0/nfit/dirty_shutdown", "3\n"),
            ("devices/ndbus0/nmem1/nfit/id", "8089-02\n"),
            ("devices/ndbus0/nmem1/nfit/dirty_shutdown", "4\n"),
            ("devices/ndbus0/region0/namespace0.0/block/pmem0/size", "4096\n"),
            ("devices/ndbus0/region0/namespace0.0/block/pmem0/badblocks", "2040 16\n9999 1\n"),
            ("devices/ndbus0/region0/namespace0.0/block/pmem0/pmem0p1/partition", "1\n"),
            ("devices/ndbus0/region0/namespace0.0/block/pmem0/pmem0p1/start", "2048\n"),
            ("devices/ndbus0/region0/namespace0.0/block/pmem0/pmem0p1/size", "2048\n"),
            ("devices/ndbus0/region0/dax0.0/dax0.0/size", "4194304\n"),
            ("devices/ndbus0/region0/dax0.0/dax0.0/resource", "0x100200000\n"),
            ("bus/dax/none", ""),
        ];
        for (path, text) in files {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        let links = [
            ("dev/block/259:0", "../../devices/ndbus0/region0/namespace0.0/block/pmem0"),
            ("dev/block/259:1", "../../devices/ndbus0/region0/namespace0.0/block/pmem0/pmem0p1"),
            ("dev/char/252:0", "../../devices/ndbus0/region0/dax0.0/dax0.0"),
            ("dev/char/252:1", "../../../.."),
            ("devices/ndbus0/region0/dax0.0/dax0.0/subsystem", "../../../../../bus/dax"),
        ];
        for (path, target) in links {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, root.join(path)).unwrap();
        }
        root
    }

    #[test]
    fn a_device_tells_of_its_region_and_its_modules() {
        let root = sysfs("tells");
        let find = |class, major, minor| Device::find(&root, class, libc::makedev(major, minor));
        let disk = find(Class::Block, 259, 0).unwrap();
        let part = find(Class::Block, 259, 1).unwrap();
        let dax = find(Class::Char, 252, 0).unwrap();
        for device in [&disk, &part, &dax] {
            assert!(device.is_persistent());
            assert_eq!(device.persistence_domain().unwrap(), "memory_controller");
            let of = crc32c(crc32c(0, b"8089-01"), b"8089-02");
            let of = NonZeroU32::new(of).unwrap();
            assert_eq!(device.losses(), Some(Losses { of, count: 7 }));
        }
        assert_eq!((disk.name().unwrap(), dax.name().unwrap()), ("pmem0".into(), "dax0.0".into()));
        assert!(dax.is_of("dax") && !disk.is_of("dax"));
        let sector = SECTOR_BYTES;
        let bad = |device: &Device| device.bad().first().cloned();
        assert_eq!(bad(&disk), Some(2040 * sector..2056 * sector));
        assert_eq!(bad(&part), Some(0..8 * sector));
        assert_eq!(dax.bad(), [0..sector, 4096 * sector..4104 * sector]);
        // What leads out of sysfs, or to nothing, is no device.
        assert!(find(Class::Char, 252, 1).is_none() && find(Class::Block, 1, 1).is_none());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_is_not_told_is_not_known() {
        let root = sysfs("not-told");
        let device = || Device::find(&root, Class::Block, libc::makedev(259, 0)).unwrap();
        let region = root.join("devices/ndbus0/region0");
        fs::write(region.join("persistence_domain"), "a b/../c\n").unwrap();
        assert_eq!(device().persistence_domain(), None);
        let hmem = root.join("devices/platform/hmem.0/dax1.0");
        fs::create_dir_all(&hmem).unwrap();
        std::os::unix::fs::symlink(&hmem, root.join("dev/char/252:2")).unwrap();
        let hmem = Device::find(&root, Class::Char, libc::makedev(252, 2)).unwrap();
        assert!(!hmem.is_persistent() && device().is_persistent());
        fs::write(region.join("../nmem0/nfit/dirty_shutdown"), "many\n").unwrap();
        assert_eq!(device().losses().unwrap().count, 4);
        fs::rename(region.join("../nmem1/nfit/id"), region.join("../nmem1/nfit/was")).unwrap();
        assert_eq!(device().losses(), None);
        fs::rename(region.join("../nmem1/nfit/was"), region.join("../nmem1/nfit/id")).unwrap();
        fs::write(region.join("../nmem1/nfit/dirty_shutdown"), "").unwrap();
        assert_eq!(device().losses(), None);
        fs::write(region.join("mapping0"), "../region0,1,2\n").unwrap();
        assert_eq!(device().losses(), None);
        for list in ["", "x", "1", "1 0", "18446744073709551615 1", "1 -1", "4096 1"] {
            fs::write(region.join("namespace0.0/block/pmem0/badblocks"), list).unwrap();
            assert!(device().bad().is_empty(), "{list}");
        }
        // What comes twice, in any order, is one piece.
        fs::write(region.join("namespace0.0/block/pmem0/badblocks"), "9 2\n8 2\n8 2\n1 1\n2 1")
            .unwrap();
        assert_eq!(device().bad(), [512..1536, 4096..5632]);
        // Nobody waits for what never answers.
        let pipe = region.join("namespace0.0/block/pmem0/badblocks");
        fs::remove_file(&pipe).unwrap();
        let path = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: takes a string that ends in zero.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        assert!(device().bad().is_empty());
        fs::remove_dir_all(&root).unwrap();
    }
}
