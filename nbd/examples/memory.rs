//! Serves memory on a Unix socket until it is told to end:
//!
//!     memory SOCKET BYTES [MIN_BLOCK]
//!
//! The export `memory` can be written, `frozen` can't. Says `serving` when clients can come, and on SIGTERM how much was
//! asked of it.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::sync::Arc;
use std::time::Duration;

use lode_nbd::{BlockSizes, Device, Export, Server};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

#[path = "../tests/common/memory.rs"]
mod memory;

use memory::Memory;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, bytes, rest @ ..] = &arguments[..] else {
        eprintln!("usage: memory SOCKET BYTES [MIN_BLOCK]");
        std::process::exit(2);
    };
    let size = bytes.parse().expect("a number of bytes");
    let min = rest.first().map_or(1, |min| min.parse().expect("a number of bytes"));
    let sizes = BlockSizes::new(min, min.max(4096), BlockSizes::MAX).expect("a size of blocks");
    let memory = Memory { sizes, ..Memory::new(size) };
    let frozen = Memory { read_only: true, ..Memory::new(size) };
    let mut signals = Signals::new([SIGTERM, SIGINT]).expect("signals");
    let export = |name, device: Memory| {
        let device: Arc<dyn Device> = Arc::new(device);
        Export::new(name, device).described("bytes in memory")
    };
    let server = Server::builder()
        .export(export("memory", memory))
        .export(export("frozen", frozen))
        .default_export("memory")
        .unix(socket)
        .start()
        .unwrap_or_else(|error| {
            eprintln!("error: {error}");
            std::process::exit(1);
        });
    println!("serving");
    signals.forever().next();
    println!("{:?}", server.statistics("memory").expect("the export"));
    server.shutdown(Duration::from_secs(5));
}
