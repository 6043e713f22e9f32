//! Threads of a mount whose requests wait for other requests: somebody always reads those.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fuse_abi::linux::{FOPEN_DIRECT_IO, fuse_attr};
use lode_fuse::wire::{Answer, Entry, Errno, Handler, NodeId, Operation, Request, Scratch};
use lode_fuse::{MountOptions, bare, mountpoint};
use parking_lot::{Condvar, Mutex};
use rustix::mount::{UnmountFlags, unmount};

use crate::support::{can_mount, eventually};

/// How long a request waits for the one that frees it.
const PATIENCE: Duration = Duration::from_secs(10);
const SLOW: NodeId = NodeId(2);
const THREADS: usize = 4;

/// Requests that wait.
#[derive(Default)]
struct Waits {
    waiting: usize,
    /// How often all that wait were freed.
    freed: u64,
}

/// A server of one file, `slow`, whose reads wait until somebody looks for the name `free`.
#[derive(Default)]
struct Slow(Mutex<Waits>, Condvar);

impl Slow {
    /// Whether it was freed in time.
    fn wait(&self) -> bool {
        let mut waits = self.0.lock();
        let (before, end) = (waits.freed, Instant::now() + PATIENCE);
        waits.waiting += 1;
        while waits.freed == before && Instant::now() < end {
            self.1.wait_until(&mut waits, end);
        }
        waits.waiting -= 1;
        waits.freed != before
    }
}

struct Served(Arc<Slow>);

impl Handler for Served {
    type Pass<'a> = ();

    fn enter(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn answer<'s>(
        &self,
        (): &(),
        request: &Request<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Answer<'s>, Errno> {
        let attr = |node: NodeId| {
            let kind = if node == SLOW { libc::S_IFREG } else { libc::S_IFDIR };
            fuse_attr { ino: node.0, mode: kind | 0o755, nlink: 1, ..fuse_attr::default() }
        };
        match request.operation {
            Operation::Getattr => Ok(Answer::attr(attr(request.node), Duration::ZERO)),
            Operation::Lookup { name: b"slow" } => Ok(Answer::entry(Entry {
                node: SLOW,
                attr: attr(SLOW),
                generation: 1,
                attr_ttl: Duration::ZERO,
                entry_ttl: Duration::ZERO,
            })),
            Operation::Lookup { name } => {
                if name == b"free" {
                    self.0.0.lock().freed += 1;
                    self.0.1.notify_all();
                }
                Ok(Answer::absent(Duration::ZERO))
            }
            Operation::Open { .. } => Ok(Answer::opened(FOPEN_DIRECT_IO)),
            Operation::Read { .. } if self.0.wait() => {
                let room = scratch.room(2)?;
                room.copy_from_slice(b"ok");
                Ok(Answer::data(room))
            }
            Operation::Read { .. } => Err(Errno::new(libc::ETIMEDOUT)),
            Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Release { .. } => {
                Ok(Answer::Done)
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

/// A mount that is taken off, also where the test fails.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, UnmountFlags::DETACH);
    }
}

/// So many reads at once, which all wait for the same look-up.
fn read_and_free(root: &Path, slow: &Slow, readers: usize) {
    thread::scope(|scope| {
        let read = || {
            let mut bytes = [0; 2];
            let file = File::open(root.join("slow")).unwrap();
            file.read_exact_at(&mut bytes, 0).map(|()| bytes)
        };
        let reads: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
        eventually(|| slow.0.lock().waiting == readers);
        let begun = Instant::now();
        assert!(!root.join("free").exists());
        assert!(begun.elapsed() < PATIENCE / 4, "{:?}: nobody read it in time", begun.elapsed());
        for read in reads {
            assert_eq!(&read.join().unwrap().unwrap(), b"ok");
        }
    });
}

#[test]
fn whatever_requests_wait_for_somebody_reads_the_next_one() {
    if !can_mount() {
        return;
    }
    let dir = lode_testkit::real::scratch("lode-turns-");
    let (root, slow) = (dir.path().to_owned(), Arc::new(Slow::default()));
    let options =
        MountOptions { threads: Some(THREADS), rings: Some(false), ..MountOptions::new("turns") };
    let (at, served) = (root.clone(), Arc::clone(&slow));
    let server = thread::spawn(move || bare::serve(&at, &options, |_| Served(served)));
    eventually(|| {
        matches!(mountpoint::mounted_at(&root), Ok(Some(_))) && fs::metadata(&root).is_ok()
    });
    let mounted = Mounted(&root);
    let asked = || {
        for readers in 1..THREADS {
            read_and_free(&root, &slow, readers);
        }
        // Who was stuck works on; with nothing to wait for, one keeps up again.
        (0..200).for_each(|_| assert!(!root.join("nothing").exists()));
    };
    asked();
    // (Long enough for whoever watches to go to sleep.)
    thread::sleep(Duration::from_millis(1500));
    asked();
    drop(mounted);
    server.join().unwrap().unwrap();
}
