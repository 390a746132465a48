//! Watches that fill the cache. An expired watch starts with a new list: objects missing in it are removed, and so do those of an API server
//! that went back to an earlier state.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::build::OpenShiftBuild;
use super::cache::{Cache, Kind, Snapshot};
use super::cached::Cached;
use super::client::uptime;
use super::config::WatchedConfig;
use super::failure::Failure;
use super::node::NodeObject;
use super::outage;
use super::unread::failure_text;
use super::untyped::{MachineOsBuild, MachineOsConfig, Untyped};
use crate::api::{ControllerConfig, MachineConfigPool, MachineConfiguration, RolloutPolicy};
use crate::reading::Lenient;
use crate::retry::is_same;
use crate::watches;
use crate::watches::{Answers, Pauses, Starting};

/// A watch that held for so long begins its back-off anew when it breaks.
const HELD: Duration = Duration::from_secs(60);

/// Follows a kind for as long as it is polled. One that nothing defines is waited for.
pub(super) async fn follow<K: Cached>(api: Api<K>, cache: Cache) {
    if let Some(definition) = K::KIND.definition() {
        // Where the definitions may not be read, the kind itself tells.
        let defined = |snapshot: &Snapshot| {
            let of_definitions = snapshot.failing.get(&Kind::Definitions);
            snapshot.definitions.contains_key(definition) || of_definitions.is_some_and(Failure::is_refusal)
        };
        if !defined(&cache.lock()) {
            cache.until(defined).await;
        }
    }
    let mut answers = Answers::of(api.resource_url(), &config::<K>());
    let mut events = pin!(watches::objects(api, config::<K>()));
    let mut listed = BTreeSet::new();
    let mut state = WatchState::new(K::KIND);
    loop {
        let event = tokio::select! {
            biased;
            // A watch without a change has no event.
            _ = answers.next(), if state.is_failing => {
                state.answered = Some(Instant::now());
                continue;
            }
            () = state.proven(), if state.is_failing && state.answered.is_some() => {
                state.recovered(&cache);
                continue;
            }
            event = events.next() => event,
        };
        match event {
            Some(Ok(event)) => {
                // A list that begins is none that is answered, and one that ends may have no watch.
                if matches!(event, Event::Apply(_) | Event::Delete(_)) {
                    state.recovered(&cache);
                    state.pauses.reset();
                }
                apply(&cache, &mut listed, event);
            }
            Some(Err(error)) => {
                let failure = Failure::new(&error).with_retry_after(answers.retry_after());
                let held = watches::held(&mut answers, &error);
                let wait = state.failed(&cache, failure, held);
                watches::pause(wait).await;
            }
            None => return,
        }
    }
}

/// State of a watch.
struct WatchState {
    kind: Kind,
    is_failing: bool,
    /// When it was answered after it failed.
    answered: Option<Instant>,
    pauses: Pauses,
    starting: Starting,
    /// The cause that was logged last. The same one is logged again only after the watch has held.
    logged: Option<String>,
    since: Instant,
}

impl WatchState {
    fn new(kind: Kind) -> Self {
        let pauses = Pauses::new(kind.resource());
        Self {
            kind,
            is_failing: false,
            answered: None,
            pauses,
            starting: Starting::default(),
            logged: None,
            since: Instant::now(),
        }
    }

    /// Waits until it has been answered for a time: one that is ended at once, or can't be read, is not well.
    async fn proven(&self) {
        match self.answered {
            Some(at) => sleep_until(at + watches::PROVEN).await,
            None => std::future::pending().await,
        }
    }

    /// Reports that it is watched.
    fn recovered(&mut self, cache: &Cache) {
        self.starting.answered();
        if std::mem::take(&mut self.is_failing) {
            self.since = Instant::now();
            if self.logged.is_some() {
                info!("Watch of {} recovered", self.kind.named());
            }
            cache.change(|snapshot| snapshot.recovers(self.kind));
        }
    }

    /// Reports that it is not; returns the pause before the next try. It was answered for a time before.
    fn failed(&mut self, cache: &Cache, failure: Failure, held: Option<Duration>) -> Duration {
        let is_starting = self.starting.takes(failure.code);
        let failure = if is_starting { failure.of_start() } else { failure };
        if !self.is_failing && self.since.elapsed() > HELD {
            self.logged = None;
        }
        (self.is_failing, self.answered) = (true, None);
        // Log once per outage; outages that pass are logged for all kinds together.
        let is_told = self.logged.as_ref().is_some_and(|logged| is_same(logged, &failure.cause));
        if failure.is_refusal() && !is_told {
            warn!("{}", failure_text(self.kind, Some(&failure)));
            self.logged = Some(failure.cause.clone());
        }
        let kind = self.kind;
        cache.change(|snapshot| snapshot.fails(kind, &failure, uptime()));
        // One that is about to be answered is soon asked for again.
        let held = if is_starting { Some(Duration::ZERO) } else { held };
        self.pauses.after(failure.code, failure.retry_after, held)
    }
}

