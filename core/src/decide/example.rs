//! The configs of this folder's tests.

use crate::model::HostSpec;
use crate::model::machineconfig::MachineConfig;

/// Returns a config with one file, whose text is the config's name.
pub(super) fn spec(name: &str) -> HostSpec {
    let text = format!(
        r#"{{"kind":"MachineConfig","metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
        "storage":{{"files":[{{"path":"/etc/a","contents":{{"source":"data:,{name}"}}}}]}}}}}}}}"#
    );
    MachineConfig::parse(text.as_bytes(), name).unwrap().spec(None).unwrap()
}
