//! The control socket: answers, and what hostile peers can do.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use lode_engine::Op;
use lode_fuse::MountError;
use lode_fuse::control::{Client, SCHEMA, place};
use serde_json::json;

use crate::support::{Mount, eventually};

fn socket(mount: &Mount) -> PathBuf {
    place::socket(&mount.place.control(), &mount.root)
}

#[test]
fn it_tells_about_the_mount_and_the_pool() {
    let Some(mount) = Mount::new() else { return };
    let info = mount.client().ask("info").unwrap();
    assert_eq!(info["schema"], SCHEMA);
    assert_eq!(info["mount"], mount.root.to_str().unwrap());
    assert_eq!(info["pool"], mount.place.pool().to_str().unwrap());
    assert_eq!(info["region"], json!({ "medium": "file" }));
    assert_eq!(info["info"]["bytes"], 256 << 20);
    assert!(info["statfs"]["pages_free"].as_u64().unwrap() > 0);
    assert!(info["opening"]["damage"].as_array().unwrap().is_empty());
    let mut by_pool = Client::for_pool_in(&mount.place.control(), &mount.place.pool()).unwrap();
    assert_eq!(by_pool.ask("info").unwrap()["mount"], info["mount"]);
    let nobody = Client::for_mount_in(&mount.place.control(), &std::env::temp_dir());
    assert!(matches!(nobody, Err(MountError::NoServer(_))));
}

#[test]
fn counters_are_all_there_and_count() {
    let Some(mount) = Mount::new() else { return };
    let before = mount.client().ask("stats").unwrap();
    for op in Op::ALL {
        assert!(before["ops"][op.name()].is_u64(), "{}", op.name());
    }
    for name in ["fences", "lines", "streamed_bytes", "windows"] {
        assert!(before[name].is_u64(), "{name}");
    }
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/file"), "text").unwrap();
    let after = mount.client().ask("stats").unwrap();
    let more = |op: &str| after["ops"][op].as_u64() > before["ops"][op].as_u64();
    assert!(more("write") && more("lookup"));
}

#[test]
fn those_who_watch_see_the_pool_and_its_wear() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), vec![1; 3 << 20]).unwrap();
    let (stats, wear) = {
        let mut client = mount.client();
        (client.ask("stats").unwrap(), client.ask("wear").unwrap())
    };
    assert_eq!(stats["space"], mount.client().ask("info").unwrap()["statfs"]);
    assert!(stats["age_ns"].as_u64().unwrap() > 0);
    assert_eq!(stats["pid"], mount.client().ask("ping").unwrap()["pid"]);
    assert!(stats["memory"]["total_bytes"].as_u64().unwrap() > 1000);
    assert_eq!(stats["free_extents"]["by_size"].as_array().unwrap().len(), 32);
    assert_eq!((&stats["wear"]["regions"], &wear["groups"]), (&json!(128), &json!(128)));
    let stored: Vec<(u64, u64)> = serde_json::from_value(wear["stored"].clone()).unwrap();
    assert_eq!(stats["wear"]["stored_regions"], stored.len());
    assert!(stats["wear"]["stored_bytes"].as_u64().unwrap() >= 3 << 20);
    assert!(stored.iter().map(|(_, bytes)| bytes).sum::<u64>() >= 3 << 20);
    let refused = mount.client().request(&json!({ "op": "wear", "group": 0 }));
    assert!(matches!(refused, Err(MountError::Answer { answer, .. }) if answer.contains("group")));
}

#[test]
fn only_the_owner_may_use_it() {
    let Some(mount) = Mount::new() else { return };
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(socket(&mount)), 0o600);
    assert_eq!(mode(mount.place.control()), 0o700);
    assert_eq!(mode(place::record_of(&socket(&mount))), 0o600);
}

#[test]
fn nonsense_is_answered_or_dropped() {
    let Some(mount) = Mount::new() else { return };
    let deep = format!("{}\n", "[".repeat(60_000));
    for (sent, expected) in [
        (&b"hello\n"[..], "JSON"),
        (b"\n", "JSON"),
        (b"\xff\xfe\n", "JSON"),
        (b"{}\n", "op"),
        (b"{\"op\":5}\n", "op"),
        (b"{\"op\":\"destroy\"}\n", "unknown"),
        (deep.as_bytes(), "JSON"),
        (&[b'x'; 200_000], "long"),
    ] {
        let mut stream = UnixStream::connect(socket(&mount)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // It may hang up before it has read everything.
        let _ = stream.write_all(sent);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.contains("\"ok\":false") && answer.contains(expected), "{answer}");
    }
    assert_eq!(mount.client().ask("ping").unwrap()["ok"], true);
}

#[test]
fn many_idle_peers_are_too_many_and_harmless() {
    let Some(mount) = Mount::new() else { return };
    let idle: Vec<_> = (0..200).map_while(|_| UnixStream::connect(socket(&mount)).ok()).collect();
    fs::write(mount.path("file"), "served all the while").unwrap();
    drop(idle);
    eventually(|| {
        let client = Client::for_mount_in(&mount.place.control(), &mount.root);
        client.is_ok_and(|mut client| client.ask("ping").is_ok())
    });
}

#[test]
fn several_requests_go_through_one_connection() {
    let Some(mount) = Mount::new() else { return };
    let mut client = mount.client();
    for op in ["ping", "info", "stats", "ping"] {
        assert_eq!(client.ask(op).unwrap()["op"], op);
    }
    let error = client.ask("nothing");
    assert!(matches!(error, Err(MountError::Answer { .. })));
    assert_eq!(client.ask("ping").unwrap()["ok"], true, "an error does not end it");
}

#[test]
fn the_socket_of_a_killed_server_is_replaced() {
    let Some(mount) = Mount::new() else { return };
    let old = mount.client().ask("ping").unwrap()["pid"].as_u64();
    let place = mount.kill();
    // (On a busy machine its socket was once seen to take a connection a moment after it had been waited for.)
    eventually(|| {
        let gone = Client::for_mount_in(&place.control(), &place.point());
        matches!(gone, Err(MountError::NoServer(_)))
    });
    let mount = place.mount();
    assert_ne!(mount.client().ask("ping").unwrap()["pid"].as_u64(), old);
}
