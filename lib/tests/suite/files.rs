//! Open files do what std's do on a tmpfs.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::common::script::{Twin, number};
use crate::common::{errno, pool};
use lode::OpenOptions;

/// What std and the library can both be asked of an open file.
trait Handle: Read + Write + Seek + Sized {
    fn at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
    fn exactly_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
    fn put_at(&self, data: &[u8], offset: u64) -> io::Result<usize>;
    fn cut(&self, size: u64) -> io::Result<()>;
    fn size(&self) -> io::Result<u64>;
    fn links(&self) -> io::Result<u64>;
    fn again(&self) -> io::Result<Self>;
}

impl Handle for fs::File {
    fn at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(into, offset)
    }
    fn exactly_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }
    fn put_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        self.write_at(data, offset)
    }
    fn cut(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn links(&self) -> io::Result<u64> {
        Ok(self.metadata()?.nlink())
    }
    fn again(&self) -> io::Result<Self> {
        self.try_clone()
    }
}

impl Handle for lode::File {
    fn at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.read_at(into, offset)?)
    }
    fn exactly_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        Ok(self.read_exact_at(into, offset)?)
    }
    fn put_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        Ok(self.write_at(data, offset)?)
    }
    fn cut(&self, size: u64) -> io::Result<()> {
        Ok(self.set_len(size)?)
    }
    fn size(&self) -> io::Result<u64> {
        assert_eq!(self.len()?, self.metadata()?.len());
        Ok(self.len()?)
    }
    fn links(&self) -> io::Result<u64> {
        Ok(self.metadata()?.nlink())
    }
    fn again(&self) -> io::Result<Self> {
        Ok(self.try_clone()?)
    }
}

/// Outcomes, as text.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn note<T: std::fmt::Debug>(&mut self, what: &str, done: io::Result<T>) {
        // What std says without a number has a kind.
        let told = done.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "the end".to_owned(),
            _ => number(&error).to_string(),
        });
        self.0.push(format!("{what}: {told:?}"));
    }
}

/// All there is to do with a file that is open in some way.
fn exercise(mut file: impl Handle) -> Vec<String> {
    let mut notes = Notes::default();
    let mut some = [0; 7];
    notes.note("read", file.read(&mut some).map(|read| some[..read].to_vec()));
    notes.note("read none", file.read(&mut []));
    notes.note("write", file.write(b"WRITE"));
    notes.note("write none", file.write(b""));
    notes.note("position", file.stream_position());
    notes.note("read at", file.at(&mut some, 3).map(|read| some[..read].to_vec()));
    notes.note("write at", file.put_at(b"AT", 2));
    notes.note("position", file.stream_position());
    notes.note("end", file.seek(SeekFrom::End(0)));
    notes.note("read at end", file.read(&mut some));
    notes.note("behind", file.seek(SeekFrom::Current(100)));
    notes.note("read behind", file.read(&mut some));
    notes.note("write behind", file.write(b"behind a hole"));
    notes.note("position", file.stream_position());
    for to in [
        SeekFrom::Current(-1000),
        SeekFrom::End(-1000),
        SeekFrom::Start(u64::MAX),
        SeekFrom::Start(i64::MAX as u64),
        SeekFrom::Current(1),
        SeekFrom::Current(i64::MAX),
        SeekFrom::Current(i64::MIN),
        SeekFrom::End(i64::MAX),
        SeekFrom::End(-3),
    ] {
        notes.note(&format!("{to:?}"), file.seek(to));
    }
    notes.note("rest", file.read(&mut some).map(|read| some[..read].to_vec()));
    notes.note("cut", file.cut(5));
    notes.note("position", file.stream_position());
    notes.note("size", file.size());
    notes.note("grow", file.cut(9));
    notes.note("too large", file.cut(u64::MAX));
    notes.note("exactly", file.exactly_at(&mut some, 2).map(|()| some.to_vec()));
    notes.note("too many", file.exactly_at(&mut some, 3));
    notes.note("flush", file.flush());
    let (clone, mut text) = (file.again().unwrap(), String::new());
    notes.note("rewind", file.rewind());
    let mut clone = clone;
    notes.note("clone", clone.read_to_string(&mut text).map(|_| text));
    notes.note("position", file.stream_position());
    notes.note("clone writes", clone.write_all(b"clone"));
    drop(clone);
    notes.note("position", file.stream_position());
    notes.note("size", file.size());
    notes.0
}

#[test]
fn files_opened_in_any_way_do_what_std_does() {
    let ways = [
        (true, false, false),
        (false, true, false),
        (true, true, false),
        (false, false, true),
        (true, false, true),
        (true, true, true),
    ];
    for (read, write, append) in ways {
        let twin = Twin::new();
        twin.run("write f contents-of-a-file");
        let mut options = fs::OpenOptions::new();
        options.read(read).write(write).append(append);
        let wanted = exercise(options.open(twin.at("f")).unwrap());
        let mut options = OpenOptions::new();
        options.read(read).write(write).append(append);
        let found = exercise(twin.pool.open_with("f", &options).unwrap());
        for (wanted, found) in wanted.iter().zip(&found) {
            assert_eq!(found, wanted, "read {read}, write {write}, append {append}");
        }
        twin.compare("writing");
    }
}

