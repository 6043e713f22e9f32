//! Attributes: as std and the system set them, inherited as on a mount.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::script::Twin;
use crate::common::{PoolFile, errno, pool};
use lode::{FileTimes, FormatOptions, OpenOptions, PoolOptions, XattrWhen};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const NOBODY: u32 = u32::MAX;

/// A list as the system has it: tag, permissions, number.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Owner rwx, user 1000 rwx, group r-x, a mask, others nothing.
fn shared(mask: u16) -> Vec<u8> {
    acl(&[(1, 7, NOBODY), (2, 7, 1000), (4, 5, NOBODY), (16, mask, NOBODY), (32, 0, NOBODY)])
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn modes_and_owners_change_as_the_system_changes_them() {
    if !is_root() {
        println!("skipped: owners need root");
        return;
    }
    for mode in (0..0o10000u32).step_by(0o111).chain([0o7777, 0o6755, 0o2745, 0o4711]) {
        let twin = Twin::new();
        twin.run("mkdir d\nwrite f x\nsymlink f l\nsymlink d ld");
        twin.run(&format!("chmod f {mode:o}\nchmod d {mode:o}"));
        twin.compare("chmod");
        for name in ["f", "d"] {
            chown(twin.at(name), Some(3), None).unwrap();
            twin.pool.chown(name, Some(3), None).unwrap();
        }
        twin.compare("chown");
        lchown(twin.at("l"), Some(7), Some(8)).unwrap();
        twin.pool.lchown("l", Some(7), Some(8)).unwrap();
        chown(twin.at("ld"), None, Some(5)).unwrap();
        twin.pool.chown("ld", None, Some(5)).unwrap();
        twin.compare("through links, and of links");
    }
}

#[test]
fn handles_change_what_paths_change() {
    let pool = pool(16);
    let file = pool.create_new("f").unwrap();
    file.set_permissions(Permissions::from_mode(0o6711)).unwrap();
    assert_eq!(pool.metadata("f").unwrap().mode(), 0o106_711);
    file.chown(Some(4), Some(5)).unwrap();
    let found = pool.metadata("f").unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode()), (4, 5, 0o100_711));
    file.set_times(FileTimes::new().set_modified(UNIX_EPOCH)).unwrap();
    assert_eq!(file.metadata().unwrap().modified(), UNIX_EPOCH);
    file.set_xattr("user.a", b"x").unwrap();
    assert_eq!(pool.get_xattr("f", "user.a").unwrap().as_deref(), Some(&b"x"[..]));
    assert_eq!(file.list_xattr().unwrap(), ["user.a"]);
    file.remove_xattr("user.a").unwrap();
    assert_eq!(file.get_xattr("user.a").unwrap(), None);
}

#[test]
fn times_are_kept_to_the_nanosecond() {
    let twin = Twin::new();
    twin.run("write f x");
    let times = [
        UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789),
        UNIX_EPOCH - Duration::new(5, 1),
        UNIX_EPOCH,
    ];
    for time in times {
        let file = fs::File::options().write(true).open(twin.at("f")).unwrap();
        file.set_times(fs::FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
        let asked = FileTimes::new().set_accessed(time).set_modified(time);
        twin.pool.set_times("f", asked).unwrap();
        let (wanted, found) =
            (fs::metadata(twin.at("f")).unwrap(), twin.pool.metadata("f").unwrap());
        assert_eq!((found.modified(), found.accessed()), (time, time));
        assert_eq!((wanted.mtime(), wanted.mtime_nsec()), (found.mtime(), found.mtime_nsec()));
        assert_eq!((wanted.atime(), wanted.atime_nsec()), (found.atime(), found.atime_nsec()));
    }
    let (before, pool) = (SystemTime::now(), &twin.pool);
    pool.symlink("f", "l").unwrap();
    pool.set_times_nofollow("l", FileTimes::new().set_modified(UNIX_EPOCH)).unwrap();
    let link = pool.symlink_metadata("l").unwrap();
    assert_eq!(link.modified(), UNIX_EPOCH);
    assert!(link.created() >= before && link.created() <= SystemTime::now());
    assert_eq!(pool.metadata("l").unwrap().modified(), UNIX_EPOCH, "the file's, which was set so");
}

