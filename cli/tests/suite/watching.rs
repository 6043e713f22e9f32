//! Watching a pool: what `lode stats` says moves with what is done, again and again until a signal
//! or the end of the mount, for people, as JSON and for Prometheus.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::prometheus::parse;
use crate::common::server::Server;
use crate::common::{LODE, Scratch, lode, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LABEL: &str = "a \"quoted\" \\ label";

fn mounted(scratch: &Scratch) -> Server {
    let pool = scratch.path("pool");
    lode(&["mkfs", text(&pool), "--size", "64M", "--label", LABEL]).expect(0);
    Server::mount(&pool, &scratch.dir("mnt"), &scratch.path("log"))
}

fn stats(dir: &Path) -> Value {
    lode(&["stats", text(dir), "--json"]).expect(0).json()
}

/// `lode stats` that goes on. Killed on drop.
struct Watch {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
    err: PathBuf,
}

impl Watch {
    fn start(scratch: &Scratch, dir: &Path, args: &[&str]) -> Self {
        let err = scratch.path("err");
        let mut child = Command::new(LODE)
            .args(["stats", text(dir)])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&err).unwrap())
            .spawn()
            .unwrap();
        let out = child.stdout.take().map(BufReader::new);
        Self { child, out, err }
    }

    /// The next line, which must come.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.as_mut().unwrap().read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "it ended");
        line
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Its exit status, the rest of its output, and what it said on standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut rest = String::new();
        self.out.as_mut().unwrap().read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        (status.code(), rest, fs::read_to_string(&self.err).unwrap())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_number_moves_with_what_is_done() {
    let scratch = Scratch::new();
    let server = mounted(&scratch);
    let dir = &server.dir;
    let before = stats(dir);
    assert_eq!(before["pool"]["label"], LABEL);
    assert_eq!(before["pid"], server.pid());
    for number in 0..200 {
        fs::write(dir.join(number.to_string()), vec![1; 20_000]).unwrap();
    }
    let full = stats(dir);
    let number = |stats: &Value, path: &str| {
        stats.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {stats}"))
    };
    for path in [
        "/time_ns",
        "/age_ns",
        "/operations/create",
        "/operations/write",
        "/fences",
        "/lines",
        "/windows",
        "/space/inodes",
        "/inodes_in_memory",
        "/memory/inodes_bytes",
        "/memory/entries_bytes",
        "/memory/total_bytes",
        "/wear/stored_bytes",
        "/wear/stored_regions",
        "/wear/most_bytes",
    ] {
        assert!(number(&full, path) > number(&before, path), "{path}: {before}\n{full}");
    }
    for path in ["/space/pages_free", "/free_extents/huge"] {
        assert!(number(&full, path) < number(&before, path), "{path}: {before}\n{full}");
    }
    assert!(number(&full, "/streamed_bytes") - number(&before, "/streamed_bytes") >= 200 * 20_000);
    let wear = &full["wear"];
    assert_eq!((&wear["regions"], &wear["region_bytes"]), (&32.into(), &(2 << 20).into()));
    let buckets: Vec<u64> = serde_json::from_value(wear["buckets"].clone()).unwrap();
    assert_eq!(buckets.iter().sum::<u64>(), number(&full, "/wear/stored_bytes"));
    // What is removed leaves memory and becomes free; what many changes leave is collected.
    for number in 0..200 {
        fs::remove_file(dir.join(number.to_string())).unwrap();
    }
    for _ in 0..400 {
        fs::write(dir.join("x"), "").unwrap();
        fs::remove_file(dir.join("x")).unwrap();
    }
    let emptied = stats(dir);
    for path in ["/memory/entries_bytes", "/inodes_in_memory", "/space/inodes"] {
        assert!(number(&emptied, path) < number(&full, path), "{path}: {full}\n{emptied}");
    }
    let pages = |stats: &Value| {
        number(stats, "/collected/fast_pages") + number(stats, "/collected/thorough_pages")
    };
    assert!(pages(&emptied) > pages(&full), "{emptied}");
    server.umount();
}

