//! The control plane of a first boot: the MachineConfig that Ignition left on the host, in a file.
//!
//! The machine-config-server puts it there: the rendered config of the node's pool, of which Ignition could bring the files
//! and units, but not the OS image, the kernel arguments, the kernel and the extensions. The file's end is the end of the
//! first boot. A change of the file is noticed; its writer is checked, as it is applied as root.

use std::collections::BTreeSet;

use super::source_watch::SourceWatch;
use super::{ControlError, ControlPlane};
use crate::host::console::Console;
use crate::host::watch::WatchSet;
use crate::host::{HostError, Root};
use crate::model::machineconfig::{self, MachineConfig};
use crate::model::policy::DisruptionPolicy;
use crate::model::{ConfigName, FileMode, ModelError, Target};
use crate::report::{NodeReport, NodeState};
use crate::update::Fault;

pub use crate::model::ids::ENCAPSULATED;

/// Ignition's preset file that enables its units, by MCD's name for it.
const PRESET: &str = "/etc/systemd/system-preset/20-ignition.preset";

/// The phase of a host that nothing is done to.
const IDLE: &str = "Idle";

/// The file, and the console.
#[derive(Debug)]
pub struct Encapsulated {
    root: Root,
    path: String,
    watch: SourceWatch,
    console: Console,
}

impl Encapsulated {
    /// Begins to watch the file. It need not be there: then there is no target.
    pub fn open(root: &Root, path: &str) -> Result<Self, ControlError> {
        let watch = SourceWatch::new(root, watched(path));
        Ok(Self { root: root.clone(), path: path.to_owned(), watch, console: Console::new(root) })
    }

    fn read(&self) -> Result<Option<MachineConfig>, ControlError> {
        let Some(bytes) = self.root.read_trusted(&self.path, machineconfig::MAX_BYTES)? else {
            return Ok(None);
        };
        let invalid = |source| ControlError::Invalid { document: self.path.clone(), source };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            let cause = "it is empty".to_owned();
            return Err(invalid(ModelError::Document { document: self.path.clone(), cause }));
        }
        let config = MachineConfig::parse(&bytes, &self.path).map_err(invalid)?;
        // Reported before anything of the host is read.
        config.spec(None).map_err(invalid)?;
        Ok(Some(config))
    }
}

fn watched(path: &str) -> WatchSet {
    WatchSet { paths: BTreeSet::from([path.to_owned()]), ..WatchSet::default() }
}

/// Ends the first boot: renames the file to MCD's other name for it. A missing file is ignored.
pub fn retire(root: &Root, path: &str) -> Result<(), HostError> {
    let Some(bytes) = root.read(path)? else { return Ok(()) };
    root.replace(&format!("{path}.bak"), &bytes, FileMode::PRIVATE)?;
    root.remove(path)
}

/// Removes the rest of a provisioning from a node that has joined its cluster: the file of a first boot that was not
/// completed, and the preset by which Ignition enabled its units. Returns true if the file was there.
pub fn clear_leftovers(root: &Root) -> Result<bool, HostError> {
    root.remove(PRESET)?;
    let is_left = root.exists(ENCAPSULATED)?;
    if is_left {
        retire(root, ENCAPSULATED)?;
    }
    Ok(is_left)
}

impl ControlPlane for Encapsulated {
    async fn changed(&mut self) -> Result<(), ControlError> {
        self.watch.changed().await;
        Ok(())
    }

    fn rewritten(&self) -> bool {
        true
    }

    async fn desired(&mut self) -> Result<Option<Target>, ControlError> {
        self.watch.watch_over(watched(&self.path));
        // The image is a field of the config here: the node is in no image mode before its cluster sets one.
        let target = |config: MachineConfig| {
            Target::new(config.name().clone(), None).with_content(Some(config.content()))
        };
        Ok(self.read()?.map(target))
    }

    fn unwatched(&self) -> Option<Fault> {
        self.watch.fault().cloned()
    }

    async fn machine_config(&mut self, name: &ConfigName) -> Result<MachineConfig, ControlError> {
        let missing = || ControlError::Missing { config: name.clone(), place: self.path.clone() };
        self.read()?.filter(|config| config.name() == name).ok_or_else(missing)
    }

    async fn policy(&mut self) -> Result<DisruptionPolicy, ControlError> {
        // Services that wait for the end of the first boot can't be restarted in it: any change costs the reboot.
        Ok(DisruptionPolicy::none())
    }

    async fn publish(&mut self, report: &NodeReport) -> Result<(), ControlError> {
        if let Some(line) = line(report) {
            self.console.write_line(&line);
        }
        Ok(())
    }
}

/// Returns the line for the console: a host that is being provisioned has no login yet.
fn line(report: &NodeReport) -> Option<String> {
    let config = report.desired_config.as_ref().map_or("a config", |config| config.as_str());
    let waits = report.waiting.as_ref().map(|what| format!(", waiting for {what}")).unwrap_or_default();
    match report.state {
        NodeState::Done | NodeState::Working if report.phase == IDLE => None,
        NodeState::Done | NodeState::Working => {
            Some(format!("first boot to {config}: {}{waits}", report.phase))
        }
        NodeState::Degraded | NodeState::Unreconcilable => {
            // The reason is the same text, cut where it is longer than an annotation may be.
            let fault = report.fault.as_ref().map_or_else(|| report.reason.clone(), ToString::to_string);
            Some(format!("first boot to {config} is not complete, the kubelet waits: {fault}"))
        }
    }
}
