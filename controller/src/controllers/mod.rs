//! The process in the cluster: watches, a Lease, and the writes that the pure functions decide.
//!
//! | file | holds |
//! |---|---|
//! | `client.rs` | kube's client behind a fence: only the leader writes |
//! | `transport.rs` | HTTP/2 below kube's client |
//! | `leader.rs`, `witness.rs` | the shell of [`crate::lease`]; what the Lease says of the API server's history |
//! | `interlock.rs` | the shell of [`crate::interlock`]: nobody else writes to the pools |
//! | `cache.rs`, `follow.rs` | observed objects, reduced; the watches that fill it, by [`crate::watches`] |
//! | `reported.rs` | watches that are needed for a while |
//! | `unread.rs`, `awaited.rs`, `outage.rs` | kinds that can't be read, and who says so |
//! | `stored_config.rs` | MachineConfigs, packed |
//! | `node.rs`, `config.rs`, `untyped.rs`, `failure.rs` | objects as they are read, and why not |
//! | `write.rs`, `tries.rs` | each write, by name: what fails is counted; its pauses, and when it is told |
//! | `work.rs` | work for many objects beside each other |
//! | `conflict.rs` | whether a 404 or 409 is a refusal |
//! | `node_write.rs`, `merge.rs` | patches of nodes and statuses |
//! | `error.rs` | errors that end the process |
//! | `render.rs`, `seed.rs`, `unused.rs` | MachineConfigs, pools and images that were built before to rendered configs |
//! | `rollout.rs`, `costs.rs`, `layering.rs` | the node controller: the shell of [`crate::rollout`] |
//! | `pinned.rs` | images that pools keep on their nodes |
//! | `opt_in.rs` | the shell of [`crate::opt_in`] |
//! | `build/` | the shell of [`crate::build`] |
//! | `drain.rs`, `evict.rs`, `config_node.rs` | the shell of [`crate::drain`] |
//! | `status.rs`, `last_line.rs` | the shell of [`crate::view`], for a person's terminal |
//! | `events.rs`, `metrics.rs`, `http.rs`, `log.rs` | output for people and Prometheus |
//!
//! Each controller waits for a change in the cache, decides with a pure function, and writes. Nothing polls. No state is only
//! in memory: a process that is killed is replaced by one that reads the same objects and decides the same.

mod awaited;
mod begun;
mod build;
mod cache;
mod cached;
mod causes;
mod client;
mod config;
mod config_node;
mod conflict;
mod connections;
mod contested;
mod costs;
mod drain;
mod error;
mod events;
mod evict;
mod failure;
mod follow;
mod http;
mod interlock;
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
mod outage;
mod own_target;
mod pinned;
mod render;
mod reported;
mod rollout;
mod seed;
mod status;
mod stored_config;
mod transport;
mod tries;
mod unread;
mod untyped;
mod unused;
mod witness;
mod work;
mod write;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::build::JobSettings;
pub use crate::lease::Timing;
use crate::registry;
use cache::{Cache, Kind};
use client::Fence;
pub use error::RunError;
use interlock::Alone;
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
    /// Drain nodes whose agents request it, and uncordon them
    Drain,
    /// Bring pools with the label layering-enabled into image mode
    OptIn,
    /// Build the OS images of pools in image mode
    Build,
}

impl Controller {
    /// Returns what it does in place of a part of the Machine Config Operator, for people.
    const fn takes_over(self) -> &'static str {
        match self {
            Self::Render => {
                "the render controller takes over the rendered MachineConfigs and spec.configuration of all pools from the \
                 operator's render controller"
            }
            Self::Node => {
                "the node controller takes over desiredConfig and desiredImage of all nodes, and the status of all pools, from the \
                 operator's node controller"
            }
            Self::Drain => {
                "the drain controller takes over cordons, evictions and lastAppliedDrain of all nodes from the operator's drain \
                 controller"
            }
            Self::OptIn => {
                "the opt-in controller makes MachineOSConfigs of pools with the label layering-enabled; the operator has no such \
                 controller"
            }
            Self::Build => {
                "the build controller takes over MachineOSBuilds and their images from the operator's machine-os-builder"
            }
        }
    }

    /// Returns the kinds that it decides by.
    const fn needed(self) -> &'static [Kind] {
        match self {
            Self::Render => &unread::RENDER,
            Self::Node => &unread::NODE,
            Self::Drain => &unread::DRAIN,
            Self::OptIn => &unread::OPT_IN,
            Self::Build => &unread::BUILD,
        }
    }
}

