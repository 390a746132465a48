//! Errors of a control plane.

use super::kube::KubeError;
use crate::host::HostError;
use crate::model::text::chain;
use crate::model::{ConfigName, FaultClass, ModelError};

/// A target that can't be read, or a report that can't be written.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A file of the directory could not be read or written.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The control directory is none.
    #[error("{path} can't be used as the control directory: {cause}")]
    NoDirectory {
        /// The path, as it was given.
        path: String,
        /// The fault of the path.
        cause: &'static str,
    },
    /// The target is not valid.
    #[error("{document} is not valid")]
    Invalid {
        /// The document.
        document: String,
        /// The error of the input.
        #[source]
        source: ModelError,
    },
    /// The desired MachineConfig is not there.
    #[error("MachineConfig {config} not found: {place} has neither {config}.yaml nor {config}.json")]
    Missing {
        /// The config.
        config: ConfigName,
        /// The searched path.
        place: String,
    },
    /// A file holds another object than its name.
    #[error("{document} holds MachineConfig {found}, not {config}")]
    Misnamed {
        /// The file.
        document: String,
        /// The name it should hold.
        config: ConfigName,
        /// The name it holds.
        found: ConfigName,
    },
    /// Two files of one config: nobody knows which one is meant.
    #[error("{document} and {second} both hold MachineConfig {config}")]
    Twice {
        /// One file.
        document: String,
        /// The other one.
        second: String,
        /// The config.
        config: ConfigName,
    },
    /// The desired MachineConfig is not in the cluster.
    #[error("MachineConfig {config} is not in the cluster{instead}")]
    NotInCluster {
        /// The config.
        config: ConfigName,
        /// The cluster's replacement for the config, after a semicolon; empty if unknown.
        instead: String,
    },
    /// An object that may still come or become ready.
    #[error("waiting for {object}: {why}")]
    WaitingForObject {
        /// The object.
        object: String,
        /// The missing object.
        why: String,
    },
    /// The operator did not merge the policy in time.
    #[error("NodeDisruptionPolicyStatus was not ready: {object} is of a later generation than its status")]
    PolicyNotReady {
        /// The object.
        object: String,
    },
    /// Drains are answered, and the node is not cordoned.
    #[error("Node {node} is schedulable after each of several answered drains for {config}")]
    NotCordoned {
        /// The node.
        node: String,
        /// The config.
        config: ConfigName,
    },
    /// The API server.
    #[error(transparent)]
    Kube(#[from] KubeError),
}

impl ControlError {
    /// Returns true if the control plane is unreachable: not a fault of the node; its return triggers a new pass.
    pub fn is_away(&self) -> bool {
        match self {
            Self::Kube(error) => error.is_away(),
            Self::WaitingForObject { .. } => true,
            Self::Host(_)
            | Self::NoDirectory { .. }
            | Self::Invalid { .. }
            | Self::Missing { .. }
            | Self::Misnamed { .. }
            | Self::Twice { .. }
            | Self::NotInCluster { .. }
            | Self::NotCordoned { .. }
            | Self::PolicyNotReady { .. } => false,
        }
    }

    /// Names what an error of [`Self::is_away`] waits for, to go on after "waits for".
    pub fn awaited(&self) -> String {
        match self {
            Self::WaitingForObject { object, why } => format!("{object}: {why}"),
            Self::Kube(error) => error.awaited(),
            Self::Host(_)
            | Self::NoDirectory { .. }
            | Self::Invalid { .. }
            | Self::Missing { .. }
            | Self::Misnamed { .. }
            | Self::Twice { .. }
            | Self::NotInCluster { .. }
            | Self::NotCordoned { .. }
            | Self::PolicyNotReady { .. } => chain(self),
        }
    }

    /// Returns the class for the node.
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Host(error) => error.class(),
            Self::Invalid { source, .. } => source.class(),
            Self::Kube(error) => error.class(),
            Self::NoDirectory { .. } | Self::Missing { .. } | Self::Misnamed { .. } | Self::Twice { .. } => {
                FaultClass::Degraded
            }
            // Its coming is not watched: it is requested again.
            Self::NotInCluster { .. }
            | Self::WaitingForObject { .. }
            | Self::NotCordoned { .. }
            | Self::PolicyNotReady { .. } => FaultClass::Retry,
        }
    }

    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Host(error) => error.reason(),
            Self::NoDirectory { .. } => "UnexpectedKind",
            Self::Invalid { source, .. } => source.reason(),
            Self::Missing { .. } | Self::NotInCluster { .. } => "ConfigNotFound",
            Self::WaitingForObject { .. } => "WaitingForObject",
            Self::PolicyNotReady { .. } => "PolicyNotReady",
            Self::NotCordoned { .. } => "FailedToDrain",
            Self::Kube(error) => error.reason(),
            Self::Misnamed { .. } => "ConfigMisnamed",
            Self::Twice { .. } => "InvalidDocument",
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> String {
        match self {
            Self::Host(error) => error.next(),
            Self::NoDirectory { .. } => {
                "Name the directory that has target.yaml and machineconfigs/.".to_owned()
            }
            Self::Invalid { document, .. } | Self::Misnamed { document, .. } => {
                format!("Correct {document}; the agent notices the change.")
            }
            Self::Twice { .. } => "Remove one of the two; the agent notices by itself.".to_owned(),
            Self::Missing { place, .. } => {
                format!("Put the MachineConfig into {place}; the agent notices the change.")
            }
            Self::NotInCluster { config, .. } => {
                format!(
                    "Create MachineConfig {config}, or change the Node's desiredConfig; the agent queries it again."
                )
            }
            Self::WaitingForObject { object, .. } => {
                format!("Wait for {object}; the agent queries it again.")
            }
            Self::PolicyNotReady { object } => {
                format!("Check why the operator has not merged {object}; the agent queries it again.")
            }
            Self::NotCordoned { node, .. } => format!(
                "Find who answers desiredDrain of Node {node} without cordoning it, or who uncordons it \
                 (`kubectl get node {node} -o yaml --show-managed-fields`); the agent requests the drain again."
            ),
            Self::Kube(error) => error.next(),
        }
    }
}
