//! Mounts that take the times of a slower medium: they do, and say so wherever they show themselves.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{Ran, Scratch, lode, text};
use serde_json::{Value, json};

/// A pool that can be mounted with arguments, and looked at until it is unmounted.
struct Place {
    _scratch: Scratch,
    pool: PathBuf,
    dir: PathBuf,
}

impl Place {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
        Self { _scratch: scratch, pool, dir }
    }

    fn lode(&self, args: &[&str]) -> Ran {
        lode(&[&["mount", text(&self.pool), text(&self.dir)], args].concat())
    }

    #[track_caller]
    fn with<T>(&self, args: &[&str], work: impl FnOnce(&Path, &Ran) -> T) -> T {
        let mounted = self.lode(args).expect(0);
        let result = work(&self.dir, &mounted);
        lode(&["umount", text(&self.dir)]).expect(0);
        result
    }
}

fn took(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[test]
fn a_mount_says_what_it_emulates() {
    let place = Place::new();
    let said = "custom (read +300 ns, write 2.5 GB/s, fence +100 ns)";
    let expected = json!({
        "text": said,
        "profile": "custom",
        "read_ns": 300,
        "write_bytes_per_s": 2_500_000_000_u64,
        "fence_ns": 100,
    });
    let given: [&[&str]; 3] = [
        &["--emulate", "pcm", "--write-gbps", "2.5", "--fence-ns", "100"],
        &["-o", "emulate=pcm,write-gbps=2.5,fence-ns=100"],
        &["-o", "emulate=cxl,noatime,write-gbps=2.5,fence-ns=7,read-ns=300", "--fence-ns=100"],
    ];
    for args in given {
        place.with(args, |dir, mounted| {
            let info = lode(&["info", text(dir)]).expect(0);
            for shown in [&mounted.out, &info.out] {
                let line = shown.lines().find(|line| line.starts_with("EMULATED")).unwrap();
                assert!(line.contains(said), "{shown}");
                assert!(shown.contains("not slowed  what the kernel's cache"), "{shown}");
            }
            let info = lode(&["info", text(dir), "--json"]).expect(0).json();
            assert_eq!(info["region"]["emulated"], expected);
            let view = fs::read(dir.join(".lode/info.json")).unwrap();
            let view: Value = serde_json::from_slice(&view).unwrap();
            assert_eq!(view["region"]["emulated"], expected);
        });
    }
    for (name, read_ns) in [("pcm", 300), ("stt-ram", 100), ("nvdimm-n", 0), ("cxl", 220)] {
        place.with(&["--emulate", name, "--json"], |_, mounted| {
            let emulated = &mounted.json()["region"]["emulated"];
            assert_eq!(emulated["profile"], name);
            assert_eq!(emulated["read_ns"], read_ns);
        });
    }
}

#[test]
fn a_mount_that_emulates_nothing_says_nothing_of_it() {
    let place = Place::new();
    place.with(&[], |dir, mounted| {
        let info = lode(&["info", text(dir)]).expect(0);
        assert!(!mounted.out.contains("EMULATED") && !info.out.contains("EMULATED"));
        let info = lode(&["info", text(dir), "--json"]).expect(0).json();
        assert_eq!(info["region"].get("emulated"), Some(&Value::Null));
    });
}

#[test]
fn stores_fences_and_loads_of_a_mount_take_their_time() {
    const PAGES: usize = 64;
    let place = Place::new();
    let bytes = vec![7; PAGES * 4096];
    place.with(&["--write-gbps", "0.005"], |dir, _| {
        let written = took(|| fs::write(dir.join("file"), &bytes).unwrap());
        assert!(written >= Duration::from_millis(52), "256 KiB by 5 MB/s: {written:?}");
    });
    place.with(&["--fence-ns", "1000000"], |dir, _| {
        let made = took(|| (0..20).for_each(|n| drop(File::create(dir.join(n.to_string())))));
        assert!(made >= Duration::from_millis(20), "20 fences of a millisecond: {made:?}");
    });
    place.with(&["-o", "ro", "--read-ns", "100000"], |dir, _| {
        let file = File::open(dir.join("file")).unwrap();
        let mut page = [0; 4096];
        let read = took(|| file.read_exact_at(&mut page, 0).unwrap());
        // One delay, and for each further line a sixteenth.
        assert!(read >= Duration::from_micros(490), "a page by 100 us: {read:?}");
        assert!(page == [7; 4096]);
    });
}

#[test]
fn no_remount_changes_what_is_emulated() {
    let place = Place::new();
    place.with(&["-o", "emulate=pcm"], |_, _| {
        place.lode(&["-o", "remount,emulate=pcm"]).expect(0);
        for other in ["emulate=cxl", "emulate=pcm,read-ns=5", "fence-ns=1"] {
            let refused = place.lode(&["-o", &format!("remount,{other}")]).expect(2);
            assert!(refused.err.contains("no remount changes what medium is emulated"));
        }
    });
    place.with(&[], |_, _| {
        place.lode(&["-o", "remount,write-gbps=5"]).expect(2);
    });
}

#[test]
fn media_that_make_no_sense_are_refused() {
    let place = Place::new();
    for (args, word) in [
        (["--emulate", "optane"], "it is one of pcm, stt-ram, nvdimm-n, cxl"),
        (["--read-ns", "1000001"], "choose 0 to 1000000 nanoseconds"),
        (["--write-gbps", "1/8"], "billions of bytes a second"),
        (["-o", "fence-ns=-5"], "option `fence-ns=-5`: "),
    ] {
        let refused = place.lode(&args).expect(2);
        assert!(refused.err.contains(word), "{}", refused.err);
    }
}
