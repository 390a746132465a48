//! kube's client over this agent's one connection, and the layers between them.
//!
//! ```text
//! kube::Client     requests of typed objects, watches
//!   judged         an answer that is no success is an error that names its object
//!   RetryPolicy    a busy API server is asked again, as late as it says (Retry-After)
//!   not_too_soon   no request is sent before that
//!   bounded        bytes and time of an answer; lines of a watch
//!   Decompression  gzip
//!   timed          the time until an answer begins
//!   Connector      credentials, one HTTP/2 connection, the counters
//! ```
//!
//! Invariant: each try of a request ends within the limit of `timeout`, and there are at most [`TRIES`].

use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Bytes, Incoming};
use kube::client::Body;
use tokio::time::Instant;
use tower::retry::{Policy, RetryLayer};
use tower::{BoxError, Service, ServiceBuilder, service_fn};
use tower_http::decompression::DecompressionLayer;
use tracing::warn;

use super::adaptive_timeout::AdaptiveTimeout;
use super::body::{Bounded, Bounds};
use super::connection::Connector;
use super::error::{IS_BUSY, KubeError};
use super::identity::Identity;
use super::request::{RequestInfo, error_from_status, is_busy, retry_after};
use super::traffic::Traffic;
use crate::model::message;

/// Tries of a request to a busy API server.
const TRIES: u32 = 4;

/// The longest wait between two tries: the loop waits for the request. A request with a longer delay fails meanwhile.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(5);

/// The first wait for a busy API server that names no delay; doubled each time.
const SHORT_WAIT: Duration = Duration::from_millis(250);

/// The API server as this agent's identity reaches it.
#[derive(Clone)]
pub(super) struct ApiClient {
    client: kube::Client,
    traffic: Arc<Traffic>,
}

impl ApiClient {
    /// Takes an identity. Nothing is read or connected yet. Within a tokio runtime.
    pub(super) fn new(identity: Identity) -> Self {
        Self::over(Connector::new(identity))
    }

    /// Takes another identity beside this one, with a connection of its own; both count together.
    pub(super) fn beside(&self, identity: Identity) -> Self {
        Self::over(Connector::new(identity).counting(&self.traffic))
    }

    fn over(connector: Connector) -> Self {
        let connector = Arc::new(connector);
        let traffic = Arc::clone(&connector.traffic);
        let (timeout, busy) =
            (Arc::<AdaptiveTimeout>::default(), Arc::new(Busy::new(Arc::clone(&connector))));
        let exchange = service_fn(move |request| {
            let (connector, timeout) = (Arc::clone(&connector), Arc::clone(&timeout));
            async move { timed(&connector, timeout, request).await }
        });
        Self { client: client(exchange, busy), traffic }
    }

    /// Returns the traffic over it.
    pub(super) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Returns the client.
    pub(super) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Reads an object as the API server sends it.
    pub(super) async fn get(&self, path: &str, object: &str) -> Result<String, KubeError> {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
        let text = match request {
            Ok(request) => self.client.request_text(request).await,
            Err(error) => Err(error),
        };
        text.map_err(KubeError::about(object))
    }
}

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiClient").finish_non_exhaustive()
    }
}

/// Puts the layers around a service that exchanges one request for one answer.
fn client<S, B>(exchange: S, busy: Arc<Busy>) -> kube::Client
where
    S: Service<Request<Body>, Response = Response<B>, Error = KubeError> + Clone + Send + 'static,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    let gate = Arc::clone(&busy);
    let not_too_soon = move |request: Request<Body>| {
        let (busy, object) = (Arc::clone(&gate), RequestInfo::from_request(&request).object);
        async move { busy.not_too_soon(object).await.map(|()| request) }
    };
    let service = ServiceBuilder::new()
        .and_then(judged)
        .layer(RetryLayer::new(RetryPolicy { busy, tries: 1 }))
        .filter_async(not_too_soon)
        .map_response(bounded)
        .layer(DecompressionLayer::new())
        .service(exchange);
    kube::Client::new(service, "default")
}

