//! Pages that the kernel has poisoned under a mounted pool: metadata is made good unnoticed, whatever goes on meanwhile; of file
//! data just those pages are an error, until they are written anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use common::load::{Worker, join, worker_main};
use common::random::{Random, seed};
use common::server::Server;
use common::{Scratch, fsck, lode, text};
use lode_fuse::control::Client;
use lode_testkit::format::{Log, PAGE, SLOT, Survey};
use serde_json::{Value, json};

const PAGE_U64: u64 = PAGE as u64;

#[test]
#[ignore = "a process of the load, started by the tests"]
fn load_worker() {
    worker_main();
}

fn ask(dir: &Path, request: &Value) -> Result<Value, String> {
    let mut client = Client::for_mount(dir).unwrap();
    client.request(request).map_err(|error| error.to_string())
}

/// Has the kernel poison a page of the pool. Says whether it can.
fn poison(dir: &Path, page: u64) -> bool {
    let poisoned = ask(dir, &json!({ "op": "poison", "page": page * PAGE_U64 }));
    if let Err(why) = &poisoned {
        // (Whatever else goes wrong is no reason not to look.)
        let is_lacking =
            ["not supported", "Invalid argument", "Function not implemented", "not permitted"];
        assert!(is_lacking.iter().any(|lacking| why.contains(lacking)), "{why}");
        eprintln!("skipped: this kernel makes no poison: {why}");
    }
    poisoned.is_ok()
}

/// A pool in memory, of this level, mounted at `mnt`.
fn mounted(scratch: &Scratch, level: &str, size: &str) -> (std::path::PathBuf, Server) {
    let (pool, mount) = (scratch.path("pool"), scratch.dir("mnt"));
    let mkfs = ["mkfs", text(&pool), "--size", size, "--protect", level];
    // (A level without second copies has no dead zone.)
    let apart: &[&str] = if level == "none" { &[] } else { &["--dead-zone", "64K"] };
    lode(&[&mkfs[..], apart].concat()).expect(0);
    let server = Server::mount(&pool, &mount, &scratch.path("log"));
    (pool, server)
}

/// Pages of metadata, each with the page of its twin: superblocks have none, tables, and logs of the living.
struct Metadata {
    superblocks: Vec<u64>,
    tables: Vec<u64>,
    logs: Vec<u64>,
    /// Those logs that are `lasting`.
    lasting: Vec<u64>,
    apart: u64,
}

fn metadata(pool: &Path, lasting: &[u64]) -> Metadata {
    let image = fs::read(pool).unwrap();
    let survey = Survey::of(&image);
    let page = |at: usize| (at / PAGE) as u64;
    let superblocks = vec![0, survey.superblock.pages - 1];
    let mut tables = vec![page(survey.superblock.lane_table)];
    let slots = survey.logs.iter().map(|log| page(log.ino as usize * SLOT));
    tables.extend(slots.chain(survey.pieces.iter().map(|at| page(*at))));
    let living = survey.logs.iter().filter(|log| !log.dead);
    let pages = |log: &Log| {
        let pages = log.runs.iter().filter(|run| run.anchor % PAGE == 0);
        pages.map(|run| page(run.anchor)).collect::<Vec<u64>>()
    };
    let mut logs: Vec<u64> = living.clone().flat_map(pages).collect();
    let mut lasting: Vec<u64> =
        living.filter(|log| lasting.contains(&log.ino)).flat_map(pages).collect();
    for pages in [&mut tables, &mut logs, &mut lasting] {
        pages.sort_unstable();
        pages.dedup();
    }
    Metadata { superblocks, tables, logs, lasting, apart: 1 << image[92] }
}

/// Poison under a mount: of each page of metadata in one copy only, until a scrub has made it good.
struct Poisoner<'d> {
    dir: &'d Path,
    bad: Vec<u64>,
    random: Random,
}

