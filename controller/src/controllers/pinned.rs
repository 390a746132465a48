//! The shell of `rollout/pinned.rs`: the annotation by which nodes learn of their PinnedImageSets, and the counts of the
//! pools that name some. Each MachineConfigNode is watched only while a pool does.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::{info, warn};

use super::cache::{Cache, Kind, Snapshot};
use super::cached::Cached as _;
use super::client::{RequestError, uptime};
use super::conflict::{Expected, judged};
use super::contested::{Contested, Field};
use super::events::About;
use super::failure::Failure;
use super::metrics::Metrics;
use super::node_write::write_node;
use super::write::{Write, write};
use crate::api::pool::PoolSynchronizer;
use crate::api::{MachineConfigNode, MachineConfigPool};
use crate::model::annotations::PINNED_IMAGE_SETS;
use crate::model::pinned::{PinningPool, pools_of_node};
use crate::reading::Lenient;
use crate::retry::Retries;
use crate::rollout::{Members, Node, ReportedSet, annotation, sets, synchronizer};
use crate::watches;

/// Changes of this time are counted together.
const COALESCE: Duration = Duration::from_secs(1);

/// Wait for a retry, if nothing changes before.
const RETRY: Duration = Duration::from_secs(30);

/// Nodes that are told at once.
const MAX_WRITES: usize = 100;

type Events = Pin<Box<dyn Stream<Item = watcher::Result<Event<Lenient<MachineConfigNode>>>> + Send>>;

