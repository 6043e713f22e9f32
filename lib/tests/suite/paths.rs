//! Every call by path does what std does on a tmpfs, whatever the path: dots, slashes, links that
//! lead anywhere or nowhere or in circles, names that are too long, files where directories must
//! be.

use crate::common::script::Twin;

/// What there is, in the directory `w`.
const TREE: &str = "
    mkdir w
    mkdir w/d
    mkdir w/d/sub
    mkdir w/empty
    write w/f file
    write w/d/f deep
    symlink f w/to_f
    symlink d w/to_d
    symlink d/ w/to_d_slash
    symlink f/ w/to_f_slash
    symlink /w/d/f w/to_root
    symlink ../w/d/./sub/.. w/to_dots
    symlink nowhere w/dangling
    symlink nowhere/ w/dangling_slash
    symlink d/new w/dangling_deep
    symlink missing/new w/dangling_deeper
    symlink loop w/loop
    symlink pong w/ping
    symlink ping w/pong
    symlink to_dangling w/to_to_dangling
    symlink dangling w/to_dangling
    symlink . w/to_dot
";

/// Paths in it.
const PATHS: [&str; 34] = [
    "w/f",
    "w/d",
    "w/d/f",
    "w/d/sub",
    "w/empty",
    "w/missing",
    "w/missing/f",
    "w/f/below",
    "w/d/missing",
    "w/to_f",
    "w/to_d",
    "w/to_d/f",
    "w/to_d/missing",
    "w/to_d_slash",
    "w/to_d_slash/f",
    "w/to_f_slash",
    "w/to_root",
    "w/to_dots",
    "w/to_dots/f",
    "w/to_f/below",
    "w/dangling",
    "w/dangling/below",
    "w/dangling_slash",
    "w/dangling_deep",
    "w/dangling_deeper",
    "w/loop",
    "w/loop/below",
    "w/ping",
    "w/to_to_dangling",
    "w/to_dot",
    "w/to_dot/to_dot/f",
    "//w//d//f",
    "w/d/../f",
    "",
];

/// What may stand behind them.
const ENDS: [&str; 7] = ["", "/", "//", "/.", "/..", "/./", "/../d"];

fn paths() -> Vec<String> {
    let all = PATHS.iter().flat_map(|path| ENDS.iter().map(move |end| format!("{path}{end}")));
    // Nothing but an end would be above what the two have in common.
    let below = all.filter(|path| !path.starts_with('/') || path.starts_with("//w"));
    let long = "n".repeat(256);
    let most = "n".repeat(255);
    below.chain([format!("w/{long}"), format!("w/{most}"), format!("w/{long}/x")]).collect()
}

fn new_tree() -> Twin {
    let twin = Twin::new();
    twin.run(TREE);
    twin.compare("making the tree");
    twin
}

/// Does one call with every path, in a fresh tree after each change.
fn with_all(calls: &[&str]) {
    let mut twin = new_tree();
    for path in paths() {
        for call in calls {
            let line = call.replace('@', &path);
            if twin.call(&line).is_ok() {
                twin.compare(&line);
                twin = new_tree();
            }
        }
    }
    twin.compare("all that failed");
}

#[test]
fn looking_follows_paths_as_the_system_does() {
    let twin = new_tree();
    for path in paths() {
        for call in ["stat", "lstat", "exists", "readlink", "canonicalize", "list", "read"] {
            let _ = twin.call(&format!("{call} {path}"));
        }
        for how in ["r", "rF", "rD", "rDF"] {
            let _ = twin.call(&format!("open {how} {path}"));
        }
    }
    twin.compare("looking");
}

#[test]
fn opening_to_write_makes_and_empties_what_the_system_does() {
    let how = ["w", "rw", "a", "wt", "wc", "wcF", "wct", "ac", "wn", "rwn", "wcnt", "wF", "wD"];
    with_all(&how.map(|how| format!("open {how} @")).each_ref().map(String::as_str));
}

