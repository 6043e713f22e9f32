//! A sorted map from 64-bit keys to small values: a tree of wide, flat nodes.
//!
//! Guarantees: every operation looks at one node a level, and there is a level for each factor
//! of about 35 in the number of entries; a search in a leaf begins where the key would be if the keys
//! there were evenly spread, as those of files of single pages and those of hashes are, so that it
//! touches few lines of memory; entries that are inserted in ascending order fill their nodes. An empty
//! map has no heap memory; one of few entries as much as they need.

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

/// Which keys a node can have: from the first to before the second.
#[derive(Clone, Copy)]
struct Span(u64, u64);

impl Span {
    /// Any, but for the largest, as far as is known.
    const ALL: Self = Self(0, u64::MAX);

    /// Where a key would be among `len` ones that are evenly spread.
    #[inline]
    fn guess(self, key: u64, len: usize) -> usize {
        let Self(low, high) = self;
        let all = high.saturating_sub(low);
        let into = key.saturating_sub(low).min(all);
        // (`len` has 6 bits.)
        let shift = if all >> 56 == 0 { 0 } else { 8 };
        let place = (into >> shift) * len as u64 / (all >> shift).max(1);
        (place as usize).min(len.saturating_sub(1))
    }
}

/// What an insertion did to a node.
enum Grown<V> {
    No,
    /// Nothing: there is one of this key.
    There,
    /// A right neighbour was split off, with no key below this one.
    By(u64, Node<V>),
}

impl<V: Copy> Inner<V> {
    /// The child that `key` is in, if it is in any.
    fn child_of(&self, key: u64) -> usize {
        let (Some(first), Some(last)) = (self.lows.first(), self.lows.last()) else { return 0 };
        let guess = Span(*first, *last).guess(key, self.lows.len() - 1);
        match self.lows.get(guess..) {
            Some([low, next, ..]) if *low <= key && key < *next => guess,
            _ => self.lows.partition_point(|low| *low <= key).saturating_sub(1),
        }
    }

    /// Which keys the child at `at` can have.
    #[inline]
    fn span_of(&self, at: usize, own: Span) -> Span {
        let bound = |at: usize| self.lows.get(at).copied();
        Span(bound(at).unwrap_or(own.0), bound(at + 1).unwrap_or(own.1))
    }

