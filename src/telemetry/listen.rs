//! The listener of `/metrics`, `/healthz` and `/readyz`.
//!
//! Plain HTTP on a loopback address. On any other one only with TLS, and the API server decides who may read the
//! metrics (TokenReview, then SubjectAccessReview): no proxy has to stand in front. The probes return nothing
//! but "ok", so they need no token.
//!
//! Every connection is accepted at once. When there are too many, the oldest one without a request under way is closed:
//! an idle client costs others nothing, and the kubelet's probe is answered. The headers of
//! a request have a time limit and a size limit, a connection a longest life.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::metrics::Metrics;
use super::readiness::Readiness;

/// Maximum open connections: two Prometheus servers, the kubelet's probes, and a person.
const MAX_CONNECTIONS: usize = 16;

/// Time limit of a TLS handshake, the headers of a request and the pause between two requests: as long as Prometheus
/// itself waits for a scrape by default.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest life of a connection: a longer scrape has no reader any more.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);

/// As much of a request is kept: a bearer token of a service account has 1 to 2 KiB.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// The API server's answer about a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// It may read this path.
    Allowed,
    /// It is known, and may not.
    Forbidden,
    /// The token has no owner.
    Unauthenticated,
    /// The API server is away.
    Unknown,
}

/// Authorizes a token by the API server.
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

/// Access control of the metrics.
pub enum Guard {
    /// Every user of this machine: a loopback address.
    Machine,
    /// Users allowed by the API server, over TLS.
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

/// Error of the listener's start.
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
        info!("Serving metrics and health on {place}");
        Ok(Self { socket, metrics, readiness, guard })
    }

    /// Serves until the task is dropped.
    pub async fn serve(self) {
        let Self { socket, metrics, readiness, guard } = self;
        let shared = Arc::new(Shared { metrics, readiness, guard });
        let mut connections = Connections::default();
        loop {
            let Ok((stream, _)) = socket.accept().await else {
                // Out of descriptors, or the peer is gone: the next one may be luckier, but not at once.
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            };
            let busy = Arc::new(AtomicBool::new(false));
            let connection = Arc::clone(&shared).serve_connection(stream, Arc::clone(&busy));
            connections.admit(connection, busy);
            // A request that is there already is answered before the next connection may take its place.
            tokio::task::yield_now().await;
        }
    }
}

/// The open connections, oldest first. All are closed when this is dropped.
#[derive(Debug, Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: VecDeque<Connection>,
}

#[derive(Debug)]
struct Connection {
    /// A request is under way.
    busy: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Connections {
    /// Serves one more connection; closes an older one if there are too many.
    fn admit(&mut self, connection: impl Future<Output = ()> + Send + 'static, busy: Arc<AtomicBool>) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|connection| !connection.task.is_finished());
        if self.open.len() >= MAX_CONNECTIONS {
            let idle = self.open.iter().position(|connection| !connection.busy.load(Ordering::Relaxed));
            if let Some(evicted) = self.open.remove(idle.unwrap_or_default()) {
                evicted.task.abort();
            }
        }
        let task = self.tasks.spawn(async {
            // One that lasts too long is closed without a word, as its reader is gone or means harm.
            drop(tokio::time::timeout(CONNECTION_TIMEOUT, connection).await);
        });
        self.open.push_back(Connection { busy, task });
    }
}

/// State shared by all connections.
#[derive(Debug)]
struct Shared {
    metrics: Metrics,
    readiness: Readiness,
    guard: Guard,
}

impl Shared {
    async fn serve_connection(self: Arc<Self>, stream: tokio::net::TcpStream, busy: Arc<AtomicBool>) {
        match &self.guard {
            Guard::Machine => Arc::clone(&self).serve_http(stream, busy).await,
            Guard::Reviewed { tls, .. } => match tls() {
                Ok(config) => {
                    let handshake = TlsAcceptor::from(config).accept(stream);
                    if let Ok(Ok(stream)) = tokio::time::timeout(HEADER_TIMEOUT, handshake).await {
                        Arc::clone(&self).serve_http(stream, busy).await;
                    }
                }
                Err(cause) => warn!("Metrics can't be read: {cause}"),
            },
        }
    }

    async fn serve_http(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        busy: Arc<AtomicBool>,
    ) {
        let service = service_fn(move |request| {
            let (shared, busy) = (Arc::clone(&self), Arc::clone(&busy));
            async move {
                busy.store(true, Ordering::Relaxed);
                let response = shared.respond(request).await;
                busy.store(false, Ordering::Relaxed);
                Ok::<_, Infallible>(response)
            }
        });
        let mut server = hyper::server::conn::http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER_BYTES);
        // A reader that went away is no news.
        drop(server.serve_connection(TokioIo::new(stream), service).await);
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        }
        match request.uri().path() {
            "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/readyz" if self.readiness.is_ready() => plain(StatusCode::OK, "ok\n"),
            "/readyz" => plain(StatusCode::SERVICE_UNAVAILABLE, "the recovery is not done yet\n"),
            "/metrics" => match self.review(&request).await {
                Review::Allowed => {
                    self.metrics.refresh().await;
                    metrics(self.metrics.text())
                }
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

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;
    use crate::telemetry::metrics::HostLabels;

    const PROBE: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        // Real time, for a server that never answers.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn probe(address: SocketAddr) -> String {
        let mut stream = connect(address);
        stream.write_all(PROBE).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn is_open(stream: &mut TcpStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        let read = stream.read(&mut [0; 16]);
        stream.set_nonblocking(false).unwrap();
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Runs a client against a listener whose clock stands still: while a blocking task runs, nothing turns it.
    async fn with_clock_stopped(client: impl FnOnce(SocketAddr) + Send + 'static) {
        let address = "127.0.0.1:0".parse().unwrap();
        let metrics = Metrics::new(HostLabels::default(), Vec::new());
        let listener = Listener::bind(address, Guard::Machine, metrics, Readiness::default()).await.unwrap();
        let address = listener.socket.local_addr().unwrap();
        let server = tokio::spawn(listener.serve());
        tokio::task::spawn_blocking(move || client(address)).await.unwrap();
        server.abort();
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn idle_connections_do_not_block_probe() {
        with_clock_stopped(|address| {
            let mut idle: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| connect(address)).collect();
            // The last byte of a request never comes.
            for stream in &mut idle {
                stream.write_all(&PROBE[..PROBE.len() - 1]).unwrap();
            }
            assert!(probe(address).ends_with("ok\n"));
            let open: Vec<bool> = idle.iter_mut().map(is_open).collect();
            assert_eq!(open.iter().filter(|open| **open).count(), MAX_CONNECTIONS - 1, "{open:?}");
            assert!(!open[0], "the oldest is closed");
            // A flood of them does not either.
            let flood: Vec<TcpStream> = (0..200).map(|_| connect(address)).collect();
            assert!(probe(address).ends_with("ok\n"));
            drop(flood);
        })
        .await;
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn oversized_headers_are_refused() {
        with_clock_stopped(|address| {
            let mut stream = connect(address);
            stream.write_all(b"GET /healthz HTTP/1.1\r\nX: ").unwrap();
            // The server stops reading, closes, and the rest may meet a reset.
            drop(stream.write_all(&vec![b'x'; MAX_HEADER_BYTES]));
            let mut answer = Vec::new();
            drop(stream.read_to_end(&mut answer));
            assert!(answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
        })
        .await;
    }
}
