//! The agent against a real API server; first that server itself, which has to behave as kube-apiserver does.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "tests: they stop at the first surprise, and look at the agent from outside"
)]

#[path = "../support/cluster/mod.rs"]
mod cluster;
#[path = "../support/cri.rs"]
mod cri;
#[path = "../support/documents.rs"]
mod document_samples;
#[path = "../support/fake_control_plane/mod.rs"]
mod fake_control_plane;
#[path = "../support/forward_proxy.rs"]
mod forward_proxy;
#[path = "../support/plain_host.rs"]
mod plain_host;
#[path = "../support/ran.rs"]
mod ran;
#[path = "../support/rendered.rs"]
mod rendered;
#[path = "../support/unlocked.rs"]
mod unlocked;

mod apiserver;
mod contract;
mod documents;
mod hosted;
mod installed;
mod link;
mod mcn_asserts;
mod outage;
mod permissions;
mod pinned;
mod plan;
mod proxy;
mod reconcilers;
mod root_mount;
mod seams;
mod status;
