//! Watches that are needed for a while, such as that of budgets: the cache and the metrics say whether each is well, and so `/readyz` and the log,
//! as of the watches of `follow.rs`.

use std::fmt::Debug;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use super::cache::{Cache, Kind};
use super::client::uptime;
use super::failure::Failure;
use super::metrics::Metrics;
use crate::watches::{self, Answers, Starting};

/// A watch; it ends with this.
pub(super) struct Reported<K> {
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    answers: Answers,
    state: State,
}

struct State {
    kind: Kind,
    cache: Cache,
    metrics: Metrics,
    is_failing: bool,
    /// When it was answered after it failed.
    answered: Option<Instant>,
    starting: Starting,
}

impl<K> Reported<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    pub(super) fn new(api: Api<K>, config: Config, kind: Kind, cache: Cache, metrics: Metrics) -> Self {
        let answers = Answers::of(api.resource_url(), &config);
        let events = watches::paced(api, config).boxed();
        let starting = Starting::default();
        let state = State { kind, cache, metrics, is_failing: false, answered: None, starting };
        Self { events, answers, state }
    }

    /// Waits for the next event, or failure of the watch. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<Event<K>, Failure>> {
        let Self { events, answers, state } = self;
        loop {
            let event = tokio::select! {
                biased;
                // A watch without a change has no event.
                _ = answers.next(), if state.is_failing => {
                    state.answered = Some(Instant::now());
                    continue;
                }
                () = proven(state.answered), if state.is_failing => {
                    state.is_up();
                    continue;
                }
                event = events.next() => event?,
            };
            return Some(match event {
                Ok(event) => {
                    // One that failed may be listed, and not watched.
                    let is_up = match event {
                        Event::Apply(_) | Event::Delete(_) => true,
                        Event::InitDone => !state.is_failing,
                        Event::Init | Event::InitApply(_) => false,
                    };
                    if is_up {
                        state.is_up();
                    }
                    Ok(event)
                }
                Err(error) => {
                    answers.failed();
                    Err(state.fails(Failure::new(&error)))
                }
            });
        }
    }
}

/// Waits until a watch has been answered for a time: one that is ended at once is not well.
async fn proven(answered: Option<Instant>) {
    match answered {
        Some(at) => sleep_until(at + watches::PROVEN).await,
        None => std::future::pending().await,
    }
}

impl State {
    fn is_up(&mut self) {
        (self.is_failing, self.answered) = (false, None);
        self.starting.answered();
        self.cache.change(|snapshot| snapshot.recovers(self.kind));
        self.metrics.watched(self.kind.resource(), true);
    }

    fn fails(&mut self, failure: Failure) -> Failure {
        let is_starting = self.starting.takes(failure.code);
        let failure = if is_starting { failure.of_start() } else { failure };
        (self.is_failing, self.answered) = (true, None);
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
