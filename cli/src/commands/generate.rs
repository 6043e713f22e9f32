//! `lode man` and `lode completions`: made from the definition of the command line, so that they
//! say what it says.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::commands::manual;
use crate::failure::{Failure, Kind, Result};
use crate::output::Output;
use crate::report::{CompletionsReport, ManReport};

/// Names by which other programs call `lode`, and the subcommand that each stands for. (The helper
/// of mount(8) has a page of its own: it takes other flags, and has other exit statuses.)
const OTHER_NAMES: [(&str, &str); 3] =
    [("mkfs.lode", "mkfs"), ("fsck.lode", "fsck"), ("fsck.fuse.lode", "fsck")];
const HELPER_NAME: &str = "mount.fuse.lode";

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
        let name = page.get_filename();
        let mut text = Vec::new();
        // (A vector takes everything.)
        let _ = page.render(&mut text);
        text.extend(manual::more_of(name.trim_end_matches(".1")).into_bytes());
        pages.push((Path::new("man1").join(name), text));
    }
    for (name, same) in OTHER_NAMES {
        let text = format!(".so man1/lode-{same}.1\n");
        pages.push((format!("man8/{name}.8").into(), text.into_bytes()));
    }
    pages.push((format!("man8/{HELPER_NAME}.8").into(), manual::helper().into_bytes()));
    pages.sort();
    pages
}

/// Prints what a shell needs to complete command lines.
///
/// # Errors
/// When it can't be printed.
pub(crate) fn completions(args: &CompletionsArgs, output: &Output) -> Result<()> {
    let script = script(args.shell, &args.program)
        .ok_or_else(|| Failure::new(Kind::Failed, "the script is no text".to_owned()))?;
    output.print(&CompletionsReport { shell: args.shell.to_string(), script })
}

fn script(shell: clap_complete::Shell, program: &str) -> Option<String> {
    let mut all = Cli::command();
    // Options of all subcommands become those of each.
    all.build();
    let named = OTHER_NAMES.iter().find(|(name, _)| *name == program);
    let command = named.and_then(|(_, same)| all.find_subcommand(same)).unwrap_or(&all);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(command), program, &mut script);
    String::from_utf8(script).ok()
}

/// The command with what is shown of it: the generators offer hidden options, too.
fn shown(command: &clap::Command) -> clap::Command {
    let (name, about) = (command.get_name().to_owned(), command.get_about().cloned());
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let own = args.filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()));
    let subs = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let subs = subs.filter(|sub| sub.get_name() != "help").map(shown);
    let shown = clap::Command::new(name).args(own.cloned()).subcommands(subs);
    let shown = match command.get_version() {
        Some(version) => shown.version(version.to_owned()),
        None => shown,
    };
    shown.about(about.unwrap_or_default())
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
    fn pages_of_what_mounts_say_what_options_mean_and_all_how_it_ends() {
        let pages = pages_of(Cli::command());
        let mut all = pages.iter().map(|(name, text)| (name.display().to_string(), text));
        assert!(all.all(|(_, text)| text.starts_with(b".so ") || {
            let text = String::from_utf8_lossy(text);
            text.matches(".SH \"EXIT STATUS\"").count() == 1
        }));
        for name in ["man1/lode-mount.1", "man8/mount.fuse.lode.8"] {
            let (_, text) = pages.iter().find(|(file, _)| file == Path::new(name)).unwrap();
            let text = String::from_utf8_lossy(text);
            for (option, _) in crate::options::MEANINGS {
                let first = option.split(", ").next().unwrap().replace('-', r"\-");
                assert!(text.contains(&format!("\\fB{first}")), "{name}: {option}");
            }
        }
    }

    #[test]
    fn every_shell_has_a_script_of_each_program_without_hidden_options() {
        use clap::ValueEnum;
        for shell in clap_complete::Shell::value_variants() {
            let of = |program: &str| script(*shell, program).unwrap();
            let (all, mkfs, fsck) = (of("lode"), of("mkfs.lode"), of("fsck.lode"));
            for text in [&all, &mkfs] {
                assert!(text.contains("page-size") && text.contains("force"), "{shell}");
            }
            assert!(all.contains("fsck") && all.contains("replay") && all.contains("progress"));
            assert!(mkfs.contains("mkfs.lode") && mkfs.contains("progress"), "{shell}");
            assert!(fsck.contains("fsck.lode") && !fsck.contains("page-size"), "{shell}");
            for hidden in ["serve-with-log", "--fake", "-l fake"] {
                assert!(!all.contains(hidden), "{shell}: {hidden}");
            }
        }
    }
}
