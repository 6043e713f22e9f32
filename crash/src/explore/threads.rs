//! Two threads on one pool, under every schedule with few preemptions, with the power failing at
//! each fence of each schedule.
//!
//! What they return and leave must be what some order of whole operations gives (they are
//! linearizable); and what a crash leaves, what the beginning of such an order gives, with every operation in it
//! that had returned.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use lode_engine::{Error, Pool, Result as EngineResult};
use lode_model::Model;
use lode_testkit::execute::{Handles, Value, execute};
use lode_testkit::op::Op;
use lode_testkit::run::{same, show, time_of};
use lode_testkit::snapshot::{difference, snapshot};

use super::cuts::{Cut, Wrong};
use super::path::Stage;
use super::run::{Run, pages_for};
use super::walked::{Walked, release, walk};
use super::{Explorer, Setup, SimulatedPool};
use crate::case::Case;
use crate::judge::{Allowed, Expected, Health};
use crate::region::{Pages, Point, Profile, Simulated};
use crate::schedule::{Chooser, Job, Plan, Schedules, Threads};

/// How often a thread that could go on is stopped in a schedule, at most.
const PREEMPTIONS: u32 = 2;

type Results = Vec<EngineResult<Value>>;

/// Which operations found no space, so that they did nothing.
type NoSpace = [Vec<bool>; 2];

/// One order of the operations.
struct Order {
    results: [Results; 2],
    /// After each of its operations (and before the first): how many of each thread's are
    /// done, and which state that gives.
    states: Vec<([usize; 2], usize)>,
    /// The same where the last operation of a thread is a snapshot that did not happen. It has its place in the
    /// order before it is durable, and others do not wait for that: as it changes nothing of what they see, a
    /// crash may take it alone.
    unsaid: Vec<([usize; 2], usize)>,
}

/// All orders of a case, and the states they go through.
struct Orders {
    orders: Vec<Order>,
    states: Vec<Expected>,
}

/// What is known from schedule to schedule.
struct Context<'c> {
    model: &'c Model,
    orders: &'c mut HashMap<NoSpace, Orders>,
    /// Points that were explored.
    seen: &'c mut HashSet<u64>,
}

/// Where every schedule begins.
struct Start<'c> {
    image: Pages,
    /// What `before` left open.
    opens: Vec<Op>,
    ops: [&'c [Op]; 2],
    now_ns: i64,
    /// What memory has lost until then.
    health: Health,
}

impl Start<'_> {
    /// What memory has lost of what a crash leaves. (What one thread makes good that the other has found is durable when
    /// both have come to their ends.)
    fn health(&self, last: bool) -> Health {
        let mut ops = self.ops.iter().copied().flatten();
        if last && ops.any(|op| *op == Op::Scrub) { Health::Scrubbed } else { self.health }
    }
}

