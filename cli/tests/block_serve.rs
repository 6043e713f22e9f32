//! Volumes served by NBD: what a user is told, and that no sector is ever torn or lost, whenever the server is killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::big_endian_bytes)] // The protocol's.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::random::{Random, seed};
use common::{Scratch, fsck, lode, text};
use rustix::process::{Pid, Signal, kill_process};

const MIB: u64 = 1 << 20;
const READ: u16 = 0;
const WRITE: u16 = 1;
/// The option that chooses an export, and replies to it.
const GO: u32 = 7;
const ACK: u32 = 1;
const INFO: u32 = 3;

/// A server of volumes, and where it is to be found.
struct Serving {
    child: Child,
    lines: Vec<String>,
}

impl Serving {
    fn start(pool: &Path, more: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_lode"))
            .args(["block", "serve", text(pool)])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut serving = Self { child, lines: Vec::new() };
        let mut out = BufReader::new(serving.child.stdout.take().unwrap());
        while !serving.lines.last().is_some_and(|line| line.contains("nbd+unix:")) {
            let mut line = String::new();
            assert!(
                out.read_line(&mut line).unwrap() > 0,
                "it serves nothing: {:?}",
                serving.lines
            );
            serving.lines.push(line.trim().to_owned());
        }
        serving
    }

    fn signal(&mut self, signal: Signal) -> i32 {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client, no more of one than this needs.
struct Client {
    stream: UnixStream,
    size: u64,
}

impl Client {
    fn connect(socket: &Path, export: &str) -> std::io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Both flags; then the export by its name, and whatever its blocks are.
        stream.write_all(&3u32.to_be_bytes())?;
        let mut data = (export.len() as u32).to_be_bytes().to_vec();
        data.extend(export.as_bytes());
        data.extend([0, 1, 0, 3]);
        stream.write_all(b"IHAVEOPT")?;
        stream.write_all(&GO.to_be_bytes())?;
        stream.write_all(&(data.len() as u32).to_be_bytes())?;
        stream.write_all(&data)?;
        let mut size = 0;
        loop {
            let mut head = [0; 20];
            stream.read_exact(&mut head)?;
            let word = |at: usize| u32::from_be_bytes(*head[at..].first_chunk().unwrap());
            let mut told = vec![0; word(16) as usize];
            stream.read_exact(&mut told)?;
            match (word(12), told.first_chunk()) {
                (ACK, _) => break,
                (INFO, Some([0, 0])) => {
                    size = u64::from_be_bytes(*told[2..].first_chunk().unwrap())
                }
                (INFO, _) => {}
                _ => return Err(std::io::Error::other("there is no such export")),
            }
        }
        Ok(Self { stream, size })
    }

    fn ask(&mut self, kind: u16, cookie: u64, at: u64, len: u32) -> std::io::Result<()> {
        let mut request = Vec::new();
        request.extend(0x2560_9513_u32.to_be_bytes());
        request.extend([0, 0]);
        request.extend(kind.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(at.to_be_bytes());
        request.extend(len.to_be_bytes());
        self.stream.write_all(&request)
    }

    /// The cookie of what was answered, which was done.
    fn answer(&mut self) -> std::io::Result<u64> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        Ok(u64::from_be_bytes(*reply.last_chunk().unwrap()))
    }

    fn read(&mut self, at: u64, len: usize) -> std::io::Result<Vec<u8>> {
        self.ask(READ, 0, at, len as u32)?;
        self.answer()?;
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

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
    let tls: [(&[&str], i32, &str); 4] = [
        (&["--tls-cert", "/nowhere/cert.pem"], 2, "--tls-key"),
        (&["--tls", "required"], 2, "--tls-cert"),
        (&["--tls-cert", "/nowhere/cert.pem", "--tls-key", "key.pem"], 8, "/nowhere/cert.pem"),
        (&["--tls-cert", "/proc/self/status", "--tls-key", "key.pem"], 2, "PEM"),
    ];
    for (more, code, says) in tls {
        let at = ["block", "serve", text(&pool), "--listen", "192.0.2.1:0"];
        let ran = lode(&[&at[..], more].concat());
        assert!(ran.code == code && ran.err.contains(says), "{more:?}: {}: {}", ran.code, ran.err);
    }
    let mut serving = Serving::start(&pool, &["v", "--socket", text(&socket)]);
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
    let mut serving = Serving::start(&pool, &["--socket", text(&socket), "--read-only"]);
    let mut client = Client::connect(&socket, "v").unwrap();
    client.ask(WRITE, 7, 0, 4096).unwrap();
    client.stream.write_all(&[1; 4096]).unwrap();
    let mut reply = [0; 16];
    client.stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0, 0, 0, 1], "EPERM");
    assert_eq!(client.read(0, 4096).unwrap(), vec![0; 4096]);
    assert_eq!(serving.signal(Signal::INT), 0);
}

/// Sectors that somebody stamps, and what each may hold.
struct Stamps {
    sector: usize,
    /// Of each sector, the version that was written last, and the last one of which that was answered.
    sent: Vec<u32>,
    answered: Vec<u32>,
}

