//! The node controller: the shell of [`crate::rollout`].
//!
//! It decides by what the cache holds, writes, puts what the API server answers back into the cache, and decides again, until
//! there is nothing to write. Then it waits for a change, or for the time that the decision names.
//!
//! Order of a decision's writes: the policy's status, the nodes, the pool's status. Each names the observed version. A write
//! that is refused, or lost with the process, is decided again by what is there then. The pool's status is written whatever
//! fails before it, and says what did. Where a policy rules the rollout, the decision itself gives no node a target before the pool's
//! status that says so was read back.

mod definition;
mod execute;
mod policies;
mod provisioned;
mod sent;
mod statuses;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ClusterResourceScope;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::info;

use super::cache::{Cache, Journal, Kind, Snapshot, UnreadablePool};
use super::cached::{Cached as _, Identified};
use super::causes::Causes;
use super::client::{RequestError, uptime};
use super::conflict::{Conflict, Expected, judge};
use super::contested::Contested;
use super::costs::{Costs, Unknown};
use super::events::{About, Severity, emit};
use super::interlock::Alone;
use super::layering::layering;
use super::merge::merge;
use super::metrics::Metrics;
use super::own_target::Standing;
use super::unread;
use super::write::{Write, write};
use crate::api::{MachineConfigPool, MachineConfigPoolStatus, RolloutPolicy};
use crate::cost::NodeCost;
use crate::model::policy::DisruptionPolicy;
use crate::reading::Lenient;
use crate::rollout::{
    self, Clock, Fleet, NodePatch, NodeWrites, Pair, Policy, Pool, Rollout, Topology, Undrained,
    deleting_status, rollout, unknown_status, unread_status,
};
use definition::PoolsDefinition;
use sent::{Sent, StatusFor};
use statuses::{Statuses, Written};

/// Message on a pool whose target another program sets back.
const CONTESTED: &str = "no node is given a target: another program sets spec.configuration of the pool back; find it in \
    metadata.managedFields of the MachineConfigPool and stop it";

/// Kinds without which there is no pool to report on.
const NEEDED_TO_TELL: [Kind; 3] = [Kind::Definitions, Kind::Pools, Kind::Nodes];

/// Time in which changes are collected for one decision.
const COALESCE: Duration = Duration::from_millis(20);

/// The longest time without a decision.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The longest time without one where time alone changes something: no event reports that the wall clock was set, and it must neither
/// delay a window nor make nodes late.
const LONGEST_TIMED_WAIT: Duration = Duration::from_secs(60);

/// Runs the controller until the task is aborted. `own_node` is the node that this process runs on. Before it is known that this program is alone on the pools,
/// they say which kinds can't be read, and nothing else.
pub(super) async fn run(
    client: Client,
    cache: Cache,
    metrics: Metrics,
    own_node: Option<String>,
    alone: watch::Receiver<Alone>,
) {
    // A kind that it may not read keeps it from giving targets, not from saying so on the pools.
    let can_tell = |snapshot: &Snapshot| {
        let told = NEEDED_TO_TELL.iter().all(|kind| snapshot.knows(*kind));
        let is_known = |kind: &&Kind| snapshot.knows(**kind) || snapshot.failing.contains_key(kind);
        told && unread::NODE.iter().all(|kind| is_known(&kind))
    };
    let mut changes = cache.changes();
    let mut controller = Controller {
        client,
        journal: cache.journal(),
        cache,
        metrics,
        pools_definition: PoolsDefinition::default(),
        costs: Costs::default(),
        measured: BTreeSet::new(),
        fleet: Fleet::new(own_node),
        membership: None,
        topology: Topology::default(),
        due: BTreeMap::new(),
        clock: Clock::default(),
        writes: NodeWrites::default(),
        statuses: Statuses::default(),
        contested: Contested::default(),
        under_way: JoinSet::new(),
        statuses_under_way: JoinSet::new(),
        is_late: false,
        unknown: BTreeSet::new(),
        causes: Causes::default(),
    };
    let is_alone = || *alone.borrow() == Alone::Known;
    while !(is_alone() && can_tell(&controller.cache.lock())) {
        changes.mark_unchanged();
        let known = *alone.borrow();
        let wait = controller.tell_unread(known);
        let mut alone = alone.clone();
        tokio::select! {
            () = controller.pause(&mut changes, wait) => {}
            _ = alone.wait_for(|alone| *alone != known) => {}
        }
    }
    info!("The node controller runs");
    loop {
        changes.mark_unchanged();
        let wait = Box::pin(controller.reconcile()).await;
        controller.pause(&mut changes, wait).await;
    }
}

