//! What each operation costs in fences, persisted lines and streamed bytes equals the
//! budget of the design, counted at the door.

use std::fmt::Write as _;

use lode_engine::{
    Fallocate, FormatOptions, Ino, NewInode, OpenOptions, Pool, RenameMode, SetAttr, XattrChange,
    XattrWhen, mode,
};
use lode_testkit::fs::TestPool;
use lode_testkit::{Memory, TestHost};

const NEW: NewInode = NewInode { mode: mode::FILE | 0o644, uid: 1, gid: 1, rdev: 0 };
const NEW_DIR: NewInode = NewInode { mode: mode::DIRECTORY | 0o755, uid: 1, gid: 1, rdev: 0 };

fn pool(relaxed: bool) -> TestPool {
    let memory = Memory::new(64 << 20);
    let host = TestHost::new(1);
    let format = FormatOptions { lanes: 1, ..FormatOptions::default() };
    Pool::format(memory.clone(), host.clone(), &format).unwrap();
    let options = OpenOptions { relaxed, ..OpenOptions::default() };
    let pool = Pool::open(memory, host, &options).unwrap();
    // What only the first operations of a lane pay (its table's first piece) is over.
    let root = pool.root();
    pool.create(root, b"first", &NEW).unwrap();
    pool
}

/// The table as it is measured, and what is over budget.
#[derive(Default)]
struct Table {
    text: String,
    wrong: Vec<String>,
}

/// What an operation may cost.
#[derive(Clone)]
struct Cost {
    fences: u64,
    lines: std::ops::RangeInclusive<u64>,
    bytes: Option<std::ops::RangeInclusive<u64>>,
}

fn cost(fences: u64, lines: std::ops::RangeInclusive<u64>) -> Cost {
    Cost { fences, lines, bytes: Some(0..=0) }
}

impl Cost {
    fn bytes(self, bytes: std::ops::RangeInclusive<u64>) -> Self {
        Self { bytes: Some(bytes), ..self }
    }
}

impl Table {
    fn measure(&mut self, pool: &TestPool, name: &str, budget: Cost, op: impl FnOnce(&TestPool)) {
        let before = pool.stats().door;
        op(pool);
        let spent = pool.stats().door - before;
        let lines = &budget.lines;
        let range = if lines.start() == lines.end() {
            lines.start().to_string()
        } else {
            format!("{}-{}", lines.start(), lines.end())
        };
        writeln!(
            self.text,
            "{name:<44} {:>3} / {:<3} {:>4} / {range:<6} {:>9} {:>7}",
            spent.fences, budget.fences, spent.lines, spent.streamed_bytes, spent.windows,
        )
        .unwrap();
        let bytes = budget.bytes.is_none_or(|range| range.contains(&spent.streamed_bytes));
        if spent.fences > budget.fences || spent.lines > *lines.end() || !bytes {
            self.wrong.push(format!("{name}: {spent:?}"));
        }
    }
}

