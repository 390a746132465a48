//! The parts of the crash sweep.

pub mod attacker;
pub mod config;
pub mod host;
pub mod model;
pub mod plain;
pub mod play;
pub mod random;
pub mod real;
pub mod tree;
pub mod ways;

/// A directory for hosts: in memory where that is possible, because a SIGKILL leaves the page cache as it is, and a
/// disk would only make the sweep slow.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