struct Controller {
    client: Client,
    cache: Cache,
    metrics: Metrics,
    journal: Journal,
    pools_definition: PoolsDefinition,
    costs: Costs,
    measured: BTreeSet<String>,
    /// The nodes of each pool.
    fleet: Fleet,
    /// The state of [`Snapshot::membership`] that it is of.
    membership: Option<u64>,
    topology: Topology,
    /// When pools are decided again, by the own clock.
    due: BTreeMap<String, Duration>,
    clock: Clock,
    writes: NodeWrites,
    statuses: Statuses,
    contested: Contested,
    /// Writes to nodes that are not answered yet.
    under_way: JoinSet<Sent>,
    /// Writes of statuses that are not answered yet: one for each object.
    statuses_under_way: JoinSet<(StatusFor, Result<Written, RequestError>)>,
    /// An answer of a node is late, in this turn of all pools.
    is_late: bool,
    /// Nodes that may have been written to.
    unknown: BTreeSet<String>,
    /// Causes of failures of nodes that were logged.
    causes: Causes,
}

/// Writes statuses.
struct StatusWriter {
    client: Client,
    cache: Cache,
    metrics: Metrics,
}

/// Decision for a pool, and the objects that its writes need.
struct Decision {
    pool: MachineConfigPool,
    policy: Option<RolloutPolicy>,
    target: Option<Pair>,
    rollout: Rollout,
}

impl Controller {
    /// Waits for a reason to decide again.
    async fn pause(&mut self, changes: &mut watch::Receiver<u64>, wait: Duration) {
        tokio::select! {
            // Changes that come together get one decision.
            _ = changes.changed() => sleep(COALESCE).await,
            Some(Ok(sent)) = self.under_way.join_next(), if !self.under_way.is_empty() => self.answered(sent).await,
            Some(Ok((sent, written))) = self.statuses_under_way.join_next(), if !self.statuses_under_way.is_empty() => {
                self.status_answered(sent, written).await;
            }
            pool = self.costs.answered() => drop(self.due.insert(pool, Duration::ZERO)),
            () = self.pools_definition.answered() => {}
            () = sleep(wait.min(LONGEST_WAIT)) => {}
        }
    }

    /// Has the pools say which kinds the API server does not let this controller read, before anything is decided; returns the time until
    /// the next try. Where the operator may be at work, only a condition that it does not have says so.
    fn tell_unread(&mut self, alone: Alone) -> Duration {
        let unread: Vec<(MachineConfigPool, MachineConfigPoolStatus)> = {
            let snapshot = self.cache.lock();
            let (needed, status): (&[Kind], fn(&_, &str, _) -> _) = match alone {
                Alone::Unknown => (&[Kind::OperatorLeases], unknown_status),
                Alone::OperatorIsNot | Alone::Known => (&unread::NODE, unread_status),
            };
            let message = unread::held_up(&snapshot, needed, uptime());
            let status = |pool: &MachineConfigPool| {
                let old = pool.status.clone().unwrap_or_default();
                Some((pool.clone(), status(&old, message.as_ref()?, Timestamp::now())))
            };
            snapshot.readable_pools().filter_map(status).collect()
        };
        // A kind that is not answered until then is told.
        let mut wait = match unread::DOWN_AT_MOST.saturating_sub(uptime()) {
            Duration::ZERO => LONGEST_WAIT,
            left => left,
        };
        for (pool, status) in unread {
            wait = wait.min(self.bring_pool_status(&pool, &status));
        }
        wait
    }

