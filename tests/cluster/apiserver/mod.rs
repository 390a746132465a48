//! The bench behaves as kube-apiserver: what it accepts, refuses, drops and reports. The same checks run on a real one,
//! but for those of the fault switches.

mod core_kinds;
mod custom;
mod drains;
mod evictions;
mod faults;
mod identities;
mod watches;

use std::sync::OnceLock;

use crate::cluster::{Bench, Gates};

/// The server of these checks alone: they make objects of which a cluster has one.
fn shared() -> &'static Bench {
    static SHARED: OnceLock<Bench> = OnceLock::new();
    SHARED.get_or_init(|| Bench::private(Gates::Default))
}
