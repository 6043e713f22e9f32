//! What is known of an inode in memory: rebuilt from its log when it is first
//! touched, dropped when memory is wanted.

mod anew;
mod behind;
mod beside;
mod cache;
mod collect;
mod dentries;
mod exempt;
mod file;
mod grown;
mod journal;
mod load;
mod maps;
mod mix;
mod names;
mod node;
mod opens;
mod past;
mod queue;
mod replay;
mod rewrite;
mod sectors;
mod seen;
mod state;
mod swap;
mod xattrs;

pub(crate) use anew::write_anew;
pub(crate) use beside::{Beside, Terms};
pub(crate) use cache::Cache;
pub(crate) use collect::{bring_inline, has_first_page, move_log, tidy};
pub(crate) use dentries::{Dentries, Name, Target as NameTarget, target_of};
pub(crate) use exempt::{Pages, put as put_pages, range as pages_range};
pub(crate) use file::File;
pub(crate) use grown::Grown;
pub(crate) use journal::{Journal, JournalPiece};
pub(crate) use load::{
    NO_IDENTITY, Scanned, load, load_as_of, load_for_scan, load_with_cuts, load_with_past,
};
pub(crate) use maps::Staged;
pub(crate) use mix::Mix;
pub(crate) use names::{entry_lines, find_among, find_entry, load_name, load_target, valid_name};
pub(crate) use node::{Exclusive, Node};
pub(crate) use past::{Past, PastName};
pub(crate) use rewrite::head_of_word;
pub(crate) use seen::{Seen, look_at_seen};
pub(crate) use state::{Body, Directory, State, Target};
pub(crate) use xattrs::{
    find_xattr, load_xattr_name, load_xattr_value, run_word, valid_xattr_name, xattr_text_max,
};
