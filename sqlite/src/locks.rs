//! Locks of a database, as SQLite defines them: many read, one prepares to write, and then waits for
//! the readers to leave.

/// What a connection holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Level {
    #[default]
    None,
    /// May read.
    Shared,
    /// Will write; others may read.
    Reserved,
    /// Waits until the readers are gone; no new ones come.
    Pending,
    /// Writes.
    Exclusive,
}

/// What all connections to a database hold.
#[derive(Default, Debug)]
pub(crate) struct Locks {
    /// Connections that hold anything.
    readers: usize,
    /// What the one holds that holds more than `Shared`.
    writer: Option<Level>,
}

impl Locks {
    /// Raises what a connection holds. Returns what it holds then: less than it wanted where others
    /// are in the way.
    pub(crate) fn raise(&mut self, held: Level, wanted: Level) -> Level {
        if held >= wanted {
            return held;
        }
        match (held, wanted) {
            (Level::None, Level::Shared) => {
                if self.writer >= Some(Level::Pending) {
                    return held;
                }
                self.readers += 1;
                Level::Shared
            }
            // The first lock is always a shared one.
            (Level::None, _) => held,
            // Somebody else writes already.
            (Level::Shared, _) if self.writer.is_some() => held,
            // To undo what a crash cut off: it writes at once or not at all. One that waited would look
            // as if it had written the journal, and nobody would undo it.
            (Level::Shared, Level::Exclusive) if self.readers > 1 => held,
            (_, Level::Exclusive) => {
                let alone = self.readers == 1;
                self.hold(if alone { Level::Exclusive } else { Level::Pending })
            }
            (_, level) => self.hold(level),
        }
    }

    fn hold(&mut self, level: Level) -> Level {
        self.writer = Some(level);
        level
    }

    /// Lowers what a connection holds to `Shared` or `None`. Returns what it holds then.
    pub(crate) fn lower(&mut self, held: Level, wanted: Level) -> Level {
        let wanted = wanted.min(Level::Shared);
        if held > Level::Shared {
            self.writer = None;
        }
        if held >= Level::Shared && wanted == Level::None {
            self.readers = self.readers.saturating_sub(1);
        }
        held.min(wanted)
    }

    /// Whether anybody is going to write.
    pub(crate) fn is_reserved(&self) -> bool {
        self.writer.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::Level::{Exclusive, None, Pending, Reserved, Shared};
    use super::*;

    /// Each pair of levels that two connections can come to, and what the second one gets.
    #[test]
    fn what_two_connections_hold_together_is_what_sqlite_allows() {
        // One holds the row's level; the other, which holds the first of a column, wants the second.
        let wishes = [(None, Shared), (Shared, Reserved), (Shared, Exclusive)];
        let table = [
            (None, [Some(Shared), Some(Reserved), Some(Exclusive)]),
            (Shared, [Some(Shared), Some(Reserved), Some(Shared)]),
            (Reserved, [Some(Shared), Some(Shared), Some(Shared)]),
            // From here on the other can hold nothing that is new: it is a reader of before.
            (Pending, [Some(None), Some(Shared), Some(Shared)]),
            (Exclusive, [Some(None), Option::None, Option::None]),
        ];
        for (first, row) in table {
            for ((held, wanted), gets) in wishes.into_iter().zip(row) {
                let Some(gets) = gets else { continue };
                let mut locks = Locks::default();
                let mut one = locks.raise(None, first.min(Shared));
                let other = locks.raise(None, held);
                if first == Pending {
                    // It waits for somebody else, too.
                    locks.raise(None, Shared);
                }
                if first > Shared {
                    one = locks.raise(one, Reserved);
                }
                if first > Reserved {
                    one = locks.raise(one, Exclusive);
                }
                assert_eq!(one, first, "the first one, where the other holds {held:?}");
                assert_eq!(other, held);
                assert_eq!(locks.raise(other, wanted), gets, "{first:?}: {held:?} -> {wanted:?}");
            }
        }
    }

    #[test]
    fn who_waits_for_readers_gets_in_when_the_last_has_left_and_nobody_came_meanwhile() {
        let mut locks = Locks::default();
        let writer = locks.raise(None, Shared);
        let reader = locks.raise(None, Shared);
        let writer = locks.raise(writer, Reserved);
        assert!(locks.is_reserved());
        let writer = locks.raise(writer, Exclusive);
        assert_eq!(writer, Pending);
        assert_eq!(locks.raise(None, Shared), None);
        assert_eq!(locks.lower(reader, None), None);
        assert_eq!(locks.raise(writer, Exclusive), Exclusive);
        assert_eq!(locks.lower(Exclusive, Shared), Shared);
        assert!(!locks.is_reserved());
        assert_eq!(locks.raise(None, Shared), Shared);
    }
}
