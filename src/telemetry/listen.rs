//! The listener of `/metrics`, `/healthz` and `/readyz`.
//!
//! Plain HTTP on a loopback address. On any other one only with TLS, and the API server decides who may read the
//! metrics (TokenReview, then SubjectAccessReview): no proxy has to stand in front. The probes tell nobody anything
//! but "ok", so they ask for no token.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::metrics::Metrics;
use super::readiness::Readiness;

/// So many scrapes at once: two Prometheus servers, the kubelet's probes, and a person.
const CONNECTIONS: usize = 16;

/// Who connects and says nothing is sent away: as long as Prometheus itself waits for a scrape by default.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the API server says of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// It may read this path.
    Allowed,
    /// It is known, and may not.
    Forbidden,
    /// It is nobody's.
    Unauthenticated,
    /// The API server could not be asked.
    Unknown,
}

/// Asks the API server.
pub trait Reviewer: Send + Sync {
    /// Decides whether the owner of a token may get a path.
    fn review<'a>(
        &'a self,
        token: &'a str,
        path: &'a str,
    ) -> Pin<Box<dyn Future<Output = Review> + Send + 'a>>;
}

/// Gives the TLS configuration of the next connection: certificates are renewed under a running agent.
pub type TlsSource = Box<dyn Fn() -> Result<Arc<tokio_rustls::rustls::ServerConfig>, String> + Send + Sync>;

/// Who may read.
pub enum Guard {
    /// Whoever is on this machine: a loopback address.
    Machine,
    /// Whom the API server lets, over TLS.
    Reviewed {
        /// The certificate.
        tls: TlsSource,
        /// The judge.
        reviewer: Box<dyn Reviewer>,
    },
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Machine => "Machine",
            Self::Reviewed { .. } => "Reviewed",
        })
    }
}

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is in use, or not this machine's.
    #[error("can't listen on {address} for metrics and health: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Metrics would be readable by the whole network.
    #[error(
        "{address} is not a loopback address: it is served only with --metrics-tls-cert, --metrics-tls-key and a cluster that reviews tokens"
    )]
    Unguarded {
        /// The address.
        address: SocketAddr,
    },
}

/// A listener that is bound.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    metrics: Metrics,
    readiness: Readiness,
    guard: Guard,
}

impl Listener {
    /// Binds the address. Within a tokio runtime.
    pub async fn bind(
        address: SocketAddr,
        guard: Guard,
        metrics: Metrics,
        readiness: Readiness,
    ) -> Result<Self, ListenError> {
        if matches!(guard, Guard::Machine) && !address.ip().is_loopback() {
            return Err(ListenError::Unguarded { address });
        }
        let socket =
            TcpListener::bind(address).await.map_err(|source| ListenError::Bind { address, source })?;
        let place = socket.local_addr().map_err(|source| ListenError::Bind { address, source })?;
        info!("metrics and health on {place}");
        Ok(Self { socket, metrics, readiness, guard })
    }

    /// Serves until the task is dropped.
    pub async fn serve(self) {
        let Self { socket, metrics, readiness, guard } = self;
        let shared = Arc::new(Shared { metrics, readiness, guard });
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let Ok((stream, _)) = socket.accept().await else {
                // Out of descriptors, or the peer is gone: the next one may be luckier, but not at once.
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            };
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                shared.meet(stream).await;
                drop(place);
            });
        }
    }
}

/// What every connection needs.
#[derive(Debug)]
struct Shared {
    metrics: Metrics,
    readiness: Readiness,
    guard: Guard,
}

impl Shared {
    async fn meet(self: Arc<Self>, stream: tokio::net::TcpStream) {
        match &self.guard {
            Guard::Machine => Arc::clone(&self).talk(stream).await,
            Guard::Reviewed { tls, .. } => match tls() {
                Ok(config) => {
                    let shaken =
                        tokio::time::timeout(PATIENCE, TlsAcceptor::from(config).accept(stream)).await;
                    if let Ok(Ok(stream)) = shaken {
                        Arc::clone(&self).talk(stream).await;
                    }
                }
                Err(cause) => warn!("nobody can read the metrics: {cause}"),
            },
        }
    }

    async fn talk(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(move |request| {
            let shared = Arc::clone(&self);
            async move { Ok::<_, Infallible>(shared.answer(request).await) }
        });
        let mut server = hyper::server::conn::http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
        // A reader that went away is no news.
        drop(server.serve_connection(TokioIo::new(stream), service).await);
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        }
        match request.uri().path() {
            "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/readyz" if self.readiness.is_ready() => plain(StatusCode::OK, "ok\n"),
            "/readyz" => plain(StatusCode::SERVICE_UNAVAILABLE, "the recovery is not done yet\n"),
            "/metrics" => match self.review(&request).await {
                Review::Allowed => metrics(self.metrics.text()),
                Review::Forbidden => {
                    plain(StatusCode::FORBIDDEN, "this identity may not get the nonResourceURL /metrics\n")
                }
                Review::Unauthenticated => {
                    plain(StatusCode::UNAUTHORIZED, "a bearer token that the API server knows is needed\n")
                }
                Review::Unknown => {
                    plain(StatusCode::SERVICE_UNAVAILABLE, "the API server can't be asked about this token\n")
                }
            },
            _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
        }
    }

    async fn review(&self, request: &Request<Incoming>) -> Review {
        let reviewer = match &self.guard {
            Guard::Machine => return Review::Allowed,
            Guard::Reviewed { reviewer, .. } => reviewer,
        };
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        match header.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(token) if !token.trim().is_empty() => reviewer.review(token.trim(), "/metrics").await,
            Some(_) | None => Review::Unauthenticated,
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

fn metrics(text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}