    /// Takes the pools one step further that something has changed for; returns the time until the next decision.
    async fn reconcile(&mut self) -> Duration {
        if self.cache.lock().is_between_states() {
            return LONGEST_WAIT;
        }
        if self.pools_definition.read(&self.client, &self.cache).await {
            self.fleet.concern_all();
        }
        self.is_late = false;
        self.observe();
        let labeled = self.label().await;
        let now = uptime();
        let due = self.due.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone());
        for name in due.collect::<Vec<_>>() {
            if self.cache.lock().is_between_states() {
                return LONGEST_WAIT;
            }
            let (costs, unknown) = self.costs(&name);
            if let Unknown::FirstAnswer(wait) = unknown {
                self.due.insert(name, now.saturating_add(wait));
                continue;
            }
            // A write for the pool before this one changes what this one may do.
            self.observe();
            let Some(decision) = self.decide(&name, &costs) else {
                self.due.remove(&name);
                continue;
            };
            self.measure(&name, &decision.rollout.status);
            let wake = decision.rollout.wake;
            let mut wait = Box::pin(self.execute(&name, decision)).await;
            if let Some(wake) = wake {
                let until = Duration::try_from(wake.duration_since(Timestamp::now())).unwrap_or_default();
                wait = wait.min(until).min(LONGEST_TIMED_WAIT);
            }
            if let Unknown::Later(next) = unknown {
                wait = wait.min(next);
            }
            self.due.insert(name, uptime().saturating_add(wait.min(LONGEST_WAIT)));
        }
        self.read_unread().await;
        let refused = self.refuse_policies().min(self.tell_deleting());
        self.observe();
        let now = uptime();
        let next = self.due.values().map(|at| at.saturating_sub(now)).min();
        [next, labeled, Some(refused), self.pools_definition.next_try()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(LONGEST_WAIT)
    }

    /// Has the pools that are being deleted say so; returns the time until the next try.
    fn tell_deleting(&mut self) -> Duration {
        let is_deleted = |pool: &&MachineConfigPool| pool.metadata.deletion_timestamp.is_some();
        let deleted: Vec<_> = self.cache.lock().readable_pools().filter(is_deleted).cloned().collect();
        let mut wait = LONGEST_WAIT;
        for pool in deleted {
            let status = deleting_status(&pool, Timestamp::now());
            self.measure(pool.metadata.name.as_deref().unwrap_or_default(), &status);
            wait = wait.min(self.bring_pool_status(&pool, &status));
        }
        wait
    }

    /// Takes over what changed in the cache, and notes the pools that are to be decided again.
    fn observe(&mut self) {
        let cache = self.cache.clone();
        let mut snapshot = cache.lock();
        let mut changed = self.journal.take(&mut snapshot);
        if self.membership != Some(snapshot.membership) {
            self.membership = Some(snapshot.membership);
            self.fleet.begin(snapshot.readable_pools());
            changed.nodes.extend(snapshot.nodes.keys().cloned());
        }
        for name in changed.nodes {
            let Some(node) = snapshot.nodes.get(&name) else {
                self.fleet.remove(&name);
                self.writes.forget(&name);
                snapshot.open_targets.remove(&name);
                continue;
            };
            // One that was provisioned for a custom pool is not given to another one first.
            let is_unlabeled = provisioned::pending(&snapshot, node).is_some();
            let given = node.desired.config.as_ref().and_then(|config| snapshot.rendered.get(config));
            self.fleet.put(Arc::clone(node), given.map(|rendered| &*rendered.pool), is_unlabeled);
        }
        let (nodes, control_plane) = (self.fleet.len(), self.fleet.control_plane());
        let topology = Topology::new(snapshot.topology.as_deref(), nodes, control_plane);
        if changed.others || self.topology != topology {
            self.topology = topology;
            self.fleet.concern_all();
        }
        let living = living(&snapshot);
        self.forget(&living);
        let concerned = self.fleet.take_concerned();
        let concerned = concerned.iter().map(|name| &**name).chain(changed.pools.iter().map(String::as_str));
        for name in concerned {
            self.due.insert(name.to_owned(), Duration::ZERO);
        }
        self.due.retain(|name, _| living.contains(name));
    }

