//! What programs are given: a tree like that of a large program's sources, and one that can be compiled.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::random::Random;

/// Files in a directory.
const FILES: usize = 40;
/// The fewest lines of a file, and how often that is doubled, at random.
const LINES: u64 = 24;
const DOUBLINGS: u64 = 7;

/// Text that is found in one file, and nowhere else: to a scanner it is a virus.
pub(super) const INFECTED: &str = "LODE-BENCH-INFECTED-8c0f2e71b9d34a56";

/// Makes a tree of so many files at `dir`, of 20 KiB on average. Returns the bytes of all files.
pub(super) fn make_tree(dir: &Path, files: usize) -> io::Result<u64> {
    let mut random = Random::new(1);
    let mut bytes = 0;
    for number in 0..files {
        let parent = dir.join(format!("part{}/unit{}", number / FILES / 8, number / FILES % 8));
        if number % FILES == 0 {
            fs::create_dir_all(&parent)?;
        }
        let mut text = format!("/* Unit {number}. */\n");
        if number == files / 2 {
            text += INFECTED;
        }
        // As with sources, most are short, and a few have most of the bytes.
        let lines = LINES << random.below(DOUBLINGS);
        for _ in 0..lines {
            let [a, b, c] = [1000, 1000, 64].map(|limit| random.below(limit));
            let _ = writeln!(text, "\tif (state->field{a} > {b}) count += table[{c}];");
        }
        bytes += text.len() as u64;
        fs::write(parent.join(format!("file{number}.c")), text)?;
    }
    Ok(bytes)
}

/// Makes a program of so many C files at `dir`, with a makefile. Returns what it prints when it is run.
pub(super) fn make_sources(dir: &Path, files: usize) -> io::Result<String> {
    fs::create_dir_all(dir)?;
    let (mut header, mut calls, mut sum) =
        ("#include <stdint.h>\n".to_owned(), String::new(), 0_u32);
    for number in 0..files {
        let _ = writeln!(header, "uint32_t unit{number}(uint32_t);");
        let _ = writeln!(calls, "\tsum = unit{number}(sum);");
        let mut random = Random::new(number as u64);
        let mut text = format!("#include \"all.h\"\nuint32_t unit{number}(uint32_t sum)\n{{\n");
        for _ in 0..60 {
            let [times, plus] = [1 << 16, 1 << 30].map(|limit| random.below(limit) as u32);
            let _ = writeln!(text, "\tsum = (sum ^ (sum >> 7)) * {times}u + {plus}u;");
            sum = (sum ^ (sum >> 7)).wrapping_mul(times).wrapping_add(plus);
        }
        fs::write(dir.join(format!("unit{number}.c")), text + "\treturn sum;\n}\n")?;
    }
    fs::write(dir.join("all.h"), header)?;
    let main = format!(
        "#include <stdio.h>\n#include \"all.h\"\nint main(void)\n{{\n\tuint32_t sum = 0;\n{calls}\
         \tprintf(\"%u\\n\", (unsigned)sum);\n\treturn 0;\n}}\n"
    );
    fs::write(dir.join("main.c"), main)?;
    fs::write(
        dir.join("Makefile"),
        "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\n\
         all: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\
         %.o: %.c all.h\n\t$(CC) -O1 -g -c -o $@ $<\n",
    )?;
    Ok(format!("{sum}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_the_same_each_time_and_one_file_of_it_is_infected() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = ["a", "b"].map(|name| make_tree(&dir.path().join(name), 400).unwrap());
        assert_eq!(bytes[0], bytes[1]);
        let mean = bytes[0] / 400;
        assert!((8 << 10..24 << 10).contains(&mean), "{mean}");
        let mut infected = 0;
        for number in 0..400 {
            let path = format!("a/part{}/unit{}/file{number}.c", number / 320, number / 40 % 8);
            let text = fs::read_to_string(dir.path().join(path)).unwrap();
            infected += text.matches(INFECTED).count();
        }
        assert_eq!(infected, 1);
    }

    #[test]
    fn sources_are_of_as_many_units_as_were_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let [three, four] = [3, 4].map(|files| make_sources(dir.path(), files).unwrap());
        assert!(three != four && three.trim().parse::<u32>().is_ok());
        let main = fs::read_to_string(dir.path().join("main.c")).unwrap();
        assert!(main.contains("unit3(sum)") && !main.contains("unit4"), "{main}");
    }
}
