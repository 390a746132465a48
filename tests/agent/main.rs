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

#[path = "../support/desk/mod.rs"]
mod desk;
#[path = "../../core/tests/support/made.rs"]
mod made;
#[path = "../support/node.rs"]
mod node;
#[path = "../support/plain_host.rs"]
mod plain_host;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/ran.rs"]
mod ran;
#[path = "../support/unlocked.rs"]
mod unlocked;

mod drift;
mod drifting;
mod duties_meanwhile;
mod pulls;
mod rollback_kept;
mod trial;
mod waits;
mod workload;
