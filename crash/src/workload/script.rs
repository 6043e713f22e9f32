//! Cases as text that anybody can write.
//!
//! ```text
//! # two files that change places
//! name  exchange under pressure
//! pool 256K lanes 2 log-lines 4 relaxed
//! before:
//!     create /a
//!     write /a 0 5000
//!     create /b
//! ops:
//!     rename /a /b exchange
//! beside:
//!     append /b 100
//! ```
//!
//! `before:` is done without a crash, `ops:` is cut off everywhere, `beside:` is done by a
//! second thread at the same time. All but one operation under `ops:` can be left out; lines
//! before the first of these headings are `ops:`, too. `pool` takes a size and `lanes N`,
//! `log-lines N`, `huge`, `giant`, `relaxed`, `mapped`, `atime`, `forgetful`, `side-by-side`,
//! `held`, `lossy`, `dead-zone SIZE`, `strip BYTES`, `nonces N`, `made SIZE`, in any order. What begins with `#` is
//! a comment. The operations are those of [`lode_testkit::parse`]; docs/crash-scripts.md has
//! an example of each.

use std::fmt::{self, Write as _};

use lode_engine::{DEAD_ZONE_MOST, PAGE_BYTES, PageClass};
use lode_testkit::op::Op;
use lode_testkit::parse::{number, once};

use crate::case::{Case, Geometry, Trouble};

/// The name of a case whose script gives none.
const NAME: &str = "script";
/// Bytes of the smallest pool there is.
const POOL_MIN: u64 = 64 << 10;
/// Bytes of the largest pool that is worth a try.
const POOL_MAX: u64 = 1 << 30;
/// Operations of a script: the work grows with the square of their number.
const OPERATIONS_MAX: usize = 1000;
/// Orders of the operations of two threads.
const ORDERS_MAX: u64 = 1000;
const LANES_MAX: u64 = 256;
const LOG_LINES_MIN: u64 = 4;
const LOG_LINES_MAX: u64 = 63;

/// Why a script is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptError {
    /// The line it is about, from 1.
    pub line: usize,
    /// What is wrong there, and what to do.
    pub what: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for ScriptError {}

/// What was read above a line.
struct Above<'t> {
    section: Section,
    /// `name` and `pool`.
    given: Vec<&'t str>,
}

/// Which list the operations of a line go to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// No heading was seen.
    Top,
    Before,
    Ops,
    Beside,
}

/// A case from its text.
pub fn parse_script(text: &str) -> Result<Case, ScriptError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut case = Case {
        name: NAME.to_owned(),
        trouble: Trouble::Power,
        geometry: Geometry::default(),
        before: Vec::new(),
        ops: Vec::new(),
        beside: Vec::new(),
    };
    let mut above = Above { section: Section::Top, given: Vec::new() };
    let mut last = 1;
    for (index, line) in text.lines().enumerate() {
        last = index + 1;
        let line = without_comment(line);
        if !line.is_empty() {
            let read = read_line(&mut case, &mut above, line);
            read.map_err(|what| ScriptError { line: index + 1, what })?;
        }
        if case.before.len() + case.ops.len() + case.beside.len() > OPERATIONS_MAX {
            let what = format!("a script has at most {OPERATIONS_MAX} operations");
            return Err(ScriptError { line: index + 1, what });
        }
    }
    if let Some(what) = impossible_beside(&case) {
        return Err(ScriptError { line: last, what });
    }
    if case.ops.is_empty() {
        let what = "there is nothing to cut off: write operations under a line `ops:`".to_owned();
        return Err(ScriptError { line: last, what });
    }
    Ok(case)
}

/// What two threads can't do at the same time.
fn impossible_beside(case: &Case) -> Option<String> {
    if case.beside.is_empty() {
        return None;
    }
    let alone = |op: &&Op| {
        let all = matches!(op, Op::Grow | Op::Protect(..) | Op::Rollback(_) | Op::Cpus(_));
        let all = all || matches!(op, Op::Damage(_) | Op::Heal);
        all || matches!(op, Op::Remount | Op::Crash | Op::Receive(_) | Op::Abandon(_))
    };
    if let Some(op) = case.ops.iter().chain(&case.beside).find(alone) {
        return Some(format!(
            "`{op}` is done to what both threads work on: it can't stand beside a second one"
        ));
    }
    let (most, other) = (case.ops.len() as u64, case.beside.len() as u64);
    // So many orders of the two lists there are; each is compared.
    let orders = (1..=other).try_fold(1u64, |all, n| Some(all.checked_mul(most + n)? / n));
    if orders.is_none_or(|orders| orders > ORDERS_MAX) {
        return Some(format!(
            "two lists of {most} and {other} operations have too many orders: at most {ORDERS_MAX}, \
                             such as those of 6 and 6, are compared"
        ));
    }
    None
}

