//! Cache of observed objects, reduced, by name, with notification of changes.
//!
//! Invariant: an object goes back to an older version by a list alone. What a write answers is put here at once, so the next decision
//! knows of the last one; the watch may be behind it. A list is the server's state: what it has replaces what is here, also by an older
//! version, which there is after a restore of etcd. Only what was put here since the list was asked for stays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::ObjectMeta;
use tokio::sync::watch;

use super::build::{BuildJob, ObservedSecret};
use super::failure::Failure;
use super::layering::{OsBuild, OsConfig};
use super::stored_config::StoredConfig;
use crate::api::{MachineConfig, MachineConfigPool, RolloutPolicy};
use crate::build::BuilderType;
use crate::model::NotApplied;
use crate::model::policy::DisruptionPolicy;
use crate::opt_in::{CONTAINERFILES, OS_IMAGE, SETTINGS};
use crate::render::Release;
use crate::rollout::{Answer, Node};
use crate::view::Progress;

/// So many objects that ended are known: far more than end while one answer is awaited.
const MAX_GONE: usize = 1000;

/// The answer to a watch whose version is too old.
const EXPIRED: u16 = 410;

/// A kind that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Definitions,
    Pools,
    Configs,
    Nodes,
    ControllerConfig,
    Policy,
    RolloutPolicies,
    OsConfigs,
    OsBuilds,
    ConfigNodes,
    BuildSettings,
    OsImage,
    Containerfiles,
    Jobs,
    OpenShiftBuilds,
    Secrets,
    /// The Lease of this program's replicas.
    Lease,
    /// The Leases of the Machine Config Operator.
    OperatorLeases,
    /// Disruption budgets, which are watched while a drain lasts.
    Budgets,
    /// Pods of a node, which are watched while it is drained.
    Pods,
}

/// Fields of a rendered config that are always known. Contents are read when they are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RenderedConfig {
    pub(super) pool: String,
    /// UID of the pool that controls it. A pool of the same name may be another one.
    pub(super) pool_uid: String,
    /// This program rendered it: what another one made is left alone.
    pub(super) is_own: bool,
    /// Its OS image, where it has one.
    pub(super) image: Option<String>,
    /// Version of the program that made it.
    pub(super) made_by: Option<String>,
    pub(super) uid: String,
    pub(super) version: String,
    pub(super) made: Option<k8s_openapi::jiff::Timestamp>,
    /// Generation of the spec; a rendered config that was edited has another one than 1.
    pub(super) generation: i64,
}

/// A pool that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnreadablePool {
    pub(super) uid: Option<String>,
    pub(super) cause: String,
}

/// A policy that can't be read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UnreadablePolicy {
    /// Its metadata, its pool and its status alone.
    pub(super) policy: RolloutPolicy,
    pub(super) cause: String,
}

/// Targets of a pool, as the render controller gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnTarget {
    /// Uid of the pool.
    pub(super) uid: Option<String>,
    /// Rendered configs that nodes may be given: the pool's target, and the one that is being written.
    pub(super) configs: Vec<String>,
    /// Another program sets it back.
    pub(super) is_contested: bool,
}

/// Objects that changed since a controller read them last: of a change of one it need not read all.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Something else than the pools and nodes that are named.
    pub(super) others: bool,
    pub(super) pools: BTreeSet<String>,
    /// Also those of which nothing but the version changed.
    pub(super) nodes: BTreeSet<String>,
}

/// Certainty that objects are of one state of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Certainty {
    #[default]
    OneState,
    InDoubt,
}

