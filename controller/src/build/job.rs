//! Progress of a Job: the state of its build.

use super::seen::State;

/// Pods that may fail: the next one ends the Job.
pub const MAX_FAILURES: u32 = 3;

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

/// Returns the state of the build that this Job speaks for. `Complete` decides, not the number of pods that ended well: upstream
/// takes a Job without conditions for complete.
pub fn progress(job: &Job) -> State {
    let has_failed = job.failure.is_some() || job.failed > MAX_FAILURES;
    if job.is_complete {
        State::Succeeded
    } else if has_failed {
        State::Failed
    } else if job.deleting {
        State::Interrupted
    } else if job.active == 0 && job.failed == 0 && job.succeeded == 0 && !job.has_uncounted {
        State::Prepared
    } else {
        State::Building
    }
}
