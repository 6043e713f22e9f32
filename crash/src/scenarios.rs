//! Sequences that go where crash bugs of file systems have been.

/// A sequence, and the pool it runs on.
pub struct Scenario {
    /// What it is about.
    pub name: &'static str,
    /// Size of the pool.
    pub kib: u64,
    /// Lanes, and CPUs.
    pub lanes: u32,
    /// Pages of 2 MiB.
    pub huge: bool,
    /// Data in place.
    pub relaxed: bool,
    /// Done before the power may fail.
    pub before: fn() -> String,
    /// Operations between semicolons.
    pub ops: &'static str,
}

const PLAIN: Scenario = Scenario {
    name: "",
    kib: 1024,
    lanes: 1,
    huge: false,
    relaxed: false,
    before: String::new,
    ops: "",
};

/// `text` as often as `times` says, `#` in it replaced by the number.
fn repeated(times: u64, text: &str) -> String {
    (0..times)
        .map(|number| text.replace('#', &number.to_string()).replace(';', "\n") + "\n")
        .collect()
}

/// A write of the page with this number; every other page of the file stays a hole.
fn page(number: u64, fill: u64) -> String {
    format!("write /k {} 4096 {fill}\n", number * 8192)
}

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &[
    // Without operations, it is the making of the pool that is cut off.
    Scenario { name: "a pool is made where one was", kib: 128, lanes: 2, ..PLAIN },
    Scenario {
        name: "create and unlink the same name",
        ops: "create /a 33188 0;unlink /a;create /a 33188 0;unlink /a;maintain;create /a 33188 0",
        ..PLAIN
    },
    Scenario {
        name: "rename over",
        ops: "create /a 33188 0;write /a 0 3000 1;create /b 33188 0;write /b 0 100 2;\
              rename /a /b replace;create /a 33188 0;rename /b /a exchange;rename /a /b replace",
        ..PLAIN
    },
    Scenario {
        name: "rename between directories",
        lanes: 2,
        ops: "create /d 16877 0;create /e 16877 0;create /d/a 33188 0;write /d/a 0 10 1;\
              rename /d/a /e/a replace;create /d/a 33188 0;rename /e/a /d/a replace;\
              rename /d/a /e/b noreplace;create /d/c 33188 0;rename /d/c /e/b exchange",
        ..PLAIN
    },
    Scenario {
        name: "directory moves",
        lanes: 2,
        ops: "create /d 16877 0;create /e 16877 0;create /d/x 16877 0;create /d/x/f 33188 0;\
              rename /d/x /e/x replace;rename /e/x /x replace;rename /x /d/x replace;\
              create /e/x 16877 0;rename /d/x /e/x replace;create /d/y 16877 0;\
              rename /d/y /e/x exchange;rmdir /e/x;rename /d /e/d replace",
        ..PLAIN
    },
    Scenario {
        name: "links",
        lanes: 2,
        ops: "create /a 33188 0;link /a /b;link /a /c;unlink /a;unlink /b;write /c 0 100 1;\
              rename /c /d replace;link /d /e;rename /d /e replace;rename /e /d replace;unlink /d",
        ..PLAIN
    },
    Scenario {
        name: "append inside a page",
        ops: "create /a 33188 0;append /a 100 1;append /a 1 2;append /a 63 3;append /a 7 4;\
              append /a 4000 5;append /a 30 6;setattr /a size=4090;append /a 3 7;append /a 9 8",
        ..PLAIN
    },
    Scenario {
        name: "overwrites, then truncate and extend",
        ops: "create /a 33188 0;write /a 0 8192 1;write /a 512 512 2;write /a 512 512 3;\
              setattr /a size=700;setattr /a size=4096;write /a 100 300 4;setattr /a size=0;\
              setattr /a size=3000;write /a 0 2000 5;write /a 10 20 6;write /a 15 20 7",
        ..PLAIN
    },
    Scenario {
        name: "odd edges on pages that held something",
        kib: 160,
        before: || {
            "create /a 33188 0\nwrite /a 0 53248 1\nunlink /a\nmaintain\n".to_owned()
                + "create /b 33188 0\ncreate /c 33188 0\n"
        },
        ops: "write /b 0 101 2;setattr /b size=4000;write /b 13 3001 3;write /b 4003 2050 4;\
              write /c 5 2060 5;setattr /c size=4097;write /c 11 4091 6;append /b 4097 7",
        ..PLAIN
    },
    Scenario {
        name: "overwrite, unlink, pages used again",
        kib: 160,
        ops: "create /a 33188 0;write /a 0 8192 1;write /a 512 512 2;unlink /a;\
              create /b 33188 0;write /b 0 12288 3;write /b 4096 512 4;create /c 33188 0;\
              write /c 0 8192 5;setattr /b size=0;write /c 0 12288 6;write /c 600 600 7;\
              write /c 0 4096 8;write /b 0 8192 9",
        ..PLAIN
    },
    Scenario {
        name: "a log goes from the inode to a page",
        ops: "create /a 33188 0;setattr /a mode=1;setattr /a mode=2;setattr /a mode=3;\
              setattr /a mode=4;setattr /a mode=5;setattr /a mode=6;setattr /a mode=7;\
              create /b 33188 0;create /c 33188 0;create /d 33188 0;create /e 33188 0;\
              create /f 33188 0;unlink /a",
        ..PLAIN
    },
    Scenario {
        name: "a log goes from page to page",
        before: || "create /a 33188 0\n".to_owned() + &repeated(65, "link /a /l#"),
        ops: "unlink /l3;link /a /x;link /a /y;unlink /x;unlink /y;rename /l4 /z replace",
        ..PLAIN
    },
    Scenario {
        name: "long names at the end of a page",
        before: || "create /a 33188 0\n".to_owned() + &repeated(58, "link /a /l#"),
        ops: "link /a /%=0.97;link /a /%=1.255;unlink /%=0.97;rename /%=1.255 /%=2.200 replace;\
              symlink /%=0.56 %=1.136;symlink /%=0.57 %=1.137",
        ..PLAIN
    },
    Scenario {
        name: "long names at the end of an inode",
        ops: "create /%=0.100 33188 0;create /%=1.200 16877 0;create /%=1.200/%=0.250 33188 0;\
              rename /%=0.100 /%=1.200/%=0.250 replace;create /%=1.200/%=0.17 33188 0",
        ..PLAIN
    },
    Scenario {
        name: "many short-lived links",
        before: || {
            "create /a 33188 0\ncreate /k 33188 0\n".to_owned()
                + &repeated(60, "link /a /l#;unlink /l#")
        },
        ops: "link /k /m1;unlink /m1;link /k /m2;unlink /m2;link /k /m3;unlink /m3;maintain;\
              link /k /m4;unlink /m4;link /k /m5",
        ..PLAIN
    },
    Scenario {
        name: "fast collection",
        kib: 2048,
        before: || {
            let first: String = (0..130).map(|number| page(number, number)).collect();
            let again: String = (5..66).map(|number| page(number, 200 + number)).collect();
            "create /k 33188 0\n".to_owned() + &first + &again
        },
        ops: "write /k 540672 4096 1;write /k 548864 4096 2;write /k 557056 4096 3;\
              write /k 565248 4096 4;maintain;write /k 0 4096 5",
        ..PLAIN
    },
    Scenario {
        name: "thorough collection to several pages",
        kib: 2048,
        before: || {
            let first: String = (0..80).map(|number| page(number, number)).collect();
            let again: String = (0..78).map(|number| page(70, 200 + number)).collect();
            "create /k 33188 0\n".to_owned() + &first + &again
        },
        ops: "write /k 8192 4096 1;write /k 8192 4096 2;write /k 8192 4096 3;write /k 8192 4096 4;\
              write /k 8192 4096 5;write /k 8192 4096 6;write /k 8192 4096 7;write /k 8192 4096 8;\
              write /k 16384 512 9;setattr /k size=100000",
        ..PLAIN
    },
    Scenario {
        name: "thorough collection",
        before: || {
            "create /k 33188 0\n".to_owned()
                + &repeated(120, "create /a# 33188 0")
                + &repeated(70, "unlink /a#")
        },
        ops: "unlink /a71;unlink /a72;unlink /a73;maintain;unlink /a74;unlink /a75;create /n 33188 0;\
              unlink /a76;unlink /a77;unlink /a78;unlink /a79;unlink /a80",
        ..PLAIN
    },
    Scenario {
        name: "collection of a file's log",
        before: || {
            "create /k 33188 0\nwrite /k 0 40000 1\n".to_owned()
                + &repeated(118, "write /k #00 4096 #")
        },
        ops: "write /k 0 9000 2;write /k 8192 4096 3;write /k 4096 4096 4;write /k 0 4096 5;\
              setattr /k size=9000;write /k 512 512 6;write /k 0 4096 8;write /k 0 4096 9;\
              write /k 512 512 10;write /k 0 4096 11;write /k 0 4096 12;write /k 0 4096 13",
        ..PLAIN
    },
    Scenario {
        name: "inode slots are used again after a round",
        lanes: 2,
        before: || repeated(8, "create /a# 33188 0"),
        ops: "unlink /a0;unlink /a1;maintain;create /b 33188 0;create /c 16877 0;unlink /a2;\
              rename /a3 /a4 replace;maintain;create /d 33188 0;create /e 33188 0;write /e 0 9 1",
        ..PLAIN
    },
    Scenario {
        name: "the inode table grows and shrinks",
        before: || repeated(58, "create /a# 33188 0"),
        ops: "create /b0 33188 0;create /b1 33188 0;create /b2 33188 0;create /b3 33188 0;\
              create /b4 33188 0;create /b5 33188 0;create /b6 33188 0;create /b7 33188 0;\
              unlink /b0;unlink /b1;unlink /b2;unlink /b3;unlink /b4;unlink /b5;unlink /b6;\
              unlink /b7;maintain;create /b8 33188 0",
        ..PLAIN
    },
    Scenario {
        name: "the inode table of a small pool grows and shrinks",
        kib: 192,
        before: || repeated(5, "create /a# 33188 0"),
        ops: "create /b0 33188 0;create /b1 33188 0;create /b2 33188 0;create /b3 33188 0;\
              create /b4 33188 0;unlink /b0;unlink /b1;unlink /b2;unlink /b3;unlink /b4;\
              unlink /a0;unlink /a1;unlink /a2;maintain;create /b8 33188 0;write /b8 0 20000 1",
        ..PLAIN
    },
    Scenario {
        name: "a dead inode's log pages are used again",
        kib: 160,
        ops: "create /a 33188 0;link /a /b;unlink /b;link /a /b;unlink /b;link /a /b;unlink /b;\
              link /a /b;unlink /a;unlink /b;create /c 33188 0;write /c 0 40000 1;\
              write /c 40960 60000 2;maintain",
        ..PLAIN
    },
    Scenario {
        name: "one lane is ahead of the other",
        lanes: 2,
        // Every other operation is one without a transaction: the odd ones are the second lane's.
        ops: "create /a 33188 0;maintain;create /b 33188 0;maintain;unlink /a;maintain;maintain;\
              create /c 33188 0;maintain;link /c /d;maintain;rename /c /d replace",
        ..PLAIN
    },
    Scenario {
        name: "logs on pages that held data",
        kib: 160,
        before: || {
            "create /a 33188 0\nwrite /a 0 94208 1\nunlink /a\nmaintain\n".to_owned()
                + "create /b 33188 0\n"
                + &repeated(5, "setattr /b mode=#")
        },
        ops: "setattr /b mode=1;setattr /b mode=2;setattr /b mode=3;create /c 33188 0;link /b /d;\
              link /b /e;link /b /f;unlink /d;link /b /g;link /b /h;link /b /i;link /b /j",
        ..PLAIN
    },
    Scenario {
        name: "fallocate, punch, zero",
        ops: "create /a 33188 0;fallocate /a allocate 0 10000;write /a 100 5000 1;\
              fallocate /a punch 1000 6000;fallocate /a zero 500 5000;\
              fallocate /a allocate-keep 8192 20000;append /a 5000 2;fallocate /a zero-keep 0 30000;\
              fallocate /a punch 0 4096;fallocate /a zero 20000 9000;setattr /a size=100;\
              fallocate /a allocate 90 9000",
        ..PLAIN
    },
    Scenario {
        name: "huge pages with journalled writes",
        kib: 8 << 10,
        huge: true,
        before: || "create /a 33188 0\nfallocate /a allocate 0 2097152\n".to_owned(),
        ops: "write /a 512 512 1;\
              write /a 4000 200 2;write /a 5000 9000 3;write /a 5000 512 4;write /a 0 70000 5;\
              write /a 100 70000 6;setattr /a size=60000;setattr /a size=70000;unlink /a",
        ..PLAIN
    },
    Scenario {
        name: "huge pages, closed with a journal",
        kib: 8 << 10,
        huge: true,
        before: || "create /a 33188 0\nfallocate /a allocate 0 2097152\n".to_owned(),
        ops: "write /a 512 512 1;\
              write /a 5000 3000 2;remount;write /a 600 512 3;remount;write /a 5000 3000 4;\
              setattr /a size=6000",
        ..PLAIN
    },
    Scenario {
        name: "holes on pages that held something",
        before: || {
            "create /x 33188 0\nappend /x 40000 9\nunlink /x\nmaintain\ncreate /b 33188 0\n"
                .to_owned()
        },
        ops: "setattr /b size=20000;write /b 4196 100 1;write /b 9000 60 2;write /b 12388 4000 3",
        ..PLAIN
    },
    Scenario {
        name: "a table piece, then data, then a table piece",
        kib: 128,
        before: || {
            repeated(6, "create /a# 33188 0")
                + &repeated(6, "create /b# 33188 0")
                + &repeated(6, "unlink /b#")
                + "maintain\n"
        },
        ops: "write /a0 0 4096 1;create /x 33188 0;create /y 33188 0",
        ..PLAIN
    },
    Scenario {
        name: "relaxed mode",
        relaxed: true,
        ops: "create /a 33188 0;write /a 0 9000 1;write /a 512 512 2;write /a 3 5000 3;\
              write /a 8990 100 4;setattr /a size=5000;write /a 4000 4000 5;\
              fallocate /a zero 100 3000;fallocate /a punch 50 5000;append /a 100 6",
        ..PLAIN
    },
    Scenario {
        name: "close and open",
        lanes: 2,
        ops: "create /a 33188 0;write /a 0 5000 1;write /a 100 100 2;remount;write /a 100 100 3;\
              crash;write /a 0 512 4;unlink /a;remount;create /b 33188 0;crash;crash;\
              unlink /b;remount;remount;create /d 16877 0",
        ..PLAIN
    },
    Scenario {
        name: "open files whose names go",
        ops: "create /a 33188 0;write /a 0 5000 1;open /a 0;unlink /a;append @0 3000 2;\
              write @0 10 100 3;create /a 33188 0;close 0;create /b 33188 0;open /b 1;\
              rename /a /b replace;append @1 100 4;maintain;remount;create /c 33188 0",
        ..PLAIN
    },
    Scenario {
        name: "a full pool",
        kib: 192,
        before: || repeated(7, "create /f# 33188 0;append /f# 8192 1"),
        ops: "append /f1 30000 2;append /f1 90000 2;append /f2 30000 2;create /x 33188 0;append /x 12288 3;unlink /f0;\
              create /y 33188 0;append /y 8192 3;append /y 8192 4;unlink /f1;unlink /f2;maintain;\
              append /y 9000 4;setattr /f3 size=0;rename /f5 /f6 replace;append /y 60000 5",
        ..PLAIN
    },
    Scenario {
        name: "appends in relaxed mode",
        kib: 96,
        relaxed: true,
        before: || repeated(1, "create /a;write /a 0 100 1"),
        ops: "append /a 100 2;append /a 5000 3;append /a 7 4",
        ..PLAIN
    },
    Scenario {
        name: "symbolic links and attributes",
        ops: "symlink /s abc;symlink /t %=0.300;symlink /u %=1.4095;setattr /s mode=1 uid=4;\
              rename /s /t replace;unlink /u;create /p 4516 0;create /c 8612 4294967297;unlink /t;\
              setattr /c mtime=5 atime=6;create /d 16877 0;setattr /d mode=0 gid=3",
        ..PLAIN
    },
];
