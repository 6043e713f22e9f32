//! Which states have been judged, as a tree of what the judge looked at.
//!
//! The judge is deterministic: what it looks at first is always the same unit; what next follows
//! from that unit's content, and so on. So each judged state is a path from the root, and a new
//! state whose path is there already would be judged alike: leaving it out is sound.

use std::collections::HashMap;

/// The tree of one point.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    /// The unit looked at; `None` where the run ended.
    unit: Option<u32>,
    children: HashMap<u16, u32>,
    /// Every state of whole stores below it was judged.
    done: bool,
}

/// Where a state leaves the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A state that looks the same was judged.
    Known,
    /// It was not: this node has no child for the state's content (`None`: no tree yet).
    New(Option<u32>),
}

impl Tree {
    /// Finds a state.
    pub fn find(&self, choice: &[u16]) -> Place {
        let mut at = 0;
        loop {
            let Some(node) = self.nodes.get(at as usize) else { return Place::New(None) };
            let Some(unit) = node.unit else { return Place::Known };
            match node.children.get(&choice[unit as usize]) {
                Some(&child) => at = child,
                None => return Place::New(Some(at)),
            }
        }
    }

    /// Adds a judged state that looked at these units, in order.
    pub fn add(&mut self, choice: &[u16], looked_at: &[u32]) {
        let mut at: Option<u32> = None;
        for depth in 0..=looked_at.len() {
            let unit = looked_at.get(depth).copied();
            let here = match at {
                None if self.nodes.is_empty() => self.push(unit),
                None => 0,
                Some(parent) => {
                    let content = choice[looked_at[depth - 1] as usize];
                    let known = self.nodes[parent as usize].children.get(&content).copied();
                    known.unwrap_or_else(|| {
                        let child = self.push(unit);
                        self.nodes[parent as usize].children.insert(content, child);
                        child
                    })
                }
            };
            assert_eq!(self.nodes[here as usize].unit, unit, "the judge is not deterministic");
            at = Some(here);
        }
    }

    fn push(&mut self, unit: Option<u32>) -> u32 {
        self.nodes.push(Node { unit, children: HashMap::new(), done: unit.is_none() });
        (self.nodes.len() - 1) as u32
    }

    /// Finds a state of whole stores that was not judged: the contents of the units on its path,
    /// the last of which is new. Depth first, so that all of them come in turn.
    pub fn unjudged(&mut self, wholes: &[u16]) -> Option<Vec<(u32, u16)>> {
        let mut path = Vec::new();
        if self.nodes.is_empty() {
            return Some(path);
        }
        self.descend(0, wholes, &mut path).then_some(path)
    }

    fn descend(&mut self, at: u32, wholes: &[u16], path: &mut Vec<(u32, u16)>) -> bool {
        let node = &self.nodes[at as usize];
        let (Some(unit), false) = (node.unit, node.done) else { return false };
        for content in 0..wholes[unit as usize] {
            path.push((unit, content));
            match self.nodes[at as usize].children.get(&content).copied() {
                None => return true,
                Some(child) if self.descend(child, wholes, path) => return true,
                Some(_) => {}
            }
            path.pop();
        }
        self.nodes[at as usize].done = true;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A judge that looks at unit 2, then at unit 0 only if unit 2 holds 1.
    fn looks(choice: &[u16]) -> Vec<u32> {
        if choice[2] == 1 { vec![2, 0] } else { vec![2] }
    }

    #[test]
    fn every_state_that_looks_different_is_found_once() {
        let mut tree = Tree::default();
        let wholes = [3, 5, 2];
        let mut judged = 0;
        while let Some(path) = tree.unjudged(&wholes) {
            let mut choice = [0; 3];
            for (unit, content) in path {
                choice[unit as usize] = content;
            }
            assert!(matches!(tree.find(&choice), Place::New(_)));
            tree.add(&choice, &looks(&choice));
            assert_eq!(tree.find(&choice), Place::Known);
            judged += 1;
        }
        // Of 30 states four look different.
        assert_eq!(judged, 4);
        assert_eq!(tree.find(&[2, 4, 0]), Place::Known);
    }
}
