//! Renaming, removing what is in use, owners of what is made.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::{Mount, errno, shell};

fn rename2(mount: &Mount, from: &str, to: &str, flags: RenameFlags) -> std::io::Result<()> {
    Ok(renameat_with(CWD, mount.path(from), CWD, mount.path(to), flags)?)
}

#[test]
fn rename_replaces_keeps_or_swaps() {
    let Some(mount) = Mount::new() else { return };
    let put = |name: &str| fs::write(mount.path(name), name).unwrap();
    let is =
        |name: &str, text: &str| assert_eq!(fs::read_to_string(mount.path(name)).unwrap(), text);
    put("a");
    put("b");
    let keep = RenameFlags::NOREPLACE;
    assert_eq!(errno(rename2(&mount, "a", "b", keep)), libc::EEXIST);
    is("a", "a");
    is("b", "b");
    rename2(&mount, "a", "c", keep).unwrap();
    is("c", "a");
    rename2(&mount, "b", "c", RenameFlags::EXCHANGE).unwrap();
    is("c", "b");
    is("b", "a");
    assert_eq!(errno(rename2(&mount, "b", "no", RenameFlags::EXCHANGE)), libc::ENOENT);
    fs::rename(mount.path("b"), mount.path("c")).unwrap();
    is("c", "a");
    assert_eq!(errno(fs::read(mount.path("b"))), libc::ENOENT);
    let other = rename2(&mount, "c", "d", RenameFlags::WHITEOUT);
    assert_eq!(errno(other), libc::EINVAL);
}

#[test]
fn directories_move_with_their_parents_counted() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir_all(mount.path("one/sub/deep")).unwrap();
    fs::create_dir(mount.path("two")).unwrap();
    let links = |name: &str| fs::metadata(mount.path(name)).unwrap().nlink();
    assert_eq!((links("one"), links("two")), (3, 2));
    fs::rename(mount.path("one/sub"), mount.path("two/sub")).unwrap();
    assert_eq!((links("one"), links("two")), (2, 3));
    let up = fs::metadata(mount.path("two/sub/..")).unwrap().ino();
    assert_eq!(up, fs::metadata(mount.path("two")).unwrap().ino());
    let below = fs::rename(mount.path("two"), mount.path("two/sub/deep/two"));
    assert_eq!(errno(below), libc::EINVAL);
    fs::write(mount.path("file"), "").unwrap();
    assert_eq!(errno(fs::rename(mount.path("two"), mount.path("file"))), libc::ENOTDIR);
    assert_eq!(errno(fs::rename(mount.path("file"), mount.path("one"))), libc::EISDIR);
    assert_eq!(errno(fs::rename(mount.path("one"), mount.path("two"))), libc::ENOTEMPTY);
    rename2(&mount, "one", "two/sub", RenameFlags::EXCHANGE).unwrap();
    assert!(mount.path("one/deep").is_dir());
    assert_eq!((links("one"), links("two"), links("two/sub")), (3, 3, 2));
}

#[test]
fn what_was_removed_and_is_held_is_never_another_file() {
    use rustix::fs::{Mode, OFlags, open};
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("gone")).unwrap();
    fs::write(mount.path("gone-too"), "mine").unwrap();
    // Held without being open for anything.
    let held = OFlags::PATH | OFlags::CLOEXEC;
    let dir = open(mount.path("gone"), held, Mode::empty()).unwrap();
    let file = open(mount.path("gone-too"), held, Mode::empty()).unwrap();
    let numbers = [rustix::fs::fstat(&dir).unwrap(), rustix::fs::fstat(&file).unwrap()];
    fs::remove_dir(mount.path("gone")).unwrap();
    fs::remove_file(mount.path("gone-too")).unwrap();
    for i in 0..2000 {
        fs::create_dir(mount.path(&format!("dir{i}"))).unwrap();
        fs::write(mount.path(&format!("file{i}")), "other").unwrap();
    }
    for (held, before) in [(&dir, numbers[0]), (&file, numbers[1])] {
        let now = rustix::fs::fstat(held).unwrap();
        assert_eq!((now.st_ino, now.st_mode), (before.st_ino, before.st_mode));
        assert_eq!(now.st_nlink, 0);
    }
    use std::os::fd::AsRawFd;
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    assert_eq!(fs::read_to_string(again).unwrap(), "mine");
}

#[test]
fn owners_and_groups_follow_the_maker_and_the_directory() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("team")).unwrap();
    std::os::unix::fs::chown(mount.path("team"), Some(0), Some(77)).unwrap();
    fs::set_permissions(mount.path("team"), Permissions::from_mode(0o2777)).unwrap();
    shell(&mount.root, 1234, "umask 022; echo x > team/file; mkdir team/dir; ln -s y team/link");
    let of = |name: &str| {
        let found = fs::symlink_metadata(mount.path(name)).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    assert_eq!(of("team/file"), (1234, 77, 0o644));
    assert_eq!(of("team/dir"), (1234, 77, 0o2755));
    assert_eq!(of("team/link"), (1234, 77, 0o777));
}

#[test]
fn in_a_sticky_directory_only_owners_remove_and_rename() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("tmp")).unwrap();
    fs::set_permissions(mount.path("tmp"), Permissions::from_mode(0o1777)).unwrap();
    let mount = mount.unmount().mount();
    shell(&mount.root, 1000, "echo mine > tmp/file; mkdir tmp/dir; chmod 777 tmp/file tmp/dir");
    let tries = "for try in 'rm -f tmp/file' 'rmdir tmp/dir' 'mv tmp/file tmp/other'; do
        if $try 2>/dev/null; then echo \"done: $try\"; else echo refused; fi; done";
    assert_eq!(shell(&mount.root, 2000, tries), "refused\nrefused\nrefused\n");
    shell(&mount.root, 2000, "echo his > tmp/his; ! mv -f tmp/his tmp/file 2>/dev/null");
    assert_eq!(fs::read_to_string(mount.path("tmp/file")).unwrap(), "mine\n");
    shell(&mount.root, 1000, "mv tmp/file tmp/other; rm tmp/other; rmdir tmp/dir");
    fs::set_permissions(mount.path("tmp"), Permissions::from_mode(0o777)).unwrap();
    shell(&mount.root, 1000, "rm -f tmp/his");
    assert!(!mount.path("tmp/his").exists(), "without the bit anybody may");
}

#[test]
fn the_kernel_checks_permissions() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("secret"), "x").unwrap();
    fs::set_permissions(mount.path("secret"), Permissions::from_mode(0o600)).unwrap();
    let denied = shell(
        &mount.root,
        1234,
        "cat secret 2>&1 || echo denied; touch new 2>/dev/null || echo no",
    );
    assert!(denied.contains("denied") && denied.contains("no"), "{denied}");
}

#[test]
fn a_file_unlinked_while_open_lives_until_it_is_closed() {
    use std::os::unix::fs::FileExt;
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all_at(b", after", 6).unwrap();
    fs::write(&path, "another").unwrap();
    let mut bytes = [0; 13];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"before, after");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(file.metadata().unwrap().len(), 13);
    file.set_len(3).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3);
    assert_eq!(fs::read(&path).unwrap(), b"another");
    // The same of one that another file replaces.
    let old = File::open(&path).unwrap();
    fs::write(mount.path("new"), "replaced").unwrap();
    fs::rename(mount.path("new"), &path).unwrap();
    assert_eq!(std::io::read_to_string(old).unwrap(), "another");
}
