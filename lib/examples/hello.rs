//! Makes a pool, or opens the one that is there, and counts how often it was run.
//!
//!     cargo run -p lode --example hello -- /dev/shm/hello

use std::error::Error;
use std::io::Write;

use lode::{FormatOptions, OpenOptions, Pool, PoolOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm/hello".into());
    let pool = match Pool::open(&path) {
        Err(error) if error.errno() == libc::ENOENT => {
            PoolOptions::new().create(&path, 16 << 20, &FormatOptions::default())?
        }
        opened => opened?,
    };
    let mut log = pool.open_with("runs", OpenOptions::new().append(true).create(true))?;
    // Once this has returned, it is there, whatever happens to this process.
    writeln!(log, "hello from process {}", std::process::id())?;
    drop(log);

    let runs = pool.read_to_string("runs")?;
    println!("{path} was opened {} times:\n{runs}", runs.lines().count());
    for entry in pool.read_dir("/")? {
        let entry = entry?;
        println!("{} ({} bytes)", entry.path().display(), entry.metadata()?.len());
    }
    pool.close()?;
    Ok(())
}
