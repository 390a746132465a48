//! Faults of a write that a plan sees before: after a drain, and before anything was written, none of them may come up.

/// Their reasons, as in the table of `src/observe/obstacles.rs` and in `tests/support/cluster/drained.rs`. Others only a run tells.
const REASONS: [&str; 6] = [
    "FileTooLarge",
    "ReadOnlyFilesystem",
    "UnexpectedKind",
    "UnitNotEnabled",
    "UnknownAccount",
    "UnsafeDirectory",
];

/// Returns true for the reason of one of them.
pub fn is_seen_before(reason: &str) -> bool {
    REASONS.contains(&reason)
}
