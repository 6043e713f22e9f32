//! Serves memory on a Unix socket until it is told to end:
//!
//!     memory SOCKET BYTES [MIN_BLOCK [CERTIFICATES [ADDRESS:PORT]]]
//!
//! With a directory of certificates (server-cert.pem, server-key.pem, and perhaps ca-cert.pem, by which clients are then
//! signed) they have to use TLS.
//! The export `memory` can be written, `frozen` can't. Says `serving` when clients can come, and on SIGTERM how much was
//! asked of it.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lode_nbd::{BlockSizes, Device, Export, Server, Tls};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

#[path = "../tests/common/memory.rs"]
mod memory;

use memory::Memory;

fn tls(directory: &Path) -> Tls {
    let file = |name: &str| directory.join(name);
    let authority = Some(file("ca-cert.pem")).filter(|path| path.exists());
    let (certificate, key) = (file("server-cert.pem"), file("server-key.pem"));
    let tls = Tls::from_files(&certificate, &key, authority.as_deref());
    tls.expect("certificates").required()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, bytes, rest @ ..] = &arguments[..] else {
        eprintln!("usage: memory SOCKET BYTES [MIN_BLOCK [CERTIFICATES [ADDRESS:PORT]]]");
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
    let mut builder = Server::builder()
        .export(export("memory", memory))
        .export(export("frozen", frozen))
        .default_export("memory")
        .unix(socket);
    if let Some(directory) = rest.get(1) {
        builder = builder.tls(tls(Path::new(directory)));
    }
    if let Some(address) = rest.get(2) {
        builder = builder.tcp(address.parse().expect("an address and a port"));
    }
    let server = builder.start().unwrap_or_else(|error| {
        eprintln!("error: {error}");
        std::process::exit(1);
    });
    server.addresses().iter().for_each(|address| println!("port {}", address.port()));
    println!("serving");
    signals.forever().next();
    println!("{:?}", server.statistics("memory").expect("the export"));
    server.shutdown(Duration::from_secs(5));
}