    fn insert(&mut self, key: u64, value: V, span: Span) -> Grown<V> {
        let at = self.child_of(key);
        let span = self.span_of(at, span);
        let Some(child) = self.children.get_mut(at) else { return Grown::No };
        if let Some(low) = self.lows.get_mut(at) {
            *low = (*low).min(key);
        }
        let (low, node) = match child.insert(key, value, span) {
            Grown::By(low, node) => (low, node),
            same => return same,
        };
        let full = self.lows.len() == WIDTH;
        let last = at + 1 == self.lows.len();
        if !full {
            put(&mut self.lows, at + 1, low);
            put(&mut self.children, at + 1, node);
            return Grown::No;
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
        Grown::By(low, Node::Inner(Box::new(right)))
    }

    fn remove(&mut self, key: u64, span: Span) -> Option<V> {
        let at = self.child_of(key);
        let span = self.span_of(at, span);
        let child = self.children.get_mut(at)?;
        let value = child.remove(key, span)?;
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

    fn insert(&mut self, key: u64, value: V, span: Span) -> Grown<V> {
        let entries = match self {
            Self::Leaf(entries) => entries,
            Self::Inner(inner) => return inner.insert(key, value, span),
        };
        let at = match search(entries, key, span) {
            Ok(_) => return Grown::There,
            Err(at) => at,
        };
        if entries.len() < WIDTH {
            put(entries, at, (key, value));
            return Grown::No;
        }
        if at == WIDTH {
            return Grown::By(key, Self::Leaf(alloc::vec![(key, value)]));
        }
        let mut right = entries.split_off(WIDTH / 2);
        entries.shrink_to(WIDTH / 2 + STEP);
        if at <= WIDTH / 2 {
            put(entries, at, (key, value));
        } else {
            put(&mut right, at - WIDTH / 2, (key, value));
        }
        let low = right.first().map_or(key, |first| first.0);
        Grown::By(low, Self::Leaf(right))
    }

    fn remove(&mut self, key: u64, span: Span) -> Option<V> {
        match self {
            Self::Leaf(entries) => {
                let at = search(entries, key, span).ok()?;
                let (_, value) = entries.remove(at);
                if entries.capacity() > 4 * entries.len().max(1) {
                    entries.shrink_to(2 * entries.len());
                }
                Some(value)
            }
            Self::Inner(inner) => inner.remove(key, span),
        }
    }

    /// The entries of a leaf from the first one not below `key` on; empty if there is none.
    fn slice_from(&self, key: u64, span: Span) -> &[(u64, V)] {
        match self {
            Self::Leaf(entries) => {
                let at = search(entries, key, span).unwrap_or_else(|at| at);
                entries.get(at..).unwrap_or_default()
            }
            Self::Inner(inner) => {
                let first = inner.child_of(key);
                let children = inner.children.iter().enumerate().skip(first);
                let mut slices =
                    children.map(|(at, child)| child.slice_from(key, inner.span_of(at, span)));
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
    fn around<'a>(
        &'a self,
        key: u64,
        span: Span,
        beside: [Option<&'a Self>; 2],
    ) -> [Option<&'a (u64, V)>; 2] {
        match self {
            Self::Leaf(entries) => {
                let at = search(entries, key, span).map_or_else(|at| at, |at| at + 1);
                let left = at.checked_sub(1).and_then(|left| entries.get(left));
                let left = left.or_else(|| beside[0]?.last());
                [left, entries.get(at).or_else(|| beside[1]?.first())]
            }
            Self::Inner(inner) => {
                let at = inner.child_of(key);
                let Some(child) = inner.children.get(at) else { return [None; 2] };
                let left = at.checked_sub(1).and_then(|left| inner.children.get(left));
                let right = inner.children.get(at + 1);
                child.around(
                    key,
                    inner.span_of(at, span),
                    [left.or(beside[0]), right.or(beside[1])],
                )
            }
        }
    }

    /// The entries of the leaf with this key, and where it is.
    fn leaf_mut(&mut self, key: u64, span: Span) -> Option<(&mut [(u64, V)], usize)> {
        match self {
            Self::Leaf(entries) => {
                let at = search(entries, key, span).ok()?;
                Some((entries, at))
            }
            Self::Inner(inner) => {
                let at = inner.child_of(key);
                let span = inner.span_of(at, span);
                inner.children.get_mut(at)?.leaf_mut(key, span)
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

/// Where a key is among those of a leaf, or where it belongs.
#[inline]
fn search<V>(entries: &[(u64, V)], key: u64, span: Span) -> Result<usize, usize> {
    let Span(low, mut high) = span;
    // What is behind the last one of all is asked for most often.
    if high == u64::MAX {
        match entries.last() {
            Some(last) if last.0 >= key => high = last.0,
            _ => return Err(entries.len()),
        }
    }
    let guess = Span(low, high).guess(key, entries.len());
    match entries.get(guess..) {
        Some([entry, ..]) if entry.0 == key => Ok(guess),
        Some([entry, next, ..]) if entry.0 < key && key < next.0 => Err(guess + 1),
        _ => search_from(entries, key, guess),
    }
}

/// The same from a place on where it may be near: in steps that become longer, then by halves.
fn search_from<V>(entries: &[(u64, V)], key: u64, guess: usize) -> Result<usize, usize> {
    let below = |at: usize| entries.get(at).is_some_and(|entry| entry.0 < key);
    // All before `from` are below the key, none is from `to` on.
    let (mut from, mut to, mut step) = (0, entries.len(), 1);
    if below(guess) {
        let mut at = guess;
        while below(at) {
            (from, at, step) = (at + 1, at + step, step * 2);
        }
        to = at.min(to);
    } else {
        let mut at = guess;
        while at > 0 && !below(at) {
            (to, at, step) = (at, at.saturating_sub(step), step * 2);
        }
        from = if below(at) { at + 1 } else { 0 };
    }
    let between = entries.get(from..to).unwrap_or_default();
    let at = from + between.partition_point(|entry| entry.0 < key);
    match entries.get(at) {
        Some(entry) if entry.0 == key => Ok(at),
        _ => Err(at),
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
        self.root.around(key, Span::ALL, [None; 2]).map(Option::<&_>::copied)
    }

    /// The first entry whose key is not below `key`.
    #[cfg(test)]
    pub(crate) fn first_from(&self, key: u64) -> Option<(u64, V)> {
        self.root.slice_from(key, Span::ALL).first().copied()
    }

    /// The entry with this key.
    #[cfg(test)]
    pub(crate) fn get(&self, key: u64) -> Option<V> {
        self.first_from(key).filter(|entry| entry.0 == key).map(|entry| entry.1)
    }

    /// The entry with this key between its neighbours, if there is one and they lie beside it. Keys
    /// must stay.
    #[inline]
    pub(crate) fn beside_mut(&mut self, key: u64) -> Option<&mut [(u64, V); 3]> {
        let (entries, at) = self.root.leaf_mut(key, Span::ALL)?;
        entries.get_mut(at.checked_sub(1)?..)?.first_chunk_mut()
    }

    /// The value of this key, to be changed.
    pub(crate) fn value_mut(&mut self, key: u64) -> Option<&mut V> {
        let (entries, at) = self.root.leaf_mut(key, Span::ALL)?;
        entries.get_mut(at).map(|entry| &mut entry.1)
    }

    /// Stores an entry in the place of one that its key may have.
    pub(crate) fn insert(&mut self, key: u64, value: V) {
        if !self.insert_new(key, value)
            && let Some(there) = self.value_mut(key)
        {
            *there = value;
        }
    }

    /// Stores an entry; says whether it did: not if there is one of its key.
    pub(crate) fn insert_new(&mut self, key: u64, value: V) -> bool {
        let grown = self.root.insert(key, value, Span::ALL);
        if matches!(grown, Grown::There) {
            return false;
        }
        self.len += 1;
        if let Grown::By(low, right) = grown {
            let left = core::mem::replace(&mut self.root, Node::Leaf(Vec::new()));
            // What is below the first child's place is in it, too.
            let (lows, children) = (alloc::vec![0, low], alloc::vec![left, right]);
            self.root = Node::Inner(Box::new(Inner { lows, children }));
        }
        true
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let value = self.root.remove(key, Span::ALL)?;
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
        Iter { map: self, slice: self.root.slice_from(key, Span::ALL) }
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
                Some(next) => self.map.root.slice_from(next, Span::ALL),
                None => &[],
            };
        }
        Some(*first)
    }
}
