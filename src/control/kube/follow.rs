//! Following one object: a list, then a watch from there, and the way back to it.
//!
//! While nothing happens nothing is sent but the watch's renewal. Whatever ends a watch before its time ends in another
//! list, after a wait that differs by node. What is seen, and what a failure means, is the [`Eye`]'s.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{ListParams, WatchParams};
use kube::core::{ObjectList, WatchEvent};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::client::Link;
use super::error::KubeError;
use crate::model::backoff::Backoff;

/// How long one watch lasts: this, and up to as much again by node. Long, because a renewal is the only request of an
/// idle node, and a connection that is lost is noticed by its pings.
const LASTS: u32 = 1800;

/// A watch that ends sooner was not ended by its time.
const TOO_SOON: Duration = Duration::from_secs(5);

/// Who looks at the object.
pub(super) trait Eye: Send + 'static {
    /// What is decoded.
    type Object: Clone + DeserializeOwned + Send + 'static;

    /// Its collection.
    fn requests(&self) -> Requests;

    /// Names it, for people.
    fn object(&self) -> &str;

    /// Takes the object as it is now, from a list; returns the version to watch from.
    fn listed(&mut self, list: ObjectList<Self::Object>) -> String;

    /// Takes an event of the watch.
    fn seen(&mut self, event: WatchEvent<Self::Object>) -> Seen;

    /// The watch began.
    fn watching(&mut self) {}

    /// Nothing is seen any more. Returns when it is to be looked for again: not before the wait is over.
    fn lost(&mut self, error: KubeError, wait: Duration) -> impl Future<Output = ()> + Send;
}

/// The requests for one object, as the only one of a list.
pub(super) struct Requests {
    /// Where its kind is.
    pub(super) path: &'static str,
    /// Its name.
    pub(super) name: String,
    /// Only its metadata is wanted.
    pub(super) metadata: bool,
}

type Request = Result<http::Request<Vec<u8>>, kube::Error>;

impl Requests {
    fn list(&self) -> Request {
        let (request, params) =
            (kube::core::Request::new(self.path), ListParams::default().fields(&self.fields()));
        let made = if self.metadata { request.list_metadata(&params) } else { request.list(&params) };
        made.map_err(kube::Error::BuildRequest)
    }

    fn watch(&self, version: &str, seconds: u32) -> Request {
        let request = kube::core::Request::new(self.path);
        let params = WatchParams::default().fields(&self.fields()).timeout(seconds);
        let made = if self.metadata {
            request.watch_metadata(&params, version)
        } else {
            request.watch(&params, version)
        };
        made.map_err(kube::Error::BuildRequest)
    }

    fn fields(&self) -> String {
        format!("metadata.name={}", self.name)
    }
}

/// What an event means for the watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// It goes on from this version.
    At(String),
    /// It ends: its beginning is too old by now.
    Expired,
    /// It ends.
    Failed(KubeError),
}

/// How a watch ended.
enum End {
    /// In its time: the next one begins where it ended.
    InTime(String),
    /// Its beginning was too old.
    Expired,
    /// It broke.
    Broken(KubeError),
}

/// Following, for as long as it is polled.
pub(super) struct Following<E> {
    pub(super) link: Link,
    pub(super) eye: E,
    pub(super) backoff: Backoff,
}

impl<E: Eye> Following<E> {
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
                Err(error) => End::Broken(error),
            };
            match end {
                End::InTime(version) => from = Some(version),
                End::Expired if !self.backoff.is_failing() => drop(self.backoff.next_wait()),
                End::Expired => tokio::time::sleep(self.backoff.next_wait()).await,
                End::Broken(error) => self.eye.lost(error, self.backoff.next_wait()).await,
            }
        }
    }

    async fn list(&mut self) -> Result<String, KubeError> {
        let client = self.link.client();
        let list = async { client.request(self.eye.requests().list()?).await };
        let list = list.await.map_err(KubeError::about(self.eye.object()))?;
        Ok(self.eye.listed(list))
    }

    /// Watches from a version on until the watch ends.
    async fn follow(&mut self, mut version: String) -> End {
        let seconds = LASTS + u32::try_from(self.backoff.draw(LASTS.into())).unwrap_or_default();
        let client = self.link.client();
        let watch = self.eye.requests().watch(&version, seconds);
        let began = Instant::now();
        let watch = async { client.request_events::<E::Object>(watch?).await }.await;
        let mut events = match watch.map_err(KubeError::about(self.eye.object())) {
            Ok(events) => pin!(events),
            Err(KubeError::Refused { status: 410, .. }) => return End::Expired,
            Err(error) => return End::Broken(error),
        };
        self.link.traffic().watching();
        self.eye.watching();
        loop {
            let seen = match events.next().await {
                Some(Ok(event)) => Ok(self.eye.seen(event)),
                None if began.elapsed() < TOO_SOON => return End::Broken(self.ended()),
                None => return End::InTime(version),
                Some(Err(error)) => Err(KubeError::new(&error, self.eye.object())),
            };
            // What begins is not yet what works: an event, or staying up, is.
            if began.elapsed() > TOO_SOON {
                self.backoff.reset();
            }
            match seen {
                Ok(Seen::At(at)) => version = at,
                Ok(Seen::Expired) => return End::Expired,
                Ok(Seen::Failed(error)) | Err(error) => return End::Broken(error),
            }
        }
    }

    fn ended(&self) -> KubeError {
        let cause = "it ends each watch at once".to_owned();
        KubeError::Away { server: self.eye.object().to_owned(), cause }
    }
}
