//! Following one object: a list, then a watch from there, and the way back to it.
//!
//! While nothing happens nothing is sent but the watch's renewal. Whatever ends a watch before its time ends in another
//! list, after a wait that differs by node. What is seen, and what a failure means, is the [`Eye`]'s.

use std::time::Duration;

use tokio::time::Instant;

use super::client::{Call, Link};
use super::error::KubeError;
use crate::model::pace::Pace;

/// How long one watch lasts: this, and up to as much again by node. Long, because a renewal is the only request of an
/// idle node, and a connection that is lost is noticed by its pings.
const LASTS: u64 = 1800;

/// A watch that ends sooner was not ended by its time.
const TOO_SOON: Duration = Duration::from_secs(5);

/// Who looks at the object.
pub(super) trait Eye: Send + 'static {
    /// Where the object is: a collection with the selector of one name.
    fn path(&self) -> &str;

    /// Names it, for people.
    fn object(&self) -> &str;

    /// The call that lists it.
    fn list(&self, path: String) -> Call;

    /// The call that watches it.
    fn watch(&self, path: String) -> Call;

    /// Takes the object as it is now, from a list; returns the version to watch from.
    fn listed(&mut self, bytes: &[u8]) -> Result<String, KubeError>;

    /// Takes a line of the watch.
    fn seen(&mut self, line: &[u8]) -> Result<Seen, KubeError>;

    /// The watch began.
    fn watching(&mut self) {}

    /// Nothing is seen any more. Returns when it is to be looked for again: not before the wait is over.
    fn lost(&mut self, error: KubeError, wait: Duration) -> impl Future<Output = ()> + Send;
}

/// What a line of a watch means for the watch.
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
    pub(super) pace: Pace,
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
                End::Expired if !self.pace.is_failing() => drop(self.pace.next_wait()),
                End::Expired => tokio::time::sleep(self.pace.next_wait()).await,
                End::Broken(error) => self.eye.lost(error, self.pace.next_wait()).await,
            }
        }
    }

    async fn list(&mut self) -> Result<String, KubeError> {
        let call = self.eye.list(self.eye.path().to_owned());
        let bytes = self.link.send(&call).await?;
        self.eye.listed(&bytes)
    }

    /// Watches from a version on until the watch ends.
    async fn follow(&mut self, mut version: String) -> End {
        let seconds = LASTS + self.pace.draw(LASTS);
        let query = format!(
            "&watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}"
        );
        let began = Instant::now();
        let call = self.eye.watch(self.eye.path().to_owned() + &query);
        let mut lines = match self.link.follow(&call).await {
            Ok(lines) => lines,
            Err(KubeError::Refused { status: 410, .. }) => return End::Expired,
            Err(error) => return End::Broken(error),
        };
        self.eye.watching();
        loop {
            let seen = match lines.next().await {
                Ok(Some(line)) => self.eye.seen(&line),
                Ok(None) if began.elapsed() < TOO_SOON => return End::Broken(self.ended()),
                Ok(None) => return End::InTime(version),
                Err(error) => Err(error),
            };
            // What begins is not yet what works: an event, or staying up, is.
            if began.elapsed() > TOO_SOON {
                self.pace.reset();
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