#[test]
fn special_files_have_names_and_nothing_behind() {
    let pool = PoolOptions::new().umask(0o022).in_memory(16 << 20).unwrap();
    let device = rustix::fs::makedev(259, 1000);
    for (name, mode, rdev) in [
        ("fifo", libc::S_IFIFO | 0o666, 0),
        ("socket", libc::S_IFSOCK | 0o777, 0),
        ("char", libc::S_IFCHR | 0o600, device),
        ("block", libc::S_IFBLK | 0o660, device),
    ] {
        pool.mknod(name, mode, rdev).unwrap();
        let found = pool.metadata(name).unwrap();
        assert_eq!((found.mode(), found.rdev()), (mode & !0o022, rdev), "{name}");
        assert_eq!(errno(pool.open_file(name)), libc::ENXIO, "{name}");
        assert_eq!(errno(pool.set_xattr(name, "user.a", b"x")), libc::EPERM, "{name}");
        pool.set_xattr(name, "trusted.a", b"x").unwrap();
    }
    let kinds = ["fifo", "socket", "char", "block"]
        .map(|name| pool.metadata(name).unwrap().file_type())
        .map(|kind| {
            [kind.is_fifo(), kind.is_socket(), kind.is_char_device(), kind.is_block_device()]
        });
    for (at, kind) in kinds.iter().enumerate() {
        assert_eq!(kind.iter().position(|is| *is), Some(at));
    }
    pool.mknod("file", 0o640, 0).unwrap();
    assert!(pool.metadata("file").unwrap().is_file());
    assert_eq!(errno(pool.mknod("d", libc::S_IFDIR | 0o755, 0)), libc::EPERM);
    assert_eq!(errno(pool.mknod("l", libc::S_IFLNK | 0o755, 0)), libc::EINVAL);
    assert_eq!(errno(pool.mknod("fifo", libc::S_IFIFO, 0)), libc::EEXIST);
    let fifo = std::env::temp_dir().join(format!("lode-lib-fifo-{}", std::process::id()));
    let _ = fs::remove_file(&fifo);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    fs::remove_file(&fifo).unwrap();
}

#[test]
fn new_files_are_the_processs_unless_told_otherwise() {
    let twin = Twin::new();
    twin.run("mkdir d\nwrite f x\nsymlink f l\nopen wc g");
    twin.compare("making, with the process's umask");
    let pool = PoolOptions::new().owner(12, 34).umask(0o137).in_memory(16 << 20).unwrap();
    pool.create_dir("d").unwrap();
    pool.write("f", "x").unwrap();
    pool.open_with("g", OpenOptions::new().write(true).create(true).mode(0o777)).unwrap();
    pool.symlink("f", "l").unwrap();
    let seen = ["d", "f", "g", "l"].map(|name| {
        let found = pool.symlink_metadata(name).unwrap();
        assert_eq!((found.uid(), found.gid()), (12, 34), "{name}");
        found.mode() & 0o7777
    });
    assert_eq!(seen, [0o640, 0o640, 0o640, 0o777]);
    let root = pool.metadata("/").unwrap();
    assert_eq!((root.uid(), root.gid(), root.mode()), (12, 34, 0o040_755));
}

#[test]
fn groups_are_inherited_from_directories_that_hand_them_on() {
    let pool = pool(16);
    pool.create_dir("d").unwrap();
    pool.chown("d", None, Some(77)).unwrap();
    pool.set_permissions("d", Permissions::from_mode(0o2775)).unwrap();
    pool.create_dir("d/sub").unwrap();
    pool.write("d/f", "x").unwrap();
    pool.symlink("f", "d/l").unwrap();
    pool.temporary("d").unwrap().link("d/t").unwrap();
    for name in ["d/sub", "d/f", "d/l", "d/t"] {
        assert_eq!(pool.symlink_metadata(name).unwrap().gid(), 77, "{name}");
    }
    assert_eq!(pool.metadata("d/sub").unwrap().mode() & 0o2000, 0o2000);
    assert_eq!(pool.metadata("d/f").unwrap().mode() & 0o2000, 0);
}

#[test]
fn default_lists_are_inherited_in_place_of_the_umask() {
    let pool = PoolOptions::new().umask(0o077).in_memory(16 << 20).unwrap();
    pool.create_dir("d").unwrap();
    pool.set_xattr("d", DEFAULT, &shared(7)).unwrap();
    pool.write("d/f", "x").unwrap();
    pool.create_dir("d/sub").unwrap();
    pool.mknod("d/fifo", libc::S_IFIFO | 0o666, 0).unwrap();
    pool.temporary("d").unwrap().link("d/t").unwrap();
    for name in ["d/f", "d/fifo", "d/t"] {
        let cut =
            acl(&[(1, 6, NOBODY), (2, 7, 1000), (4, 5, NOBODY), (16, 6, NOBODY), (32, 0, NOBODY)]);
        assert_eq!(pool.get_xattr(name, ACCESS).unwrap(), Some(cut), "{name}");
        assert_eq!(pool.metadata(name).unwrap().mode() & 0o777, 0o660, "{name}");
        assert_eq!(pool.get_xattr(name, DEFAULT).unwrap(), None, "{name}");
    }
    for list in [ACCESS, DEFAULT] {
        assert_eq!(pool.get_xattr("d/sub", list).unwrap(), Some(shared(7)));
    }
}

#[test]
fn a_list_and_the_mode_change_together() {
    let pool = pool(16);
    pool.write("f", "x").unwrap();
    pool.set_xattr("f", ACCESS, &shared(7)).unwrap();
    let mode = || pool.metadata("f").unwrap().mode() & 0o7777;
    assert_eq!(mode(), 0o770);
    pool.set_permissions("f", Permissions::from_mode(0o740)).unwrap();
    assert_eq!((mode(), pool.get_xattr("f", ACCESS).unwrap()), (0o740, Some(shared(4))));
    pool.remove_xattr("f", ACCESS).unwrap();
    assert_eq!((mode(), pool.get_xattr("f", ACCESS).unwrap()), (0o740, None));
    assert_eq!(errno(pool.set_xattr("f", DEFAULT, &shared(7))), libc::EACCES);
    assert_eq!(errno(pool.set_xattr("f", ACCESS, b"nonsense")), libc::EOPNOTSUPP);
    assert_eq!(errno(pool.set_xattr("f", ACCESS, b"")), libc::EINVAL);
}