impl Poisoner<'_> {
    /// Poisons `count` of these pages or their twins, if there are any. Says whether the kernel can.
    fn some(&mut self, pages: &[u64], apart: u64, count: u64) -> bool {
        (0..count.min(pages.len() as u64)).all(|_| {
            let page = **self.random.pick(&pages.iter().collect::<Vec<_>>());
            let page = if self.random.below(2) == 0 { page } else { page ^ apart };
            if self.bad.contains(&(page ^ apart)) && apart != 0 {
                return true;
            }
            self.bad.push(page);
            poison(self.dir, page)
        })
    }

    fn scrub(&mut self, case: &str) {
        let scrubbed = lode(&["scrub", text(self.dir), "--json"]);
        assert!([0, 1].contains(&scrubbed.code), "{case}: {}", scrubbed.out);
        self.bad.clear();
    }
}

/// Files and a directory that only grow, so that no record of theirs ever ends: their log pages stay what they are until they are
/// moved out of bad memory. (A page of another log may be file data by the time that it is poisoned, of which there is one copy.)
struct Lasting {
    dir: PathBuf,
    files: Vec<File>,
    inodes: Vec<u64>,
    /// Pages that each file has, with one hole behind each, so that each has a record.
    pages: AtomicU64,
}

const LASTING: u64 = 4;
/// Pages of such a file.
const LASTING_PAGES: u64 = 700;

impl Lasting {
    fn new(mount: &Path) -> Self {
        let dir = mount.join("lasting");
        fs::create_dir(&dir).unwrap();
        let options = OpenOptions::new().read(true).write(true).create(true).clone();
        let files: Vec<File> =
            (0..LASTING).map(|file| options.open(dir.join(file.to_string())).unwrap()).collect();
        let mut inodes: Vec<u64> = files.iter().map(|it| it.metadata().unwrap().ino()).collect();
        inodes.push(fs::metadata(&dir).unwrap().ino());
        Self { dir, files, inodes, pages: AtomicU64::new(0) }
    }

    fn page(file: u64, page: u64) -> [u8; PAGE] {
        [(file * 59 + page * 7) as u8 | 1; PAGE]
    }

    fn grow(&self, stop: &Path) {
        while !stop.exists() && self.pages.load(SeqCst) < LASTING_PAGES {
            let page = self.pages.load(SeqCst);
            for (file, number) in self.files.iter().zip(0..) {
                file.write_all_at(&Self::page(number, page), 2 * page * PAGE_U64).unwrap();
            }
            fs::write(self.dir.join(format!("name {page}")), "").unwrap();
            self.pages.store(page + 1, SeqCst);
            std::thread::sleep(Duration::from_micros(700));
        }
    }

    fn check(&self, case: &str) {
        let pages = self.pages.load(SeqCst);
        assert_eq!(fs::read_dir(&self.dir).unwrap().count() as u64, pages + LASTING, "{case}");
        for number in 0..LASTING {
            let mut bytes = Vec::new();
            let path = self.dir.join(number.to_string());
            File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
            for page in 0..pages {
                let at = (2 * page) as usize * PAGE;
                let is_same = bytes[at..at + PAGE] == Self::page(number, page);
                assert!(is_same, "{case}: page {page} of file {number}");
            }
        }
    }
}

