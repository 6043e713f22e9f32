//! Two threads on one pool: under every schedule with few preemptions, what they see and what
//! is left is as if whole operations had followed each other in some order. The explorer cuts the
//! power in such schedules; here there is none of that, but threads are stopped between stores, too,
//! and walk their paths themselves.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::pointed::Pointed;
use lode_crash::schedule::{Chooser, Job, Outcome, Plan, SchedHost, Schedules, Threads};
use lode_engine::{Error, FormatOptions, OpenOptions, Pool, Result as EngineResult};
use lode_model::Model;
use lode_testkit::Memory;
use lode_testkit::execute::{Handles, Value, execute};
use lode_testkit::op::Op;
use lode_testkit::parse::parse;
use lode_testkit::run::{same, time_of};
use lode_testkit::snapshot::{Snapshot, Times, difference, snapshot};

type SchedPool = Pool<Pointed, SchedHost>;
type Results = Vec<EngineResult<Value>>;

/// What two threads do. Operations stand between semicolons.
struct Program {
    name: &'static str,
    before: &'static str,
    threads: [&'static str; 2],
    /// A path is walked before its operation begins, and what it led to may be gone by then:
    /// the operation may also fail so, and do nothing.
    walked: bool,
}

/// What comes next in an order of operations: one of this thread, that finds its path or not.
type Turn = (usize, bool);

const TIMES: Times = Times { changes: true, access: false };
const BYTES: u64 = 1 << 20;

/// What may come of a program.
struct Serial {
    results: [Results; 2],
    tree: Snapshot,
}

fn ops_of(text: &str) -> Vec<Op> {
    parse(&text.replace(';', "\n")).unwrap()
}

/// All orders of `left[0]` operations of thread 0 and `left[1]` of thread 1.
fn orders(left: [usize; 2], walked: bool) -> Vec<Vec<Turn>> {
    if left == [0, 0] {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for turn in [(0, true), (1, true), (0, false), (1, false)] {
        let mut rest = left;
        if rest[turn.0] > 0 && (turn.1 || walked) {
            rest[turn.0] -= 1;
            let ends = orders(rest, walked).into_iter();
            all.extend(ends.map(|end| [vec![turn], end].concat()));
        }
    }
    all
}

fn serials(before: &[Op], threads: &[Vec<Op>; 2], walked: bool) -> Vec<Serial> {
    let run = |order: Vec<Turn>| {
        let model = Model::new();
        model.set_now(time_of(0));
        let mut handles = [Handles::new(), Handles::new()];
        before.iter().for_each(|op| drop(execute(&model, &mut handles[0], op).unwrap()));
        model.set_now(time_of(1));
        let mut results = [Vec::new(), Vec::new()];
        for (thread, found) in order {
            let op = &threads[thread][results[thread].len()];
            let mut done = || execute(&model, &mut handles[thread], op);
            let gone = Err(Error::NotFound);
            results[thread].push(if found { done() } else { gone });
        }
        Serial { results, tree: snapshot(&model, TIMES, None).unwrap() }
    };
    orders([threads[0].len(), threads[1].len()], walked).into_iter().map(run).collect()
}

fn medium(memory: Memory, at_stores: bool) -> Pointed {
    Pointed { memory, at_stores, at_loads: false }
}

fn open(memory: &Memory, at_stores: bool, lanes: usize) -> SchedPool {
    let host = SchedHost::with_cpus(7, lanes);
    host.set_now(time_of(1));
    Pool::open(medium(memory.copy(), at_stores), host, &OpenOptions::default()).unwrap()
}

/// A pool, closed, on which the operations were done.
fn prepared(before: &[Op], lanes: usize) -> Memory {
    let memory = Memory::new(BYTES);
    let host = SchedHost::with_cpus(3, lanes);
    host.set_now(0);
    let format = FormatOptions { lanes: lanes as u32, ..FormatOptions::default() };
    Pool::format(medium(memory.clone(), false), host.clone(), &format).unwrap();
    host.set_now(time_of(0));
    let pool = Pool::open(medium(memory.clone(), false), host, &OpenOptions::default()).unwrap();
    let mut handles = Handles::new();
    before.iter().for_each(|op| drop(execute(&pool, &mut handles, op).unwrap()));
    pool.close().unwrap();
    memory
}

fn job(pool: &Arc<SchedPool>, ops: &[Op], results: &Arc<Mutex<Results>>) -> Job<'static> {
    let (pool, ops, results) = (pool.clone(), ops.to_vec(), results.clone());
    Box::new(move || {
        let mut handles = Handles::new();
        let done = ops.iter().map(|op| execute(&*pool, &mut handles, op)).collect();
        *results.lock().unwrap() = done;
    })
}

fn sound(pool: &SchedPool, what: &str) -> Result<(), String> {
    let report = pool.check(&mut |_, _| ()).map_err(|error| format!("{what}: {error:?}"))?;
    report.damage.first().map_or(Ok(()), |damage| Err(format!("{what}: {damage}")))
}

/// Whether a path led to a directory that was moved below the other one meanwhile.
fn late(want: &EngineResult<Value>, have: &EngineResult<Value>) -> bool {
    *want == Err(Error::NotFound) && *have == Err(Error::Invalid)
}

/// Whether one of the serial orders explains what was seen.
fn explain(serials: &[Serial], results: &[Results; 2], found: &Snapshot) -> Result<(), String> {
    let equal = |serial: &Serial| {
        let mut pairs = serial.results.iter().flatten().zip(results.iter().flatten());
        pairs.all(|(want, have)| same(want, have) || late(want, have))
    };
    let mut why = format!("no order of the operations has the results {results:?}");
    for serial in serials.iter().filter(|serial| equal(serial)) {
        match difference(&serial.tree, found) {
            None => return Ok(()),
            Some(what) => why = format!("no order explains the tree: {what}"),
        }
    }
    Err(why)
}

struct Explorer {
    memory: Memory,
    ops: [Vec<Op>; 2],
    serials: Vec<Serial>,
    lanes: usize,
    at_stores: bool,
    threads: Threads,
}

impl Explorer {
    fn new(program: &Program, lanes: usize, at_stores: bool) -> Self {
        let before = ops_of(program.before);
        let ops = program.threads.map(ops_of);
        let serials = serials(&before, &ops, program.walked);
        let memory = prepared(&before, lanes);
        Self { memory, ops, serials, lanes, at_stores, threads: Threads::new(2) }
    }

