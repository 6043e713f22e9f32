//! What a mount says to those who watch it: counts, how the pool is now, and where it is worn.
//!
//! Answers are bounded, whatever the size of the pool: `stats` sums wear up into
//! [`WEAR_BUCKETS`], and `wear`, which names regions, says where the next answer goes on.

use std::time::{Duration, SystemTime};

use lode_engine::{BadPage, Gauges, Host, Op, PAGE_BYTES, Pool, StatFs};
use lode_pmem::{Medium, WEAR_REGION_BYTES, Wear};
use serde_json::{Map, Value, json};

use crate::fs::State;
use crate::fs::served::Served;
use crate::scrub::Facts;

/// Sums of wear in an answer to `stats`, at most.
pub const WEAR_BUCKETS: u64 = 1024;
/// Regions named in an answer to `wear`, at most.
const WEAR_NAMED: usize = 4096;
/// Regions looked at for an answer to `wear`, at most.
const WEAR_LOOKED: u64 = 1 << 20;

/// The answer to `stats`, `age` after the mount.
///
/// # Errors
/// A sentence, where there is no memory for looking.
pub fn stats<M: Medium, H: Host>(
    state: &State<M, H>,
    served: &Served<M, H>,
    age: Duration,
    scrub_period: Option<Duration>,
) -> Result<Value, String> {
    let pool = &served.pool;
    let gauges = pool.gauges().map_err(|error| error.to_string())?;
    let mut values = counts(pool);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let more = json!({
        "pid": std::process::id(),
        "time_ns": nanoseconds(since),
        "age_ns": nanoseconds(age),
        "free_extents": free_extents(&gauges),
        "waiting_pages": gauges.waiting_pages,
        "waiting_slots": gauges.waiting_slots,
        "free_slots": gauges.free_slots,
        "snapshots": {
            "count": gauges.snapshots,
            "bytes": gauges.snapshot_pages.saturating_mul(PAGE_BYTES),
        },
        "exempt_pages": gauges.exempt_pages,
        "inodes_in_memory": gauges.inodes_in_memory,
        "inodes_busy": gauges.inodes_busy,
        "memory": memory(&gauges),
        "space": space(&gauges.space),
        "wear": wear_in_buckets(pool.wear()),
        "health": health(state, pool)?,
        "scrub": scrub(&state.scrubs.facts(), scrub_period),
        "heap": state.lending.stats(),
    });
    if let Value::Object(more) = more {
        values.extend(more);
    }
    Ok(Value::Object(values))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn counts<M: Medium, H: Host>(pool: &Pool<M, H>) -> Map<String, Value> {
    let stats = pool.stats();
    // Counted in the order of the list.
    let counted = Op::ALL.iter().map(|op| (op, stats.ops.get(*op as usize)));
    let ops: Map<String, Value> = counted
        .map(|(op, count)| (op.name().to_owned(), json!(count.copied().unwrap_or_default())))
        .collect();
    let values = json!({
        "ops": ops,
        "fences": stats.door.fences,
        "lines": stats.door.lines,
        "streamed_bytes": stats.door.streamed_bytes,
        "windows": stats.door.windows,
        "collected": {
            "fast_pages": stats.collected.fast_pages,
            "thorough_pages": stats.collected.thorough_pages,
        },
        "dropped_inodes": stats.dropped_inodes,
    });
    match values {
        Value::Object(values) => values,
        _ => Map::new(),
    }
}

fn free_extents(gauges: &Gauges) -> Value {
    let extents = &gauges.free_extents;
    json!({ "by_size": extents.by_size, "huge": extents.huge, "giant": extents.giant })
}

fn memory(gauges: &Gauges) -> Value {
    let memory = &gauges.memory;
    json!({
        "inodes_bytes": memory.inodes,
        "entries_bytes": memory.entries,
        "extents_bytes": memory.extents,
        "free_space_bytes": memory.free_space,
        "tables_bytes": memory.tables,
        "wear_bytes": memory.wear,
        "total_bytes": memory.total(),
        "limit_bytes": gauges.memory_limit,
    })
}

/// Space of a pool, as `stats` and `info` tell it.
pub fn space(space: &StatFs) -> Value {
    json!({
        "pages": space.pages,
        "pages_free": space.pages_free,
        "pages_available": space.pages_available,
        "inodes": space.inodes,
        "inodes_free": space.inodes_free,
    })
}

/// What has gone bad since the mount, and what became of it.
fn health<M: Medium, H: Host>(state: &State<M, H>, pool: &Pool<M, H>) -> Result<Value, String> {
    let info = pool.info().map_err(|error| error.to_string())?;
    let bad = pool.bad_memory().map_err(|error| error.to_string())?;
    let strips = pool.data_repairs();
    let mut health = json!({
        "protection": info.protection.name(),
        "metadata_mended": pool.mended(),
        "strips_repaired": strips.repaired,
        "strips_lost": strips.lost,
        "bad_memory": bad_memory(&bad),
    });
    if let Value::Object(health) = &mut health {
        state.damage.lost.tell(health);
    }
    Ok(health)
}

/// Bad memory that is known, as `stats` and `info` tell it.
pub fn bad_memory(pages: &[BadPage]) -> Value {
    let lines: u64 = pages.iter().map(|bad| u64::from(bad.lines.count_ones())).sum();
    json!({
        "pages": pages.len(),
        "bytes": lines * (PAGE_BYTES / u64::from(u64::BITS)),
        "kept_pages": pages.iter().filter(|bad| !bad.in_use).count(),
    })
}

fn scrub(facts: &Facts, period: Option<Duration>) -> Value {
    let ended = (facts.ended > 0).then_some(facts.ended_ns);
    json!({
        "period_s": period.map(|period| period.as_secs()),
        "running": facts.running,
        "done_bytes": facts.done,
        "all_bytes": facts.all,
        "ended": facts.ended,
        "ended_ns": ended,
        "repaired": ended.map(|_| facts.found.repaired),
        "left": ended.map(|_| facts.found.left),
        "lost": ended.map(|_| facts.found.lost),
    })
}

/// How many regions make a bucket, so that there are [`WEAR_BUCKETS`] at most.
fn bucket_regions(regions: u64) -> u64 {
    regions.div_ceil(WEAR_BUCKETS).max(1).next_power_of_two()
}

fn wear_in_buckets(wear: &Wear) -> Value {
    let regions = wear.regions();
    let in_bucket = bucket_regions(regions);
    let mut buckets = vec![0_u64; regions.div_ceil(in_bucket) as usize];
    let (mut stored_regions, mut stored_bytes, mut most) = (0_u64, 0_u64, None);
    for region in 0..regions {
        let bytes = wear.stored_bytes(region);
        if bytes == 0 {
            continue;
        }
        stored_regions += 1;
        stored_bytes += bytes;
        if most.is_none_or(|(_, so_far)| bytes > so_far) {
            most = Some((region, bytes));
        }
        if let Some(bucket) = buckets.get_mut((region / in_bucket) as usize) {
            *bucket += bytes;
        }
    }
    json!({
        "region_bytes": WEAR_REGION_BYTES,
        "regions": regions,
        "stored_regions": stored_regions,
        "stored_bytes": stored_bytes,
        "most_region": most.map(|(region, _)| region),
        "most_bytes": most.map(|(_, bytes)| bytes),
        "bucket_regions": in_bucket,
        "buckets": buckets,
    })
}

/// The answer to `wear`: bytes stored to groups of `group` regions each (1 if the request does not
/// say), from group `from` on, only those that were stored to.
///
/// # Errors
/// A sentence, for a request that makes no sense.
pub fn wear(wear: &Wear, request: &Value) -> Result<Value, String> {
    let number = |key: &str, absent| match request.get(key) {
        None => Ok(absent),
        Some(value) => value.as_u64().ok_or_else(|| format!("\"{key}\" is no whole number")),
    };
    let (from, group) = (number("from", 0)?, number("group", 1)?);
    if group == 0 || group > WEAR_LOOKED {
        return Err(format!("\"group\" must be 1 to {WEAR_LOOKED} regions"));
    }
    let groups = wear.regions().div_ceil(group);
    let behind = groups.min(from.saturating_add(WEAR_LOOKED / group));
    let mut named: Vec<(u64, u64)> = Vec::new();
    let mut next = from;
    while next < behind && named.len() < WEAR_NAMED {
        let first = next * group;
        let regions = first..wear.regions().min(first + group);
        let bytes = regions.map(|region| wear.stored_bytes(region)).sum();
        if bytes > 0 {
            named.push((next, bytes));
        }
        next += 1;
    }
    Ok(json!({
        "group_bytes": WEAR_REGION_BYTES.saturating_mul(group),
        "groups": groups,
        "stored": named,
        "next": (next < groups).then_some(next),
    }))
}

#[cfg(test)]
mod tests {
    use lode_pmem::{Counters, Door, Line, MediaError};

    use super::*;
    use crate::control::{MAX_LINE, listener::accept};

    /// A medium of any size that holds nothing.
    struct Void(u64);

    impl Medium for Void {
        type Window = ();
        fn bytes(&self) -> u64 {
            self.0
        }
        fn open(&self) {}
        fn close(&self, _: &mut ()) {}
        fn load_word(&self, _: u64) -> Result<u64, MediaError> {
            Ok(0)
        }
        fn load(&self, _: u64, _: &mut [u8]) -> Result<(), MediaError> {
            Ok(())
        }
        fn store_word(&self, (): &mut (), _: u64, _: u64) {}
        fn store_bytes(&self, (): &mut (), _: u64, _: &[u8]) {}
        fn store_line(&self, (): &mut (), _: u64, _: &Line) {}
        fn stream_word(&self, (): &mut (), _: u64, _: u64) {}
        fn write_back(&self, _: &mut (), _: u64) {}
        fn fence(&self) -> Result<(), MediaError> {
            Ok(())
        }
    }

    const TIB: u64 = 1 << 40;

    /// A door to so many bytes, a line stored to every `step`th region and the last one.
    fn worn(bytes: u64, step: usize) -> (Door<Void>, Vec<(u64, u64)>) {
        let door = Door::new(Void(bytes)).with_wear().unwrap();
        let (counters, last) = (Counters::new(), bytes.div_ceil(WEAR_REGION_BYTES) - 1);
        let mut stored: Vec<u64> = (0..last).step_by(step).collect();
        stored.push(last);
        for region in &stored {
            door.window(64, &counters).store_line(region * WEAR_REGION_BYTES, &Line([1; 64]));
        }
        (door, stored.into_iter().map(|region| (region, 64)).collect())
    }

    fn length(op: &str, answer: &Value) -> usize {
        accept(op, answer.clone()).to_string().len()
    }

    #[test]
    fn wear_of_the_largest_pool_fits_into_its_buckets() {
        for (bytes, buckets, in_bucket) in [
            (WEAR_REGION_BYTES + 64, 2, 1),
            (2 << 30, 1024, 1),
            (6 << 30, 768, 4),
            (16 * TIB, 1024, 8192),
        ] {
            let (door, stored) = worn(bytes, 1000);
            let answer = wear_in_buckets(door.wear());
            assert_eq!(answer["bucket_regions"], in_bucket);
            let sums: Vec<u64> = serde_json::from_value(answer["buckets"].clone()).unwrap();
            assert_eq!(sums.len(), buckets);
            assert_eq!(sums.iter().sum::<u64>(), 64 * stored.len() as u64);
            assert_eq!(answer["stored_bytes"], 64 * stored.len() as u64);
            assert_eq!(answer["stored_regions"], stored.len());
            assert!(sums.last() > Some(&0) && sums.first() > Some(&0));
            assert_eq!((&answer["most_region"], &answer["most_bytes"]), (&json!(0), &json!(64)));
            assert!(length("stats", &answer) < MAX_LINE / 8);
        }
    }

    /// All that `wear` names, answer by answer, in groups of `group`.
    fn named(wear_of: &Wear, group: u64) -> Vec<(u64, u64)> {
        let (mut all, mut from) = (Vec::new(), json!(0));
        while !from.is_null() {
            let answer = wear(wear_of, &json!({ "from": from, "group": group })).unwrap();
            let stored: Vec<(u64, u64)> = serde_json::from_value(answer["stored"].clone()).unwrap();
            assert!(stored.len() <= WEAR_NAMED && length("wear", &answer) < MAX_LINE / 4);
            assert_eq!(answer["group_bytes"], group * WEAR_REGION_BYTES);
            all.extend(stored);
            from = answer["next"].clone();
        }
        all
    }

    #[test]
    fn every_worn_region_is_named_once_in_bounded_answers() {
        let (door, stored) = worn(16 * TIB, 777);
        assert_eq!(named(door.wear(), 1), stored);
        let (door, stored) = worn(64 << 30, 2);
        assert!(stored.len() > 3 * WEAR_NAMED);
        assert_eq!(named(door.wear(), 1), stored);
        let groups = named(door.wear(), 1024);
        assert_eq!(groups.len(), 32);
        assert_eq!(groups.iter().map(|(_, bytes)| bytes).sum::<u64>(), 64 * stored.len() as u64);
    }

    #[test]
    fn requests_that_make_no_sense_are_refused_or_answered_with_nothing() {
        let (door, _) = worn(8 << 20, 1);
        for bad in [
            json!({ "group": 0 }),
            json!({ "group": u64::MAX }),
            json!({ "group": "all" }),
            json!({ "from": -1 }),
            json!({ "from": 1.5 }),
        ] {
            assert!(wear(door.wear(), &bad).is_err(), "{bad}");
        }
        let behind = wear(door.wear(), &json!({ "from": u64::MAX })).unwrap();
        assert_eq!((&behind["stored"], &behind["next"]), (&json!([]), &Value::Null));
        let nowhere = Door::new(Void(TIB));
        assert_eq!(wear(nowhere.wear(), &json!({})).unwrap()["groups"], 0);
        assert_eq!(wear_in_buckets(nowhere.wear())["most_region"], Value::Null);
    }
}
