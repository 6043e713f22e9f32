//! An owner that is a process of its own: this test's program once more. What it needs itself it must not have to ask
//! itself for.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::owner;

const SOCKET: &str = "LODE_TEST_SOCKET";
const CHUNKS: &str = "LODE_TEST_CHUNKS";

pub struct Other(Child, BufReader<ChildStdout>);

impl Other {
    /// Lends so many chunks. The program has an ignored test of the name `the_owner`, which calls [`serve`].
    pub fn start(socket: &Path, chunks: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "the_owner", "--nocapture"]);
        command.env(SOCKET, socket).env(CHUNKS, chunks.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut this = Self(child, out);
        assert_eq!(this.out(), 0);
        this
    }

    /// Chunks that are out.
    pub fn out(&mut self) -> usize {
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

/// What the other process does; nothing, where this one is not it.
pub fn serve() {
    let said = |name| std::env::var_os(name).and_then(|it| it.into_string().ok());
    let (Some(socket), Some(chunks)) = (said(SOCKET), said(CHUNKS)) else {
        return;
    };
    let pool = owner::pool(chunks.parse().unwrap());
    let owner = owner::Owner::new(Path::new(&socket), pool, usize::MAX);
    for _ in std::io::stdin().lines() {
        println!("\nout {}", owner.out());
    }
}

/// What `meet` gives once the owner that has just come is met: programs look for one five times a second. `meet` says of an error
/// whether it is that there is no owner.
pub fn until_met<T>(meet: impl Fn() -> Result<T, bool>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match meet() {
            Ok(met) => return met,
            Err(no_owner) => assert!(no_owner && Instant::now() < until, "no owner: {no_owner}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}
