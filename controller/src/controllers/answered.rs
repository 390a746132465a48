//! Watches that the API server has answered. kube's watcher says nothing of a watch that starts again and has no change to tell,
//! so the answers are noted where they come in.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use tokio::sync::watch;
use tower::{Layer, Service};

/// Answers by path.
static ANSWERS: LazyLock<watch::Sender<BTreeMap<String, u64>>> =
    LazyLock::new(|| watch::channel(BTreeMap::new()).0);

/// Waits for the next answer to a watch of a path.
pub(super) struct Answers {
    path: String,
    receiver: watch::Receiver<BTreeMap<String, u64>>,
    known: u64,
}

impl Answers {
    /// Follows those of a path from now on.
    pub(super) fn of(path: &str) -> Self {
        let receiver = ANSWERS.subscribe();
        let known = receiver.borrow().get(path).copied().unwrap_or_default();
        Self { path: path.to_owned(), receiver, known }
    }

    /// Forgets those that came before.
    pub(super) fn skip(&mut self) {
        self.known = self.receiver.borrow().get(&self.path).copied().unwrap_or_default();
    }

    /// Waits for one. Cancel-safe.
    pub(super) async fn next(&mut self) {
        let (path, known) = (&self.path, self.known);
        let is_new = |all: &BTreeMap<String, u64>| all.get(path).copied().unwrap_or_default() != known;
        // The sender has no end.
        drop(self.receiver.wait_for(is_new).await.map(drop));
        self.skip();
    }
}

fn note(path: String) {
    ANSWERS.send_modify(|all| {
        let count = all.entry(path).or_default();
        *count = count.wrapping_add(1);
    });
}

/// The layer that notes them.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoteAnswers;

impl<S> Layer<S> for NoteAnswers {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Noting<S> {
        Noting { inner }
    }
}

/// A service whose answers are noted.
#[derive(Debug, Clone)]
pub(super) struct Noting<S> {
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
        let is_watch = request.method() == Method::GET
            && uri.query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
        let path = is_watch.then(|| uri.path().to_owned());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            if let Some(path) = path.filter(|_| answer.status().is_success()) {
                note(path);
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
        let mut answers = Answers::of("/apis/a/b");
        let ask = async |uri: &str, status: u16| {
            let service = tower::service_fn(move |_: Request<()>| async move {
                Ok::<_, Infallible>(Response::builder().status(status).body(()).unwrap())
            });
            let request = Request::get(uri).body(()).unwrap();
            NoteAnswers.layer(service).oneshot(request).await.unwrap();
        };
        for (uri, status) in
            [("/apis/a/b?&limit=1", 200), ("/apis/a/b?&watch=true", 403), ("/apis/a/c?&watch=true", 200)]
        {
            ask(uri, status).await;
            let next = tokio::time::timeout(std::time::Duration::ZERO, answers.next()).await;
            assert!(next.is_err(), "{uri} {status}");
        }
        ask("/apis/a/b?&watch=true", 200).await;
        answers.next().await;
    }
}
