//! Times of watches, the watch of one object, and watches of an API server that went back to an earlier state.
//!
//! After a restore of etcd the server's versions are behind those that a watch goes on from. The server answers such a watch, and is silent
//! until its versions have passed that one: what changed before is never told. So each watch that starts again, which is rare, is followed by a
//! list of one object, whose version is the server's. One that is older starts all watches over with a list: no kind is decided by beside
//! one of another time. Where the versions may have passed, the leader's Lease tells ([`mod@history`]).

mod answered;
mod cause;
mod history;
mod recovery;
mod starting;
pub(crate) mod version;

use std::fmt::Debug;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _, future};
use kube::api::ListParams;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

pub(crate) use answered::{Answers, NoteAnswers};
pub(crate) use cause::of_reader;
use history::Entry;
pub(crate) use history::{breaks, history, judge, pause, restored, restores, returned, unjudged};
pub(crate) use recovery::{PROVEN, Recovery};
pub(crate) use starting::Starting;
use version::is_older;

use crate::model::backoff::Backoff;

/// Duration of one watch: this, and up to as much again, as the agent's. Long, because renewals are most requests of an idle controller;
/// a connection that is lost is noticed by its pings.
const WATCH_SECONDS: u32 = 1800;

/// A watch that is asked for again after less than this, and brought nothing, was ended at once. As client-go's reflector.
const SHORT: Duration = Duration::from_secs(1);

/// Cause of a watch that is ended at once.
const ENDS_AT_ONCE: &str = "the API server ends each watch at once";

/// Time for the server's version.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the settings of a watch. Each has a time of its own, so that they do not begin again together.
pub(crate) fn config() -> Config {
    // The keys of a hasher are random.
    let random = RandomState::new().hash_one(0_u8) % u64::from(WATCH_SECONDS);
    Config::default().timeout(WATCH_SECONDS.saturating_add(u32::try_from(random).unwrap_or_default()))
}

/// Follows the objects of an API, as kube's watcher, and lists them again when the API server has gone back.
pub(crate) fn objects<K>(
    api: Api<K>,
    config: Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    follow(api, config, false)
}

/// As [`objects`]; after an error it may begin with a list, which also tells that the watch is well again.
fn follow<K>(
    api: Api<K>,
    config: Config,
    lists_after_error: bool,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let entry = Entry::new();
    let state = Watch {
        answers: Answers::of(api.resource_url(), &config),
        events: watcher(api.clone(), config.clone()).boxed(),
        restores: restores(),
        entry,
        lists_after_error,
        is_listing: false,
        is_listed: false,
        starting: Starting::default(),
        answered_at: None,
        from: String::new(),
        now: None,
        api,
        config,
    };
    stream::unfold(state, Watch::next)
}