#[test]
fn metadata_of_a_loaded_pool_is_made_good_unnoticed() {
    let mut random = Random::new(seed("poison"));
    for level in ["metadata", "full"] {
        let scratch = Scratch::new();
        let notes = scratch.dir("notes");
        let (pool, server) = mounted(&scratch, level, "64M");
        let (mount, stop) = (server.dir.clone(), scratch.path("stop"));
        let mut poisoner =
            Poisoner { dir: &mount, bad: vec![], random: Random::new(random.next()) };
        let workers: Vec<Worker> = (0..2).map(|it| Worker::new(it, &mount, &notes)).collect();
        workers.iter().for_each(Worker::prepare);
        let lasting = Lasting::new(&mount);
        let mut in_logs = 0;
        for round in 0..6 {
            let running: Vec<_> =
                workers.iter().map(|worker| worker.start(random.next(), &stop)).collect();
            let is_made = std::thread::scope(|scope| {
                let growing = scope.spawn(|| lasting.grow(&stop));
                let is_made = (0..4).all(|turn| {
                    std::thread::sleep(Duration::from_millis(60));
                    // (Where these are stays as it is while files come and go.)
                    let found = metadata(&pool, &lasting.inodes);
                    let Metadata { superblocks, tables, lasting, apart, .. } = found;
                    let before = poisoner.bad.len();
                    let is_made = poisoner.some(&lasting, apart, 4);
                    in_logs += poisoner.bad.len() - before;
                    // Made good while all goes on, too.
                    if turn == 2 {
                        poisoner.scrub(level);
                    }
                    is_made
                        && poisoner.some(&superblocks[round % 2..][..1], 0, 1)
                        && poisoner.some(&tables, apart, 1)
                });
                fs::write(&stop, "").unwrap();
                growing.join().unwrap();
                is_made
            });
            join(running, Duration::from_secs(30));
            fs::remove_file(&stop).unwrap();
            if !is_made {
                return;
            }
            lasting.check(level);
            let Metadata { logs, apart, .. } = metadata(&pool, &[]);
            assert!(poisoner.some(&logs, apart, 8));
            if round % 3 != 0 {
                poisoner.scrub(level);
            }
        }
        for worker in &workers {
            let judged = worker.judge().unwrap_or_else(|why| panic!("{level}: {why}"));
            assert!(judged > 100, "{level}: {judged}");
        }
        let stats = lode(&["stats", text(&mount), "--json"]).expect(0).json();
        let mended = stats["health"]["metadata_mended"].as_u64().unwrap();
        println!("{level}: {in_logs} log pages poisoned under the load, {mended} lines mended");
        assert!(in_logs >= 40 && mended > 0, "{in_logs} log pages, {mended} lines");
        poisoner.scrub(level);
        lasting.check(level);
        drop(lasting.files);
        server.umount();
        let server = Server::mount(&pool, &mount, &scratch.path("log"));
        Lasting { files: vec![], ..lasting }.check("mounted again");
        server.umount();
        fsck(&pool).expect(0);
    }
}

/// Byte `at` of the file.
fn byte(at: usize) -> u8 {
    (at / 64) as u8 ^ (at / PAGE) as u8
}

#[test]
fn just_the_bytes_of_a_poisoned_page_of_data_are_an_error_until_they_are_written() {
    const PAGES: usize = 40;
    for level in ["none", "metadata", "full"] {
        let scratch = Scratch::new();
        let (pool, server) = mounted(&scratch, level, "32M");
        let path = server.dir.join("file");
        let bytes: Vec<u8> = (0..PAGES * PAGE - 100).map(byte).collect();
        fs::write(&path, &bytes).unwrap();
        server.umount();
        let dump = lode(&["dump", text(&pool), "/file", "--json"]).expect(0);
        let extents = dump.json()["inodes"][0]["extents"].as_array().unwrap().clone();
        let server = Server::mount(&pool, &scratch.dir("mnt"), &scratch.path("log"));
        let place = |page: usize| {
            let at = (page * PAGE) as u64;
            let number = |one: &Value, key: &str| one[key].as_u64().unwrap();
            let has = |one: &&Value| {
                let from = number(one, "file_offset");
                (from..from + number(one, "bytes")).contains(&at)
            };
            let one = extents.iter().find(has).unwrap();
            (number(one, "pool_offset") + at - number(one, "file_offset")) / PAGE_U64
        };
        let bad = [3, 17, PAGES - 1];
        if !bad.iter().all(|page| poison(&server.dir, place(*page))) {
            return;
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        // (At level full the memory may give again what the checksums say.)
        let check_again = |file: &File, lost: &[usize], may_be_right: bool, case: &str| {
            for page in 0..PAGES {
                let wanted = &bytes[page * PAGE..bytes.len().min((page + 1) * PAGE)];
                let mut read = vec![0; wanted.len()];
                let outcome = file.read_exact_at(&mut read, (page * PAGE) as u64);
                match outcome {
                    Ok(()) => {
                        let may = may_be_right || !lost.contains(&page);
                        assert!(may && read == wanted, "{case}: {page}");
                    }
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc_eio()), "{case}: {page}");
                        assert!(lost.contains(&page), "{case}: {page}");
                    }
                }
            }
        };
        let check = |file: &File, lost: &[usize], case: &str| check_again(file, lost, false, case);
        check(&file, &bad, level);
        // What is written anew is good, and stays so.
        let at = 17 * PAGE;
        file.write_all_at(&bytes[at..at + PAGE], at as u64).unwrap();
        check(&file, &[3, PAGES - 1], level);
        let scrubbed = lode(&["scrub", text(&server.dir), "--json"]);
        assert_eq!(scrubbed.code, 4, "{level}: {}", scrubbed.out);
        let found = scrubbed.json()["findings"].as_array().unwrap().clone();
        assert!(found.iter().all(|one| one["outcome"] == "lost"), "{level}: {found:?}");
        drop(file);
        server.umount();
        // The memory gives something again in the next session: not what was lost.
        let server = Server::mount(&pool, &scratch.dir("mnt"), &scratch.path("log"));
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        check_again(&file, &[3, PAGES - 1], level == "full", level);
        for page in [3, PAGES - 1] {
            let at = page * PAGE;
            let end = bytes.len().min(at + PAGE);
            file.write_all_at(&bytes[at..end], at as u64).unwrap();
        }
        check(&file, &[], level);
        drop(file);
        server.umount();
        fsck(&pool).expect(0);
    }
}

