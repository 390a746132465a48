//! Inputs of a decision about builds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A `MachineOSConfig`, reduced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct OsConfig {
    /// Its UID.
    pub uid: String,
    /// It counts changes of the spec.
    pub generation: i64,
    /// Somebody has deleted it.
    pub deleting: bool,
    /// The image that was built before the cluster.
    pub pre_built: Option<String>,
    /// The build that its annotation names.
    pub current: Option<String>,
    /// The same build is requested once more.
    pub rebuild: bool,
    /// The build that the rebuild replaces.
    pub replaces: Option<String>,
    /// The image that its status names.
    pub image: Option<String>,
    /// The build that its status names.
    pub image_of: Option<String>,
    /// The generation that its status is about.
    pub observed: i64,
    /// Its status says that it was seeded.
    pub seeded: bool,
    /// Cause of a spec that can't be read, with the next step.
    pub unreadable: Option<String>,
}

impl OsConfig {
    /// Returns true if its first image was built before the cluster, and nothing says so yet.
    pub fn awaits_seeding(&self) -> bool {
        self.pre_built.is_some() && self.current.is_none() && !self.seeded
    }
}

/// The pool, reduced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Degraded part of it, except the image: no build starts.
    pub degraded: Option<String>,
    /// Its condition `ImageBuildDegraded`.
    pub condition: Option<PoolCondition>,
}

/// The condition `ImageBuildDegraded`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolCondition {
    /// `True`.
    pub is_degraded: bool,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

impl PoolCondition {
    pub(super) fn new(is_degraded: bool, reason: &str, message: String) -> Self {
        Self { is_degraded, reason: reason.to_owned(), message }
    }
}

/// The build that the pool's target and the `MachineOSConfig` request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DesiredBuild {
    /// Its name, which says what it is built from.
    pub name: String,
    /// A digest of what decides its image.
    pub inputs: String,
    /// Readiness of the build.
    pub ready: Ready,
}

/// Readiness of a build.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ready {
    /// All is there.
    Yes,
    /// The user's text can't be built; with line and next step.
    Invalid(String),
    /// Something is not there yet, such as a Secret; with the next step.
    Missing(String),
}

/// Progress of a build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It has no conditions yet.
    #[default]
    Initial,
    /// Its Job runs, without a pod so far.
    Prepared,
    /// A pod builds it.
    Building,
    /// Its image is in the registry.
    Succeeded,
    /// All tries failed.
    Failed,
    /// Its Job was deleted.
    Interrupted,
}

impl State {
    /// Returns true if it never changes again.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Interrupted)
    }

    /// Returns the type of the condition that is True; none of a build without conditions.
    pub const fn condition(self) -> Option<&'static str> {
        match self {
            Self::Initial => None,
            Self::Prepared => Some("Prepared"),
            Self::Building => Some("Building"),
            Self::Succeeded => Some("Succeeded"),
            Self::Failed => Some("Failed"),
            Self::Interrupted => Some("Interrupted"),
        }
    }
}

/// A build, reduced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of an object")]
pub struct Build {
    /// Its UID.
    pub uid: String,
    /// UID of the `MachineOSConfig` that owns it; empty where nothing does.
    pub owner: String,
    /// A digest of what decides its image; empty where another controller made it.
    pub inputs: String,
    /// Its image was built before: it has no Job.
    pub pre_built: bool,
    /// It takes no other build's image.
    pub no_reuse: bool,
    /// The Job that speaks for it.
    pub job_uid: Option<String>,
    /// Its progress.
    pub state: State,
    /// Reason of the condition that is True.
    pub reason: String,
    /// Message of the condition that is True.
    pub message: String,
    /// Its image, by digest.
    pub image: Option<String>,
    /// Somebody has deleted it.
    pub deleting: bool,
    /// Its image is checked before it goes.
    pub has_finalizer: bool,
}

impl Build {
    /// Returns true if it is being deleted and our finalizer keeps it.
    pub const fn is_held(&self) -> bool {
        self.deleting && self.has_finalizer
    }
}

/// Status to write to a build.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Status {
    /// The condition that is True; the other four are False.
    pub state: State,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// The image, by digest.
    pub image: Option<String>,
}

/// A Job, reduced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "what a Job's status has")]
pub struct Job {
    /// Its UID.
    pub uid: String,
    /// UID of the build that owns it.
    pub owner: String,
    /// Somebody has deleted it.
    pub deleting: bool,
    /// It is not to run yet.
    pub suspended: bool,
    /// Pods that run.
    pub active: u32,
    /// Pods that failed.
    pub failed: u32,
    /// Pods that ended well.
    pub succeeded: u32,
    /// Pods have ended that are not counted yet.
    pub has_uncounted: bool,
    /// Its condition `Complete` is True.
    pub is_complete: bool,
    /// Message of its condition `Failed`, where that is True.
    pub failure: Option<String>,
}

/// Answer of the registry about an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Registry {
    /// It has it.
    There,
    /// It does not.
    Missing,
    /// It does not say; with cause and next step.
    Unknown(String),
}

/// Answer of the registry about a push.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PushAccess {
    /// It takes one, or does not say: the build finds out.
    NotRefused,
    /// It refuses these credentials; with cause and next step.
    Refused(String),
}

/// Result of deleting an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Deletion {
    /// It is gone.
    Done,
    /// The registry refuses, and would again.
    Refused(String),
    /// It did not answer.
    Failed {
        /// Cause, with the next step.
        cause: String,
        /// Time since the first request.
        unanswered: Duration,
    },
}

/// Results of the pods of a Job that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The image, by digest.
    pub image: Option<String>,
    /// Last message of the last pod that failed.
    pub failure: Option<String>,
}

/// Answers to queries, by their subject. They hold until the next write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Answers {
    /// Of images.
    pub registry: BTreeMap<String, Registry>,
    /// About pushes, by build.
    pub pushes: BTreeMap<String, PushAccess>,
    /// Of builds whose image was deleted.
    pub deletions: BTreeMap<String, Deletion>,
    /// Of Jobs, by UID.
    pub outcomes: BTreeMap<String, Outcome>,
    /// UIDs of Jobs that the API server itself does not have.
    pub absent_jobs: BTreeSet<String>,
}

impl Answers {
    /// Returns why the image of a build was not deleted, if that was requested.
    pub fn undeleted(&self, build: &str) -> Option<&str> {
        match self.deletions.get(build)? {
            Deletion::Done => None,
            Deletion::Refused(cause) | Deletion::Failed { cause, .. } => Some(cause),
        }
    }
}

/// Input of a decision about builds.
#[derive(Debug, Clone)]
pub struct BuildInput<'a> {
    /// The pool's `MachineOSConfig`; `None` without one.
    pub os_config: Option<&'a OsConfig>,
    /// The pool; `None` where there is none.
    pub pool: Option<&'a Pool>,
    /// The desired build; `None` while the pool has no target that can be read.
    pub desired: Option<&'a DesiredBuild>,
    /// The builds of this `MachineOSConfig`, by name.
    pub builds: &'a BTreeMap<String, Build>,
    /// Their Jobs, by name.
    pub jobs: &'a BTreeMap<String, Job>,
    /// Images that nodes have or are to have.
    pub used_images: &'a BTreeSet<String>,
    /// Answers to earlier queries.
    pub answers: &'a Answers,
}