/// A watch, and the question where the API server is.
struct Watch<K> {
    api: Api<K>,
    config: Config,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    answers: Answers,
    entry: Entry,
    /// Restores of the API server that it has begun again for.
    restores: u64,
    /// It begins with a list after an error.
    lists_after_error: bool,
    /// It has begun again with a list that the history asks for.
    is_listing: bool,
    /// It has just been listed: where it goes on from is the server's version.
    is_listed: bool,
    starting: Starting,
    /// When it was answered, if nothing came since.
    answered_at: Option<Instant>,
    /// The version that the watch goes on from.
    from: String,
    /// The server's version, once it answers.
    now: Option<Pin<Box<dyn Future<Output = String> + Send>>>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn next(mut self) -> Option<(watcher::Result<Event<K>>, Self)> {
        loop {
            self.follow_history();
            let Self { events, answers, now, entry, .. } = &mut self;
            let server = async {
                match now {
                    Some(now) => now.await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = entry.changes.changed() => {}
                // Before what it brings: that may be of another state than what is known.
                from = answers.next() => {
                    let before = self.answered_at.replace(Instant::now());
                    if before.is_some_and(|before| before.elapsed() < SHORT) {
                        return Some((Err(self.ended_at_once()), self));
                    }
                    self.answered(from);
                }
                event = events.next() => {
                    self.answered_at = None;
                    let event = event?;
                    self.observe(&event);
                    return Some((event, self));
                }
                now = server => {
                    self.now = None;
                    self.compare(&now);
                }
            }
        }
    }

    /// Begins again with a list where the history asks for it.
    fn follow_history(&mut self) {
        let restores = restores();
        let is_restored = restores != self.restores;
        if is_restored {
            self.restores = restores;
            // Of the state before, no version counts.
            self.from.clear();
            self.entry.begins_list();
        }
        if is_restored || (self.entry.is_listing() && !self.is_listing) {
            (self.is_listing, self.now, self.answered_at) = (true, None, None);
            self.events = watcher(self.api.clone(), self.config.clone()).boxed();
        }
    }

    /// Begins again with a list: the watch was ended at once, and kube's watcher asks for it again without a pause, and without a word.
    fn ended_at_once(&mut self) -> watcher::Error {
        let status = kube::core::Status::failure(ENDS_AT_ONCE, "");
        let error = watcher::Error::WatchError(Box::new(status));
        self.failed(&error);
        (self.now, self.answered_at, self.is_listed) = (None, None, false);
        self.events = watcher(self.api.clone(), self.config.clone()).boxed();
        error
    }

    /// Takes the version that an answered watch goes on from.
    fn answered(&mut self, from: String) {
        self.starting.answered();
        if std::mem::take(&mut self.is_listed) {
            self.listed_again(from);
            return;
        }
        self.entry.resumed(&from);
        self.from = from;
        self.now = Some(Box::pin(version(self.api.clone(), self.config.clone())));
    }

    /// The list that the history asked for is complete, with this version: the server's. Behind that of the watch before, it is another history's.
    fn listed_again(&mut self, at: String) {
        if std::mem::take(&mut self.is_listing) {
            self.compare(&at);
            self.entry.listed();
        }
        self.from = at;
    }

    fn observe(&mut self, event: &watcher::Result<Event<K>>) {
        self.is_listed = awaits_version(self.is_listed, event);
        match event {
            // Its version is compared before anything is decided by it.
            Ok(Event::InitDone) if self.is_listing => {}
            Ok(Event::InitDone) => self.entry.listed(),
            Err(error) => self.failed(error),
            Ok(Event::Init | Event::InitApply(_) | Event::Apply(_) | Event::Delete(_)) => {}
        }
    }

    fn failed(&mut self, error: &watcher::Error) {
        let is_starting = self.starting.takes(code(error));
        match code(error) {
            // A server that has just started, or a version that is too old: the answer is still to come.
            410 | 429 => {}
            403 if is_starting => {}
            400..500 => {
                self.is_listing = false;
                self.entry.failed();
            }
            // The connection broke, or the server is not well: it may be another one when it answers again.
            _ => {
                self.is_listing = false;
                self.entry.broke();
            }
        }
        // kube asks for the same version for ever.
        if self.lists_after_error || is_expired_start(error) {
            self.events = watcher(self.api.clone(), self.config.clone()).boxed();
        }
    }

    /// Compares the server's version with the one that the watch goes on from.
    fn compare(&self, now: &str) {
        if is_older(now, &self.from) {
            let (url, from) = (self.api.resource_url(), &self.from);
            warn!(
                "The API server went back to an earlier state, as after a restore of etcd: version {now} of {url} is before {from}; \
                 reading all objects again"
            );
            restored();
        }
    }
}

/// Returns true if, after an event, the version of the watch that follows a list is still to come.
fn awaits_version<K>(is_listed: bool, event: &watcher::Result<Event<K>>) -> bool {
    match event {
        Ok(Event::InitDone) => true,
        // The first change may be here before the news that the watch was answered.
        Ok(Event::Apply(_) | Event::Delete(_)) => is_listed,
        Ok(Event::Init | Event::InitApply(_)) => false,
        // A busy server is asked for the same watch again: its answer ends the list.
        Err(error) => is_listed && code(error) == 429,
    }
}

/// Returns the status of an answer, 0 without one.
fn code(error: &watcher::Error) -> u16 {
    let cause = match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => cause,
        watcher::Error::WatchError(status) => return status.code,
        watcher::Error::NoResourceVersion => return 0,
    };
    if let kube::Error::Api(status) = cause { status.code } else { 0 }
}