/// By name where one object is meant: RBAC grants that one.
fn config<K: Cached>() -> watcher::Config {
    let config = watches::config().page_size(K::PAGE_SIZE);
    let config = K::LABELS.into_iter().fold(config, watcher::Config::labels);
    match K::NAME {
        Some(name) => config.fields(&format!("metadata.name={name}")),
        None => config,
    }
}

fn apply<K: Cached>(cache: &Cache, listed: &mut BTreeSet<String>, event: Event<K>) {
    let name = |object: &K| object.meta().name.clone().unwrap_or_default();
    match event {
        Event::Init => {
            listed.clear();
            cache.lock().begin_list(K::KIND, watches::restores());
        }
        Event::InitApply(object) => {
            let name = name(&object);
            // No decision is made before the first list is complete.
            cache.change(|snapshot| {
                let changed = snapshot.insert_listed(K::KIND, &name, |snapshot| object.insert(snapshot));
                changed && snapshot.synced.contains(&K::KIND)
            });
            listed.insert(name);
        }
        Event::InitDone => cache.change(|snapshot| {
            listed.append(&mut snapshot.end_list(K::KIND));
            let gone: Vec<String> = K::names(snapshot).difference(listed).cloned().collect();
            let lost = gone.iter().filter(|name| K::remove(snapshot, name)).count();
            listed.clear();
            let is_first = snapshot.set_listed(K::KIND);
            if is_first {
                snapshot.inputs_changed(true);
                snapshot.others_changed();
            }
            is_first || lost > 0
        }),
        Event::Apply(object) => cache.change(|snapshot| object.put_watched(snapshot)),
        Event::Delete(object) => cache.change(|snapshot| object.remove_deleted(snapshot)),
    }
}

/// Has nothing decided by what is known while that may be of several states, and, as soon as the API server has gone back, before each kind
/// is listed again. At once for all kinds: a watch that waits for its next try would tell late.
async fn follow_history(cache: Cache) {
    let mut history = watches::history();
    let mut known = history.borrow_and_update().restores();
    while history.changed().await.is_ok() {
        let (restores, is_in_doubt) = {
            let history = history.borrow_and_update();
            (history.restores(), history.is_in_doubt())
        };
        let is_restored = std::mem::replace(&mut known, restores) != restores;
        cache.change(|snapshot| {
            let is_unlisted = is_restored && snapshot.unlist(restores);
            snapshot.set_in_doubt(is_in_doubt) || is_unlisted
        });
    }
}

/// Follows all kinds; those of builds in a namespace, where there is a controller of them.
pub(super) async fn all(client: Client, cache: Cache, builds_in: Option<String>) {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(follow_history(cache.clone()));
    tasks.spawn(outage::tell(cache.clone()));
    tasks.spawn(follow(
        Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone()),
        cache.clone(),
    ));
    tasks.spawn(follow(Api::<Lenient<MachineConfigPool>>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<WatchedConfig>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<NodeObject>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<Lenient<ControllerConfig>>::all(client.clone()), cache.clone()));
    tasks.spawn(follow(Api::<Untyped<MachineConfiguration>>::all(client.clone()), cache.clone()));
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
    // Each of them runs until it is aborted.
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn object<K: DeserializeOwned>(uid: &str, version: &str) -> K {
        let metadata = json!({ "name": "one", "uid": uid, "resourceVersion": version });
        serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap()
    }

    /// An object was made again with the same name, and the answer to its creation is here. The watch begins again where it ended, and brings
    /// the one before, with its end.
    fn older_object_does_not_replace_the_one_that_was_made_later<K: Cached + DeserializeOwned + Debug>() {
        let cache = Cache::new();
        let mut listed = BTreeSet::new();
        let mut play = |event: Event<K>| apply(&cache, &mut listed, event);
        let uid = || K::uid(&cache.lock(), "one").map(str::to_owned);
        play(Event::Apply(object("a", "1")));
        assert_eq!(uid().as_deref(), Some("a"));
        cache.change(|snapshot| object::<K>("b", "7").put(snapshot));
        for (event, what) in [
            (Event::Apply(object("a", "3")), "a change"),
            (Event::Delete(object("a", "5")), "a deletion"),
            (Event::Apply(object("b", "6")), "the creation"),
        ] {
            play(event);
            assert_eq!(uid().as_deref(), Some("b"), "{:?}: {what} of an earlier one", K::KIND);
        }
        play(Event::Delete(object("b", "8")));
        assert_eq!(uid(), None);
    }

    #[test]
    fn watch_that_begins_again_undoes_no_answer() {
        older_object_does_not_replace_the_one_that_was_made_later::<Lenient<MachineConfigPool>>();
        older_object_does_not_replace_the_one_that_was_made_later::<WatchedConfig>();
        older_object_does_not_replace_the_one_that_was_made_later::<NodeObject>();
        older_object_does_not_replace_the_one_that_was_made_later::<Lenient<RolloutPolicy>>();
        older_object_does_not_replace_the_one_that_was_made_later::<MachineOsConfig>();
        older_object_does_not_replace_the_one_that_was_made_later::<MachineOsBuild>();
        older_object_does_not_replace_the_one_that_was_made_later::<Job>();
        older_object_does_not_replace_the_one_that_was_made_later::<OpenShiftBuild>();
    }
}