    fn run(&mut self, chooser: &mut Chooser) -> Result<Outcome, String> {
        let pool = Arc::new(open(&self.memory, self.at_stores, self.lanes));
        let results: [Arc<Mutex<Results>>; 2] = Default::default();
        let jobs =
            vec![job(&pool, &self.ops[0], &results[0]), job(&pool, &self.ops[1], &results[1])];
        let outcome = self.threads.run(chooser, jobs);
        self.judge(&pool, &outcome, &results.map(|all| all.lock().unwrap().clone()))
            .map_err(|what| format!("schedule {}: {what}", outcome.schedule))?;
        Ok(outcome)
    }

    fn judge(&self, pool: &SchedPool, outcome: &Outcome, got: &[Results; 2]) -> Result<(), String> {
        if let Some(failure) = outcome.failure() {
            return Err(failure);
        }
        let tree = snapshot(pool, TIMES, None)?;
        explain(&self.serials, got, &tree)?;
        sound(pool, "check")?;
        let again = open(&pool.medium().memory, false, self.lanes);
        let recovered = snapshot(&again, TIMES, None)?;
        if let Some(what) = difference(&tree, &recovered) {
            return Err(format!("opened again: {what}"));
        }
        sound(&again, "check when opened again")
    }

    /// Steps of the longest run, or the first failure.
    fn explore(&mut self, plan: Plan) -> Result<(Schedules, usize), String> {
        let mut schedules = Schedules::new(plan);
        let mut longest = 0;
        while let Some(chooser) = schedules.next_run() {
            longest = self.run(chooser)?.trace.len().max(longest);
        }
        Ok((schedules, longest))
    }
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "two creates in one directory",
        walked: false,
        before: "create /d 16877 0",
        threads: ["create /d/a 33188 0", "create /d/b 33188 0"],
    },
    Program {
        name: "two creates of one name",
        walked: false,
        before: "",
        threads: ["create /a 33188 0", "create /a 33188 0"],
    },
    Program {
        name: "create and unlink of one name",
        walked: false,
        before: "create /a 33188 0",
        threads: ["unlink /a;create /a 16877 0", "unlink /a;create /a 33188 0"],
    },
    Program {
        name: "create in a directory that is removed",
        walked: true,
        before: "create /d 16877 0",
        threads: ["create /d/a 33188 0", "rmdir /d"],
    },
    Program {
        name: "create and unlink in a directory that is removed",
        walked: true,
        before: "create /d 16877 0;create /d/x 33188 0",
        threads: ["create /d/a 33188 0;unlink /d/a", "unlink /d/x;rmdir /d"],
    },
    Program {
        name: "two renames of one name",
        walked: false,
        before: "create /a 33188 0",
        threads: ["rename /a /b replace", "rename /a /c replace"],
    },
    Program {
        name: "two renames onto one name",
        walked: false,
        before: "create /a 33188 0;create /b 33188 0;create /c 33188 0",
        threads: ["rename /a /c replace", "rename /b /c replace"],
    },
    Program {
        name: "exchange against rename away",
        walked: false,
        before: "create /a 33188 0;create /b 33188 0",
        threads: ["rename /a /b exchange", "rename /a /c replace"],
    },
    Program {
        name: "renames that pass each other between directories",
        walked: false,
        before: "create /d 16877 0;create /e 16877 0;create /d/a 33188 0;create /e/b 33188 0",
        threads: ["rename /d/a /e/a replace", "rename /e/b /d/b replace"],
    },
    Program {
        name: "directories moved into each other",
        walked: true,
        before: "create /d 16877 0;create /e 16877 0",
        threads: ["rename /d /e/d replace", "rename /e /d/e replace"],
    },
    Program {
        name: "a directory moved while its parent moves",
        walked: true,
        before: "create /d 16877 0;create /d/s 16877 0;create /e 16877 0",
        threads: ["rename /d/s /e/s replace", "rename /d /e/d replace"],
    },
    Program {
        name: "rename over a directory that is filled",
        walked: true,
        before: "create /d 16877 0;create /e 16877 0",
        threads: ["rename /d /e replace", "create /e/x 33188 0"],
    },
    Program {
        name: "link against unlink",
        walked: false,
        before: "create /a 33188 0;create /d 16877 0",
        threads: ["link /a /d/b", "unlink /a"],
    },
    Program {
        name: "link against rename over",
        walked: true,
        before: "create /a 33188 0;create /b 33188 0;create /d 16877 0",
        threads: ["link /b /d/c", "rename /a /b replace"],
    },
    Program {
        name: "open, unlink, write, close against create",
        walked: true,
        before: "create /a 33188 0;write /a 0 5000 1",
        threads: ["open /a 1;write @1 100 5000 2;close 1", "unlink /a;create /b 33188 0"],
    },
    Program {
        name: "two open and close what is unlinked",
        walked: true,
        before: "create /a 33188 0;write /a 0 5000 1",
        threads: ["open /a 1;close 1", "open /a 1;unlink /a;close 1"],
    },
    Program {
        name: "two appends",
        walked: false,
        before: "create /a 33188 0",
        threads: ["append /a 3000 1", "append /a 3000 2"],
    },
    Program {
        name: "two writes that overlap",
        walked: false,
        before: "create /a 33188 0;write /a 0 12000 1",
        threads: ["write /a 3000 5000 2", "write /a 5000 5000 3"],
    },
    Program {
        name: "write against truncate",
        walked: false,
        before: "create /a 33188 0;write /a 0 12000 1",
        threads: ["write /a 5000 5000 2", "setattr /a size=100;setattr /a size=9000"],
    },
    Program {
        name: "write against punch",
        walked: false,
        before: "create /a 33188 0;write /a 0 12000 1",
        threads: ["write /a 3000 5000 2", "fallocate /a punch 2000 7000"],
    },
    Program {
        name: "write against read",
        walked: false,
        before: "create /a 33188 0;write /a 0 12000 1",
        threads: ["write /a 3000 5000 2", "read /a 0 12000;read /a 0 12000"],
    },
    Program {
        name: "writes to two files",
        walked: false,
        before: "create /a 33188 0;create /b 33188 0",
        threads: ["write /a 0 9000 1;write /a 0 9000 2", "write /b 0 9000 3;write /b 0 9000 4"],
    },
    Program {
        name: "listing against changes",
        walked: false,
        before: "create /a 33188 0;create /b 33188 0",
        threads: ["create /c 33188 0;unlink /a", "list /;list /"],
    },
    Program {
        name: "maintain against a write",
        walked: false,
        before: "create /a 33188 0;write /a 0 9000 1",
        threads: ["maintain;maintain", "write /a 0 9000 2;unlink /a"],
    },
    Program {
        name: "attributes against attributes",
        walked: false,
        before: "create /a 33188 0",
        threads: ["setattr /a mode=384", "setattr /a uid=9;setattr /a size=9"],
    },
    Program {
        name: "make and remove directories",
        walked: false,
        before: "create /d 16877 0",
        threads: ["create /d/s 16877 0;rmdir /d/s", "create /d/t 16877 0;rmdir /d/t"],
    },
];

#[test]
fn whole_operations_follow_each_other_under_every_schedule() {
    let budget = std::env::var("LODE_SCHEDULES").map_or(400, |text| text.parse().unwrap());
    let plan = Plan { budget, random: budget / 4, ..Plan::default() };
    let mut failed = Vec::new();
    for program in PROGRAMS {
        for (lanes, at_stores) in [(1, false), (2, false), (2, true)] {
            let start = Instant::now();
            let mut explorer = Explorer::new(program, lanes, at_stores);
            let name = format!("{} ({lanes} lanes, at stores: {at_stores})", program.name);
            match explorer.explore(plan.clone()) {
                Ok((schedules, longest)) => println!(
                    "{name}: {} schedules, all: {}, {longest} steps, {:?} each",
                    schedules.runs(),
                    schedules.is_exhaustive(),
                    start.elapsed() / schedules.runs() as u32,
                ),
                Err(what) => failed.push(format!("{name}: {what}")),
            }
        }
    }
    assert!(failed.is_empty(), "{} programs fail\n{}", failed.len(), failed.join("\n"));
}
