//! The embedded backend: libostree and ostree-ext, for hosts with neither rpm-ostree nor bootc.
//!
//! | in the agent | in the worker |
//! |---|---|
//! | [`OstreeBackend`] | [`serve`], `sysroot`, `stage`, `prefetch`, `pace`, `soft`, `space`, `image`, `unverified`, `misplaced`, `oci`, `stateroot`; `install`, for the sandbox |
//! | the asking half of labels | [`labels`], the answering half |
//!
//! Invariant: staging is all or nothing: a deployment with the desired digest and arguments is staged, or none is.

#![cfg_attr(
    feature = "backend-ostree",
    expect(clippy::disallowed_types, reason = "ostree-ext and the sandbox take skopeo as a command")
)]

#[cfg(feature = "backend-ostree")]
pub(crate) mod install;
#[cfg(feature = "backend-ostree")]
pub mod labels;
#[cfg(feature = "backend-ostree")]
pub mod serve;

#[cfg(feature = "backend-ostree")]
mod failed;
#[cfg(feature = "backend-ostree")]
mod image;
#[cfg(feature = "backend-ostree")]
mod misplaced;
#[cfg(feature = "backend-ostree")]
mod oci;
#[cfg(feature = "backend-ostree")]
mod pace;
#[cfg(feature = "backend-ostree")]
mod prefetch;
#[cfg(feature = "backend-ostree")]
mod soft;
#[cfg(feature = "backend-ostree")]
mod space;
#[cfg(feature = "backend-ostree")]
mod stage;
#[cfg(feature = "backend-ostree")]
mod stateroot;
#[cfg(feature = "backend-ostree")]
mod sysroot;
#[cfg(feature = "backend-ostree")]
mod unverified;

#[cfg(all(feature = "backend-ostree", any(test, feature = "fuzzing")))]
pub(crate) use stateroot::fuzzing::seed_archive;

use crate::model::observation::{ObservedOs, Staged};
use crate::model::os::Layers;
use crate::model::{Contents, ImageRef};

use super::super::{BoxFuture, HostError};
use super::error::{OsError, OsErrorKind};
use super::sysroot_cache::SysrootCache;
use super::worker::Worker;
use super::worker::protocol::WithoutCommit;
use super::{
    OsBackend, OsProgress, PrefetchRequest, Prefetched, Preflight, ProgressSender, SoftRebootState,
    StageRequest,
};

/// Obstacle of packages of kernels and extensions.
const CANNOT_LAYER: &str = "libostree can't layer packages";

/// The libostree backend.
#[derive(Debug, Clone)]
pub struct OstreeBackend {
    worker: Worker,
    last: SysrootCache,
}

impl OstreeBackend {
    /// Takes the worker's client; only a booted root (`/`) can be staged to.
    pub fn new(worker: Worker) -> Self {
        Self { worker, last: SysrootCache::default() }
    }
}

impl OsBackend for OstreeBackend {
    fn name(&self) -> &'static str {
        "ostree"
    }

    fn layering_obstacle(&self) -> Option<&'static str> {
        Some(CANNOT_LAYER)
    }

    fn observe(&self) -> BoxFuture<'_, Result<ObservedOs, HostError>> {
        Box::pin(self.last.get_or_observe(self.worker.sysroot(), self.worker.observe()))
    }

    fn preflight<'a>(
        &'a self,
        image: &'a ImageRef,
        credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Preflight, HostError>> {
        Box::pin(self.worker.preflight(image, credentials, WithoutCommit::Refused))
    }

    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>> {
        Box::pin(async move {
            // The origin of another image has no requests: to drop them is all that is requested then.
            let drops = |layers: &Layers| layers.is_empty() && request.image.is_some();
            if let Some(layers) = request.layers.as_ref().filter(|layers| !drops(layers)) {
                let cause = format!("{CANNOT_LAYER}: {layers}");
                return Err(OsError::new(OsErrorKind::CannotLayer, "the next deployment", cause).into_error());
            }
            self.worker.stage(request, progress).await
        })
    }

    fn prefetch(
        &self,
        request: PrefetchRequest,
        progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Prefetched, HostError>> {
        self.worker.prefetch(request, progress)
    }

    fn unstage<'a>(
        &'a self,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(self.worker.unstage(progress))
    }

    fn ensure_finalizable(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(self.worker.ensure_finalizable())
    }

    fn ensure_per_object_fsync(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(self.worker.ensure_per_object_fsync())
    }

    fn drop_rollback<'a>(
        &'a self,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(self.worker.drop_rollback(progress))
    }

    fn set_default_deployment<'a>(
        &'a self,
        deployment: &'a str,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(self.worker.set_default_deployment(deployment, progress))
    }

    fn soft_reboot<'a>(
        &'a self,
        deployment: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SoftRebootState, HostError>> {
        Box::pin(self.worker.soft_reboot(deployment))
    }
}
