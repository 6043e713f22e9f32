//! Samples of what the commands tell of volumes.

use serde_json::Value;

use super::erased;
use crate::report::{
    ServedFacts, VolumeAttached, VolumeDeleted, VolumeDetached, VolumeFacts, VolumeList,
    VolumeMade, VolumeResized, VolumesServed,
};

pub(super) fn volumes() -> [(&'static str, Value); 7] {
    let (target, name) = ("/d".to_owned(), "v".to_owned());
    let facts = VolumeFacts {
        name: name.clone(),
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
    let served = ServedFacts::new(facts.clone(), "v", (Some(std::path::Path::new("/s")), None));
    [
        ("block create", value(&VolumeMade { target: target.clone(), volume: facts.clone() })),
        ("block list", value(&VolumeList { target: target.clone(), volumes })),
        ("block resize", value(&VolumeResized { target: target.clone(), volume: facts })),
        ("block delete", value(&VolumeDeleted { target, name })),
        ("block serve", value(&VolumesServed { pool: "/p".into(), exports: vec![served] })),
        ("block attach", value(&VolumeAttached { file: file.clone(), device })),
        ("block detach", value(&VolumeDetached { file, devices })),
    ]
}
