//! The shell of `rollout/pinned.rs`: the annotation by which nodes learn of their PinnedImageSets, and the counts of the
//! pools that name some. Each MachineConfigNode is watched only while a pool does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::cache::{Cache, Kind, Snapshot};
use super::cached::Cached as _;
use super::client::RequestError;
use super::conflict::{Expected, judged};
use super::contested::{Contested, Field};
use super::events::{About, Severity, emit};
use super::metrics::Metrics;
use super::node_write::write_node;
use super::reported::Reported;
use super::tries::Tries;
use super::unread;
use super::work::Work;
use super::write::{Write, write};
use crate::api::pool::PoolSynchronizer;
use crate::api::{MachineConfigNode, MachineConfigPool};
use crate::model::annotations::PINNED_IMAGE_SETS;
use crate::model::pinned::{PinningPool, pools_of_node};
use crate::reading::Lenient;
use crate::rollout::{Members, Node, ReportedSet, annotation, sets, synchronizer};
use crate::watches;

/// Changes of this time are counted together.
const COALESCE: Duration = Duration::from_secs(1);

/// Maximum concurrent writes of nodes and pools.
const MAX_AT_ONCE: usize = 16;

/// Reason of the Events of nodes and pools that are not written to.
const NOT_WRITTEN: &str = "PinnedImagesNotWritten";

/// Said of a pool.
const NO_COUNTS: &str = "does not have the counts of its pinned images";

/// Runs the controller until the task is aborted.
pub(super) async fn run(client: Client, cache: Cache, metrics: Metrics) {
    let needed = [Kind::Definitions, Kind::Pools, Kind::Nodes];
    cache.until(|snapshot| needed.iter().all(|kind| snapshot.knows(*kind))).await;
    let (contested, tries) = (Contested::default(), Tries::of_frequent_inputs());
    let controller = Controller { client, cache, metrics, contested, tries };
    let mut reports = Reports::default();
    let mut writes =
        Writes { controller, open: BTreeMap::new(), work: Work::new(MAX_AT_ONCE), is_settled: false };
    let mut changes = writes.controller.cache.changes();
    loop {
        changes.mark_unchanged();
        let (is_active, is_certain) = {
            let snapshot = writes.controller.cache.lock();
            (is_active(&snapshot), !snapshot.is_between_states())
        };
        // Also what is left of the last set, and of a process before this one.
        if is_certain && (is_active || !writes.is_settled) {
            writes.decide(&reports);
        }
        if !is_active {
            reports = Reports::default();
        } else if reports.events.is_none() {
            reports.begin(&writes.controller);
        }
        writes.controller.tell_unread(&mut reports.told).await;
        writes.make(&mut changes, &mut reports).await;
    }
}

/// Writes that are to be made, and those under way.
struct Writes {
    controller: Controller,
    open: BTreeMap<Target, Change>,
    work: Work<Target, Option<Duration>>,
    /// There was nothing to write.
    is_settled: bool,
}

/// An object that is written to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Node(String),
    Pool(String),
}

/// The value that it is to have.
#[derive(Debug, Clone)]
enum Change {
    /// The sets that a node is told of.
    Sets(Arc<Node>, Option<String>),
    /// The counts of a pool.
    Counts(Arc<MachineConfigPool>, Option<PoolSynchronizer>),
}

impl Writes {
    /// Decides which nodes are to be told of their sets, and which pools of their counts.
    fn decide(&mut self, reports: &Reports) {
        let controller = &self.controller;
        self.open = {
            let snapshot = controller.cache.lock();
            let nodes = untold(&snapshot).into_iter();
            let nodes =
                nodes.map(|(node, value)| (Target::Node(node.name.clone()), Change::Sets(node, value)));
            let counts = reports.sets.as_ref().map(|sets| counts(&snapshot, sets)).unwrap_or_default();
            let counts = counts.into_iter();
            let counts = counts
                .map(|(pool, count)| (Target::Pool(pool.name_any()), Change::Counts(Arc::new(pool), count)));
            nodes.chain(counts).collect()
        };
        self.is_settled = self.open.is_empty();
        if self.is_settled {
            controller.tries.keep(|_| false);
        }
        self.work.replace(self.open.keys().cloned());
    }

