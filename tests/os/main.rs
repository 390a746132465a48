//! The OS backends, on a real sysroot and over a real bus, and the second executable that they are called in.
#![cfg(feature = "backend-ostree")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "tests: they stop at the first surprise, and start programs"
)]

#[path = "../support/cluster/mod.rs"]
mod cluster;
#[path = "../cli/logind.rs"]
#[allow(dead_code, reason = "shared with the tests of the executable")]
mod logind;
#[path = "../support/plain_host.rs"]
mod plain_host;
#[path = "../support/ran.rs"]
mod ran;
#[path = "../support/schemas.rs"]
mod schema_files;
#[path = "../support/set_clock.rs"]
mod set_clock;

#[path = "../sandbox/registry/server.rs"]
#[allow(dead_code, reason = "shared with the tests of the sandbox")]
mod registry;

mod activation;
mod archive_hostile;
mod backend_env;
mod contract;
mod lca_layout;
mod lifecycle;
mod lifecycle_cluster;
mod lifecycle_seed;
mod lifecycle_silent;
mod prefetch;
mod pull;
mod rpm_ostree;
mod second_executable;
mod seed;
mod seed_canaries;
mod seed_clock;
mod seed_configured;
mod seed_cut;
mod seed_hostile;
mod seed_image;
mod stateroot;
mod unpacker;
mod worker_ends;
