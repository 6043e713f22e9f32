//! The scenarios, as cases.

use lode_engine::PageClass;

use crate::case::{Case, Geometry};
use crate::scenarios::{SCENARIOS, Scenario};
use crate::workload::build::operations;

/// A scenario as a case.
pub fn case_of(scenario: &Scenario) -> Case {
    let geometry = Geometry {
        bytes: scenario.kib << 10,
        lanes: scenario.lanes,
        class: if scenario.huge { PageClass::Huge } else { PageClass::Small },
        relaxed: scenario.relaxed,
        ..Geometry::default()
    };
    Case {
        name: scenario.name.to_owned(),
        geometry,
        before: operations(&(scenario.before)()),
        ops: operations(scenario.ops),
        beside: Vec::new(),
    }
}

/// All scenarios.
pub fn scenarios() -> Vec<Case> {
    SCENARIOS.iter().map(case_of).collect()
}
