//! Long series. `SWEEP_KILLS` and its neighbours set the length (see `crash_sweep`).
#![cfg(feature = "backend-ostree")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    clippy::format_collect,
    clippy::wildcard_enum_match_arm,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "tests: they stop at the first surprise, and play the host"
)]

#[path = "../support/ran.rs"]
mod ran;
#[path = "../support/test_host.rs"]
mod test_host;

mod crash_sweep;
mod fates;
mod given_up;
mod hand_over;
mod sweep;