/// Who changes the mode where there is no list must not meet one that has just come.
#[test]
fn a_list_and_the_mode_agree_whoever_changes_them() {
    let pool = pool(16);
    pool.write("f", "x").unwrap();
    // How far each of the two is: they wait for each other without sleeping, to meet closely.
    let (one, other) = (AtomicU64::new(0), AtomicU64::new(0));
    let meet = |mine: &AtomicU64, others: &AtomicU64| {
        let at = mine.fetch_add(1, SeqCst) + 1;
        while others.load(SeqCst) < at {
            std::hint::spin_loop();
        }
    };
    let rounds = 3000;
    let wrong = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                meet(&one, &other);
                (0..round % 400).for_each(|_| std::hint::spin_loop());
                pool.set_permissions("f", Permissions::from_mode(0o750)).unwrap();
                meet(&one, &other);
            }
        });
        let mut wrong = 0;
        for _ in 0..rounds {
            pool.remove_xattr("f", ACCESS).unwrap();
            meet(&other, &one);
            pool.set_xattr("f", ACCESS, &shared(2)).unwrap();
            meet(&other, &one);
            let list = pool.get_xattr("f", ACCESS).unwrap().unwrap();
            let (mask, mode) = (list[4 + 3 * 8 + 2], pool.metadata("f").unwrap().mode() >> 3 & 7);
            wrong += u64::from(u32::from(mask) != mode);
        }
        wrong
    });
    assert_eq!(wrong, 0, "of {rounds}");
}

#[test]
fn attributes_have_the_systems_rules() {
    let pool = pool(16);
    pool.write("f", "x").unwrap();
    pool.symlink("f", "l").unwrap();
    let set = |name: &str, when| pool.set_xattr_when("l", name, b"value", when);
    assert_eq!(errno(set("user.a", XattrWhen::Present)), libc::ENODATA);
    set("user.a", XattrWhen::Absent).unwrap();
    assert_eq!(errno(set("user.a", XattrWhen::Absent)), libc::EEXIST);
    set("user.a", XattrWhen::Present).unwrap();
    assert_eq!(pool.get_xattr("f", "user.a").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(pool.get_xattr("f", "user.b").unwrap(), None);
    assert_eq!(errno(pool.remove_xattr("f", "user.b")), libc::ENODATA);
    for (name, why) in [
        ("user.", libc::EINVAL),
        ("system.other", libc::EOPNOTSUPP),
        ("nowhere.a", libc::EOPNOTSUPP),
        ("", libc::ERANGE),
    ] {
        assert_eq!(errno(pool.set_xattr("f", name, b"x")), why, "{name}");
        assert_eq!(errno(pool.get_xattr("f", name)), why, "{name}");
        assert_eq!(errno(pool.remove_xattr("f", name)), why, "{name}");
    }
    assert_eq!(errno(pool.set_xattr("f", format!("user.{}", "n".repeat(251)), b"")), libc::ERANGE);
    assert_eq!(errno(pool.set_xattr("f", "user.long", &[1; 65_537])), libc::E2BIG);
    pool.set_xattr("f", "user.long", &[1; 65_536]).unwrap();
    let mut names = pool.list_xattr("f").unwrap();
    names.sort();
    assert_eq!(names, ["user.a", "user.long"]);
    assert_eq!(errno(pool.list_xattr("missing")), libc::ENOENT);
}

#[test]
fn owners_that_change_take_rights_of_programs_away() {
    let pool = pool(16);
    pool.write("program", "x").unwrap();
    pool.set_permissions("program", Permissions::from_mode(0o6755)).unwrap();
    let capability = [&0x0200_0001u32.to_le_bytes()[..], &[0; 16]].concat();
    pool.set_xattr("program", "security.capability", &capability).unwrap();
    pool.chown("program", Some(1), Some(1)).unwrap();
    assert_eq!(pool.metadata("program").unwrap().mode(), 0o100_755);
    assert_eq!(pool.get_xattr("program", "security.capability").unwrap(), None);
}

#[test]
fn files_of_two_pools_are_told_apart() {
    let (one, other) = (pool(16), pool(16));
    let number = |pool: &lode::Pool| pool.metadata("/").unwrap().dev();
    assert_ne!(number(&one), number(&other));
    let file = PoolFile::new(16);
    let first = number(&file.open());
    assert_eq!(number(&file.open()), first);
    let format = FormatOptions { label: "named".into(), ..FormatOptions::default() };
    let path = file.dir.path().join("labelled");
    let made = PoolOptions::new().create(path, 16 << 20, &format).unwrap();
    assert_eq!(made.info().unwrap().label, b"named");
}