/// Options of the process.
#[derive(Debug, Clone)]
pub struct Options {
    /// The controllers.
    pub controllers: Vec<Controller>,
    /// The one controller runs although the Machine Config Operator is at work.
    pub beside_mco: bool,
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
        renders: options.controllers.contains(&Controller::Render),
    };
    cache.lock().own_targets = candidacy.renders.then(Default::default);
    let (mut leader, leading) = Leader::new(client.clone(), candidacy, fence, cache.clone());
    let mut tasks = JoinSet::new();
    let (told, alone) = watch::channel(Alone::Unknown);
    let ready = ready(cache.clone(), &options.controllers, alone.clone());
    tasks.spawn(http::serve(listener, metrics.clone(), ready));
    tasks.spawn(measure_watches(cache.clone(), metrics.clone()));
    let builds_in = options.controllers.contains(&Controller::Build).then(|| options.namespace.clone());
    tasks.spawn(follow::all(client.clone(), cache.clone(), builds_in));
    let other = other_program(options, client.clone(), cache.clone(), told);
    tasks.spawn(once_leading(options.clone(), client, cache, metrics, leading, alone));
    let ended = tokio::select! {
        () = leader.run() => Err(leader.lost()),
        other = other => Err(other),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        _ = tasks.join_next() => Err(RunError::Ended),
    };
    // Nothing of this process writes any more when another one may lead.
    tasks.shutdown().await;
    match &ended {
        Ok(()) => info!("Stopped by a signal"),
        // Another process would keep the Lease from nobody.
        Err(RunError::OperatorAtWork { .. } | RunError::ForeignTarget(_)) => {}
        Err(_) => return ended,
    }
    leader.release().await;
    ended
}

/// Waits for another program on the same pools.
async fn other_program(
    options: &Options,
    client: Client,
    cache: Cache,
    alone: watch::Sender<Alone>,
) -> RunError {
    if options.beside_mco {
        for controller in &options.controllers {
            warn!("Runs beside the Machine Config Operator by --beside-mco: {}", controller.takes_over());
        }
        cache.change(|snapshot| snapshot.is_read(Kind::OperatorLeases));
        alone.send_replace(Alone::Known);
        return std::future::pending().await;
    }
    interlock::other_program(client, cache, alone).await
}

