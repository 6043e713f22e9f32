//! A client can't fill the log, whatever it does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use common::memory::Memory;
use common::tls::Authority;
use common::*;

/// Where the log goes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(from);
        Ok(from.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_clients_cause_is_told_once_in_a_while() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    subscriber.init();
    let authority = Authority::new();
    let memory = Memory { bad: (0..1 << 20).into(), ..Memory::new(1 << 20) };
    let serving = Serving::with(memory, |builder| builder.tls(authority.tls(None)));
    let mut client = serving.simple();
    for _ in 0..1000 {
        assert_eq!(client.simple(READ, 0, 0, 1, b"").0, EIO);
        assert_eq!(client.simple(WRITE, 0, 0, 1, b"x").0, EIO);
        assert_eq!(client.simple(TRIM, 0, 0, 1, b"").0, EIO);
        assert_eq!(client.simple(READ, 0, u64::MAX, 1, b"").0, EINVAL, "its own fault");
    }
    for _ in 0..50 {
        let mut client = serving.connect();
        client.option(STARTTLS, b"");
        client.send(b"this is no record of anything");
        let _ = client.stream.read_to_end(&mut Vec::new());
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for what in ["requests fail", "refused by TLS"] {
        let lines = text.lines().filter(|line| line.contains(what)).count();
        assert!((1..=3).contains(&lines), "{lines} lines: {what}");
    }
    assert!(text.lines().count() < 10, "{text}");
}
