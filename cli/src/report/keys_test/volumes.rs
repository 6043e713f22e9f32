//! Samples of what the commands tell of volumes.

use serde_json::Value;

use super::erased;
use crate::report::{
    RawServed, ServedAt, ServedFacts, VolumeAttached, VolumeDeleted, VolumeDetached, VolumeFacts,
    VolumeList, VolumeMade, VolumeResized, VolumesServed,
};

pub(super) fn volumes() -> [(&'static str, Value); 8] {
    let (target, name) = ("/d".to_owned(), "v".to_owned());
    let facts = VolumeFacts {
        name: name.clone(),
        name_bytes: name.clone().into(),
        bytes: 8192,
        allocated_bytes: 4096,
        sector: 512,
        thin: true,
    };
    let file = "/d/.lode/volumes/v".to_owned();
    let device = "/dev/loop0".to_owned();
    let devices = vec![device.clone()];
    let value = |report: &dyn erased::Json| report.json();
    let volumes = vec![facts.clone()];
    let place = std::path::Path::new("/s");
    let uris = ServedAt::new("v", (Some(place), None)).uris;
    let at = ServedAt { uris, device: Some("/dev/ublkb0".to_owned()) };
    let exports = vec![ServedFacts { volume: facts.clone(), read_only: false, at }];
    let raw = RawServed {
        region: "/r".to_owned(),
        kind: "tmpfs file".to_owned(),
        bytes: 8192,
        read_only: false,
        sector: 512,
        protect_io: "key".to_owned(),
        write_scheme: "nt".to_owned(),
        durable_when_written: true,
        at: ServedAt::new("raw", (Some(place), None)),
    };
    [
        ("block create", value(&VolumeMade { target: target.clone(), volume: facts.clone() })),
        ("block list", value(&VolumeList { target: target.clone(), volumes })),
        ("block resize", value(&VolumeResized { target: target.clone(), volume: facts })),
        ("block delete", value(&VolumeDeleted { target, name })),
        ("block serve", value(&VolumesServed { pool: "/p".into(), exports })),
        ("block serve --raw", value(&raw)),
        ("block attach", value(&VolumeAttached { file: file.clone(), device })),
        ("block detach", value(&VolumeDetached { file, devices })),
    ]
}
