//! Mount options: those of `-o`, as they are written in fstab too.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::{StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use lode_engine::{AccessTimes, PageClass};
use lode_fuse::HeapOptions;
use lode_pmem::{FlushStrategy, WindowMode};

use crate::emulation::EmulationArgs;
use crate::periods::{parse_period, period_text};
use crate::sizes::{parse_page_class, parse_size};

/// What `-o` can say. Several are joined by [`MountOptions::join`], later ones win.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct MountOptions {
    /// `remount`: what is mounted gets these options.
    pub(crate) remount: bool,
    /// `ro` or `rw`.
    pub(crate) read_only: Option<bool>,
    /// `relaxed`: file data is overwritten in place, without atomicity.
    pub(crate) relaxed: bool,
    /// `noatime`, `relatime` or `strictatime`.
    pub(crate) atime: Option<AccessTimes>,
    /// `allow_other`: other users may use the mount.
    pub(crate) allow_other: bool,
    /// `dev`: device nodes work; `nodev` where not said.
    pub(crate) dev: Option<bool>,
    /// `suid`: set-user-id bits count; `nosuid` where not said.
    pub(crate) suid: Option<bool>,
    /// `noexec`: programs can't be run.
    pub(crate) noexec: Option<bool>,
    /// `noviews`: there is no directory `.lode`.
    pub(crate) noviews: bool,
    /// `io_uring` or `noio_uring`.
    pub(crate) io_uring: Option<bool>,
    /// `awake` or `noawake`.
    pub(crate) awake: Option<bool>,
    /// `page-size=`.
    pub(crate) page_class: Option<PageClass>,
    /// `index-memory=`, 0 for no limit.
    pub(crate) index_memory: Option<u64>,
    /// `windows=`.
    pub(crate) windows: Option<WindowMode>,
    /// `flush=`.
    pub(crate) flush: Option<FlushStrategy>,
    /// `snapshot=`: what is mounted is the pool as it was then.
    pub(crate) snapshot: Option<String>,
    /// `scrub=`: how often the server scrubs by itself, 0 for never.
    pub(crate) scrub: Option<Duration>,
    /// `scrub-rate=`: bytes a second that it looks at then.
    pub(crate) scrub_rate: Option<u64>,
    /// `heap_limit=`, `heap_program_limit=` and `heap_reserve=`: how much memory is lent to programs.
    pub(crate) heap: HeapOptions,
    /// `emulate=` and its like.
    pub(crate) emulation: EmulationArgs,
}