impl Stamps {
    /// A sector: its number, a version, and bytes that follow from both.
    fn stamped(&self, number: u64, version: u32) -> Vec<u8> {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend(u64::from(version).to_le_bytes());
        let mut random = Random::new(number << 32 | u64::from(version));
        while bytes.len() < self.sector {
            bytes.extend(random.next().to_le_bytes());
        }
        bytes
    }

    /// What is wrong with what a sector holds.
    fn wrong(&self, number: usize, bytes: &[u8]) -> Option<String> {
        let (sent, answered) = (self.sent[number], self.answered[number]);
        let version = u32::from_le_bytes(*bytes[8..].first_chunk().unwrap());
        if bytes.iter().all(|byte| *byte == 0) {
            return (answered > 0)
                .then(|| format!("sector {number}: {answered} was answered, nothing is there"));
        }
        if !(answered..=sent).contains(&version) {
            return Some(format!("sector {number}: {version}, not {answered} to {sent}"));
        }
        let whole = self.stamped(number as u64, version);
        (whole != bytes).then(|| format!("sector {number} is torn"))
    }

    /// Writes until the server is gone: runs of sectors, several requests at a time.
    fn write(&mut self, socket: &Path, random: &mut Random) {
        const DEPTH: usize = 8;
        let Ok(mut client) = Client::connect(socket, "v") else { return };
        let sectors = self.sent.len() as u64;
        let mut under_way: Vec<(u64, u64, u64)> = Vec::new();
        for cookie in 0.. {
            let first = random.below(sectors);
            let count = (1 + random.below(24)).min(sectors - first);
            let is_free =
                |(_, at, len): &(u64, u64, u64)| first + count <= *at || at + len <= first;
            // (Who writes a sector twice at a time is promised nothing of their order.)
            if under_way.iter().all(is_free) {
                let mut bytes = Vec::new();
                for number in first..first + count {
                    self.sent[number as usize] += 1;
                    bytes.extend(self.stamped(number, self.sent[number as usize]));
                }
                let at = first * self.sector as u64;
                let asked = client.ask(WRITE, cookie, at, bytes.len() as u32);
                under_way.push((cookie, first, count));
                if asked.and_then(|()| client.stream.write_all(&bytes)).is_err() {
                    return;
                }
            }
            if under_way.len() >= DEPTH {
                let Ok(answered) = client.answer() else { return };
                let at = under_way.iter().position(|(cookie, ..)| *cookie == answered).unwrap();
                let (_, first, count) = under_way.swap_remove(at);
                for number in first as usize..(first + count) as usize {
                    self.answered[number] = self.sent[number];
                }
            }
        }
    }

    fn judge(&mut self, socket: &Path) {
        let mut client = Client::connect(socket, "v").unwrap();
        for number in 0..self.sent.len() {
            let bytes = client.read((number * self.sector) as u64, self.sector).unwrap();
            if let Some(wrong) = self.wrong(number, &bytes) {
                panic!("{wrong}");
            }
            // From here on it has what it has.
            let version = u32::from_le_bytes(*bytes[8..].first_chunk().unwrap());
            self.answered[number] = version;
            self.sent[number] = self.sent[number].max(version);
        }
    }
}

/// Kills a server again and again while sectors are written, and looks at each of them before the next one.
fn stamped_sectors_survive(sector: usize, kind: &[&str], protection: &str) {
    let scratch = Scratch::new();
    let (pool, socket) = (scratch.path("pool"), scratch.path("socket"));
    lode(&["mkfs", text(&pool), "--size", "64M", "--protect", protection]).expect(0);
    let size = sector.to_string();
    let create = ["block", "create", text(&pool), "v", "--size", "3M", "--sector", &size];
    lode(&[&create[..], kind].concat()).expect(0);
    let sectors = 3 * MIB as usize / sector;
    let mut stamps = Stamps { sector, sent: vec![0; sectors], answered: vec![0; sectors] };
    let mut random = Random::new(seed("stamped sectors") + sector as u64);
    let kills: u64 =
        std::env::var("LODE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    for _ in 0..(kills / 8).max(4) {
        let mut serving = Serving::start(&pool, &["--socket", text(&socket)]);
        stamps.judge(&socket);
        let wait = Duration::from_micros(3000 + random.below(60_000));
        thread::scope(|scope| {
            scope.spawn(|| stamps.write(&socket, &mut random));
            thread::sleep(wait);
            serving.signal(Signal::KILL);
        });
    }
    fsck(&pool).expect(0);
    let mut serving = Serving::start(&pool, &["--socket", text(&socket)]);
    stamps.judge(&socket);
    assert!(stamps.answered.iter().any(|version| *version > 1));
    assert_eq!(serving.signal(Signal::TERM), 0);
    fsck(&pool).expect(0);
}

#[test]
fn stamped_sectors_of_512_bytes_are_whole_and_not_older_than_was_answered() {
    stamped_sectors_survive(512, &[], "none");
}

#[test]
fn stamped_sectors_of_4096_bytes_are_whole_and_not_older_than_was_answered() {
    stamped_sectors_survive(4096, &["--thin"], "none");
}

#[test]
fn stamped_sectors_are_whole_where_data_has_checksums() {
    stamped_sectors_survive(512, &["--thin"], "full");
}