#[test]
fn the_text_is_for_people() {
    let scratch = Scratch::new();
    let server = mounted(&scratch);
    fs::write(server.dir.join("file"), vec![1; 300_000]).unwrap();
    let said = lode(&["stats", text(&server.dir)]).expect(0).out;
    for part in [LABEL, "session", "available of 64 MiB", "index memory", "log pages collected"] {
        assert!(said.contains(part), "{part} in:\n{said}");
    }
    for part in ["write ", "fences ", "free extents", "whole 2 MiB", "of 32 regions of 2 MiB", "█"]
    {
        assert!(said.contains(part), "{part} in:\n{said}");
    }
    let widest =
        said.lines().filter(|line| !line.starts_with('/')).map(|line| line.chars().count());
    assert!(widest.max() <= Some(80), "{said}");
    server.umount();
}

#[test]
fn watching_goes_on_until_sigint() {
    let scratch = Scratch::new();
    let server = mounted(&scratch);
    let mut watch = Watch::start(&scratch, &server.dir, &["--watch=0.1", "--json"]);
    let mut last = 0;
    for round in 0..5 {
        fs::write(server.dir.join(round.to_string()), "x").unwrap();
        let line: Value = serde_json::from_str(&watch.line()).unwrap();
        assert_eq!(line["command"], "stats");
        let age = line["age_ns"].as_u64().unwrap();
        assert!(age > last);
        last = age;
    }
    watch.signal(Signal::INT);
    let (code, _, err) = watch.end();
    assert_eq!((code, err.as_str()), (Some(0), ""));
    // Reports for people follow each other, with rates from the second on.
    let mut watch = Watch::start(&scratch, &server.dir, &["0.1"]);
    let mut blocks = 0;
    while blocks < 3 {
        blocks += usize::from(watch.line().starts_with(text(&server.dir)));
    }
    watch.signal(Signal::TERM);
    let (code, rest, _) = watch.end();
    assert_eq!(code, Some(0));
    assert!(rest.contains("a second") && !rest.contains('\x1b'), "{rest}");
    server.umount();
}

#[test]
fn on_a_terminal_it_is_drawn_in_place_and_fits() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let scratch = Scratch::new();
    let server = mounted(&scratch);
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = rustix::termios::Winsize { ws_row: 20, ws_col: 30, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    let inside = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let inside = fs::OpenOptions::new().write(true).open(inside).unwrap();
    let mut child = Command::new(LODE)
        .args(["stats", text(&server.dir), "0.1", "3"])
        .stdin(Stdio::null())
        .stdout(inside)
        .spawn()
        .unwrap();
    let mut shown = Vec::new();
    // The end is an error: nobody has the other side open any more.
    let _ = fs::File::from(terminal).read_to_end(&mut shown);
    assert!(child.wait().unwrap().success());
    let shown = String::from_utf8(shown).unwrap();
    let pages: Vec<&str> = shown.split("\x1b[H").skip(1).collect();
    assert_eq!(pages.len(), 3, "{shown:?}");
    for page in &pages {
        assert!(page.ends_with("\x1b[J"), "{page:?}");
        assert!(page.matches('\n').count() <= 19, "{page:?}");
        let lines = page.lines().map(|line| line.trim_end().trim_end_matches("\x1b[K"));
        assert!(lines.map(|line| line.chars().count()).max() <= Some(30), "{page:?}");
        assert!(page.contains("Wear: "), "{page:?}");
    }
    server.umount();
}

#[test]
fn a_count_and_a_reader_that_goes_away_end_it_too() {
    let scratch = Scratch::new();
    let server = mounted(&scratch);
    let twice = lode(&["stats", text(&server.dir), "0.1", "2", "--json"]).expect(0).out;
    assert_eq!(twice.lines().count(), 2);
    let mut watch = Watch::start(&scratch, &server.dir, &["0.1"]);
    watch.line();
    // As `| head -1` does.
    watch.out = None;
    let deadline = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = watch.child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it goes on for nobody");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(0));
    server.umount();
}

