//! Volumes served by NBD: what a user is told, and that no sector is ever torn or lost, whenever the server is killed.

use std::convert::Infallible;
use std::io::{self, Read};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::nbd::Serving;
use crate::common::random::{Random, seed};
use crate::common::server::Server;
use crate::common::{Scratch, fsck, lode, text};
use lode_testkit::nbd::Client;
use lode_testkit::stamps::{Flush, Stamps};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;

#[test]
fn what_is_served_is_told_and_ends_by_a_signal_as_a_pool_that_was_closed() {
    let scratch = Scratch::new();
    let (pool, socket) = (scratch.pool("pool", "64M"), scratch.path("a socket"));
    let refusals: [(&[&str], i32, &str); 4] = [
        (&["--socket", text(&socket)], 8, "lode block create"),
        (&["v", "--socket", text(&socket)], 8, "lode block list"),
        (&[], 2, "--socket"),
        (&["--listen", "here"], 2, "--listen"),
    ];
    for (more, code, says) in refusals {
        let ran = lode(&[&["block", "serve", text(&pool)], more].concat());
        assert!(ran.code == code && ran.err.contains(says), "{more:?}: {}: {}", ran.code, ran.err);
    }
    for name in ["v", "w"] {
        lode(&["block", "create", text(&pool), name, "--size", "2M"]).expect(0);
    }
    let far = lode(&["block", "serve", text(&pool), "--listen", "192.0.2.1:0"]);
    assert!(far.code == 2 && far.err.contains("loopback"), "{}", far.err);
    assert!(far.err.contains("--tls-cert"), "{}", far.err);
    let tls: [(&[&str], i32, &str); 5] = [
        (&["--tls-cert", "/nowhere/cert.pem"], 2, "--tls-key"),
        (&["--tls", "required"], 2, "--tls-cert"),
        (&["--tls-cert", "/nowhere/cert.pem", "--tls-key", "key.pem"], 8, "/nowhere/cert.pem"),
        (&["--tls-cert", "/proc/self/status", "--tls-key", "key.pem"], 2, "PEM"),
        (&["--tls-cert", "/proc", "--tls-key", "key.pem"], 2, "directory"),
    ];
    for (more, code, says) in tls {
        let at = ["block", "serve", text(&pool), "--listen", "192.0.2.1:0"];
        let ran = lode(&[&at[..], more].concat());
        assert!(ran.code == code && ran.err.contains(says), "{more:?}: {}: {}", ran.code, ran.err);
    }
    let mut serving = Serving::start(&[text(&pool), "v", "--socket", text(&socket)]);
    assert!(serving.lines[0].contains("volume v, 2 MiB"), "{:?}", serving.lines);
    assert!(serving.lines[1].ends_with("/a%20socket"), "{:?}", serving.lines);
    let mut client = Client::connect(&socket, "v").unwrap();
    assert_eq!(client.size, 2 * MIB);
    assert_eq!(client.read(4096, 8192).unwrap(), vec![0; 8192]);
    assert!(Client::connect(&socket, "w").is_err(), "nobody has asked to serve it");
    let busy = lode(&["block", "list", text(&pool)]);
    assert_eq!(busy.code, 6, "{}", busy.err);
    assert_eq!(serving.signal(Signal::TERM), 0);
    assert!(!socket.exists());
    fsck(&pool).expect(0);
    assert_eq!(lode(&["info", text(&pool), "--json"]).expect(0).json()["pool"]["clean"], true);
}

#[test]
fn a_volume_that_is_served_to_be_read_is_not_written() {
    let scratch = Scratch::new();
    let (pool, socket) = (scratch.pool("pool", "32M"), scratch.path("socket"));
    lode(&["block", "create", text(&pool), "v", "--size", "2M"]).expect(0);
    let mut serving = Serving::start(&[text(&pool), "--socket", text(&socket), "--read-only"]);
    let mut client = Client::connect(&socket, "v").unwrap();
    client.write(7, 0, &[1; 4096], false).unwrap();
    let mut reply = [0; 16];
    client.stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0, 0, 0, 1], "EPERM");
    assert_eq!(client.read(0, 4096).unwrap(), vec![0; 4096]);
    assert_eq!(serving.signal(Signal::INT), 0);
}

