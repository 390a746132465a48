//! Watches that the API server has answered, with the version that each goes on from, and the time that it names when it is busy. kube's
//! watcher says nothing of a watch that starts again and has no change to tell, nor of `Retry-After`, so the answers are noted where they come in.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Uri, header};
use kube::api::ListParams;
use kube::runtime::watcher::Config;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{Layer, Service};

/// The time that a busy server names if it names none.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The longest time that a server may name.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Answers by what is watched.
static ANSWERS: LazyLock<watch::Sender<BTreeMap<String, Answered>>> =
    LazyLock::new(|| watch::channel(BTreeMap::new()).0);

/// Answers to the watches of the same objects.
#[derive(Debug, Clone, Default)]
struct Answered {
    count: u64,
    /// When the last one came.
    at: Option<Instant>,
    /// The version that the last one goes on from.
    version: String,
    /// The time that the server named, if it was busy the last time.
    retry_after: Option<Duration>,
}

/// Waits for the next answer to a watch of some objects.
pub(crate) struct Answers {
    key: String,
    receiver: watch::Receiver<BTreeMap<String, Answered>>,
    known: u64,
    /// Those that came before the last failure.
    before: u64,
}

impl Answers {
    /// Follows those of the objects at a path that a watch selects, from now on.
    pub(crate) fn of(path: &str, config: &Config) -> Self {
        let selected = ListParams {
            label_selector: config.label_selector.clone(),
            field_selector: config.field_selector.clone(),
            ..ListParams::default()
        };
        // As kube writes it.
        let request = kube::core::Request::new(path).list(&selected);
        let key = request.map_or_else(|_| path.to_owned(), |request| key(request.uri()));
        let mut answers = Self { key, receiver: ANSWERS.subscribe(), known: 0, before: 0 };
        answers.failed();
        answers
    }

    /// Forgets those that came before a failure; returns for how long the watch had been answered, if it was since the failure before.
    pub(crate) fn failed(&mut self) -> Option<Duration> {
        let answered = self.receiver.borrow().get(&self.key).cloned().unwrap_or_default();
        self.known = answered.count;
        let before = std::mem::replace(&mut self.before, answered.count);
        answered.at.filter(|_| before != answered.count).map(|at| at.elapsed())
    }

    /// Returns the time that a busy server named.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.receiver.borrow().get(&self.key)?.retry_after
    }

    /// Waits for one; returns the version that it goes on from. Cancel-safe.
    pub(crate) async fn next(&mut self) -> String {
        let (key, known) = (&self.key, self.known);
        let is_new = |all: &BTreeMap<String, Answered>| all.get(key).map_or(0, |one| one.count) != known;
        // The sender has no end.
        let answered = self.receiver.wait_for(is_new).await.ok();
        let answered = answered.and_then(|all| all.get(key).cloned()).unwrap_or_default();
        self.known = answered.count;
        answered.version
    }
}

/// Returns the path and the selectors of a request: two watches of one kind may follow different objects.
fn key(uri: &Uri) -> String {
    let selectors =
        query(uri).filter(|part| part.starts_with("fieldSelector=") || part.starts_with("labelSelector="));
    let mut selectors: Vec<&str> = selectors.collect();
    selectors.sort_unstable();
    format!("{}?{}", uri.path(), selectors.join("&"))
}

fn query(uri: &Uri) -> impl Iterator<Item = &str> {
    uri.query().unwrap_or_default().split('&')
}

/// Notes an answer: of a watch the version that it goes on from, and of a busy server the time that it names.
fn note<B>(key: String, version: Option<String>, answer: &Response<B>) {
    let retry_after = (answer.status() == StatusCode::TOO_MANY_REQUESTS).then(|| retry_after(answer));
    let version = version.filter(|_| answer.status().is_success());
    ANSWERS.send_if_modified(|all| {
        let is_news = version.is_some();
        if is_news || retry_after.is_some() || all.contains_key(&key) {
            let answered = all.entry(key).or_default();
            answered.retry_after = retry_after;
            if let Some(version) = version {
                (answered.count, answered.version) = (answered.count.wrapping_add(1), version);
                answered.at = Some(Instant::now());
            }
        }
        is_news
    });
}

/// Returns the time that a busy server names.
fn retry_after<B>(answer: &Response<B>) -> Duration {
    let named = answer.headers().get(header::RETRY_AFTER).and_then(|named| named.to_str().ok()?.parse().ok());
    named.map_or(RETRY_AFTER, Duration::from_secs).clamp(RETRY_AFTER, MAX_RETRY_AFTER)
}

/// The layer that notes them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoteAnswers;

impl<S> Layer<S> for NoteAnswers {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Noting<S> {
        Noting { inner }
    }
}

/// A service whose answers are noted.
#[derive(Debug, Clone)]
pub(crate) struct Noting<S> {
    inner: S,
}

impl<S, A, B> Service<Request<A>> for Noting<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let uri = request.uri();
        let is_watch = query(uri).any(|part| part == "watch=true");
        let version =
            || query(uri).find_map(|part| part.strip_prefix("resourceVersion=")).unwrap_or_default();
        let version = is_watch.then(|| version().to_owned());
        let read = (request.method() == Method::GET).then(|| (key(uri), version));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            if let Some((key, version)) = read {
                note(key, version, &answer);
            }
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn only_answered_watches_are_noted() {
        let all = Config::default();
        let mut answers = Answers::of("/apis/a/b", &all);
        let ask = async |uri: &str, status: u16| {
            let service = tower::service_fn(move |_: Request<()>| async move {
                let answer = Response::builder().status(status).header(header::RETRY_AFTER, "7");
                Ok::<_, Infallible>(answer.body(()).unwrap())
            });
            let request = Request::get(uri).body(()).unwrap();
            NoteAnswers.layer(service).oneshot(request).await.unwrap();
        };
        for (uri, status) in [
            ("/apis/a/b?&limit=1", 200),
            ("/apis/a/b?&watch=true", 403),
            ("/apis/a/c?&watch=true", 200),
            ("/apis/a/b?&watch=true&fieldSelector=metadata.name%3Dx", 200),
        ] {
            ask(uri, status).await;
            let next = tokio::time::timeout(std::time::Duration::ZERO, answers.next()).await;
            assert!(next.is_err(), "{uri} {status}");
        }
        ask("/apis/a/b?&watch=true&resourceVersion=7", 200).await;
        assert_eq!(answers.next().await, "7");
        let mut one = Answers::of("/apis/a/b", &all.fields("metadata.name=x"));
        ask("/apis/a/b?&watch=true&fieldSelector=metadata.name%3Dx&resourceVersion=8", 200).await;
        assert_eq!(one.next().await, "8");
        // A busy server names a time, until it answers.
        ask("/apis/a/b?&limit=500", 429).await;
        assert_eq!((answers.retry_after(), one.retry_after()), (Some(Duration::from_secs(7)), None));
        ask("/apis/a/b?&limit=500", 200).await;
        assert_eq!(answers.retry_after(), None);
    }
}
