//! What `lode heap` reports: the keys, and the text for people.

use serde::{Deserialize, Serialize};

use super::{OpeningFacts, PoolFacts, RegionFacts};
use crate::draw::Table;
use crate::human::{Lines, printable, time_text};
use crate::output::Report;
use crate::sizes::human;

/// `lode heap serve`; also what the server tells the command that started it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct HeapServeReport {
    /// Process id of the server.
    pub(crate) pid: u32,
    /// File that the server logs to; `null` with `--foreground`.
    pub(crate) log: Option<String>,
    /// The pool.
    pub(crate) pool: PoolFacts,
    /// What it lies on.
    pub(crate) region: RegionFacts,
    /// How it was found.
    pub(crate) opening: OpeningFacts,
}

impl Report for HeapServeReport {
    fn text(&self) -> String {
        let mut lines = Lines::default();
        lines.add("pool", &self.pool.path);
        self.region.lines(&mut lines);
        self.opening.lines(&mut lines);
        lines.add("server", format!("process {}", self.pid));
        if let Some(log) = &self.log {
            lines.add("log", log);
        }
        format!("Programs can have its memory.\n{}End it: kill {}\n", lines.text(), self.pid)
    }
}

/// Memory of a pool that is lent; bytes where nothing else is said.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct HeapFacts {
    /// What all programs have together, at most.
    pub(crate) limit_bytes: Option<u64>,
    /// What one has, at most.
    pub(crate) program_limit_bytes: Option<u64>,
    /// What is left to files.
    pub(crate) reserve_bytes: u64,
    /// Sessions of programs.
    pub(crate) sessions: u64,
    /// Those that there were.
    pub(crate) sessions_begun: u64,
    /// What programs have.
    pub(crate) lent_bytes: u64,
    /// What of it has no session.
    pub(crate) apart_bytes: u64,
    /// What is kept zeroed.
    pub(crate) ready_bytes: u64,
    /// What programs were given, and gave back.
    pub(crate) granted_bytes: u64,
    pub(crate) returned_bytes: u64,
    /// Requests that got nothing.
    pub(crate) refused: u64,
    /// Times that programs were asked for what they can spare, and what came back by it.
    pub(crate) wishes: u64,
    pub(crate) wished_bytes: u64,
    /// Messages and connections that were refused for what they are.
    pub(crate) hostile: u64,
    /// Kept heaps that programs have, and their bytes.
    pub(crate) kept_heaps: u64,
    pub(crate) kept_bytes: u64,
}

impl HeapFacts {
    /// How much is lent, of how much.
    fn lent(&self) -> String {
        let limit = self.limit_bytes.map(|limit| format!(" of {}", human(limit)));
        format!("{}{}", human(self.lent_bytes), limit.unwrap_or_default())
    }

    /// The sums, as lines among others; none where nobody has asked for any.
    pub(crate) fn lines(&self, lines: &mut Lines) {
        if self.sessions_begun == 0 && self.kept_heaps == 0 {
            return;
        }
        lines.add("lent to programs", format!("{}, {} sessions", self.lent(), self.sessions));
        let [apart, ready, given, back] =
            [self.apart_bytes, self.ready_bytes, self.granted_bytes, self.returned_bytes]
                .map(human);
        lines.add("", format!("{apart} without a session, {ready} ready"));
        let refused = self.refused;
        lines.add("", format!("{given} given, {back} back, {refused} requests refused"));
        if self.kept_heaps > 0 {
            let kept = format!("{}, {}", self.kept_heaps, human(self.kept_bytes));
            lines.add("kept heaps", kept);
        }
    }
}

/// `lode heap stats`.
#[derive(Clone, Serialize)]
pub(crate) struct HeapStatsReport {
    /// The pools.
    pub(crate) pools: Vec<HeapPool>,
}

/// A pool whose memory is lent.
#[derive(Clone, Serialize)]
pub(crate) struct HeapPool {
    /// Its path.
    pub(crate) pool: String,
    /// Where it is mounted; `null` for one that is served without a mount.
    pub(crate) dir: Option<String>,
    /// The server's control socket, for programs that ask for memory by themselves.
    pub(crate) socket: String,
    /// What its server tells.
    #[serde(flatten)]
    pub(crate) lent: HeapAnswer,
}

/// The answer to `heap-stats`.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct HeapAnswer {
    /// Process id of the server.
    pub(crate) pid: u32,
    /// All programs together.
    #[serde(flatten)]
    pub(crate) facts: HeapFacts,
    /// Each of them, the one that has most first.
    pub(crate) programs: Vec<HeapProgram>,
    /// The kept heaps that programs have, the largest first.
    pub(crate) kept: Vec<KeptProgram>,
}

/// A program that is lent memory.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct HeapProgram {
    /// Process id.
    pub(crate) pid: u32,
    /// Its user.
    pub(crate) uid: u32,
    /// Its name, printable.
    pub(crate) name: String,
    /// `direct`, `indirect` or `mmap`.
    pub(crate) method: String,
    /// Chunks of 2 MiB that it has.
    pub(crate) chunks: u64,
    /// The same in bytes.
    pub(crate) bytes: u64,
    /// The most it has had.
    pub(crate) most_bytes: u64,
    /// Since when, nanoseconds since 1970.
    pub(crate) since_ns: u64,
}