/// The observed objects of all kinds.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// One for each [`Journal`].
    journals: Vec<Changed>,
    /// The change that is being made is in the journals by its name.
    is_journaled: bool,
    /// It grows with each change but those of what nodes report of themselves.
    contents: u64,
    /// It grows with each change of the rendered objects' sources: not with nodes, nor with a pool's status.
    pub(super) inputs: u64,
    /// It grows with each change of pools and rendered configs that decides which nodes are in which pool.
    pub(super) membership: u64,
    pub(super) synced: BTreeSet<Kind>,
    /// Uids of the objects that ended last: an answer to a write that comes later does not bring one back.
    gone: VecDeque<String>,
    /// Kinds that are to be listed again, because the API server went back to an earlier state.
    unlisted: BTreeSet<Kind>,
    /// The number of restores of the API server at the beginning of the last list, and of the last one that was read.
    begun: BTreeMap<Kind, u64>,
    listed: BTreeMap<Kind, u64>,
    /// Certainty that all objects here are of one state of the API server.
    certainty: Certainty,
    /// Kinds whose list is being read, with the names of the objects that were put here by others since it was asked for.
    lists: BTreeMap<Kind, BTreeSet<String>>,
    /// The object that is put here is of a list, and counts whatever its version is.
    takes_older: bool,
    /// The last one did not count, because a later version is here.
    has_refused: bool,
    /// The definitions of kinds by name, with the version of their schemas: uid and generation.
    pub(super) definitions: BTreeMap<String, String>,
    pub(super) pools: BTreeMap<String, Result<MachineConfigPool, UnreadablePool>>,
    /// MachineConfigs that are rendered from; with their labels where they can't be read.
    pub(super) configs: BTreeMap<String, StoredConfig>,
    pub(super) unreadable: BTreeMap<String, (ObjectMeta, String)>,
    /// Fields of MachineConfigs that nobody knows.
    pub(super) unknown_fields: BTreeMap<String, Vec<NotApplied>>,
    /// The same of the objects of which a cluster has one, with their UIDs.
    pub(super) unknown_of_shared: BTreeMap<Kind, (String, Vec<NotApplied>)>,
    pub(super) rendered: BTreeMap<String, RenderedConfig>,
    pub(super) nodes: BTreeMap<String, Arc<Node>>,
    /// Nodes that the API server may still give a target by a write that it has not answered.
    pub(super) open_targets: BTreeSet<String>,
    /// Images of the release, or what is wrong with the `ControllerConfig`.
    pub(super) release: Option<Result<Release, String>>,
    /// Topology of the control plane, where the cluster names it.
    pub(super) topology: Option<String>,
    pub(super) policy: Option<Result<DisruptionPolicy, String>>,
    pub(super) policies: BTreeMap<String, Result<RolloutPolicy, UnreadablePolicy>>,
    pub(super) os_configs: BTreeMap<String, OsConfig>,
    pub(super) os_builds: BTreeMap<String, OsBuild>,
    /// `ConfigMap`s of pools that opt into image mode, by name.
    pub(super) config_maps: BTreeMap<&'static str, BTreeMap<String, String>>,
    /// Jobs of builds.
    pub(super) jobs: BTreeMap<String, BuildJob>,
    /// Builds of OpenShift.
    pub(super) openshift_builds: BTreeMap<String, BuildJob>,
    /// Secrets in the namespace of builds, without their data.
    pub(super) secrets: BTreeMap<String, ObservedSecret>,
    /// Progress of each `MachineConfigNode`.
    pub(super) progress: BTreeMap<String, Progress>,
    /// Nodes whose cordons, uncordons and answers to agents the API server refuses, or does not answer, with the cause.
    pub(super) undrained: BTreeMap<String, (Answer, String)>,
    /// The targets that this process gives pools, if it renders.
    pub(super) own_targets: Option<BTreeMap<String, OwnTarget>>,
    /// Nodes that are drained and whose pods the API server does not let be read.
    pub(super) unread_pods: BTreeMap<String, Failure>,
    /// The Lease can't be written: object, cause and next step.
    pub(super) unwritten_lease: Option<String>,
    /// Kinds that can't be read now.
    pub(super) failing: BTreeMap<Kind, Failure>,
    /// Kinds whose watch is down, with the time at which it broke.
    down: BTreeMap<Kind, Duration>,
}

impl Snapshot {
    /// Records the fields that nobody knows of the one object of a kind; returns true if they changed.
    pub(super) fn put_unknown(&mut self, kind: Kind, uid: Option<String>, unknown: Vec<NotApplied>) -> bool {
        let new = (!unknown.is_empty()).then(|| (uid.unwrap_or_default(), unknown));
        if self.unknown_of_shared.get(&kind) == new.as_ref() {
            return false;
        }
        match new {
            Some(new) => drop(self.unknown_of_shared.insert(kind, new)),
            None => drop(self.unknown_of_shared.remove(&kind)),
        }
        true
    }

    /// Returns the images of the release: none where the cluster has no `ControllerConfig`.
    pub(super) fn release(&self) -> Result<Release, String> {
        self.release.clone().unwrap_or_else(|| Ok(Release::default()))
    }

