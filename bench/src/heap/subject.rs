//! Where memory comes from.

use lode_loan::Method;

/// The pages that memory is mapped by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Huge,
}

impl Pages {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Small, Self::Huge];

    /// As it is said.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "4k",
            Self::Huge => "2m",
        }
    }

    /// The ones of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pages| pages.name() == name)
    }

    /// What rows call the workload.
    pub fn workload(self) -> String {
        format!("touch-{}", self.name())
    }
}

/// A server that lends memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lender {
    /// As it is where nothing is said: 64 MiB are kept zeroed.
    Usual,
    /// All that a round takes is kept zeroed.
    Ready,
    /// Nothing is.
    Bare,
    /// The same on memory that takes so many nanoseconds for a line that is written.
    Slow(u32),
    /// The bench's own, which looks for free pages in a bitmap; nothing is kept zeroed.
    Bitmap(Step),
}

/// How many pages are looked for in a bitmap at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// One: the first that is free.
    Page,
    /// As many as a word has bits: the first word all of whose pages are free. That is the paper's block preallocation.
    Word,
}

impl Step {
    /// Pages.
    pub fn pages(self) -> usize {
        match self {
            Self::Page => 1,
            Self::Word => 64,
        }
    }
}

/// Where memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    /// The kernel, page by page as they are touched.
    Anonymous,
    /// The kernel, all before they are touched.
    Populated,
    /// The kernel, which has room for an eighth of it, and swaps the rest out.
    Swap,
    /// A server.
    Lent(Lender, Method),
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// What rows call it.
    pub id: &'static str,
    /// Where its memory comes from.
    pub from: From,
    /// It is measured by pages of 4 KiB alone.
    pub small_only: bool,
}

const fn both(id: &'static str, from: From) -> Subject {
    Subject { id, from, small_only: false }
}

const fn small(id: &'static str, from: From) -> Subject {
    Subject { id, from, small_only: true }
}

/// All of them.
pub const ALL: [Subject; 16] = [
    both("anonymous", From::Anonymous),
    both("anonymous-populated", From::Populated),
    both("direct", From::Lent(Lender::Usual, Method::Direct)),
    both("direct-ready", From::Lent(Lender::Ready, Method::Direct)),
    both("direct-bare", From::Lent(Lender::Bare, Method::Direct)),
    both("indirect", From::Lent(Lender::Bare, Method::Indirect)),
    both("mmap", From::Lent(Lender::Bare, Method::Mmap)),
    both("bitmap", From::Lent(Lender::Bitmap(Step::Page), Method::Direct)),
    both("bitmap-64", From::Lent(Lender::Bitmap(Step::Word), Method::Direct)),
    small("direct-150ns", From::Lent(Lender::Slow(150), Method::Direct)),
    small("indirect-150ns", From::Lent(Lender::Slow(150), Method::Indirect)),
    small("mmap-150ns", From::Lent(Lender::Slow(150), Method::Mmap)),
    small("direct-1000ns", From::Lent(Lender::Slow(1000), Method::Direct)),
    small("indirect-1000ns", From::Lent(Lender::Slow(1000), Method::Indirect)),
    small("mmap-1000ns", From::Lent(Lender::Slow(1000), Method::Mmap)),
    small("swap", From::Swap),
];

impl Lender {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Usual,
        Self::Ready,
        Self::Bare,
        Self::Bitmap(Step::Page),
        Self::Bitmap(Step::Word),
        Self::Slow(150),
        Self::Slow(1000),
    ];

    /// What its pool is called.
    pub fn name(self) -> String {
        match self {
            Self::Usual => "usual".to_owned(),
            Self::Ready => "ready".to_owned(),
            Self::Bare => "bare".to_owned(),
            Self::Slow(ns) => format!("slow-{ns}"),
            Self::Bitmap(step) => format!("bitmap-{}", step.pages()),
        }
    }
}

impl Subject {
    /// Whether its server's medium is slowed.
    pub fn is_emulated(&self) -> bool {
        matches!(self.from, From::Lent(Lender::Slow(_), _))
    }

    /// Its words for `lode bench heap --child touch`: how.
    pub fn how(&self) -> &'static str {
        match self.from {
            From::Anonymous => "anonymous",
            From::Populated => "populated",
            From::Swap => "swap",
            From::Lent(_, method) => method.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_each_lender_lends_to_somebody() {
        let mut ids: Vec<_> = ALL.iter().map(|subject| subject.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ALL.len());
        for lender in Lender::ALL {
            let lends = |one: &Subject| matches!(one.from, From::Lent(from, _) if from == lender);
            assert!(ALL.iter().any(lends), "{lender:?}");
        }
        assert_eq!(Pages::of_name("2m"), Some(Pages::Huge));
        assert_eq!(Pages::of_name("4K"), None);
    }
}
