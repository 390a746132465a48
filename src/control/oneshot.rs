//! The control plane of `apply`: one target from files, a report that goes nowhere.

use super::{ControlError, ControlPlane};
use crate::model::machineconfig::MachineConfig;
use crate::model::policy::DisruptionPolicy;
use crate::model::{ConfigName, ImageRef, Target};
use crate::report::NodeReport;

/// One target.
#[derive(Debug)]
pub struct OneShot {
    machine_config: MachineConfig,
    target: Target,
    policy: DisruptionPolicy,
}

impl OneShot {
    /// Takes the config, the image that goes with it, and the policy.
    pub fn new(machine_config: MachineConfig, image: Option<ImageRef>, policy: DisruptionPolicy) -> Self {
        let content = Some(machine_config.content());
        let target = Target::new(machine_config.name().clone(), image).with_content(content);
        Self { machine_config, target, policy }
    }

    /// Returns the target.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl ControlPlane for OneShot {
    async fn changed(&mut self) -> Result<(), ControlError> {
        std::future::pending().await
    }

    async fn desired(&mut self) -> Result<Option<Target>, ControlError> {
        Ok(Some(self.target.clone()))
    }

    async fn machine_config(&mut self, name: &ConfigName) -> Result<MachineConfig, ControlError> {
        if self.machine_config.name() == name {
            return Ok(self.machine_config.clone());
        }
        Err(ControlError::Missing { config: name.clone(), place: "the command line".to_owned() })
    }

    async fn policy(&mut self) -> Result<DisruptionPolicy, ControlError> {
        Ok(self.policy.clone())
    }

    async fn publish(&mut self, _report: &NodeReport) -> Result<(), ControlError> {
        Ok(())
    }
}
