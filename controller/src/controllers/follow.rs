//! Watches that fill the cache. An expired watch starts with a new list: objects missing in it are removed.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tracing::{info, warn};

use super::build::OpenShiftBuild;
use super::cache::{Cache, Snapshot};
use super::cached::Cached;
use super::failure::Failure;
use super::node::NodeObject;
use super::untyped::{ControllerConfig, MachineConfiguration, MachineOsBuild, MachineOsConfig};
use crate::api::{MachineConfig, MachineConfigPool, RolloutPolicy};
use crate::reading::Lenient;

/// Follows a kind for as long as it is polled. One that nothing defines is waited for.
pub(super) async fn follow<K: Cached>(api: Api<K>, cache: Cache) {
    if let Some(definition) = K::KIND.definition() {
        let defined = |snapshot: &Snapshot| snapshot.definitions.contains_key(definition);
        if !defined(&cache.lock()) {
            cache.until(defined).await;
        }
    }
    let mut events = pin!(watcher(api, config::<K>()).default_backoff());
    let mut listed = BTreeSet::new();
    let mut failing = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if std::mem::take(&mut failing) {
                    info!("{:?} are watched again", K::KIND);
                    cache.change(|snapshot| snapshot.failing.remove(&K::KIND).is_some());
                }
                apply(&cache, &mut listed, event);
            }
            Err(error) => {
                let failure = Failure::new(&error);
                // Not each try: a server that is away for an hour is one line.
                if !std::mem::replace(&mut failing, true) {
                    warn!("{:?} can't be watched: {}", K::KIND, failure.cause);
                    // An expired watch starts over: nothing is stale.
                    let is_news = failure.code != 410;
                    cache.change(|snapshot| is_news && snapshot.failing.insert(K::KIND, failure).is_none());
                }
            }
        }
    }
}

/// By name where one object is meant: RBAC grants that one.
fn config<K: Cached>() -> watcher::Config {
    let config = watcher::Config::default();
    let config = K::LABELS.into_iter().fold(config, watcher::Config::labels);
    match K::NAME {
        Some(name) => config.fields(&format!("metadata.name={name}")),
        None => config,
    }
}

fn apply<K: Cached>(cache: &Cache, listed: &mut BTreeSet<String>, event: Event<K>) {
    let name = |object: &K| object.meta().name.clone().unwrap_or_default();
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.insert(name(&object));
            // No decision is made before the first list is complete.
            cache.change(|snapshot| object.put(snapshot) && snapshot.synced.contains(&K::KIND));
        }
        Event::InitDone => cache.change(|snapshot| {
            let gone: Vec<String> = K::names(snapshot).difference(listed).cloned().collect();
            let lost = gone.iter().filter(|name| K::remove(snapshot, name)).count();
            listed.clear();
            snapshot.synced.insert(K::KIND) || lost > 0
        }),
        Event::Apply(object) => cache.change(|snapshot| object.put(snapshot)),
        Event::Delete(object) => cache.change(|snapshot| K::remove(snapshot, &name(&object))),
    }
}

/// Follows all kinds; those of builds in a namespace, where there is a controller of them.
pub(super) async fn all(client: Client, cache: Cache, builds_in: Option<String>) {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(follow(
        Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone()),
        cache.clone(),
    ));
    tasks.spawn(follow(Api::<Lenient<MachineConfigPool>>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<Lenient<MachineConfig>>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<NodeObject>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<ControllerConfig>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<MachineConfiguration>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<Lenient<RolloutPolicy>>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<MachineOsConfig>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<MachineOsBuild>::all(client.clone()), cache.clone()));
    if let Some(namespace) = builds_in {
        tasks.spawn(follow(Api::<Job>::namespaced(client.clone(), &namespace), cache.clone()));
        tasks.spawn(follow(Api::<Secret>::namespaced(client.clone(), &namespace), cache.clone()));
        tasks.spawn(async move {
            cache.until(Snapshot::uses_openshift_builds).await;
            follow(Api::<OpenShiftBuild>::namespaced(client, &namespace), cache).await;
        });
    }
    // None of them ends.
    while tasks.join_next().await.is_some() {}
}