impl Explorer<'_> {
    /// Explores a case of two threads.
    pub(super) fn threads(&mut self, case: &Case, mut run: Run<'_>) -> Result<(), Wrong> {
        run.step(case.before.len(), &Op::Remount)?;
        let medium = run.pool.medium().clone();
        let number = case.before.len() + 1;
        let opens = case.before.iter().filter(|op| matches!(op, Op::Open { .. }));
        let start = Start {
            image: medium.seen(),
            opens: opens.cloned().collect(),
            ops: [&case.ops, &case.beside],
            now_ns: time_of(number),
            health: run.health,
        };
        let mut orders = HashMap::new();
        let mut threads = Threads::new(2);
        let mut seen = HashSet::new();
        if let Some(schedule) = self.schedule {
            let mut chooser = Chooser::replay(schedule.clone());
            let mut context = Context { model: &run.model, orders: &mut orders, seen: &mut seen };
            return self.schedule(&start, &mut context, &mut threads, &mut chooser);
        }
        let budget = self.limits.schedules_of(&case.geometry);
        let random = budget / 8;
        let plan = Plan { preemptions: PREEMPTIONS, budget, random, seed: self.setup.seed };
        let mut schedules = Schedules::new(plan);
        while let Some(chooser) = schedules.next_run() {
            self.may_go_on()?;
            let mut context = Context { model: &run.model, orders: &mut orders, seen: &mut seen };
            let result = self.credited("(two threads)", |explorer| {
                explorer.schedule(&start, &mut context, &mut threads, chooser)
            });
            result.map_err(|wrong| wrong.in_schedule(chooser.schedule()))?;
            self.tally.schedules += 1;
        }
        self.tally.threads.0 += 1;
        self.tally.threads.1 += u64::from(!schedules.is_exhaustive());
        Ok(())
    }

    /// Runs one schedule, and cuts the power in it.
    fn schedule(
        &mut self,
        start: &Start<'_>,
        context: &mut Context<'_>,
        threads: &mut Threads,
        chooser: &mut Chooser,
    ) -> Result<(), Wrong> {
        let medium = Simulated::new(start.image.clone(), self.setup.rules);
        let host = self.setup.host(3);
        host.set_now(start.now_ns);
        let pool = Pool::open(medium.clone(), host, &self.setup.options());
        let pool = Arc::new(pool.map_err(|error| format!("open: {error:?}"))?);
        let all = start.ops.iter().copied().flatten();
        let needed: u64 = all.map(|op| pages_for(op, &self.setup.geometry)).sum();
        let available = pool.statfs().pages_available;
        medium.record(true);
        let results: [Arc<Mutex<Results>>; 2] = Default::default();
        let mut jobs = Vec::new();
        for (thread, results) in results.iter().enumerate() {
            jobs.push(job(self.setup, thread, &pool, start, results.clone()));
        }
        let outcome = threads.run(chooser, jobs);
        medium.record(false);
        if outcome.diverged && self.schedule.is_some() {
            self.lost = true;
            return Ok(());
        }
        if let Some(failure) = outcome.failure() {
            return Err(failure.into());
        }
        let mut points = medium.take_points();
        if self.setup.rules.profile == Profile::Eadr {
            points.push(medium.point());
            medium.settle();
        }
        points.push(medium.point());
        self.tally.sites.extend(medium.sites().into_keys());
        self.tally.operations += 1;
        let results = results.map(|results| std::mem::take(&mut *results.lock().expect("done")));
        let full = |results: &Results| {
            results.iter().map(|result| *result == Err(Error::NoSpace)).collect::<Vec<bool>>()
        };
        if results.iter().any(|results| full(results).contains(&true)) && available > needed {
            return Err(format!("no space, with {available} pages available").into());
        }
        let results = results.map(|results| self.without_room(results));
        let no_space = [full(&results[0]), full(&results[1])];
        if !context.orders.contains_key(&no_space) {
            let orders = self.orders(context.model, start, &no_space)?;
            context.orders.insert(no_space.clone(), orders);
        }
        let orders = &context.orders[&no_space];
        let explained = self.explained(orders, &results, &pool)?;
        drop(pool);
        for (number, point) in points.iter().enumerate() {
            if self.schedule.is_some() || context.seen.insert(hash_of(point, &explained)) {
                let last = number + 1 == points.len();
                self.cut_threads((number, points.len()), point, last, orders, &explained, start)?;
            }
        }
        Ok(())
    }

    /// The orders that explain what was returned, one of which must explain the tree.
    fn explained(
        &self,
        orders: &Orders,
        results: &[Results; 2],
        pool: &SimulatedPool,
    ) -> Result<Vec<usize>, Wrong> {
        let equal = |order: &Order| {
            let mut pairs = order.results.iter().flatten().zip(results.iter().flatten());
            pairs.all(|(want, have)| same(want, have))
        };
        let found = snapshot(pool, self.setup.times(), None)?;
        let mut explained = Vec::new();
        let shown =
            results.each_ref().map(|all| all.iter().map(show).collect::<Vec<_>>().join(", "));
        let [one, other] = shown;
        let mut why =
            format!("no order of the operations returns {one} to `ops` and {other} to `beside`");
        for (number, order) in orders.orders.iter().enumerate().filter(|(_, order)| equal(order)) {
            let end = order.states.last().map_or(0, |(_, state)| *state);
            match difference(&orders.states[end].tree, &found) {
                None => explained.push(number),
                Some(what) => why = format!("no order of the operations leaves this tree: {what}"),
            }
        }
        if explained.is_empty() { Err(why.into()) } else { Ok(explained) }
    }

    fn cut_threads(
        &mut self,
        (number, count): (usize, usize),
        point: &Point,
        last: bool,
        orders: &Orders,
        explained: &[usize],
        start: &Start<'_>,
    ) -> Result<(), Wrong> {
        let done = point.progress;
        let all = start.ops.map(<[Op]>::len);
        let may = |thread: usize, count: usize| {
            let in_flight = usize::from(!last && done[thread] < all[thread]);
            (done[thread]..=done[thread] + in_flight).contains(&count)
        };
        let mut states = HashMap::new();
        for order in explained.iter().map(|number| &orders.orders[*number]) {
            for (counts, state) in order.states.iter().chain(&order.unsaid) {
                if may(0, counts[0]) && may(1, counts[1]) {
                    let [one, two] = counts;
                    let name = format!("after {one} operations of `ops` and {two} of `beside`");
                    states.entry(*state).or_insert(name);
                }
            }
        }
        let mut states: Vec<(usize, String)> = states.into_iter().collect();
        states.sort();
        let health = start.health(last);
        let hurt: Vec<Expected> = match health {
            Health::Sound => Vec::new(),
            _ => states.iter().map(|(state, _)| orders.states[*state].clone().of(health)).collect(),
        };
        let expected =
            |index: usize, state: usize| hurt.get(index).unwrap_or(&orders.states[state]);
        let named = states.iter().enumerate();
        let allowed: Vec<Allowed<'_>> = named
            .map(|(index, (state, name))| Allowed { name, expected: expected(index, *state) })
            .collect();
        let place = format!(
            "two threads, when {} operations of `ops` and {} of `beside` had returned (point {} of {count})",
            done[0],
            done[1],
            number + 1
        );
        let cut = Cut { stage: Stage::Operation, step: 0, number, point, place };
        self.point(&cut, &allowed, &[])
    }

    /// What the log pages are too short for found no space, too: on the model nothing is too long for
    /// them.
    fn without_room(&self, results: Results) -> Results {
        let short = self.setup.geometry.has_short_pages();
        let told = |result: EngineResult<Value>| match result {
            Err(Error::NameTooLong) if short => Err(Error::NoSpace),
            other => other,
        };
        results.into_iter().map(told).collect()
    }

    /// Every order of the operations, on the model.
    fn orders(
        &self,
        model: &Model,
        start: &Start<'_>,
        no_space: &NoSpace,
    ) -> Result<Orders, String> {
        let mut all = Orders { orders: Vec::new(), states: Vec::new() };
        for turns in turns_of(start.ops.map(<[Op]>::len)) {
            let model = model.clone();
            model.set_now(start.now_ns);
            let mut handles = [Handles::new(), Handles::new()];
            let known = start.ops.map(|ops| walk(&model, ops));
            let mut order =
                Order { results: Default::default(), states: Vec::new(), unsaid: Vec::new() };
            let mut done = [0; 2];
            for handles in &mut handles {
                for op in &start.opens {
                    let _ = execute(&model, handles, op);
                }
            }
            order.states.push((done, self.note(&mut all.states, &model)?));
            for thread in turns {
                let op = &start.ops[thread][done[thread]];
                let result = if no_space[thread][done[thread]] {
                    Err(Error::NoSpace)
                } else {
                    execute(&Walked::new(&model, &known[thread]), &mut handles[thread], op)
                };
                order.results[thread].push(result);
                done[thread] += 1;
                order.states.push((done, self.note(&mut all.states, &model)?));
                self.unsaid(&mut all.states, &mut order, &model, done, start)?;
            }
            all.orders.push(order);
        }
        Ok(all)
    }

    /// Notes what there is without snapshots that were the last thing a thread did.
    fn unsaid(
        &self,
        states: &mut Vec<Expected>,
        order: &mut Order,
        model: &Model,
        done: [usize; 2],
        start: &Start<'_>,
    ) -> Result<(), String> {
        let last = |thread: usize| match start.ops[thread].get(done[thread].wrapping_sub(1)) {
            Some(Op::Snapshot(name)) if order.results[thread].last()?.is_ok() => Some(name),
            _ => None,
        };
        let last = [last(0), last(1)];
        for without in [[true, false], [false, true], [true, true]] {
            let names: Option<Vec<&Vec<u8>>> =
                (0..2).filter(|thread| without[*thread]).map(|thread| last[thread]).collect();
            let Some(names) = names else { continue };
            let model = model.clone();
            for name in names {
                model.delete_snapshot(name).map_err(|error| format!("the model: {error:?}"))?;
            }
            let mut counts = done;
            for thread in 0..2 {
                counts[thread] -= usize::from(without[thread]);
            }
            let state = self.note(states, &model)?;
            order.unsaid.push((counts, state));
        }
        Ok(())
    }

    /// The number of the state that the model is in.
    fn note(&self, states: &mut Vec<Expected>, model: &Model) -> Result<usize, String> {
        let model = model.clone();
        let tree = snapshot(&model, self.setup.times(), None)?;
        if let Some(known) = states.iter().position(|state| state.tree == tree) {
            return Ok(known);
        }
        model.release_all();
        states.push(Expected::new(tree, model));
        Ok(states.len() - 1)
    }
}

