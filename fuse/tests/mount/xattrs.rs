//! Extended attributes and access control lists.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs as sys;
use rustix::fs::XattrFlags as Flags;
use rustix::io::Errno;

use super::support::{Mount, shell};

pub(super) const ACCESS: &str = "system.posix_acl_access";
pub(super) const DEFAULT: &str = "system.posix_acl_default";
pub(super) const NOBODY: u32 = u32::MAX;

pub(super) fn set(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    sys::lsetxattr(path, name, value, Flags::empty())
}

pub(super) fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1 << 16];
    let len = sys::lgetxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

fn names(path: &Path) -> Vec<String> {
    let mut list = vec![0; 1 << 16];
    let len = sys::llistxattr(path, &mut list[..]).unwrap();
    let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<String> =
        names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    names.sort();
    names
}

/// A list as the kernel takes it: tag, permissions, number.
pub(super) fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Owner rwx, user 1000 `user`, group r-x, a mask, others nothing.
pub(super) fn shared_with(user: u16, mask: u16) -> Vec<u8> {
    acl(&[(1, 7, NOBODY), (2, user, 1000), (4, 5, NOBODY), (16, mask, NOBODY), (32, 0, NOBODY)])
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn attributes_of_every_length_are_kept_over_a_mount() {
    let Some(mount) = Mount::new() else { return };
    let value = |len: usize| (0..len).map(|at| (at * 7 + len) as u8).collect::<Vec<u8>>();
    let lengths = [0, 1, 39, 40, 600, 640, 641, 4096, 4097, 40_000, 65_536];
    fs::write(mount.path("file"), "x").unwrap();
    fs::create_dir(mount.path("dir")).unwrap();
    for path in [mount.path("file"), mount.path("dir")] {
        for len in lengths {
            set(&path, &format!("user.{len}"), &value(len)).unwrap();
        }
        set(&path, "user.4096", &value(10)).unwrap();
        sys::lremovexattr(&path, "user.40").unwrap();
    }
    let mount = mount.unmount().mount();
    for path in [mount.path("file"), mount.path("dir")] {
        for len in lengths {
            let wanted = match len {
                40 => Err(Errno::NODATA),
                4096 => Ok(value(10)),
                _ => Ok(value(len)),
            };
            assert_eq!(get(&path, &format!("user.{len}")), wanted, "{len}");
        }
        assert_eq!(names(&path).len(), lengths.len() - 1);
    }
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "x");
}

#[test]
fn many_attributes_are_kept_listed_and_removed() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "x").unwrap();
    let name =
        |i: u32| format!("{}.attribute-{i}", ["user", "trusted", "security"][i as usize % 3]);
    for i in 0..1000 {
        set(&mount.path("file"), &name(i), &i.to_le_bytes()).unwrap();
    }
    let mount = mount.unmount().mount();
    let path = mount.path("file");
    let mut all: Vec<String> = (0..1000).map(name).collect();
    all.sort();
    assert_eq!(names(&path), all);
    for i in 0..1000 {
        assert_eq!(get(&path, &name(i)), Ok(i.to_le_bytes().to_vec()));
        sys::lremovexattr(&path, name(i)).unwrap();
    }
    assert!(names(&path).is_empty());
    assert_eq!(fs::read_to_string(path).unwrap(), "x");
}

