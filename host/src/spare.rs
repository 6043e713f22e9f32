//! Who is asked for memory where files are short of it.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

/// Gets how many pages are missing, has programs give back what they can, and says whether any pages have come. It ends soon,
/// and does not call [`StdHost::ask`](crate::StdHost::ask).
pub type Answer = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// Whoever is asked, if anybody.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<RwLock<Option<Answer>>>);

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Ends it when it is dropped.
struct Quiet {
    before: bool,
}

impl Drop for Quiet {
    fn drop(&mut self) {
        QUIET.set(self.before);
    }
}

/// Does what takes pages for programs, or gives back theirs: nobody is asked for memory by this thread meanwhile.
pub fn without_asking<R>(work: impl FnOnce() -> R) -> R {
    let _quiet = Quiet { before: QUIET.replace(true) };
    work()
}

impl Asked {
    pub(crate) fn set(&self, answer: Option<Answer>) {
        *self.0.write() = answer;
    }

    pub(crate) fn ask(&self, pages: u64) -> bool {
        if QUIET.get() {
            return false;
        }
        // (Not while it answers: others may want to set it.)
        let answer = self.0.read().clone();
        answer.is_some_and(|answer| answer(pages))
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asked").field(&self.0.read().is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use lode_engine::Host;

    use super::without_asking;
    use crate::StdHost;

    #[test]
    fn who_is_asked_is_who_was_named_last_and_nobody_quietly() {
        let host = StdHost::with_cpus(1);
        assert!(!host.spare(7));
        let wanted = Arc::new(AtomicU64::new(0));
        let answered = Arc::clone(&wanted);
        // A clone is the same host.
        host.clone().ask(Some(Arc::new(move |pages| answered.fetch_add(pages, SeqCst) < 10)));
        assert!(host.spare(7) && host.spare(7) && !host.spare(7));
        assert!(!without_asking(|| without_asking(|| host.spare(100)) || host.spare(100)));
        assert_eq!(wanted.load(SeqCst), 21);
        host.spare(1);
        assert_eq!(wanted.load(SeqCst), 22);
        host.ask(None);
        assert!(!host.spare(1));
        assert_eq!(wanted.load(SeqCst), 22);
    }
}
