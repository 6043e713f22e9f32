//! Who has what.
//!
//! What this guarantees: a chunk has one holder at most, what a session gives back is its own, and no limit is
//! exceeded, what is on its way to somebody counted in. Nothing here waits for anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use lode_loan::{Method, Refusal};

use crate::limits::Limits;
use crate::source::Source;

/// From so many chunks on that a program has had, others are made ready for it.
pub(crate) const READY_FROM: u64 = 4;

/// The number of a session, never used again.
pub(crate) type SessionId = u64;
/// A chunk, and where it came from.
pub(crate) type Lent = (u64, Arc<dyn Source>);

/// A program that has a session.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// Its name when the session began.
    pub(crate) name: String,
    pub(crate) method: Method,
    /// When the session began, nanoseconds since 1970.
    pub(crate) since_ns: u64,
    /// What it has.
    pub(crate) chunks: BTreeSet<u64>,
    /// The most it has had.
    pub(crate) most: u64,
    /// When it was asked to give back what it can spare, where it has not said since then that it did.
    pub(crate) asked: Option<Instant>,
}

struct Entry {
    /// None for a chunk whose program has no session: it is locked still, by somebody.
    holder: Option<SessionId>,
    source: Arc<dyn Source>,
}

/// What is kept zeroed.
struct Ready {
    chunk: u64,
    method: Method,
    source: Arc<dyn Source>,
}

/// Who has what.
pub(crate) struct Ledger {
    limits: Limits,
    entries: HashMap<u64, Entry>,
    programs: BTreeMap<SessionId, Program>,
    ready: Vec<Ready>,
    /// Chunks that are being taken, for somebody or to be ready.
    on_the_way: u64,
}

impl Ledger {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            programs: BTreeMap::new(),
            ready: Vec::new(),
            on_the_way: 0,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A chunk that somebody had before there was a ledger.
    pub(crate) fn was_held(&mut self, chunk: u64, source: Arc<dyn Source>) {
        self.entries.insert(chunk, Entry { holder: None, source });
    }

    /// A session begins.
    pub(crate) fn join(&mut self, id: SessionId, program: Program) {
        self.programs.insert(id, program);
    }

    pub(crate) fn programs(&self) -> impl Iterator<Item = (SessionId, &Program)> {
        self.programs.iter().map(|(id, program)| (*id, program))
    }

    pub(crate) fn program(&mut self, id: SessionId) -> Option<&mut Program> {
        self.programs.get_mut(&id)
    }

