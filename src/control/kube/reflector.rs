//! Lists and watches one object, or all of a kind, and starts over when the watch breaks.
//!
//! While nothing happens nothing is sent but the watch's renewal. Whatever ends a watch before its time ends in another
//! list, after a wait that differs by node. The objects, and the meaning of a failure, are up to the [`WatchHandler`].

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{ListParams, WatchParams};
use kube::core::{ObjectList, WatchEvent};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::client::ApiClient;
use super::error::KubeError;
use crate::model::backoff::Backoff;

/// Duration of one watch: this, and up to as much again by node. Long, because a renewal is the only request of an
/// idle node, and a connection that is lost is noticed by its pings.
const WATCH_SECONDS: u32 = 1800;

/// A watch that ends sooner was not ended by its time.
const MIN_WATCH_TIME: Duration = Duration::from_secs(5);

/// Handles the reflector's objects.
pub(super) trait WatchHandler: Send + 'static {
    /// Type of the decoded objects.
    type Object: Clone + DeserializeOwned + Send + 'static;

    /// Its collection.
    fn requests(&self) -> Requests;

    /// Names it, for people.
    fn object(&self) -> &str;

    /// Takes the object as it is now, from a list; returns the version to watch from.
    fn on_list(&mut self, list: ObjectList<Self::Object>) -> String;

    /// Takes an event of the watch.
    fn on_event(&mut self, event: WatchEvent<Self::Object>) -> WatchStep;

    /// The watch began.
    fn on_start(&mut self) {}

    /// Nothing is seen any more. Returns when it is to be looked for again: not before the wait is over.
    fn on_error(&mut self, error: KubeError, wait: Duration) -> impl Future<Output = ()> + Send;
}

/// The requests for one object, as the only one of a list.
pub(super) struct Requests {
    /// Path of its kind.
    pub(super) path: &'static str,
    /// Its name; empty for all of the kind.
    pub(super) name: String,
    /// Only its metadata is desired.
    pub(super) metadata: bool,
}

type Request = Result<http::Request<Vec<u8>>, kube::Error>;

impl Requests {
    fn list(&self) -> Request {
        let (request, params) = (
            kube::core::Request::new(self.path),
            ListParams { field_selector: self.fields(), ..ListParams::default() },
        );
        let made = if self.metadata { request.list_metadata(&params) } else { request.list(&params) };
        made.map_err(kube::Error::BuildRequest)
    }

    fn watch(&self, version: &str, seconds: u32) -> Request {
        let request = kube::core::Request::new(self.path);
        let params = WatchParams { field_selector: self.fields(), ..WatchParams::default().timeout(seconds) };
        let made = if self.metadata {
            request.watch_metadata(&params, version)
        } else {
            request.watch(&params, version)
        };
        made.map_err(kube::Error::BuildRequest)
    }

    fn fields(&self) -> Option<String> {
        (!self.name.is_empty()).then(|| format!("metadata.name={}", self.name))
    }
}

/// Meaning of an event for the watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WatchStep {
    /// It continues from this version.
    At(String),
    /// It ends: its beginning is too old by now.
    Expired,
    /// It ends.
    Failed(KubeError),
}

/// End of a watch.
enum WatchEnd {
    /// In its time: the next one begins where it ended.
    InTime(String),
    /// Its beginning was too old.
    Expired,
    /// It broke.
    Broken(KubeError),
}

/// Lists and watches one object until dropped.
pub(super) struct Reflector<E> {
    pub(super) api: ApiClient,
    pub(super) handler: E,
    pub(super) backoff: Backoff,
}

impl<E: WatchHandler> Reflector<E> {
    /// Follows without end.
    pub(super) async fn run(mut self) {
        let mut from = None;
        loop {
            let version = match from.take() {
                Some(version) => Ok(version),
                None => self.list().await,
            };
            let end = match version {
                Ok(version) => self.follow(version).await,
                Err(error) => WatchEnd::Broken(error),
            };
            match end {
                WatchEnd::InTime(version) => from = Some(version),
                WatchEnd::Expired if !self.backoff.is_failing() => drop(self.backoff.next_wait()),
                WatchEnd::Expired => tokio::time::sleep(self.backoff.next_wait()).await,
                WatchEnd::Broken(error) => self.handler.on_error(error, self.backoff.next_wait()).await,
            }
        }
    }

    async fn list(&mut self) -> Result<String, KubeError> {
        let client = self.api.client();
        let list = async { client.request(self.handler.requests().list()?).await };
        let list = list.await.map_err(KubeError::about(self.handler.object()))?;
        Ok(self.handler.on_list(list))
    }

    /// Watches from a version on until the watch ends.
    async fn follow(&mut self, mut version: String) -> WatchEnd {
        let seconds =
            WATCH_SECONDS + u32::try_from(self.backoff.draw(WATCH_SECONDS.into())).unwrap_or_default();
        let client = self.api.client();
        let watch = self.handler.requests().watch(&version, seconds);
        let began = Instant::now();
        let watch = async { client.request_events::<E::Object>(watch?).await }.await;
        let mut events = match watch.map_err(KubeError::about(self.handler.object())) {
            Ok(events) => pin!(events),
            Err(KubeError::Refused { status: 410, .. }) => return WatchEnd::Expired,
            Err(error) => return WatchEnd::Broken(error),
        };
        self.api.traffic().watching();
        self.handler.on_start();
        loop {
            let observed = match events.next().await {
                Some(Ok(event)) => Ok(self.handler.on_event(event)),
                None if began.elapsed() < MIN_WATCH_TIME => return WatchEnd::Broken(self.ended()),
                None => return WatchEnd::InTime(version),
                Some(Err(error)) => Err(KubeError::new(&error, self.handler.object())),
            };
            // A connected watch is not yet a working one: an event, or staying up, proves it.
            if began.elapsed() > MIN_WATCH_TIME {
                self.backoff.reset();
            }
            match observed {
                Ok(WatchStep::At(at)) => version = at,
                Ok(WatchStep::Expired) => return WatchEnd::Expired,
                Ok(WatchStep::Failed(error)) | Err(error) => return WatchEnd::Broken(error),
            }
        }
    }

    fn ended(&self) -> KubeError {
        let cause = "it ends each watch at once".to_owned();
        KubeError::Away { server: self.handler.object().to_owned(), cause }
    }
}