fn libc_eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}

/// Free pages that have failed, which nobody knows until they are stored to.
#[test]
fn what_is_written_to_failed_free_pages_is_there() {
    for level in ["none", "metadata", "full"] {
        let scratch = Scratch::new();
        let (pool, server) = mounted(&scratch, level, "32M");
        let old: Vec<u8> = vec![0xa7; 500 * PAGE];
        fs::write(server.dir.join("old"), &old).unwrap();
        server.umount();
        let image = fs::read(&pool).unwrap();
        let pages = image.chunks(PAGE).enumerate();
        let free: Vec<u64> =
            pages.filter(|(_, page)| **page == old[..PAGE]).map(|(page, _)| page as u64).collect();
        assert_eq!(free.len(), 500);
        let server = Server::mount(&pool, &scratch.dir("mnt"), &scratch.path("log"));
        fs::remove_file(server.dir.join("old")).unwrap();
        if !free.iter().all(|page| poison(&server.dir, *page)) {
            return;
        }
        let bytes = |number: usize| vec![number as u8 | 1; 5000 + 37 * number];
        for number in 0..60 {
            let path = server.dir.join(number.to_string());
            let (head, tail) = (bytes(number), bytes(number + 1));
            fs::write(&path, &head).unwrap();
            let file = OpenOptions::new().append(true).open(&path).unwrap();
            std::io::Write::write_all(&mut &file, &tail).unwrap();
            rustix::fs::fsetxattr(&file, "user.a", &head[..2500], rustix::fs::XattrFlags::empty())
                .unwrap();
        }
        lode(&["scrub", text(&server.dir)]).expect(0);
        for number in 0..60 {
            let file = server.dir.join(number.to_string());
            let wanted = [bytes(number), bytes(number + 1)].concat();
            assert!(fs::read(&file).unwrap() == wanted, "{level}: {number}");
            let mut value = vec![0; 5000];
            let len = rustix::fs::getxattr(&file, "user.a", &mut value).unwrap();
            assert!(value[..len] == wanted[..2500], "{level}: {number}");
        }
        server.umount();
        fsck(&pool).expect(0);
    }
}

#[test]
fn lines_that_parity_knows_are_read_as_if_nothing_had_happened() {
    let scratch = Scratch::new();
    let (pool, server) = mounted(&scratch, "full", "32M");
    let path = server.dir.join("file");
    let bytes: Vec<u8> = (0..20 * PAGE).map(byte).collect();
    fs::write(&path, &bytes).unwrap();
    server.umount();
    let image = fs::read(&pool).unwrap();
    let at = image.chunks(PAGE).position(|page| *page == bytes[..PAGE]).unwrap() as u64 * PAGE_U64;
    let server = Server::mount(&pool, &scratch.dir("mnt"), &scratch.path("log"));
    for (skip, bytes) in [(0, 512), (PAGE_U64 + 640, 64), (3 * PAGE_U64 + 4032, 64)] {
        let request = json!({ "op": "poison", "at": at + skip, "bytes": bytes });
        ask(&server.dir, &request).unwrap();
    }
    assert!(fs::read(&path).unwrap() == bytes);
    let scrubbed = lode(&["scrub", text(&server.dir)]).expect(1);
    assert!(scrubbed.out.contains("repaired"), "{}", scrubbed.out);
    lode(&["scrub", text(&server.dir)]).expect(0);
    server.umount();
    fsck(&pool).expect(0);
}
