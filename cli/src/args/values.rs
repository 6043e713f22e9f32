//! Values of the command line: each is checked here, and is what it says from there on.

use std::time::Duration;

use lode_bench::subject::{self, Subject};
use lode_bench::workload::{self, Workload};
use lode_crash::corrupt::InjectionId;
use lode_crash::region::Profile;
use lode_crash::run::ReplayId;
use lode_engine::{DEAD_ZONE_MOST, LABEL_MAX, PageClass, Protection};
use lode_pmem::{FlushStrategy, WindowMode};

use crate::sizes::{parse_page_class, parse_size};
use crate::words::Words;

pub(super) const PAGE_SIZES: Words<PageClass> =
    Words { parse: parse_page_class, words: || vec!["4K", "2M", "1G"] };
pub(super) const LEVELS: Words<Protection> = Words {
    parse: parse_level,
    words: || Protection::ALL.iter().map(|level| level.name()).collect(),
};
pub(super) const WINDOWS: Words<WindowMode> =
    Words { parse: parse_windows, words: || vec!["key", "mprotect", "none"] };
pub(super) const PROFILES: Words<Profile> =
    Words { parse: parse_profile, words: || vec!["adr", "eadr", "file"] };
pub(super) const WORKLOADS: Words<&'static Workload> = Words {
    parse: parse_workload,
    words: || workload::ALL.iter().map(|workload| workload.id).collect(),
};
pub(super) const SUBJECTS: Words<SubjectId> = Words {
    parse: parse_subject,
    words: || subject::every().map(|subject| subject.id()).collect(),
};

/// Seconds, with decimals if need be.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    const LEAST: f64 = 0.1;
    const MOST: f64 = 86_400.0;
    match text.parse::<f64>() {
        Ok(seconds) if (LEAST..=MOST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err(format!("choose {LEAST} to {MOST} seconds")),
        Err(_) => {
            Err("not a number of seconds (the directory goes first: lode stats DIR --watch)"
                .to_owned())
        }
    }
}

fn parse_profile(text: &str) -> Result<Profile, String> {
    text.parse()
}

fn parse_workload(text: &str) -> Result<&'static Workload, String> {
    workload::by_id(text).ok_or_else(|| "there is no such workload: see lode bench --list".into())
}

/// A subject by its name: these are no values of their own.
#[derive(Clone, Copy)]
pub(crate) struct SubjectId(pub(crate) &'static dyn Subject);

impl std::fmt::Debug for SubjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.id())
    }
}

fn parse_subject(text: &str) -> Result<SubjectId, String> {
    let found = subject::by_id(text).map(SubjectId);
    found.ok_or_else(|| "there is no such subject: see lode bench --list".into())
}

pub(super) fn parse_replay_id(text: &str) -> Result<ReplayId, String> {
    text.parse()
}

pub(super) fn parse_injection_id(text: &str) -> Result<InjectionId, String> {
    text.parse()
}

pub(super) fn parse_label(text: &str) -> Result<String, String> {
    match text.len() {
        len if len > LABEL_MAX => {
            Err(format!("the label has {len} bytes, at most {LABEL_MAX} are possible"))
        }
        _ if text.chars().any(char::is_control) => {
            Err("the label has control characters (line ends, tabs, ...), which can't be shown"
                .into())
        }
        _ => Ok(text.to_owned()),
    }
}

fn parse_windows(text: &str) -> Result<WindowMode, String> {
    text.parse().map_err(|error: lode_pmem::UnknownWindowMode| error.to_string())
}

fn parse_level(text: &str) -> Result<Protection, String> {
    let found = Protection::ALL.into_iter().find(|level| level.name() == text);
    found.ok_or_else(|| "levels are none, metadata and full".to_owned())
}

pub(super) fn parse_dead_zone(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("1 is the least".to_owned()),
        bytes if bytes > DEAD_ZONE_MOST => Err("511M is the most".to_owned()),
        bytes => Ok(bytes),
    }
}

pub(super) fn parse_strip(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        bytes @ (512 | 1024 | 2048) => Ok(bytes as u32),
        _ => Err("512, 1024 or 2048".to_owned()),
    }
}

pub(super) fn parse_flush(text: &str) -> Result<FlushStrategy, String> {
    text.parse().map_err(|error: lode_pmem::UnknownStrategy| error.to_string())
}