fn namespace_rows(table: &mut Table) {
    let pool = &pool(false);
    let root = pool.root();
    let dir = |name: &[u8]| pool.create(root, name, &NEW_DIR).unwrap().ino;
    // Fresh directories: their logs are short, no row pays for a roll-over.
    let (d, e, f) = (dir(b"d"), dir(b"e"), dir(b"f"));
    let mut row = |name: &str, lines, op: &dyn Fn(&TestPool)| {
        table.measure(pool, name, cost(1, lines), |pool| op(pool));
    };
    row("create", 3..=3, &|p| {
        p.create(d, b"file", &NEW).unwrap();
    });
    // A name in the directory is one line more.
    row("a file without a name", 2..=2, &|p| {
        p.create_nameless(d, &NEW, &[]).unwrap();
    });
    let nameless = pool.create_nameless(d, &NEW, &[]).unwrap().ino;
    row("link of one", 2..=2, &|p| {
        p.link(nameless, d, b"nameless").unwrap();
    });
    let nameless = pool.create_nameless(d, &NEW, &[]).unwrap().ino;
    row("the end of one", 1..=1, &|p| p.release(nameless));
    row("mkdir", 3..=3, &|p| {
        p.create(d, b"dir", &NEW_DIR).unwrap();
    });
    let fifo = NewInode { mode: mode::FIFO | 0o600, ..NEW };
    row("mknod", 3..=3, &|p| {
        p.create(d, b"fifo", &fifo).unwrap();
    });
    row("symlink, 16 bytes", 3..=3, &|p| {
        p.symlink(d, b"s", &[b't'; 16], 1, 1).unwrap();
    });
    let file = pool.lookup(d, b"file").unwrap().ino;
    let e2 = dir(b"e2");
    row("link", 2..=2, &|p| {
        p.link(file, e2, b"link").unwrap();
    });
    row("unlink, a link is left", 2..=2, &|p| p.unlink(e2, b"link").unwrap());
    pool.create(e2, b"file", &NEW).unwrap();
    row("unlink, the last link", 2..=2, &|p| p.unlink(e2, b"file").unwrap());
    let e3 = dir(b"e3");
    pool.create(e3, b"dir", &NEW_DIR).unwrap();
    row("rmdir", 2..=2, &|p| p.rmdir(e3, b"dir").unwrap());
    let rename = |p: &TestPool, from: Ino, name: &[u8], to: Ino, to_name: &[u8], how| {
        p.rename(from, name, to, to_name, how).unwrap();
    };
    let replace = RenameMode::Replace;
    let e4 = dir(b"e4");
    pool.create(e, b"1", &NEW).unwrap();
    pool.create(e4, b"2", &NEW).unwrap();
    pool.create(f, b"sub", &NEW_DIR).unwrap();
    let g = dir(b"g");
    pool.create(g, b"sub", &NEW_DIR).unwrap();
    row("rename, same directory", 2..=3, &|p| rename(p, e, b"1", e, b"one", replace));
    row("rename, other directory", 2..=3, &|p| rename(p, e4, b"2", f, b"two", replace));
    let h = dir(b"h");
    pool.create(h, b"two", &NEW).unwrap();
    row("rename, other directory, over a file", 2..=4, &|p| {
        rename(p, f, b"two", h, b"two", replace)
    });
    row("rename, directory over directory", 2..=4, &|p| rename(p, g, b"sub", f, b"sub", replace));
    let (i, j) = (dir(b"i"), dir(b"j"));
    pool.create(i, b"x", &NEW_DIR).unwrap();
    pool.create(j, b"y", &NEW).unwrap();
    row("rename, exchange", 2..=4, &|p| rename(p, i, b"x", j, b"y", RenameMode::Exchange));
    let chmod = SetAttr { mode: Some(0o600), uid: Some(7), ..SetAttr::default() };
    row("setattr", 1..=1, &|p| {
        p.setattr(file, &chmod).unwrap();
    });
    table.measure(pool, "lookup, getattr", cost(0, 0..=0), |p| {
        p.lookup(d, b"file").unwrap();
        p.getattr(file).unwrap();
    });
}

