//! Paths lead where the names on them lead now, however often they were gone before.

use std::sync::mpsc::channel;
use std::thread;

use lode::{Pool, PoolOptions, RenameMode};

fn pool() -> Pool {
    PoolOptions::new().in_memory(32 << 20).unwrap()
}

/// A pool where `a/b/f` says "first", and that way was gone.
fn gone() -> Pool {
    let pool = pool();
    pool.create_dir_all("a/b").unwrap();
    pool.write("a/b/f", "first").unwrap();
    for _ in 0..3 {
        assert_eq!(says(&pool, "a/b/f"), "first");
        assert_eq!(says(&pool, "/a//b/./f"), "first");
    }
    pool
}

fn says(pool: &Pool, path: &str) -> String {
    pool.read_to_string(path).unwrap_or_else(|error| format!("{:?}", error.kind()))
}

const NOT_FOUND: &str = "NotFound";

#[test]
fn a_directory_that_was_moved_is_not_found_where_it_was() {
    for (from, to) in [("a", "c"), ("a/b", "a/c"), ("a/b", "c")] {
        let pool = gone();
        pool.rename(from, to).unwrap();
        assert_eq!(says(&pool, "a/b/f"), NOT_FOUND);
        assert_eq!(pool.write("a/b/g", "").unwrap_err().errno(), libc::ENOENT);
        assert_eq!(pool.remove_file("a/b/f").unwrap_err().errno(), libc::ENOENT);
        assert_eq!(says(&pool, &"a/b/f".replacen(from, to, 1)), "first");
        pool.rename(to, from).unwrap();
        assert_eq!(says(&pool, "a/b/f"), "first");
    }
}

#[test]
fn what_took_a_directorys_place_is_found_there() {
    let pool = gone();
    pool.create_dir_all("x/b").unwrap();
    pool.write("x/b/f", "second").unwrap();
    assert_eq!(says(&pool, "x/b/f"), "second");
    pool.rename_with("x", "a", RenameMode::Exchange).unwrap();
    assert_eq!((says(&pool, "a/b/f"), says(&pool, "x/b/f")), ("second".into(), "first".into()));
    pool.rename_with("x/b", "a/b", RenameMode::Exchange).unwrap();
    assert_eq!((says(&pool, "a/b/f"), says(&pool, "x/b/f")), ("first".into(), "second".into()));
    // A link in the place of a directory, and then another target.
    pool.rename("a/b", "real").unwrap();
    pool.symlink("/real", "a/b").unwrap();
    assert_eq!(says(&pool, "a/b/f"), "first");
    pool.remove_file("a/b").unwrap();
    pool.symlink("/x/b", "a/b").unwrap();
    assert_eq!(says(&pool, "a/b/f"), "second");
    // A file in its place.
    pool.remove_file("a/b").unwrap();
    pool.write("a/b", "").unwrap();
    assert_eq!(pool.read("a/b/f").unwrap_err().errno(), libc::ENOTDIR);
}

#[test]
fn the_root_is_what_it_is_now_by_every_path() {
    use std::os::unix::fs::PermissionsExt;
    let pool = gone();
    pool.symlink("..", "above").unwrap();
    for mode in [0o750, 0o701] {
        for name in ["a", "/a", "//a", "./a"] {
            assert!(pool.try_exists(name).unwrap());
        }
        pool.set_permissions("/", std::fs::Permissions::from_mode(mode)).unwrap();
        for path in ["/", ".", "..", "/..", "//..", "./..", "a/..", "a/../..", "above", "/above"] {
            assert_eq!(pool.metadata(path).unwrap().mode() & 0o7777, mode, "{path}");
        }
    }
}

#[test]
fn a_directory_that_was_removed_and_made_again_is_a_new_one() {
    let pool = gone();
    pool.remove_dir_all("a").unwrap();
    assert_eq!(says(&pool, "a/b/f"), NOT_FOUND);
    pool.create_dir_all("a/b").unwrap();
    assert_eq!(says(&pool, "a/b/f"), NOT_FOUND);
    pool.write("a/b/f", "again").unwrap();
    assert_eq!(says(&pool, "a/b/f"), "again");
    // `..` is where a directory lies now.
    assert_eq!(says(&pool, "a/b/../b/f"), "again");
    pool.rename("a/b", "b").unwrap();
    pool.write("f", "beside").unwrap();
    assert_eq!(
        (says(&pool, "b/../f"), says(&pool, "a/b/../b/f")),
        ("beside".into(), NOT_FOUND.into())
    );
}

#[test]
fn a_directory_hands_on_what_it_is_now() {
    use std::os::unix::fs::PermissionsExt;
    let pool = gone();
    pool.write("a/b/before", "").unwrap();
    pool.chown("a/b", None, Some(77)).unwrap();
    pool.set_permissions("a/b", std::fs::Permissions::from_mode(0o2755)).unwrap();
    pool.write("a/b/after", "").unwrap();
    pool.create_dir("a/b/dir").unwrap();
    pool.symlink("to", "a/b/link").unwrap();
    let gid = |name: &str| pool.symlink_metadata(format!("a/b/{name}")).unwrap().gid();
    assert_eq!([gid("after"), gid("dir"), gid("link")], [77; 3]);
}

/// What one thread has done is what the next sees, whatever ways either has gone before.
#[test]
fn a_thread_sees_what_another_has_done() {
    let pool = gone();
    pool.create_dir_all("x/b").unwrap();
    pool.write("x/b/f", "second").unwrap();
    let (to_other, from_main) = channel::<usize>();
    let (to_main, from_other) = channel();
    let there = pool.clone();
    let other = thread::spawn(move || {
        for round in from_main {
            let expected = if round % 2 == 0 { "second" } else { "first" };
            assert_eq!(there.read_to_string("a/b/f").unwrap(), expected, "round {round}");
            assert_eq!(there.metadata("a/b/f").unwrap().len(), expected.len() as u64);
            to_main.send(()).unwrap();
        }
    });
    for round in 0..20_000 {
        let ends = if round % 3 == 0 { ("a", "x") } else { ("a/b", "x/b") };
        pool.rename_with(ends.0, ends.1, RenameMode::Exchange).unwrap();
        to_other.send(round).unwrap();
        from_other.recv().unwrap();
    }
    drop(to_other);
    other.join().unwrap();
}