    /// Chunks that programs have, with a session or without.
    pub(crate) fn lent(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Those without a session.
    pub(crate) fn apart(&self) -> Vec<u64> {
        let apart = self.entries.iter().filter(|(_, entry)| entry.holder.is_none());
        apart.map(|(chunk, _)| *chunk).collect()
    }

    /// Chunks that are ready.
    pub(crate) fn ready(&self) -> u64 {
        self.ready.len() as u64
    }

    /// Chunks that are being taken, for somebody or to be ready.
    pub(crate) fn on_the_way(&self) -> u64 {
        self.on_the_way
    }

    fn counted(&self) -> u64 {
        self.lent() + self.on_the_way
    }

    /// How many of `count` chunks may be taken for a session now; they count from then on. What is ready does
    /// not stand in the way: who may have it takes it first, see [`Ledger::surplus`].
    ///
    /// # Errors
    /// The limit that leaves none.
    pub(crate) fn book(&mut self, id: SessionId, count: u64) -> Result<u64, Refusal> {
        let Some(program) = self.programs.get(&id) else { return Err(Refusal::Ending) };
        let of_process = self.programs.values().filter(|other| other.pid == program.pid);
        let has: u64 = of_process.map(|other| other.chunks.len() as u64).sum();
        let for_program = self.limits.program_chunks().saturating_sub(has);
        if for_program == 0 {
            return Err(Refusal::ProgramLimit);
        }
        let for_all = self.limits.heap_chunks().saturating_sub(self.counted());
        if for_all == 0 {
            return Err(Refusal::HeapLimit);
        }
        let booked = count.min(for_program).min(for_all);
        self.on_the_way += booked;
        Ok(booked)
    }

    /// Whether one more chunk of this method is to be made ready; it counts from then on.
    pub(crate) fn book_ready(&mut self, method: Method) -> bool {
        let all = self.counted() + self.ready();
        let wanted = self.ready_of(method) < self.worth(method) && all < self.limits.heap_chunks();
        self.on_the_way += u64::from(wanted);
        wanted
    }

    fn ready_of(&self, method: Method) -> u64 {
        self.ready.iter().filter(|ready| ready.method == method).count() as u64
    }

    /// Chunks of this method that are worth being ready: as many as a program had that may want them again. For one that wanted few it would be
    /// in vain, and a build or a script is many of these.
    fn worth(&self, method: Method) -> u64 {
        let of_method = self.programs.values().filter(|program| program.method == method);
        let most = of_method.map(|program| program.most).max().unwrap_or(0);
        if most < READY_FROM { 0 } else { most.min(self.limits.ready) }
    }

    /// So many of what was booked are not on their way any more.
    pub(crate) fn unbook(&mut self, count: u64) {
        self.on_the_way = self.on_the_way.saturating_sub(count);
    }

    /// What was booked is ready.
    pub(crate) fn make_ready(&mut self, method: Method, chunk: u64, source: Arc<dyn Source>) {
        self.unbook(1);
        self.ready.push(Ready { chunk, method, source });
    }

    /// Takes up to `count` ready chunks of a method.
    pub(crate) fn take_ready(&mut self, method: Method, count: u64) -> Vec<Lent> {
        let mut taken = Vec::new();
        while (taken.len() as u64) < count {
            let last = self.ready.iter().rposition(|ready| ready.method == method);
            let Some(at) = last else { break };
            let Ready { chunk, source, .. } = self.ready.swap_remove(at);
            taken.push((chunk, source));
        }
        taken
    }

    /// What is ready and would exceed the limit with all that is lent or on its way; or is more than it is worth.
    pub(crate) fn surplus(&mut self) -> Vec<Lent> {
        let most = self.limits.heap_chunks().saturating_sub(self.counted());
        let mut surplus = Vec::new();
        for method in Method::ALL {
            let in_vain = self.ready_of(method).saturating_sub(self.worth(method));
            surplus.extend(self.take_ready(method, in_vain));
        }
        while self.ready() > most {
            surplus.extend(self.ready.pop().map(|Ready { chunk, source, .. }| (chunk, source)));
        }
        surplus
    }

    /// All that is ready.
    pub(crate) fn drain_ready(&mut self) -> Vec<Lent> {
        self.ready.drain(..).map(|ready| (ready.chunk, ready.source)).collect()
    }

    /// A session has these chunks now, of `booked`. Returns those that it can't have, as somebody has them: no
    /// source gives such.
    pub(crate) fn grant(&mut self, id: SessionId, booked: u64, chunks: &[Lent]) -> Vec<u64> {
        self.unbook(booked);
        let Some(program) = self.programs.get_mut(&id) else {
            return chunks.iter().map(|(chunk, _)| *chunk).collect();
        };
        let mut taken = Vec::new();
        for (chunk, source) in chunks {
            if self.entries.contains_key(chunk) {
                taken.push(*chunk);
                continue;
            }
            let source = Arc::clone(source);
            self.entries.insert(*chunk, Entry { holder: Some(id), source });
            program.chunks.insert(*chunk);
        }
        program.most = program.most.max(program.chunks.len() as u64);
        taken
    }

    /// What a session gives back is nobody's any more, and still lent: [`Ledger::remove`] is what ends that.
    ///
    /// # Errors
    /// [`Refusal::NotYours`] where one of them is not the session's, or is named twice: then nothing is changed.
    pub(crate) fn take_back(&mut self, id: SessionId, chunks: &[u64]) -> Result<(), Refusal> {
        let Some(program) = self.programs.get_mut(&id) else { return Err(Refusal::NotYours) };
        let named: BTreeSet<u64> = chunks.iter().copied().collect();
        if named.len() != chunks.len() || !named.is_subset(&program.chunks) {
            return Err(Refusal::NotYours);
        }
        program.chunks.retain(|chunk| !named.contains(chunk));
        for chunk in named {
            self.set_apart(chunk);
        }
        Ok(())
    }

    /// A session ends: what it had is nobody's.
    pub(crate) fn leave(&mut self, id: SessionId) -> Vec<u64> {
        let Some(program) = self.programs.remove(&id) else { return Vec::new() };
        for chunk in &program.chunks {
            self.set_apart(*chunk);
        }
        program.chunks.into_iter().collect()
    }

    fn set_apart(&mut self, chunk: u64) {
        if let Some(entry) = self.entries.get_mut(&chunk) {
            entry.holder = None;
        }
    }

    /// A session says that it holds a chunk: it is its own if it is lent and no other session's.
    pub(crate) fn claim(&mut self, id: SessionId, chunk: u64) -> bool {
        let (Some(program), Some(entry)) =
            (self.programs.get_mut(&id), self.entries.get_mut(&chunk))
        else {
            return false;
        };
        if entry.holder.is_some() {
            return false;
        }
        entry.holder = Some(id);
        program.chunks.insert(chunk);
        program.most = program.most.max(program.chunks.len() as u64);
        true
    }

    /// Where a chunk without a session came from.
    pub(crate) fn source_of(&self, chunk: u64) -> Option<Arc<dyn Source>> {
        let entry = self.entries.get(&chunk).filter(|entry| entry.holder.is_none());
        entry.map(|entry| Arc::clone(&entry.source))
    }

    /// A chunk without a session is lent no more.
    pub(crate) fn remove(&mut self, chunk: u64) -> Option<Arc<dyn Source>> {
        self.entries.get(&chunk).filter(|entry| entry.holder.is_none())?;
        self.entries.remove(&chunk).map(|entry| entry.source)
    }
}