/// Extended attributes: a line, and one for each 40 bytes of name and value.
fn attribute_rows(table: &mut Table) {
    let pool = &pool(false);
    let root = pool.root();
    let file = |name: &[u8]| pool.create(root, name, &NEW).unwrap().ino;
    let name = b"user.name";
    let change = |value| XattrChange { name, value, when: XattrWhen::Always };
    let set = |p: &TestPool, ino, value| p.setxattr(ino, &change(value)).unwrap();
    let (short, other) = ([1; 31], [2; 31]);
    let (f, g, h, i) = (file(b"f"), file(b"g"), file(b"h"), file(b"i"));
    table.measure(pool, "setxattr, 40 bytes of name and value", cost(1, 2..=2), |p| {
        set(p, f, Some(&short))
    });
    table.measure(pool, "setxattr, over another", cost(1, 2..=2), |p| set(p, f, Some(&other)));
    set(pool, g, Some(&short));
    table.measure(pool, "removexattr", cost(1, 2..=2), |p| set(p, g, None));
    let long = vec![3; 8192];
    let budget = cost(2, 2..=2).bytes(8192..=8192);
    table.measure(pool, "setxattr, value of 8 KiB", budget, |p| set(p, h, Some(&long)));
    table.measure(pool, "getxattr, listxattr", cost(0, 0..=0), |p| {
        p.getxattr(h, name).unwrap();
        p.listxattr(h).unwrap();
    });
    let dir = pool.create(root, b"d", &NEW_DIR).unwrap().ino;
    table.measure(pool, "create, with an attribute", cost(1, 5..=5), |p| {
        p.create_with(dir, b"new", &NEW, &[change(Some(&short))]).unwrap();
    });
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    table.measure(pool, "setattr, with an attribute", cost(1, 3..=3), |p| {
        p.setattr_with(i, &chmod, &[change(Some(&short))]).unwrap();
    });
}

/// Bytes of a name in its entry.
const NAME_HEAD: usize = 16;
/// Bytes of a name in each line that follows it.
const NAME_LINE: usize = 40;
/// Lines of the log inside an inode, of which a directory's own record takes one.
const INLINE_LEFT: u64 = 5;

/// A long name costs a line for each 40 bytes behind the first 16. Where its lines do not
/// fit into what is left of a log's part, that is filled and the log rolls over: 2 lines.
fn long_name_rows(table: &mut Table) {
    for len in [16usize, 17, 56, 57, 96, 136, 137, 176, 177, 216, 217, 255] {
        let more = len.saturating_sub(NAME_HEAD).div_ceil(NAME_LINE) as u64;
        let pool = pool(false);
        let new_dir = |name: &[u8]| pool.create(pool.root(), name, &NEW_DIR).unwrap().ino;
        let (short, long) = (new_dir(b"short"), new_dir(b"long"));
        for step in 0..8 {
            pool.create(long, &[b'a' + step], &NEW).unwrap();
        }
        let rolls = 1 + more > INLINE_LEFT;
        let roll = if rolls { 2 + INLINE_LEFT } else { 0 };
        let note = if rolls { ", and a roll-over" } else { "" };
        for (dir, lines, note) in [(long, 3 + more, ""), (short, 3 + more + roll, note)] {
            let name = format!("create, name of {len} bytes{note}");
            let before = pool.stats().door.lines;
            table.measure(&pool, &name, cost(1, lines..=lines), |p| {
                p.create(dir, &vec![b'n'; len], &NEW).unwrap();
            });
            let spent = pool.stats().door.lines - before;
            if spent != lines {
                table.wrong.push(format!("{name}: {spent} lines, exactly {lines} expected"));
            }
        }
    }
}

