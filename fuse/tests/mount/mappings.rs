//! Mappings: shared, private, for reading; and programs, which are mapped to be run.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};

use crate::mapping::Map;
use crate::support::{Mount, shell};

fn open(mount: &Mount) -> File {
    let path = mount.path("file");
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn shared_mappings_and_reads_see_the_same() {
    let Some(mount) = Mount::new() else { return };
    let file = open(&mount);
    file.write_all_at(&[1; 8192], 0).unwrap();
    let map = Map::shared(&file, 8192);
    assert_eq!(map.get(4095), 1);
    file.write_all_at(b"W", 10).unwrap();
    assert_eq!(map.get(10), b'W', "a write shows in the mapping");
    map.set(5000, b'M');
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5000).unwrap();
    assert_eq!(byte[0], b'M', "a store shows in reads");
    map.sync();
    drop(map);
    drop(file);
    // Synchronised, so in the pool: whatever becomes of the server.
    let mount = mount.kill().mount();
    let bytes = fs::read(mount.path("file")).unwrap();
    assert_eq!((bytes[10], bytes[5000], bytes[8191]), (b'W', b'M', 1));
}

#[test]
fn a_mapping_for_reading_shows_what_others_write() {
    let Some(mount) = Mount::new() else { return };
    let file = open(&mount);
    file.write_all_at(&[1; 8192], 0).unwrap();
    // Of a descriptor whose pages the kernel keeps.
    let reader = File::open(mount.path("file")).unwrap();
    let map = Map::read_only(&reader, 8192);
    assert_eq!((map.get(0), map.get(8191)), (1, 1));
    file.write_all_at(&[2; 100], 4050).unwrap();
    assert_eq!((map.get(4049), map.get(4050), map.get(4149), map.get(4150)), (1, 2, 2, 1));
    let writer = Map::shared(&file, 8192);
    writer.set(7000, 3);
    assert_eq!(map.get(7000), 3, "a store through another mapping");
    file.set_len(5000).unwrap();
    file.set_len(8192).unwrap();
    assert_eq!((map.get(4999), map.get(5000), map.get(7000)), (1, 0, 0), "cut and grown");
    fs::write(mount.path("new"), [4; 8192]).unwrap();
    fs::rename(mount.path("new"), mount.path("file")).unwrap();
    assert_eq!(map.get(0), 1, "the file that was mapped, not the one that has its name");
}

/// What drops pages takes them out of page tables before all processors know of it: who writes at that moment would go
/// on to see, through its map, what was there before.
#[test]
fn pages_that_are_mapped_stay_when_others_open_and_map_the_file() {
    let Some(mount) = Mount::new() else { return };
    let first = open(&mount);
    first.write_all_at(&[1; 3 * 4096], 0).unwrap();
    let map = Map::read_only(&first, 3 * 4096);
    assert_eq!((map.get(0), map.get(5000), map.get(9000)), (1, 1, 1));
    let all_there = |map: &Map| [0, 4096, 8192].iter().all(|at| map.is_cached(*at));
    assert!(all_there(&map), "of what was just read");
    let second = open(&mount);
    assert!(all_there(&map), "when another opens it");
    let other = Map::shared(&second, 3 * 4096);
    assert!(all_there(&map), "when another maps it");
    let writer = File::options().write(true).open(mount.path("file")).unwrap();
    assert!(all_there(&map), "when another opens it for writing only");
    // All of them see what each of them writes.
    for (round, file) in [&first, &second, &writer].into_iter().enumerate() {
        let byte = b'a' + round as u8;
        for at in [10, 4000 + round, 8190] {
            file.write_all_at(&[byte; 100], at as u64).unwrap();
            for seen in [&map, &other] {
                assert_eq!(seen.read(at, 100), [byte; 100], "{round}: at {at}");
            }
            let mut bytes = [0; 100];
            for reader in [&first, &second] {
                reader.read_exact_at(&mut bytes, at as u64).unwrap();
                assert_eq!(bytes, [byte; 100], "{round}: at {at}");
            }
        }
    }
    other.set(5000, b'S');
    let mut byte = [0];
    first.read_exact_at(&mut byte, 5000).unwrap();
    assert_eq!((byte[0], map.get(5000)), (b'S', b'S'));
    other.sync();
    // In the pool, too.
    let mount = {
        drop((map, other, first, second, writer));
        mount.kill().mount()
    };
    let bytes = fs::read(mount.path("file")).unwrap();
    assert_eq!((bytes[10], bytes[5000], bytes[8289], bytes[8290]), (b'c', b'S', b'c', 1));
}

#[test]
fn stores_through_a_private_mapping_are_its_own() {
    let Some(mount) = Mount::new() else { return };
    let file = open(&mount);
    file.write_all_at(&[1; 8192], 0).unwrap();
    // Not even a right to write is needed.
    let map = Map::private(&File::open(mount.path("file")).unwrap(), 8192);
    map.set(10, 9);
    let mut bytes = [0; 8192];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((map.get(10), bytes[10]), (9, 1));
    file.write_all_at(b"W", 5000).unwrap();
    assert_eq!(map.get(5000), b'W', "a page without stores is still the file's");
    file.write_all_at(b"W", 11).unwrap();
    assert_eq!((map.get(10), map.get(11)), (9, 1), "one with stores is not");
    drop(map);
    drop(file);
    let mount = mount.unmount().mount();
    assert_eq!(fs::read(mount.path("file")).unwrap()[10], 1);
}

#[test]
fn programs_are_run_from_the_mount() {
    let Some(mount) = Mount::new() else { return };
    fs::copy("/bin/echo", mount.path("say")).unwrap();
    fs::set_permissions(mount.path("say"), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(shell(&mount.root, 1234, "./say here"), "here\n");
    let mount = mount.unmount().mount();
    assert_eq!(shell(&mount.root, 1234, "./say again"), "again\n");
}
