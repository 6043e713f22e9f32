//! OS threads for the logical ones.

use std::fmt;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;

use super::table::Table;
use super::{Chooser, Outcome, seat};

/// What a thread of a run does.
pub type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// OS threads that wait for runs: making them takes much longer than a run.
pub struct Threads {
    seats: Arc<Seats>,
    handles: Vec<JoinHandle<()>>,
}

struct Seats {
    table: Arc<Table>,
    jobs: Vec<Mutex<Option<Job<'static>>>>,
}

impl Threads {
    /// Threads for runs of up to `threads` jobs, 64 at most. They inherit the CPUs of this
    /// thread: with one only, a switch costs a third.
    pub fn new(threads: usize) -> Self {
        let jobs = (0..threads).map(|_| Mutex::new(None)).collect();
        let seats = Arc::new(Seats { table: Arc::new(Table::new(threads)), jobs });
        let start = |number| {
            let seats = seats.clone();
            let builder = Builder::new().name(format!("scheduled {number}"));
            builder.spawn(move || seats.serve(number)).expect("threads can be started")
        };
        let handles = (0..threads).map(start).collect();
        Self { seats, handles }
    }

    /// Runs jobs, each as the logical thread of its place, one step at a time, as `chooser`
    /// decides. Returns when all have ended.
    pub fn run(&mut self, chooser: &mut Chooser, jobs: Vec<Job<'static>>) -> Outcome {
        let threads = jobs.len();
        assert!(threads <= self.seats.table.seats(), "more jobs than threads");
        for (place, job) in self.seats.jobs.iter().zip(jobs) {
            *place.lock() = Some(job);
        }
        self.seats.table.run(chooser, threads)
    }
}

impl Seats {
    fn serve(&self, number: usize) {
        seat::sit(&self.table, number);
        while let Some(wanted) = self.table.begin(number) {
            let job = self.jobs[number].lock().take();
            self.table.serve(number, || {
                if let Some(job) = job.filter(|_| wanted) {
                    job();
                }
            });
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.seats.table.close();
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.handles.len())
    }
}

/// Runs jobs that borrow, on OS threads of their own: see [`Threads::run`], which is faster.
pub fn run_scoped(chooser: &mut Chooser, jobs: Vec<Job<'_>>) -> Outcome {
    let threads = jobs.len();
    let table = Arc::new(Table::new(threads));
    std::thread::scope(|scope| {
        for (number, job) in jobs.into_iter().enumerate() {
            let table = &table;
            scope.spawn(move || {
                seat::sit(table, number);
                if let Some(wanted) = table.begin(number) {
                    table.serve(number, || {
                        if wanted {
                            job();
                        }
                    });
                }
            });
        }
        table.run(chooser, threads)
    })
}
