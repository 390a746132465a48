//! Whole updates on the sandbox's libostree host: its own story, each way into and out of image mode, a registry.
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
    reason = "tests: they stop at the first surprise, and look at the host from outside"
)]

#[path = "../support/cluster/mod.rs"]
mod cluster;
#[path = "../support/forward_proxy.rs"]
mod forward_proxy;
#[path = "../support/plain_host.rs"]
mod plain_host;
#[path = "../support/ran.rs"]
mod ran;
#[path = "../support/set_clock.rs"]
mod set_clock;

mod carried;
mod carried_random;
mod demo;
mod firstboot;
mod given_up;
mod image_modes;
mod kernel_line;
mod registry;
mod sandbox_node;