/// The options that mean something, and what.
pub(crate) const MEANINGS: [(&str, &str); 24] = [
    (
        "ro, rw",
        "Read-only: not a byte of the pool changes, not even by recovery. Read-write is the default.",
    ),
    (
        "remount",
        "Give what is mounted other options, at once: ro, dev, suid, exec and their opposites. All others stay as they are.",
    ),
    (
        "relaxed",
        "Overwrite file data in place: faster, but an overwrite cut off by a crash can be there in part.",
    ),
    (
        "noatime, relatime, strictatime",
        "When reads move access times: never; when they are older than the last change, or than a day (the default); always.",
    ),
    (
        "allow_other",
        "Users other than the one who mounts may use it. Root's mounts always allow that.",
    ),
    (
        "dev, nodev",
        "Whether device nodes work. For root alone; nodev is the default of lode mount, dev that of mount(8) by root.",
    ),
    (
        "suid, nosuid",
        "Whether set-user-ID bits of programs count. For root alone, with defaults as those of dev.",
    ),
    ("exec, noexec", "Whether programs can be run. They can where nothing is said."),
    ("noviews", "No directory .lode, so that its name is free for files of your own."),
    (
        "io_uring, noio_uring",
        "Whether requests come by io_uring, with a queue for each CPU: for many busy programs. Where nothing is said they do if the kernel lets them.",
    ),
    (
        "awake, noawake",
        "No processor of the machine falls asleep while requests come, and for a second after: faster where to wake one takes long, as in many virtual machines. For root alone; noawake is the default.",
    ),
    (
        "page-size=",
        "Page size of files made in this mount: 4K, 2M or 1G. The default is the pool's.",
    ),
    (
        "index-memory=",
        "Main memory that the indexes may take, such as 100M; what is in use stays, and may take more. 0 is no limit; the default is an eighth of the machine's memory.",
    ),
    (
        "windows=",
        "Guard against stray stores: key, mprotect or none. The default is key where the CPU has it.",
    ),
    (
        "flush=",
        "How stores reach the memory, as lode info names it. The default is the best that is safe here.",
    ),
    (
        "snapshot=",
        "Mount what the pool was when this snapshot was made; a comma in its name is written \\,. Needs ro, and a pool that is not mounted read-write; there DIR/.lode/snapshots has all snapshots.",
    ),
    (
        "scrub=",
        "Scrub the pool every so often, such as 24h (s, m, h, d), for the first time so long after the mount; what is found is in the log and in lode stats. 0 is never, and the default.",
    ),
    ("scrub-rate=", "Bytes a second that such a scrub looks at, at most. The default is 100M."),
    (
        "heap_limit=",
        "Memory of the pool that all programs are lent together, such as 4G, in whole 2M; 0 is none. The default is all that files leave.",
    ),
    (
        "heap_program_limit=",
        "The most that one program is lent of it. There is no such limit where nothing is said.",
    ),
    (
        "heap_reserve=",
        "Space that stays free for files when programs are lent memory. The default is a sixteenth of the pool.",
    ),
    (
        "emulate=",
        "For measuring: take the times of this slower medium, pcm, stt-ram, nvdimm-n or cxl. What the kernel's cache answers, and mappings of programs, are not slowed.",
    ),
    (
        "read-ns=, write-gbps=, fence-ns=",
        "What a load takes more, in nanoseconds; how fast stores are taken, in billions of bytes a second; what a fence takes more. They override emulate=, or are a medium of their own.",
    ),
    ("x-..., comment=", "Nothing: for mount(8), systemd and people."),
];
/// Options that mean nothing to a server: for mount(8), for systemd, already so, or leave to do less
/// than is done anyway. None that would promise what is not kept, as `nosymfollow` would.
pub(crate) const IGNORED: [&str; 31] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "async",
    "sync",
    "dirsync",
    "default_permissions",
    "atime",
    "nodiratime",
    "diratime",
    "lazytime",
    "nolazytime",
    "silent",
    "loud",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "symfollow",
    "nousers",
    "acl",
    "user_xattr",
    "discard",
    "nodiscard",
];

/// How mount(8) calls the ways to keep access times.
const ATIMES: [(&str, AccessTimes); 3] = [
    ("noatime", AccessTimes::Never),
    ("relatime", AccessTimes::Relative),
    ("strictatime", AccessTimes::Always),
];

fn atime_named(word: &str) -> Option<AccessTimes> {
    ATIMES.iter().find(|(name, _)| *name == word).map(|(_, atime)| *atime)
}

fn atime_name(atime: AccessTimes) -> &'static str {
    ATIMES.iter().find(|(_, known)| *known == atime).map_or("relatime", |(name, _)| name)
}

/// Reads what `-o` has. An error names the one wrong option: lines of fstab, which mount(8) hands on with
/// more of its own, are long.
#[derive(Clone)]
pub(crate) struct OptionList;

impl TypedValueParser for OptionList {
    type Value = MountOptions;

    fn parse_ref(
        &self,
        cmd: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<MountOptions, clap::Error> {
        let list = StringValueParser::new().parse_ref(cmd, arg, value)?;
        MountOptions::parse(&list).map_err(|what| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("{what}\n")).with_cmd(cmd)
        })
    }
}

