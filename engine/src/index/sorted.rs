//! A sorted map from 64-bit keys to small values: a tree of wide, flat nodes.
//!
//! Guarantees: every operation looks at one node a level, and there is a level for each factor
//! of about 35 in the number of entries; a node is a few lines of memory that a binary search
//! touches in part, so that a lookup costs a few misses of the cache where a tree of narrow nodes
//! costs one for each of its many levels; entries that are inserted in ascending order fill
//! their nodes. An empty map has no heap memory; one of few entries as much as they need.

use alloc::boxed::Box;
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// Entries of a leaf, or children of an inner node, at most. No node takes more than 2 KiB, which
/// a host can always give.
const WIDTH: usize = 48;
/// A node with fewer takes in a neighbour, where the two fit in one with room to grow.
const FEW: usize = WIDTH / 4;
const TOGETHER: usize = WIDTH * 3 / 4;
/// The memory of a node grows by room for so many at most.
const STEP: usize = 8;

enum Node<V> {
    Leaf(Vec<(u64, V)>),
    Inner(Box<Inner<V>>),
}

struct Inner<V> {
    /// No key of a child is below its place here; keys of the child before it all are.
    lows: Vec<u64>,
    children: Vec<Node<V>>,
}

/// A map from `u64` to `V`.
pub(crate) struct Sorted<V> {
    root: Node<V>,
    len: usize,
}

impl<V> Default for Sorted<V> {
    fn default() -> Self {
        Self { root: Node::Leaf(Vec::new()), len: 0 }
    }
}

/// What an insertion did to a node.
enum Grown<V> {
    No,
    /// A right neighbour was split off, with no key below this one.
    By(u64, Node<V>),
}

impl<V: Copy> Inner<V> {
    /// The child that `key` is in, if it is in any.
    fn child_of(&self, key: u64) -> usize {
        self.lows.partition_point(|low| *low <= key).saturating_sub(1)
    }

    fn insert(&mut self, key: u64, value: V) -> (Option<V>, Grown<V>) {
        let at = self.child_of(key);
        let Some(child) = self.children.get_mut(at) else { return (None, Grown::No) };
        if let Some(low) = self.lows.get_mut(at) {
            *low = (*low).min(key);
        }
        let (low, node) = match child.insert(key, value) {
            (_, Grown::By(low, node)) => (low, node),
            same => return same,
        };
        let full = self.lows.len() == WIDTH;
        let last = at + 1 == self.lows.len();
        if !full {
            put(&mut self.lows, at + 1, low);
            put(&mut self.children, at + 1, node);
            return (None, Grown::No);
        }
        let from = if last { WIDTH } else { WIDTH / 2 };
        let mut right =
            Self { lows: self.lows.split_off(from), children: self.children.split_off(from) };
        let (side, place) = if at + 1 < from || at + 1 == from && !last {
            (&mut *self, at + 1)
        } else {
            (&mut right, at + 1 - from)
        };
        put(&mut side.lows, place, low);
        put(&mut side.children, place, node);
        let low = right.lows.first().copied().unwrap_or(low);
        (None, Grown::By(low, Node::Inner(Box::new(right))))
    }

    fn remove(&mut self, key: u64) -> Option<V> {
        let at = self.child_of(key);
        let child = self.children.get_mut(at)?;
        let value = child.remove(key)?;
        match child.width() {
            0 => {
                self.lows.remove(at);
                self.children.remove(at);
            }
            width if width < FEW => self.join(at),
            _ => {}
        }
        Some(value)
    }

    /// Makes one of the child at `at` and a neighbour, where they fit.
    fn join(&mut self, at: usize) {
        let fits = |at: usize| match self.children.get(at..at + 2) {
            Some([left, right]) => left.width() + right.width() <= TOGETHER,
            _ => false,
        };
        let Some(at) = [Some(at), at.checked_sub(1)].into_iter().flatten().find(|at| fits(*at))
        else {
            return;
        };
        let Some([left, right]) = self.children.get_mut(at..at + 2) else { return };
        match (left, right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.append(right),
            (Node::Inner(left), Node::Inner(right)) => {
                left.lows.append(&mut right.lows);
                left.children.append(&mut right.children);
            }
            _ => return,
        }
        self.lows.remove(at + 1);
        self.children.remove(at + 1);
    }
}

