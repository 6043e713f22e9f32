//! Mounts as others make them: mount(8) by the helper's name, lines of fstab, users who are not root.
//!
//! Each script runs with mounts of its own, which nobody else sees and which end with it: there the
//! helper lies in `/sbin`, and everybody may use `/dev/fuse`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{LODE, Ran, Scratch, run, text};

/// What is there before a script: `$lode`, `$pool`, `$dir`, and `user` before what nobody runs.
const BEFORE: &str = r#"
set -eu
mkdir -p own
mount -t tmpfs -o mode=755 lode-test own
mkdir -p own/sbin own/run
touch own/lode
mount --bind "$lode" own/lode
[ ! -x /sbin/fsck ] || cp /sbin/fsck own/fsck
lode=$PWD/own/lode
ln -s "$lode" own/sbin/mount.fuse.lode
ln -s "$lode" own/sbin/fsck.fuse.lode
mount --bind own/sbin "$(readlink -f /sbin)"
mknod -m 666 own/fuse c 10 229
mount --bind own/fuse /dev/fuse
chown 65534:65534 own/run "$pool"
chmod 700 own/run
user() {
    setpriv --reuid 65534 --regid 65534 --clear-groups env XDG_RUNTIME_DIR="$PWD/own/run" "$@"
}
trap 'umount -l other 2>/dev/null || true; "$lode" umount "$dir" >/dev/null 2>&1 || umount -l "$dir" 2>/dev/null || true' EXIT
"#;

/// A pool and a directory, for scripts.
struct Place {
    scratch: Scratch,
}

impl Place {
    /// None, with the reason, where mounts of one's own are not to be had.
    fn new() -> Option<Self> {
        let unshare = Command::new("unshare").args(["--mount", "true"]).output();
        if !unshare.is_ok_and(|done| done.status.success()) {
            println!("skipped: mounts of its own need root and unshare");
            return None;
        }
        let scratch = Scratch::new();
        scratch.pool("pool", "16M");
        scratch.dir("mnt");
        // Who is not root has to reach the mount point.
        fs::set_permissions(scratch.path("."), Permissions::from_mode(0o755)).unwrap();
        Some(Self { scratch })
    }

    /// Runs lines of bash.
    fn run(&self, script: &str) -> Ran {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "bash", "-c"]);
        command.arg(format!("{BEFORE}{script}")).current_dir(self.scratch.path("."));
        command.env("lode", LODE).env("pool", text(&self.scratch.path("pool")));
        run(command.env("dir", text(&self.scratch.path("mnt"))))
    }
}

#[test]
fn a_line_of_fstab_mounts_a_pool() {
    let Some(place) = Place::new() else { return };
    let script = r#"
        echo "$pool $dir fuse.lode noatime,nofail 0 0" >fstab
        mount -T fstab "$dir" 2>&1
        echo text >"$dir/file"
        findmnt -n -o FSTYPE,SOURCE,OPTIONS "$dir"
        umount "$dir"
        [ ! -e "$dir/file" ]
    "#;
    // (The first words are those of findmnt: mount says nothing.)
    let out = place.run(script).expect(0).out;
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(words[..2], ["fuse.lode", text(&place.scratch.path("pool"))], "{out}");
    assert!(words[2].split(',').any(|option| option == "noatime"), "{out}");
}

#[test]
fn others_may_use_the_mounts_of_root_and_not_those_of_a_user() {
    let Some(place) = Place::new() else { return };
    let script = r#"
        "$lode" mount "$pool" "$dir" >/dev/null
        echo text >"$dir/file"
        user cat "$dir/file"
        "$lode" umount "$dir" >/dev/null
    "#;
    assert_eq!(place.run(script).expect(0).out, "text\n");
    let script = r#"
        chown 65534 "$dir"
        user "$lode" mount "$pool" "$dir" >/dev/null
        user cat "$dir/file"
        cat "$dir/file" 2>&1 || true
        user "$lode" umount "$dir" >/dev/null
    "#;
    let out = place.run(script).expect(0).out;
    assert!(out.starts_with("text\n") && out.ends_with("Permission denied\n"), "{out}");
}

