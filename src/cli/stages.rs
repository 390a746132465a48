//! The stages of an image-based upgrade beside the agent's loop: assembly, and the end of both.

use std::path::Path;

use super::CliError;
use super::agent_flags::ContainerFlags;
use super::host::REBOOT_REQUIRED;
use crate::agent::{LifecycleEnd, LifecycleWorker};
use crate::control::ControlError;
use crate::control::kube::Cluster;
use crate::control::stage_file::StageFile;
use crate::host::Host;

/// Follows the file beside `target.yaml`.
pub(super) fn of_directory(
    path: &Path,
    flags: &ContainerFlags,
    host: &Host,
    node: &str,
) -> Result<impl Future<Output = LifecycleEnd> + use<>, ControlError> {
    let (file, link) = StageFile::open(path, node)?;
    let worker = LifecycleWorker::new(flags.lifecycle_host(host), link, node);
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
    node: &str,
) -> impl Future<Output = LifecycleEnd> + use<> {
    let (watcher, link) = cluster.follow_lifecycle();
    let worker = LifecycleWorker::new(flags.lifecycle_host(host), link, node);
    async move {
        let _watcher = watcher;
        worker.run().await
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
