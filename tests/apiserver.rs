//! The bench behaves as kube-apiserver: what it accepts, refuses, drops and tells. The same checks run on a real one,
//! but for those of the fault switches.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test: it fails by panicking"
)]

mod checks;
mod cluster;