impl MountOptions {
    /// Parses one comma-separated list.
    ///
    /// # Errors
    /// A sentence that names the wrong option.
    pub(crate) fn parse(list: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for word in words(list).iter().filter(|word| !word.is_empty()) {
            options.set(word)?;
        }
        Ok(options)
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        match word {
            "remount" => self.remount = true,
            "ro" => self.read_only = Some(true),
            "rw" => self.read_only = Some(false),
            "relaxed" => self.relaxed = true,
            word if atime_named(word).is_some() => self.atime = atime_named(word),
            "allow_other" => self.allow_other = true,
            "dev" | "nodev" => self.dev = Some(word == "dev"),
            "suid" | "nosuid" => self.suid = Some(word == "suid"),
            "noviews" => self.noviews = true,
            "io_uring" | "noio_uring" => self.io_uring = Some(word == "io_uring"),
            "awake" | "noawake" => self.awake = Some(word == "awake"),
            "exec" | "noexec" => self.noexec = Some(word == "noexec"),
            word if IGNORED.contains(&word) || word.starts_with("x-") => {}
            word => return self.set_value(word),
        }
        Ok(())
    }

    fn set_value(&mut self, word: &str) -> Result<(), String> {
        let in_word = |error: String| format!("option `{word}`: {error}");
        match word.split_once('=') {
            Some(("page-size" | "page_size", value)) => {
                self.page_class = Some(parse_page_class(value).map_err(in_word)?);
            }
            Some(("index-memory" | "index_memory", value)) => {
                self.index_memory = Some(parse_size(value).map_err(in_word)?);
            }
            Some(("windows", value)) => {
                self.windows = Some(value.parse().map_err(|error| in_word(format!("{error}")))?);
            }
            Some(("flush", value)) => {
                self.flush = Some(value.parse().map_err(|error| in_word(format!("{error}")))?);
            }
            Some(("scrub", value)) => self.scrub = Some(parse_period(value).map_err(in_word)?),
            Some(("scrub-rate" | "scrub_rate", value)) => {
                let rate = parse_size(value).map_err(in_word)?;
                if rate == 0 {
                    return Err(in_word("it is 1 at least; scrub=0 is for no scrubs".to_owned()));
                }
                self.scrub_rate = Some(rate);
            }
            Some((name, value)) if heap_option(&mut self.heap, name).is_some() => {
                let bytes = parse_size(value).map_err(in_word)?;
                may_be_lent(&name.replace('-', "_"), bytes).map_err(in_word)?;
                if let Some(place) = heap_option(&mut self.heap, name) {
                    *place = Some(bytes);
                }
            }
            Some(("snapshot", "")) => return Err(format!("option `{word}`: which snapshot?")),
            Some(("snapshot", value)) => self.snapshot = Some(value.to_owned()),
            Some((name, value)) if self.emulation.set(name, value).map_err(in_word)? => {}
            // The kernel lists the last two, and mount(8) hands them on at a remount; `user` says
            // who called mount(8).
            Some(("comment" | "user" | "user_id" | "group_id", _)) => {}
            _ => {
                return Err(format!(
                    "unknown option `{word}`; the options are in mount.fuse.lode(8) and `lode mount --help`"
                ));
            }
        }
        Ok(())
    }

    /// All of several lists; what a later one says counts.
    pub(crate) fn join(lists: &[Self]) -> Self {
        lists.iter().fold(Self::default(), |all, next| Self {
            remount: next.remount || all.remount,
            read_only: next.read_only.or(all.read_only),
            relaxed: next.relaxed || all.relaxed,
            atime: next.atime.or(all.atime),
            allow_other: next.allow_other || all.allow_other,
            dev: next.dev.or(all.dev),
            suid: next.suid.or(all.suid),
            noexec: next.noexec.or(all.noexec),
            noviews: next.noviews || all.noviews,
            io_uring: next.io_uring.or(all.io_uring),
            awake: next.awake.or(all.awake),
            page_class: next.page_class.or(all.page_class),
            index_memory: next.index_memory.or(all.index_memory),
            windows: next.windows.or(all.windows),
            flush: next.flush.or(all.flush),
            snapshot: next.snapshot.clone().or(all.snapshot),
            scrub: next.scrub.or(all.scrub),
            scrub_rate: next.scrub_rate.or(all.scrub_rate),
            heap: HeapOptions {
                limit: next.heap.limit.or(all.heap.limit),
                program_limit: next.heap.program_limit.or(all.heap.program_limit),
                reserve: next.heap.reserve.or(all.heap.reserve),
                ready: next.heap.ready.or(all.heap.ready),
            },
            emulation: all.emulation.join(&next.emulation),
        })
    }