fn without_comment(line: &str) -> &str {
    let begins =
        |&(at, _): &(usize, &str)| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = line.match_indices('#').find(begins);
    line[..comment.map_or(line.len(), |(at, _)| at)].trim()
}

fn read_line<'t>(case: &mut Case, above: &mut Above<'t>, line: &'t str) -> Result<(), String> {
    let section = &mut above.section;
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (first, rest.trim()) {
        ("before:", "") => *section = Section::Before,
        ("ops:", "") => *section = Section::Ops,
        ("beside:", "") => *section = Section::Beside,
        ("before:" | "ops:" | "beside:", _) => {
            return Err(format!("{first} stands alone: write the operation in the next line"));
        }
        ("name" | "pool", _) if *section != Section::Top => {
            return Err(format!("`{first}` comes first: move it above the first heading"));
        }
        ("name", "") => return Err("a name is missing: name WORDS".to_owned()),
        ("name", name) if name.contains(char::is_control) => {
            return Err("a name has no control characters".to_owned());
        }
        ("name", name) => {
            once(&mut above.given, first)?;
            case.name = name.to_owned();
        }
        ("pool", words) => {
            once(&mut above.given, first)?;
            case.geometry = geometry(words)?;
        }
        _ => operations(case, *section).push(operation(line)?),
    }
    Ok(())
}

fn operations(case: &mut Case, section: Section) -> &mut Vec<Op> {
    match section {
        Section::Before => &mut case.before,
        Section::Top | Section::Ops => &mut case.ops,
        Section::Beside => &mut case.beside,
    }
}

fn operation(line: &str) -> Result<Op, String> {
    line.parse::<Op>().map_err(|why| {
        let verb = line.split_whitespace().next().unwrap_or_default();
        match form_of(verb) {
            Some(form) => format!("{why}; the form is: {form}"),
            None => format!("{why}; known are: {}; headings are before:, ops:, beside:", verbs()),
        }
    })
}

fn geometry(words: &str) -> Result<Geometry, String> {
    let mut geometry = Geometry::default();
    let mut words = words.split_whitespace();
    let mut given = Vec::new();
    while let Some(word) = words.next() {
        let what =
            if word.starts_with(|first: char| first.is_ascii_digit()) { "SIZE" } else { word };
        once(&mut given, what)?;
        let mut value = |low, high| {
            let text = words.next().ok_or_else(|| format!("{word} needs a number behind it"))?;
            within(word, number(text)?, low, high)
        };
        match word {
            "lanes" => geometry.lanes = value(1, LANES_MAX)? as u32,
            "log-lines" => geometry.log_lines = value(LOG_LINES_MIN, LOG_LINES_MAX)? as u8,
            "huge" | "giant" if geometry.class != PageClass::Small => {
                return Err("a pool's files have one class of pages: huge or giant".to_owned());
            }
            "huge" => geometry.class = PageClass::Huge,
            "giant" => geometry.class = PageClass::Giant,
            "relaxed" => geometry.relaxed = true,
            "mapped" => geometry.mapped = true,
            "atime" => geometry.atime = true,
            "forgetful" => geometry.forgetful = true,
            "side-by-side" => geometry.side_by_side = true,
            "held" => geometry.held = true,
            "lossy" => geometry.lossy = true,
            "made" => {
                let size = words.next().ok_or("made needs a size behind it")?;
                geometry.made = Some(whole_pages(size)?);
            }
            "dead-zone" => {
                let size = words.next().ok_or("dead-zone needs a size behind it")?;
                let bytes = within(word, number(size)?, 0, DEAD_ZONE_MOST)?;
                geometry.dead_zone = Some(bytes);
            }
            "strip" => geometry.strip = Some(strip(&mut words)?),
            "nonces" => geometry.nonces = Some(value(2, u64::from(u32::MAX))? as u32),
            size if size.starts_with(|first: char| first.is_ascii_digit()) => {
                geometry.bytes = whole_pages(size)?;
            }
            other => {
                return Err(format!(
                    "{other} is nothing of a pool's; known are: SIZE, lanes N, log-lines N, huge, \
                     giant, relaxed, mapped, atime, forgetful, side-by-side, held, lossy, dead-zone SIZE, strip BYTES, \
                     nonces N, made SIZE"
                ));
            }
        }
    }
    if geometry.made.is_some_and(|made| made > geometry.bytes) {
        return Err("the pool is made larger than its size, and can only grow".to_owned());
    }
    Ok(geometry)
}

