//! Desired and observed state of the stateroots.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::{Job, Return, StaterootTrial, TrialRules};
use crate::model::BootId;

/// A stage, as lifecycle-agent names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Stage {
    /// One stateroot; what else there is of an upgrade goes.
    #[default]
    Idle,
    /// The seed is a stateroot beside the running one.
    Prep,
    /// It runs.
    Upgrade,
    /// The previous one runs again.
    Rollback,
}

impl Stage {
    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Prep => "Prep",
            Self::Upgrade => "Upgrade",
            Self::Rollback => "Rollback",
        }
    }
}

/// A seed, as it was named: what is wrong with it fails the stage that uses it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SeedRef {
    /// The image.
    #[serde(default)]
    pub image: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
}

/// Source of a desire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The object of a cluster: each stateroot has its own, made again from the agent's state.
    #[default]
    Cluster,
    /// A file, which a seed may have brought from another host.
    File,
}

/// Desired state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Desire {
    /// The stage.
    pub stage: Stage,
    /// The seed.
    pub seed: SeedRef,
    /// Rules of the trial.
    pub trial: TrialRules,
    /// A system in which the upgrade can't be completed is not left.
    #[serde(default)]
    pub keeps_incomplete: bool,
    /// A person has cleaned up what the agent could not.
    #[serde(default)]
    pub is_cleaned_up: bool,
    /// Generation of the object.
    #[serde(default)]
    pub generation: i64,
    /// Its source.
    pub source: Source,
    /// Annotations and spec of the object, from which it is made again in another stateroot.
    #[serde(default)]
    pub object: Option<Value>,
}

/// Observed state of the stateroots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedStateroots {
    /// The stateroot that runs.
    pub running: String,
    /// The boot.
    pub boot_id: BootId,
    /// The open work, if there is any, and whether a boot has ended it.
    pub open: Option<(Job, bool)>,
    /// The trial of the deployment that runs.
    pub trial: Option<StaterootTrial>,
    /// Reason for which another stateroot was left.
    pub returned: Option<Return>,
}
