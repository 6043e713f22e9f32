//! A program in C: units of structs, loops and calls, on the headers that programs include, so that a compiler has as much to do for each as
//! for a file of a real one.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Functions of a unit; half of them are its own.
const FUNCTIONS: usize = 12;
/// Objects that are linked into one before they are linked into the program, as large programs do it.
const OF_PART: usize = 6;

/// What a unit begins with.
const HEADERS: &str = "#include <errno.h>\n#include <math.h>\n#include <pthread.h>\n#include <stdint.h>\n#include <stdio.h>\n\
                       #include <stdlib.h>\n#include <string.h>\n#include <sys/socket.h>\n#include <sys/stat.h>\n#include <unistd.h>\n";

/// A pair of functions; `@` is the unit's number, `#` the pair's, `$` one that is each pair's own.
const PAIR: &str = "\
struct s@_# { uint32_t key, sum; struct s@_# *left, *right; char name[16 + #]; };
static uint32_t walk@_#(const struct s@_# *at, uint32_t depth)
{
\tif (!at || depth > 5 + #) return depth;
\tuint32_t sum = at->key * $u;
\tfor (size_t k = 0; k < sizeof at->name && at->name[k]; k++) sum = (sum ^ (unsigned char)at->name[k]) * 16777619u;
\tswitch (sum % 7) {
\tcase 0: return sum + walk@_#(at->left, depth + 1);
\tcase 1: return sum ^ walk@_#(at->right, depth + 1);
\tcase 2: return walk@_#(at->left, depth + 1) + walk@_#(at->right, depth + 2);
\tdefault: return sum - at->sum;
\t}
}
uint32_t of@_#(uint32_t sum)
{
\tstruct s@_# all[4] = {{0}};
\tfor (int k = 0; k < 4; k++) {
\t\tall[k].key = sum + k;
\t\tall[k].sum = sum >> k;
\t\tsnprintf(all[k].name, sizeof all[k].name, \"%u\", (unsigned)sum + k);
\t\tall[k].left = k ? &all[k - 1] : 0;
\t\tall[k].right = k > 1 ? &all[k - 2] : 0;
\t}
\treturn walk@_#(&all[3], 0) + (uint32_t)strlen(all[0].name);
}
";

/// Writes `units` of them, a file that calls them, and what `make` is to do: `objects`, and then `all`, a program that prints a number.
pub(super) fn write(dir: &Path, units: usize) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut main = format!("{HEADERS}int main(void)\n{{\n\tuint32_t sum = 1;\n");
    for unit in 0..units {
        fs::write(dir.join(format!("unit{unit}.c")), text(unit))?;
        let _ = writeln!(main, "\tuint32_t unit{unit}(uint32_t);\n\tsum = unit{unit}(sum);");
    }
    main += "\tprintf(\"%u\\n\", (unsigned)sum);\n\treturn 0;\n}\n";
    fs::write(dir.join("main.c"), main)?;
    fs::write(dir.join("Makefile"), rules(units))
}

fn text(unit: usize) -> String {
    let (mut text, mut calls) = (HEADERS.to_owned(), String::new());
    for pair in 0..FUNCTIONS / 2 {
        let own = 2_654_435_761_u32.wrapping_mul((unit * FUNCTIONS + pair) as u32 | 1);
        let numbers = [("@", unit as u32), ("#", pair as u32), ("$", own)];
        let filled = numbers
            .iter()
            .fold(PAIR.to_owned(), |text, (mark, number)| text.replace(mark, &number.to_string()));
        text += &filled;
        let _ = writeln!(calls, "\tsum = of{unit}_{pair}(sum);");
    }
    let _ = writeln!(text, "uint32_t unit{unit}(uint32_t sum)\n{{\n{calls}\treturn sum;\n}}");
    text
}

fn rules(units: usize) -> String {
    let objects: Vec<String> = (0..units).map(|unit| format!("unit{unit}.o")).collect();
    let (mut parts, mut rules) = (Vec::new(), String::new());
    for (number, objects) in objects.chunks(OF_PART).enumerate() {
        let _ = writeln!(rules, "part{number}.o: {}\n\t$(LD) -r -o $@ $^", objects.join(" "));
        parts.push(format!("part{number}.o"));
    }
    format!(
        "all: main.o {parts}\n\t$(CC) -o $@ $^\nobjects: main.o {objects}\n\
         %.o: %.c\n\t$(CC) -O2 -g -c -o $@ $<\n{rules}",
        parts = parts.join(" "),
        objects = objects.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_differ_and_all_of_them_are_linked_and_called() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), 14).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(!text(3).contains(['@', '$']) && text(3) != text(4).replace("4", "3"));
        let (rules, main) = (read("Makefile"), read("main.c"));
        assert!(rules.contains("part2.o: unit12.o unit13.o\n"), "{rules}");
        assert!(rules.contains("all: main.o part0.o part1.o part2.o\n"), "{rules}");
        for unit in 0..14 {
            assert!(main.contains(&format!("sum = unit{unit}(sum)")));
            assert!(read(&format!("unit{unit}.c")).contains(&format!("unit{unit}(uint32_t sum)")));
        }
    }
}