#[test]
fn a_volume_may_be_served_to_be_read_beside_one_that_is_written() {
    let scratch = Scratch::new();
    let (pool, socket) = (scratch.pool("pool", "32M"), scratch.path("socket"));
    let dir = scratch.dir("mnt");
    for name in ["v", "w"] {
        lode(&["block", "create", text(&pool), name, "--size", "2M"]).expect(0);
    }
    let more = ["v", "w", "--read-only=v", "--socket", text(&socket)];
    let wrong = lode(&["block", "serve", text(&pool), "--read-only=x", "--socket", text(&socket)]);
    assert!(wrong.code == 2 && wrong.err.contains("--read-only=x"), "{}", wrong.err);
    for is_mounted in [false, true] {
        let target = if is_mounted { &dir } else { &pool };
        let mount = is_mounted.then(|| Server::mount(&pool, &dir, &scratch.path("log")));
        let mut serving = Serving::start(&[&[text(target)][..], &more].concat());
        assert!(serving.lines[0].ends_with(", read-only"), "{:?}", serving.lines);
        let mut only_read = Client::connect(&socket, "v").unwrap();
        only_read.write(7, 0, &[1; 4096], false).unwrap();
        assert_eq!(only_read.refusal().unwrap(), 1, "EPERM");
        assert_eq!(only_read.read(0, 4096).unwrap(), vec![0; 4096]);
        let mut written = Client::connect(&socket, "w").unwrap();
        written.write(7, 0, &[2; 4096], true).unwrap();
        written.answer().unwrap();
        assert_eq!(written.read(0, 4096).unwrap(), vec![2; 4096]);
        assert_eq!(serving.signal(Signal::TERM), 0);
        mount.into_iter().for_each(Server::umount);
    }
}

#[test]
fn a_name_of_this_machine_is_listened_at_and_what_can_not_be_is_told_with_what_to_do() {
    let scratch = Scratch::new();
    let (pool, socket) = (scratch.pool("pool", "32M"), scratch.path("socket"));
    lode(&["block", "create", text(&pool), "v", "--size", "2M"]).expect(0);
    let words = [text(&pool), "--socket", text(&socket), "--listen", "localhost:0"];
    let mut serving = Serving::start_listening(&words);
    let uri = serving.lines.last().unwrap().clone();
    let address = uri.strip_prefix("nbd://").and_then(|rest| rest.strip_suffix("/v"));
    let mut stream = std::net::TcpStream::connect(address.expect(&uri)).unwrap();
    let mut greeting = [0; 8];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGIC");
    let region = scratch.path("region");
    std::fs::write(&region, vec![0; MIB as usize]).unwrap();
    let taken = ["block", "serve", "--raw", text(&region), "--listen", address.unwrap()];
    let taken = lode(&taken);
    assert!(taken.code == 6 && taken.err.contains("another port"), "{}", taken.err);
    assert_eq!(serving.signal(Signal::TERM), 0);
    let (absent, long) = (scratch.path("no/such"), scratch.path(&"long".repeat(40)));
    let (absent, in_file) = (absent.join("socket"), pool.join("socket"));
    for (path, code, says) in [
        (&absent, 8, "there is no directory"),
        (&in_file, 2, "is no directory"),
        (&long, 2, "107 bytes"),
    ] {
        let ran = lode(&["block", "serve", text(&pool), "--socket", text(path)]);
        assert!(ran.code == code && ran.err.contains(says), "{}: {}", ran.code, ran.err);
        assert!(ran.err.contains(text(path)), "{}", ran.err);
    }
    let unknown = lode(&["block", "serve", text(&pool), "--listen", "no such name:1"]);
    assert!(unknown.code == 2 && unknown.err.contains("`no such name`"), "{}", unknown.err);
}

#[test]
fn an_empty_name_is_no_volumes() {
    let scratch = Scratch::new();
    let (pool, dir) = (scratch.pool("pool", "32M"), scratch.dir("mnt"));
    lode(&["block", "create", text(&pool), "v", "--size", "2M"]).expect(0);
    let socket = scratch.path("socket");
    let commands: [&[&str]; 4] = [
        &["delete", text(&pool), ""],
        &["resize", text(&pool), "", "--size", "4M"],
        &["serve", text(&pool), "", "--socket", text(&socket)],
        &["create", text(&pool), "", "--size", "4M"],
    ];
    for command in commands {
        let ran = lode(&[&["block"], command].concat());
        assert!(ran.code == 2 && ran.err.contains("1 to 128 bytes"), "{command:?}: {}", ran.err);
    }
    // (All volumes are in the directory that it would name, also of a mount that is dead.)
    Server::mount(&pool, &dir, &scratch.path("log")).kill();
    for command in ["attach", "detach"] {
        let ran = lode(&["block", command, text(&dir), ""]);
        assert!(ran.code == 2 && ran.err.contains("1 to 128 bytes"), "{command}: {}", ran.err);
    }
    lode(&["umount", text(&dir)]);
}