/// Does one thread's operations, and says after each that it has returned.
fn job(
    setup: &Setup,
    thread: usize,
    pool: &Arc<SimulatedPool>,
    start: &Start<'_>,
    results: Arc<Mutex<Results>>,
) -> Job<'static> {
    let setup = setup.clone();
    let (pool, ops) = (pool.clone(), start.ops[thread].to_vec());
    let known = walk(&*pool, &ops);
    let mut handles = Handles::new();
    for op in &start.opens {
        let _ = execute(&*pool, &mut handles, op);
    }
    Box::new(move || {
        let fs = Walked::new(&*pool, &known);
        for (number, op) in ops.iter().enumerate() {
            let result = execute(&fs, &mut handles, op);
            setup.fence_late(&pool);
            pool.medium().set_progress(thread, number + 1);
            results.lock().expect("no panic").push(result);
        }
        release(&*pool, &known);
    })
}

/// All orders of so many operations of two threads.
fn turns_of(left: [usize; 2]) -> Vec<Vec<usize>> {
    if left == [0, 0] {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for thread in [0, 1] {
        let mut rest = left;
        if rest[thread] > 0 {
            rest[thread] -= 1;
            all.extend(turns_of(rest).into_iter().map(|end| [vec![thread], end].concat()));
        }
    }
    all
}

/// Scatters a point and what may be found there: equal points of two schedules in which the same
/// was returned are explored once.
fn hash_of(point: &Point, explained: &[usize]) -> u64 {
    let mut hasher = DefaultHasher::new();
    explained.hash(&mut hasher);
    point.progress.hash(&mut hasher);
    point.fence.hash(&mut hasher);
    point.durable.fingerprint().hash(&mut hasher);
    for store in &point.pending {
        (store.line, store.mask, store.bytes).hash(&mut hasher);
    }
    hasher.finish()
}