/// Bytes of a strip of file data.
fn strip<'t>(words: &mut impl Iterator<Item = &'t str>) -> Result<u32, String> {
    match words.next() {
        Some("512") => Ok(512),
        Some("1024") => Ok(1024),
        Some("2048") => Ok(2048),
        _ => Err("strip needs 512, 1024 or 2048 behind it".to_owned()),
    }
}

/// A size of a pool.
fn whole_pages(word: &str) -> Result<u64, String> {
    let bytes = within("the pool's size", number(word)?, POOL_MIN, POOL_MAX)?;
    if !bytes.is_multiple_of(PAGE_BYTES) {
        let whole = bytes.div_ceil(PAGE_BYTES) * (PAGE_BYTES >> 10);
        return Err(format!("{word} is no whole number of 4K pages: write {whole}K"));
    }
    Ok(bytes)
}

fn within(what: &str, value: u64, low: u64, high: u64) -> Result<u64, String> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(format!("{what} is {value}: it must be {} to {}", size(low), size(high)))
}

/// The text of a case: [`parse_script`] makes the same of it.
pub fn print_script(case: &Case) -> String {
    let mut text = format!("name {}\npool {}\n", case.name, pool_words(&case.geometry));
    let sections = [("before:", &case.before), ("ops:", &case.ops), ("beside:", &case.beside)];
    for (heading, ops) in sections {
        if !ops.is_empty() {
            let _ = writeln!(text, "{heading}");
            for op in ops {
                let _ = writeln!(text, "    {op}");
            }
        }
    }
    text
}

/// A pool as a script has it, behind the word `pool`.
pub fn pool_words(geometry: &Geometry) -> String {
    let Geometry { bytes, made, lanes, log_lines, class, dead_zone, strip, nonces, .. } = geometry;
    let mut text = format!("{} lanes {lanes} log-lines {log_lines}", size(*bytes));
    text.push_str(match class {
        PageClass::Small => "",
        PageClass::Huge => " huge",
        PageClass::Giant => " giant",
    });
    let Geometry { relaxed, mapped, atime, forgetful, side_by_side, held, lossy, .. } = *geometry;
    text.push_str(if relaxed { " relaxed" } else { "" });
    text.push_str(if mapped { " mapped" } else { "" });
    text.push_str(if atime { " atime" } else { "" });
    text.push_str(if forgetful { " forgetful" } else { "" });
    text.push_str(if side_by_side { " side-by-side" } else { "" });
    text.push_str(if held { " held" } else { "" });
    text.push_str(if lossy { " lossy" } else { "" });
    if let Some(dead_zone) = dead_zone {
        let _ = write!(text, " dead-zone {}", size(*dead_zone));
    }
    if let Some(strip) = strip {
        let _ = write!(text, " strip {strip}");
    }
    if let Some(nonces) = nonces {
        let _ = write!(text, " nonces {nonces}");
    }
    if let Some(made) = made {
        let _ = write!(text, " made {}", size(*made));
    }
    text
}

/// A number with the largest unit that divides it.
fn size(bytes: u64) -> String {
    match [("G", 30), ("M", 20), ("K", 10)]
        .iter()
        .find(|(_, shift)| bytes.is_multiple_of(1 << shift))
    {
        Some((unit, shift)) if bytes > 0 => format!("{}{unit}", bytes >> shift),
        _ => bytes.to_string(),
    }
}

/// Every verb and its form.
const FORMS: &[&str] = &[
    "create PATH [MODE [DEVICE]]",
    "mkdir PATH [PERMISSIONS]",
    "mknod PATH fifo|socket, or: mknod PATH char|block MAJOR MINOR",
    "tmpfile DIRECTORY SLOT-NUMBER [PERMISSIONS [NAME LENGTH [FILL]]]",
    "symlink PATH TARGET",
    "link PATH-OR-SLOT NEW-PATH",
    "unlink PATH",
    "rmdir PATH",
    "rename PATH NEW-PATH [replace|noreplace|exchange]",
    "write PATH-OR-SLOT OFFSET LENGTH [FILL]",
    "append PATH-OR-SLOT LENGTH [FILL]",
    "sectors PATH-OR-SLOT OFFSET LENGTH [FILL]",
    "truncate PATH-OR-SLOT SIZE",
    "allocate PATH-OR-SLOT OFFSET LENGTH",
    "punch PATH-OR-SLOT OFFSET LENGTH",
    "zero PATH-OR-SLOT OFFSET LENGTH",
    "fallocate PATH-OR-SLOT allocate|allocate-keep|punch|zero|zero-keep OFFSET LENGTH",
    "chmod PATH-OR-SLOT PERMISSIONS",
    "chown PATH-OR-SLOT UID GID",
    "setattr PATH-OR-SLOT [mode=N] [uid=N] [gid=N] [size=N] [atime=N] [mtime=N]",
    "setxattr PATH-OR-SLOT NAME LENGTH [FILL] [create|replace]",
    "removexattr PATH-OR-SLOT NAME",
    "getxattr PATH-OR-SLOT NAME",
    "create-with PATH MODE NAME LENGTH [FILL]",
    "setattr-with PATH-OR-SLOT NAME LENGTH FILL [mode=N] [uid=N] [gid=N] [size=N] [atime=N] [mtime=N]",
    "open PATH SLOT-NUMBER",
    "close SLOT-NUMBER",
    "fsync PATH-OR-SLOT",
    "read PATH-OR-SLOT OFFSET LENGTH",
    "stat PATH-OR-SLOT",
    "readlink PATH",
    "list PATH",
    "lend",
    "lend-part PATH-OR-SLOT OFFSET",
    "scribble FILL",
    "give-back NUMBER",
    "maintain",
    "remount",
    "crash",
    "grow",
    "protect none|metadata|full [DEAD-ZONE]",
    "snapshot NAME",
    "drop NAME",
    "rollback NAME",
    "receive NAME",
    "abandon NAME",
    "cpus NUMBER",
    "damage WHAT [NUMBER [flip|zero|poison|broken]]",
    "heal",
    "scrub",
];