    /// As one list for `-o` that means the same.
    pub(crate) fn text(&self) -> String {
        let flags = [
            (self.read_only, "ro", "rw"),
            (self.dev, "dev", "nodev"),
            (self.suid, "suid", "nosuid"),
            (self.noexec, "noexec", "exec"),
            (self.relaxed.then_some(true), "relaxed", ""),
            (self.allow_other.then_some(true), "allow_other", ""),
            (self.noviews.then_some(true), "noviews", ""),
            (self.io_uring, "io_uring", "noio_uring"),
            (self.awake, "awake", "noawake"),
            (self.remount.then_some(true), "remount", ""),
        ];
        let said = |(flag, yes, no): (Option<bool>, &str, &str)| {
            flag.map(|flag| if flag { yes } else { no }.to_owned())
        };
        let mut words: Vec<String> = flags.into_iter().filter_map(said).collect();
        words.extend(self.atime.map(|atime| atime_name(atime).to_owned()));
        words.extend(
            self.page_class
                .map(|class| format!("page-size={}", crate::sizes::page_class_name(class))),
        );
        words.extend(self.index_memory.map(|bytes| format!("index-memory={bytes}")));
        words.extend(self.windows.map(|windows| format!("windows={windows}")));
        words.extend(self.flush.map(|flush| format!("flush={flush}")));
        words.extend(self.snapshot.as_ref().map(|name| format!("snapshot={}", escaped(name))));
        words.extend(self.scrub.map(|period| format!("scrub={}", period_text(period))));
        words.extend(self.scrub_rate.map(|bytes| format!("scrub-rate={bytes}")));
        for name in HEAP {
            let value = heap_option(&mut self.heap.clone(), name).and_then(|it| *it);
            words.extend(value.map(|value| format!("{name}={value}")));
        }
        words.extend(self.emulation.words());
        words.join(",")
    }
}

/// Options of the memory that is lent to programs. The last is for measuring: chunks that are kept zeroed.
const HEAP: [&str; 4] = ["heap_limit", "heap_program_limit", "heap_reserve", "heap_ready"];

/// Memory is lent in whole chunks: a limit below one would have every program end for want of memory. No memory at all, for
/// nobody, can be said.
fn may_be_lent(name: &str, bytes: u64) -> Result<(), String> {
    let is_limit = name == "heap_program_limit" || (name == "heap_limit" && bytes > 0);
    if is_limit && bytes < lode_loan::CHUNK_BYTES {
        return Err("memory is lent in chunks of 2 MiB, so nothing could be lent".to_owned());
    }
    Ok(())
}

/// Where the value of one of them is.
fn heap_option<'a>(heap: &'a mut HeapOptions, name: &str) -> Option<&'a mut Option<u64>> {
    match name.replace('-', "_").as_str() {
        "heap_limit" => Some(&mut heap.limit),
        "heap_program_limit" => Some(&mut heap.program_limit),
        "heap_reserve" => Some(&mut heap.reserve),
        "heap_ready" => Some(&mut heap.ready),
        _ => None,
    }
}

/// The options of a list. Behind a backslash a comma, or another backslash, is part of an option.
fn words(list: &str) -> Vec<String> {
    let (mut all, mut word) = (Vec::new(), String::new());
    let mut rest = list.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            ',' => all.push(std::mem::take(&mut word)),
            '\\' => word.push(rest.next_if(|behind| matches!(behind, ',' | '\\')).unwrap_or('\\')),
            other => word.push(other),
        }
    }
    all.push(word);
    all
}