    /// Makes them, until they are to be decided again.
    async fn make(&mut self, changes: &mut watch::Receiver<u64>, reports: &mut Reports) {
        let mut until = None;
        loop {
            let Self { controller, open, work, .. } = self;
            work.begin(|target| {
                let (controller, change) = (controller.clone(), open.get(target).cloned());
                async move {
                    match change? {
                        Change::Sets(node, value) => controller.write_sets(&node, value).await,
                        Change::Counts(pool, count) => controller.write_count(&pool, count.as_ref()).await,
                    }
                }
            });
            let collected = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let changed = async {
                tokio::select! {
                    _ = changes.changed() => {}
                    () = reports.changed() => {}
                }
            };
            tokio::select! {
                () = changed, if until.is_none() => until = Some(Instant::now() + COALESCE),
                () = collected => return,
                ended = work.next() => if let Some((target, Some(wait))) = ended {
                    work.add(target, Instant::now() + wait);
                },
            }
        }
    }
}

/// Returns true if a pool names a set, or named one.
fn is_active(snapshot: &Snapshot) -> bool {
    let counted = |pool: &MachineConfigPool| {
        pool.status.as_ref().is_some_and(|status| status.pool_synchronizers_status.is_some())
    };
    snapshot.readable_pools().any(|pool| !sets(pool).is_empty() || counted(pool))
}

/// Reports of the nodes, while they are watched.
#[derive(Default)]
struct Reports {
    events: Option<Reported<Lenient<MachineConfigNode>>>,
    /// Sets by node, of the nodes that report some; `None` before a first list.
    sets: Option<BTreeMap<String, Vec<ReportedSet>>>,
    listing: BTreeMap<String, Vec<ReportedSet>>,
    /// Texts on a watch that the API server refuses.
    told: BTreeSet<String>,
}

impl Reports {
    /// Begins to watch them.
    fn begin(&mut self, controller: &Controller) {
        let api = Api::<Lenient<MachineConfigNode>>::all(controller.client.clone());
        let (cache, metrics) = (controller.cache.clone(), controller.metrics.clone());
        self.events = Some(Reported::new(api, watches::config(), Kind::ConfigNodes, cache, metrics));
    }

    /// Waits for a change of the reports; for ever while they are not watched.
    async fn changed(&mut self) {
        loop {
            let Some(events) = &mut self.events else { return std::future::pending().await };
            match events.next().await {
                Some(Ok(event)) => {
                    if self.apply(event) {
                        return;
                    }
                }
                // The cache has it, and that is a change.
                Some(Err(_)) => {}
                None => self.events = None,
            }
        }
    }

    /// Returns true if a count may be another one.
    fn apply(&mut self, event: Event<Lenient<MachineConfigNode>>) -> bool {
        match event {
            Event::Init => {
                self.listing.clear();
                false
            }
            Event::InitApply(node) => {
                self.listing.insert(node.name_any(), reported(&node));
                false
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listing);
                let changed = self.sets.as_ref() != Some(&listed);
                self.sets = Some(listed);
                changed
            }
            Event::Apply(node) => {
                let new = reported(&node);
                self.sets.get_or_insert_default().insert(node.name_any(), new.clone()) != Some(new)
            }
            Event::Delete(node) => self.sets.get_or_insert_default().remove(&node.name_any()).is_some(),
        }
    }
}