fn form_of(verb: &str) -> Option<&'static str> {
    FORMS.iter().find(|form| form.split(' ').next() == Some(verb)).copied()
}

fn verbs() -> String {
    let verbs: Vec<_> = FORMS.iter().filter_map(|form| form.split(' ').next()).collect();
    verbs.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        parse_script(text).unwrap_err().to_string()
    }

    #[test]
    fn a_script_is_read() {
        let text = "# about\nname a b\npool 128K lanes 2 log-lines 4 relaxed forgetful side-by-side held lossy nonces 3 made 96K # why\n\nbefore:\n\
                    create /a\nops:\n write /a 1K 5 # x\nbeside:\nunlink /a\n";
        let case = parse_script(text).unwrap();
        assert_eq!(case.name, "a b");
        let geometry = Geometry {
            bytes: 128 << 10,
            lanes: 2,
            log_lines: 4,
            relaxed: true,
            forgetful: true,
            side_by_side: true,
            held: true,
            lossy: true,
            nonces: Some(3),
            made: Some(96 << 10),
            ..Geometry::default()
        };
        assert_eq!(case.geometry, geometry);
        let texts = |ops: &[Op]| ops.iter().map(Op::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&case.before), ["create /a"]);
        assert_eq!(texts(&case.ops), ["write /a 1024 5 1"]);
        assert_eq!(texts(&case.beside), ["unlink /a"]);
        assert_eq!(parse_script(&print_script(&case)), Ok(case));
    }

    #[test]
    fn a_bare_list_of_operations_is_a_script() {
        let case = parse_script("create /a\nunlink /a").unwrap();
        assert_eq!((case.ops.len(), case.geometry), (2, Geometry::default()));
    }

    #[test]
    fn errors_say_the_line_and_what_to_do() {
        assert_eq!(
            wrong("before:\ncreate /a\n"),
            "line 2: there is nothing to cut off: write operations under a line `ops:`"
        );
        assert_eq!(
            wrong("ops:\nwrite /a 0\n"),
            "line 2: a word is missing; the form is: write PATH-OR-SLOT OFFSET LENGTH [FILL]"
        );
        assert!(
            wrong("\n\nfly /a").starts_with("line 3: unknown operation fly; known are: create")
        );
        assert!(wrong("pool 256K fast").starts_with("line 1: fast is nothing of a pool's"));
        assert_eq!(wrong("pool 65537"), "line 1: 65537 is no whole number of 4K pages: write 68K");
        assert_eq!(wrong("pool lanes"), "line 1: lanes needs a number behind it");
        assert_eq!(wrong("pool 1M huge 2M"), "line 1: SIZE is given twice: leave one out");
        assert_eq!(wrong("name a\nname b"), "line 2: name is given twice: leave one out");
        assert_eq!(wrong("pool 1M\npool huge"), "line 2: pool is given twice: leave one out");
        assert_eq!(wrong("pool 1K"), "line 1: the pool's size is 1024: it must be 64K to 1G");
        assert_eq!(
            wrong("pool 8M huge giant"),
            "line 1: a pool's files have one class of pages: huge or giant"
        );
        assert_eq!(
            wrong("ops:\npool 1M"),
            "line 2: `pool` comes first: move it above the first heading"
        );
        assert_eq!(
            wrong("ops: create /a"),
            "line 1: ops: stands alone: write the operation in the next line"
        );
    }
}
