//! Jobs on stateroots, and their steps.

use serde::{Deserialize, Serialize};

use super::{Layout, StaterootName, TrialRules, Version};
use crate::model::ImageRef;

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Job {
    /// A seed becomes a stateroot.
    Prepare {
        /// The stateroot.
        stateroot: StaterootName,
        /// The seed image.
        image: ImageRef,
        /// Its layout.
        layout: Layout,
        /// Its version.
        version: Version,
        /// Kernel arguments that are carried over, beside those that always are.
        carried: Vec<String>,
    },
    /// A stateroot goes.
    Remove {
        /// The stateroot.
        stateroot: StaterootName,
    },
    /// Another stateroot becomes the one that runs.
    Activate {
        /// The stateroot.
        stateroot: StaterootName,
        /// Its deployment.
        deployment: String,
        /// The deployment that runs, and boots again when this is undone.
        previous: String,
        /// Rules of the trial of the new system; `None` is a way back, to a system that ran before.
        trial: Option<TrialRules>,
        /// Reboots the machine; otherwise a person does.
        reboot: bool,
    },
}

/// One step. Each may be repeated and finds its own work done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StaterootStep {
    /// The seed is pulled, unpacked and checked beside the repository.
    FetchSeed,
    /// The stateroot and its deployment are made; the deployment does not boot by itself.
    DeployStateroot,
    /// Deployments, directories, kernels and refs of the stateroot are removed, and what was fetched.
    RemoveStateroot,
    /// The trial is written into the `/var` of the new system.
    ArmTrial,
    /// The deployment becomes the first of the boot menu.
    SetDefault,
    /// The machine is rebooted. It is the last step: the next boot ends it.
    RequestReboot,
    /// The previous deployment boots next again, and nothing is on trial.
    RestoreDefault,
}

impl Job {
    /// Returns the stateroot.
    pub fn stateroot(&self) -> &StaterootName {
        match self {
            Self::Prepare { stateroot, .. }
            | Self::Remove { stateroot }
            | Self::Activate { stateroot, .. } => stateroot,
        }
    }

    /// Returns the steps in order.
    pub fn steps(&self) -> &'static [StaterootStep] {
        match self {
            Self::Prepare { .. } => &[StaterootStep::FetchSeed, StaterootStep::DeployStateroot],
            Self::Remove { .. } => &[StaterootStep::RemoveStateroot],
            Self::Activate { reboot: true, .. } => {
                &[StaterootStep::ArmTrial, StaterootStep::SetDefault, StaterootStep::RequestReboot]
            }
            Self::Activate { reboot: false, .. } => &[StaterootStep::ArmTrial, StaterootStep::SetDefault],
        }
    }

    /// Returns the step that undoes it; a removal has none.
    pub fn undo(&self) -> Option<StaterootStep> {
        match self {
            Self::Prepare { .. } => Some(StaterootStep::RemoveStateroot),
            Self::Activate { .. } => Some(StaterootStep::RestoreDefault),
            Self::Remove { .. } => None,
        }
    }
}

impl StaterootStep {
    /// Returns the name, as in the plan.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FetchSeed => "fetch-seed",
            Self::DeployStateroot => "deploy-stateroot",
            Self::RemoveStateroot => "remove-stateroot",
            Self::ArmTrial => "arm-trial",
            Self::SetDefault => "set-default",
            Self::RequestReboot => "request-reboot",
            Self::RestoreDefault => "restore-default",
        }
    }
}
