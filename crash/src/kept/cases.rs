//! What is done to heaps.

use super::Ground;

/// A step. Places are words of the root block; number [`Step::ROOT`] is the root itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Makes a heap, over what may be there.
    Create,
    /// A block, which holds this byte when it is published, or whatever it does.
    Alloc { place: u64, bytes: u64, fill: Option<u8> },
    /// Gives back what the word names.
    Free { place: u64 },
    /// What a word names is named by another from now on.
    Move { from: u64, to: u64 },
    /// The program moves by itself: two stores, made durable.
    MoveByHand { from: u64, to: u64 },
    /// The program fills a block with this byte, and makes that durable.
    Fill { place: u64, fill: u8 },
    /// Nothing is left for the next opening.
    Settle,
    /// It is opened again; as after the death of its program.
    Open,
}

impl Step {
    /// The root.
    pub(super) const ROOT: u64 = u64::MAX;
}

/// Steps on a heap whose every crash is explored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptCase {
    /// What it is about.
    pub name: &'static str,
    /// What the heap lies in.
    pub ground: Ground,
    /// Bytes that are not zero where the heap is to be.
    pub(super) dirty: bool,
    /// Done without a power cut.
    pub(super) before: Vec<Step>,
    /// Cut off.
    pub(super) steps: Vec<Step>,
}

fn alloc(place: u64, bytes: u64) -> Step {
    Step::Alloc { place, bytes, fill: None }
}

fn filled(place: u64, bytes: u64, fill: u8) -> Step {
    Step::Alloc { place, bytes, fill: Some(fill) }
}

fn free(place: u64) -> Step {
    Step::Free { place }
}

/// More than a chunk has room for.
const LONG: u64 = 5 << 12;

/// A name, what is done before, and what is cut off.
type List = (&'static str, Vec<Step>, Vec<Step>);

fn root() -> Step {
    filled(Step::ROOT, 128, 0)
}

/// Every kind of change, and what they do to each other.
pub fn cases() -> Vec<KeptCase> {
    let mut cases = Vec::new();
    for (name, before, steps) in [making(), growing(), changing()].concat() {
        for ground in [Ground::Bare, Ground::File] {
            let dirty = name == "a heap is made" && ground == Ground::Bare;
            cases.push(KeptCase {
                name,
                ground,
                dirty,
                before: before.clone(),
                steps: steps.clone(),
            });
        }
    }
    cases
}

/// A heap is made, and blocks come and go.
fn making() -> Vec<List> {
    use Step::Create;
    vec![
        ("a heap is made", vec![], vec![Create, root(), alloc(0, 40)]),
        ("a heap is made over one", vec![Create, root(), filled(0, 5000, 3)], vec![Create, root()]),
        (
            "slots are allocated",
            vec![Create],
            vec![root(), alloc(0, 40), filled(1, 40, 1), alloc(2, 1000), filled(3, 16, 2)],
        ),
        (
            "slots are freed and had again",
            vec![Create, root(), alloc(0, 2000), alloc(1, 2000), alloc(2, 2000), alloc(3, 2000)],
            vec![free(0), filled(4, 2000, 5), free(1), free(4), free(2), free(3), alloc(5, 8000)],
        ),
        (
            "pages",
            vec![Create, root()],
            vec![filled(0, 4096, 1), alloc(1, 9000), free(0), filled(2, 4000, 7), free(1), free(2)],
        ),
    ]
}

/// A heap grows, and blocks are longer than a chunk.
fn growing() -> Vec<List> {
    use Step::{Create, Fill, Settle};
    vec![
        (
            "the heap grows",
            vec![Create, root()],
            vec![alloc(0, 8192), filled(1, 8192, 2), free(0), alloc(2, 12_288), filled(3, 40, 3)],
        ),
        (
            "a block of several chunks",
            vec![Create, root()],
            vec![
                filled(0, LONG, 9),
                Fill { place: 0, fill: 8 },
                free(0),
                alloc(1, 9000),
                alloc(2, 60),
            ],
        ),
        (
            "a block of several chunks takes what it finds",
            vec![Create, root(), alloc(0, LONG), Fill { place: 0, fill: 7 }],
            vec![
                free(0),
                alloc(1, LONG),
                Fill { place: 1, fill: 6 },
                Settle,
                free(1),
                filled(0, LONG, 5),
            ],
        ),
    ]
}

/// Words are changed, by the heap and by the program.
fn changing() -> Vec<List> {
    use Step::{Create, Fill, Move, MoveByHand, Open, Settle};
    vec![
        (
            "words are changed together",
            vec![Create, root(), filled(0, 64, 1), filled(1, 64, 2)],
            vec![
                Move { from: 0, to: 2 },
                Move { from: 2, to: 3 },
                Move { from: 1, to: 0 },
                free(3),
                Move { from: 0, to: 3 },
            ],
        ),
        (
            "the program stores over words of the last changes",
            vec![Create, root(), filled(0, 64, 1)],
            vec![
                alloc(1, 64),
                MoveByHand { from: 1, to: 2 },
                free(2),
                alloc(2, 64),
                alloc(3, 64),
                MoveByHand { from: 2, to: 4 },
                MoveByHand { from: 3, to: 2 },
                free(4),
            ],
        ),
        (
            "a block takes the place of words of the last changes",
            vec![Create, root(), alloc(0, 2000), alloc(1, 2000), filled(2, 2000, 3)],
            vec![
                free(0),
                free(1),
                // (Another page with slots is there.)
                free(2),
                filled(3, 4096, 0xFF),
                alloc(4, 4096),
                Fill { place: 4, fill: 0xEE },
                free(3),
                Settle,
                filled(5, 4096, 0xDD),
            ],
        ),
        (
            "the program stores over words that an opening has stored",
            vec![Create, root(), filled(0, 64, 1), alloc(1, 64)],
            vec![
                Open,
                MoveByHand { from: 1, to: 2 },
                alloc(1, 64),
                Open,
                MoveByHand { from: 1, to: 3 },
            ],
        ),
        (
            "it is opened again and again",
            vec![Create, root(), alloc(0, 100)],
            vec![
                alloc(1, 100),
                Open,
                free(0),
                filled(2, 3000, 2),
                Open,
                Open,
                alloc(3, 100),
                Settle,
                Open,
            ],
        ),
    ]
}
