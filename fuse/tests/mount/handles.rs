//! File handles, as an NFS server uses them: an inode by number and generation, over mounts.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{Mount, shell};

/// `take` prints the handle of a path, `show` opens a handle and says what it is.
const HELPERS: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
def take(path):
    handle, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0):
        sys.exit(os.strerror(ctypes.get_errno()))
    return f"{handle.type} {bytes(handle.data[:handle.bytes]).hex()}"
def show(text):
    kind, data = text.split()
    data = bytes.fromhex(data)
    handle = Handle(len(data), int(kind), (ctypes.c_ubyte * 128)(*data))
    root = os.open(".", os.O_RDONLY)
    file = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
    if file < 0:
        return os.strerror(ctypes.get_errno())
    if os.path.isdir(f"/proc/self/fd/{file}"):
        return f"directory of {os.listdir(file)}"
    return os.read(file, 100).decode()
"#;

fn python(mount: &Mount, script: &str) -> String {
    let path = mount.place.pool().with_file_name("script.py");
    fs::write(path, format!("{HELPERS}\n{script}")).unwrap();
    shell(&mount.root, 0, "python3 ../script.py")
}

#[test]
fn a_handle_is_the_same_inode_over_mounts_and_never_another() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir_all(mount.path("dir/sub")).unwrap();
    fs::write(mount.path("dir/file"), "mine").unwrap();
    let taken = python(&mount, "print(take('dir/file'))\nprint(take('dir/sub'))");
    let handles: Vec<&str> = taken.lines().collect();
    let show = |mount: &Mount, handle: &str| python(mount, &format!("print(show({handle:?}))"));
    assert_eq!(show(&mount, handles[0]), "mine\n");
    // The kernel knows nothing of them any more, and their names are others.
    fs::rename(mount.path("dir"), mount.path("moved")).unwrap();
    fs::rename(mount.path("moved/file"), mount.path("renamed")).unwrap();
    fs::write(mount.path("moved/sub/in"), "").unwrap();
    let mount = mount.unmount().mount();
    assert_eq!(show(&mount, handles[0]), "mine\n");
    assert_eq!(show(&mount, handles[1]), "directory of ['in']\n");
    let again = python(&mount, "print(take('renamed'))\nprint(take('moved/sub'))");
    assert_eq!(again, taken, "number and generation stay");
    fs::remove_file(mount.path("renamed")).unwrap();
    let mount = mount.unmount().mount();
    assert_eq!(show(&mount, handles[0]), "Stale file handle\n");
}

#[test]
fn a_number_that_is_used_again_has_another_handle_in_any_session() {
    let Some(mut mount) = Mount::new() else { return };
    let (mut numbers, mut handles) = (BTreeSet::new(), BTreeSet::new());
    let mut again = 0;
    for killed in [false, true, false, true, true, false] {
        // What was there before is not there any more.
        for old in handles.iter().take(3) {
            let shown = python(&mount, &format!("print(show({old:?}))"));
            assert_eq!(shown, "Stale file handle\n", "{old}");
        }
        let made: Vec<String> = (0..8).map(|file| format!("f{file}")).collect();
        made.iter().for_each(|name| fs::write(mount.path(name), "mine").unwrap());
        let taken = python(&mount, &format!("for name in {made:?}: print(take(name))"));
        for (name, handle) in made.iter().zip(taken.lines()) {
            let number = fs::metadata(mount.path(name)).unwrap().ino();
            again += usize::from(!numbers.insert(number));
            assert!(handles.insert(handle.to_owned()), "{number} has a handle that was another's");
            fs::remove_file(mount.path(name)).unwrap();
        }
        mount = if killed { mount.kill() } else { mount.unmount() }.mount();
    }
    assert!(again > 8, "numbers were used again {again} times");
}