/// A certificate and its key, in files.
fn certificate(cert: &Path, key: &Path) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(cert, made.cert.pem()).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
}

#[test]
fn certificates_are_read_again_at_sighup_and_bad_ones_are_told_and_not_used() {
    let scratch = Scratch::new();
    let (region, socket, log) =
        (scratch.path("region"), scratch.path("socket"), scratch.path("log"));
    let (cert, key) = (scratch.path("cert.pem"), scratch.path("key.pem"));
    std::fs::write(&region, vec![0; MIB as usize]).unwrap();
    certificate(&cert, &key);
    let words = ["--raw", text(&region), "--socket", text(&socket), "--tls-cert", text(&cert)];
    let words = [&words[..], &["--tls-key", text(&key)]].concat();
    let file = std::fs::File::create(&log).unwrap();
    let mut serving = Serving::start_logging(&words, file.into());
    let mut old = Client::connect(&socket, "").unwrap();
    let says = |what: &str| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !std::fs::read_to_string(&log).unwrap().contains(what) {
            assert!(Instant::now() < deadline, "{:?}", std::fs::read_to_string(&log));
            thread::sleep(Duration::from_millis(10));
        }
    };
    certificate(&cert, &key);
    serving.tell(Signal::HUP);
    says("certificates were read again");
    std::fs::write(&key, "no key").unwrap();
    serving.tell(Signal::HUP);
    says("the last ones stay in use");
    assert!(std::fs::read_to_string(&log).unwrap().contains("key.pem"));
    assert_eq!(old.read(0, 4096).unwrap(), vec![0; 4096]);
    assert!(Client::connect(&socket, "").is_ok());
    assert_eq!(serving.signal(Signal::TERM), 0);
}

/// What a request under way is.
enum UnderWay {
    Write { first: u64, count: u64, fua: bool },
    Flush(Flush),
}

/// How often each kind of promise was made.
#[derive(Default, Debug)]
struct Made {
    writes: u64,
    fua: u64,
    flushes: u64,
}

/// Writes until the server is gone, or a request fails: runs of sectors, several requests at a time, some with FUA, now and then a
/// FLUSH. Says what ended it.
fn write(
    stamps: &mut Stamps,
    sector: u64,
    socket: &Path,
    random: &mut Random,
    made: &mut Made,
) -> io::Result<Infallible> {
    const DEPTH: usize = 8;
    let mut client = Client::connect(socket, "v")?;
    let mut under_way: Vec<(u64, UnderWay)> = Vec::new();
    let mut cookies = 0..;
    loop {
        let cookie = cookies.next().unwrap();
        let first = random.below(stamps.count());
        let count = (1 + random.below(24)).min(stamps.count() - first);
        let is_free = |(_, one): &(u64, UnderWay)| match one {
            UnderWay::Write { first: at, count: len, .. } => {
                first + count <= *at || at + len <= first
            }
            UnderWay::Flush(_) => true,
        };
        if random.below(12) == 0 {
            under_way.push((cookie, UnderWay::Flush(stamps.flush())));
            client.flush(cookie)?;
        } else if under_way.iter().all(is_free) {
            // (Who writes a sector twice at a time is promised nothing of their order.)
            let mut bytes = Vec::new();
            for number in first..first + count {
                stamps.begin(number, stamps.begun(number) + 1);
                bytes.extend(stamps.stamped(number, stamps.begun(number)));
            }
            let fua = random.below(4) == 0;
            under_way.push((cookie, UnderWay::Write { first, count, fua }));
            client.write(cookie, first * sector, &bytes, fua)?;
        }
        if under_way.len() >= DEPTH {
            let answered = client.answer()?;
            let at = under_way.iter().position(|(cookie, _)| *cookie == answered).unwrap();
            match under_way.swap_remove(at).1 {
                UnderWay::Write { first, count, fua } => {
                    for number in first..first + count {
                        stamps.answer(number, stamps.begun(number), fua);
                    }
                    *if fua { &mut made.fua } else { &mut made.writes } += 1;
                }
                UnderWay::Flush(flush) => {
                    stamps.flushed(flush);
                    made.flushes += 1;
                }
            }
        }
    }
}

