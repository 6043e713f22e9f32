//! What is done to a block device: the sixteen workloads of the paper's figures.

/// How the place of the next access is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Behind the last one, each thread in a part of its own.
    Sequential,
    /// Anywhere.
    Random,
}

/// One workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// It writes.
    pub writes: bool,
    /// Where.
    pub order: Order,
    /// How many bytes at a time.
    pub bytes: u64,
    /// How many threads, each with one access under way.
    pub depth: usize,
}

/// Sizes of an access.
pub const SIZES: [u64; 2] = [4 << 10, 256 << 10];
/// Accesses at a time.
pub const DEPTHS: [usize; 2] = [1, 32];

impl Order {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sequential, Self::Random];

    /// As rows say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
        }
    }
}

impl Cell {
    /// All of them, in the paper's order.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for writes in [false, true] {
            for order in Order::ALL {
                for bytes in SIZES {
                    all.extend(DEPTHS.map(|depth| Self { writes, order, bytes, depth }));
                }
            }
        }
        all
    }

    /// What rows call the workload.
    pub fn workload(&self) -> String {
        let what = if self.writes { "write" } else { "read" };
        format!("{what}-{}k", self.bytes >> 10)
    }

    /// As the paper abbreviates it: `WR-RND-sz4-Q32`.
    pub fn short(&self) -> String {
        let what = if self.writes { "WR" } else { "RD" };
        let order = if self.order == Order::Random { "RND" } else { "SEQ" };
        format!("{what}-{order}-sz{}-Q{}", self.bytes >> 10, self.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_sixteen_and_each_has_a_name() {
        let all = Cell::all();
        let mut names: Vec<_> = all.iter().map(Cell::short).collect();
        assert_eq!((names.len(), names[0].as_str()), (16, "RD-SEQ-sz4-Q1"));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 16);
        assert_eq!(all[15].workload(), "write-256k");
    }
}
