//! Actions of a decision, and what it waits for.

use super::input::{PoolCondition, Status};

/// Queries that the cache can't answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// Presence of the image in the registry.
    Image(String),
    /// The right to push the image of the desired build.
    Push,
    /// Results of the pods of the Job with this UID.
    Pods(String),
    /// Presence of the Job with this name and UID in the API server.
    Job {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

/// Reason to delete a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionReason {
    /// Another one is desired, and it has not ended.
    Superseded,
    /// A rebuild was requested.
    Rebuild,
}

/// One action. Each is one write that can be made again, or one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Sends a query; its answer is in [`super::Answers`] of the next decision.
    Query(Query),
    /// Creates the desired build, without a status.
    CreateBuild {
        /// Its image was built before.
        pre_built: bool,
        /// It takes no other build's image.
        no_reuse: bool,
    },
    /// Deletes a build.
    DeleteBuild {
        /// Its name.
        name: String,
        /// Its UID: another one of that name stays.
        uid: String,
        /// Reason of the deletion.
        reason: DeletionReason,
    },
    /// Deletes an image from the registry; what comes of it is in [`super::Answers`] of the next decision.
    DeleteImage {
        /// Whose image.
        build: String,
        /// By digest.
        image: String,
    },
    /// Removes our finalizer of a build that is being deleted.
    ReleaseBuild {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Notes on the `MachineOSConfig` which build a rebuild replaces.
    BeginRebuild {
        /// Its UID, or that there was none.
        replaces: String,
    },
    /// Removes the request and the note of a rebuild.
    EndRebuild,
    /// Creates the desired build's Job, suspended.
    CreateJob,
    /// Notes on the desired build which Job speaks for it.
    RecordJob {
        /// The Job's UID.
        uid: String,
    },
    /// Creates the inputs of the Job, as far as they are missing, and lets it run.
    StartJob {
        /// The Job's UID.
        uid: String,
    },
    /// Deletes a Job, with its pods and inputs.
    DeleteJob {
        /// The build that it is of.
        build: String,
        /// Its name.
        name: String,
        /// Its UID: another one of that name stays.
        uid: String,
    },
    /// Writes the desired build's status.
    WriteStatus(Status),
    /// Writes image and build to the status of the `MachineOSConfig`.
    Publish {
        /// The image, by digest.
        image: String,
        /// It was built before: the condition `Seeded` becomes True.
        seeded: bool,
    },
    /// Names the desired build in the annotation of the `MachineOSConfig`.
    NameBuild,
    /// Writes the pool's condition.
    SetCondition(PoolCondition),
    /// Waits for a change.
    Wait {
        /// It is tried again after a while, without the answers.
        retry: bool,
    },
}

/// Awaited object or event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing: it is as it should be, or only a person can go on.
    Rest,
    /// A target of the pool that can be read.
    Target,
    /// A pool that is not degraded.
    PoolDegraded(String),
    /// Something that a build needs.
    Missing(String),
    /// Another text of the user, or another config.
    Invalid(String),
    /// A registry that answers.
    Registry(String),
    /// A registry that takes the image.
    Push(String),
    /// The Job.
    Job,
    /// An object that is being deleted.
    Removal,
}