/// Runs it. It has no end.
pub(super) async fn run(client: Client, cache: Cache, metrics: Metrics) {
    let needed = [Kind::Definitions, Kind::Pools, Kind::Nodes];
    cache.until(|snapshot| needed.iter().all(|kind| snapshot.knows(*kind))).await;
    let (reports, contested) = (Reports::default(), Contested::default());
    let mut controller =
        Controller { client, cache, metrics, reports, contested, retries: Retries::default(), later: None };
    let mut changes = controller.cache.changes();
    loop {
        changes.mark_unchanged();
        let (is_active, is_certain) = {
            let snapshot = controller.cache.lock();
            (is_active(&snapshot), !snapshot.is_between_states())
        };
        let done = if is_active && is_certain { controller.reconcile().await } else { Ok(()) };
        let failed = done.err();
        if let Some(error) = &failed {
            controller.metrics.wrote("pinned", "failed");
            warn!("Pinned images of the pools can't be reported: {error}");
        }
        if !is_active {
            controller.reports = Reports::default();
        } else if controller.reports.events.is_none() {
            controller.reports.events = Some(watch(&controller.client));
        }
        let later = controller.later.take();
        let retry = async {
            match failed.map(|_| RETRY).into_iter().chain(later).min() {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = changes.changed() => {}
            () = controller.reports.changed() => {}
            () = retry => {}
        }
        if is_active {
            sleep(COALESCE).await;
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

fn watch(client: &Client) -> Events {
    let api = Api::<Lenient<MachineConfigNode>>::all(client.clone());
    Box::pin(watches::paced(api, watches::config()))
}

/// Reports of the nodes, while they are watched.
#[derive(Default)]
struct Reports {
    events: Option<Events>,
    /// Sets by node, of the nodes that report some; `None` before a first list.
    sets: Option<BTreeMap<String, Vec<ReportedSet>>>,
    listing: BTreeMap<String, Vec<ReportedSet>>,
    is_failing: bool,
}

impl Reports {
    /// Waits for a change of the reports; for ever while they are not watched.
    async fn changed(&mut self) {
        loop {
            let Some(events) = &mut self.events else { return std::future::pending().await };
            match events.next().await {
                Some(Ok(event)) => {
                    self.is_failing = false;
                    if self.apply(event) {
                        return;
                    }
                }
                Some(Err(error)) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        warn!("MachineConfigNodes can't be watched: {}", Failure::new(&error).cause);
                    }
                }
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

struct Controller {
    client: Client,
    cache: Cache,
    metrics: Metrics,
    reports: Reports,
    contested: Contested,
    /// Refusals of the API server.
    retries: Retries,
    /// Time until a contested field may be written again.
    later: Option<Duration>,
}

/// A pool, and the counts that it is to have.
type Count = (MachineConfigPool, Option<PoolSynchronizer>);

impl Controller {
    /// Tells nodes of their sets, and pools how many nodes keep them. A pool's counts go last: they say that there is something to
    /// take back.
    async fn reconcile(&mut self) -> Result<(), RequestError> {
        let mut nodes = untold(&self.cache.lock());
        nodes.retain(|(node, value)| {
            self.may_write(&field(node), &told(node), value.as_deref().unwrap_or_default())
        });
        let is_cut = nodes.len() > MAX_WRITES;
        let mut failed = None;
        for (node, value) in nodes.into_iter().take(MAX_WRITES) {
            let body = json!({ "metadata": { "annotations": { PINNED_IMAGE_SETS: value } } });
            let what = Write::NodePinnedImages;
            match write_node(what, &self.client, &self.cache, &node, &body).await {
                Ok(is_written) => {
                    self.metrics.wrote("pinned", if is_written { "written" } else { "conflict" });
                    self.retries.succeeded(&told(&node));
                    if is_written {
                        let value = value.unwrap_or_default();
                        self.contested.wrote(&self.client, &field(&node), &value).await;
                    }
                }
                // One node that refuses keeps the others from nothing.
                Err(error) => {
                    self.failed(&told(&node), value.as_deref().unwrap_or_default(), &error);
                    failed = Some(error);
                }
            }
        }
        let reported = self.reports.sets.as_ref().filter(|_| !is_cut);
        let counts = reported.map(|sets| counts(&self.cache.lock(), sets)).unwrap_or_default();
        for (pool, count) in counts {
            failed = self.write_count(&pool, count.as_ref()).await.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Returns true if a field may be given this value now. Another program that sets it back again and again is waited for.
    fn may_write(&mut self, field: &Field, name: &str, value: &str) -> bool {
        let waits = [self.contested.wait(field, value), self.retries.wait(name, value, uptime())];
        let Some(wait) = waits.into_iter().flatten().max() else { return true };
        self.later = Some(self.later.map_or(wait, |later| later.min(wait)));
        false
    }

    /// Has a refused write wait, unless its value changes.
    fn failed(&mut self, field: &str, value: &str, error: &RequestError) {
        if error.is_refusal() {
            let (wait, _) = self.retries.failed(field, value, &error.to_string(), uptime());
            self.later = Some(self.later.map_or(wait, |later| later.min(wait)));
        }
    }

    async fn write_count(
        &mut self,
        pool: &MachineConfigPool,
        count: Option<&PoolSynchronizer>,
    ) -> Result<(), RequestError> {
        let name = pool.name_any();
        let (told, value) = (format!("status.poolSynchronizersStatus of pool {name}"), format!("{count:?}"));
        let about = About::pool(&name, pool.metadata.uid.as_deref().unwrap_or_default());
        let field = Field::new(about, &*told);
        if !self.may_write(&field, &told, &value) {
            return Ok(());
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
                self.retries.succeeded(&told);
                self.cache.change(|snapshot| now.put(snapshot));
                if let Some(count) = count {
                    let (updated, all) = (count.updated_machine_count, count.machine_count);
                    info!("Pool {name}: {updated} of {all} nodes keep its pinned images");
                }
                self.contested.wrote(&self.client, &field, &value).await;
                Ok(())
            }
            Err(error) => {
                let error = judged(what, error, &Expected::of(&pool.metadata), api.get(&name)).await;
                // The watch brings the next version, and with it the next try.
                if error.is_conflict() {
                    self.metrics.wrote("pinned", "conflict");
                    return Ok(());
                }
                self.failed(&told, &value, &error);
                Err(error)
            }
        }
    }
}

fn field(node: &Node) -> Field {
    Field::new(About::node(&node.name, &node.uid), told(node))
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
