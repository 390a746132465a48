//! kube's client, with a fence: writes pass only while this process leads.
//!
//! The fence stands before every write, also one that was decided a moment before leadership ended: a process that was
//! suspended finds its time over when it resumes. The Lease itself passes; otherwise no process could take it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use http::{Method, Request};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource};
use tokio::time::{Instant, timeout};
use tower::BoxError;
use tower::filter::FilterLayer;

use super::error::RunError;
use super::transport;
use crate::reading::Lenient;
use crate::watches;
use crate::watches::NoteAnswers;

/// Timeout of a request that is no watch. Far shorter than a Lease is valid.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the time since the start of this process, by the monotonic clock.
pub(super) fn uptime() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Until when writes pass.
#[derive(Debug, Clone, Default)]
pub(super) struct Fence {
    until: Arc<AtomicU64>,
    /// The process aborts before this many writes; for tests, and in no release.
    #[cfg(debug_assertions)]
    abort_at: Arc<AtomicU64>,
}

impl Fence {
    /// Lets writes pass until then.
    pub(super) fn open_until(&self, until: Option<Duration>) {
        let millis = until.map_or(0, |until| u64::try_from(until.as_millis()).unwrap_or(u64::MAX));
        self.until.store(millis, Ordering::Relaxed);
    }

    /// Test hook: aborts the process before the Nth write, as a power cut would.
    #[cfg(debug_assertions)]
    pub(super) fn abort_at(&self, write: u64) {
        self.abort_at.store(write, Ordering::Relaxed);
    }

    #[cfg(debug_assertions)]
    fn count(&self) {
        if self.abort_at.load(Ordering::Relaxed) > 0 && self.abort_at.fetch_sub(1, Ordering::Relaxed) == 1 {
            std::process::abort();
        }
    }

    fn is_open(&self) -> bool {
        uptime() < Duration::from_millis(self.until.load(Ordering::Relaxed))
    }

    fn check(&self, request: Request<Body>) -> Result<Request<Body>, BoxError> {
        let election = request.uri().path().starts_with("/apis/coordination.k8s.io/");
        if !is_read(&request) && !election {
            if !self.is_open() {
                return Err(NotLeading.into());
            }
            #[cfg(debug_assertions)]
            self.count();
        }
        Ok(request)
    }
}

fn is_read(request: &Request<Body>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// Ends the process if a write has no row of the page: every test in which one is sent fails. In no release.
#[cfg(debug_assertions)]
fn abort_without_row(request: &Request<Body>) {
    if !is_read(request) && !super::begun::BEGUN.take() {
        let (method, path) = (request.method(), request.uri().path());
        // Of two at once the second one is met.
        tracing::error!(
            "Write without a row: {method} {path}, or one beside it: send it with controllers/write.rs"
        );
        std::process::abort();
    }
}

/// The fence refused a write.
#[derive(Debug, thiserror::Error)]
#[error("this process does not lead any more")]
struct NotLeading;

/// Connects: with a kubeconfig, or as a pod.
pub(super) async fn connect(kubeconfig: Option<&Path>, fence: &Fence) -> Result<Client, RunError> {
    connect_to(kubeconfig, fence).await.map(|(client, _)| client)
}

/// Connects, and names the API server.
pub(super) async fn connect_to(
    kubeconfig: Option<&Path>,
    fence: &Fence,
) -> Result<(Client, String), RunError> {
    let config = config(kubeconfig).await?;
    let server = config.cluster_url.to_string();
    let fence = fence.clone();
    let layer = FilterLayer::new(move |request: Request<Body>| {
        #[cfg(debug_assertions)]
        abort_without_row(&request);
        fence.check(request)
    });
    let builder = transport::builder(config).map_err(|error| RunError::Client(error.to_string()))?;
    Ok((builder.with_layer(&layer).with_layer(&NoteAnswers).build(), server))
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config, RunError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let unread = |cause: String| RunError::Kubeconfig { path: path.to_owned(), cause };
            let file = Kubeconfig::read_from(path).map_err(|error| unread(error.to_string()))?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(file, &options).await.map_err(|error| unread(error.to_string()))?
        }
        None => Config::infer().await.map_err(|error| RunError::Client(error.to_string()))?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(REQUEST_TIMEOUT);
    // Each caller has its own rule for a refusal; an eviction's names the budget.
    config.default_retry = false;
    let agent = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    Ok(config)
}

