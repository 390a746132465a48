//! Images built in the cluster: when a build starts, is reused, cancelled, restarted and deleted. Pure.
//!
//! A `MachineOSConfig` says how the image of a pool is built, a `MachineOSBuild` is one build of it, a Job carries it out.
//! [`decide()`] takes all of them and returns one action: a write, or a query whose answer nothing in the API server holds.
//! The next decision takes its result. So a controller that is killed before or after any write is replaced by one that
//! goes on; nothing is only in memory but answers, which are requested again.
//!
//! Names, labels, conditions, reasons and events are the Machine Config Operator's (`pkg/controller/build`).
//!
//! # Decisions
//!
//! - A Job is created suspended, its UID is recorded on the build, its inputs are created with the Job as their owner,
//!   and then it is let run. Upstream creates the inputs first and gives them their owner last: a controller that is killed
//!   between leaves them for ever.
//! - An image is reused by what it was built from ([`IMAGE_INPUTS`]), whichever build has it; upstream compares with the current
//!   build only. A pool that is degraded gets no new build, but may reuse an image: files that mend its nodes have to reach them.
//! - A build whose Job is missing is `Interrupted` only after the API server itself was queried for the Job: a watch may
//!   be behind what another leader wrote.
//! - A rebuild notes which build it replaces ([`REPLACES`]) before that is deleted: killed in between, it is neither made twice nor
//!   forgotten.
//! - An image is deleted with its build, unless a node, another build or the `MachineOSConfig` names it, or it was not built here.
//!   Upstream considers the nodes only, and a reused image dies with its first build.

mod action;
mod archives;
mod builder_type;
mod condition;
mod decide;
mod input;
mod job;
mod mounts;
mod name;
mod objects;
mod openshift;
mod release;
mod surroundings;

pub use action::{Action, DeletionReason, Query, Waiting};
pub use builder_type::{BuilderType, IMAGE_BUILDER};
pub use decide::decide;
pub use input::{
    Answers, Build, BuildInput, Deletion, DesiredBuild, Job, OsConfig, Outcome, Pool, PoolCondition,
    PushAccess, Ready, Registry, State, Status,
};
pub use job::{MAX_FAILURES, progress};
pub use mounts::{Mount, MountObject};
pub use name::{Inputs, build_name, image_inputs, job_name, push_spec, user_lines};
pub use objects::{
    InputOwner, JobInputs, JobRequest, JobSettings, MACHINE_OS_BUILD, ObjectsError, check_size, inputs, job,
    label,
};
pub use openshift::{
    OPENSHIFT_BUILD, STARTED, openshift_build, outcome as openshift_outcome, reduced as openshift_reduced,
};
pub use release::waits_for_registry;
pub use surroundings::{Around, GLOBAL_PULL_SECRET, REPOSITORIES, Surroundings};

/// The label of what the Machine Config Operator calls a synthetic build: its image was built before, and it never has a Job.
pub const PRE_BUILT: &str = "machineconfiguration.openshift.io/pre-built-image";

/// The reason of a success that is not a build's own: of a seeded image, and of one that was reused from it.
pub const SEEDED: &str = "PreBuiltImageSeeded";

/// The annotation of a build with the UID of the Job that speaks for it.
pub const JOB_UID: &str = "machineconfiguration.openshift.io/job-uid";

/// The annotation of a `MachineOSConfig` that requests the same build once more.
pub const REBUILD: &str = "machineconfiguration.openshift.io/rebuild";

/// The annotation of a `MachineOSConfig` with the UID of the build that a rebuild replaces; [`NO_BUILD`] where there was none.
pub const REPLACES: &str = "machine-config-agent.io/rebuild-replaces";

/// A rebuild without a build before it.
pub const NO_BUILD: &str = "none";

/// The annotation of a build with a digest of what decides its image. Builds that have the same one may have the same image.
pub const IMAGE_INPUTS: &str = "machine-config-agent.io/image-inputs";

/// The annotation of a build that was requested by [`REBUILD`]: it takes no other build's image.
pub const NO_REUSE: &str = "machine-config-agent.io/no-reuse";

/// The annotation of a build with the name of the Secret that pushed its image, and may delete it.
pub const PUSH_SECRET: &str = "machineconfiguration.openshift.io/rendered-image-push-secret";

/// The annotation of a build with the namespace of its Build of OpenShift: its status can name Jobs alone.
pub const BUILD_NAMESPACE: &str = "machine-config-agent.io/build-namespace";

/// The finalizer of a build that has an image: the image is checked before the build goes.
pub const FINALIZER: &str = "machine-config-agent.io/image";

#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk;
