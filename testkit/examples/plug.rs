//! A load for a machine whose plug is pulled, and the judge of what is left: `tests/vm/`.
//!
//! The operations follow from a seed. Each that has returned is acknowledged in a line of its own, `ack N`, to whoever
//! keeps what the machine says. When the machine starts again it is told the last line that was seen: the tree must be
//! the model's after so many operations or more, of which each is there wholly or not at all. Then the load goes on.
//!
//! `plug library POOL SEED ACKED [RULE]` (RULE: what the engine leaves out), `plug mount DIR SEED ACKED`; with
//! `--check` as the last word nothing is done but the judging.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use lode_engine::{OpenOptions, Pool, Rule};
use lode_model::Model;
use lode_pmem::{Mapped, RegionOptions};
use lode_testkit::TestHost;
use lode_testkit::execute::{Handles, execute};
use lode_testkit::fs::Fs;
use lode_testkit::generate::{Generator, Shape};
use lode_testkit::op::{Op, Path};
use lode_testkit::real::{Can, Directory, askable, model_tree, real_tree};
use lode_testkit::run::{show, time_of};
use lode_testkit::snapshot::{Times, snapshot};
use lode_testkit::{real, run, snapshot};

/// Operations that may have returned beyond the last acknowledgement that was seen: what a console holds back, which
/// is a page of lines of seven bytes or more.
const AHEAD: usize = 640;
/// Operations of one load, should nobody pull the plug.
const MOST: usize = 100_000;

/// What is loaded.
trait Subject {
    /// Does an operation; what came of it, as text, if it is not what the model says.
    fn apply(&mut self, step: usize, op: &Op, model: &Model) -> Result<(), String>;
    /// The tree, to be compared.
    fn tree(&self) -> Result<Tree, String>;
    /// Does what is left of an operation that is several calls, if that is all by which the tree is not `wanted`;
    /// whether there was something to do.
    fn finish(&self, _op: &Op, _wanted: &Tree) -> Result<bool, String> {
        Ok(false)
    }
}

/// A tree, as the subject is able to see it.
enum Tree {
    Library(snapshot::Snapshot),
    Mount(real::Tree),
}

impl Tree {
    /// The model's, to be compared with this one.
    fn of_model(&self, model: &Model) -> Tree {
        match self {
            Tree::Library(_) => Tree::Library(seen(model).unwrap()),
            Tree::Mount(_) => Tree::Mount(model_tree(model).unwrap()),
        }
    }

    fn difference(&self, found: &Tree) -> Option<String> {
        match (self, found) {
            (Tree::Library(wanted), Tree::Library(found)) => snapshot::difference(wanted, found),
            (Tree::Mount(wanted), Tree::Mount(found)) => real::difference(wanted, found),
            _ => Some("a library is no mount".into()),
        }
    }
}

/// Access times may be older after a crash.
const TIMES: Times = Times { changes: true, access: false };

/// All that is seen of a file system; but for the root, which was made by another clock.
fn seen(fs: &dyn Fs) -> Result<snapshot::Snapshot, String> {
    let mut seen = snapshot(fs, TIMES, None)?;
    seen.0.entry(Path::root()).and_modify(|root| root.times = [None; 4]);
    Ok(seen)
}

struct Library {
    pool: Pool<Mapped, TestHost>,
    host: TestHost,
}

impl Library {
    fn open(path: &str, seed: u64, left_out: Option<Rule>) -> Result<Self, String> {
        let host = TestHost::new(seed).leaving_out(left_out);
        let region =
            Mapped::open(path, &RegionOptions::new()).map_err(|error| error.to_string())?;
        let pool = Pool::open(region, host.clone(), &OpenOptions::default());
        Ok(Self { pool: pool.map_err(|error| format!("opening: {error}"))?, host })
    }
}

impl Subject for Library {
    fn apply(&mut self, step: usize, op: &Op, model: &Model) -> Result<(), String> {
        self.host.set_now(time_of(step));
        let found = execute(&self.pool, &mut Handles::new(), op);
        let wanted = execute(model, &mut Handles::new(), op);
        match run::same(&wanted, &found) {
            true => Ok(()),
            false => Err(format!("{op}: {} expected, {} found", show(&wanted), show(&found))),
        }
    }

    fn tree(&self) -> Result<Tree, String> {
        seen(&self.pool).map(Tree::Library)
    }
}

struct Mount(Directory);

impl Subject for Mount {
    fn apply(&mut self, _step: usize, op: &Op, model: &Model) -> Result<(), String> {
        if *op == Op::Maintain {
            // A server does that by itself.
            return Ok(());
        }
        let found = self.0.apply(op);
        let wanted = execute(model, &mut Handles::new(), op);
        match real::same(&wanted, &found) {
            true => Ok(()),
            false => Err(format!("{op}: {} expected, {found:?} found", show(&wanted))),
        }
    }