/// Exchanges a request for the beginning of an answer, in time.
async fn timed(
    connector: &Connector,
    limit: Arc<AdaptiveTimeout>,
    request: Request<Body>,
) -> Result<Response<Incoming>, KubeError> {
    let purpose = RequestInfo::from_request(&request);
    let (timeout, began) = (limit.timeout(), Instant::now());
    let exchange = connector.exchange(request, &purpose);
    let Ok(exchanged) = tokio::time::timeout(timeout, exchange).await else {
        limit.exceeded();
        let cause = format!("no answer for {} within {} s", purpose.object, timeout.as_secs());
        return Err(KubeError::Away { server: connector.server()?, cause });
    };
    let (mut response, server) = exchanged?;
    limit.answered(began.elapsed());
    let watch = purpose.watch && response.status().is_success();
    let bounds = Bounds { object: purpose.object.clone(), server, watch, timeout: limit };
    response.extensions_mut().insert(bounds);
    response.extensions_mut().insert(purpose);
    if response.status() == StatusCode::UNAUTHORIZED
        && let Some(told) = connector.certificate_told()
    {
        response.extensions_mut().insert(Certificate(told));
    }
    Ok(response)
}

/// The validity of the client certificate on disk, beside an answer 401.
#[derive(Debug, Clone)]
struct Certificate(String);

/// Bounds the body of an answer.
fn bounded<B>(response: Response<B>) -> Response<Bounded<B>> {
    let bounds = response.extensions().get::<Bounds>().cloned().unwrap_or_default();
    response.map(|body| Bounded::new(body, bounds))
}

/// Returns a successful answer, or the error of another one.
async fn judged<B>(response: Response<Bounded<B>>) -> Result<Response<Bounded<B>>, BoxError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    if parts.status.is_success() {
        return Ok(Response::from_parts(parts, body));
    }
    let bytes = body.collect().await?.to_bytes();
    let purpose = parts.extensions.get::<RequestInfo>().cloned().unwrap_or_default();
    let server = parts.extensions.get::<Bounds>().map(|bounds| bounds.server.clone()).unwrap_or_default();
    let error = error_from_status(parts.status, &bytes, &purpose, server);
    Err(match parts.extensions.get::<Certificate>() {
        Some(Certificate(told)) => error.with_remark(told),
        None => error,
    }
    .into())
}

/// A busy API server's answer.
struct Busy {
    connector: Arc<Connector>,
    state: Mutex<BusyState>,
}

#[derive(Default)]
struct BusyState {
    /// It was logged.
    logged: bool,
    /// No request before this.
    until: Option<Instant>,
}

impl Busy {
    fn new(connector: Arc<Connector>) -> Self {
        Self { connector, state: Mutex::default() }
    }

    /// Waits for as long as a busy API server requested; an error where that is too long to wait for.
    async fn not_too_soon(&self, object: String) -> Result<(), KubeError> {
        let until = self.lock().until;
        let Some(until) = until.filter(|until| *until > Instant::now()) else { return Ok(()) };
        let wait = until.duration_since(Instant::now());
        if wait <= MAX_RETRY_WAIT {
            tokio::time::sleep_until(until).await;
            return Ok(());
        }
        let cause =
            format!("{IS_BUSY}{object} is requested in {} s, as the server requested", wait.as_secs());
        Err(KubeError::Away { server: self.connector.server()?, cause })
    }