/// Reads the sets that a node reports.
fn reported(node: &Lenient<MachineConfigNode>) -> Vec<ReportedSet> {
    let status = node.object.as_ref().ok().and_then(|object| object.status.as_ref());
    let sets = status.and_then(|status| status.pinned_image_sets.as_ref());
    let number = |set: &Value, key: &str| set.get(key).and_then(Value::as_i64);
    let read = |set: &Value| {
        let desired = number(set, "desiredGeneration");
        let is_current = desired.is_some() && desired == number(set, "currentGeneration");
        Some(ReportedSet { name: set.get("name")?.as_str()?.to_owned(), is_current })
    };
    sets.into_iter().flatten().filter_map(read).collect()
}

#[derive(Clone)]
struct Controller {
    client: Client,
    cache: Cache,
    metrics: Metrics,
    contested: Contested,
    /// Failures, by field.
    tries: Tries,
}

/// A pool, and the counts that it is to have.
type Count = (MachineConfigPool, Option<PoolSynchronizer>);

impl Controller {
    /// Tells a node of its sets; returns the time until the next try, if there is one.
    async fn write_sets(&self, node: &Arc<Node>, value: Option<String>) -> Option<Duration> {
        let (told, text) = (told(node), value.clone().unwrap_or_default());
        let about = About::node(&node.name, &node.uid);
        let field = Field::new(about.clone(), &*told);
        if let Some(wait) = self.wait(&field, &told, &text) {
            return Some(wait);
        }
        if !self.cache.lock().nodes.get(&node.name).is_some_and(|now| Arc::ptr_eq(now, node)) {
            // It has changed, and is decided again.
            return None;
        }
        let body = json!({ "metadata": { "annotations": { PINNED_IMAGE_SETS: value } } });
        match write_node(Write::NodePinnedImages, &self.client, &self.cache, node, &body).await {
            Ok(is_written) => {
                self.metrics.wrote("pinned", if is_written { "written" } else { "conflict" });
                self.tries.succeeded(&told);
                if is_written {
                    self.contested.wrote(&self.client, &field, &text).await;
                }
                None
            }
            Err(error) => {
                let what = format!("Node {} did not get its pinned images", node.name);
                self.failed(&told, &text, &about, &what, &error).await
            }
        }
    }

    /// Returns the time to wait before a field may be given this value. Another program that sets it back again and again is waited for.
    fn wait(&self, field: &Field, name: &str, value: &str) -> Option<Duration> {
        let waits = [self.contested.wait(field, value), self.tries.wait(name, value)];
        waits.into_iter().flatten().max()
    }

    /// Tells of a write that failed; returns the pause before the next try.
    async fn failed(
        &self,
        field: &str,
        value: &str,
        about: &About,
        what: &str,
        error: &RequestError,
    ) -> Option<Duration> {
        if about.is_gone(&self.cache.lock()) {
            return None;
        }
        self.metrics.wrote("pinned", "failed");
        let failed = self.tries.failed(field, value, error);
        let text = format!("{what}: {error}");
        if failed.is_logged {
            warn!("{text}");
        }
        if failed.is_told {
            emit(&self.client, about, Severity::Warning, NOT_WRITTEN, &text).await;
        }
        Some(failed.wait)
    }

    /// Has the pools that name sets say that the API server refuses the reports of their nodes.
    async fn tell_unread(&self, told: &mut BTreeSet<String>) {
        let (refused, pools) = {
            let snapshot = self.cache.lock();
            let Some(refused) = unread::refused_reports(&snapshot) else { return };
            let pools = snapshot.readable_pools().filter(|pool| !sets(pool).is_empty()).map(about_pool);
            (refused, pools.collect::<Vec<_>>())
        };
        for about in pools {
            let text = format!("Pool {} {NO_COUNTS}: {refused}", about.name);
            if told.insert(text.clone()) {
                warn!("{text}");
                emit(&self.client, &about, Severity::Warning, NOT_WRITTEN, &text).await;
            }
        }
    }

