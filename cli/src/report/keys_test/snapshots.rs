//! Samples of what the commands tell of snapshots, and of streams of them.

use serde_json::Value;

use super::erased;
use crate::report::{
    ReceiveReport, ReceiveState, SendReport, SnapshotDeleted, SnapshotFacts, SnapshotList,
    SnapshotMade, SnapshotRolledBack,
};

pub(super) fn snapshots() -> [(&'static str, Value); 4] {
    let (target, name) = ("/d".to_owned(), "before".to_owned());
    let info = lode_engine::SnapshotInfo {
        name: b"before".to_vec(),
        epoch: 3,
        created_ns: 0,
        pages: 2,
        pages_alone: 1,
    };
    let facts = SnapshotFacts::from(&info);
    let (made, snapshots) = (facts.clone(), vec![facts]);
    let (deleted, lost) = (vec!["later".to_owned()], vec!["file".to_owned()]);
    let value = |report: &dyn erased::Json| report.json();
    [
        ("snapshot create", value(&SnapshotMade { target: target.clone(), snapshot: made })),
        ("snapshot list", value(&SnapshotList::new(target.clone(), snapshots))),
        ("snapshot delete", value(&SnapshotDeleted { target: target.clone(), name: name.clone() })),
        ("snapshot rollback", value(&SnapshotRolledBack { target, name, deleted, lost })),
    ]
}

pub(super) fn streams() -> [(&'static str, Value); 2] {
    let (pool, name) = ("/p".to_owned(), Some("s".to_owned()));
    let (target, since) = (pool.clone(), name.clone());
    let sent = SendReport { target, name: "s".into(), since, from: 0, bytes: 1 };
    let state = ReceiveState::Receiving;
    let received = ReceiveReport { pool, state, name, offset: Some(9) };
    let value = |report: &dyn erased::Json| report.json();
    [("send", value(&sent)), ("receive", value(&received))]
}
