//! Encryption: nobody is told or given anything without it where it is required, who shows no good certificate is not
//! let in, and what was said before it counts for nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::memory::{Call, Memory};
use crate::common::tls::Authority;
use crate::common::*;
use lode_nbd::{Export, Limits, Server, ServerError, Tls, TlsError};
use rustls::version;

const SIZE: u64 = 64 << 20;

fn serving(tls: Tls) -> Serving {
    Serving::with(Memory::recording(SIZE), |builder| builder.tls(tls))
}

#[test]
fn what_is_written_encrypted_is_read_encrypted_and_plainly() {
    let authority = Authority::new();
    let serving = serving(authority.tls(None));
    let data: Vec<u8> = (0..(32_u64 << 20)).map(|at| (at % 251) as u8).collect();
    for version in [&version::TLS13, &version::TLS12] {
        let mut client = serving.connect().encrypt(authority.client_of(&[version], None));
        assert_eq!(client.option(LIST, b"").kinds(), [2, ACK]);
        let mut client = client.go();
        client.write(5, &data);
        let read = client.simple(READ, 0, 5, 32 << 20, b"");
        assert!(read.0 == 0 && read.1 == data);
        client.send_request(DISC, 0, 0, 0, b"");
        // Its end is said, and not only a cut.
        assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    }
    assert_eq!(serving.simple().simple(READ, 0, 5, 1 << 20, b"").1, data[..1 << 20]);
    eventually("all are forgotten", || serving.server().clients() == 0);
}

#[test]
fn nothing_is_told_or_done_before_encryption_that_is_required() {
    let authority = Authority::new();
    let serving = serving(authority.tls(None).required());
    let mut client = serving.connect();
    let options = [LIST, INFO, GO, STRUCTURED, LIST_META, SET_META, 4, 77, u32::MAX];
    for option in options {
        for data in [&b""[..], &choice("disk", &[]), &[0; 100_000]] {
            let replies = client.option(option, data);
            assert_eq!(replies.kinds(), [ERR_TLS_REQD], "option {option}");
            assert!(!replies.0[0].1.windows(4).any(|part| part == b"disk"));
        }
    }
    assert_eq!(client.option(STARTTLS, b"x").kinds(), [ERR_INVALID]);
    let mut client = client.encrypt(authority.client(None)).go();
    assert_eq!(client.simple(READ, 0, 0, 512, b"").0, 0);
    for name in ["", "disk"] {
        let mut old = serving.connect();
        old.send_option(EXPORT_NAME, name.as_bytes());
        assert!(old.is_closed());
    }
    let mut leaving = serving.connect();
    assert_eq!(leaving.option(ABORT, b"").kinds(), [ACK]);
    assert!(leaving.is_closed());
    assert_eq!(serving.disk.calls(), [Call::Read(0, 512)]);
}

#[test]
fn other_machines_have_to_encrypt_and_this_one_may() {
    let export = || Export::new("disk", std::sync::Arc::new(Memory::new(SIZE)));
    let authority = Authority::new();
    let start = |address: &str, tls: Option<Tls>| {
        let builder = Server::builder().export(export()).tcp(address.parse().unwrap());
        match tls {
            Some(tls) => builder.tls(tls).start(),
            None => builder.start(),
        }
    };
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = start(address, None).err();
        assert!(matches!(refused, Some(ServerError::NotLoopback(_))));
    }
    for (address, required) in [("0.0.0.0:0", true), ("127.0.0.1:0", false)] {
        let server = start(address, Some(authority.tls(None))).unwrap();
        let port = server.addresses()[0].port();
        let connect = || {
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            Client::of(stream).greet()
        };
        let plain = connect().option(GO, &choice("", &[]));
        assert_eq!(plain.kinds(), if required { vec![ERR_TLS_REQD] } else { vec![3, ACK] });
        let mut client = connect().encrypt(authority.client(None)).go();
        assert_eq!(client.simple(READ, 0, 0, 512, b"").0, 0);
    }
}

#[test]
fn what_was_agreed_on_before_encryption_does_not_hold() {
    let authority = Authority::new();
    let serving = serving(authority.tls(None));
    let mut client = serving.connect();
    assert_eq!(client.option(STRUCTURED, b"").kinds(), [ACK]);
    let set = contexts("", &["base:allocation"]);
    assert_eq!(client.option(SET_META, &set).kinds(), [4, ACK]);
    let mut client = client.encrypt(authority.client(None));
    assert_eq!(client.option(SET_META, &set).kinds(), [ERR_INVALID], "there are no chunks");
    assert_eq!(client.option(STARTTLS, b"").kinds(), [ERR_INVALID], "once is enough");
    let mut client = client.go();
    assert_eq!(client.simple(STATUS, 0, 0, 512, b"").0, EINVAL);
    assert_eq!(client.simple(READ, DF, 0, 512, b"").0, EINVAL);
}

