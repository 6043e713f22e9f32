//! Snapshots: what a pool was is read beside what it is.

use lode::{FormatOptions, MapOptions, Pool, PoolOptions};

fn pool() -> Pool {
    PoolOptions::new().in_memory(32 << 20).unwrap()
}

#[test]
fn paths_in_a_snapshot_lead_where_they_led_then() {
    let pool = pool();
    pool.create_dir_all("a/b").unwrap();
    pool.write("a/b/file", vec![1; 100_000]).unwrap();
    pool.write("a/gone", "here").unwrap();
    pool.symlink("/a/b/file", "link").unwrap();
    // Where paths led lately is remembered: that is of the pool as it is.
    assert_eq!(pool.read("link").unwrap(), vec![1; 100_000]);
    pool.create_snapshot("then").unwrap();
    pool.remove_file("a/gone").unwrap();
    pool.write("a/b/file", vec![2; 50_000]).unwrap();
    pool.rename("a", "c").unwrap();
    pool.create_dir_all("a/b").unwrap();
    pool.write("a/b/file", "new").unwrap();

    let then = pool.snapshot("then").unwrap();
    for path in ["a/b/file", "/a/b/../b/./file", "link", "a/../link"] {
        assert_eq!(then.read(path).unwrap(), vec![1; 100_000], "{path}");
    }
    assert_eq!(pool.read("a/b/file").unwrap(), b"new");
    assert_eq!(then.read("a/gone").unwrap(), b"here");
    assert_eq!(then.read_link("link").unwrap(), std::path::Path::new("/a/b/file"));
    assert!(then.symlink_metadata("link").unwrap().file_type().is_symlink());
    assert_eq!(
        (then.metadata("link").unwrap().len(), pool.metadata("link").unwrap().len()),
        (100_000, 3)
    );
    assert_eq!(then.metadata("../..").unwrap().ino(), then.metadata("/").unwrap().ino());
    let mut names: Vec<_> = then.read_dir("/").unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "link"]);
    let sizes = then.read_dir("a/b").unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    assert_eq!(sizes.collect::<Vec<_>>(), [100_000]);
    assert_eq!(then.read("c").unwrap_err().errno(), libc::ENOENT);
}

#[test]
fn snapshots_are_made_listed_and_deleted() {
    let pool = pool();
    pool.write("file", vec![1; 1 << 20]).unwrap();
    pool.create_snapshot("one").unwrap();
    pool.write("file", vec![2; 1 << 20]).unwrap();
    pool.create_snapshot("two").unwrap();
    let all = pool.snapshots().unwrap();
    let names: Vec<&[u8]> = all.iter().map(|one| one.name.as_slice()).collect();
    assert_eq!(names, [b"one", b"two"]);
    assert!(all[0].pages_alone >= 256 && all[0].epoch < all[1].epoch);
    let one = pool.snapshot("one").unwrap();
    let file = one.open_file("file").unwrap();
    assert_eq!(file.read_at(&mut [0; 8], 0).unwrap(), 8);
    pool.delete_snapshot("one").unwrap();
    assert_eq!(file.read_at(&mut [0; 8], 0).unwrap_err().errno(), libc::ESTALE);
    assert_eq!(one.read("file").unwrap_err().errno(), libc::ENOENT);
    assert_eq!(one.metadata("file").unwrap_err().errno(), libc::ENOENT);
    assert_eq!(pool.snapshots().unwrap().len(), 1);
    let errors = [
        pool.create_snapshot("two").unwrap_err(),
        pool.create_snapshot("a/b").unwrap_err(),
        pool.create_snapshot("x".repeat(129)).unwrap_err(),
        pool.delete_snapshot("one").unwrap_err(),
        pool.snapshot("one").unwrap_err(),
    ];
    let numbers = errors.map(|error| error.errno());
    assert_eq!(
        numbers,
        [libc::EEXIST, libc::EINVAL, libc::ENAMETOOLONG, libc::ENOENT, libc::ENOENT]
    );
    assert!(pool.delete_snapshot("one").unwrap_err().to_string().starts_with("one: "));
    drop((one, file));
    pool.close().unwrap();
}

#[test]
fn a_file_of_a_snapshot_can_not_be_changed() {
    let pool = pool();
    pool.write("file", vec![1; 8192]).unwrap();
    pool.create_snapshot("then").unwrap();
    let file = pool.snapshot("then").unwrap().open_file("file").unwrap();
    assert!(file.write_at(b"1", 0).is_err());
    let rights = file.metadata().unwrap().permissions();
    assert_eq!(file.set_permissions(rights).unwrap_err().errno(), libc::EROFS);
    assert_eq!(file.map(0, 4096, &MapOptions::new()).unwrap_err().errno(), libc::EROFS);
    assert_eq!(pool.snapshot("then").unwrap().read("file").unwrap(), vec![1; 8192]);
}

#[test]
fn a_pool_that_nobody_has_open_returns_to_a_snapshot() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let pool = PoolOptions::new().create(&path, 32 << 20, &FormatOptions::default()).unwrap();
    pool.write("file", "before").unwrap();
    pool.create_snapshot("older").unwrap();
    pool.create_snapshot("before").unwrap();
    pool.write("file", "after").unwrap();
    pool.write("new", "new").unwrap();
    pool.create_snapshot("later").unwrap();
    let errno = |name: &str| Pool::rollback(&path, name).unwrap_err().errno();
    assert_eq!(errno("before"), libc::EBUSY);
    pool.close().unwrap();
    assert_eq!(errno("none"), libc::ENOENT);
    assert_eq!(
        Pool::rollback(dir.path().join("none"), "before").unwrap_err().errno(),
        libc::ENOENT
    );
    Pool::rollback(&path, "before").unwrap();
    let pool = Pool::open(&path).unwrap();
    assert_eq!((pool.read("file").unwrap(), pool.exists("new")), (b"before".to_vec(), false));
    let names: Vec<Vec<u8>> = pool.snapshots().unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, [b"older".to_vec(), b"before".to_vec()]);
}
