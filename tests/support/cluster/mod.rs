//! A Kubernetes API server for tests, with what a cluster has around it: CRDs, controllers, and our own agent as a
//! process. By default `tests/apiserver` over etcd; with `$KUBEBUILDER_ASSETS` a real `kube-apiserver` and its etcd.
//!
//! | file | holds |
//! |---|---|
//! | `bench.rs` | [`Bench`]: the two servers, their start, stop, restart and loss of data |
//! | `server.rs` | what the two servers are started with |
//! | `process.rs` | a child that signals its readiness and dies with the test |
//! | `identity.rs` | authority, certificates, kubeconfigs, tokens |
//! | `crds.rs` | the CRDs, from the Go module cache |
//! | `audit.rs` | every request, as the server's audit log has it |
//! | `faults.rs` | errors, expired watches, held requests, lost answers, dropped and half-open connections (`tests/apiserver` only) |
//! | `objects.rs` | nodes, MachineConfigs, pods; the node controller's patch; waiting for a state by a watch |
//! | `drain.rs` | the drain controller, well-behaved and not |
//! | `drained.rs` | no drain without a write, by the history of each host |
//! | `pods.rs` | what evictions need around them: the kubelet's part of a deletion, the budgets' status |
//! | `agent.rs` | our binary against the server |
//! | `scene.rs` | a node with its host, configs and access: the start of most tests |
//!
//! Nothing here sleeps: every wait is for an event, and [`LIMIT`] ends it.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test binary uses its own part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::missing_panics_doc,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "test support: it stops at the first surprise, starts programs and reads their files"
)]

use std::time::Duration;

use crate::ran;

mod agent;
mod audit;
mod bench;
mod crds;
mod drain;
mod drained;
mod faults;
mod identity;
mod objects;
mod pods;
mod process;
pub mod scene;
#[allow(clippy::duplicate_mod, reason = "the tests in a cluster have both supports")]
#[path = "../seen_before.rs"]
mod seen_before;
mod server;

pub use agent::{Agent, AgentOptions};
pub use audit::Request;
pub use bench::Bench;
pub use crds::Gates;
pub use drain::{Behaviour, DrainController};
pub use faults::{Connections, Fault};
pub use identity::Identity;
pub use objects::{
    MachineConfigBuilder, Presence, annotation, call, changes, create_node, create_object, grant_kubelets,
    key, node_api, node_until, object_api, object_until, retarget,
};
pub use pods::{DisruptionController, Kubelet, pod_gone, running_pod};

/// Timeout of any wait: far more than a loaded machine needs, so only a failure reaches it.
pub const LIMIT: Duration = Duration::from_secs(90);

/// Returns true if a real kube-apiserver serves.
pub fn is_real() -> bool {
    server::assets().is_some()
}

/// True where a real kube-apiserver serves; otherwise records that the test is not run, for the last lines of `./test`.
pub fn real_only(name: &str) -> bool {
    let real = server::assets().is_some();
    if !real {
        ran::not_run(name, "a real kube-apiserver (KUBEBUILDER_ASSETS)");
    }
    real
}

/// Returns true if the switches of `tests/apiserver` are there; a test of faults is not run against a real kube-apiserver.
pub fn own_only(name: &str) -> bool {
    let own = server::assets().is_none();
    if !own {
        ran::not_run(name, "the fault switches of tests/apiserver");
    }
    own
}

/// Ends a wait that nothing answers.
pub async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let value = tokio::time::timeout(LIMIT, wait).await.ok();
    value.unwrap_or_else(|| panic!("waited {LIMIT:?} in vain: {what}"))
}
