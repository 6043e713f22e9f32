//! A tree that belongs to one process: random operations, each with the outcome that the model
//! has, and the whole tree as the model's now and then. A seed decides the operations, not time.

use std::collections::VecDeque;
use std::path::PathBuf;

use lode_model::Model;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Op, print};
use lode_testkit::real::{Can, Directory, askable, difference, model_tree, real_tree, same};

/// Operations between two comparisons of the whole tree.
const TREE_EVERY: u64 = 1000;
/// Operations that a failure shows.
const SHOWN: usize = 40;

/// A directory, and its model.
pub struct Modelled {
    directory: Directory,
    model: Model,
    handles: Handles,
    generator: Generator,
    done: u64,
    last: VecDeque<Op>,
    /// For a failure.
    name: String,
}

impl Modelled {
    /// An empty tree in the directory `root`, which it makes.
    pub fn new(root: PathBuf, seed: u64, number: u64) -> Self {
        std::fs::create_dir(&root).unwrap();
        let shape = Shape { sparse: false, offset_max: 256 << 10, depth: 4, ..Shape::default() };
        Self {
            directory: Directory::new(root, Can { zero_range: true, mapped_writes: true }),
            model: Model::new(),
            handles: Handles::new(),
            generator: Generator::new(seed ^ number << 32, shape),
            done: 0,
            last: VecDeque::new(),
            name: format!("seed {seed}, process {number}"),
        }
    }

    /// Operations so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Does `count` operations.
    pub fn some(&mut self, count: usize) {
        for _ in 0..count {
            let op = self.generator.op();
            if askable(&op, &self.model) {
                self.step(op);
            }
        }
    }

    fn step(&mut self, op: Op) {
        self.done += 1;
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(op.clone());
        let found = self.directory.apply(&op);
        let wanted = execute(&self.model, &mut self.handles, &op);
        if !same(&wanted, &found) {
            self.fail(&format!("{op}: {wanted:?} expected, {found:?} found"));
        }
        if self.done.is_multiple_of(TREE_EVERY) {
            self.compare();
        }
    }

    /// Closes all it has open, and compares.
    pub fn end(&mut self) {
        self.directory.close_all();
        self.handles.clear();
        self.model.release_all();
        self.compare();
    }

    /// Compares the whole tree with the model.
    pub fn compare(&self) {
        let found = real_tree(&self.directory).unwrap_or_else(|why| self.fail(&why));
        if let Some(what) = difference(&model_tree(&self.model).unwrap(), &found) {
            self.fail(&what);
        }
    }

    fn fail(&self, what: &str) -> ! {
        let last: Vec<Op> = self.last.iter().cloned().collect();
        let ops = print(&last);
        panic!("{}, operation {}: {what}\n--- the last operations:\n{ops}", self.name, self.done);
    }
}