#[test]
fn making_and_removing_does_what_the_system_does() {
    with_all(&["mkdir @", "mkdir_all @", "unlink @", "rmdir @", "symlink x @", "write @ new"]);
    with_all(&["chmod @ 701", "link w/f @", "symlink /w/d @"]);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let twin = new_tree();
    for bits in 0..64u32 {
        let letters = "rwatcn".chars().enumerate();
        let how: String =
            letters.filter(|(at, _)| bits & 1 << at != 0).map(|(_, letter)| letter).collect();
        let line = format!("open {how} w/f");
        let _ = twin.call(&line);
        let _ = twin.call(&format!("open {how} w/new{bits}"));
        twin.compare(&line);
    }
}

#[test]
fn as_many_links_are_followed_as_the_system_follows() {
    let twin = Twin::new();
    twin.run("mkdir w\nwrite w/f x\nmkdir w/d\nwrite w/d/f y\nsymlink f w/l0\nsymlink . w/dot");
    for number in 1..45 {
        twin.run(&format!("symlink l{} w/l{number}", number - 1));
        twin.run(&format!("stat w/l{number}\nopen r w/l{number}\ncanonicalize w/l{number}"));
    }
    for times in [1, 39, 40, 41, 80] {
        twin.run(&format!("stat w/{}f\ncanonicalize w/{0}f", "dot/".repeat(times)));
        twin.run(&format!("open wc w/{}new{times}", "dot/".repeat(times)));
    }
    twin.compare("links");
}

#[test]
fn the_root_is_no_name() {
    let pool = crate::common::pool(16);
    pool.write("f", "x").unwrap();
    for root in ["/", "//", "/.", "/..", ".", "..", "../../.."] {
        assert!(pool.metadata(root).unwrap().is_dir(), "{root}");
        assert_eq!(pool.canonicalize(root).unwrap().to_str(), Some("/"), "{root}");
        assert_eq!(pool.read_dir(root).unwrap().count(), 1, "{root}");
        assert_eq!(crate::common::errno(pool.create_dir(root)), libc::EEXIST, "{root}");
        assert_eq!(crate::common::errno(pool.remove_file(root)), libc::EISDIR, "{root}");
        assert_eq!(crate::common::errno(pool.rename(root, "other")), libc::EBUSY, "{root}");
        assert_eq!(crate::common::errno(pool.rename("f", root)), libc::EBUSY, "{root}");
        assert_eq!(crate::common::errno(pool.hard_link("f", root)), libc::EEXIST, "{root}");
        assert_eq!(crate::common::errno(pool.hard_link(root, "other")), libc::EPERM, "{root}");
        assert_eq!(crate::common::errno(pool.create_new(root)), libc::EEXIST, "{root}");
        assert_eq!(crate::common::errno(pool.create_file(root)), libc::EISDIR, "{root}");
    }
    // What can't be removed in the end keeps what is in it.
    for (path, why) in [("/", libc::EBUSY), (".", libc::EINVAL), ("..", libc::ENOTEMPTY)] {
        assert_eq!(crate::common::errno(pool.remove_dir(path)), why, "{path}");
        assert_eq!(crate::common::errno(pool.remove_dir_all(path)), why, "{path}");
    }
    assert_eq!(pool.read_to_string("../f").unwrap(), "x");
    assert_eq!(crate::common::errno(pool.metadata("a\0b")), libc::EINVAL);
    assert_eq!(crate::common::errno(pool.symlink("a\0b", "l")), libc::EINVAL);
}

#[test]
fn errors_name_the_path() {
    let pool = crate::common::pool(16);
    let error = pool.open_file("no/such").unwrap_err();
    assert_eq!(error.path().unwrap().to_str(), Some("no/such"));
    assert_eq!(error.to_string(), "no/such: no such file or directory");
    let error = pool.rename("one", "other").unwrap_err();
    assert_eq!(error.to_string(), "one -> other: no such file or directory");
    pool.create_dir("d").unwrap();
    let linked = pool.hard_link("d", "other").unwrap_err();
    assert_eq!(linked.to_string(), "d -> other: a directory can't have another name");
    let told = std::io::Error::from(linked);
    assert_eq!((told.raw_os_error(), told.kind()), (Some(1), std::io::ErrorKind::PermissionDenied));
    let told = std::io::Error::from(error);
    assert_eq!((told.raw_os_error(), told.kind()), (Some(2), std::io::ErrorKind::NotFound));
}