fn data_rows(table: &mut Table) {
    let pool = &pool(false);
    let file = |name: &[u8]| pool.create(pool.root(), name, &NEW).unwrap().ino;
    let page = vec![7u8; 4096];
    let f = file(b"f");
    let write = |p: &TestPool, at: u64, len: usize| p.write(f, at, &vec![9; len]).unwrap();
    table.measure(pool, "append 4 KiB", cost(2, 1..=1).bytes(4096..=4096), |p| {
        p.append(f, &page).unwrap();
    });
    table
        .measure(pool, "overwrite 4 KiB", cost(2, 1..=1).bytes(4096..=4096), |p| write(p, 0, 4096));
    let g = file(b"g");
    pool.write(g, 0, &[1; 100]).unwrap();
    table.measure(
        pool,
        "append 100 B inside the last page",
        cost(2, 1..=1).bytes(100..=100),
        |p| {
            p.append(g, &[2; 100]).unwrap();
        },
    );
    table.measure(pool, "truncate to less", cost(1, 1..=1), |p| {
        p.setattr(f, &SetAttr { size: Some(100), ..SetAttr::default() }).unwrap();
    });
    let h = file(b"h");
    pool.write(h, 0, &vec![3; 16_384]).unwrap();
    // Journalled: the new bytes are streamed, then written home by cached lines.
    table.measure(pool, "overwrite 512 B", cost(2, 1..=9).bytes(512..=512), |p| {
        p.write(h, 4096 + 512, &[4; 512]).unwrap();
    });
    // Through the sector journal: the new bytes twice, and the line that tells of them. (The first makes the journal.)
    let by_sectors = file(b"sectors");
    pool.write(by_sectors, 0, &vec![3; 16_384]).unwrap();
    pool.write_sectors(by_sectors, 0, &[6; 512]).unwrap();
    for (bytes, at) in [(4096, 4096), (512, 8192)] {
        let name = format!("write {bytes} B by sectors");
        table.measure(pool, &name, cost(3, 1..=1).bytes(2 * bytes..=2 * bytes), |p| {
            p.write_sectors(by_sectors, at, &vec![6; bytes as usize]).unwrap();
        });
    }
    table.measure(pool, "read 16 KiB", cost(0, 0..=0), |p| {
        assert_eq!(p.read(h, 0, &mut vec![0; 16_384]).unwrap(), 16_384);
    });
    table.measure(pool, "write 1 MiB", cost(2, 1..=3).bytes(1 << 20..=1 << 20), |p| {
        p.write(h, 0, &vec![5; 1 << 20]).unwrap();
    });
    let i = file(b"i");
    let zeros = cost(2, 1..=2).bytes(0..=1 << 20);
    table.measure(pool, "fallocate 1 MiB", zeros, |p| {
        p.fallocate(i, Fallocate::Allocate { keep_size: false }, 0, 1 << 20).unwrap();
    });
    table.measure(pool, "punch a hole of 64 KiB", cost(1, 1..=1), |p| {
        p.fallocate(i, Fallocate::Punch, 65_536, 65_536).unwrap();
    });
}

fn relaxed_rows(table: &mut Table) {
    let pool = &pool(true);
    let file = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    pool.write(file, 0, &vec![1; 16_384]).unwrap();
    for len in [512usize, 4096] {
        let name = format!("relaxed: overwrite {len} B in place");
        let budget = cost(2, 0..=1).bytes(len as u64..=len as u64);
        table.measure(pool, &name, budget, |p| p.write(file, 4096, &vec![2; len]).unwrap());
    }
}

/// The dearest of many equal operations pays for a new log page: 2 lines and no fence.
fn roll_over_row(table: &mut Table) {
    let pool = pool(false);
    let file = pool.create(pool.root(), b"f", &NEW).unwrap().ino;
    let mut worst = (0, 0);
    let mut rolled = 0;
    for step in 0..300u64 {
        let before = pool.stats().door;
        pool.write(file, step * 8192, &[1; 4096]).unwrap();
        let spent = pool.stats().door - before;
        worst = (worst.0.max(spent.fences), worst.1.max(spent.lines));
        rolled += u64::from(spent.lines > 1);
    }
    writeln!(
        table.text,
        "append 4 KiB when the log rolls over ({rolled:>2} times) {:>3} / 2   {:>4} / 3",
        worst.0, worst.1
    )
    .unwrap();
    if worst.0 > 2 || worst.1 > 3 || !(3..=8).contains(&rolled) {
        table.wrong.push(format!("roll-over: worst {worst:?}, {rolled} times in 300"));
    }
}

