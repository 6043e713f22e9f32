//! Where pages have gone to.

use alloc::vec::Vec;

use super::Run;
use crate::error::Result;

/// Pages, in order, each run with the page that its first one has gone to.
#[derive(Default)]
pub(crate) struct Moved(Vec<(Run, u64)>);

impl Moved {
    /// Notes where pages have gone that lie behind all that were noted before.
    pub(crate) fn note(&mut self, from: Run, to: u64) -> Result<()> {
        self.0.try_reserve(1)?;
        self.0.push((from, to));
        Ok(())
    }

    /// Calls `each` with the places that pages of a run have now, in as few pieces as there are.
    pub(crate) fn for_each_piece(
        &self,
        run: Run,
        each: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        let mut page = run.page;
        let mut next = self.0.partition_point(|(from, _)| from.end() <= page);
        while page < run.end() {
            let known = self.0.get(next).copied().filter(|(from, _)| from.page < run.end());
            let (to, end) = match known {
                None => (page, run.end()),
                Some((from, _)) if page < from.page => (page, from.page),
                Some((from, to)) => {
                    next += 1;
                    (to + (page - from.page), from.end().min(run.end()))
                }
            };
            each(Run { page: to, pages: end - page })?;
            page = end;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_where_its_pages_have_gone() {
        let run = |page, pages| Run { page, pages };
        let mut moved = Moved::default();
        for (from, to) in [(run(10, 2), 100), (run(12, 1), 50), (run(20, 5), 200)] {
            moved.note(from, to).unwrap();
        }
        let now = |asked: Run| {
            let mut pieces = Vec::new();
            moved
                .for_each_piece(asked, &mut |piece| {
                    pieces.push((piece.page, piece.pages));
                    Ok(())
                })
                .unwrap();
            pieces
        };
        assert_eq!(now(run(1, 9)), [(1, 9)]);
        assert_eq!(now(run(9, 3)), [(9, 1), (100, 2)]);
        assert_eq!(now(run(11, 12)), [(101, 1), (50, 1), (13, 7), (200, 3)]);
        assert_eq!(now(run(22, 9)), [(202, 3), (25, 6)]);
        assert_eq!(now(run(25, 1)), [(25, 1)]);
    }
}
