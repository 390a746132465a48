//! The agent's real loop in this process, with a control plane, an OS and a clock that a test plays.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "tests: they stop at the first surprise, and play the host"
)]

#[path = "../support/containerd.rs"]
mod containerd;
#[path = "../support/cri.rs"]
mod cri;
#[path = "../support/fake_control_plane/mod.rs"]
mod fake_control_plane;
#[path = "../support/plain_host.rs"]
mod plain_host;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/ran.rs"]
mod ran;
#[path = "../support/test_host.rs"]
mod test_host;
#[path = "../support/unlocked.rs"]
mod unlocked;
#[path = "../../core/tests/support/update_fixtures.rs"]
mod update_fixtures;

mod accounts;
mod drift;
mod drift_env;
mod drift_paths;
mod firstboot;
mod given_up;
mod interference;
mod obstacles;
mod others;
mod paths;
mod pinned;
mod pinned_real;
mod prefetch;
mod pulls;
mod reconcilers_meanwhile;
mod rollback_kept;
mod run;
mod told;
mod trial;
mod waits;
mod workload;