#[test]
fn what_stands_behind_the_wish_to_encrypt_is_nobodys_word() {
    let authority = Authority::new();
    let serving = serving(authority.tls(None));
    let wish = [&b"IHAVEOPT"[..], &wire(5, 4), &wire(0, 4)].concat();
    let list = [&b"IHAVEOPT"[..], &wire(3, 4), &wire(0, 4)].concat();
    for behind in [&list[..], &list[..1], b"\x16\x03\x01"] {
        let mut client = serving.connect();
        client.send(&[&wish[..], behind].concat());
        assert!(client.is_closed(), "it is not even acknowledged");
    }
    // Where it comes a little later, it is no record.
    let mut client = serving.connect();
    assert_eq!(client.option(STARTTLS, b"").kinds(), [ACK]);
    client.send(&list);
    let mut said = Vec::new();
    let _ = client.stream.read_to_end(&mut said);
    assert!(said.len() < 20, "an alert at most: {said:?}");
    drop(client);
    eventually("all are forgotten", || serving.server().clients() == 0);
}

#[test]
fn who_has_to_show_a_certificate_shows_a_good_one() {
    let (authority, other) = (Authority::new(), Authority::new());
    let serving = serving(authority.tls(Some(&authority)).required());
    for version in [&version::TLS13, &version::TLS12] {
        let client = |shows| authority.client_of(&[version], shows);
        for wrong in [None, Some(&other)] {
            let refused = serving.connect().try_encrypt(client(wrong)).err().unwrap();
            assert!(refused.starts_with("received fatal alert"), "{refused}");
        }
        let mut known = serving.connect().try_encrypt(client(Some(&authority))).unwrap().go();
        assert_eq!(known.simple(READ, 0, 0, 512, b"").0, 0);
    }
    // And a client does not take any server's.
    let refused = serving.connect().try_encrypt(other.client(Some(&authority))).err().unwrap();
    assert!(refused.contains("certificate"), "{refused}");
    let reads = serving.disk.calls();
    assert_eq!(reads, [Call::Read(0, 512); 2]);
}

#[test]
fn who_stalls_while_encryption_begins_stalls_nobody_and_is_left() {
    let authority = Authority::new();
    let limits = Limits { workers: 1, handshake: Duration::from_millis(700), ..Limits::default() };
    let serving =
        Serving::with(Memory::new(SIZE), |builder| builder.limits(limits).tls(authority.tls(None)));
    let mut other = serving.connect().encrypt(authority.client(None)).go();
    let began = Instant::now();
    // Nothing, half a record's head, and half a record.
    let starts = [&b""[..], b"\x16\x03", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"];
    let mut stalled: Vec<Client> = starts
        .iter()
        .map(|start| {
            let mut client = serving.connect();
            assert_eq!(client.option(STARTTLS, b"").kinds(), [ACK]);
            client.send(start);
            client
        })
        .collect();
    for _ in 0..20 {
        let asked = Instant::now();
        assert_eq!(other.simple(READ, 0, 0, 512, b"").0, 0);
        assert!(asked.elapsed() < Duration::from_millis(500));
    }
    for client in &mut stalled {
        assert!(client.is_closed());
    }
    assert!(began.elapsed() >= Duration::from_millis(500));
    eventually("they are forgotten", || serving.server().clients() == 1);
    assert_eq!(other.simple(READ, 0, 0, 512, b"").0, 0);
}

#[test]
fn who_encrypts_and_does_not_read_is_not_read_from() {
    let authority = Authority::new();
    let limits = Limits { workers: 1, ..Limits::default() };
    let serving = Serving::with(Memory::recording(SIZE), |builder| {
        builder.limits(limits).tls(authority.tls(None))
    });
    let mut other = serving.simple();
    let mut client = serving.connect().encrypt(authority.client(None)).go();
    for cookie in 0..64 {
        let asked = request(READ, 0, cookie, 0, 1 << 20, b"");
        client.stream.write_all(&asked).unwrap();
    }
    eventually("a first read", || !serving.disk.calls().is_empty());
    for _ in 0..20 {
        assert_eq!(other.simple(FLUSH, 0, 0, 0, b"").0, 0);
        thread::sleep(Duration::from_millis(5));
    }
    let reads = serving.disk.calls().iter().filter(|call| matches!(call, Call::Read(..))).count();
    assert!(reads < 8, "{reads} MiB were read for who takes none");
    for cookie in 0..64 {
        assert_eq!(client.simple_reply(cookie), 0);
        client.take(1 << 20);
    }
}

#[test]
fn noise_in_the_records_is_survived() {
    let authority = Authority::new();
    let serving = serving(authority.tls(None));
    let mut random = 1_u64;
    for turn in 0..60 {
        let mut client = serving.connect();
        client.option(STARTTLS, b"");
        let mut noise = [&b"\x16\x03\x01\x40\0"[..], b"\x17\x03\x03\0\x01", b"\x15\x03\x03\0\x02"]
            [turn % 3]
            .to_vec();
        noise.extend((0..turn * 300).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        }));
        let _ = client.stream.write_all(&noise);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let _ = client.stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(serving.disk.calls(), []);
    assert_eq!(serving.simple().simple(READ, 0, 0, 512, b"").0, 0);
}

