//! Specs, facts and plans for the tables, made by the crate's own parser and planner.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    dead_code,
    reason = "shared by tests: the lints of a library do not fit"
)]

use machine_config_core::model::machineconfig::MachineConfig;
use machine_config_core::model::policy::DisruptionPolicy;
use machine_config_core::model::{
    BootId, Facts, HostSpec, ImageRef, Observation, Target, Timestamp, UpdateId,
};
use machine_config_core::plan::{Plan, plan};
use machine_config_core::update::Record;

/// The image that runs before.
pub const OLD: &str =
    "registry.test/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
/// The image that is desired.
pub const NEW: &str =
    "registry.test/os@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
/// A foreign image.
pub const FOREIGN: &str =
    "registry.test/os@sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

/// An update from one spec to another.
pub struct UpdateFixture {
    pub from: HostSpec,
    pub to: HostSpec,
    pub observed: Observation,
    pub plan: Plan,
}

fn spec(name: &str, motd: &str, image: &str) -> HostSpec {
    let text = format!(
        r#"{{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{{"name":"{name}"}},
            "spec":{{"config":{{"ignition":{{"version":"3.5.0"}},
            "storage":{{"files":[{{"path":"/etc/motd","contents":{{"source":"data:,{motd}"}}}}]}}}}}}}}"#
    );
    MachineConfig::parse(text.as_bytes(), name).unwrap().spec(Some(ImageRef::parse(image).unwrap())).unwrap()
}

impl UpdateFixture {
    fn new(from: HostSpec, to: HostSpec) -> Self {
        let facts = Facts::assumed(&from, &to).unwrap();
        let plan = plan(&from, &to, &facts, &DisruptionPolicy::defaults()).unwrap();
        Self { from, to, observed: facts.observed, plan }
    }

    /// A switch of the image, with a file that it does not carry.
    pub fn with_image() -> Self {
        Self::new(spec("rendered-worker-a", "a", OLD), spec("rendered-worker-b", "b", NEW))
    }

    /// A change of a file.
    pub fn with_files() -> Self {
        Self::new(spec("rendered-worker-a", "a", OLD), spec("rendered-worker-b", "b", OLD))
    }

    /// A target that is neither.
    pub fn other() -> Target {
        spec("rendered-worker-z", "z", NEW).target()
    }

    /// The record that such an update begins with.
    pub fn record(&self) -> Record {
        let id = UpdateId::new("20261120-204405-000001").unwrap();
        let boot_id = BootId::new("boot-1").unwrap();
        Record::new(id, self.plan.clone(), boot_id, Some("origin".to_owned()), Timestamp::default())
    }
}
