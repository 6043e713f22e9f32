//! A heap in a memory of its own: what calls promise without crashes. (Crashes are the crash explorer's.)

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use crate::{Block, Content, Damage, Error, Heap, Memory, ROOT};

const CHUNK: u64 = 16 << 10;
const PAGE: u64 = 4096;

/// Bytes that several heaps may be opened over, one after the other.
#[derive(Clone)]
struct Ram {
    bytes: Rc<RefCell<Vec<u8>>>,
    most: u64,
    fences: Rc<Cell<u64>>,
    /// Stores until one fails.
    left: Rc<Cell<u64>>,
    seams: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Short;

impl Ram {
    fn new(most: u64) -> Self {
        let (bytes, fences) = (Rc::default(), Rc::default());
        Self { bytes, most, fences, left: Rc::new(Cell::new(u64::MAX)), seams: Vec::new() }
    }

    fn of(bytes: Vec<u8>) -> Self {
        let ram = Self::new(bytes.len() as u64);
        *ram.bytes.borrow_mut() = bytes;
        ram
    }

    fn image(&self) -> Vec<u8> {
        self.bytes.borrow().clone()
    }
}

impl Memory for Ram {
    type Error = Short;

    fn bytes(&self) -> u64 {
        self.bytes.borrow().len() as u64
    }

    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Short> {
        into.copy_from_slice(&self.bytes.borrow()[at as usize..][..into.len()]);
        Ok(())
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<(), Short> {
        self.left.set(self.left.get().checked_sub(1).ok_or(Short)?);
        self.bytes.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn write_back(&self, at: u64, bytes: u64) -> Result<(), Short> {
        assert!(at + bytes <= self.bytes());
        Ok(())
    }

    fn fence(&self, parts: &[(u64, u64)]) -> Result<(), Short> {
        assert!(parts.iter().all(|(at, bytes)| at + bytes <= self.bytes()));
        self.fences.set(self.fences.get() + 1);
        Ok(())
    }

    fn grow(&mut self, bytes: u64) -> Result<(), Short> {
        if bytes > self.most {
            return Err(Short);
        }
        self.seams.push(self.bytes());
        self.bytes.borrow_mut().resize(bytes as usize, 0);
        Ok(())
    }

    fn is_seam(&self, at: u64) -> bool {
        self.seams.contains(&at)
    }
}

fn heap_of(most: u64) -> (Heap<Ram>, Ram) {
    let ram = Ram::new(most);
    (Heap::create(ram.clone(), CHUNK, 7).unwrap(), ram)
}

fn blocks(heap: &Heap<Ram>) -> Vec<(u64, u64)> {
    heap.blocks().map(|Block { offset, bytes }| (offset, bytes)).collect()
}

/// That blocks are inside and apart, and that the ways to ask for them agree.
fn sound(heap: &Heap<Ram>) {
    let (all, mut end) = (blocks(heap), PAGE);
    for &(offset, bytes) in &all {
        assert!(offset >= end && offset + bytes <= heap.memory().bytes());
        assert_eq!(heap.block_around(offset + bytes - 1), Some(Block { offset, bytes }));
        end = offset + bytes;
    }
    let (mut at, mut walked) = (0, Vec::new());
    while let Some(block) = heap.block_behind(at) {
        walked.push((block.offset, block.bytes));
        at = block.offset;
    }
    assert_eq!(walked, all);
    assert_eq!(heap.stats().blocks, all.len() as u64);
    assert!(heap.stats().used + heap.stats().free <= heap.stats().bytes);
}

fn fences(ram: &Ram, work: impl FnOnce()) -> u64 {
    let before = ram.fences.get();
    work();
    ram.fences.get() - before
}

#[test]
fn blocks_are_where_they_were_when_the_heap_is_opened_again() {
    let (mut heap, ram) = heap_of(1 << 20);
    let first = heap.alloc_into(ROOT, 100, Content::Bytes(b"first")).unwrap();
    let second = heap.alloc_into(first + 16, 9000, Content::Zeros).unwrap();
    let third = heap.alloc_into(second, 100_000, Content::Bytes(b"third")).unwrap();
    let all = blocks(&heap);
    let mut again = Heap::open(Ram::of(ram.image())).unwrap();
    assert_eq!((blocks(&again), again.root()), (all, Ok(first)));
    let mut bytes = [0; 8];
    again.memory().load(third, &mut bytes).unwrap();
    assert_eq!(&bytes, b"third\0\0\0");
    assert_eq!(again.block(second).unwrap().bytes, 12288);
    assert_eq!(again.free_from(second), Ok(third));
    assert_eq!(again.free_from(first + 16), Ok(second));
    assert_eq!(again.free_from(ROOT), Ok(first));
    assert_eq!((again.root(), blocks(&again)), (Ok(0), Vec::new()));
    sound(&again);
}

#[test]
fn a_change_is_one_fence() {
    let mut ram = Ram::new(1 << 20);
    ram.grow(1 << 20).unwrap();
    let mut heap = Heap::create(ram.clone(), CHUNK, 7).unwrap();
    let new_page = fences(&ram, || {
        heap.alloc_into(ROOT, 512, Content::Stale).unwrap();
    });
    let root = heap.root().unwrap();
    let slot = fences(&ram, || {
        heap.alloc_into(root, 512, Content::Stale).unwrap();
    });
    let pages = fences(&ram, || {
        heap.alloc_into(root + 8, 8000, Content::Stale).unwrap();
    });
    assert_eq!((new_page, slot, pages), (1, 1, 1));
    let zeros = fences(&ram, || {
        heap.alloc_into(root + 16, 64, Content::Zeros).unwrap();
    });
    let words = [(root + 24, 1), (root + 32, 2), (root + 40, 3)];
    let change = fences(&ram, || heap.change(&words).unwrap());
    assert_eq!((zeros, change), (2, 1));
    let free = |heap: &mut Heap<Ram>, place| {
        fences(&ram, || {
            heap.free_from(place).unwrap();
        })
    };
    assert_eq!((free(&mut heap, root), free(&mut heap, root + 8)), (1, 1));
    // A block of several chunks.
    let long = |heap: &mut Heap<Ram>, content| {
        fences(&ram, || {
            heap.alloc_into(root, 3 * CHUNK, content).unwrap();
        })
    };
    assert_eq!((long(&mut heap, Content::Stale), free(&mut heap, root)), (1, 3));
    assert_eq!(long(&mut heap, Content::Zeros), 3);
    let settled = fences(&ram, || heap.settle().unwrap());
    let again = fences(&ram, || heap.settle().unwrap());
    assert_eq!((settled, again), (2, 0));
    let opened = fences(&ram, || drop(Heap::open(ram.clone()).unwrap()));
    assert_eq!(opened, 0, "a heap that was settled is opened without a store");
    let (mut grows, ram) = heap_of(1 << 20);
    let grown = fences(&ram, || {
        grows.alloc_into(ROOT, 3 * PAGE, Content::Stale).unwrap();
    });
    assert_eq!(grown, 2, "one more where the heap grows");
}

#[test]
fn what_is_stored_over_the_word_of_a_change_is_not_undone() {
    let (mut heap, ram) = heap_of(1 << 20);
    let root = heap.alloc_into(ROOT, 64, Content::Zeros).unwrap();
    let block = heap.alloc_into(root, 64, Content::Stale).unwrap();
    heap.alloc_into(root + 8, 64, Content::Stale).unwrap();
    // The program unlinks and links by itself.
    heap.memory().store(root, &[0; 8]).unwrap();
    heap.memory().store(root + 16, &block.to_le_bytes()).unwrap();
    heap.before_persist(root, 24).unwrap();
    let again = Heap::open(Ram::of(ram.image())).unwrap();
    let word = |at| again.word(at).unwrap();
    assert_eq!((word(root), word(root + 16)), (0, block));
    // What is filled has no words of records left either.
    heap.free_from(root + 8).unwrap();
    let page = heap.alloc_into(root, 4096, Content::Stale).unwrap();
    heap.alloc_into(page + 64, 16, Content::Stale).unwrap();
    heap.free_from(root).unwrap();
    heap.alloc_into(root, 4096, Content::Bytes(&[0xAB; 4096])).unwrap();
    let image = ram.image();
    Heap::open(Ram::of(image)).unwrap();
    assert!(ram.image()[page as usize..][..4096].iter().all(|byte| *byte == 0xAB));
}

#[test]
fn what_is_no_place_or_no_block_is_refused_and_changes_nothing() {
    let (mut heap, ram) = heap_of(1 << 20);
    let block = heap.alloc_into(ROOT, 96, Content::Zeros).unwrap();
    let image = ram.image();
    for place in [0, 8, 72, 128, 256, 4096, block - 8, block + 1, block + 96, 1 << 19, u64::MAX - 7]
    {
        let alloc = heap.alloc_into(place, 8, Content::Zeros);
        assert_eq!(alloc, Err(Error::NoPlace(place)), "{place}");
        assert_eq!(heap.free_from(place), Err(Error::NoPlace(place)));
        assert_eq!(heap.change(&[(block, 1), (place, 0)]), Err(Error::NoPlace(place)));
    }
    assert_eq!(heap.free_from(block + 8), Err(Error::NoBlock(0)));
    assert_eq!(heap.set_root(block + 16), Err(Error::NoBlock(block + 16)));
    assert_eq!(heap.change(&[(ROOT, 5)]), Err(Error::NoBlock(5)));
    assert_eq!(heap.change(&[(block, 1); 16]), Err(Error::TooLarge));
    for bytes in [u64::MAX, 1 << 45] {
        assert_eq!(heap.alloc_into(block, bytes, Content::Zeros), Err(Error::TooLarge));
    }
    assert_eq!(heap.alloc_into(block, 1, Content::Bytes(b"ab")), Err(Error::TooLarge));
    assert!(image == ram.image());
}

#[test]
fn a_full_memory_is_an_error_and_everything_can_be_given_back() {
    let (mut heap, _) = heap_of(4 * CHUNK);
    let root = heap.alloc_into(ROOT, 2016, Content::Zeros).unwrap();
    let mut places = (0..252).map(|word| root + 8 * word);
    let mut taken = Vec::new();
    for bytes in [5 * CHUNK, 4096, 1000, 16] {
        for place in places.by_ref() {
            match heap.alloc_into(place, bytes, Content::Zeros) {
                Ok(_) => taken.push(place),
                Err(error) => {
                    assert_eq!(error, Error::Memory(Short));
                    break;
                }
            }
        }
    }
    assert!(taken.len() > 5, "{taken:?}");
    sound(&heap);
    for place in taken {
        heap.free_from(place).unwrap();
    }
    heap.free_from(ROOT).unwrap();
    assert_eq!(blocks(&heap), []);
    // In one piece again, but for a page of each class.
    assert!(heap.alloc_into(ROOT, 3 * PAGE, Content::Zeros).is_ok());
}

#[test]
fn no_block_goes_across_a_seam() {
    let (mut heap, _) = heap_of(1 << 20);
    let root = heap.alloc_into(ROOT, 64, Content::Zeros).unwrap();
    heap.alloc_into(root, 3 * PAGE, Content::Zeros).unwrap();
    heap.free_from(root).unwrap();
    // One free chunk is there, and the next is elsewhere.
    let long = heap.alloc_into(root, 6 * PAGE, Content::Zeros).unwrap();
    let ram = heap.memory();
    assert!(ram.seams.iter().all(|seam| *seam <= long || *seam >= long + 6 * PAGE), "{long}");
    assert_eq!(ram.seams.len(), 3);
}

#[test]
fn a_memory_that_fails_ends_the_heap_and_the_next_opening_has_all_or_nothing() {
    for left in 0..40 {
        let (mut heap, ram) = heap_of(1 << 20);
        let root = heap.alloc_into(ROOT, 64, Content::Zeros).unwrap();
        ram.left.set(left);
        let alloc = heap.alloc_into(root, 3 * CHUNK, Content::Bytes(&[7; 5000]));
        if alloc.is_err() {
            assert_eq!(alloc, Err(Error::Memory(Short)));
            assert_eq!(heap.free_from(ROOT), Err(Error::Failed));
        }
        let again = Heap::open(Ram::of(ram.image())).unwrap();
        let word = again.word(root).unwrap();
        assert_eq!(again.stats().blocks, 1 + u64::from(word != 0));
        sound(&again);
    }
}

#[test]
fn what_is_no_heap_is_told_by_its_kind() {
    let (mut heap, ram) = heap_of(1 << 20);
    heap.alloc_into(ROOT, 20_000, Content::Zeros).unwrap();
    heap.settle().unwrap();
    let opened = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = ram.image();
        change(&mut image);
        Heap::open(Ram::of(image)).err().unwrap()
    };
    let damaged = |at, what| Error::Damaged { at, what };
    assert_eq!(opened(&|image| image.truncate(100)), Error::NotAHeap);
    assert_eq!(opened(&|image| image.fill(0)), Error::NotAHeap);
    assert_eq!(opened(&|image| image[8] = 2), Error::Version(2));
    assert_eq!(opened(&|image| image[16] ^= 1), damaged(0, Damage::Header));
    assert_eq!(opened(&|image| image[64] ^= 16), damaged(64, Damage::Root));
    assert_eq!(opened(&|image| image[128] ^= 1), damaged(128, Damage::Header));
    assert_eq!(opened(&|image| image[192] ^= 1), damaged(192, Damage::Header));
    let wanted = ram.bytes();
    let bytes = wanted - 4096;
    assert_eq!(opened(&|image| image.truncate(bytes as usize)), Error::CutShort { bytes, wanted });
    assert!(std::format!("{}", Error::<&str>::NotAHeap).contains("no heap"));
}

/// What a random step does.
#[derive(Clone, Debug)]
enum Step {
    Alloc { place: usize, bytes: u64, content: u8 },
    Free { place: usize },
    Change { from: usize, to: usize },
    Store { place: usize },
    Open,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![4 => 0u64..3000, 2 => 3000u64..20_000, 1 => 20_000u64..90_000];
    prop_oneof![
        6 => (0..24usize, bytes, 0..3u8)
            .prop_map(|(place, bytes, content)| Step::Alloc { place, bytes, content }),
        5 => (0..24usize).prop_map(|place| Step::Free { place }),
        1 => (0..24usize, 0..24usize).prop_map(|(from, to)| Step::Change { from, to }),
        1 => (0..24usize).prop_map(|place| Step::Store { place }),
        1 => Just(Step::Open),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn random_steps_leave_what_a_model_has(steps in prop::collection::vec(step(), 1..120)) {
        let (mut heap, ram) = heap_of(40 * CHUNK);
        let root = heap.alloc_into(ROOT, 24 * 8, Content::Zeros).unwrap();
        let at = |place: usize| root + 8 * place as u64;
        // By place: offset, bytes asked for, and what they are.
        let mut model: BTreeMap<usize, (u64, u64, Option<u8>)> = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Alloc { place, .. } if model.contains_key(&place) => {}
                Step::Alloc { place, bytes, content } => {
                    let given = vec![number as u8; bytes as usize];
                    let (content, byte) = match content {
                        0 => (Content::Stale, None),
                        1 => (Content::Zeros, Some(0)),
                        _ => (Content::Bytes(&given), Some(number as u8)),
                    };
                    match heap.alloc_into(at(place), bytes, content) {
                        Ok(block) => {
                            model.insert(place, (block, bytes, byte));
                        }
                        Err(error) => prop_assert_eq!(error, Error::Memory(Short)),
                    }
                }
                Step::Free { place } => match (heap.free_from(at(place)), model.remove(&place)) {
                    (Ok(block), Some((wanted, ..))) => prop_assert_eq!(block, wanted),
                    (freed, known) => {
                        prop_assert_eq!((freed, known), (Err(Error::NoBlock(0)), None));
                    }
                },
                Step::Change { from, to } => {
                    if let Some(moved) = model.get(&from).copied().filter(|_| !model.contains_key(&to)) {
                        heap.change(&[(at(to), moved.0), (at(from), 0)]).unwrap();
                        model.remove(&from);
                        model.insert(to, moved);
                    }
                }
                Step::Store { place } => {
                    if let Some((block, bytes, byte)) = model.get_mut(&place) {
                        heap.memory().store(*block, &vec![0xEE; *bytes as usize]).unwrap();
                        heap.before_persist(*block, *bytes).unwrap();
                        *byte = Some(0xEE);
                    }
                }
                Step::Open => heap = Heap::open(ram.clone()).unwrap(),
            }
        }
        for again in [heap, Heap::open(Ram::of(ram.image())).unwrap()] {
            sound(&again);
            let mut wanted: Vec<u64> = model.values().map(|(block, ..)| *block).chain([root]).collect();
            wanted.sort_unstable();
            prop_assert_eq!(again.blocks().map(|block| block.offset).collect::<Vec<_>>(), wanted);
            for (block, bytes, byte) in model.values() {
                prop_assert!(again.block(*block).unwrap().bytes >= *bytes);
                let mut found = vec![0; *bytes as usize];
                again.memory().load(*block, &mut found).unwrap();
                prop_assert!(byte.is_none_or(|byte| found.iter().all(|other| *other == byte)));
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_reach_outside(
        seed in any::<u64>(),
        damage in prop::collection::vec((any::<u64>(), 0..5u8, any::<u64>()), 1..12),
        settled in any::<bool>(),
    ) {
        let (mut heap, ram) = heap_of(16 * CHUNK);
        let root = heap.alloc_into(ROOT, 200, Content::Zeros).unwrap();
        for place in 0..20 {
            let bytes = 1 << (4 + (seed >> place) % 12);
            let _ = heap.alloc_into(root + 8 * place, bytes, Content::Bytes(&[1; 16]));
        }
        for place in (0..20).filter(|place| seed >> place & 1 == 1) {
            let _ = heap.free_from(root + 8 * place);
        }
        if settled {
            heap.settle().unwrap();
        }
        let mut image = ram.image();
        for (at, kind, value) in damage {
            // Most of it where words of the heap's own are.
            let len = image.len() as u64;
            let at = match kind {
                0 => at % len,
                1 => at % 768,
                2 => PAGE + at % 64,
                _ => at % len / CHUNK * CHUNK + at % 64,
            };
            let at = (at as usize).min(image.len().saturating_sub(8));
            match value % 5 {
                0 => image[at] ^= 1 << (value >> 8 & 7),
                1 => image[at] = (value >> 8) as u8,
                2 => image[at..][..8].copy_from_slice(&value.to_le_bytes()),
                3 => image[at & !7..][..8].fill(0),
                _ => image.truncate((value as usize) % (image.len() + 1)),
            }
            if image.len() < 8 {
                break;
            }
        }
        let Ok(mut heap) = Heap::open(Ram::of(image)) else { return Ok(()) };
        sound(&heap);
        let first = heap.blocks().next().map(|block| block.offset);
        for place in first.into_iter().chain([ROOT]) {
            let _ = heap.free_from(place);
            let _ = heap.alloc_into(place, 5000, Content::Zeros);
            let _ = heap.alloc_into(place, 24, Content::Zeros);
        }
        sound(&heap);
        sound(&Heap::open(heap.memory().clone()).unwrap());
    }
}
