//! Cases from short texts.

use lode_engine::PageClass;
use lode_testkit::op::Op;
use lode_testkit::parse::parse;

use crate::case::{Case, Geometry, Trouble};

/// Record lines of the shortest log pages: they roll over and are collected all the time.
/// A name or target of more than 136 bytes takes more lines than that.
pub(super) const FEW_LINES: u8 = 4;
/// Record lines of a whole log page.
pub(super) const ALL_LINES: u8 = 63;
/// Bytes of a pool with room for a few files of a few pages.
pub(super) const POOL: u64 = 96 << 10;
/// Bytes of a pool with room for a few pages of 2 MiB.
pub(super) const HUGE_POOL: u64 = 8 << 20;

/// A small pool with one lane and short log pages.
pub(super) fn small() -> Geometry {
    Geometry { bytes: POOL, log_lines: FEW_LINES, ..Geometry::default() }
}

/// As [`small`], with whole log pages: for long names.
pub(super) fn roomy() -> Geometry {
    Geometry { log_lines: ALL_LINES, ..small() }
}

/// As [`small`], with this many lanes.
pub(super) fn lanes(lanes: u32) -> Geometry {
    Geometry { lanes, bytes: POOL + (u64::from(lanes - 1) << 14), ..small() }
}

/// As [`small`], data in place.
pub(super) fn relaxed() -> Geometry {
    Geometry { relaxed: true, ..small() }
}

/// Files of 2 MiB pages.
pub(super) fn huge() -> Geometry {
    Geometry { bytes: HUGE_POOL, class: PageClass::Huge, ..small() }
}

/// Operations between semicolons or line ends.
pub(super) fn operations(text: &str) -> Vec<Op> {
    parse(&text.replace(';', "\n")).unwrap_or_else(|why| panic!("a workload's text: {why}"))
}

/// A case of one thread.
pub(super) fn case(name: impl Into<String>, geometry: Geometry, before: &str, ops: &str) -> Case {
    Case {
        name: name.into(),
        trouble: Trouble::Power,
        geometry,
        before: operations(before),
        ops: operations(ops),
        beside: Vec::new(),
    }
}

/// `text` once for each number below `times`, which stands for each `#` in it.
pub(super) fn repeated(times: u64, text: &str) -> String {
    (0..times).map(|number| text.replace('#', &number.to_string()) + ";").collect()
}