#[test]
fn directories_that_are_open_are_no_files() {
    let twin = Twin::new();
    twin.run("mkdir d");
    let mut wanted = fs::File::open(twin.at("d")).unwrap();
    let mut found = twin.pool.open_file("d").unwrap();
    let mut some = [0; 4];
    let same = |wanted: io::Result<()>, found: io::Result<()>| {
        assert_eq!(number(&found.unwrap_err()), number(&wanted.unwrap_err()));
    };
    same(wanted.read(&mut some).map(drop), found.read(&mut some).map(drop));
    same(wanted.write(b"x").map(drop), found.write(b"x").map(drop));
    same(wanted.set_len(1), found.set_len(1).map_err(Into::into));
    same(wanted.at(&mut some, 0).map(drop), found.at(&mut some, 0).map(drop));
    assert!(found.metadata().unwrap().is_dir());
    assert_eq!(errno(found.link("other")), libc::EPERM);
}

#[test]
fn appends_of_two_handles_go_to_the_end() {
    let twin = Twin::new();
    let mut wanted = Vec::new();
    for _ in 0..2 {
        let mut options = fs::OpenOptions::new();
        wanted.push(options.append(true).create(true).open(twin.at("f")).unwrap());
    }
    let mut found = Vec::new();
    for _ in 0..2 {
        let mut options = OpenOptions::new();
        found.push(twin.pool.open_with("f", options.append(true).create(true)).unwrap());
    }
    for round in 0..20 {
        let text = format!("round {round}\n");
        wanted[round % 2].write_all(text.as_bytes()).unwrap();
        found[round % 2].write_all(text.as_bytes()).unwrap();
        let positions = (wanted[round % 2].stream_position(), found[round % 2].stream_position());
        assert_eq!(positions.0.unwrap(), positions.1.unwrap());
    }
    twin.compare("appending");
    let file = twin.pool.open_with("f", OpenOptions::new().write(true)).unwrap();
    let size = file.len().unwrap();
    assert_eq!(file.append(b"by call").unwrap(), size);
    assert_eq!(file.append(b"").unwrap(), size + 7);
}

#[test]
fn what_is_open_is_kept_when_its_name_goes() {
    let twin = Twin::new();
    twin.run("write f contents\nwrite g other\nwrite h third");
    let wanted = fs::OpenOptions::new().read(true).write(true).open(twin.at("f")).unwrap();
    let found = twin.pool.open_with("f", OpenOptions::new().read(true).write(true)).unwrap();
    twin.run("unlink f\nwrite f new");
    assert_eq!((found.links().unwrap(), wanted.links().unwrap()), (0, 0));
    assert_eq!(exercise(found), exercise(wanted));
    // Replaced by another file.
    let found = twin.pool.open_file("g").unwrap();
    twin.run("rename h g");
    let mut text = String::new();
    (&found).read_to_string(&mut text).unwrap();
    assert_eq!(text, "other");
    assert_eq!(errno(found.link("again")), libc::ENOENT, "its last name is gone");
    let before = twin.pool.statfs().unwrap().inodes;
    drop(found);
    assert_eq!(twin.pool.statfs().unwrap().inodes, before - 1);
    twin.compare("unlinking");
}

#[test]
fn a_file_without_a_name_gets_one_or_ends() {
    let pool = pool(16);
    pool.create_dir("d").unwrap();
    pool.write("there", "x").unwrap();
    let inodes = || pool.statfs().unwrap().inodes;
    let before = inodes();
    let file = pool.temporary("d").unwrap();
    file.write_all_at(b"whole", 0).unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), inodes()), (0, before + 1));
    drop(file);
    assert_eq!(inodes(), before);
    let file = pool.temporary("d").unwrap();
    file.append(b"whole").unwrap();
    assert_eq!(errno(file.link("there")), libc::EEXIST);
    assert_eq!(errno(file.link("d/no/such")), libc::ENOENT);
    file.link("d/named").unwrap();
    file.link("second").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    assert_eq!(pool.read_to_string("d/named").unwrap(), "whole");
    assert_eq!(errno(pool.temporary("there")), libc::ENOTDIR);
    assert_eq!(errno(pool.temporary("missing")), libc::ENOENT);
}

