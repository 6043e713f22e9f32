//! What only a snapshot has, and has lost: `lode fsck` tells it and ends nothing for it, and who would change the whole pool is
//! refused before anything changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::common::server::Server;
use crate::common::{Scratch, fsck, lode, text};

const EIO: i32 = 5;
const PATH: &str = ".lode/snapshots/kept/dir/file";
const SLOT: u64 = 512;

struct Made {
    scratch: Scratch,
    pool: PathBuf,
    dir: PathBuf,
    /// The file that only the snapshot has, and one that is there.
    inos: [u64; 2],
}

impl Made {
    fn new(level: &str) -> Self {
        let scratch = Scratch::new();
        let (pool, dir) = (scratch.path("pool"), scratch.dir("mnt"));
        lode(&["mkfs", text(&pool), "--size", "16M", "--protect", level]).expect(0);
        let server = Server::mount(&pool, &dir, &scratch.path("log"));
        fs::create_dir(dir.join("dir")).unwrap();
        let inos = ["dir/file", "dir/other"].map(|name| {
            fs::write(dir.join(name), name).unwrap();
            fs::metadata(dir.join(name)).unwrap().ino()
        });
        lode(&["snapshot", "create", text(&dir), "kept"]).expect(0);
        fs::remove_file(dir.join("dir/file")).unwrap();
        fs::write(dir.join("dir/later"), "later").unwrap();
        server.umount();
        fsck(&pool).expect(0);
        Self { scratch, pool, dir, inos }
    }

    fn mount(&self) -> Server {
        Server::mount(&self.pool, &self.dir, &self.scratch.path("log"))
    }

    /// The line is lost that says which inode this is.
    fn lose(&self, ino: u64) {
        scribbled(&self.pool, ino * SLOT + 20);
    }

    fn rolled_back(&self, target: &Path, more: &[&str]) -> crate::common::Ran {
        lode(&[&["snapshot", "rollback", text(target), "kept"], more].concat())
    }
}

fn scribbled(pool: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options().read(true).write(true).open(pool).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}

#[test]
fn is_told_by_fsck_with_its_path_and_stays_until_the_snapshot_goes() {
    let made = Made::new("none");
    made.lose(made.inos[0]);
    let before = fs::read(&made.pool).unwrap();
    for mode in ["-n", "-p", "-y"] {
        let report = lode(&["fsck", mode, text(&made.pool), "--json"]).expect(4).json();
        let damage = report["damage"].as_array().unwrap();
        assert_eq!(damage.len(), 1, "{report}");
        assert_eq!(damage[0]["path"].as_str(), Some(PATH));
        assert_eq!(damage[0]["snapshot"].as_str(), Some("kept"));
        assert_eq!(damage[0]["inode"].as_u64(), Some(made.inos[0]));
        assert_eq!((&report["repaired"], &report["status"]), (&false.into(), &4.into()));
        assert_eq!(report["repairs"].as_array().unwrap().len(), 0);
    }
    assert!(fs::read(&made.pool).unwrap() == before);
    let told = lode(&["fsck", "-y", text(&made.pool)]).expect(4).out;
    let advice = format!("`lode snapshot delete {} kept`", made.pool.display());
    assert!(told.contains(&format!("/{PATH}")) && told.contains(&advice), "{told}");
    assert!(!told.contains("fsck -y"), "{told}");
    // All else can be read, and it is not left out of listings.
    made.mount().run_with(|| {
        let dir = made.dir.join(PATH);
        let names = fs::read_dir(dir.parent().unwrap()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["file", "other"]);
        assert_eq!(fs::read(&dir).unwrap_err().raw_os_error(), Some(EIO));
        assert_eq!(fs::read_to_string(dir.with_file_name("other")).unwrap(), "dir/other");
    });
    fsck(&made.pool).expect(4);
    lode(&["snapshot", "delete", text(&made.pool), "kept"]).expect(0);
    fsck(&made.pool).expect(0);
}