/// Returns for how long a watch that failed had been answered, if its connection ended.
pub(crate) fn held(answers: &mut Answers, error: &watcher::Error) -> Option<Duration> {
    answers.failed().filter(|_| is_broken_off(error))
}

/// Returns true if a connection ended, not if an answer can't be read: that comes again.
fn is_broken_off(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => {
            !matches!(cause, kube::Error::Api(_) | kube::Error::SerdeError(_))
        }
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => false,
    }
}

/// Returns true if the version that a watch was to go on from is too old, as the status of the answer says.
fn is_expired_start(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

/// Returns the version of the API server, as soon as it answers.
async fn version<K>(api: Api<K>, config: Config) -> String
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let one = ListParams {
        label_selector: config.label_selector,
        field_selector: config.field_selector,
        ..ListParams::default().limit(1)
    };
    let mut backoff = Backoff::for_requests(api.resource_url());
    loop {
        let listed = timeout(ANSWER_TIMEOUT, api.list_metadata(&one)).await;
        // A watch that is refused says so itself.
        let version = listed.ok().and_then(Result::ok).and_then(|list| list.metadata.resource_version);
        match version {
            Some(version) => return version,
            None => sleep(backoff.next_wait()).await,
        }
    }
}

/// Watches that failed so long ago have held since.
const HELD: Duration = Duration::from_secs(60);

/// The longest pause after a watch that was answered and broke at once.
const SHORTEST: Duration = Duration::from_secs(1);

/// As [`objects`], with growing pauses after errors, and a list after each. A list that begins is no sign that the next try is answered; kube's
/// own pauses take it for one. For few objects.
pub(crate) fn paced<K>(
    api: Api<K>,
    config: Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (pauses, answers) = (Pauses::new(api.resource_url()), Answers::of(api.resource_url(), &config));
    let state = (follow(api, config, true).boxed(), pauses, answers, None);
    stream::unfold(state, async |(mut events, mut pauses, mut answers, wait)| {
        if let Some(wait) = wait {
            pause(wait).await;
        }
        let event = events.next().await?;
        let mut wait = None;
        match &event {
            Ok(Event::Apply(_) | Event::Delete(_)) => pauses.reset(),
            Ok(Event::Init | Event::InitApply(_) | Event::InitDone) => {}
            Err(error) => {
                let held = held(&mut answers, error);
                wait = Some(pauses.after(code(error), answers.retry_after(), held));
            }
        }
        Some((event, (events, pauses, answers, wait)))
    })
}

/// The pauses of a watch that fails.
pub(crate) struct Pauses {
    backoff: Backoff,
    /// When it failed last.
    failed: Option<Instant>,
    /// When the version that it went on from was too old last.
    expired: Option<Instant>,
}

impl Pauses {
    pub(crate) fn new(seed: &str) -> Self {
        Self { backoff: Backoff::for_requests(seed), failed: None, expired: None }
    }

    /// Something was brought.
    pub(crate) fn reset(&mut self) {
        self.backoff.reset();
    }

    /// Returns the pause after an error with the status of the answer, 0 without one. A watch that was answered before pauses no longer than
    /// it held: a connection that is closed again and again does not make what is decided by it old.
    pub(crate) fn after(
        &mut self,
        code: u16,
        retry_after: Option<Duration>,
        held: Option<Duration>,
    ) -> Duration {
        let recently = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() <= HELD);
        if !recently(self.failed) {
            self.backoff.reset();
        }
        self.failed = Some(Instant::now());
        match (code, retry_after) {
            // The server is there, and says that a list is due. Not if it says so each time.
            (410, _) if !recently(self.expired.replace(Instant::now())) => Duration::ZERO,
            // A busy server names the time.
            (429, Some(named)) => named,
            _ => {
                let wait = self.backoff.next_wait();
                held.map_or(wait, |held| wait.min(held.max(SHORTEST)))
            }
        }
    }
}