#[test]
fn watching_ends_when_the_mount_does() {
    let scratch = Scratch::new();
    let server = mounted(&scratch);
    let dir = server.dir.clone();
    let mut watch = Watch::start(&scratch, &dir, &["--watch=0.1", "--json"]);
    watch.line();
    server.umount();
    let (code, _, err) = watch.end();
    assert_eq!(code, Some(11));
    let error: Value = serde_json::from_str(&err).unwrap();
    assert_eq!(error["error"]["kind"], "not_mounted");
    assert!(error["error"]["what"].as_str().unwrap().contains("unmounted"), "{err}");
    // Killed: the mount is there, its server is not.
    let pool = scratch.path("pool");
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    let mut watch = Watch::start(&scratch, &dir, &["0.1"]);
    watch.line();
    server.kill();
    let (code, _, err) = watch.end();
    assert_eq!(code, Some(11));
    assert!(err.contains("server of this mount is gone"), "{err}");
    // Another server of the same pool is another mount.
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    let mut watch = Watch::start(&scratch, &dir, &["3"]);
    watch.line();
    server.kill();
    let server = Server::mount(&pool, &dir, &scratch.path("log"));
    assert_eq!(watch.end().0, Some(11));
    server.umount();
}

#[test]
fn prometheus_can_read_it() {
    let scratch = Scratch::new();
    let server = mounted(&scratch);
    fs::write(server.dir.join("file"), vec![1; 5 << 20]).unwrap();
    let (said, json) = {
        let said = lode(&["stats", text(&server.dir), "--prometheus"]).expect(0).out;
        (said, stats(&server.dir))
    };
    let metrics = parse(&said).unwrap_or_else(|wrong| panic!("{wrong}\n{said}"));
    assert!(metrics.keys().all(|name| name.starts_with("lode_")), "{said}");
    let uuid = json["pool"]["uuid"].as_str().unwrap();
    for (name, metric) in &metrics {
        assert!(!metric.samples.is_empty(), "{name} has no sample");
        assert!(metric.samples.iter().all(|(labels, _)| labels["uuid"] == uuid), "{name}");
    }
    let info = &metrics["lode_pool_info"].samples[0];
    assert_eq!((info.0["label"].as_str(), info.1), (LABEL, 1.0));
    assert_eq!(info.0["dir"], text(&server.dir));
    let same = |metric: &str, path: &str, factor: f64| {
        let number = json.pointer(path).and_then(Value::as_f64).unwrap();
        assert_eq!(metrics[metric].value(), number * factor, "{metric} {path}");
    };
    same("lode_fences_total", "/fences", 1.0);
    same("lode_metadata_bytes_total", "/lines", 64.0);
    same("lode_streamed_bytes_total", "/streamed_bytes", 1.0);
    same("lode_free_bytes", "/space/pages_free", 4096.0);
    same("lode_inodes", "/space/inodes", 1.0);
    same("lode_pool_bytes", "/pool/bytes", 1.0);
    same("lode_stored_bytes_total", "/wear/stored_bytes", 1.0);
    same("lode_region_bytes", "/wear/region_bytes", 1.0);
    same("lode_bad_memory_bytes", "/health/bad_memory/bytes", 1.0);
    same("lode_scrubs_total", "/scrub/ended", 1.0);
    assert_eq!(metrics["lode_protection"].of("level", "none"), Some(1.0));
    assert_eq!(metrics["lode_protection"].of("level", "full"), Some(0.0));
    let operations = &metrics["lode_operations_total"];
    assert_eq!(operations.samples.len(), json["operations"].as_object().unwrap().len());
    assert_eq!(operations.of("op", "write"), json["operations"]["write"].as_f64());
    let regions = &metrics["lode_region_stored_bytes_total"];
    assert_eq!(regions.samples.len(), json["wear"]["stored_regions"].as_u64().unwrap() as usize);
    assert!(regions.samples.iter().all(|(_, bytes)| *bytes > 0.0));
    let most = json["wear"]["most_region"].to_string();
    assert_eq!(regions.of("region", &most), json["wear"]["most_bytes"].as_f64());
    let memory: f64 = metrics["lode_index_memory_bytes"].samples.iter().map(|(_, v)| v).sum();
    assert!(memory > 1000.0);
    let extents = &metrics["lode_free_extents"];
    assert_eq!(extents.samples.len(), 15, "sizes from 4 KiB to 64 MiB");
    assert_eq!(extents.of("min_bytes", "4096"), json["free_extents"]["by_size"][0].as_f64());
    assert!(metrics["lode_mount_age_seconds"].value() > 0.0);
    server.umount();
}

