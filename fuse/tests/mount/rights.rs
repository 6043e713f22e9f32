//! Rights that a file gives to whoever runs it: gone when it is changed, unless by somebody privileged.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs as sys;
use rustix::fs::XattrFlags;

use super::support::{Mount, shell};

const OWNER: u32 = 1234;
const MODES: [u32; 4] = [0o4777, 0o2777, 0o6777, 0o777];
const CAPABILITY: &str = "security.capability";
/// Who changes files: root, root who may do everything but keep such bits, a user, one who may.
const CALLERS: [&str; 4] = [
    "",
    "setpriv --inh-caps -fsetid --bounding-set -fsetid",
    "setpriv --reuid 1234 --regid 1234 --clear-groups",
    "setpriv --reuid 1234 --regid 1234 --clear-groups --inh-caps +fsetid --ambient-caps +fsetid",
];
/// Each way to change a file, or not to.
const WAYS: [&str; 14] = [
    "write", "append", "nothing", "sendfile", "copy", "otrunc", "creat", "truncate", "shrink",
    "allocate", "keep", "punch", "chown", "chmod",
];
/// Does the way that each file of its directory begins with.
const CHANGE: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
other = os.open("other", os.O_RDONLY)
def space(fd, mode):
    if libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(8)):
        raise OSError(ctypes.get_errno())
def opened(name, what, flags=os.O_RDWR):
    fd = os.open(name, flags, 0o600)
    what(fd)
    os.close(fd)
ways = {
    "write": lambda f: opened(f, lambda fd: os.write(fd, b"abc")),
    "append": lambda f: opened(f, lambda fd: os.write(fd, b"abc"), os.O_WRONLY | os.O_APPEND),
    "nothing": lambda f: opened(f, lambda fd: os.write(fd, b"")),
    "sendfile": lambda f: opened(f, lambda fd: os.sendfile(fd, other, 0, 4)),
    "copy": lambda f: opened(f, lambda fd: os.copy_file_range(other, fd, 4, 0)),
    "otrunc": lambda f: opened(f, lambda fd: None, os.O_WRONLY | os.O_TRUNC),
    "creat": lambda f: opened(f, lambda fd: None, os.O_WRONLY | os.O_TRUNC | os.O_CREAT),
    "truncate": lambda f: os.truncate(f, 3),
    "shrink": lambda f: opened(f, lambda fd: os.ftruncate(fd, 3)),
    "allocate": lambda f: opened(f, lambda fd: space(fd, 0)),
    "keep": lambda f: opened(f, lambda fd: space(fd, 1)),
    "punch": lambda f: opened(f, lambda fd: space(fd, 3)),
    "chown": lambda f: os.chown(f, -1, os.stat(f).st_gid),
    "chmod": lambda f: os.chmod(f, os.stat(f).st_mode & 0o7777),
}
for name in sorted(os.listdir(".")):
    if name != "other":
        ways[name.split("-")[0]](name)
"#;

/// CAP_NET_RAW, permitted and effective: revision 2.
fn capability() -> Vec<u8> {
    let mut value = 0x0200_0001u32.to_le_bytes().to_vec();
    value.extend([(1u32 << 13).to_le_bytes(), [0; 4], [0; 4], [0; 4]].concat());
    value
}

/// What is left of the rights of files in `dir`, which `caller` has changed in each way.
fn left(dir: &Path, caller: &str) -> Vec<String> {
    fs::create_dir(dir).unwrap();
    fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.join("other"), "0123456789").unwrap();
    let mut names = Vec::new();
    for way in WAYS {
        for mode in MODES {
            for able in [false, true] {
                let name = format!("{way}-{mode:o}-{able}");
                let path = dir.join(&name);
                fs::write(&path, "0123456789").unwrap();
                chown(&path, Some(OWNER), Some(OWNER)).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                if able {
                    sys::lsetxattr(&path, CAPABILITY, &capability(), XattrFlags::empty()).unwrap();
                }
                names.push(name);
            }
        }
    }
    shell(dir, 0, &format!("{caller} sh -ec 'exec python3 -c \"$0\"' '{CHANGE}'"));
    let state = |name: String| {
        let path = dir.join(&name);
        let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
        let able = sys::lgetxattr(&path, CAPABILITY, &mut [0u8; 64][..]).is_ok();
        format!("{name}: {mode:o} {able}")
    };
    names.into_iter().map(state).collect()
}

/// The file system that the pool lies in says what is right.
#[test]
fn changes_take_off_what_they_do_on_other_file_systems_whoever_makes_them() {
    let Some(mount) = Mount::new() else { return };
    let beside = mount.root.with_file_name("beside");
    fs::create_dir(&beside).unwrap();
    for (number, caller) in CALLERS.into_iter().enumerate() {
        let name = format!("caller-{number}");
        let (wanted, found) = (left(&beside.join(&name), caller), left(&mount.path(&name), caller));
        assert_eq!(found, wanted, "{caller}");
    }
}

/// The kernel keeps modes, and does not look at a mode again because of a write.
#[test]
fn a_program_that_was_written_runs_without_the_rights_it_had() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("program");
    fs::copy("/usr/bin/id", &path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    assert_eq!(shell(&mount.root, OWNER, "./program -u"), "0\n");
    assert_eq!(shell(&mount.root, OWNER, "printf x >> program; ./program -u"), "1234\n");
    assert_eq!(shell(&mount.root, OWNER, "./program -g"), "1234\n");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
}

#[test]
fn writing_to_a_file_with_attributes_changes_only_data() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    fs::write(&path, "x").unwrap();
    sys::lsetxattr(&path, "user.a", b"x", XattrFlags::empty()).unwrap();
    let changes = || {
        let stats = mount.client().ask("stats").unwrap();
        (stats["ops"]["setattr"].as_u64().unwrap(), stats["ops"]["write"].as_u64().unwrap())
    };
    let before = changes();
    for _ in 0..5 {
        shell(&mount.root, 0, "printf y >> file");
    }
    assert_eq!(changes(), (before.0, before.1 + 5));
}
