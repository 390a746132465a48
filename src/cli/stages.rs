//! The stages of an image-based upgrade and the seeds of a cluster beside the agent's loop: assembly, and the end of all.

use std::path::Path;

use super::CliError;
use super::agent_flags::ContainerFlags;
use super::host::REBOOT_REQUIRED;
use super::settings::SettingsFile;
use crate::agent::{GenerationWorker, LifecycleEnd, LifecycleWorker, SeedRestorer};
use crate::control::ControlError;
use crate::control::kube::{Cluster, LifecycleObjects};
use crate::control::stage_file::StageFile;
use crate::host::Host;

/// Follows the file beside `target.yaml`.
pub(super) fn of_directory(
    path: &Path,
    flags: &ContainerFlags,
    host: &Host,
    node_settings: &SettingsFile,
    node: &str,
) -> Result<impl Future<Output = LifecycleEnd> + use<>, ControlError> {
    let (file, link) = StageFile::open(path, node)?;
    let worker = LifecycleWorker::new(flags.lifecycle_host(host, node_settings), link, node);
    Ok(async move {
        tokio::select! {
            // It does not end by itself.
            () = file.run() => std::future::pending().await,
            end = worker.run() => end,
        }
    })
}

/// Follows the objects of the cluster.
pub(super) fn of_cluster(
    cluster: &Cluster,
    flags: &ContainerFlags,
    host: &Host,
    node_settings: &SettingsFile,
    node: &str,
) -> impl Future<Output = LifecycleEnd> + use<> {
    let LifecycleObjects { watcher, stages, seeds, cluster } = cluster.follow_lifecycle();
    let worker = LifecycleWorker::new(flags.lifecycle_host(host, node_settings), stages, node);
    let seeds = GenerationWorker::new(flags.lifecycle_host(host, node_settings), seeds, cluster, node);
    async move {
        let _watcher = watcher;
        tokio::select! {
            // It does not end by itself.
            () = seeds.run() => std::future::pending().await,
            end = worker.run() => end,
        }
    }
}

/// Restorer of the host after a seed of this process.
pub(super) struct SeedGuard(SeedRestorer);

impl SeedGuard {
    /// Takes the host.
    pub(super) fn new(host: &Host, node: &str) -> Self {
        Self(SeedRestorer::new(host, node))
    }

    /// Runs the agent to its end. A seed that this cuts short does not leave services at rest until the next start.
    pub(super) async fn around(
        self,
        work: impl Future<Output = Result<u8, CliError>>,
    ) -> Result<u8, CliError> {
        let ended = work.await;
        self.0.restore().await;
        ended
    }
}

/// Runs the agent's loop and, beside it, the stages, if there are any.
pub(super) async fn beside(
    follow: impl Future<Output = Result<u8, CliError>>,
    stages: Option<impl Future<Output = LifecycleEnd>>,
) -> Result<u8, CliError> {
    let stages = async {
        match stages {
            Some(stages) => stages.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = follow => ended,
        // The supervisor plays the reboot into another stateroot. The loop is left as by a kill: its record goes on.
        _ = stages => Ok(REBOOT_REQUIRED),
    }
}
