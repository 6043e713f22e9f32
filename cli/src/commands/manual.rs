//! What man pages say beside the command line: mount options, and how programs end.

use crate::options::{IGNORED, MEANINGS};

/// How `lode` ends.
const EXIT: [(&str, &str); 12] = [
    ("0", "Done."),
    ("1", "Failed."),
    ("2", "Wrong usage."),
    ("3", "Not a pool."),
    ("4", "Damaged. Of lode crash: a state is wrong, or a mutant is not noticed."),
    ("5", "A format that this version does not know."),
    ("6", "In use."),
    ("7", "No space."),
    ("8", "Not found."),
    ("9", "Not permitted."),
    ("10", "It exists already."),
    ("11", "Not mounted."),
];
const EXIT_FSCK: [(&str, &str); 6] = [
    ("0", "Clean."),
    ("1", "Repaired."),
    ("4", "Damage is left."),
    ("8", "It could not be checked: in use, not found, not a pool, ..."),
    ("16", "Wrong usage."),
    ("32", "Interrupted."),
];
/// What fsck(8) and those who know other programs of the kind pass.
const AS_FSCK: [(&str, &str); 5] = [
    ("-a", "The same as -p, also of lode fsck."),
    ("-C [FD]", "Show progress: it is shown where standard error is a terminal. FD is not used."),
    ("-T, -M", "Nothing: there is no title, and what is mounted is never checked."),
    ("-V", "Show the version."),
    ("-r", "Refused: no questions are asked."),
];
const EXIT_HELPER: [(&str, &str); 3] = [
    ("0", "Mounted."),
    ("1", "Wrong usage, or not permitted."),
    ("32", "It could not be mounted."),
];
const HELPER: &str = "\
.TH mount.fuse.lode 8 \"\" lode Lode
.SH NAME
mount.fuse.lode \\- mount a pool of Lode, for mount(8)
.SH SYNOPSIS
\\fBmount.fuse.lode\\fR \\fIPOOL\\fR \\fIDIR\\fR [\\fB\\-sfnvV\\fR] [\\fB\\-o\\fR \\fIOPTIONS\\fR]
.SH DESCRIPTION
What mount(8) runs for the type fuse.lode. It returns once the mount answers, and says nothing.
A line of /etc/fstab:
.PP
.RS
/mnt/pmem/pool  /data  fuse.lode  noatime,nofail  0  0
.RE
.SH OPTIONS
.TP
\\fB\\-v\\fR
Say what was mounted.
.TP
\\fB\\-V\\fR
Show the version.
.TP
\\fB\\-f\\fR
Check what was given, and mount nothing.
.TP
\\fB\\-s\\fR, \\fB\\-n\\fR, \\fB\\-N\\fR \\fINAMESPACE\\fR, \\fB\\-t\\fR \\fITYPE\\fR
Mean nothing here.
.TP
\\fB\\-o\\fR \\fIOPTIONS\\fR
See below.
";

/// What is appended to the page of a command of this name, `lode-mount` for instance.
pub(super) fn more_of(page: &str) -> String {
    match page {
        "lode-mount" => mount_options() + &exit_status(&EXIT),
        "lode-fsck" => list("AS FSCK.LODE", &AS_FSCK) + &exit_status(&EXIT_FSCK),
        "lode-scrub" => exit_status(&EXIT_FSCK),
        _ => exit_status(&EXIT),
    }
}

/// The page of the helper of mount(8).
pub(super) fn helper() -> String {
    let see = ".SH \"SEE ALSO\"\nlode\\-mount(1), mount(8), fstab(5)\n";
    HELPER.to_owned() + &mount_options() + &exit_status(&EXIT_HELPER) + see
}

fn mount_options() -> String {
    let list = list("MOUNT OPTIONS", &MEANINGS);
    let ignored = escaped(&IGNORED.join(", "));
    format!("{list}.PP\nLet through, because they mean nothing here: {ignored}.\n")
}

fn exit_status(codes: &[(&str, &str)]) -> String {
    list("EXIT STATUS", codes)
}

/// A section of names, in bold, and what each means.
fn list(title: &str, entries: &[(&str, &str)]) -> String {
    let mut text = format!(".SH \"{title}\"\n");
    for (name, meaning) in entries {
        text.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", escaped(name), escaped(meaning)));
    }
    text
}

/// Text as roff takes it. (No line of it begins with a dot or an apostrophe.)
fn escaped(text: &str) -> String {
    text.replace('\\', r"\e").replace('-', r"\-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    #[test]
    fn every_way_to_end_is_in_the_pages() {
        let has = |codes: &[(&str, &str)], code: u8| {
            let code = code.to_string();
            assert!(codes.iter().any(|(known, _)| *known == code), "{code}");
        };
        for kind in Kind::ALL {
            has(&EXIT, kind.code());
            has(&EXIT_FSCK, kind.fsck_code());
            has(&EXIT_HELPER, kind.mount_code());
        }
    }

    #[test]
    fn roff_sees_no_request_in_a_text() {
        let all = [mount_options(), exit_status(&EXIT), exit_status(&EXIT_FSCK), helper()].concat();
        for line in all.lines().filter(|line| line.starts_with(['.', '\''])) {
            let known = [".SH ", ".TP", ".PP", ".RS", ".RE", ".TH "];
            assert!(known.iter().any(|request| line.starts_with(request)), "{line}");
        }
    }
}