#[test]
fn the_reader_of_these_tests_is_strict() {
    let good =
        "# HELP a_total x\n# TYPE a_total counter\na_total{l=\"\\\\\\\"\\n\"} 1\na_total 2.5\n";
    let metrics = parse(good).unwrap();
    assert_eq!(metrics["a_total"].of("l", "\\\"\n"), Some(1.0));
    for (from, to) in [
        ("a_total{", "b_total{"),
        ("a_total 2.5", "a_total{l=\"\\\\\\\"\\n\"} 2"),
        ("2.5\n", "2.5"),
        ("2.5", "much"),
        ("# HELP a_total x\n", ""),
        ("counter", "gauge"),
        ("counter", "number"),
        ("\\n\"", "\\q\""),
        ("\"}", "\""),
        ("l=", "1l="),
    ] {
        assert!(parse(&good.replacen(from, to, 1)).is_err(), "{from} as {to}");
    }
}

#[test]
fn a_pool_mounted_read_only_has_no_wear() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "16M"), scratch.dir("mnt"));
    lode(&["mount", text(&pool), text(&dir), "-o", "ro"]).expect(0);
    let said = stats(&dir);
    assert_eq!((&said["wear"]["regions"], &said["wear"]["most_region"]), (&0.into(), &Value::Null));
    assert!(lode(&["stats", text(&dir)]).expect(0).out.contains("nothing was stored"));
    let said = lode(&["stats", text(&dir), "--prometheus"]).expect(0).out;
    assert!(!parse(&said).unwrap().contains_key("lode_region_stored_bytes_total"));
    lode(&["umount", text(&dir)]).expect(0);
}

/// The keys of an object, and of those in it.
fn keys(value: &Value, into: &mut Vec<String>, at: &str) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{key}");
        keys(value, into, &at);
        into.push(at);
    }
}

fn keys_of(value: &Value) -> Vec<String> {
    let mut all = Vec::new();
    keys(value, &mut all, "");
    all
}

#[test]
fn views_are_what_the_commands_print() {
    let scratch = Scratch::new();
    let server = mounted(&scratch);
    let dir = scratch.path("mnt");
    fs::write(dir.join("file"), "1").unwrap();
    let view = |name: &str| fs::read_to_string(dir.join(".lode").join(name)).unwrap();
    let json = |name: &str| serde_json::from_str::<Value>(&view(name)).unwrap();
    assert_eq!(json("info.json"), lode(&["info", text(&dir), "--json"]).expect(0).json());
    let (seen, printed) = (json("stats.json"), stats(&dir));
    assert_eq!(keys_of(&seen), keys_of(&printed));
    assert_eq!(seen["operations"]["create"], printed["operations"]["create"]);
    let metrics = lode(&["stats", text(&dir), "--prometheus"]).expect(0).out;
    let (seen, printed) = (parse(&view("metrics")).unwrap(), parse(&metrics).unwrap());
    assert!(seen.keys().eq(printed.keys()));
    assert_eq!(seen["lode_pool_info"].samples, printed["lode_pool_info"].samples);
    server.umount();
}

#[test]
fn without_views_their_name_is_free() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    lode(&["mount", text(&pool), text(&dir), "-o", "noviews"]).expect(0);
    fs::create_dir(dir.join(".lode")).unwrap();
    fs::write(dir.join(".lode/mine"), "1").unwrap();
    lode(&["umount", text(&dir)]).expect(0);
    lode(&["mount", text(&pool), text(&dir)]).expect(0);
    let names = fs::read_dir(dir.join(".lode")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["mine"]);
    lode(&["umount", text(&dir)]).expect(0);
}
