//! Limits of what a worker may take. Nothing is imported here: both ways of asking use them.

use std::time::Duration;

/// Limit of an answer that needs milliseconds: a disk, or a file system that hangs, may hold it for ever.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Time for a process to end that has nothing left to do.
pub(super) const END_LIMIT: Duration = Duration::from_secs(5);

/// Says that an answer did not come in time.
pub(super) fn late(limit: Duration) -> String {
    format!("the worker process did not answer within {} s and was killed", limit.as_secs())
}