    fn tree(&self) -> Result<Tree, String> {
        real_tree(&self.0).map(Tree::Mount)
    }

    /// A kernel makes an inode first, then it gets its owner, then its mode.
    fn finish(&self, op: &Op, wanted: &Tree) -> Result<bool, String> {
        let path = match op {
            Op::Create { path, .. } | Op::Symlink { path, .. } => path,
            _ => return Ok(false),
        };
        let (Tree::Mount(wanted), Tree::Mount(mut found)) = (wanted, self.tree()?) else {
            return Ok(false);
        };
        let (Some(want), Some(have)) = (wanted.get(path), found.get_mut(path)) else {
            return Ok(false);
        };
        have.0 = want.0.clone();
        if real::difference(wanted, &found).is_some() {
            return Ok(false);
        }
        let at = self.0.at(path);
        std::os::unix::fs::lchown(&at, Some(3), Some(5)).map_err(|error| error.to_string())?;
        if let Op::Create { mode, .. } = op {
            let permissions = PermissionsExt::from_mode(mode & 0o777);
            std::fs::set_permissions(&at, permissions).map_err(|error| error.to_string())?;
        }
        Ok(true)
    }
}

/// The operations of a seed, and the model after those that are done.
struct Story {
    generator: Generator,
    model: Model,
    done: usize,
}

impl Story {
    fn new(seed: u64) -> Self {
        let shape = Shape { sparse: false, slots: 0, maintain_every: 50, ..Shape::default() };
        Self { generator: Generator::new(seed, shape), model: Model::new(), done: 0 }
    }

    /// The next operation that a kernel can be asked for.
    fn next(&mut self) -> Op {
        loop {
            let op = self.generator.op();
            self.model.set_now(time_of(self.done));
            self.done += 1;
            if askable(&op, &self.model) {
                return op;
            }
        }
    }

    /// Does the next one on the model alone, and says which it was.
    fn skip(&mut self) -> Op {
        let op = self.next();
        let _ = execute(&self.model, &mut Handles::new(), &op);
        op
    }
}

/// Finds how far the subject has come: not less than what was acknowledged.
fn judge(subject: &dyn Subject, seed: u64, acked: usize) -> Result<Story, String> {
    let mut found = subject.tree()?;
    let mut story = Story::new(seed);
    while story.done < acked {
        story.skip();
    }
    let mut wanted = found.of_model(&story.model);
    let first = wanted.difference(&found).unwrap_or_default();
    for _ in 0..AHEAD {
        if wanted.difference(&found).is_none() {
            return Ok(story);
        }
        let op = story.skip();
        wanted = found.of_model(&story.model);
        if subject.finish(&op, &wanted)? {
            found = subject.tree()?;
        }
    }
    Err(format!(
        "the tree is that of none of the {AHEAD} states from operation {acked} on; there: {first}"
    ))
}

fn load(subject: &mut dyn Subject, story: &mut Story) -> Result<(), String> {
    let mut console = std::io::stdout();
    println!("lode-vm: loading");
    for _ in 0..MOST {
        let op = story.next();
        subject.apply(story.done - 1, &op, &story.model)?;
        let acked = writeln!(console, "ack {}", story.done).and_then(|()| console.flush());
        acked.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match pulled(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("lode-vm: FAILED: {what}");
            ExitCode::FAILURE
        }
    }
}

fn pulled(words: &[String]) -> Result<(), String> {
    let [kind, at, seed, acked, rest @ ..] = words else { return Err("usage: see above".into()) };
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let (seed, acked) = (number(seed)?, number(acked)? as usize);
    let (rule, check) = match rest {
        [rule, ..] if rule != "--check" => (Some(rule), rest.len() > 1),
        _ => (None, !rest.is_empty()),
    };
    let rule = match rule {
        Some(name) => {
            Some(Rule::ALL.iter().copied().find(|rule| rule.name() == name).ok_or("no such rule")?)
        }
        None => None,
    };
    let mut subject: Box<dyn Subject> = match kind.as_str() {
        "library" => Box::new(Library::open(at, seed + acked as u64, rule)?),
        "mount" => {
            let can = Can { zero_range: true, mapped_writes: false };
            Box::new(Mount(Directory::new(PathBuf::from(at), can)))
        }
        _ => return Err(format!("{kind}: neither library nor mount")),
    };
    let mut story = judge(subject.as_ref(), seed, acked)?;
    println!("lode-vm: state {} of {acked} acknowledged", story.done);
    if check { Ok(()) } else { load(subject.as_mut(), &mut story) }
}