#[test]
fn an_encrypted_connection_ends_as_others_do() {
    let authority = Authority::new();
    let mut serving = serving(authority.tls(None));
    let mut idle = serving.connect().encrypt(authority.client(None)).go();
    let mut beginning = serving.connect();
    beginning.option(STARTTLS, b"");
    assert_eq!(idle.simple(FLUSH, 0, 0, 0, b"").0, 0);
    let began = Instant::now();
    serving.server.take().unwrap().shutdown(Duration::MAX);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(beginning.is_closed());
    assert!(UnixStream::connect(&serving.socket).is_err());
}

#[test]
fn files_that_are_no_certificates_are_told() {
    let (authority, other) = (Authority::new(), Authority::new());
    let tried = |cert: &str, key: &str| authority.try_tls(cert, key, None).err().unwrap();
    let wrong = tried("nowhere", "server-key");
    assert!(matches!(wrong, TlsError::File { .. }), "{wrong}");
    for (cert, key) in [("server-key", "server-key"), ("server-cert", "server-cert")] {
        let wrong = tried(cert, key);
        assert!(matches!(wrong, TlsError::Pem { .. }), "{wrong}");
    }
    let wrong = tried("server-cert", "client-key");
    assert!(matches!(wrong, TlsError::Pair { .. }), "{wrong}");
    let key = other.file("server-key");
    let wrong = authority.try_tls("server-cert", "server-key", Some(&key)).err().unwrap();
    assert!(matches!(wrong, TlsError::Pem { .. }), "{wrong}");
}

#[test]
fn certificates_that_are_read_again_are_for_who_comes_then() {
    let (first, second) = (Authority::new(), Authority::new());
    let tls = first.tls(None);
    let serving = serving(tls.clone());
    let comes = |authority: &Authority| {
        let client = serving.connect().try_encrypt(authority.client(None));
        client.map(|client| client.go())
    };
    let mut old = comes(&first).unwrap();
    first.replace("server", &second);
    assert!(comes(&second).is_err(), "nobody has read them");
    tls.reload().unwrap();
    comes(&second).unwrap();
    // (A client trusts by the file of who signed, which is the first one's still.)
    assert!(comes(&first).is_err(), "it is another's certificate");
    assert_eq!(old.simple(READ, 0, 0, 512, b"").0, 0, "who was there stays");
    // A key that is not the certificate's, half of a file, and none.
    std::fs::copy(second.file("client-key"), first.file("server-key")).unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::Pair { .. })));
    std::fs::write(first.file("server-cert"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::Pem { .. })));
    std::fs::remove_file(first.file("server-cert")).unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::File { .. })));
    comes(&second).unwrap();
}

#[test]
fn authorities_of_clients_are_read_again() {
    let (server, clients) = (Authority::new(), Authority::new());
    let tls = server.tls(Some(&server));
    let serving = serving(tls.clone());
    let comes = |shows: &Authority| serving.connect().try_encrypt(server.client(Some(shows)));
    assert!(comes(&clients).is_err());
    // (Of the files, that of the authority alone is another's.)
    let mine = std::fs::read(server.file("ca-cert")).unwrap();
    let other = std::fs::read(clients.file("ca-cert")).unwrap();
    std::fs::write(server.file("ca-cert"), other).unwrap();
    tls.reload().unwrap();
    std::fs::write(server.file("ca-cert"), mine).unwrap();
    comes(&clients).unwrap();
    assert!(comes(&server).is_err());
}
