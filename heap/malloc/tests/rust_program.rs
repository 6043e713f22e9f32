//! A Rust program whose allocator is the pool's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../preload/tests/common/owner.rs"]
#[allow(dead_code)]
mod owner;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::ptr::NonNull;

use lode_malloc::{Error, LodeAlloc, Method, Provider, Settings};

#[global_allocator]
static MEMORY: LodeAlloc = LodeAlloc;

const SOCKET: &str = "LODE_TEST_SOCKET";

/// The owner, a process of its own: what it needs itself it must not have to ask itself for.
struct Other(Child, BufReader<ChildStdout>);

impl Other {
    fn start(socket: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "the_owner", "--nocapture"]).env(SOCKET, socket);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut this = Self(child, out);
        assert_eq!(this.out(), 0);
        this
    }

    /// Chunks that are out.
    fn out(&mut self) -> usize {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "the owner has ended");
            if let Some(count) = line.trim().strip_prefix("out ") {
                return count.parse().unwrap();
            }
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "the other process of the test below"]
fn the_owner() {
    let Some(socket) = std::env::var_os(SOCKET) else {
        return;
    };
    let owner = owner::Owner::new(Path::new(&socket), owner::pool(300), usize::MAX);
    for _ in std::io::stdin().lines() {
        println!("\nout {}", owner.out());
    }
}

#[test]
fn a_rust_programs_memory_is_the_pools() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let early: Vec<u8> = vec![1; 100_000];
    let settings = Settings::new(socket.as_os_str().as_bytes(), Method::Direct).unwrap();
    assert_eq!(Provider::open(&settings).unwrap_err(), Error::NoOwner);
    let mut owner = Other::start(&socket);
    // (An owner is looked for five times a second.)
    std::thread::sleep(std::time::Duration::from_millis(300));
    let provider = Provider::open(&settings).unwrap();

    let mut large: Vec<u64> = (0..4 << 20).collect();
    let out = owner.out();
    assert!(out >= 16, "{out}");
    large.extend(0..4 << 20);
    assert!(large.iter().enumerate().all(|(at, it)| *it == at as u64 % (4 << 20)));
    let texts: Vec<String> = (0..100_000).map(|it| it.to_string()).collect();
    let handed_on = std::thread::spawn(move || texts.iter().map(String::len).sum::<usize>());
    assert_eq!(handed_on.join().unwrap(), 488_890);
    drop(large);
    lode_malloc::purge();
    let out = owner.out();
    assert!(out <= 10, "{out}");

    // Below the allocator: whole chunks.
    let block = provider.alloc(5 << 20, 4096, true).unwrap();
    // SAFETY: the block has so many bytes, and nobody else has it.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(block.as_ptr().cast::<u8>(), 5 << 20);
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        assert_eq!(provider.free(NonNull::<u64>::dangling().cast()), Err(Error::NoBlock));
        provider.free(block).unwrap();
        assert_eq!(provider.free(block), Err(Error::NoBlock));
    }
    assert!(provider.stats().idle >= 6 << 20);
    assert!(provider.purge() >= 6 << 20);
    assert_eq!(provider.stats().idle, 0);
    // What was used before is zeros again.
    let again = provider.alloc(5 << 20, 4096, true).unwrap();
    // SAFETY: as above.
    unsafe {
        let bytes = std::slice::from_raw_parts(again.as_ptr().cast::<u8>(), 5 << 20);
        assert!(bytes.iter().all(|byte| *byte == 0));
        provider.free(again).unwrap();
    }
    assert_eq!(early, [1; 100_000]);
}