#[test]
fn space_is_allocated_punched_zeroed_and_found() {
    let pool = pool(16);
    let file = pool.create_new("f").unwrap();
    file.allocate(0, 8192, true).unwrap();
    let found = file.metadata().unwrap();
    assert_eq!((found.len(), found.blocks()), (0, 16));
    file.allocate(0, 8192, false).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.write_all_at(&[2; 4096], 65536).unwrap();
    assert_eq!(file.seek_hole(0).unwrap(), 8192);
    assert_eq!(file.seek_data(8192).unwrap(), 65536);
    assert_eq!(file.seek_hole(65536).unwrap(), 65536 + 4096);
    assert_eq!(errno(file.seek_data(65536 + 4096)), libc::ENXIO);
    file.punch_hole(0, 4096).unwrap();
    assert_eq!(file.seek_data(0).unwrap(), 4096);
    file.zero_range(4096, 100, true).unwrap();
    let mut some = [9; 200];
    file.read_exact_at(&mut some, 4096).unwrap();
    assert_eq!(some, [[0; 100], [1; 100]].concat()[..]);
    file.zero_range(65536, 8192, false).unwrap();
    assert_eq!(file.len().unwrap(), 65536 + 8192);
    assert_eq!(errno(file.allocate(0, 0, false)), libc::EINVAL);
    assert_eq!(errno(file.allocate(u64::MAX, 1, false)), libc::EINVAL);
    assert_eq!(errno(file.allocate(i64::MAX as u64, 1, false)), libc::EFBIG);
    let reader = pool.open_file("f").unwrap();
    assert_eq!(errno(reader.punch_hole(0, 1)), libc::EBADF);
}

#[test]
fn ranges_are_copied_inside_a_pool() {
    let pool = pool(32);
    let (from, to) = (pool.create_new("from").unwrap(), pool.create_new("to").unwrap());
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    from.write_all_at(&bytes, 0).unwrap();
    assert_eq!(from.copy_range(1000, &to, 10, 2_500_000).unwrap(), 2_500_000);
    let mut copied = vec![0; 2_500_000];
    to.read_exact_at(&mut copied, 10).unwrap();
    assert!(copied == bytes[1000..2_501_000]);
    assert_eq!(from.copy_range(2_999_990, &to, 0, 100).unwrap(), 10);
    assert_eq!(from.copy_range(3_000_000, &to, 0, 100).unwrap(), 0);
    assert_eq!(errno(from.copy_range(0, &from, 50, 100)), libc::EINVAL);
    assert_eq!(from.copy_range(0, &from, 3_000_000, 100).unwrap(), 100);
    let reader = pool.open_file("to").unwrap();
    assert_eq!(errno(from.copy_range(0, &reader, 0, 1)), libc::EBADF);
    let other = crate::common::pool(16).create_new("x").unwrap();
    assert_eq!(errno(from.copy_range(0, &other, 0, 1)), libc::EXDEV);
}

#[test]
fn large_writes_are_one_step() {
    let pool = pool(64);
    let file = pool.create_new("f").unwrap();
    let bytes = vec![7; 20 << 20];
    let fences = || pool.stats().unwrap().door.fences;
    let before = fences();
    assert_eq!(file.write_at(&bytes, 100).unwrap(), bytes.len());
    assert_eq!(fences() - before, 2, "the data, and the records");
    assert_eq!(file.len().unwrap(), (20 << 20) + 100);
}

#[test]
fn files_without_names_are_made_by_the_flags_that_make_them_elsewhere() {
    use std::os::unix::fs::OpenOptionsExt;
    let (pool, scratch) = (crate::common::pool(16), crate::common::scratch());
    let flags = [
        libc::O_TMPFILE,
        libc::O_TMPFILE & !libc::O_DIRECTORY,
        libc::O_TMPFILE | libc::O_NOFOLLOW | libc::O_NOATIME | libc::O_SYNC,
    ];
    for flags in flags {
        for (bits, make) in (0..16).flat_map(|bits| [(bits, true), (bits, false)]) {
            let [read, write, append, truncate] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            let mut theirs = std::fs::OpenOptions::new();
            theirs.read(read).write(write).append(append).truncate(truncate).create(make);
            let theirs = theirs.mode(0o600).custom_flags(flags).open(scratch.path());
            let mut ours = OpenOptions::new();
            ours.read(read).write(write).append(append).truncate(truncate).create(make);
            let ours = pool.open_with("/", ours.mode(0o600).custom_flags(flags));
            let number = |error: &std::io::Error| error.raw_os_error().unwrap_or(libc::EINVAL);
            assert_eq!(
                ours.as_ref().map(drop).map_err(lode::Error::errno),
                theirs.as_ref().map(drop).map_err(number),
                "{flags:#o} {bits:#b} {make}"
            );
        }
    }
    let once = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE | libc::O_EXCL).clone();
    assert_eq!(errno(pool.open_with("/", &once).unwrap().link("never")), libc::ENOENT);
    let mut appends = OpenOptions::new();
    let file = pool.open_with("/", appends.append(true).custom_flags(libc::O_TMPFILE)).unwrap();
    file.write_all_at(b"one", 0).unwrap();
    file.write_all_at(b"two", 0).unwrap();
    file.link("named").unwrap();
    assert_eq!(pool.read("named").unwrap(), b"onetwo");
    assert_eq!(errno(file.read_at(&mut [0], 0)), libc::EBADF);
}
