//! The names the program can be called by, and what those who call it by them pass: mount(8), fsck(8)
//! and scripts that know other file systems' programs.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The names the program can be called by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CalledAs {
    /// `lode`.
    Lode,
    /// `mkfs.lode`.
    Mkfs,
    /// `fsck.lode`, and `fsck.fuse.lode` by fsck(8), which makes the name from the type in fstab.
    Fsck,
    /// `mount.fuse.lode`, by mount(8).
    MountHelper,
}

impl CalledAs {
    /// By the first word of the command line.
    pub(crate) fn from(program: &OsStr) -> Self {
        match Path::new(program).file_name().and_then(OsStr::to_str) {
            Some("mkfs.lode") => Self::Mkfs,
            Some("fsck.lode" | "fsck.fuse.lode") => Self::Fsck,
            Some("mount.fuse.lode" | "mount.fuse3.lode" | "mount.lode") => Self::MountHelper,
            _ => Self::Lode,
        }
    }

    /// Whether nothing is to be said where all goes well: mount(8) is silent then, but for -v.
    pub(crate) fn is_silent(self, args: &[OsString]) -> bool {
        let texts = || args.iter().filter_map(|arg| arg.to_str());
        let verbose = |text: &str| is_helper_flags(text) && text.contains('v');
        self == Self::MountHelper && !texts().any(verbose)
    }

    /// The command line that `lode` would have been given.
    pub(crate) fn rewrite(self, args: Vec<OsString>) -> Vec<OsString> {
        let command = match self {
            Self::Lode => return args,
            Self::Mkfs => "mkfs",
            Self::Fsck => "fsck",
            Self::MountHelper => "mount",
        };
        let mut rest: Vec<OsString> = args.into_iter().skip(1).collect();
        if asks_version(&rest) {
            return ["lode", "--version"].map(OsString::from).to_vec();
        }
        if self == Self::Fsck {
            rest = without_fsck_flags(rest);
        }
        if self == Self::MountHelper {
            rest = without_helper_flags(rest);
            // What mount(8) mounts has them, unless told otherwise: of flags that are the default it
            // takes the opposite out of the list, and says no more. The first two are for root alone.
            let root = rustix::process::geteuid().is_root();
            let defaults = if root { "exec,suid,dev" } else { "exec" };
            rest.extend(["-o", defaults].map(OsString::from));
            rest.rotate_right(2);
        }
        [OsString::from("lode"), command.into()].into_iter().chain(rest).collect()
    }
}

/// Whether the program's version is asked for, as of other file systems' programs.
fn asks_version(args: &[OsString]) -> bool {
    args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "-V" || arg == "--version")
}

/// Takes out what mount(8) passes to every helper and none of it is ours: -s -n -v, -N and -t
/// with their values. -f (`mount --fake`) has another meaning there than for `lode mount`.
fn without_helper_flags(args: Vec<OsString>) -> Vec<OsString> {
    let mut kept = Vec::with_capacity(args.len());
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-N" | "-t") => drop(args.next()),
            Some("-o") => kept.extend([arg].into_iter().chain(args.next())),
            Some(flags) if is_helper_flags(flags) => {
                kept.extend(flags.contains('f').then(|| OsString::from("--fake")));
            }
            _ => kept.push(arg),
        }
    }
    kept
}

/// One or more of mount(8)'s flags without a value.
fn is_helper_flags(text: &str) -> bool {
    let flags = text.strip_prefix('-').unwrap_or_default();
    !flags.is_empty() && flags.bytes().all(|flag| b"sfnv".contains(&flag))
}

/// Takes out what fsck(8) is told and may hand on, and what is not ours: -C (progress, with a
/// file descriptor), -T (no title), -M (not what is mounted: never is).
fn without_fsck_flags(args: Vec<OsString>) -> Vec<OsString> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mut kept = Vec::with_capacity(args.len());
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next() {
        let flags = arg.to_str().and_then(|text| text.strip_prefix('-')).unwrap_or_default();
        match flags {
            "T" | "M" => {}
            "C" => drop(args.next_if(|next| next.to_str().is_some_and(is_number))),
            flags if flags.strip_prefix('C').is_some_and(is_number) => {}
            _ => kept.push(arg),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn mount_calls_the_helper_with_flags_of_its_own() {
        let line = words("mount.fuse.lode /p /d -s -n -t fuse.lode -o rw,noatime");
        let root = rustix::process::geteuid().is_root();
        let first = if root { "-o exec,suid,dev" } else { "-o exec" };
        let same = format!("lode mount {first} /p /d -o rw,noatime");
        assert_eq!(CalledAs::from(&line[0]).rewrite(line), words(&same));
        let line = words("mount.fuse.lode /p /d -fn -v -o -f");
        let same = format!("lode mount {first} /p /d --fake -o -f");
        assert_eq!(CalledAs::from(&line[0]).rewrite(line), words(&same));
    }

    #[test]
    fn the_helper_is_silent_unless_it_is_to_talk() {
        let silent = |line: &str| {
            let line = words(line);
            CalledAs::from(&line[0]).is_silent(&line)
        };
        assert!(silent("mount.fuse.lode /p /d -sn -o rw"));
        assert!(!silent("mount.fuse.lode /p /d -sv") && !silent("lode mount /p /d"));
    }

    #[test]
    fn other_names_stand_for_subcommands() {
        for (line, same) in [
            ("/sbin/mkfs.lode -L x /p", "lode mkfs -L x /p"),
            ("fsck.lode -a /p", "lode fsck -a /p"),
            ("/sbin/fsck.fuse.lode -a /p", "lode fsck -a /p"),
            ("fsck.lode -T -a -C0 -v -M /p", "lode fsck -a -v /p"),
            ("fsck.lode -C 3 -f -C /p", "lode fsck -f /p"),
            ("mkfs.lode -V", "lode --version"),
            ("fsck.lode -V", "lode --version"),
            ("mount.fuse.lode -V", "lode --version"),
            ("lode mount /p /d -n", "lode mount /p /d -n"),
        ] {
            let line = words(line);
            assert_eq!(CalledAs::from(&line[0]).rewrite(line), words(same));
        }
    }
}