#[test]
fn others_get_into_the_mount_of_a_user_with_allow_other_and_no_further_than_modes_let_them() {
    let Some(place) = Place::new() else { return };
    if Command::new("fusermount3").arg("--version").output().is_err()
        || !fs::exists("/etc/fuse.conf").unwrap()
    {
        println!("skipped: a user's mount needs fusermount3 (package fuse3)");
        return;
    }
    let script = r#"
        echo user_allow_other >own/fuse.conf
        mount --bind own/fuse.conf /etc/fuse.conf
        "$lode" mount "$pool" "$dir" >/dev/null
        echo text >"$dir/open"
        install -m 600 "$dir/open" "$dir/closed"
        "$lode" umount "$dir" >/dev/null
        chown 65534 "$dir"
        other() { setpriv --reuid 65533 --regid 65533 --clear-groups "$@"; }
        for options in noatime allow_other; do
            user "$lode" mount "$pool" "$dir" -o "$options" >/dev/null
            for who in user other ''; do
                for file in open closed; do
                    $who cat "$dir/$file" >/dev/null 2>&1 && got=in || got=out
                    echo "$options: ${who:-root} $file $got"
                done
            done
            user "$lode" umount "$dir" >/dev/null
        done
    "#;
    let out = place.run(script).expect(0).out;
    let expected = "\
noatime: user open in
noatime: user closed out
noatime: other open out
noatime: other closed out
noatime: root open out
noatime: root closed out
allow_other: user open in
allow_other: user closed out
allow_other: other open in
allow_other: other closed out
allow_other: root open in
allow_other: root closed in
";
    assert_eq!(out, expected);
}

#[test]
fn a_remount_by_mount_sets_each_flag_and_takes_it_off() {
    let Some(place) = Place::new() else { return };
    let script = r#"
        mount -t fuse.lode "$pool" "$dir"
        for option in "" ro rw noexec exec nosuid suid nodev dev ro,noexec rw,exec; do
            [ -z "$option" ] || mount -o "remount,$option" "$dir"
            : 2>/dev/null >"$dir/file" && file=rw || file=ro
            flags=$(awk -v dir="$dir" '$5 == dir { print $6 }' /proc/self/mountinfo)
            echo "${option:-new}: $file $flags"
        done
    "#;
    let out = place.run(script).expect(0).out;
    let mut lines = out.lines();
    for (option, expected) in [
        ("new", &["rw"][..]),
        ("ro", &["ro"]),
        ("rw", &["rw"]),
        ("noexec", &["rw", "noexec"]),
        ("exec", &["rw"]),
        ("nosuid", &["rw", "nosuid"]),
        ("suid", &["rw"]),
        ("nodev", &["rw", "nodev"]),
        ("dev", &["rw"]),
        ("ro,noexec", &["ro", "noexec"]),
        ("rw,exec", &["rw"]),
    ] {
        let words: Vec<&str> = lines.next().unwrap().split(' ').collect();
        assert_eq!(words[..2], [format!("{option}:").as_str(), expected[0]], "{out}");
        let known = ["ro", "rw", "noexec", "nosuid", "nodev"];
        let flags: Vec<&str> = words[2].split(',').filter(|flag| known.contains(flag)).collect();
        assert_eq!(flags, expected, "{option}: {out}");
    }
}

#[test]
fn fsck_by_a_line_of_fstab_checks_the_pool() {
    let Some(place) = Place::new() else { return };
    let script = r#"
        [ -x own/fsck ] || { echo "skipped: fsck(8) is not here"; exit; }
        echo "$pool $dir fuse.lode noauto 0 2" >fstab
        code=0; FSTAB_FILE=fstab own/fsck -T -a "$dir" 2>&1 || code=$?
        echo "code: $code"
        head -c 65536 /dev/zero | dd of="$pool" conv=notrunc status=none
        code=0; FSTAB_FILE=fstab own/fsck -T "$dir" >/dev/null 2>&1 || code=$?
        echo "without its superblock: $code"
    "#;
    let out = place.run(script).expect(0).out;
    if out.starts_with("skipped: ") {
        println!("{out}");
        return;
    }
    assert!(out.contains("code: 0\n") && out.contains("files"), "{out}");
    assert!(out.ends_with("without its superblock: 4\n"), "{out}");
}

