//! The backend for hosts with rpm-ostree: its daemon does the work, over D-Bus.
//!
//! | file | holds |
//! |---|---|
//! | `request` | the next request (pure) |
//! | `deployments` | the daemon's dictionaries, read into the agent's words (pure) |
//! | `environment` | the proxies that the daemon is started with |
//! | `daemon` | calls on the system bus, properties, the loss of the daemon |
//! | `messages` | unsolicited messages of a bus |
//! | `transaction` | the socket of one transaction: start, progress, end, cancel |
//! | `extensions` | the packages of kernels and extensions, where rpm-ostree finds them |
//! | `stage` | one transaction after the other, until the next boot's deployment is the desired one |
//!
//! Invariants: the work continues when the agent ends, and the next agent joins it; only [`OsBackend::abandon`] stops
//! it. The sysroot itself is never read here: libostree's part is requested from the worker.

mod daemon;
mod deployments;
mod environment;
mod extensions;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod messages;
mod request;
mod stage;
mod transaction;

use std::convert::Infallible;

use super::error::{OsError, OsErrorKind, SYSROOT};
use super::sysroot_cache::SysrootCache;
use super::worker::Worker;
use super::worker::protocol::WithoutCommit;
use super::{OsBackend, OsProgress, Preflight, SoftRebootState, StageRequest};
use crate::host::{BoxFuture, HostError, Proxies, Root, Systemd};
use crate::model::observation::{ObservedOs, Staged};
use crate::model::{ConfigName, Contents, ImageRef};
use daemon::Daemon;
use stage::Brought;

/// MCD's own file in an image's tree: the config that the image carries, if it has no label of it.
const EMBEDDED_CONFIG: &str = "/usr/etc/machine-config-daemon/currentconfig";

/// Cause of a refusal of packages.
const NO_REPOSITORIES: &str =
    "rpm-ostree has no enabled repository in /etc/yum.repos.d to layer packages from";

/// The rpm-ostree backend.
#[derive(Debug, Clone)]
pub struct RpmOstreeBackend {
    root: Root,
    worker: Worker,
    last: SysrootCache,
    /// The systemd that starts the daemon, and the proxies for its pulls.
    proxies: Option<(Systemd, Proxies)>,
}

impl RpmOstreeBackend {
    /// Takes the host's root, below whose `/run` the bus is, and the worker's client.
    pub fn new(root: &Root, worker: Worker) -> Self {
        Self { root: root.clone(), worker, last: SysrootCache::default(), proxies: None }
    }

    /// Takes the proxies for pulls, and the systemd that hands them to the daemon.
    #[must_use]
    pub fn through(self, proxies: Proxies, systemd: Systemd) -> Self {
        Self { proxies: Some((systemd, proxies)), ..self }
    }

    async fn observe_uncached(&self) -> Result<ObservedOs, HostError> {
        let state = Daemon::open(&self.root).await?.state().await?;
        let observed = state.observe(self.embedded()?);
        let cause = "rpm-ostree shows no booted deployment";
        observed.ok_or_else(|| OsError::new(OsErrorKind::NotBooted, SYSROOT, cause).into_error())
    }

    /// Stages, and keeps the daemon's last state: the next observation does not query it again.
    async fn staging(
        &self,
        request: &StageRequest,
        progress: &(dyn Fn(OsProgress) + '_),
    ) -> Result<Staged, HostError> {
        if let Some((systemd, proxies)) = &self.proxies {
            environment::provide(&self.root, systemd, proxies).await?;
        }
        let Brought { staged, look } = stage::stage(&self.root, &self.worker, request, progress).await?;
        if let Some((stamp, state)) = look
            && let Some(observed) = state.observe(self.embedded()?)
        {
            self.last.store(self.worker.sysroot(), Some(stamp), observed);
        }
        Ok(staged)
    }

    /// Reads the image's properties; meanwhile the bus starts the daemon, which a switch needs next.
    async fn preflighting(
        &self,
        image: &ImageRef,
        credentials: Option<&Contents>,
    ) -> Result<Preflight, HostError> {
        let read = self.worker.preflight(image, credentials, WithoutCommit::Taken);
        tokio::pin!(read);
        let wake = async {
            // Staging calls it again, and reports what is wrong with it.
            drop(Daemon::open(&self.root).await);
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            preflight = &mut read => preflight,
            never = wake => match never {},
        }
    }

    /// Reads the config in the booted tree.
    fn embedded(&self) -> Result<Option<ConfigName>, HostError> {
        let Some(bytes) = self.root.read(EMBEDDED_CONFIG)? else { return Ok(None) };
        let config = serde_json::from_slice::<serde_json::Value>(&bytes).unwrap_or_default();
        let name = config.pointer("/metadata/name").and_then(serde_json::Value::as_str);
        Ok(name.and_then(|name| ConfigName::new(name).ok()))
    }
}

impl OsBackend for RpmOstreeBackend {
    fn name(&self) -> &'static str {
        "rpm-ostree"
    }

    fn repositories_obstacle(&self) -> Result<Option<&'static str>, HostError> {
        Ok((!extensions::has_repository(&self.root)?).then_some(NO_REPOSITORIES))
    }

    fn observe(&self) -> BoxFuture<'_, Result<ObservedOs, HostError>> {
        Box::pin(self.last.get_or_observe(self.worker.sysroot(), self.observe_uncached()))
    }

    fn preflight<'a>(
        &'a self,
        image: &'a ImageRef,
        credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Preflight, HostError>> {
        Box::pin(self.preflighting(image, credentials))
    }

    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>> {
        Box::pin(self.staging(request, progress))
    }

    fn abandon(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(stage::abandon(&self.root))
    }

    fn unstage<'a>(
        &'a self,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(stage::unstage(&self.root, progress))
    }

    fn ensure_finalizable(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(self.worker.ensure_finalizable())
    }

    fn set_default_deployment<'a>(
        &'a self,
        deployment: &'a str,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(stage::set_default_deployment(&self.root, deployment, progress))
    }

    fn ensure_per_object_fsync(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(self.worker.ensure_per_object_fsync())
    }

    fn drop_rollback<'a>(
        &'a self,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(stage::drop_rollback(&self.root, progress))
    }

    fn soft_reboot<'a>(
        &'a self,
        deployment: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SoftRebootState, HostError>> {
        Box::pin(self.worker.soft_reboot(deployment))
    }
}