/// Runs the controllers as soon as this process leads. It ends with the process.
async fn once_leading(
    options: Options,
    client: Client,
    cache: Cache,
    metrics: Metrics,
    mut leading: watch::Receiver<bool>,
    mut alone: watch::Receiver<Alone>,
) {
    if leading.wait_for(|leading| *leading).await.is_err() {
        return;
    }
    let mut tasks = JoinSet::new();
    if options.controllers.contains(&Controller::Node) {
        // Before it is known who else writes to the pools, it says why that is not known.
        let own_node = options.own_node.clone();
        tasks.spawn(rollout::run(client.clone(), cache.clone(), metrics.clone(), own_node, alone.clone()));
    }
    if alone.wait_for(|alone| *alone > Alone::Unknown).await.is_err() {
        return;
    }
    metrics.leading.set(1);
    info!("{} leads", options.identity);
    let until_lost = lost(leading, metrics.clone());
    for controller in options.controllers {
        let (client, cache, metrics) = (client.clone(), cache.clone(), metrics.clone());
        match controller {
            Controller::Render => {
                tasks.spawn(once_alone(alone.clone(), render::work::run(client, cache, metrics)))
            }
            Controller::Node => tasks.spawn(once_alone(alone.clone(), pinned::run(client, cache, metrics))),
            Controller::Drain => tasks.spawn(once_alone(alone.clone(), drain::run(client, cache, metrics))),
            Controller::OptIn => {
                let opt_in = opt_in::run(client, cache, metrics, options.namespace.clone());
                tasks.spawn(once_alone(alone.clone(), opt_in))
            }
            Controller::Build => {
                let settings = JobSettings { namespace: options.namespace.clone(), ..options.build.clone() };
                let registry = registry::Client::new(registry::Options {
                    insecure: settings.insecure_registries.clone(),
                    trust: settings.trust_bundle.clone().into_bytes(),
                });
                let build = build::work::run(client, cache, metrics, settings, Arc::new(registry));
                tasks.spawn(once_alone(alone.clone(), build))
            }
        };
    }
    // A task that exits ends the process.
    tokio::select! {
        ended = tasks.join_next() => drop(ended),
        () = until_lost => {}
    }
}

/// Runs a controller as soon as it is known that no other program is at work on the pools.
async fn once_alone(mut alone: watch::Receiver<Alone>, controller: impl Future<Output = ()>) {
    if alone.wait_for(|alone| *alone == Alone::Known).await.is_ok() {
        controller.await;
    }
}

/// Has the metric say so when this process does not lead any more.
async fn lost(mut leading: watch::Receiver<bool>, metrics: Metrics) {
    drop(leading.wait_for(|leading| !*leading).await.map(drop));
    metrics.leading.set(0);
    // The election ends the process.
    std::future::pending::<()>().await;
}

/// Has the metrics say which kinds are watched, whenever that changes.
async fn measure_watches(cache: Cache, metrics: Metrics) {
    let mut changes = cache.contents();
    loop {
        changes.mark_unchanged();
        {
            let snapshot = cache.lock();
            let failing = snapshot.failing.keys().filter(|kind| !snapshot.lacks(**kind));
            let failing = failing.map(|kind| (*kind, false));
            let up = snapshot
                .synced
                .iter()
                .filter(|kind| !snapshot.failing.contains_key(kind) || snapshot.lacks(**kind));
            for (kind, is_up) in up.map(|kind| (*kind, true)).chain(failing) {
                metrics.watched(kind.resource(), is_up);
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// A process is ready while it can read the objects that its controllers decide by, as leader or not. The kinds in the
/// namespace of builds are read by the leader.
fn ready(cache: Cache, controllers: &[Controller], alone: watch::Receiver<Alone>) -> http::Ready {
    let in_all = |kind: &Kind| !matches!(kind, Kind::BuildSettings | Kind::OsImage | Kind::Containerfiles);
    let mut needed: Vec<Kind> = controllers.iter().flat_map(|one| one.needed()).copied().collect();
    needed.extend([Kind::Lease, Kind::OperatorLeases]);
    needed.sort_unstable();
    needed.dedup();
    needed.retain(in_all);
    Arc::new(move || {
        let snapshot = cache.lock();
        let mut missing: Vec<String> = unread::unread(&snapshot, &needed)
            .map(|(kind, failure)| unread::failure_text(kind, failure))
            .collect();
        missing.dedup();
        missing.extend(unread::down(&snapshot, &needed, client::uptime()));
        missing.extend(unread::refused_budgets(&snapshot));
        missing.extend(unread::refused_pods(&snapshot));
        missing.extend(unread::refused_reports(&snapshot));
        missing.extend(unread::refused_settings(&snapshot));
        missing.extend(unread::refused_lease(&snapshot));
        if !missing.is_empty() {
            return Err(format!("{}\n", missing.join("\n")));
        }
        if *alone.borrow() != Alone::Known {
            return Err("not known yet whether the Machine Config Operator is at work\n".to_owned());
        }
        Ok(())
    })
}
