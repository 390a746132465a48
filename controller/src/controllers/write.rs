//! All writes to the API server: each is one of [`Write`], and goes through [`write()`], which counts what fails.
//!
//! `docs/monitoring.md` has a row for each, with what else tells of its failure; tests compare the page, this list, the calls in the
//! sources, and the tests of the failures. In debug builds the fence ends a process that sends another one.

use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use kube::Resource;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::begun::begin;
use super::client::{RequestError, limited, read, send};
use crate::reading::Lenient;

/// A write of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// The target, the taint, the prefetch, the pool's labels and the mark of the pool that a node left.
    NodeTarget,
    /// The cordon of a node, and the answers to its agent.
    NodeDrain,
    /// An eviction, or the deletion that a policy allows in its place.
    Eviction,
    /// The conditions of a drain in a `MachineConfigNode`.
    ConfigNodeStatus,
    /// The node controller's status of a pool.
    PoolStatus,
    /// The status of a policy.
    PolicyStatus,
    /// A rendered config.
    RenderedConfig,
    /// The deletion of one.
    RenderedConfigDeletion,
    /// The target of a pool.
    PoolTarget,
    /// The conditions of the render controller.
    RenderCondition,
    /// The MachineConfig of an image that was built before.
    SeedConfig,
    /// The `MachineOSConfig` of a pool that opted in.
    OptInOsConfig,
    /// The MachineConfig with its base image.
    OptInBaseImage,
    /// Its results, on the pool.
    OptInResult,
    /// A `MachineOSBuild`.
    OsBuild,
    /// The status of one.
    OsBuildStatus,
    /// Annotations of a `MachineOSConfig`.
    OsConfigAnnotations,
    /// The status of one.
    OsConfigStatus,
    /// The build controller's condition of a pool.
    BuildCondition,
    /// The Job, or the Build of OpenShift, that carries a build out.
    BuildJob,
    /// A Secret or `ConfigMap` of a build.
    BuildInput,
    /// The pinned images of a node.
    NodePinnedImages,
    /// The counts of nodes that keep a pool's pinned images.
    PinnedImageCounts,
    /// An Event.
    Event,
    /// The Lease.
    Lease,
}

impl Write {
    /// All of them.
    pub(super) const ALL: [Self; 25] = [
        Self::NodeTarget,
        Self::NodeDrain,
        Self::Eviction,
        Self::ConfigNodeStatus,
        Self::PoolStatus,
        Self::PolicyStatus,
        Self::RenderedConfig,
        Self::RenderedConfigDeletion,
        Self::PoolTarget,
        Self::RenderCondition,
        Self::SeedConfig,
        Self::OptInOsConfig,
        Self::OptInBaseImage,
        Self::OptInResult,
        Self::OsBuild,
        Self::OsBuildStatus,
        Self::OsConfigAnnotations,
        Self::OsConfigStatus,
        Self::BuildCondition,
        Self::BuildJob,
        Self::BuildInput,
        Self::NodePinnedImages,
        Self::PinnedImageCounts,
        Self::Event,
        Self::Lease,
    ];

    /// Returns its word: the label of the metric, and the row of the page.
    pub(super) fn as_str(self) -> String {
        format!("{self:?}")
    }
}

/// Pairs of a label's name and its value.
type Failures = Family<Vec<(&'static str, String)>, Counter<u64, AtomicU64>>;

/// Failures of this process, by write and outcome.
static FAILURES: LazyLock<Failures> = LazyLock::new(|| {
    let failures = Failures::default();
    // A counter that begins with its first failure has no increase.
    for write in Write::ALL {
        for outcome in [REFUSED, UNANSWERED] {
            drop(failures.get_or_create(&labels(write, outcome)));
        }
    }
    failures
});

/// Outcome: 4xx. It does not pass by itself.
const REFUSED: &str = "refused";

/// Outcome: 5xx, or no answer.
const UNANSWERED: &str = "unanswered";

fn labels(write: Write, outcome: &str) -> Vec<(&'static str, String)> {
    vec![("write", write.as_str()), ("outcome", outcome.to_owned())]
}

/// Returns the failures, for the metrics.
pub(super) fn failures() -> Failures {
    FAILURES.clone()
}

/// Makes a write and waits for its answer.
pub(super) async fn write<T>(
    what: Write,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    begin();
    counted(what, send(request).await)
}

/// As [`write()`], with a time for the answer.
pub(super) async fn write_within<T>(
    what: Write,
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    begin();
    counted(what, limited(limit, send(request)).await)
}

/// As [`write()`]; reads the object of the answer as watched ones are read.
pub(super) async fn write_and_read<K: Resource<DynamicType = ()>>(
    what: Write,
    request: impl Future<Output = kube::Result<Lenient<K>>>,
) -> Result<K, RequestError> {
    begin();
    counted(what, read(request).await)
}

/// Counts a write that is refused with the code of a conflict, or of an object that is gone, and neither is so.
pub(super) fn refused(what: Write) {
    FAILURES.get_or_create(&labels(what, REFUSED)).inc();
}

/// Counts a write that was not made, since those before it were not answered.
pub(super) fn unanswered(what: Write) {
    FAILURES.get_or_create(&labels(what, UNANSWERED)).inc();
}

fn counted<T>(what: Write, answer: Result<T, RequestError>) -> Result<T, RequestError> {
    if let Err(error) = &answer {
        match error.code() {
            // Another writer was faster, or the object is gone: this is decided again. An eviction's 429 names a budget.
            404 | 409 => {}
            429 if what == Write::Eviction => {}
            400..500 => drop(FAILURES.get_or_create(&labels(what, REFUSED)).inc()),
            _ => drop(FAILURES.get_or_create(&labels(what, UNANSWERED)).inc()),
        }
    }
    answer
}

#[cfg(test)]
mod tests;