/// A program that has a kept heap.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct KeptProgram {
    /// Process id.
    pub(crate) pid: u32,
    /// Its user.
    pub(crate) uid: u32,
    /// Its name, printable.
    pub(crate) name: String,
    /// The file, from the root of the pool, or of what of it is mounted.
    pub(crate) path: String,
    /// Bytes that the file has.
    pub(crate) bytes: u64,
    /// Since when, nanoseconds since 1970.
    pub(crate) since_ns: u64,
}

impl Report for HeapStatsReport {
    fn text(&self) -> String {
        if self.pools.is_empty() {
            return "No pool's memory can be had: neither is one mounted nor served.\n".to_owned();
        }
        let texts: Vec<String> = self.pools.iter().map(HeapPool::text).collect();
        texts.join("\n")
    }
}

impl HeapPool {
    fn text(&self) -> String {
        let HeapAnswer { pid, facts, programs, kept } = &self.lent;
        let mut lines = Lines::default();
        let how = match &self.dir {
            Some(dir) => format!("mounted at {dir}, by process {pid}"),
            None => format!("served by process {pid}"),
        };
        lines.add("pool", &self.pool).add("server", how).add("socket", &self.socket);
        let apart = match facts.apart_bytes {
            0 => String::new(),
            bytes => format!(", {} of it without a session", human(bytes)),
        };
        lines.add("lent", format!("{}{apart}", facts.lent()));
        lines.add("ready", human(facts.ready_bytes));
        lines.add("left to files", human(facts.reserve_bytes));
        lines.add(
            "so far",
            format!(
                "{} given, {} back, {} requests refused, {} wishes, {} hostile",
                human(facts.granted_bytes),
                human(facts.returned_bytes),
                facts.refused,
                facts.wishes,
                facts.hostile
            ),
        );
        let mut table = Table::default();
        table.row(&["program", "process", "method", "chunks", "has", "had most", "since"]);
        for one in programs {
            let since = time_text(i64::try_from(one.since_ns).unwrap_or(i64::MAX));
            table.row(&[
                &printable(one.name.as_bytes()),
                &one.pid.to_string(),
                &one.method,
                &one.chunks.to_string(),
                &human(one.bytes),
                &human(one.most_bytes),
                &since,
            ]);
        }
        let table = if programs.is_empty() { String::new() } else { table.text() };
        format!("{}{table}{}", lines.text(), kept_text(kept))
    }
}

/// The kept heaps, where there are some.
fn kept_text(kept: &[KeptProgram]) -> String {
    if kept.is_empty() {
        return String::new();
    }
    let mut table = Table::default();
    table.row(&["kept heap of", "process", "has", "since", "file"]);
    for one in kept {
        table.row(&[
            &printable(one.name.as_bytes()),
            &one.pid.to_string(),
            &human(one.bytes),
            &time_text(i64::try_from(one.since_ns).unwrap_or(i64::MAX)),
            &printable(one.path.as_bytes()),
        ]);
    }
    table.text()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn facts() -> HeapFacts {
        HeapFacts {
            limit_bytes: Some(8 << 20),
            program_limit_bytes: Some(4 << 20),
            lent_bytes: 6 << 20,
            apart_bytes: 2 << 20,
            kept_heaps: 1,
            kept_bytes: 16 << 20,
            ..HeapFacts::default()
        }
    }

    pub(crate) fn served(
        pool: PoolFacts,
        region: RegionFacts,
        opening: OpeningFacts,
    ) -> HeapServeReport {
        HeapServeReport { pid: 1, log: Some("/l".into()), pool, region, opening }
    }

    pub(crate) fn report() -> HeapStatsReport {
        let program = HeapProgram {
            pid: 7,
            uid: 0,
            name: "a\u{1b}name".into(),
            method: "direct".into(),
            chunks: 2,
            bytes: 4 << 20,
            most_bytes: 4 << 20,
            since_ns: 1,
        };
        let kept = KeptProgram {
            pid: 8,
            uid: 0,
            name: "keeper".into(),
            path: "a/\u{1b}heap".into(),
            bytes: 16 << 20,
            since_ns: 1,
        };
        let (programs, kept) = (vec![program], vec![kept]);
        let lent = HeapAnswer { pid: 1, facts: facts(), programs, kept };
        HeapStatsReport {
            pools: vec![HeapPool {
                pool: "/p".into(),
                dir: Some("/d".into()),
                socket: "/run/s".into(),
                lent,
            }],
        }
    }

    #[test]
    fn who_has_memory_is_told_in_lines_that_nobody_can_forge() {
        let text = report().text();
        assert!(text.contains("6 MiB of 8 MiB, 2 MiB of it without a session"), "{text}");
        assert!(text.contains("keeper") && text.contains("16 MiB"), "{text}");
        assert!(text.contains("direct") && !text.contains('\u{1b}'), "{text}");
        assert!(HeapStatsReport { pools: vec![] }.text().contains("No pool"));
    }
}
