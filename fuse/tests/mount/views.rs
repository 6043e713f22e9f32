//! The directory `.lode`: what a mount shows of itself.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::{Mount, errno, eventually, shell};

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn fences(view: &Path) -> u64 {
    fs::read_to_string(view).unwrap().trim().parse().unwrap()
}

#[test]
fn views_are_in_no_listing_and_can_be_read() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "1").unwrap();
    let views = mount.path(".lode");
    assert_eq!(names(&mount.root), ["file"]);
    assert_eq!(shell(&mount.root, 0, "find . | sort"), ".\n./file\n");
    assert_eq!(names(&views), ["fences", "snapshots"]);
    assert_eq!(
        shell(&views, 1000, "ls -a; cat fences | wc -l; cd ..; pwd -P"),
        format!(".\n..\nfences\nsnapshots\n1\n{}\n", mount.root.display())
    );
    let before = fences(&views.join("fences"));
    fs::write(mount.path("other"), "2").unwrap();
    assert!(fences(&views.join("fences")) > before);
    let meta = fs::metadata(views.join("fences")).unwrap();
    assert_eq!((meta.mode(), meta.len(), meta.nlink()), (0o100_444, 0, 1));
    assert_eq!(fs::metadata(&views).unwrap().mode(), 0o40_555);
    assert_eq!(fs::metadata(views.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(errno(fs::metadata(mount.path("file/.lode"))), libc::ENOTDIR);
    fs::create_dir(mount.path("dir")).unwrap();
    assert_eq!(errno(fs::metadata(mount.path("dir/.lode"))), libc::ENOENT);
}

#[test]
fn an_open_view_keeps_its_text() {
    let Some(mount) = Mount::new() else { return };
    let view = mount.path(".lode/fences");
    let expected = fs::read(&view).unwrap();
    let mut file = File::open(&view).unwrap();
    fs::write(mount.path("file"), "1").unwrap();
    let (mut text, mut byte) = (Vec::new(), [0]);
    // Bytes one by one: the text is not written anew in between.
    while file.read(&mut byte).unwrap() == 1 {
        text.push(byte[0]);
    }
    assert_eq!(text, expected);
    assert_ne!(fs::read(&view).unwrap(), expected);
}

#[test]
fn nothing_in_views_can_be_changed() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "1").unwrap();
    let (views, file) = (mount.path(".lode"), mount.path("file"));
    let view = views.join("fences");
    let denied = [
        errno(fs::write(&view, "1")),
        errno(File::options().append(true).open(&view)),
        errno(fs::write(views.join("new"), "1")),
        errno(fs::create_dir(views.join("new"))),
        errno(fs::remove_file(&view)),
        errno(fs::remove_dir(&views)),
        errno(fs::rename(&view, mount.path("moved"))),
        errno(fs::rename(&views, mount.path("moved"))),
        errno(fs::rename(&file, &view)),
        errno(fs::hard_link(&view, mount.path("linked"))),
        errno(fs::hard_link(&file, views.join("linked"))),
        errno(renameat_with(CWD, &file, CWD, &views, RenameFlags::EXCHANGE).map_err(Into::into)),
        errno(fs::set_permissions(&view, fs::metadata(&file).unwrap().permissions())),
    ];
    assert_eq!(denied, [libc::EPERM; 13]);
    assert_eq!(errno(fs::create_dir(&views)), libc::EEXIST);
    assert_eq!(names(&mount.root), ["file"]);
    // What was answered there says nothing of other files.
    shell(
        &mount.root,
        0,
        "cp .lode/fences copy; cp --sparse=always file again; sync file; cmp file again",
    );
    assert_eq!(
        fs::read(mount.path("copy")).unwrap().len() as u64,
        fs::metadata(mount.path("copy")).unwrap().len()
    );
}

#[test]
fn a_directory_of_the_users_has_the_name() {
    let Some(mount) = Mount::new() else { return };
    let (mine, views) = (mount.path("mine"), mount.path(".lode"));
    assert_eq!(names(&views), ["fences", "snapshots"]);
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("file"), "mine").unwrap();
    fs::rename(&mine, &views).unwrap();
    assert_eq!(
        (names(&mount.root), names(&views)),
        (vec![".lode".to_owned()], vec!["file".to_owned()])
    );
    fs::write(views.join("other"), "mine").unwrap();
    let mount = mount.unmount().mount();
    assert_eq!(names(&views), ["file", "other"]);
    fs::remove_dir_all(&views).unwrap();
    assert_eq!(
        (names(&mount.root), names(&views)),
        (vec![], vec!["fences".to_owned(), "snapshots".to_owned()])
    );
}

#[test]
fn views_come_back_while_their_old_directory_is_open() {
    let Some(mount) = Mount::new() else { return };
    let views = mount.path(".lode");
    let open = File::open(&views).unwrap();
    fs::create_dir(mount.path("mine")).unwrap();
    fs::rename(mount.path("mine"), &views).unwrap();
    fs::remove_dir(&views).unwrap();
    assert_eq!(names(&views), ["fences", "snapshots"]);
    assert!(fences(&views.join("fences")) > 0);
    drop(open);
}

#[test]
fn no_user_takes_the_views_from_others() {
    let Some(mount) = Mount::new() else { return };
    let view = mount.path(".lode/fences");
    let open = |count: usize| (0..count).map(|_| File::open(&view)).collect::<Vec<_>>();
    let all = open(200);
    assert!(all.iter().any(Result::is_ok));
    let refused = all.into_iter().find_map(Result::err).unwrap();
    assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
    let all = open(200);
    assert!(!shell(&mount.root, 1000, "cat .lode/fences").is_empty());
    drop(all);
    // The kernel tells of a closed file a moment later.
    eventually(|| File::open(&view).is_ok());
}
