//! What a repair did, for people and for programs.

use lode_engine::Salvage;
use serde::Serialize;

use crate::human::printable;

/// What a directory that is made again is left with.
const OWNERS_ALONE: &str = "its rights are its owner's alone now";

/// One thing that was repaired, or given up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct RepairFacts {
    /// What was done: `lost`, `made_again`, `named_again`, `attached`, `entry_removed`, `links_set`,
    /// `attribute_removed`, `root_made`, `chain_mended`, `tables_found`, `checkpoint_lost`,
    /// `snapshots_lost`, `sectors_lost` or `watermark_reset`.
    pub(crate) done: &'static str,
    /// The inode (as the damaged pool numbered it), `null` for none.
    pub(crate) inode: Option<u64>,
    /// Its path, as far as there is one.
    pub(crate) path: Option<String>,
    /// For people.
    pub(crate) what: String,
}

/// All of them, in their order.
#[derive(Default)]
pub(crate) struct Repairs(Vec<RepairFacts>);

impl Repairs {
    /// Takes in what a salvage tells.
    pub(crate) fn add(&mut self, event: &Salvage<'_>) {
        let fact = |done, inode, path, what| RepairFacts { done, inode, path, what };
        let new = match *event {
            Salvage::Discarded { damage, entries } => {
                let kept = match entries {
                    Some(count) => format!("; {count} of its entries can be read"),
                    None => String::new(),
                };
                let what = format!("{} at offset {:#x}{kept}", damage.what, damage.at);
                fact("lost", Some(damage.ino), None, what)
            }
            Salvage::EntryRemoved { dir, name, ino } => {
                let path = joined(dir, name);
                let what = match self.lost(ino) {
                    // What is lost had this name.
                    Some(lost @ RepairFacts { path: None, .. }) => {
                        lost.path = Some(path);
                        return;
                    }
                    Some(_) => "what it led to is lost",
                    None => "led to no inode, or to another than it said",
                };
                fact("entry_removed", Some(ino), Some(path), what.to_owned())
            }
            Salvage::DirectoryMade { ino, path, attributes } => {
                let (path, without) = (printable(path), without(attributes));
                if let Some(lost) = self.lost(ino) {
                    lost.done = "made_again";
                    lost.path = Some(path);
                    lost.what = format!("{}; {without}", lost.what);
                    return;
                }
                fact("made_again", Some(ino), Some(path), without)
            }
            Salvage::Attached { ino, dir, name } => {
                let lost = dir == b"/lost+found" && name.starts_with(b"#");
                let (done, what) = if lost {
                    ("attached", "nothing led to it any more")
                } else {
                    ("named_again", "its directory had lost it")
                };
                fact(done, Some(ino), Some(joined(dir, name)), what.to_owned())
            }
            Salvage::LinksSet { ino, path, links } => {
                fact("links_set", Some(ino), path.map(printable), format!("has {links} links"))
            }
            Salvage::AttributeRemoved { ino, path, name, group_cleared } => {
                let rights = if group_cleared { "; its group has no rights now" } else { "" };
                let name = printable(name);
                let what = format!("extended attribute {name}, which can't be read{rights}");
                fact("attribute_removed", Some(ino), path.map(printable), what)
            }
            Salvage::RootMade => {
                let what = format!("it could not be read; {OWNERS_ALONE}");
                fact("root_made", None, Some("/".to_owned()), what)
            }
            Salvage::ChainMended { damage } => {
                let what = format!("{} at offset {:#x}", damage.what, damage.at);
                fact("chain_mended", None, None, what)
            }
            Salvage::TablesFound { damage, tables } => {
                let found = match tables {
                    0 => "none was found".to_owned(),
                    1 => "one was found".to_owned(),
                    _ => format!("{tables} were found"),
                };
                let (what, at) = (damage.what, damage.at);
                fact("tables_found", None, None, format!("{what} at offset {at:#x}; {found}"))
            }
            Salvage::CheckpointLost { damage } => {
                let what = format!("{} at offset {:#x}", damage.what, damage.at);
                fact("checkpoint_lost", None, None, what)
            }
            Salvage::SnapshotsLost { damage } => {
                let what = format!("{} at offset {:#x}", damage.what, damage.at);
                fact("snapshots_lost", None, None, what)
            }
            Salvage::SectorsLost { damage } => {
                let what = format!("{} at offset {:#x}", damage.what, damage.at);
                fact("sectors_lost", None, None, what)
            }
            Salvage::WatermarkReset { lane } => {
                fact("watermark_reset", None, None, format!("of lane {lane}: both were damaged"))
            }
        };
        self.0.push(new);
    }

    fn lost(&mut self, inode: u64) -> Option<&mut RepairFacts> {
        self.0.iter_mut().find(|fact| fact.done == "lost" && fact.inode == Some(inode))
    }

    /// The list.
    pub(crate) fn into_facts(self) -> Vec<RepairFacts> {
        self.0
    }
}

impl RepairFacts {
    /// One line of text.
    pub(crate) fn text(&self) -> String {
        let done = match self.done {
            "lost" => "LOST",
            "made_again" => "directory made again",
            "attached" => "put into lost+found",
            "named_again" => "found again",
            "entry_removed" => "name removed",
            "links_set" => "link count set",
            "attribute_removed" => "removed",
            "root_made" => "root directory made again",
            "chain_mended" => "repaired",
            "tables_found" => "inode tables searched for",
            "checkpoint_lost" => "checkpoint given up",
            "snapshots_lost" => "snapshots given up",
            "sectors_lost" => "sectors may be torn",
            _ => "watermark reset",
        };
        let path = self.path.as_ref().map(|path| format!(" {path}")).unwrap_or_default();
        let inode = self.inode.map(|inode| format!(" (inode {inode})")).unwrap_or_default();
        format!("{done}{path}{inode}: {}", self.what)
    }
}

/// What a directory that was made again has no more.
fn without(attributes: &[Vec<u8>]) -> String {
    let names: String = attributes.iter().map(|name| format!("{}, ", printable(name))).collect();
    format!(
        "extended attributes that it had are lost ({names}any that can't be read); {OWNERS_ALONE}"
    )
}

fn joined(dir: &[u8], name: &[u8]) -> String {
    let slash = if dir.ends_with(b"/") { "" } else { "/" };
    format!("{}{slash}{}", printable(dir), printable(name))
}