    /// Writes a pool's counts; returns the time until the next try, if there is one.
    async fn write_count(
        &self,
        pool: &MachineConfigPool,
        count: Option<&PoolSynchronizer>,
    ) -> Option<Duration> {
        let name = pool.name_any();
        let (told, value) = (format!("status.poolSynchronizersStatus of pool {name}"), format!("{count:?}"));
        let field = Field::new(about_pool(pool), &*told);
        if let Some(wait) = self.wait(&field, &told, &value) {
            return Some(wait);
        }
        let all = count.map(|count| vec![count]);
        let body = json!({
            "metadata": { "uid": pool.metadata.uid, "resourceVersion": pool.metadata.resource_version },
            "status": { "poolSynchronizersStatus": all },
        });
        let api = Api::<Lenient<MachineConfigPool>>::all(self.client.clone());
        let what = Write::PinnedImageCounts;
        match write(what, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&body))).await {
            Ok(now) => {
                self.metrics.wrote("pinned", "written");
                self.tries.succeeded(&told);
                self.cache.change(|snapshot| now.put(snapshot));
                if let Some(count) = count {
                    let (updated, all) = (count.updated_machine_count, count.machine_count);
                    info!("Pool {name}: {updated} of {all} nodes keep its pinned images");
                }
                self.contested.wrote(&self.client, &field, &value).await;
                None
            }
            Err(error) => {
                let error = judged(what, error, &Expected::of(&pool.metadata), api.get(&name)).await;
                // The watch brings the next version, and with it the next try.
                if error.is_conflict() {
                    self.metrics.wrote("pinned", "conflict");
                    return None;
                }
                let what = format!("Pool {name} {NO_COUNTS}");
                self.failed(&told, &value, &about_pool(pool), &what, &error).await
            }
        }
    }
}

fn about_pool(pool: &MachineConfigPool) -> About {
    About::pool(&pool.name_any(), pool.metadata.uid.as_deref().unwrap_or_default())
}

/// Names the annotation of a node.
fn told(node: &Node) -> String {
    format!("{PINNED_IMAGE_SETS} of Node {}", node.name)
}

/// Returns the nodes whose annotation is not that of their pools' sets, and the right one. The pools are those of which the agent
/// keeps the sets; a node of none is not touched.
fn untold(snapshot: &Snapshot) -> Vec<(Arc<Node>, Option<String>)> {
    let tree = |pool: &MachineConfigPool| serde_json::to_value(pool).ok();
    let trees = snapshot.readable_pools().filter_map(tree);
    let pools: Vec<PinningPool> = trees.filter_map(|tree| PinningPool::of_tree(&tree).ok()).collect();
    let value = |node: &Arc<Node>| {
        let own = pools_of_node(&node.labels, &pools);
        if own.is_empty() {
            return None;
        }
        let value = annotation(&own.iter().flat_map(|pool| pool.sets.iter().map(String::as_str)).collect());
        (node.annotations.get(PINNED_IMAGE_SETS) != value.as_ref()).then(|| (Arc::clone(node), value))
    };
    snapshot.nodes.values().filter_map(value).collect()
}

/// Returns the pools whose counts are not right.
fn counts(snapshot: &Snapshot, reported: &BTreeMap<String, Vec<ReportedSet>>) -> Vec<Count> {
    let nodes = snapshot.nodes.values().map(|node| &**node);
    let members = Members::new(snapshot.readable_pools(), nodes);
    let count = |pool: &MachineConfigPool| {
        let own = members.of(pool.metadata.name.as_deref()?)?;
        let nodes = own.nodes.iter().filter_map(|name| {
            let sets = reported.get(name).map(Vec::as_slice).unwrap_or_default();
            Some((&**snapshot.nodes.get(name)?, sets))
        });
        let new = synchronizer(pool, nodes);
        let old = pool.status.as_ref().and_then(|status| status.pool_synchronizers_status.as_ref());
        let is_same = old.map(Vec::as_slice) == new.as_ref().map(std::slice::from_ref);
        (!is_same).then(|| (pool.clone(), new))
    };
    snapshot.readable_pools().filter_map(count).collect()
}
