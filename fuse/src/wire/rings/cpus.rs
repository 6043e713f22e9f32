//! Which CPUs there are.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The CPUs of a machine: for each that may ever be there the kernel has a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpus {
    queues: u16,
    online: Vec<u16>,
}

impl Cpus {
    /// Those of this machine; those count as there that this process may use.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn of_this_process() -> io::Result<Self> {
        let list = |path| {
            let text = fs::read_to_string(path)?;
            parse(&text).ok_or_else(|| io::Error::other(format!("{path} has `{text}`")))
        };
        let (possible, mut online) = (list(POSSIBLE)?, list(ONLINE)?);
        let mine = sched_getaffinity(None)?;
        online.retain(|cpu| usize::from(*cpu) < CpuSet::MAX_CPU && mine.is_set((*cpu).into()));
        let queues = u16::try_from(possible.len()).map_err(|_| io::ErrorKind::Unsupported)?;
        Ok(Self::new(queues, online))
    }

    fn new(queues: u16, online: Vec<u16>) -> Self {
        Self { queues, online }
    }

    /// CPUs that have a thread each, and the queues that it serves: its own, and its share of those whose
    /// CPUs are not there.
    pub fn threads(&self) -> Vec<(u16, Vec<u16>)> {
        let here = |queue: &u16| self.online.contains(queue);
        let (own, others): (Vec<u16>, Vec<u16>) = (0..self.queues).partition(here);
        let mut all: Vec<(u16, Vec<u16>)> =
            own.iter().map(|queue| (*queue, vec![*queue])).collect();
        if all.is_empty() {
            all.push((0, Vec::new()));
        }
        for (number, queue) in others.into_iter().enumerate() {
            let thread = number % all.len();
            if let Some((_, queues)) = all.get_mut(thread) {
                queues.push(queue);
            }
        }
        all
    }
}

/// A list of the kernel's, as `0-3,8`.
fn parse(text: &str) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last);
    }
    Some(all)
}

/// Keeps this thread on a CPU. Where it may not be there, it stays where it is: requests are
/// answered all the same.
pub fn stay_on(cpu: u16) {
    let mut set = CpuSet::new();
    if usize::from(cpu) < CpuSet::MAX_CPU {
        set.set(usize::from(cpu));
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::debug!(cpu, %error, "a server thread can't stay on its CPU");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse("0\n"), Some(vec![0]));
        assert_eq!(parse("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse(""), None);
        assert_eq!(parse("0-x"), None);
    }

    #[test]
    fn each_queue_has_one_thread_also_of_cpus_that_are_not_there() {
        let cpus = Cpus::new(5, vec![0, 2]);
        assert_eq!(cpus.threads(), [(0, vec![0, 1, 4]), (2, vec![2, 3])]);
        assert_eq!(Cpus::new(2, vec![0, 1]).threads(), [(0, vec![0]), (1, vec![1])]);
        // Numbers with gaps: the kernel takes queue 0 for those that have none.
        assert_eq!(Cpus::new(1, vec![3]).threads(), [(0, vec![0])]);
    }
}