    /// Begins to read the list of a kind, after so many restores of the API server.
    pub(super) fn begin_list(&mut self, kind: Kind, restores: u64) {
        self.lists.insert(kind, BTreeSet::new());
        self.begun.insert(kind, restores);
    }

    /// Ends it; returns the names of the objects that were put here meanwhile.
    pub(super) fn end_list(&mut self, kind: Kind) -> BTreeSet<String> {
        self.lists.remove(&kind).unwrap_or_default()
    }

    /// Records that the list of a kind was read; returns true if it was not known.
    pub(super) fn set_listed(&mut self, kind: Kind) -> bool {
        self.unlisted.remove(&kind);
        let restores = self.begun.get(&kind).copied().unwrap_or_default();
        self.listed.insert(kind, restores);
        self.synced.insert(kind)
    }

    /// Records that what is here is of another time than the API server's state, which was restored so many times; returns true if
    /// something was known. A kind may have been listed again already.
    pub(super) fn unlist(&mut self, restores: u64) -> bool {
        // Of Leases nothing is kept here, and one may be read once only.
        let is_before = |kind: &Kind| {
            !matches!(kind, Kind::Lease | Kind::OperatorLeases) && self.listed.get(kind) != Some(&restores)
        };
        let known: Vec<Kind> = self.synced.iter().copied().filter(is_before).collect();
        self.synced.retain(|kind| !known.contains(kind));
        let is_known = !known.is_empty();
        self.unlisted.extend(known);
        is_known
    }

    /// Records whether what is here may be of several states; returns true if it no longer is: what waited is decided.
    pub(super) fn set_in_doubt(&mut self, is_in_doubt: bool) -> bool {
        let now = if is_in_doubt { Certainty::InDoubt } else { Certainty::OneState };
        let before = std::mem::replace(&mut self.certainty, now);
        self.inputs_changed(before == Certainty::InDoubt && !is_in_doubt)
    }

    /// Returns true if kinds are about to be listed again, or may be of several states: no decision is made by a part of them.
    pub(super) fn is_between_states(&self) -> bool {
        self.certainty == Certainty::InDoubt
            || self.unlisted.iter().any(|kind| !self.failing.contains_key(kind))
    }

    /// Records the end of an object.
    pub(super) fn note_gone(&mut self, object: &ObjectMeta) {
        let Some(uid) = object.uid.clone() else { return };
        self.gone.push_back(uid);
        if self.gone.len() > MAX_GONE {
            self.gone.pop_front();
        }
    }

    /// Returns true for an object whose end the watch has brought.
    pub(super) fn is_gone(&self, object: &ObjectMeta) -> bool {
        object.uid.as_ref().is_some_and(|uid| self.gone.contains(uid))
    }

    /// Puts an object here by `insert`, beside the list of its kind if that is being read.
    pub(super) fn insert_beside_list(
        &mut self,
        kind: Kind,
        name: &str,
        insert: impl FnOnce(&mut Self) -> bool,
    ) -> bool {
        self.has_refused = false;
        let changed = insert(self);
        if let Some(names) = self.lists.get_mut(&kind).filter(|_| !self.has_refused) {
            names.insert(name.to_owned());
        }
        changed
    }

    /// Puts an object of a list here by `insert`.
    pub(super) fn insert_listed(
        &mut self,
        kind: Kind,
        name: &str,
        insert: impl FnOnce(&mut Self) -> bool,
    ) -> bool {
        self.takes_older = self.lists.get(&kind).is_some_and(|names| !names.contains(name));
        let changed = insert(self);
        self.takes_older = false;
        changed
    }

    /// Returns true if an object counts although a later version is here.
    pub(super) fn takes_older(&self) -> bool {
        self.takes_older
    }

    /// Returns true if an object does not count because a later version is here.
    pub(super) fn refuses(&mut self, is_older: bool) -> bool {
        self.has_refused = is_older && !self.takes_older;
        self.has_refused
    }

    /// Records that a kind can be read; returns true if that is news.
    pub(super) fn is_read(&mut self, kind: Kind) -> bool {
        let was_failing = self.recovers(kind);
        self.set_listed(kind) || was_failing
    }

    /// Records that a kind can't be read; returns true if that, or its cause, is news. A watch that has expired starts over: nothing is stale,
    /// unless that lasts.
    pub(super) fn fails(&mut self, kind: Kind, failure: &Failure, now: Duration) -> bool {
        self.down.entry(kind).or_insert(now);
        if failure.code == EXPIRED {
            return false;
        }
        if self.failing.get(&kind).is_some_and(|known| known.is_same(failure)) {
            return false;
        }
        self.failing.insert(kind, failure.clone());
        true
    }

