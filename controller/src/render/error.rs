//! Errors of rendering a pool.

use crate::model::ModelError;
use crate::plan::Irreconcilable;

/// etcd's limit of one request (`--max-request-bytes`, as etcd has it by default).
pub(super) const LIMIT: usize = 1_572_864;

/// Errors of rendering a pool. Each names the object, the cause and the next step.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Its selector takes none of the MachineConfigs.
    #[error(
        "pool {pool}: machineConfigSelector selects no MachineConfig; label one as the selector requires (by \
         default machineconfiguration.openshift.io/role={pool}), or correct the selector"
    )]
    NoConfigs {
        /// The pool.
        pool: String,
    },
    /// It would take all of them.
    #[error("pool {pool}: machineConfigSelector is empty; name the labels of the pool's MachineConfigs")]
    EmptySelector {
        /// The pool.
        pool: String,
    },
    /// It can't be read.
    #[error("pool {pool}: machineConfigSelector: {cause}; correct it")]
    Selector {
        /// The pool.
        pool: String,
        /// Cause.
        cause: String,
    },
    /// The Ignition part of a MachineConfig can't be read.
    #[error("MachineConfig {config}: spec.config: {cause}")]
    Ignition {
        /// The MachineConfig.
        config: String,
        /// Cause.
        cause: String,
    },
    /// A field of a MachineConfig that no node could read.
    #[error("MachineConfig {config}: {cause}")]
    Part {
        /// The MachineConfig.
        config: String,
        /// Cause.
        cause: String,
    },
    /// Nodes could not carry it out while they run.
    #[error("{config} is refused, and no node gets it: {refused}")]
    Irreconcilable {
        /// The rendered config.
        config: String,
        /// Cause, in the node's words.
        refused: Irreconcilable,
    },
    /// The API server could not store it.
    #[error(
        "{config} needs {size} bytes as the API server stores it, and etcd takes at most {LIMIT} (1.5 MiB); the largest \
         MachineConfigs are {largest}: compress their files (contents.compression: gzip), remove what no node needs, or bring it \
         in an OS image"
    )]
    TooLarge {
        /// The rendered config.
        config: String,
        /// The bytes, with what the API server adds.
        size: usize,
        /// The MachineConfigs with the largest share, and their bytes.
        largest: String,
    },
    /// A field that no node could read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Unreachable: an object is text.
    #[error("an object can't be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}
