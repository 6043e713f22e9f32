//! Runs steps on a heap, and knows by itself what it has.

use std::collections::BTreeMap;

use lode_kept::{Content, Error, Heap, Memory, ROOT};

use super::ground::{Lies, Trouble};
use super::{Ground, KeptCase, Step};
use crate::region::{Pages, Rules, Simulated, Stored};

/// Words of the root block.
pub(super) const WORDS: u64 = 16;
pub(super) const CHUNK: u64 = 16 << 10;

/// What a heap has. It is known from the steps; only where new blocks are is the heap's to say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Known {
    /// There is a heap.
    pub(super) exists: bool,
    pub(super) root: u64,
    /// The root block's words that are not 0.
    pub(super) words: BTreeMap<u64, u64>,
    /// By offset: the bytes that were asked for, and what they are.
    pub(super) blocks: BTreeMap<u64, (u64, Option<u8>)>,
}

/// What may be otherwise while a step is running, as the program stores it by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Loose {
    /// Nothing.
    Nothing,
    /// These words, each as before or as after.
    Words,
    /// The words of this block's content.
    Content(u64),
}

/// A heap on which steps run.
pub(super) struct Run {
    ground: Ground,
    pub(super) medium: Simulated,
    heap: Option<Heap<Lies>>,
    pub(super) known: Known,
}

pub(super) type Opened = lode_kept::Result<Heap<Lies>, Trouble>;

impl Run {
    pub(super) fn new(case: &KeptCase, rules: Rules) -> Result<Self, String> {
        let mut pages = Pages::new(case.ground.bytes());
        if case.dirty {
            for line in (0..pages.bytes()).step_by(64) {
                pages.store(line, u64::MAX, &[0xA5; 64], Stored::Data);
            }
        }
        let made = Simulated::plain(&pages);
        if case.ground == Ground::File {
            Lies::format(&made).map_err(|error| format!("format: {error:?}"))?;
        }
        let medium = Simulated::new(made.seen(), rules);
        Ok(Self { ground: case.ground, medium, heap: None, known: Known::default() })
    }

    /// The memory before a heap is in it.
    fn ground(&self) -> Result<Lies, String> {
        match self.ground {
            Ground::Bare => Ok(Lies::bare(self.medium.clone(), CHUNK)),
            Ground::File => Lies::file(self.medium.clone()).map_err(|error| format!("{error:?}")),
        }
    }

    /// What a step may leave loose, before it is done.
    pub(super) fn loose(&self, step: &Step) -> Loose {
        match step {
            Step::MoveByHand { .. } => Loose::Words,
            Step::Fill { place, .. } => Loose::Content(self.named(*place)),
            _ => Loose::Nothing,
        }
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<(), String> {
        self.try_step(step).map_err(|what| format!("{step:?}: {what}"))
    }

    fn try_step(&mut self, step: &Step) -> Result<(), String> {
        let said = |error: Error<Trouble>| format!("{error:?}");
        match *step {
            Step::Create => {
                self.heap = None;
                let made = Heap::create(self.ground()?, CHUNK, 1 + self.medium.stores());
                self.heap = Some(made.map_err(said)?);
                self.known = Known { exists: true, ..Known::default() };
            }
            Step::Alloc { place, bytes, fill } => {
                let content = vec![fill.unwrap_or_default(); bytes as usize];
                let content = fill.map_or(Content::Stale, |_| Content::Bytes(&content));
                let at = self.place(place);
                let block = self.heap()?.alloc_into(at, bytes, content).map_err(said)?;
                let is_root = place == Step::ROOT;
                self.known.blocks.insert(block, (bytes, fill.filter(|_| !is_root)));
                self.name(place, block);
            }
            Step::Free { place } => {
                let at = self.place(place);
                let block = self.heap()?.free_from(at).map_err(said)?;
                if block != self.named(place) || self.known.blocks.remove(&block).is_none() {
                    return Err(format!("{block:#x} was freed"));
                }
                self.name(place, 0);
            }
            Step::Move { from, to } => {
                let block = self.named(from);
                let words = [(self.place(to), block), (self.place(from), 0)];
                self.heap()?.change(&words).map_err(said)?;
                self.name(to, block);
                self.name(from, 0);
            }
            Step::MoveByHand { from, to } => {
                let (block, places) = (self.named(from), [self.place(from), self.place(to)]);
                self.by_hand(places[1], &block.to_le_bytes())?;
                self.by_hand(places[0], &[0; 8])?;
                self.name(to, block);
                self.name(from, 0);
            }
            Step::Fill { place, fill } => {
                let block = self.named(place);
                let known = self.known.blocks.get_mut(&block).ok_or("no block")?;
                known.1 = Some(fill);
                let bytes = vec![fill; known.0 as usize];
                self.by_hand(block, &bytes)?;
            }
            Step::Settle => self.heap()?.settle().map_err(said)?,
            Step::Open => {
                self.heap = None;
                let (ground, medium) = (self.ground, self.medium.clone());
                self.heap = Some(elsewhere(|| open(ground, medium)).map_err(said)?);
            }
        }
        Ok(())
    }

    /// What a program does with its bytes, as docs/main-memory.md asks for it.
    fn by_hand(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let said = |error: Trouble| format!("{error:?}");
        let (heap, len) = (self.heap()?, bytes.len() as u64);
        heap.memory().store(at, bytes).map_err(said)?;
        // (Of a thread's own: what it fences is to be enough.)
        elsewhere(|| heap.before_persist(at, len)).map_err(|error| format!("{error:?}"))?;
        heap.memory().write_back(at, len).map_err(said)?;
        heap.memory().fence(&[(at, len)]).map_err(said)
    }

    fn heap(&mut self) -> Result<&mut Heap<Lies>, String> {
        self.heap.as_mut().ok_or_else(|| "no heap is open".to_owned())
    }

    fn place(&self, place: u64) -> u64 {
        if place == Step::ROOT { ROOT } else { self.known.root + 8 * place }
    }

    fn named(&self, place: u64) -> u64 {
        if place == Step::ROOT {
            return self.known.root;
        }
        self.known.words.get(&place).copied().unwrap_or_default()
    }

    fn name(&mut self, place: u64, block: u64) {
        if place == Step::ROOT {
            self.known.root = block;
        } else if block == 0 {
            self.known.words.remove(&place);
        } else {
            self.known.words.insert(place, block);
        }
    }
}

/// Does something in another thread: what that has written back and not fenced nobody else's fence makes durable.
fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

/// Opens the heap that is in a memory, as it was left. (A file without one is none, as an empty memory is.)
pub(super) fn open(ground: Ground, medium: Simulated) -> Opened {
    let lies = match ground {
        Ground::Bare => {
            let bytes = ground.bytes();
            Lies::bare(medium, bytes)
        }
        Ground::File => Lies::file(medium).map_err(Error::Memory)?,
    };
    Heap::open(lies)
}