    /// Records that a kind is watched; returns true if that is news.
    pub(super) fn recovers(&mut self, kind: Kind) -> bool {
        self.down.remove(&kind);
        self.failing.remove(&kind).is_some()
    }

    /// Returns for how long the watch of a kind has been down.
    pub(super) fn is_down_for(&self, kind: Kind, now: Duration) -> Option<Duration> {
        self.down.get(&kind).map(|since| now.saturating_sub(*since))
    }

    /// Returns true if a kind is known in full: its list was read, or nothing defines it.
    pub(super) fn knows(&self, kind: Kind) -> bool {
        self.synced.contains(&kind) || self.lacks(kind)
    }

    /// Returns true if nothing defines a kind.
    pub(super) fn lacks(&self, kind: Kind) -> bool {
        let undefined =
            |name: &str| self.synced.contains(&Kind::Definitions) && !self.definitions.contains_key(name);
        kind.definition().is_some_and(undefined)
    }

    /// Returns true if some image is built by a Build of OpenShift. Where none is, the kind is neither needed nor permitted.
    pub(super) fn uses_openshift_builds(&self) -> bool {
        let configs = self.os_configs.values().map(|config| &config.builder);
        let builds = self.os_builds.values().map(|build| &build.builder);
        configs.chain(builds).any(|builder| *builder == BuilderType::OpenShiftBuild)
    }

    /// Records a change of the sources of rendered configs, if there was one; returns true if so.
    pub(super) fn inputs_changed(&mut self, changed: bool) -> bool {
        self.inputs = self.inputs.wrapping_add(u64::from(changed));
        changed
    }

    /// Records a change of a node. One of its report alone, as of its readiness, wakes only those who follow it.
    pub(super) fn node_changed(&mut self, name: &str, is_report: bool) {
        self.is_journaled = true;
        self.contents = self.contents.wrapping_add(u64::from(!is_report));
        for journal in &mut self.journals {
            journal.nodes.insert(name.to_owned());
        }
    }

    /// Records a change of a pool.
    pub(super) fn pool_changed(&mut self, name: &str) {
        self.is_journaled = true;
        self.contents = self.contents.wrapping_add(1);
        for journal in &mut self.journals {
            journal.pools.insert(name.to_owned());
        }
    }

    /// Records a change of anything else.
    pub(super) fn others_changed(&mut self) {
        self.contents = self.contents.wrapping_add(1);
        for journal in &mut self.journals {
            journal.others = true;
        }
    }

    /// Records a change of what decides which nodes are in which pool, if there was one.
    pub(super) fn membership_changed(&mut self, changed: bool) {
        self.membership = self.membership.wrapping_add(u64::from(changed));
    }

    /// Returns some of the MachineConfigs that are rendered from, whole. They are chosen without their Ignition configs.
    pub(super) fn whole_configs(
        &self,
        is_chosen: impl Fn(&str, &MachineConfig) -> bool,
    ) -> BTreeMap<String, MachineConfig> {
        let chosen = self.configs.iter().filter(|(name, stored)| is_chosen(name, &stored.object));
        chosen.map(|(name, stored)| (name.clone(), stored.whole())).collect()
    }

    /// Returns the pools that can be read.
    pub(super) fn readable_pools(&self) -> impl Iterator<Item = &MachineConfigPool> {
        self.pools.values().filter_map(|pool| pool.as_ref().ok())
    }
}