fn config_of(name: &str) -> Config {
    config().fields(&format!("metadata.name={name}"))
}

/// Returns the state of the watch of [`object()`].
pub(crate) fn recovery_of<K: Resource>(api: &Api<K>, name: &str) -> Recovery {
    Recovery::new(Answers::of(api.resource_url(), &config_of(name)))
}

/// Follows the object of a name, in the one namespace of an API: `None` where there is none.
pub(crate) fn object<K>(
    api: Api<K>,
    name: &str,
) -> impl Stream<Item = watcher::Result<Option<K>>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // kube's own has the times of kube.
    let events = paced(api, config_of(name));
    let seen = events.scan(false, |is_there, event| {
        match &event {
            Ok(Event::Init) => *is_there = false,
            Ok(Event::InitApply(_)) => *is_there = true,
            Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) | Err(_) => {}
        }
        future::ready(Some((*is_there, event)))
    });
    seen.filter_map(|(is_there, event)| {
        future::ready(match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => Some(Ok(Some(object))),
            Ok(Event::Delete(_)) => Some(Ok(None)),
            Ok(Event::InitDone) if !is_there => Some(Ok(None)),
            Ok(Event::Init | Event::InitDone) => None,
            Err(error) => Some(Err(error)),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn expired_watch_is_listed_at_once_and_busy_server_names_the_time() {
        let mut pauses = Pauses::new("nodes");
        let named = Some(Duration::from_secs(7));
        for _ in 0..6 {
            pauses.after(0, None, None);
        }
        assert_eq!(pauses.after(410, None, None), Duration::ZERO);
        assert!(pauses.after(410, None, None) > Duration::from_secs(10), "not in a loop");
        assert_eq!(pauses.after(429, named, None), Duration::from_secs(7));
        assert!(pauses.after(503, named, None) > Duration::from_secs(10), "an older answer names nothing");
        // One that was answered in between pauses no longer than it held.
        assert_eq!(pauses.after(0, None, Some(Duration::ZERO)), SHORTEST);
        assert_eq!(pauses.after(0, None, Some(Duration::from_secs(5))), Duration::from_secs(5));
        assert!(pauses.after(0, None, None) > Duration::from_secs(10));
        tokio::time::advance(HELD * 2).await;
        assert_eq!(pauses.after(410, None, None), Duration::ZERO);
        assert!(pauses.after(0, None, None) < Duration::from_secs(1));
    }

    #[test]
    fn change_before_news_of_answer_leaves_list_open() {
        let error = |code: u16| {
            let status = kube::core::Status { code, ..kube::core::Status::default() };
            Err(watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(status))))
        };
        let after = |events: &[watcher::Result<Event<u8>>]| events.iter().fold(false, awaits_version);
        assert!(after(&[Ok(Event::InitDone)]));
        assert!(after(&[Ok(Event::InitDone), Ok(Event::Apply(1)), error(429), Ok(Event::Delete(1))]));
        assert!(!after(&[Ok(Event::InitDone), error(503)]));
        assert!(!after(&[Ok(Event::InitDone), Ok(Event::Init), Ok(Event::InitApply(1))]));
        assert!(!after(&[Ok(Event::Apply(1))]));
    }

    #[test]
    fn watches_last_for_half_an_hour_to_an_hour_each_its_own() {
        let times: std::collections::BTreeSet<u32> = (0..50).map(|_| config().timeout.unwrap()).collect();
        assert!(times.len() > 10, "{times:?}");
        assert!(times.iter().all(|seconds| (1800..3600).contains(seconds)), "{times:?}");
    }
}