impl<V: Copy> Node<V> {
    /// Entries or children.
    fn width(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(inner) => inner.lows.len(),
        }
    }

    fn insert(&mut self, key: u64, value: V) -> (Option<V>, Grown<V>) {
        let entries = match self {
            Self::Leaf(entries) => entries,
            Self::Inner(inner) => return inner.insert(key, value),
        };
        let at = match search(entries, key) {
            Ok(at) => {
                let old = entries.get_mut(at);
                return (old.map(|old| core::mem::replace(&mut old.1, value)), Grown::No);
            }
            Err(at) => at,
        };
        if entries.len() < WIDTH {
            put(entries, at, (key, value));
            return (None, Grown::No);
        }
        if at == WIDTH {
            return (None, Grown::By(key, Self::Leaf(alloc::vec![(key, value)])));
        }
        let mut right = entries.split_off(WIDTH / 2);
        entries.shrink_to(WIDTH / 2 + STEP);
        if at <= WIDTH / 2 {
            put(entries, at, (key, value));
        } else {
            put(&mut right, at - WIDTH / 2, (key, value));
        }
        let low = right.first().map_or(key, |first| first.0);
        (None, Grown::By(low, Self::Leaf(right)))
    }

    fn remove(&mut self, key: u64) -> Option<V> {
        match self {
            Self::Leaf(entries) => {
                let at = search(entries, key).ok()?;
                let (_, value) = entries.remove(at);
                if entries.capacity() > 4 * entries.len().max(1) {
                    entries.shrink_to(2 * entries.len());
                }
                Some(value)
            }
            Self::Inner(inner) => inner.remove(key),
        }
    }

    /// The entries of a leaf from the first one not below `key` on; empty if there is none.
    fn slice_from(&self, key: u64) -> &[(u64, V)] {
        match self {
            Self::Leaf(entries) => {
                let at = search(entries, key).unwrap_or_else(|at| at);
                entries.get(at..).unwrap_or_default()
            }
            Self::Inner(inner) => {
                let children = inner.children.get(inner.child_of(key)..).unwrap_or_default();
                let mut slices = children.iter().map(|child| child.slice_from(key));
                slices.find(|slice| !slice.is_empty()).unwrap_or_default()
            }
        }
    }

    fn first(&self) -> Option<&(u64, V)> {
        match self {
            Self::Leaf(entries) => entries.first(),
            Self::Inner(inner) => inner.children.first()?.first(),
        }
    }

    fn last(&self) -> Option<&(u64, V)> {
        match self {
            Self::Leaf(entries) => entries.last(),
            Self::Inner(inner) => inner.children.last()?.last(),
        }
    }

    /// The entries on both sides of the gap behind `key`; nodes beside this one are given.
    fn around<'a>(&'a self, key: u64, beside: [Option<&'a Self>; 2]) -> [Option<&'a (u64, V)>; 2] {
        match self {
            Self::Leaf(entries) => {
                let at = search(entries, key).map_or_else(|at| at, |at| at + 1);
                let left = at.checked_sub(1).and_then(|left| entries.get(left));
                let left = left.or_else(|| beside[0]?.last());
                [left, entries.get(at).or_else(|| beside[1]?.first())]
            }
            Self::Inner(inner) => {
                let at = inner.child_of(key);
                let Some(child) = inner.children.get(at) else { return [None; 2] };
                let left = at.checked_sub(1).and_then(|left| inner.children.get(left));
                let right = inner.children.get(at + 1);
                child.around(key, [left.or(beside[0]), right.or(beside[1])])
            }
        }
    }

    fn leaf_mut(&mut self, key: u64) -> &mut [(u64, V)] {
        match self {
            Self::Leaf(entries) => entries,
            Self::Inner(inner) => {
                let at = inner.child_of(key);
                inner.children.get_mut(at).map_or(&mut [], |child| child.leaf_mut(key))
            }
        }
    }

    fn for_each_mut(&mut self, each: &mut dyn FnMut(u64, &mut V)) {
        match self {
            Self::Leaf(entries) => entries.iter_mut().for_each(|entry| each(entry.0, &mut entry.1)),
            Self::Inner(inner) => {
                inner.children.iter_mut().for_each(|child| child.for_each_mut(each));
            }
        }
    }

    fn memory_bytes(&self) -> u64 {
        match self {
            Self::Leaf(entries) => (entries.capacity() * size_of::<(u64, V)>()) as u64,
            Self::Inner(inner) => {
                let lows = inner.lows.capacity() * size_of::<u64>();
                let own = lows + inner.children.capacity() * size_of::<Self>();
                let own = own + size_of::<Inner<V>>();
                own as u64 + inner.children.iter().map(Self::memory_bytes).sum::<u64>()
            }
        }
    }
}

