//! Many threads: what may be sent and shared, what is atomic to the others, names that are replaced
//! under those who look them up.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::common::{errno, pool};
use lode::{Error, File, OpenOptions, Pool, PoolOptions, ReadDir};

const fn shared<T: Send + Sync>() {}

const _: () = {
    shared::<Pool>();
    shared::<File>();
    shared::<ReadDir>();
    shared::<Error>();
    shared::<PoolOptions>();
};

/// Runs each of `works` in a thread, again and again until `others` is done.
fn meanwhile(works: &[&(dyn Fn() + Sync)], others: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for work in works {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    work();
                }
            });
        }
        others();
        done.store(true, Relaxed);
    });
}

#[test]
fn appends_never_overlap_and_are_whole() {
    let pool = pool(64);
    let each = 2000;
    thread::scope(|scope| {
        for number in 0..4u8 {
            let pool = &pool;
            scope.spawn(move || {
                let mut file =
                    pool.open_with("log", OpenOptions::new().append(true).create(true)).unwrap();
                for round in 0..each {
                    let line = [b'a' + number; 30];
                    if round % 2 == 0 {
                        file.append(&line).unwrap();
                    } else {
                        file.write_all(&line).unwrap();
                    }
                }
            });
        }
    });
    let log = pool.read("log").unwrap();
    assert_eq!(log.len(), 4 * each * 30);
    for line in log.chunks(30) {
        assert!(line.iter().all(|byte| *byte == line[0]), "{line:?}");
    }
}

#[test]
fn one_position_moves_as_a_whole() {
    let pool = pool(64);
    let file = pool.create_new("f").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| (&file).write_all(&[7; 10]).unwrap()));
        }
    });
    assert_eq!(pool.read("f").unwrap(), [7; 40_000]);
    let file = pool.open_file("f").unwrap();
    let total: usize = thread::scope(|scope| {
        let read = || {
            let mut all = Vec::new();
            (&file).read_to_end(&mut all).unwrap()
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert_eq!(total, 40_000);
}

#[test]
fn writes_are_atomic_to_those_who_read() {
    let pool = pool(64);
    let file = pool.create_new("f").unwrap();
    file.write_all_at(&[0; 50_000], 0).unwrap();
    let look = || {
        let mut bytes = vec![0; 50_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    };
    meanwhile(&[&look, &look], || {
        for round in 0..400 {
            file.write_all_at(&[round as u8; 50_000], 0).unwrap();
        }
    });
}

/// A link that is replaced by a rename leads to the one or to the other, at each moment.
#[test]
fn a_link_that_is_replaced_is_never_missing() {
    let pool = pool(64);
    for number in 0..2 {
        pool.create_dir(number.to_string()).unwrap();
        pool.write(format!("{number}/f"), number.to_string()).unwrap();
    }
    pool.symlink("0", "current").unwrap();
    let look = || {
        assert!(["0", "1"].contains(&&*pool.read_to_string("current/f").unwrap()));
        let target = pool.read_link("current").unwrap();
        assert!(["0", "1"].contains(&target.to_str().unwrap()));
        pool.canonicalize("current/f").unwrap();
    };
    let follow = || assert!(pool.metadata("current").unwrap().is_dir());
    meanwhile(&[&look, &follow, &follow], || {
        for round in 0..30_000 {
            pool.symlink((round % 2).to_string(), "new").unwrap();
            pool.rename("new", "current").unwrap();
        }
    });
}

#[test]
fn a_file_that_is_replaced_is_never_missing() {
    let pool = pool(64);
    pool.write("f", "0000").unwrap();
    let look = || {
        let text = pool.read_to_string("f").unwrap();
        assert!(text.len() == 4 && text.chars().all(|char| text.starts_with(char)), "{text}");
        pool.set_permissions("f", pool.metadata("f").unwrap().permissions()).unwrap();
        pool.get_xattr("f", "user.a").unwrap();
    };
    meanwhile(&[&look, &look], || {
        for round in 0..5000 {
            pool.write("new", (round % 10).to_string().repeat(4)).unwrap();
            pool.rename("new", "f").unwrap();
        }
    });
}

#[test]
fn one_makes_a_file_and_all_others_meet_it() {
    let pool = pool(64);
    for round in 0..500 {
        let name = format!("f{round}");
        let made: usize = thread::scope(|scope| {
            let make = || match pool.create_new(&name) {
                Ok(_) => 1,
                Err(error) => {
                    assert_eq!(error.errno(), libc::EEXIST);
                    0
                }
            };
            let open = || {
                let file =
                    pool.open_with(&name, OpenOptions::new().append(true).create(true)).unwrap();
                file.append(b"x").unwrap();
            };
            let others = [scope.spawn(open), scope.spawn(open)];
            let makers = [scope.spawn(make), scope.spawn(make)];
            others.into_iter().for_each(|other| other.join().unwrap());
            makers.into_iter().map(|maker| maker.join().unwrap()).sum()
        });
        assert!(made <= 1);
        assert_eq!(pool.read(&name).unwrap(), b"xx");
    }
}

/// The numbers of directories that end are given to others: who is on the way must not end up
/// there. (It takes being interrupted just between two names, for some milliseconds.)
#[test]
fn no_path_leads_into_another_directory() {
    let pool = pool(16);
    pool.create_dir("way").unwrap();
    let is_absence = |error: Error| assert_eq!(error.errno(), libc::ENOENT, "{error}");
    let look = || match pool.metadata("way/here/f") {
        Ok(found) => assert!(found.is_file(), "another directory's"),
        Err(error) => is_absence(error),
    };
    let change = || match pool.write("way/here/mine", "mine") {
        Ok(()) => pool.remove_file("way/here/mine").unwrap_or_else(is_absence),
        Err(error) => is_absence(error),
    };
    let works: [&(dyn Fn() + Sync); 5] = [&look, &look, &look, &change, &change];
    meanwhile(&works, || {
        for round in 0..15_000 {
            pool.create_dir("way/here").unwrap();
            pool.mknod("way/here/f", libc::S_IFREG, 0).unwrap();
            pool.remove_dir_all("way/here").unwrap();
            let other = format!("other{}", round % 3);
            pool.create_dir(&other).unwrap();
            pool.create_dir(format!("{other}/f")).unwrap();
            let names = pool.read_dir(&other).unwrap().count();
            assert_eq!(names, 1, "others' names are here");
            pool.remove_dir_all(&other).unwrap();
        }
    });
}

#[test]
fn trees_are_removed_by_several_at_a_time() {
    let pool = pool(64);
    for _ in 0..20 {
        for dir in 0..10 {
            pool.create_dir_all(format!("t/{dir}/sub")).unwrap();
            for file in 0..10 {
                pool.write(format!("t/{dir}/sub/{file}"), "").unwrap();
            }
        }
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| match pool.remove_dir_all("t") {
                    Ok(()) => {}
                    Err(error) => assert_eq!(error.errno(), libc::ENOENT, "{error}"),
                });
            }
        });
        assert_eq!(errno(pool.metadata("t")), libc::ENOENT);
    }
}
