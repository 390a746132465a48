//! Changes to a host, as the kernel and systemd see them: durable writes, links of units, the walk below a root.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "tests: they stop at the first surprise, and look at the machine from outside"
)]

#[path = "../support/access_list.rs"]
mod access_list;
#[path = "../support/ran.rs"]
mod ran;
#[path = "../support/test_host.rs"]
mod test_host;

mod access_lists;
mod enablement;
mod idempotence;
mod no_write;
mod root_attack;
mod trace;