/// Inserts into a node that has room, whose memory grows in small steps.
fn put<T>(items: &mut Vec<T>, at: usize, item: T) {
    if items.len() == items.capacity() {
        let more = items.len().clamp(2, STEP);
        items.reserve_exact(more.min(WIDTH.saturating_sub(items.len())).max(1));
    }
    items.insert(at, item);
}

#[inline]
fn search<V>(entries: &[(u64, V)], key: u64) -> Result<usize, usize> {
    // What is behind the last one is asked for most often.
    match entries.last() {
        Some(last) if last.0 >= key => entries.binary_search_by_key(&key, |entry| entry.0),
        _ => Err(entries.len()),
    }
}

impl<V: Copy> Sorted<V> {
    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory that they take, besides `Self`.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.root.memory_bytes()
    }

    /// The last entry whose key is not above `key`, and the first one whose key is.
    #[inline]
    pub(crate) fn around(&self, key: u64) -> [Option<(u64, V)>; 2] {
        self.root.around(key, [None; 2]).map(Option::<&_>::copied)
    }

    /// The first entry whose key is not below `key`.
    #[cfg(test)]
    pub(crate) fn first_from(&self, key: u64) -> Option<(u64, V)> {
        self.root.slice_from(key).first().copied()
    }

    /// The entry with this key.
    #[cfg(test)]
    pub(crate) fn get(&self, key: u64) -> Option<V> {
        self.first_from(key).filter(|entry| entry.0 == key).map(|entry| entry.1)
    }

    /// Entries in a row, in which one with `key` is if there is one. Keys must stay.
    #[inline]
    pub(crate) fn leaf_mut(&mut self, key: u64) -> &mut [(u64, V)] {
        self.root.leaf_mut(key)
    }

    /// Stores an entry; returns the value that its key had.
    pub(crate) fn insert(&mut self, key: u64, value: V) -> Option<V> {
        let (replaced, grown) = self.root.insert(key, value);
        self.len += usize::from(replaced.is_none());
        if let Grown::By(low, right) = grown {
            let left = core::mem::replace(&mut self.root, Node::Leaf(Vec::new()));
            // What is below the first child's place is in it, too.
            let (lows, children) = (alloc::vec![0, low], alloc::vec![left, right]);
            self.root = Node::Inner(Box::new(Inner { lows, children }));
        }
        replaced
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let value = self.root.remove(key)?;
        self.len -= 1;
        while let Node::Inner(inner) = &mut self.root
            && inner.children.len() <= 1
        {
            self.root = inner.children.pop().unwrap_or(Node::Leaf(Vec::new()));
        }
        Some(value)
    }

    /// The entries whose keys are not below `key`, ascending.
    pub(crate) fn iter_from(&self, key: u64) -> Iter<'_, V> {
        Iter { map: self, slice: self.root.slice_from(key) }
    }

    /// All entries, ascending.
    pub(crate) fn iter(&self) -> Iter<'_, V> {
        self.iter_from(0)
    }

    /// Calls `each` with all values, to be changed, by ascending key.
    pub(crate) fn for_each_mut(&mut self, each: &mut dyn FnMut(u64, &mut V)) {
        self.root.for_each_mut(each);
    }
}

/// Entries by ascending key.
pub(crate) struct Iter<'a, V> {
    map: &'a Sorted<V>,
    slice: &'a [(u64, V)],
}

impl<V: Copy> Iterator for Iter<'_, V> {
    type Item = (u64, V);

    fn next(&mut self) -> Option<(u64, V)> {
        let (first, rest) = self.slice.split_first()?;
        self.slice = rest;
        if rest.is_empty() {
            self.slice = match first.0.checked_add(1) {
                Some(next) => self.map.root.slice_from(next),
                None => &[],
            };
        }
        Some(*first)
    }
}
