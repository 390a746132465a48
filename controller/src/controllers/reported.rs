//! Watches that are needed for a while, such as that of budgets: the cache and the metrics say whether each is well, and so `/readyz` and the log,
//! as of the watches of `follow.rs`.

use std::fmt::Debug;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::cache::{Cache, Kind};
use super::client::uptime;
use super::failure::Failure;
use super::metrics::Metrics;
use crate::watches::{self, Answers, Recovery, Starting};

/// A watch; it ends with this.
pub(super) struct Reported<K> {
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    recovery: Recovery,
    state: State,
}

struct State {
    kind: Kind,
    cache: Cache,
    metrics: Metrics,
    starting: Starting,
}

impl<K> Reported<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    pub(super) fn new(api: Api<K>, config: Config, kind: Kind, cache: Cache, metrics: Metrics) -> Self {
        let recovery = Recovery::new(Answers::of(api.resource_url(), &config));
        let events = watches::paced(api, config).boxed();
        Self { events, recovery, state: State { kind, cache, metrics, starting: Starting::default() } }
    }

    /// Waits for the next event, or failure of the watch. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<Event<K>, Failure>> {
        let Self { events, recovery, state } = self;
        loop {
            let event = tokio::select! {
                biased;
                // A watch without a change has no event.
                () = recovery.proven() => {
                    state.is_up();
                    continue;
                }
                event = events.next() => event?,
            };
            return Some(match event {
                Ok(event) => {
                    if matches!(event, Event::Apply(_) | Event::Delete(_)) {
                        recovery.changed();
                    }
                    if !matches!(event, Event::Init | Event::InitApply(_)) && !recovery.is_failing() {
                        state.is_up();
                    }
                    Ok(event)
                }
                Err(error) => {
                    recovery.failed();
                    Err(state.fails(Failure::new(&error)))
                }
            });
        }
    }
}

impl State {
    fn is_up(&mut self) {
        self.starting.answered();
        self.cache.change(|snapshot| snapshot.recovers(self.kind));
        self.metrics.watched(self.kind.resource(), true);
    }

    fn fails(&mut self, failure: Failure) -> Failure {
        let is_starting = self.starting.takes(failure.code);
        let failure = if is_starting { failure.of_start() } else { failure };
        // The metric follows.
        self.cache.change(|snapshot| snapshot.fails(self.kind, &failure, uptime()));
        failure
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.cache.change(|snapshot| snapshot.recovers(self.kind));
        self.metrics.not_watched(self.kind.resource());
    }
}