    fn decide(&mut self, name: &str, costs: &BTreeMap<String, NodeCost>) -> Option<Decision> {
        self.clock.observe(Timestamp::now(), uptime());
        self.writes.observe(uptime());
        let cache = self.cache.clone();
        let snapshot = cache.lock();
        decide(&snapshot, name, costs, self)
    }

    fn forget(&mut self, names: &BTreeSet<String>) {
        if self.measured == *names {
            return;
        }
        let gone = self.measured.difference(names);
        gone.for_each(|name| self.metrics.forget_pool(name));
        self.measured.clone_from(names);
        self.statuses.keep_pools(names);
    }

    fn measure(&self, pool: &str, status: &MachineConfigPoolStatus) {
        let counts = [
            ("total", status.machine_count),
            ("updated", status.updated_machine_count),
            ("ready", status.ready_machine_count),
            ("unavailable", status.unavailable_machine_count),
            ("degraded", status.degraded_machine_count),
        ];
        self.metrics.pool(pool, &counts.map(|(state, count)| (state, count.unwrap_or(0))));
        let conditions = status.conditions.as_deref().unwrap_or_default();
        self.metrics.conditions(pool, |name| {
            conditions.iter().any(|condition| condition.type_ == name && condition.status == "True")
        });
    }

    async fn emit_event(&self, pool: &MachineConfigPool, patch: &NodePatch) {
        let Some(pair) = &patch.pair else { return };
        let name = pool.metadata.name.clone().unwrap_or_default();
        let config = pair.config.as_deref().unwrap_or_default();
        let (reason, text) = match &pair.image {
            None => ("SetDesiredConfig", format!("Targeted node {} to MachineConfig {config}", patch.node)),
            Some(image) => (
                "SetDesiredConfigAndOSImage",
                format!("Targeted node {} to MachineConfig {config} / Image {image}", patch.node),
            ),
        };
        info!("Pool {name}: {text}");
        let about = About::pool(&name, pool.metadata.uid.as_deref().unwrap_or_default());
        emit(&self.client, &about, Severity::Normal, reason, &text).await;
    }

    fn writer(&self) -> StatusWriter {
        let (client, cache, metrics) = (self.client.clone(), self.cache.clone(), self.metrics.clone());
        StatusWriter { client, cache, metrics }
    }

    /// Returns the cost of the way of each config that nodes of a pool have to its target, and what they wait for.
    fn costs(&mut self, pool: &str) -> (BTreeMap<String, NodeCost>, Unknown) {
        let (target, from) = {
            let snapshot = self.cache.lock();
            let own_target = snapshot.pools.get(pool).and_then(|pool| pool.as_ref().ok()).and_then(target);
            let used = self.fleet.configs().filter(|name| snapshot.rendered.contains_key(*name));
            let used: BTreeSet<String> = used.cloned().collect();
            let all: BTreeSet<String> =
                snapshot.readable_pools().flat_map(named).chain(used.iter().cloned()).collect();
            let policy = match &snapshot.policy {
                Some(Ok(policy)) => policy.clone(),
                None | Some(Err(_)) => DisruptionPolicy::defaults(),
            };
            self.costs.retain(&all, &policy);
            let own =
                |name: &String| snapshot.rendered.get(name).is_some_and(|rendered| rendered.pool == pool);
            (own_target, used.into_iter().filter(own).collect::<Vec<_>>())
        };
        match target {
            Some(target) => self.costs.to(&self.client, pool, &target, &from),
            None => (BTreeMap::new(), Unknown::Nothing),
        }
    }
}