#[test]
fn flags_sizes_and_names_mean_what_linux_says() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, "").unwrap();
    let with = |flags| sys::lsetxattr(&path, "user.a", b"value", flags);
    assert_eq!(with(Flags::REPLACE), Err(Errno::NODATA));
    assert_eq!(with(Flags::CREATE), Ok(()));
    assert_eq!(with(Flags::CREATE), Err(Errno::EXIST));
    assert_eq!(with(Flags::REPLACE), Ok(()));
    assert_eq!(sys::lgetxattr_query(&path, "user.a"), Ok(5));
    assert_eq!(sys::lgetxattr(&path, "user.a", &mut [0u8; 4][..]), Err(Errno::RANGE));
    assert_eq!(sys::llistxattr_query(&path), Ok(7));
    assert_eq!(sys::llistxattr(&path, &mut [0u8; 6][..]), Err(Errno::RANGE));
    assert_eq!(sys::lremovexattr(&path, "user.b"), Err(Errno::NODATA));
    assert_eq!(set(&path, &format!("user.{}", "n".repeat(250)), b"x"), Ok(()));
    assert_eq!(set(&path, &format!("user.{}", "n".repeat(251)), b"x"), Err(Errno::RANGE));
    assert_eq!(set(&path, "user.a", &vec![1; 65_537]), Err(Errno::TOOBIG));
    assert_eq!(set(&path, "user.", b"x"), Err(Errno::INVAL));
    assert_eq!(set(&path, "system.other", b"x"), Err(Errno::OPNOTSUPP));
    assert_eq!(set(&path, "nowhere.a", b"x"), Err(Errno::OPNOTSUPP));
    symlink("x", mount.path("link")).unwrap();
    assert_eq!(set(&mount.path("link"), "user.a", b"x"), Err(Errno::PERM));
    assert_eq!(set(&mount.path("link"), "trusted.a", b"x"), Ok(()));
    assert_eq!(get(&mount.path("link"), "trusted.a"), Ok(b"x".to_vec()));
}

#[test]
fn what_is_trusted_is_for_root_alone() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    set(&path, "trusted.a", b"x").unwrap();
    set(&path, "security.a", b"x").unwrap();
    set(&path, "user.a", b"x").unwrap();
    assert_eq!(names(&path), ["security.a", "trusted.a", "user.a"]);
    let seen = shell(
        &mount.root,
        1234,
        "python3 -c 'import os; print(sorted(os.listxattr(\"file\")))
try: os.setxattr(\"file\", \"trusted.b\", b\"x\")
except PermissionError: print(\"refused\")'",
    );
    assert_eq!(seen, "['security.a', 'user.a']\nrefused\n");
}

#[test]
fn the_change_time_moves_and_no_other() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, "x").unwrap();
    let times = || {
        let found = fs::metadata(&path).unwrap();
        ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()))
    };
    let before = times();
    set(&path, "user.a", b"x").unwrap();
    let set_at = times();
    assert!(set_at.0 == before.0 && set_at.1 > before.1);
    sys::lremovexattr(&path, "user.a").unwrap();
    assert!(times().0 == before.0 && times().1 > set_at.1);
}

/// A program file's rights go when it is written, whoever writes.
#[test]
fn a_write_takes_capabilities_and_set_id_bits_off() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("program");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4777)).unwrap();
    // CAP_NET_RAW, permitted and effective: revision 2.
    let mut capability = 0x0200_0001u32.to_le_bytes().to_vec();
    capability.extend([(1u32 << 13).to_le_bytes(), [0; 4], [0; 4], [0; 4]].concat());
    let name = "security.capability";
    for script in ["echo y > program", "printf z >> program", "truncate -s 1 program"] {
        set(&path, name, &capability).unwrap();
        assert_eq!(get(&path, name), Ok(capability.clone()));
        shell(&mount.root, 0, script);
        assert_eq!(get(&path, name), Err(Errno::NODATA), "{script}");
    }
    set(&path, name, &capability).unwrap();
    assert_eq!(mode(&path), 0o4777, "root may keep them");
    shell(&mount.root, 1234, "printf w >> program");
    assert_eq!((mode(&path), get(&path, name)), (0o777, Err(Errno::NODATA)));
    set(&path, name, &capability).unwrap();
    std::os::unix::fs::chown(&path, Some(5), Some(5)).unwrap();
    assert_eq!(get(&path, name), Err(Errno::NODATA), "chown");
}