/// Table growth: a new piece of inode table is zeroed and fenced before it is linked.
fn table_growth_row(table: &mut Table) {
    let pool = pool(false);
    let dir = pool.create(pool.root(), b"many", &NEW_DIR).unwrap().ino;
    let (mut dearest, mut grown) = (pool.stats().door, 0);
    let mut most_fences = 0;
    for step in 0..6000 {
        let before = pool.stats().door;
        pool.create(dir, format!("{step}").as_bytes(), &NEW).unwrap();
        let spent = pool.stats().door - before;
        if spent.fences > 1 {
            grown += 1;
        }
        if spent.fences > most_fences {
            (most_fences, dearest) = (spent.fences, spent);
        }
    }
    writeln!(
        table.text,
        "create when the table grows ({grown:>2} of 6000)        {:>3} / 3   {:>4} / 8   {:>9}",
        dearest.fences, dearest.lines, dearest.streamed_bytes
    )
    .unwrap();
    if most_fences > 3 || dearest.lines > 8 || grown > 20 {
        table.wrong.push(format!("table growth: {grown} times, {dearest:?}"));
    }
}

/// A round is one fence and a line for each lane in use that has moved since the last.
fn round_row(table: &mut Table) {
    let pool = pool(false);
    for step in 0..50 {
        let name = format!("{step}");
        pool.create(pool.root(), name.as_bytes(), &NEW).unwrap();
        pool.unlink(pool.root(), name.as_bytes()).unwrap();
    }
    let rounds = |pool: &TestPool| pool.stats().ops[lode_engine::Op::Round as usize];
    for (name, wanted) in [("round, 1 lane has moved", 1), ("no round, nothing has moved", 0)] {
        let (rounds_before, before) = (rounds(&pool), pool.stats().door);
        table.measure(&pool, name, cost(wanted, wanted..=wanted), |p| p.maintain().unwrap());
        let spent = pool.stats().door - before;
        let done = rounds(&pool) - rounds_before;
        if (done, spent.fences, spent.lines) != (wanted, wanted, wanted) {
            table.wrong.push(format!("{name}: {done} rounds, {spent:?}"));
        }
    }
}

fn papers_rows(table: &mut Table) {
    let pool = &pool(false);
    let root = pool.root();
    let d = pool.create(root, b"d", &NEW_DIR).unwrap().ino;
    let lines = |op: &dyn Fn()| {
        let before = pool.stats().door.lines;
        op();
        (pool.stats().door.lines - before) * 64
    };
    let touch = lines(&|| {
        pool.create(d, b"touch", &NEW).unwrap();
    });
    let mkdir = lines(&|| {
        pool.create(d, b"mkdir", &NEW_DIR).unwrap();
    });
    let mv = lines(&|| pool.rename(d, b"touch", d, b"mv", RenameMode::Replace).unwrap());
    writeln!(table.text, "\nmetadata bytes persisted    PMFS (its Table 3)    Lode").unwrap();
    for (name, pmfs, lode) in [("touch", 512, touch), ("mkdir", 320, mkdir), ("mv", 384, mv)] {
        writeln!(table.text, "{name:<27} {pmfs:<21} {lode}").unwrap();
        if lode > pmfs {
            table.wrong.push(format!("{name}: {lode} bytes, PMFS needs {pmfs}"));
        }
    }
}

#[test]
fn every_operation_costs_what_the_design_says() {
    let mut table = Table::default();
    writeln!(
        table.text,
        "{:<44} {:<9} {:<13} {:>9} {:>7}",
        "operation (spent / budget)", "fences", "lines", "streamed", "windows"
    )
    .unwrap();
    namespace_rows(&mut table);
    long_name_rows(&mut table);
    attribute_rows(&mut table);
    data_rows(&mut table);
    relaxed_rows(&mut table);
    roll_over_row(&mut table);
    table_growth_row(&mut table);
    round_row(&mut table);
    papers_rows(&mut table);
    println!("{}", table.text);
    assert!(table.wrong.is_empty(), "over budget:\n{}", table.wrong.join("\n"));
}