#[test]
fn a_mount_that_was_moved_says_where_from() {
    let Some(place) = Place::new() else { return };
    let script = r#"
        mkdir other
        "$lode" mount "$pool" "$dir" >/dev/null
        mount --bind "$dir" other
        "$lode" info other 2>&1 || echo "bound: $?"
        umount other
        mount --move "$dir" other
        "$lode" info other 2>&1 || echo "moved: $?"
        mount --move other "$dir"
        "$lode" umount "$dir"
    "#;
    let out = place.run(script).expect(0).out;
    let dir = place.scratch.path("mnt");
    let (bound, moved) = out.split_once("bound: 9\n").unwrap();
    assert!(bound.contains("too") && bound.contains(&format!("name {}\n", text(&dir))), "{bound}");
    assert!(moved.contains(&format!("was moved here from {}", text(&dir))), "{moved}");
    assert!(moved.contains("mount --move") && moved.contains("moved: 9\n"), "{moved}");
    assert!(!out.contains("XDG_RUNTIME_DIR") && out.ends_with(", cleanly.\n"), "{out}");
}

#[test]
fn a_fake_mount_looks_at_what_it_is_given_and_mounts_nothing() {
    let Some(place) = Place::new() else { return };
    let script = r#"
        timeout 60 mount -f -t fuse.lode "$pool" "$dir"
        timeout 60 mount -fnv -t fuse.lode -o noatime,nofail "$pool" "$dir" >/dev/null
        ! findmnt "$dir"
        code=0; timeout 60 mount -f -t fuse.lode "$PWD/no" "$dir" 2>/dev/null || code=$?
        echo "no pool: $code"
        code=0; timeout 60 mount -f -t fuse.lode -o relaxd "$pool" "$dir" 2>/dev/null || code=$?
        echo "no such option: $code"
        code=0; timeout 60 mount -f -t fuse.lode -o remount,ro "$pool" "$dir" 2>/dev/null || code=$?
        echo "not mounted: $code"
    "#;
    let out = place.run(script).expect(0).out;
    assert_eq!(out, "no pool: 32\nno such option: 1\nnot mounted: 32\n");
}

#[test]
fn a_mount_that_is_bound_elsewhere_is_not_unmounted() {
    let Some(place) = Place::new() else { return };
    let script = r#"
        "$lode" mount "$pool" "$dir" >/dev/null
        mkdir "$dir/inside" other
        mount --bind "$dir/inside" other
        for one in "$dir" other; do
            code=0; timeout 60 "$lode" umount "$one" 2>&1 || code=$?
            echo "code: $code"
        done
        mountpoint -q "$dir"
        umount other
        "$lode" umount "$dir"
    "#;
    let out = place.run(script).expect(0).out;
    assert_eq!(out.matches("code: 6\n").count(), 2, "{out}");
    let [dir, other] = ["mnt", "other"].map(|name| place.scratch.path(name));
    for there in [&other, &dir] {
        assert!(out.contains(&format!("mounted elsewhere, too: {}\n", there.display())), "{out}");
    }
    assert!(out.ends_with(", cleanly.\n"), "{out}");
}

#[test]
fn the_server_of_another_user_is_not_called_gone() {
    let Some(place) = Place::new() else { return };
    let script = r#"
        chown 65534 "$dir"
        user "$lode" mount "$pool" "$dir" >/dev/null
        code=0; "$lode" info "$dir" 2>&1 || code=$?
        echo "code: $code"
        "$lode" umount "$dir"
        for _ in $(seq 600); do
            "$lode" info "$pool" --json >info 2>/dev/null && break
            sleep 0.1
        done
    "#;
    let out = place.run(script).expect(0).out;
    assert!(out.contains("code: 9\n") && out.contains("number is 65534"), "{out}");
    assert!(!out.contains("as root") && !out.contains("gone"), "{out}");
    assert!(out.contains("could not be asked"), "{out}");
    let info = fs::read(place.scratch.path("info")).unwrap();
    let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(info["pool"]["clean"], true, "{info}");
}

#[test]
fn mount_says_what_it_did_if_it_is_to() {
    let Some(place) = Place::new() else { return };
    let script = r#"
        mount -v -t fuse.lode "$pool" "$dir"
        mount -o remount,ro "$dir"
    "#;
    let out = place.run(script).expect(0).out;
    assert_eq!(out.matches("Mounted.\n").count(), 1, "{out}");
}