/// Looks at every sector: what it has, it has from here on.
fn judge(stamps: &mut Stamps, sector: u64, socket: &Path) {
    let mut client = Client::connect(socket, "v").unwrap();
    for number in 0..stamps.count() {
        let bytes = client.read(number * sector, sector as usize).unwrap();
        stamps.found(number, &bytes).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// Kills a server again and again while sectors are written, and looks at each of them before the next one.
fn stamped_sectors_survive(sector: u64, kind: &[&str], protection: &str) {
    let scratch = Scratch::new();
    let (pool, socket) = (scratch.path("pool"), scratch.path("socket"));
    lode(&["mkfs", text(&pool), "--size", "64M", "--protect", protection]).expect(0);
    let size = sector.to_string();
    let create = ["block", "create", text(&pool), "v", "--size", "3M", "--sector", &size];
    lode(&[&create[..], kind].concat()).expect(0);
    let mut stamps = Stamps::new(sector as usize, (3 * MIB / sector) as usize);
    let (mut random, mut made) = (Random::new(seed("stamped sectors") + sector), Made::default());
    let kills: u64 =
        std::env::var("LODE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    for _ in 0..(kills / 8).max(4) {
        let mut serving = Serving::start(&[text(&pool), "--socket", text(&socket)]);
        judge(&mut stamps, sector, &socket);
        let wait = Duration::from_micros(3000 + random.below(60_000));
        thread::scope(|scope| {
            let writer =
                scope.spawn(|| write(&mut stamps, sector, &socket, &mut random, &mut made));
            thread::sleep(wait);
            serving.signal(Signal::KILL);
            let Err(ended) = writer.join().unwrap();
            assert_ne!(ended.kind(), io::ErrorKind::Other, "{ended}");
        });
    }
    fsck(&pool).expect(0);
    let mut serving = Serving::start(&[text(&pool), "--socket", text(&socket)]);
    judge(&mut stamps, sector, &socket);
    assert!((0..stamps.count()).any(|number| stamps.promised(number) > 1));
    assert!(made.writes > 0 && made.fua > 0 && made.flushes > 0, "{made:?}");
    assert_eq!(serving.signal(Signal::TERM), 0);
    fsck(&pool).expect(0);
}

#[test]
fn stamped_sectors_of_512_bytes_are_whole_and_not_older_than_was_promised() {
    stamped_sectors_survive(512, &[], "none");
}

#[test]
fn stamped_sectors_of_4096_bytes_are_whole_and_not_older_than_was_promised() {
    stamped_sectors_survive(4096, &["--thin"], "none");
}

#[test]
fn stamped_sectors_are_whole_where_data_has_checksums() {
    stamped_sectors_survive(512, &["--thin"], "full");
}

/// Kills the server of the mount that a volume is served from, again and again while sectors are written, and looks at each of them
/// when the pool is mounted again.
#[test]
fn stamped_sectors_survive_the_death_of_the_mount_that_they_are_served_from() {
    const SECTOR: u64 = 512;
    let scratch = Scratch::new();
    let (socket, log) = (scratch.path("socket"), scratch.path("log"));
    let (pool, dir) = (scratch.pool("pool", "64M"), scratch.dir("mnt"));
    let create = ["block", "create", text(&pool), "v", "--size", "3M", "--sector", "512"];
    lode(&create).expect(0);
    let mut stamps = Stamps::new(SECTOR as usize, (3 * MIB / SECTOR) as usize);
    let (mut random, mut made) = (Random::new(seed("a mount's stamped sectors")), Made::default());
    let begun = Instant::now();
    for round in 0..8 {
        let mount = Server::mount(&pool, &dir, &log);
        let mut serving = Serving::start(&[text(&dir), "v", "--socket", text(&socket)]);
        judge(&mut stamps, SECTOR, &socket);
        if round == 7 || begun.elapsed() > Duration::from_secs(10) {
            assert_eq!(serving.signal(Signal::TERM), 0);
            break;
        }
        let wait = Duration::from_micros(5000 + random.below(60_000));
        thread::scope(|scope| {
            let writer =
                scope.spawn(|| write(&mut stamps, SECTOR, &socket, &mut random, &mut made));
            thread::sleep(wait);
            mount.kill();
            // (Its requests fail from then on, and the server that it asks is there.)
            let Err(ended) = writer.join().unwrap();
            assert_eq!(ended.kind(), io::ErrorKind::Other, "{ended}");
        });
        serving.signal(Signal::KILL);
    }
    fsck(&pool).expect(0);
    assert!((0..stamps.count()).any(|number| stamps.promised(number) > 1));
    assert!(made.writes > 0 && made.fua > 0 && made.flushes > 0, "{made:?}");
}