#[test]
fn a_list_says_who_may_and_its_mask_is_the_groups_mode() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, "secret").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let may = |what: &str| {
        let script = format!("if {what}; then echo yes; else echo no; fi 2>/dev/null");
        shell(&mount.root, 1000, &script).contains("yes")
    };
    let (read, write) = ("cat file >/dev/null", "printf x >> file");
    assert!(!may(read) && !may(write));
    set(&path, ACCESS, &shared_with(6, 7)).unwrap();
    assert_eq!(mode(&path), 0o770);
    assert!(may(read) && may(write));
    fs::set_permissions(&path, Permissions::from_mode(0o740)).unwrap();
    assert!(may(read) && !may(write), "the mode is the mask");
    assert_eq!(get(&path, ACCESS), Ok(shared_with(6, 4)));
    let mount = mount.unmount().mount();
    let path = mount.path("file");
    assert_eq!((mode(&path), get(&path, ACCESS)), (0o740, Ok(shared_with(6, 4))));
    assert_eq!(names(&path), [ACCESS]);
    sys::lremovexattr(&path, ACCESS).unwrap();
    assert_eq!((mode(&path), get(&path, ACCESS)), (0o740, Err(Errno::NODATA)));
}

#[test]
fn a_list_that_says_what_the_mode_says_is_the_mode() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, "").unwrap();
    set(&path, ACCESS, &shared_with(6, 7)).unwrap();
    set(&path, ACCESS, &acl(&[(1, 6, NOBODY), (4, 4, NOBODY), (32, 1, NOBODY)])).unwrap();
    assert_eq!((mode(&path), get(&path, ACCESS)), (0o641, Err(Errno::NODATA)));
    assert!(names(&path).is_empty());
    let unordered = acl(&[(4, 4, NOBODY), (1, 6, NOBODY), (32, 1, NOBODY)]);
    assert_eq!(set(&path, ACCESS, &unordered), Err(Errno::INVAL));
    assert_eq!(set(&path, DEFAULT, &shared_with(6, 7)), Err(Errno::ACCESS), "no directory");
}

#[test]
fn new_entries_inherit_the_default_list_in_place_of_the_umask() {
    let Some(mount) = Mount::new() else { return };
    let dir = mount.path("dir");
    fs::create_dir(&dir).unwrap();
    shell(&dir, 0, "umask 027; touch masked; mkdir masked-dir");
    assert_eq!((mode(&dir.join("masked")), mode(&dir.join("masked-dir"))), (0o640, 0o750));
    set(&dir, DEFAULT, &shared_with(7, 7)).unwrap();
    shell(&dir, 0, "umask 077; touch file; mkdir sub; mkfifo pipe; ln -s x link; touch sub/deep");
    let (file, sub) = (dir.join("file"), dir.join("sub"));
    assert_eq!(
        (mode(&file), get(&file, ACCESS)),
        (0o660, {
            let cut =
                [(1, 6, NOBODY), (2, 7, 1000), (4, 5, NOBODY), (16, 6, NOBODY), (32, 0, NOBODY)];
            Ok(acl(&cut))
        })
    );
    assert_eq!(get(&sub, ACCESS), Ok(shared_with(7, 7)));
    assert_eq!(get(&sub, DEFAULT), Ok(shared_with(7, 7)));
    assert_eq!(get(&file, DEFAULT), Err(Errno::NODATA));
    assert_eq!(mode(&dir.join("pipe")), 0o660);
    assert_eq!(mode(&sub.join("deep")), 0o660);
    assert!(names(&dir.join("link")).is_empty());
    shell(&dir, 1000, "printf x >> file");
}

#[test]
fn a_list_takes_set_group_id_off_for_who_is_not_of_the_group() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, "").unwrap();
    std::os::unix::fs::chown(&path, Some(1234), Some(77)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o2770)).unwrap();
    set(&path, ACCESS, &shared_with(6, 7)).unwrap();
    assert_eq!(mode(&path), 0o2770, "root keeps it");
    let value = shared_with(4, 7);
    let script = format!("import os; os.setxattr('file', '{ACCESS}', bytes({value:?}))");
    shell(&mount.root, 1234, &format!("python3 -c \"{script}\""));
    assert_eq!((mode(&path), get(&path, ACCESS)), (0o770, Ok(value)));
}
