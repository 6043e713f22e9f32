//! `lode man` and `lode completions`: what they write is there, and those who read it take it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Scratch, lode, text};

const SUBCOMMANDS: [&str; 6] = ["mkfs", "mount", "umount", "fsck", "stats", "crash"];

#[test]
fn man_writes_every_page_and_man_reads_them() {
    let scratch = Scratch::new();
    let dir = scratch.dir("man");
    let report = lode(&["man", text(&dir), "--json"]).expect(0).json();
    let pages: Vec<&str> =
        report["pages"].as_array().unwrap().iter().map(|page| page.as_str().unwrap()).collect();
    for name in SUBCOMMANDS {
        let page = fs::read_to_string(dir.join(format!("man1/lode-{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(name), "{name}");
    }
    for name in ["mkfs.lode", "fsck.lode", "fsck.fuse.lode", "mount.fuse.lode"] {
        assert!(dir.join(format!("man8/{name}.8")).is_file(), "{name}");
    }
    for page in &pages {
        assert!(Path::new(page).metadata().unwrap().len() > 0, "{page}");
        let read = Command::new("man").args(["--warnings", "-l", page]).current_dir(&dir).output();
        let Ok(read) = read else {
            println!("skipped: man is not here");
            continue;
        };
        let said = String::from_utf8_lossy(&read.stderr);
        // (Who has no man pages at all has a `man` that says only so.)
        assert!(!said.contains("warning"), "{page}: {said}");
    }
}

#[test]
fn completions_are_printed_for_each_shell_and_bash_takes_them() {
    let scratch = Scratch::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = lode(&["completions", shell]).expect(0).out;
        for name in SUBCOMMANDS {
            assert!(script.contains(name), "{name} for {shell}");
        }
        if shell == "bash" {
            let path = scratch.path("complete");
            fs::write(&path, &script).unwrap();
            let tried = "source \"$1\"; COMP_WORDS=(lode mk); COMP_CWORD=1; \
                         _lode lode mk lode; echo \"${COMPREPLY[*]}\"";
            let tried = Command::new("bash").args(["-c", tried, "bash", text(&path)]).output();
            assert_eq!(String::from_utf8_lossy(&tried.unwrap().stdout).trim(), "mkfs");
        }
    }
    // A program of its own name has a script of its own, without what is hidden.
    let path = scratch.path("complete-mkfs");
    fs::write(&path, lode(&["completions", "bash", "mkfs.lode"]).expect(0).out).unwrap();
    let tried = "source \"$1\"; COMP_WORDS=(mkfs.lode --lab); COMP_CWORD=1; \
                 $(complete -p mkfs.lode | sed 's/.*-F \\([^ ]*\\).*/\\1/') mkfs.lode --lab mkfs.lode; \
                 echo \"${COMPREPLY[*]}\"";
    let tried = Command::new("bash").args(["-c", tried, "bash", text(&path)]).output().unwrap();
    let said = String::from_utf8_lossy(&tried.stderr);
    assert_eq!(String::from_utf8_lossy(&tried.stdout).trim(), "--label", "{said}");
    let tried = "source \"$1\"; COMP_WORDS=(mkfs.lode --page-size ''); COMP_CWORD=2; \
                 $(complete -p mkfs.lode | sed 's/.*-F \\([^ ]*\\).*/\\1/') mkfs.lode '' --page-size; \
                 echo \"${COMPREPLY[*]}\"";
    let tried = Command::new("bash").args(["-c", tried, "bash", text(&path)]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&tried.stdout).trim(), "4K 2M 1G");
    lode(&["completions", "tcl"]).expect(2);
    lode(&["completions", "bash", "umount.lode"]).expect(2);
}
