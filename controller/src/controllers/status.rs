//! Status screen of a cluster: the shell of [`crate::view`]. It reads, and writes nothing: its fence is never opened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PartialObjectMeta;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::cache::{Cache, Kind, Snapshot};
use super::cached::Cached;
use super::client::{self, Fence};
use super::error::RunError;
use super::follow::follow;
use super::last_line::LastLines;
use super::layering::{BuildPods, layering};
use super::node::NodeObject;
use super::untyped::{MachineOsBuild, MachineOsConfig};
use crate::api::{MachineConfigNode, MachineConfigPool, RolloutPolicy};
use crate::drain::NodeView;
use crate::reading::Lenient;
use crate::rollout::{Policy, Pool, Selectors};
use crate::view::{self, ObservedNode, Progress, View, view};

/// Kinds that are read: none holds secrets.
const NEEDED: [Kind; 7] = [
    Kind::Definitions,
    Kind::Pools,
    Kind::Nodes,
    Kind::RolloutPolicies,
    Kind::OsConfigs,
    Kind::OsBuilds,
    Kind::ConfigNodes,
];

/// Timeout of the first read: 5,000 nodes are 20 pages.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Time in which changes are collected: the screen is drawn at most five times a second.
const COALESCE: Duration = Duration::from_millis(200);

/// Options of the verb `status`.
#[derive(Debug, Clone)]
pub struct StatusOptions {
    /// Kubeconfig; the environment's if `None`.
    pub kubeconfig: Option<PathBuf>,
    /// Shows each change, without end.
    pub watch: bool,
    /// The most nodes that are shown.
    pub limit: usize,
}

/// Watches the kinds on the screen.
async fn follow_shown(client: Client, cache: Cache) {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(follow(
        Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone()),
        cache.clone(),
    ));
    tasks.spawn(follow(Api::<Lenient<MachineConfigPool>>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<NodeObject>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<Lenient<RolloutPolicy>>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<MachineOsConfig>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<MachineOsBuild>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<Lenient<MachineConfigNode>>::all(client), cache));
    // Each of them runs until it is aborted.
    while tasks.join_next().await.is_some() {}
}

/// Shows a cluster, once or at each change. `show` returns true if it wants more.
pub fn status(options: &StatusOptions, show: &mut dyn FnMut(&View) -> bool) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(follow_and_show(options, show))
}

async fn follow_and_show(
    options: &StatusOptions,
    show: &mut dyn FnMut(&View) -> bool,
) -> Result<(), RunError> {
    let cache = Cache::new();
    let client = client::connect(options.kubeconfig.as_deref(), &Fence::default()).await?;
    let mut changes = cache.changes();
    let reader = client.clone();
    let watches = tokio::spawn(follow_shown(client, cache.clone()));
    let ready =
        |snapshot: &Snapshot| !snapshot.failing.is_empty() || NEEDED.iter().all(|kind| snapshot.knows(*kind));
    if timeout(READ_TIMEOUT, cache.until(ready)).await.is_err() {
        return Err(late(&cache.lock()));
    }
    if let Some((kind, failure)) = cache.lock().failing.first_key_value() {
        return Err(unread(*kind, failure.code, &failure.cause));
    }
    let mut last: Option<View> = None;
    let mut lines = LastLines::new(reader, cache.clone());
    loop {
        changes.mark_unchanged();
        let running = running(&cache.lock());
        if options.watch {
            lines.follow(running);
        } else {
            lines.read(running).await;
        }
        let now = view_of(&cache.lock(), &lines.known(), options.limit);
        // Only changes are drawn, and not that time has passed.
        let is_same = last.as_ref().is_some_and(|last| View { at: last.at.clone(), ..now.clone() } == *last);
        let wants_more = is_same || show(&now);
        last = Some(now);
        if !wants_more || !options.watch || changes.changed().await.is_err() {
            watches.abort();
            return Ok(());
        }
        sleep(COALESCE).await;
    }
}

fn late(snapshot: &Snapshot) -> RunError {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|kind| !snapshot.knows(**kind)).map(|kind| kind.resource()).collect();
    let seconds = READ_TIMEOUT.as_secs();
    let next = "check whether the API server answers `kubectl get --raw /readyz`";
    RunError::Unread { what: missing.join(", "), cause: format!("no answer within {seconds} s"), next }
}

fn unread(kind: Kind, code: u16, cause: &str) -> RunError {
    let next = match code {
        401 => "log in again, or name another kubeconfig with --kubeconfig",
        403 => "name a user with --kubeconfig that may list and watch them",
        _ => "check whether the API server answers `kubectl get --raw /readyz`",
    };
    RunError::Unread { what: kind.resource().to_owned(), cause: cause.to_owned(), next }
}

/// Returns the builds whose pods may write lines, with these pods.
fn running(snapshot: &Snapshot) -> BTreeMap<String, BuildPods> {
    snapshot.os_builds.iter().filter_map(|(name, build)| Some((name.clone(), build.pods()?))).collect()
}

/// Makes the screen from the cached objects.
fn view_of(snapshot: &Snapshot, lines: &BTreeMap<String, String>, limit: usize) -> View {
    let pools = snapshot.pools.iter().map(|(name, pool)| {
        let pool = pool.as_ref().map_err(|unreadable| unreadable.cause.clone()).map(|object| {
            let target = object.spec.configuration.as_ref().and_then(|target| target.name.as_deref());
            let policies = snapshot.policies.values().filter_map(|policy| policy.as_ref().ok());
            Pool {
                layering: layering(
                    name,
                    target.unwrap_or_default(),
                    &snapshot.os_configs,
                    &snapshot.os_builds,
                ),
                policies: policies.filter(|policy| policy.pool() == name).map(Policy::from_policy).collect(),
                ..Pool::from_pool(object)
            }
        });
        (name.as_str(), pool)
    });
    let nodes = snapshot.nodes.values().map(|node| ObservedNode {
        node,
        drain: NodeView::new(&node.annotations, node.unschedulable),
        progress: snapshot.progress.get(&node.name),
    });
    let builds = snapshot
        .os_builds
        .iter()
        .map(|(name, build)| build.view(name, &snapshot.os_configs, lines.get(name)));
    let stale = snapshot
        .failing
        .iter()
        .map(|(kind, failure)| format!("{} can't be read: {}", kind.resource(), failure.cause));
    view(&view::ViewInput {
        pools: pools.collect(),
        selectors: Selectors::new(snapshot.readable_pools()),
        nodes: nodes.collect(),
        builds: builds.collect(),
        stale: stale.collect(),
        limit,
        now: Timestamp::now(),
    })
}

impl Cached for Lenient<MachineConfigNode> {
    const KIND: Kind = Kind::ConfigNodes;

    fn insert(self, snapshot: &mut Snapshot) -> bool {
        let name = self.metadata.name.unwrap_or_default();
        let Ok(object) = &self.object else { return snapshot.progress.remove(&name).is_some() };
        let new = Progress::from_node(object);
        snapshot.progress.insert(name, new.clone()) != Some(new)
    }
    fn remove(snapshot: &mut Snapshot, name: &str) -> bool {
        snapshot.progress.remove(name).is_some()
    }
    fn names(snapshot: &Snapshot) -> BTreeSet<String> {
        snapshot.progress.keys().cloned().collect()
    }
}