impl StatusWriter {
    /// Writes a status onto the observed version.
    async fn write_status<K, S>(
        &self,
        what: Write,
        object: &K,
        old: Option<&S>,
        new: &S,
    ) -> Result<Written, RequestError>
    where
        K: Resource<DynamicType = ()>,
        Lenient<K>: Identified + Resource<DynamicType = (), Scope = ClusterResourceScope>,
        S: serde::Serialize + PartialEq + Default,
    {
        if old == Some(new) || (old.is_none() && *new == S::default()) {
            return Ok(Written::Same);
        }
        let meta = object.meta();
        let name = meta.name.clone().unwrap_or_default();
        let body = json!({
            "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version },
            "status": merge(&json!(old), &json!(new)),
        });
        // Its answer may be of an object that can't be read.
        let api = Api::<Lenient<K>>::all(self.client.clone());
        let how = PatchParams::default();
        let written = write(what, api.patch_status(&name, &how, &Patch::Merge(&body))).await;
        let (outcome, now) = match written {
            Ok(now) => ("written", now),
            Err(error) => match judge(what, error, &Expected::of(meta), api.get(&name)).await? {
                Conflict::Changed(now) => ("conflict", now),
                Conflict::Gone => return Ok(self.gone::<K>(meta)),
            },
        };
        self.metrics.wrote("node", outcome);
        // A field that the definition does not have is dropped by the server: the same is not written for ever.
        let changed = now.meta().resource_version != meta.resource_version;
        self.cache.change(|snapshot| now.put(snapshot));
        Ok(match outcome {
            "conflict" => Written::Conflict,
            _ if changed => Written::Made,
            _ => Written::Same,
        })
    }

    /// Removes an object that is gone: what was decided by it does not count.
    fn gone<K>(&self, meta: &ObjectMeta) -> Written
    where
        Lenient<K>: Identified,
    {
        let (name, uid) = (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref());
        self.cache.change(|snapshot| Lenient::<K>::remove_gone(snapshot, name, uid));
        Written::Conflict
    }
}

/// Returns the pools whose nodes may be given a target. The rendered configs of one that is being deleted go before it does.
fn living(snapshot: &Snapshot) -> BTreeSet<String> {
    let lives = |pool: &Result<MachineConfigPool, UnreadablePool>| {
        pool.as_ref().is_ok_and(|pool| pool.metadata.deletion_timestamp.is_none())
    };
    snapshot.pools.iter().filter(|(_, pool)| lives(pool)).map(|(name, _)| name.clone()).collect()
}

/// Returns the configs that a pool names: its target, and the one that all nodes have.
fn named(pool: &MachineConfigPool) -> impl Iterator<Item = String> {
    let done = pool.status.as_ref().and_then(|status| status.configuration.as_ref());
    target(pool).into_iter().chain(done.and_then(|done| done.name.clone()))
}

fn target(pool: &MachineConfigPool) -> Option<String> {
    pool.spec.configuration.as_ref().and_then(|target| target.name.clone()).filter(|name| !name.is_empty())
}

