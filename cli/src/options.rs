//! Mount options: those of `-o`, as they are written in fstab too.

use lode_engine::{AccessTimes, PageClass};
use lode_pmem::{FlushStrategy, WindowMode};

use crate::sizes::parse_page_class;

/// What `-o` can say. Several are joined by [`MountOptions::join`], later ones win.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
    /// `page-size=`.
    pub(crate) page_class: Option<PageClass>,
    /// `windows=`.
    pub(crate) windows: Option<WindowMode>,
    /// `flush=`.
    pub(crate) flush: Option<FlushStrategy>,
}

/// The options that mean something.
const KNOWN: &str = "ro, rw, remount, relaxed, noatime, relatime, strictatime, allow_other, dev, nodev, suid, nosuid, \
                     exec, noexec, noviews, page-size=, windows=, flush=";
/// Options that mean nothing to a server: for mount(8), for systemd, already so, or leave to do less
/// than is done anyway. None that would promise what is not kept, as `nosymfollow` would.
const IGNORED: [&str; 27] = [
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

impl MountOptions {
    /// Parses one comma-separated list.
    ///
    /// # Errors
    /// A sentence that names the wrong option.
    pub(crate) fn parse(list: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for word in list.split(',').filter(|word| !word.is_empty()) {
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
            "exec" | "noexec" => self.noexec = Some(word == "noexec"),
            word if IGNORED.contains(&word) || word.starts_with("x-") => {}
            word => return self.set_value(word),
        }
        Ok(())
    }

    fn set_value(&mut self, word: &str) -> Result<(), String> {
        match word.split_once('=') {
            Some(("page-size" | "page_size", value)) => {
                self.page_class = Some(parse_page_class(value)?)
            }
            Some(("windows", value)) => {
                self.windows = Some(value.parse().map_err(|error| format!("{error}"))?);
            }
            Some(("flush", value)) => {
                self.flush = Some(value.parse().map_err(|error| format!("{error}"))?);
            }
            // The kernel lists the last two, and mount(8) hands them on at a remount; `user` says
            // who called mount(8).
            Some(("comment" | "user" | "user_id" | "group_id", _)) => {}
            _ => {
                return Err(format!(
                    "`{word}` is no mount option: there are {KNOWN}; and, without a meaning here, \
                     {}, comment=, x-...",
                    IGNORED.join(", ")
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
            page_class: next.page_class.or(all.page_class),
            windows: next.windows.or(all.windows),
            flush: next.flush.or(all.flush),
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
        words.extend(self.windows.map(|windows| format!("windows={windows}")));
        words.extend(self.flush.map(|flush| format!("flush={flush}")));
        words.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_way_through_text() {
        let text = "ro,nodev,nosuid,noexec,relaxed,allow_other,noviews,remount,strictatime,page-size=2M,windows=none,flush=msync";
        let options = MountOptions::parse(text).unwrap();
        assert_eq!(options.text(), text);
        assert_eq!(MountOptions::parse(&options.text()), Ok(options));
        assert_eq!(MountOptions::default().text(), "");
    }

    #[test]
    fn later_options_win_and_those_of_mount_are_let_through() {
        const FSTAB: &str = "nodiratime,diratime,lazytime,nolazytime,silent,loud,mand,nomand,iversion,noiversion,\
                             symfollow,nousers";
        let lists =
            ["ro,defaults,x-systemd.automount,_netdev", "rw,noatime", "comment=a,user=b", FSTAB];
        let lists = lists.map(|list| MountOptions::parse(list).unwrap());
        let options = MountOptions::join(&lists);
        assert_eq!((options.read_only, options.atime), (Some(false), Some(AccessTimes::Never)));
    }

    #[test]
    fn unknown_options_are_named() {
        for list in
            ["relaxd", "nosymfollow", "page-size=8K", "windows=maybe", "flush=often", "ro=1"]
        {
            assert!(MountOptions::parse(list).is_err(), "{list}");
        }
        let error = MountOptions::parse("ro,relaxd").unwrap_err();
        assert!(error.contains("`relaxd`"));
        let named = KNOWN.split(", ").chain(IGNORED);
        for word in named {
            assert!(error.contains(word), "{word} is not listed");
            assert!(word.ends_with('=') || MountOptions::parse(word).is_ok(), "{word}");
        }
    }
}
