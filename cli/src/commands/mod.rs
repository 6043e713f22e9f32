//! The subcommands, one file each.

pub(crate) mod bench;
pub(crate) mod block;
pub(crate) mod crash;
pub(crate) mod dump;
pub(crate) mod fsck;
pub(crate) mod generate;
pub(crate) mod heap;
pub(crate) mod info;
pub(crate) mod label;
mod manual;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod protect;
pub(crate) mod receive;
mod remount;
pub(crate) mod resize;
pub(crate) mod scrub;
pub(crate) mod send;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod umount;