/// A value as a list has it.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_way_through_text() {
        let text = "ro,nodev,nosuid,noexec,relaxed,allow_other,noviews,io_uring,awake,remount,strictatime,page-size=2M,index-memory=104857600,windows=none,flush=msync,snapshot=before the change,\
                    scrub=36h,scrub-rate=1048576,heap_limit=4194304,heap_program_limit=2097152,heap_reserve=0,heap_ready=0,emulate=stt-ram,read-ns=70,write-gbps=2.05,fence-ns=0";
        let options = MountOptions::parse(text).unwrap();
        assert_eq!(options.text(), text);
        assert_eq!(MountOptions::parse(&options.text()), Ok(options));
        assert_eq!(MountOptions::default().text(), "");
    }

    #[test]
    fn names_of_snapshots_may_have_commas_and_backslashes() {
        for (text, name) in [
            (r"ro,snapshot=a\,b,noexec", "a,b"),
            (r"ro,snapshot=a\\,noexec", r"a\"),
            (r"ro,snapshot=\\\,\\\\,noexec", r"\,\\"),
        ] {
            let options = MountOptions::parse(text).unwrap();
            assert_eq!((options.snapshot.as_deref(), options.noexec), (Some(name), Some(true)));
            let snapshot = MountOptions { snapshot: options.snapshot, ..Default::default() };
            assert_eq!(MountOptions::parse(&snapshot.text()), Ok(snapshot));
        }
        // Nothing is lost of what was meant as it is.
        let plain = MountOptions::parse(r"snapshot=a\b\").unwrap();
        assert_eq!(plain.snapshot.as_deref(), Some(r"a\b\"));
    }

    #[test]
    fn later_options_win_and_those_of_mount_are_let_through() {
        const FSTAB: &str = "nodiratime,diratime,lazytime,nolazytime,silent,loud,mand,nomand,iversion,noiversion,\
                             symfollow,nousers,acl,user_xattr,discard,nodiscard";
        let lists =
            ["ro,defaults,x-systemd.automount,_netdev", "rw,noatime", "comment=a,user=b", FSTAB];
        let lists = lists.map(|list| MountOptions::parse(list).unwrap());
        let options = MountOptions::join(&lists);
        assert_eq!((options.read_only, options.atime), (Some(false), Some(AccessTimes::Never)));
    }

    #[test]
    fn unknown_options_are_named() {
        for list in [
            "relaxd",
            "nosymfollow",
            "noacl",
            "page-size=8K",
            "index-memory=much",
            "windows=maybe",
            "flush=often",
            "snapshot=",
            "scrub=",
            "scrub=often",
            "scrub=24",
            "scrub=-1h",
            "scrub=1.5h",
            "scrub=1w",
            "scrub=99999999999999999999s",
            "scrub=1000000d",
            "scrub-rate=0",
            "scrub-rate=fast",
            "heap_limit=",
            "heap_reserve=some",
            "heap_limit=1M",
            "heap_limit=1",
            "heap_program_limit=2097151",
            "heap_program_limit=0",
            "heap_limits=1M",
            "emulate=optane",
            "read-ns=soon",
            "write-gbps=1/8",
            "fence-ns=-1",
            "ro=1",
        ] {
            assert!(MountOptions::parse(list).is_err(), "{list}");
        }
        let error = MountOptions::parse("ro,relaxd").unwrap_err();
        assert!(error.starts_with("unknown option `relaxd`;") && error.len() < 100, "{error}");
        for list in ["ro,page-size=8K", "ro,windows=maybe", "ro,flush=often", "ro,read-ns=1e3"] {
            let (_, word) = list.split_once(',').unwrap();
            let error = MountOptions::parse(list).unwrap_err();
            assert!(error.starts_with(&format!("option `{word}`: ")), "{error}");
        }
    }

    #[test]
    fn all_options_that_are_listed_are_taken() {
        let known = MEANINGS.into_iter().flat_map(|(names, _)| names.split(", "));
        for word in known.chain(IGNORED) {
            assert!(word.ends_with('=') || MountOptions::parse(word).is_ok(), "{word}");
        }
    }
}
