//! Progress of a Job: the state of its build.

use super::input::{Job, State};

/// Pods that may fail: the next one ends the Job.
pub const MAX_FAILURES: u32 = 3;

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
