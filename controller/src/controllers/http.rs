//! The listener of `/metrics`, `/healthz` and `/readyz`.
//!
//! Plain HTTP: it holds names of nodes and counts, no secret. By default on the loopback address; in the cluster a
//! network policy says who reaches it. A connection ends after a minute, whatever it does.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{info, warn};

use super::RunError;
use super::metrics::Metrics;

/// So many connections at once.
const MAX_CONNECTIONS: usize = 32;

/// How long the headers of a request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may last.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Says whether this process can do its work.
pub(super) type Ready = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Binds the address; the listener serves for as long as it is polled.
pub(super) async fn bind(address: SocketAddr) -> Result<TcpListener, RunError> {
    let listener = TcpListener::bind(address).await.map_err(|source| RunError::Bind { address, source })?;
    let place = listener.local_addr().map_err(|source| RunError::Bind { address, source })?;
    info!("metrics and health on {place}");
    Ok(listener)
}

/// Serves.
pub(super) async fn serve(listener: TcpListener, metrics: Metrics, ready: Ready) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!("a connection for metrics can't be accepted: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let (metrics, ready) = (metrics.clone(), Arc::clone(&ready));
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &metrics, &ready);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            // What a client does wrong is its own affair.
            drop(timeout(CONNECTION_TIMEOUT, connection).await);
            drop(place);
        });
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics, ready: &Ready) -> Response<Full<Bytes>> {
    let (status, kind, text) = if request.method() == Method::GET {
        match request.uri().path() {
            "/metrics" => (StatusCode::OK, Metrics::CONTENT_TYPE, metrics.text()),
            "/healthz" => (StatusCode::OK, "text/plain", "ok".to_owned()),
            "/readyz" => match ready() {
                Ok(()) => (StatusCode::OK, "text/plain", "ok".to_owned()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", why),
            },
            _ => (StatusCode::NOT_FOUND, "text/plain", "not found".to_owned()),
        }
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET".to_owned())
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