impl Kind {
    /// Returns the name of its definition, unless the API server has it by itself.
    pub(super) const fn definition(self) -> Option<&'static str> {
        match self {
            Self::Definitions
            | Self::Nodes
            | Self::BuildSettings
            | Self::OsImage
            | Self::Containerfiles
            | Self::Jobs
            | Self::OpenShiftBuilds
            | Self::Secrets
            | Self::Lease
            | Self::OperatorLeases
            | Self::Budgets
            | Self::Pods => None,
            Self::Pools => Some("machineconfigpools.machineconfiguration.openshift.io"),
            Self::Configs => Some("machineconfigs.machineconfiguration.openshift.io"),
            Self::ControllerConfig => Some("controllerconfigs.machineconfiguration.openshift.io"),
            Self::Policy => Some("machineconfigurations.operator.openshift.io"),
            Self::RolloutPolicies => Some("rolloutpolicies.machine-config-agent.io"),
            Self::OsConfigs => Some("machineosconfigs.machineconfiguration.openshift.io"),
            Self::OsBuilds => Some("machineosbuilds.machineconfiguration.openshift.io"),
            Self::ConfigNodes => Some("machineconfignodes.machineconfiguration.openshift.io"),
        }
    }

    /// Returns its name for people, with that of the object where one is meant.
    pub(super) fn named(self) -> String {
        let of_one = [
            (Self::BuildSettings, SETTINGS),
            (Self::OsImage, OS_IMAGE),
            (Self::Containerfiles, CONTAINERFILES),
        ];
        let resource = self.resource();
        match of_one.into_iter().find(|(kind, _)| *kind == self) {
            Some((_, object)) => format!("{resource} ({object})"),
            None => resource.to_owned(),
        }
    }

    /// Returns its name in requests and metrics.
    pub(super) fn resource(self) -> &'static str {
        let own = [
            (Self::Nodes, "nodes"),
            (Self::Jobs, "jobs"),
            // An extension API server of OpenShift has them: no definition names them.
            (Self::OpenShiftBuilds, "builds.build.openshift.io"),
            (Self::Secrets, "secrets"),
            (Self::Lease, "leases.coordination.k8s.io"),
            (Self::OperatorLeases, "leases.coordination.k8s.io"),
            (Self::Budgets, "poddisruptionbudgets"),
            (Self::Pods, "pods"),
            (Self::BuildSettings, "configmaps"),
            (Self::OsImage, "configmaps"),
            (Self::Containerfiles, "configmaps"),
        ];
        let own = own.into_iter().find(|(kind, _)| *kind == self).map(|(_, name)| name);
        self.definition().or(own).unwrap_or("customresourcedefinitions.apiextensions.k8s.io")
    }
}

/// A handle of the cache; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    snapshot: Arc<Mutex<Snapshot>>,
    changed: watch::Sender<u64>,
    inputs: watch::Sender<u64>,
    contents: watch::Sender<u64>,
}

/// Changes since they were read last.
#[derive(Debug)]
pub(super) struct Journal(usize);

impl Journal {
    /// Returns the changes, and begins anew.
    pub(super) fn take(&self, snapshot: &mut Snapshot) -> Changed {
        snapshot.journals.get_mut(self.0).map(std::mem::take).unwrap_or_default()
    }
}

impl Cache {
    pub(super) fn new() -> Self {
        let channel = || watch::channel(0).0;
        Self { snapshot: Arc::default(), changed: channel(), inputs: channel(), contents: channel() }
    }

    /// Begins a journal, for as long as the process runs. At first everything has changed.
    pub(super) fn journal(&self) -> Journal {
        let mut snapshot = self.lock();
        let nodes = snapshot.nodes.keys().cloned().collect();
        snapshot.journals.push(Changed { others: true, pools: BTreeSet::new(), nodes });
        Journal(snapshot.journals.len() - 1)
    }

    /// Locks the cache. Never held across a wait.
    pub(super) fn lock(&self) -> MutexGuard<'_, Snapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change; wakes the receivers if it returns true.
    pub(super) fn change(&self, change: impl FnOnce(&mut Snapshot) -> bool) {
        let (changed, inputs, contents) = {
            let mut snapshot = self.lock();
            snapshot.is_journaled = false;
            let changed = change(&mut snapshot);
            if changed && !snapshot.is_journaled {
                snapshot.others_changed();
            }
            (changed, snapshot.inputs, snapshot.contents)
        };
        self.inputs.send_if_modified(|known| std::mem::replace(known, inputs) != inputs);
        self.contents.send_if_modified(|known| std::mem::replace(known, contents) != contents);
        if changed {
            self.changed.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Returns a receiver of changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns a receiver of changes but those of what nodes report of themselves: their configs are none of these.
    pub(super) fn contents(&self) -> watch::Receiver<u64> {
        self.contents.subscribe()
    }

    /// Returns a receiver of changes of the sources of rendered configs.
    pub(super) fn inputs(&self) -> watch::Receiver<u64> {
        self.inputs.subscribe()
    }

    /// Waits until something holds.
    pub(super) async fn until(&self, mut holds: impl FnMut(&Snapshot) -> bool) {
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            if holds(&self.lock()) {
                return;
            }
            // The cache itself keeps the sender.
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
