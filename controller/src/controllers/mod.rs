//! The process in the cluster: watches, a Lease, and the writes that the pure functions decide.
//!
//! | file | holds |
//! |---|---|
//! | `client.rs` | kube's client behind a fence: only the leader writes |
//! | `leader.rs` | the shell of [`crate::lease`] |
//! | `cache.rs`, `follow.rs` | observed objects, reduced; the watches that fill it |
//! | `node.rs`, `lenient.rs`, `failure.rs`, `version.rs` | objects as they are read, and why not |
//! | `node_write.rs`, `merge.rs` | patches of nodes and statuses |
//! | `error.rs` | errors that end the process |
//! | `render.rs`, `seed.rs` | MachineConfigs, pools and images that were built before to rendered configs |
//! | `rollout.rs`, `layering.rs` | the node controller: the shell of [`crate::rollout`] |
//! | `pinned.rs` | images that pools keep on their nodes |
//! | `opt_in.rs` | the shell of [`crate::opt_in`] |
//! | `build/` | the shell of [`crate::build`] |
//! | `drain.rs`, `evict.rs`, `config_node.rs` | the shell of [`crate::drain`] |
//! | `status.rs`, `last_line.rs` | the shell of [`crate::view`], for a person's terminal |
//! | `events.rs`, `metrics.rs`, `http.rs`, `log.rs` | output for people and Prometheus |
//!
//! Each controller waits for a change in the cache, decides with a pure function, and writes. Nothing polls. No state is only
//! in memory: a process that is killed is replaced by one that reads the same objects and decides the same.

mod build;
mod cache;
mod cached;
mod client;
mod config_node;
mod drain;
mod error;
mod events;
mod evict;
mod failure;
mod follow;
mod http;
mod last_line;
mod layering;
mod leader;
mod live;
mod log;
mod merge;
mod metrics;
mod node;
mod node_write;
mod opt_in;
mod pinned;
mod render;
mod rollout;
mod seed;
mod status;
mod untyped;
mod version;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;

use crate::build::JobSettings;
pub use crate::lease::Timing;
use crate::registry;
use cache::{Cache, Kind};
use client::Fence;
pub use error::RunError;
use leader::{Candidacy, Leader};
pub use live::live_manifests;
pub use log::Format;
pub(crate) use log::start as start_log;
use metrics::Metrics;
pub use status::{StatusOptions, status};

/// A controller of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Controller {
    /// Render the MachineConfigs of each pool
    Render,
    /// Give nodes their pool's target, a few at a time
    Node,
    /// Drain nodes whose agents ask for it, and let them take pods again
    Drain,
    /// Bring pools with the label layering-enabled into image mode
    OptIn,
    /// Build the OS images of pools in image mode
    Build,
}

/// Options of the process.
#[derive(Debug, Clone)]
pub struct Options {
    /// The controllers.
    pub controllers: Vec<Controller>,
    /// Kubeconfig; the pod's service account if `None`.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the Lease.
    pub namespace: String,
    /// The Lease's name.
    pub lease: String,
    /// The times of the Lease.
    pub lease_timing: Timing,
    /// This process's name in the Lease.
    pub identity: String,
    /// The node that this process runs on: it comes last.
    pub own_node: Option<String>,
    /// Address of metrics and health.
    pub metrics_listen: SocketAddr,
    /// The process aborts before this many writes; for tests, and in no release.
    #[cfg(debug_assertions)]
    pub abort_at_write: Option<u64>,
    /// Settings of build Jobs.
    pub build: JobSettings,
    /// Format of log lines.
    pub log_format: Format,
}

/// Runs until a signal, or until another process leads.
pub fn run(options: &Options) -> Result<(), RunError> {
    log::start(options.log_format);
    // The clock of the process begins.
    client::uptime();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_until_signal(options))
}

async fn run_until_signal(options: &Options) -> Result<(), RunError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (fence, cache, metrics) = (Fence::default(), Cache::new(), Metrics::new());
    #[cfg(debug_assertions)]
    fence.abort_at(options.abort_at_write.unwrap_or(0));
    let listener = http::bind(options.metrics_listen).await?;
    let client = client::connect(options.kubeconfig.as_deref(), &fence).await?;
    let candidacy = Candidacy {
        namespace: options.namespace.clone(),
        name: options.lease.clone(),
        me: options.identity.clone(),
        timing: options.lease_timing,
    };
    let (mut leader, leading) = Leader::new(client.clone(), candidacy, fence);
    let mut tasks = JoinSet::new();
    tasks.spawn(http::serve(listener, metrics.clone(), ready(cache.clone())));
    let builds_in = options.controllers.contains(&Controller::Build).then(|| options.namespace.clone());
    tasks.spawn(follow::all(client.clone(), cache.clone(), builds_in));
    tasks.spawn(once_leading(options.clone(), client, cache, metrics, leading));
    let ended = tokio::select! {
        () = leader.run() => Err(RunError::LeaseLost(options.lease.clone())),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        _ = tasks.join_next() => Err(RunError::Ended),
    };
    // Nothing of this process writes any more when another one may lead.
    tasks.shutdown().await;
    if ended.is_ok() {
        info!("Stopped by a signal");
        leader.release().await;
    }
    ended
}

/// Runs the controllers as soon as this process leads. It ends with the process.
async fn once_leading(
    options: Options,
    client: Client,
    cache: Cache,
    metrics: Metrics,
    mut leading: watch::Receiver<bool>,
) {
    if leading.wait_for(|leading| *leading).await.is_err() {
        return;
    }
    metrics.leading.set(1);
    let mut tasks = JoinSet::new();
    for controller in options.controllers {
        let (client, cache, metrics) = (client.clone(), cache.clone(), metrics.clone());
        match controller {
            Controller::Render => tasks.spawn(render::run(client, cache, metrics)),
            Controller::Node => {
                tasks.spawn(pinned::run(client.clone(), cache.clone(), metrics.clone()));
                tasks.spawn(rollout::run(client, cache, metrics, options.own_node.clone()))
            }
            Controller::Drain => tasks.spawn(drain::run(client, cache, metrics)),
            Controller::OptIn => tasks.spawn(opt_in::run(client, cache, metrics, options.namespace.clone())),
            Controller::Build => {
                let settings = JobSettings { namespace: options.namespace.clone(), ..options.build.clone() };
                let registry = registry::Client::new(registry::Options {
                    insecure: settings.insecure_registries.clone(),
                    trust: settings.trust_bundle.clone().into_bytes(),
                });
                tasks.spawn(build::run(client, cache, metrics, settings, Arc::new(registry)))
            }
        };
    }
    // None of them ends; one that does takes the process with it.
    drop(tasks.join_next().await);
}

/// A process is ready once it has read the objects that it decides on, as leader or not.
fn ready(cache: Cache) -> http::Ready {
    Arc::new(move || {
        let snapshot = cache.lock();
        let missing = [Kind::Definitions, Kind::Pools, Kind::Configs, Kind::Nodes].into_iter();
        let missing: Vec<String> =
            missing.filter(|kind| !snapshot.synced.contains(kind)).map(|kind| format!("{kind:?}")).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("not read yet: {}\n", missing.join(", "))) }
    })
}
