//! What a run says: rows, the machine they are of, and what was to hold.

use serde::{Deserialize, Serialize};

use crate::workload::Kind;

/// A run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Where it was.
    pub machine: Machine,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What was found that is no time.
    pub figures: Vec<Figure>,
    /// What the time of operations goes into.
    pub breakdown: Vec<Breakdown>,
    /// How much metadata scribbles can take.
    pub risk: Vec<Risk>,
    /// What must hold, as far as these rows tell.
    pub targets: Vec<Target>,
    /// What the subject `limit` does for each workload that was measured.
    pub limits: Vec<Steps>,
    /// What could not be measured, and why.
    pub left_out: Vec<LeftOut>,
}

/// The machine, and what the run has lain on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's name.
    pub cpu: String,
    /// Processors.
    pub cores: usize,
    /// The kernel's version.
    pub kernel: String,
    /// How stores reach the memory.
    pub flush: String,
    /// What guards it against stray stores.
    pub windows: String,
    /// Where pools and images lie.
    pub medium: String,
    /// Bytes of the pages that pools are mapped by there.
    pub page_bytes: u64,
    /// The load of the last minute before the run, as the kernel tells it.
    pub load: String,
    /// The kernel lets requests of mounts come by io_uring.
    pub fuse_io_uring: bool,
    /// No processor fell asleep during the run.
    pub awake: bool,
    /// The slower medium whose times some subjects take, if any.
    pub emulated: Option<String>,
}

/// One workload of one subject.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What was done.
    pub workload: String,
    /// To what.
    pub subject: String,
    /// By so many threads at a time.
    pub threads: usize,
    /// Bytes that an operation moves; 0 where it moves none.
    pub size: u64,
    /// `private`: each thread in files and directories of its own; `shared`: all in the same.
    pub mode: String,
    /// How long an operation takes the thread that does it.
    pub ns_per_op: f64,
    /// Operations a second, of all threads together.
    pub ops_per_s: f64,
    /// What half of the operations did not exceed; `null` where none was timed.
    pub p50_ns: Option<u64>,
    /// What 99 of 100 operations did not exceed.
    pub p99_ns: Option<u64>,
    /// Rounds, of which the figures are medians.
    pub repetitions: usize,
    /// How far apart the middle half of the rounds lies, as a part of the median.
    pub spread: f64,
    /// It took the times of the emulated medium.
    pub emulated: bool,
}

impl Row {
    /// What was done, for people: of openings with the number of files.
    pub fn title(&self) -> String {
        match crate::workload::by_id(&self.workload).map(|workload| workload.kind) {
            Some(Kind::Opening { .. }) => format!("{}, {} files", self.workload, self.size),
            _ => self.workload.clone(),
        }
    }
}

/// What the time of an operation goes into. The parts are the whole.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Breakdown {
    /// The operation.
    pub workload: String,
    /// Of whom.
    pub subject: String,
    /// Processor time that it takes.
    pub ns_per_op: f64,
    /// Looks at where it was.
    pub samples: u64,
    /// Data, to the medium or from it.
    pub copy_ns: f64,
    /// Waiting for the medium.
    pub fences_ns: f64,
    /// Pages and inode slots, taken and given back.
    pub allocation_ns: f64,
    /// Finding and changing what is known in memory, and names.
    pub index_ns: f64,
    /// Making, sealing, checking and storing lines of logs.
    pub record_ns: f64,
    /// Checksums and parity of file data: computing, comparing, storing them.
    pub checksums_ns: f64,
    /// Storing second copies of lines.
    pub second_copies_ns: f64,
    /// All else.
    pub rest_ns: f64,
}

impl Breakdown {
    /// The operation, for people: with the level, where levels are compared.
    pub fn title(&self) -> String {
        match self.subject.as_str() {
            "lode-engine" => self.workload.clone(),
            level => format!("{}, {}", self.workload, level.trim_start_matches("lode-")),
        }
    }

    /// The parts by their names.
    pub fn parts(&self) -> [(&'static str, f64); 8] {
        [
            ("copy", self.copy_ns),
            ("fences", self.fences_ns),
            ("allocation", self.allocation_ns),
            ("index", self.index_ns),
            ("record", self.record_ns),
            ("checksums", self.checksums_ns),
            ("second copies", self.second_copies_ns),
            ("rest", self.rest_ns),
        ]
    }
}

/// A number that is no time of an operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// What was done.
    pub workload: String,
    /// To what.
    pub subject: String,
    /// What was found.
    pub what: String,
    /// How much of it.
    pub value: f64,
    /// `bytes`, `part` (of a whole that is 1), or what is counted.
    pub unit: String,
}

impl Figure {
    /// The number, for people.
    pub fn shown(&self) -> String {
        match self.unit.as_str() {
            "bytes" if self.value < 1e5 => format!("{:.0} bytes", self.value),
            "bytes" => format!("{:.1} MB", self.value / 1e6),
            "part" if self.value < 0.1 => format!("{:.3} %", self.value * 100.0),
            "part" => format!("{:.1} %", self.value * 100.0),
            unit if self.value < 100.0 => format!("{:.1} {unit}", self.value),
            unit => format!("{:.0} {unit}", self.value),
        }
    }
}

/// How much metadata a scribble of some size can take, wherever it happens.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Risk {
    /// How metadata is kept twice, by the dissertation's name.
    pub scheme: String,
    /// It is no layout of Lode's, but one computed over the metadata of a pool of level none.
    pub modelled: bool,
    /// Bytes that are overwritten.
    pub scribble_bytes: u64,
    /// Bytes that one can take at most.
    pub max_bytes: u64,
    /// Pages that one takes on average.
    pub mean_pages: f64,
    /// What the dissertation's text says of the most; `null` where it says nothing.
    pub nova_max_bytes: Option<u64>,
    /// And of the mean.
    pub nova_mean_pages: Option<f64>,
}

/// Something that must hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Of what.
    pub what: String,
    /// What must hold.
    pub figure: String,
    /// What was found.
    pub measured: String,
    /// Whether it holds; `null` where that can't be told here.
    pub met: Option<bool>,
}

/// What physics asks of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Steps {
    /// The workload.
    pub workload: String,
    /// What the subject `limit` does, and nothing else.
    pub steps: String,
}

/// What could not be measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    /// A subject, or `subject: workload`.
    pub what: String,
    /// Why.
    pub why: String,
}