/// Errors of a request.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum RequestError {
    /// The API server refused it.
    #[error("{} ({})", .0.message, .0.code)]
    Refused(Box<kube::core::Status>),
    /// As that, with the code of a conflict or of an object that is gone, and it is neither ([`super::conflict`]).
    #[error("{} ({})", .0.message, .0.code)]
    NoConflict(Box<kube::core::Status>),
    /// The request timed out.
    #[error("no answer within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
    /// There was no connection: the request was not sent.
    #[error("{0}")]
    Unsent(String),
    /// Its answer can't be read: the request is over.
    #[error("{0}")]
    Unreadable(String),
    /// The request has no answer.
    #[error("{0}")]
    Failed(String),
}

impl RequestError {
    /// Returns the status of the answer, 0 without one.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Refused(status) | Self::NoConflict(status) => status.code,
            Self::TimedOut | Self::Unsent(_) | Self::Unreadable(_) | Self::Failed(_) => 0,
        }
    }

    /// Returns the error with the object that it is about.
    pub(crate) fn about(self, what: &str) -> Self {
        let named = |mut status: Box<kube::core::Status>| {
            status.message = format!("{what} is refused: {}", status.message);
            status
        };
        match self {
            Self::Refused(status) => Self::Refused(named(status)),
            Self::NoConflict(status) => Self::NoConflict(named(status)),
            Self::TimedOut => Self::Failed(format!("{what}: {}", Self::TimedOut)),
            Self::Unsent(cause) => Self::Unsent(format!("{what}: {cause}")),
            Self::Unreadable(cause) => Self::Unreadable(format!("{what}: {cause}")),
            Self::Failed(cause) => Self::Failed(format!("{what}: {cause}")),
        }
    }

    /// Returns true if the same write does not pass by itself: it is refused, and neither by a busy server, nor as a conflict, nor
    /// because the object is gone, nor for a token that is about to be renewed.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::NoConflict(_))
            || (matches!(self.code(), 400..500) && !matches!(self.code(), 401 | 404 | 408 | 409 | 429))
    }

    /// Returns true if another writer was faster, or the object is gone, as far as the code says.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(status) if matches!(status.code, 404 | 409))
    }

    /// Returns the error of a write that is refused with such a code.
    pub(super) fn into_refusal(self) -> Self {
        match self {
            Self::Refused(status) => Self::NoConflict(status),
            other @ (Self::NoConflict(_)
            | Self::TimedOut
            | Self::Unsent(_)
            | Self::Unreadable(_)
            | Self::Failed(_)) => other,
        }
    }
}

/// Sends a request and reads the object of its answer, as watched ones are read.
pub(crate) async fn read<K: Resource<DynamicType = ()>>(
    request: impl Future<Output = kube::Result<Lenient<K>>>,
) -> Result<K, RequestError> {
    let Lenient { metadata, object, .. } = send(request).await?;
    let name = metadata.name.unwrap_or_default();
    object
        .map_err(|cause| RequestError::Unreadable(format!("{} {name} can't be read: {cause}", K::kind(&()))))
}

/// Sends a request and waits for its answer, at most [`REQUEST_TIMEOUT`].
pub(crate) async fn send<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(RequestError::Refused(status)),
        // Not the unreadable text: it may hold secrets.
        Ok(Err(kube::Error::SerdeError(error))) => {
            Err(RequestError::Unreadable(format!("its answer can't be read, line {}", error.line())))
        }
        Ok(Err(error)) if is_unsent(&error) => Err(RequestError::Unsent(chain(&error))),
        Ok(Err(error)) => Err(RequestError::Failed(chain(&error))),
        Err(_) => Err(RequestError::TimedOut),
    }
}

/// Returns true if no connection was made for a request.
fn is_unsent(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_connect = |error: &hyper_util::client::legacy::Error| error.is_connect();
    error.downcast_ref().is_some_and(is_connect) || error.source().is_some_and(is_unsent)
}

/// Limits a request further: two of the Lease fit into the time that a leader acts.
pub(super) async fn limited<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    let timed_out = |_| Err(RequestError::Failed(format!("no answer within {} s", limit.as_secs())));
    timeout(limit, request).await.unwrap_or_else(timed_out)
}

/// Returns an error with its causes, each once.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    watches::of_reader(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_leader_writes() {
        let fence = Fence::default();
        let allowed = |fence: &Fence, method: Method, path: &str| {
            fence.check(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).is_ok()
        };
        assert!(allowed(&fence, Method::GET, "/api/v1/nodes"));
        assert!(!allowed(&fence, Method::PATCH, "/api/v1/nodes/a"));
        assert!(allowed(&fence, Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"));
        fence.open_until(Some(uptime() + Duration::from_secs(5)));
        assert!(allowed(&fence, Method::PATCH, "/api/v1/nodes/a"));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!allowed(&fence, Method::POST, "/api/v1/namespaces/a/pods/b/eviction"));
    }
}