/// Decides for one pool by the cached objects.
fn decide(
    snapshot: &Snapshot,
    name: &str,
    costs: &BTreeMap<String, NodeCost>,
    controller: &mut Controller,
) -> Option<Decision> {
    let object = snapshot.pools.get(name)?.as_ref().ok()?.clone();
    let standing = snapshot.standing(&object);
    if standing == Standing::Undecided {
        return None;
    }
    let policies: Vec<&RolloutPolicy> = snapshot
        .policies
        .values()
        .filter_map(|policy| policy.as_ref().ok())
        .filter(|policy| policy.pool() == name)
        .collect();
    let mut unreadable = snapshot.policies.values().filter_map(|policy| policy.as_ref().err());
    let unreadable = unreadable.find(|unreadable| unreadable.policy.pool() == name);
    let target = target(&object).unwrap_or_default();
    let pool = Pool {
        unread: unread::message(snapshot, &unread::NODE)
            .or_else(|| unread::unwatched_operator(snapshot, uptime())),
        contested: (standing == Standing::Contested).then(|| CONTESTED.to_owned()),
        own_target: snapshot.own_target(&object).and_then(|own| own.configs.last().cloned()),
        unrecorded: controller.statuses.unrecorded(name),
        is_status_failing: controller.statuses.failure(&about_pool(&object)).is_some(),
        halted: controller.statuses.halted(&object),
        resumed: controller.statuses.resumed(&object),
        layering: layering(name, &target, &snapshot.os_configs, &snapshot.os_builds),
        os_image: os_image(&object, snapshot),
        unavailable_elsewhere: controller.fleet.unavailable_elsewhere(name),
        held_elsewhere: controller.fleet.held_elsewhere(name),
        left: controller.fleet.left(name),
        topology: controller.topology.clone(),
        selector_error: controller.fleet.error(name).cloned(),
        unlabeled: provisioned::unlabeled(snapshot, name, &controller.fleet, &controller.writes),
        undrained: undrained(snapshot, name, &mut controller.fleet),
        has_plan: controller.pools_definition.has_plan(),
        policies: policies.iter().map(|policy| known(policy, snapshot)).collect(),
        unreadable_policy: unreadable
            .map(|unreadable| rollout::unreadable(&unreadable.policy, &unreadable.cause)),
        unreadable_memory: unreadable.and_then(|unreadable| unreadable.policy.status.clone()),
        ..Pool::from_pool(&object)
    };
    let input = rollout::RolloutInput {
        pool: &pool,
        conflicts: &controller.fleet.conflicts(name),
        costs,
        now: Timestamp::now(),
        clock: &controller.clock,
        writes: &controller.writes,
    };
    let mut decided = rollout(&input, controller.fleet.census(name)?);
    controller.fleet.mark_left(name, &mut decided.patches);
    controller.statuses.decided(&object, &decided.status);
    Some(Decision {
        pool: object,
        target: pool.target(),
        policy: policies.first().map(|policy| (*policy).clone()),
        rollout: decided,
    })
}

fn about_pool(pool: &MachineConfigPool) -> About {
    About::pool(
        pool.metadata.name.as_deref().unwrap_or_default(),
        pool.metadata.uid.as_deref().unwrap_or_default(),
    )
}

/// Returns the nodes of a pool that the drain controller can't write to.
fn undrained(snapshot: &Snapshot, pool: &str, fleet: &mut Fleet) -> Vec<Undrained> {
    let Some(census) = fleet.census(pool).filter(|_| !snapshot.undrained.is_empty()) else {
        return Vec::new();
    };
    let own = snapshot.undrained.iter().filter(|(node, _)| census.contains(node));
    own.map(|(node, (answer, cause))| Undrained { node: node.clone(), answer: *answer, cause: cause.clone() })
        .collect()
}

/// Reads a policy. No node returns to a config that is gone: those of a pool go with it, and a pool of its name is another one. Nor to one
/// of another pool, which the policy was for.
fn known(policy: &RolloutPolicy, snapshot: &Snapshot) -> Policy {
    let pool = policy.pool();
    let is_of_pool =
        |config: &String| snapshot.rendered.get(config).is_some_and(|rendered| rendered.pool == pool);
    let mut policy = Policy::from_policy(policy);
    policy.status.last_good.take_if(|good| !is_of_pool(&good.config));
    policy
}

/// Returns the image of a target that names another one than the config that all nodes have.
fn os_image(pool: &MachineConfigPool, snapshot: &Snapshot) -> Option<String> {
    let image = |name: Option<String>| snapshot.rendered.get(&name?)?.image.clone();
    let done = pool.status.as_ref().and_then(|status| status.configuration.as_ref());
    let new = image(target(pool))?;
    (image(done.and_then(|done| done.name.clone())).as_ref() != Some(&new)).then_some(new)
}

#[cfg(test)]
mod tests;