#[test]
fn keeps_the_pool_at_its_level_and_lost() {
    let made = Made::new("none");
    made.lose(made.inos[0]);
    for level in ["full", "metadata"] {
        let refused = lode(&["protect", text(&made.pool), level]).expect(4);
        let says = [format!("inode {}, in a snapshot", made.inos[0]), "snapshot delete".into()];
        assert!(says.iter().all(|it| refused.err.contains(it.as_str())), "{}", refused.err);
    }
    let report = fsck(&made.pool).expect(4);
    assert!(report.out.contains(PATH), "{}", report.out);
    lode(&["snapshot", "delete", text(&made.pool), "kept"]).expect(0);
    lode(&["protect", text(&made.pool), "full"]).expect(0);
    fsck(&made.pool).expect(0);
}

#[test]
fn does_not_keep_other_damage_from_being_repaired() {
    let made = Made::new("none");
    made.inos.iter().for_each(|ino| made.lose(*ino));
    let report = lode(&["fsck", "-y", text(&made.pool), "--json"]).expect(4).json();
    let repairs = report["repairs"].as_array().unwrap();
    assert!(repairs.iter().any(|it| it["inode"].as_u64() == Some(made.inos[1])), "{report}");
    // The snapshot had both.
    let damage = report["damage"].as_array().unwrap();
    let paths: Vec<_> = damage.iter().filter_map(|it| it["path"].as_str()).collect();
    assert!(damage.iter().all(|it| it["snapshot"] == "kept") && paths.contains(&PATH), "{report}");
    made.mount().run_with(|| {
        assert!(!made.dir.join("dir/other").exists());
        assert_eq!(fs::read_to_string(made.dir.join("dir/later")).unwrap(), "later");
        let listed = fs::read_dir(made.dir.join(".lode/snapshots/kept/dir")).unwrap();
        assert_eq!(listed.count(), 2);
        for name in ["file", "other"] {
            let read = fs::read(made.dir.join(".lode/snapshots/kept/dir").join(name));
            assert_eq!(read.unwrap_err().raw_os_error(), Some(EIO), "{name}");
        }
    });
    lode(&["snapshot", "delete", text(&made.pool), "kept"]).expect(0);
    fsck(&made.pool).expect(0);
}

#[test]
fn in_one_of_two_copies_is_repaired() {
    let made = Made::new("metadata");
    // (A record: an identity is looked at with all slots.)
    scribbled(&made.pool, made.inos[0] * SLOT + 64 + 20);
    fsck(&made.pool).expect(4);
    lode(&["fsck", "-p", text(&made.pool)]).expect(1);
    fsck(&made.pool).expect(0);
    made.mount().run_with(|| {
        assert_eq!(fs::read_to_string(made.dir.join(PATH)).unwrap(), "dir/file");
    });
}

#[test]
fn speaks_against_a_rollback_before_anything_changes() {
    let made = Made::new("none");
    made.lose(made.inos[0]);
    let before = fs::read(&made.pool).unwrap();
    let refused = made.rolled_back(&made.pool, &[]).expect(4);
    let says = ["snapshot kept has lost /dir/file; nothing has changed", "--lossy"];
    assert!(says.iter().all(|it| refused.err.contains(it)), "{}", refused.err);
    assert!(fs::read(&made.pool).unwrap() == before);
    let server = made.mount();
    for more in [&[][..], &["--force"], &["--lossy"]] {
        let refused = made.rolled_back(&made.dir, more).expect(4);
        assert!(says.iter().all(|it| refused.err.contains(it)), "{}", refused.err);
        assert_eq!(fs::read_to_string(made.dir.join("dir/later")).unwrap(), "later");
    }
    server.umount();
    let rolled = made.rolled_back(&made.pool, &["--lossy", "--json"]).expect(0).json();
    assert_eq!(rolled["lost"], serde_json::json!(["dir/file"]));
    fsck(&made.pool).expect(4);
    // The pool has no name of it any more; the snapshot, which can't be changed, has.
    let report = lode(&["fsck", "-y", text(&made.pool), "--json"]).expect(4).json();
    assert!(report["damage"].as_array().unwrap().iter().all(|it| it["path"] == PATH), "{report}");
    lode(&["snapshot", "delete", text(&made.pool), "kept"]).expect(0);
    fsck(&made.pool).expect(0);
    made.mount().run_with(|| {
        let names = fs::read_dir(made.dir.join("dir")).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["other"]);
    });
}