    /// Notes that the API server is busy, and logs it once.
    fn note(&self, object: &str, status: StatusCode, after: Duration) {
        let mut state = self.lock();
        state.until = Some(Instant::now() + after);
        if !std::mem::replace(&mut state.logged, true) {
            warn!(
                MESSAGE_ID = message::WAITING,
                "The API server is busy ({}); requesting {object} again in {} ms",
                status.as_u16(),
                after.as_millis()
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, BusyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tries of one request.
#[derive(Clone)]
struct RetryPolicy {
    busy: Arc<Busy>,
    tries: u32,
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for RetryPolicy {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Ready<()>> {
        let response = result.as_ref().ok()?;
        let purpose = RequestInfo::from_request(request);
        if purpose.once || !is_busy(response.status(), response.headers()) {
            *self.busy.lock() = BusyState::default();
            return None;
        }
        let after = retry_after(response.headers()).unwrap_or(SHORT_WAIT * (1 << self.tries));
        self.busy.note(&purpose.object, response.status(), after);
        self.tries += 1;
        // The next try waits in `not_too_soon`.
        (self.tries <= TRIES).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut clone = Request::new(request.body().try_clone()?);
        *clone.method_mut() = request.method().clone();
        *clone.uri_mut() = request.uri().clone();
        clone.headers_mut().clone_from(request.headers());
        Some(clone)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::header::{CONTENT_ENCODING, RETRY_AFTER};
    use http_body_util::Full;

    use super::super::body::MAX_BYTES;
    use super::*;

    /// A client of a server that answers each request so.
    fn served(
        answer: impl Fn() -> http::response::Builder + Clone + Send + 'static,
        body: Vec<u8>,
    ) -> kube::Client {
        let connector = Connector::new(Identity::kubeconfig(&["/none".into()]).unwrap());
        let busy = Arc::new(Busy::new(Arc::new(connector)));
        let timeout = Arc::<AdaptiveTimeout>::default();
        let exchange = service_fn(move |request: Request<Body>| {
            let mut response = answer().body(Full::new(Bytes::from(body.clone()))).unwrap();
            let purpose = RequestInfo::from_request(&request);
            let (object, server) = (purpose.object.clone(), "https://api.test".to_owned());
            let bounds = Bounds { object, server, watch: purpose.watch, timeout: Arc::clone(&timeout) };
            response.extensions_mut().insert(bounds);
            response.extensions_mut().insert(purpose);
            ready(Ok(response))
        });
        client(exchange, busy)
    }

    async fn get(client: &kube::Client) -> Result<String, KubeError> {
        let request = Request::get("/api/v1/nodes/a").body(Vec::new()).unwrap();
        let answer = client.request_text(request).await;
        answer.map_err(|error| KubeError::new(&error, "Node a"))
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// The bound is that of the contents: a few bytes can unpack to gigabytes.
    #[tokio::test]
    async fn compressed_answer_is_unpacked_within_its_limit() {
        let gzip = || Response::builder().header(CONTENT_ENCODING, "gzip");
        assert_eq!(get(&served(gzip, packed(b"answer"))).await.unwrap(), "answer");
        let bomb = packed(&vec![b' '; MAX_BYTES + 1]);
        assert!(bomb.len() < 200_000);
        let error = get(&served(gzip, bomb)).await.unwrap_err();
        assert!(error.is_away() && error.to_string().contains("more than 16777216 bytes"), "{error}");
        assert!(get(&served(gzip, b"plain".to_vec())).await.is_err());
        let cut = packed(b"answer");
        assert!(get(&served(gzip, cut[..cut.len() - 4].to_vec())).await.is_err());
    }

    #[tokio::test]
    async fn plain_answer_is_bounded() {
        let error = get(&served(Response::builder, vec![b' '; MAX_BYTES + 1])).await.unwrap_err();
        assert!(error.is_away(), "{error}");
        assert_eq!(get(&served(Response::builder, vec![b' '; MAX_BYTES])).await.unwrap().len(), MAX_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn busy_server_is_retried_after_its_delay() {
        let requests = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&requests);
        let busy = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Response::builder().status(503).header(RETRY_AFTER, "2")
        };
        let client = served(busy, Vec::new());
        let began = Instant::now();
        let error = get(&client).await.unwrap_err();
        assert!(error.is_away() && error.to_string().contains("it answers 503 for Node a"), "{error}");
        assert_eq!((requests.load(Ordering::Relaxed), began.elapsed().as_secs()), (4, 6));
        // The next request waits, too.
        drop(get(&client).await);
        assert_eq!((requests.load(Ordering::Relaxed), began.elapsed().as_secs()), (8, 14));
    }

    #[tokio::test(start_paused = true)]
    async fn eviction_is_not_repeated() {
        let requests = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&requests);
        let refused = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Response::builder().status(429)
        };
        let client = served(refused, br#"{"message":"the budget needs 1"}"#.to_vec());
        let request = Request::post("/api/v1/namespaces/a/pods/b/eviction").body(Vec::new()).unwrap();
        let error = client.request_text(request).await.unwrap_err();
        let error = KubeError::new(&error, "Pod a/b");
        assert!(matches!(error, KubeError::Refused { status: 429, .. }), "{error}");
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }
}
