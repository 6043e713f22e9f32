//! `lode man` and `lode completions`: made from the definition of the command line, so that they
//! say what it says.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;
use crate::report::{CompletionsReport, ManReport};

/// Names by which other programs call `lode`, and the subcommand that each stands for.
const OTHER_NAMES: [(&str, &str); 3] =
    [("mkfs.lode", "mkfs"), ("fsck.lode", "fsck"), ("mount.fuse.lode", "mount")];

/// Writes the man pages.
///
/// # Errors
/// When a page can't be written.
pub(crate) fn man(args: &ManArgs, output: &Output) -> Result<()> {
    let failed = |path: &Path, error: &std::io::Error| {
        Failure::io("writing a man page", path, error)
            .advise("name a directory that can be written, such as ~/.local/share/man")
    };
    for section in ["man1", "man8"] {
        let dir = args.dir.join(section);
        fs::create_dir_all(&dir).map_err(|error| failed(&dir, &error))?;
    }
    let mut pages = Vec::new();
    for (name, text) in pages_of(Cli::command()) {
        let path = args.dir.join(name);
        fs::write(&path, text).map_err(|error| failed(&path, &error))?;
        pages.push(path.display().to_string());
    }
    output.print(&ManReport { pages })
}

/// Every page: its place, and its text in roff.
fn pages_of(command: clap::Command) -> Vec<(PathBuf, Vec<u8>)> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    let mut todo = vec![command];
    while let Some(command) = todo.pop() {
        todo.extend(command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned());
        let page = clap_mangen::Man::new(command).source("lode").manual("Lode");
        let mut text = Vec::new();
        // (A vector takes everything.)
        let _ = page.render(&mut text);
        pages.push((Path::new("man1").join(page.get_filename()), text));
    }
    for (name, same) in OTHER_NAMES {
        let text = format!(".so man1/lode-{same}.1\n");
        pages.push((format!("man8/{name}.8").into(), text.into_bytes()));
    }
    pages.sort();
    pages
}

/// Prints what a shell needs to complete command lines.
///
/// # Errors
/// When it can't be printed.
pub(crate) fn completions(args: &CompletionsArgs, output: &Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lode", &mut script);
    let script = String::from_utf8(script)
        .map_err(|_| Failure::new(Kind::Failed, "the script is no text".to_owned()))?;
    output.print(&CompletionsReport { shell: args.shell.to_string(), script })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page_with_its_options() {
        let pages = pages_of(Cli::command());
        let page = |name: &str| {
            let (_, text) = pages.iter().find(|(file, _)| file == Path::new(name)).unwrap();
            String::from_utf8(text.clone()).unwrap()
        };
        for name in
            ["man1/lode.1", "man1/lode-mkfs.1", "man1/lode-mount.1", "man1/lode-crash-run.1"]
        {
            assert!(page(name).contains(".SH SYNOPSIS"), "{name}");
        }
        assert!(page("man1/lode-mkfs.1").contains(r"\-\-label"));
        assert!(page("man1/lode.1").contains("lode\\-mkfs(1)"));
        assert_eq!(page("man8/mkfs.lode.8"), ".so man1/lode-mkfs.1\n");
        assert!(!pages.iter().any(|(name, _)| name.to_string_lossy().contains("help")));
    }

    #[test]
    fn every_shell_has_a_script() {
        use clap::ValueEnum;
        for shell in clap_complete::Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "lode", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("fsck") && script.contains("page-size"), "{shell}");
        }
    }
}
