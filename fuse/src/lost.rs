//! Places of the pool that can't be read: what the statistics of a mount say of them.
//!
//! Guarantees: the list is bounded; each place is in it once. What was written anew is in it until a scrub has seen that, or the mount ends.

use std::time::Instant;

use lode_engine::{Finding, What};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Places that are listed. Of more it is counted how often they were met.
const LISTED_MAX: usize = 64;

/// A place that can't be read.
struct Place {
    found: Finding,
    path: Option<String>,
    /// When it was met last.
    met: Instant,
}

#[derive(Default)]
struct List {
    places: Vec<Place>,
    forgotten: u64,
}

/// Places that can't be read, as far as requests and scrubs have met them since the mount.
#[derive(Default)]
pub struct Lost {
    list: Mutex<List>,
}

impl Lost {
    /// This can't be read, and is of the file at `path`, if that is known.
    pub fn note(&self, found: &Finding, path: Option<&str>) {
        let List { places, forgotten } = &mut *self.list.lock();
        let met = Instant::now();
        if let Some(known) = places.iter_mut().find(|known| covers(&known.found, found)) {
            known.met = met;
            return;
        }
        places.retain(|known| !covers(found, &known.found));
        if places.len() >= LISTED_MAX {
            *forgotten += 1;
            return;
        }
        let path = path.map(|path| path.trim_start_matches('/').to_owned());
        places.push(Place { found: *found, path, met });
    }

    /// A scrub that has begun then has come to its end, and passed over nothing: data that it has not found any more was written anew.
    pub fn scrubbed(&self, begun: Instant) {
        self.list.lock().places.retain(|one| one.found.what != What::Data || one.met >= begun);
    }

    /// The pool has become another one.
    pub fn forget(&self) {
        *self.list.lock() = List::default();
    }

    /// Adds them to what the statistics say.
    pub fn tell(&self, into: &mut serde_json::Map<String, Value>) {
        let list = self.list.lock();
        let places: Vec<Value> = list.places.iter().map(Place::value).collect();
        into.insert("lost".into(), places.into());
        into.insert("lost_forgotten".into(), list.forgotten.into());
    }
}

/// The same statistics for who may enter the mount, and no more: a path may be where he may not look.
pub fn without_paths(statistics: &mut Value) {
    let places = statistics.pointer_mut("/health/lost").and_then(Value::as_array_mut);
    for path in places.into_iter().flatten().filter_map(|place| place.get_mut("path")) {
        *path = Value::Null;
    }
}

/// Whether the bytes of one are among those of the other, of the same file.
fn covers(all: &Finding, part: &Finding) -> bool {
    let of = |found: &Finding| (found.what, found.ino);
    let end = |found: &Finding| found.at.saturating_add(found.bytes.max(1));
    of(all) == of(part) && all.at <= part.at && end(part) <= end(all)
}

impl Place {
    fn value(&self) -> Value {
        let Finding { what, outcome, ino, at, offset, bytes } = self.found;
        json!({
            "what": what.name(),
            "outcome": outcome.name(),
            "ino": ino,
            "path": self.path,
            "at": at,
            "offset": offset,
            "bytes": bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use lode_engine::Outcome;

    use super::*;

    fn data(ino: u64, at: u64, bytes: u64) -> Finding {
        Finding { what: What::Data, outcome: Outcome::Lost, ino, at, offset: at, bytes }
    }

    fn listed(lost: &Lost) -> (Vec<(u64, u64)>, u64) {
        let List { places, forgotten } = &*lost.list.lock();
        (places.iter().map(|one| (one.found.at, one.found.bytes)).collect(), *forgotten)
    }

    #[test]
    fn each_place_is_listed_once_and_not_too_many() {
        let lost = Lost::default();
        for found in [data(9, 512, 512), data(9, 512, 512), data(9, 0, 2048), data(9, 1024, 64)] {
            lost.note(&found, Some("/a/b"));
        }
        assert_eq!(listed(&lost), (vec![(0, 2048)], 0));
        lost.note(&data(10, 0, 64), None);
        assert_eq!(listed(&lost).0.len(), 2, "of another file");
        for at in 0..LISTED_MAX as u64 {
            lost.note(&data(11, at * 4096, 64), None);
        }
        let (places, forgotten) = listed(&lost);
        assert_eq!((places.len(), forgotten), (LISTED_MAX, 2));
        let mut told = serde_json::Map::new();
        lost.tell(&mut told);
        assert_eq!((&told["lost"][0]["path"], &told["lost_forgotten"]), (&json!("a/b"), &json!(2)));
    }

    #[test]
    fn data_that_a_scrub_does_not_find_any_more_is_not_listed() {
        let lost = Lost::default();
        lost.note(&data(9, 0, 64), None);
        lost.note(&Finding { what: What::Metadata, ..data(9, 0, 0) }, None);
        lost.note(&data(9, 4096, 64), None);
        let begun = Instant::now();
        lost.note(&data(9, 4096, 64), None);
        lost.scrubbed(begun);
        assert_eq!(listed(&lost).0, [(0, 0), (4096, 64)]);
        lost.forget();
        assert_eq!(listed(&lost), (vec![], 0));
    }
}
