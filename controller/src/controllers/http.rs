//! The listener of `/metrics`, `/healthz` and `/readyz`.
//!
//! Plain HTTP: it holds names of nodes and counts, no secret. By default on the loopback address; in the cluster a
//! network policy restricts its clients.
//!
//! Every connection is accepted at once. A client with too many connections loses its oldest one, so that it costs
//! others nothing, and the kubelet's probe is answered. A connection ends after a minute, whatever it does.

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
use tokio::net::{TcpListener, TcpStream};
use tracing::{info, warn};

use super::error::RunError;
use super::metrics::Metrics;
use crate::serve::connections::{Connections, Limits};

/// Maximum open connections.
const MAX_CONNECTIONS: usize = 32;

/// Maximum open connections per address.
const MAX_PER_CLIENT: usize = 8;

/// Timeout of a request's headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Lifetime of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Most bytes that are read of a request.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Check of this process's readiness; an error names the cause.
pub(super) type Ready = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Binds the address; the listener serves for as long as it is polled.
pub(super) async fn bind(address: SocketAddr) -> Result<TcpListener, RunError> {
    let listener = TcpListener::bind(address).await.map_err(|source| RunError::Bind { address, source })?;
    let place = listener.local_addr().map_err(|source| RunError::Bind { address, source })?;
    info!("Serving metrics and health on {place}");
    Ok(listener)
}

/// Serves.
pub(super) async fn serve(listener: TcpListener, metrics: Metrics, ready: Ready) {
    let limits = Limits { total: MAX_CONNECTIONS, per_client: MAX_PER_CLIENT, lifetime: CONNECTION_TIMEOUT };
    let mut connections = Connections::new(limits);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("a connection for metrics can't be accepted: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let talk = talk(stream, metrics.clone(), Arc::clone(&ready));
        // An answer takes no time, so a held connection is idle or not read: the oldest one is closed first.
        connections.admit(peer.ip(), talk, Arc::default());
        // A request that is there already is answered before the next connection may take its place.
        tokio::task::yield_now().await;
    }
}

async fn talk(stream: TcpStream, metrics: Metrics, ready: Ready) {
    let service = service_fn(move |request| {
        let answer = answer(&request, &metrics, &ready);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER_BYTES);
    // A client's errors are ignored.
    drop(http.serve_connection(TokioIo::new(stream), service).await);
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

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    const PROBE: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    fn connect(address: SocketAddr, from: &str) -> TcpStream {
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
        let socket = socket.unwrap();
        let from: SocketAddr = format!("{from}:0").parse().unwrap();
        rustix::net::bind(&socket, &from).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        let stream = TcpStream::from(socket);
        // Real time, for a server that never answers: long enough for one under load.
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    fn probe(address: SocketAddr) -> String {
        let mut stream = connect(address, "127.0.0.1");
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
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, Metrics::new(), Arc::new(|| Ok(()))));
        tokio::task::spawn_blocking(move || client(address)).await.unwrap();
        server.abort();
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn held_connections_do_not_block_probe() {
        with_clock_stopped(|address| {
            let mut held: Vec<TcpStream> =
                (0..MAX_CONNECTIONS).map(|_| connect(address, "127.0.0.1")).collect();
            // The last byte of a request never comes.
            for stream in &mut held {
                stream.write_all(&PROBE[..PROBE.len() - 1]).unwrap();
            }
            assert!(probe(address).ends_with("ok"));
            // A flood of them does not either.
            let flood: Vec<TcpStream> = (0..200).map(|_| connect(address, "127.0.0.1")).collect();
            assert!(probe(address).ends_with("ok"));
            drop(flood);
        })
        .await;
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn stalled_readers_do_not_block_probe() {
        with_clock_stopped(|address| {
            let held = (0..MAX_CONNECTIONS).map(|_| {
                let mut stream = connect(address, "127.0.0.1");
                // Many requests, and not one answer read.
                let requests = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
                stream.set_nonblocking(true).unwrap();
                drop(stream.write(&requests));
                stream
            });
            let held: Vec<TcpStream> = held.collect();
            assert!(probe(address).ends_with("ok"));
            drop(held);
        })
        .await;
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn one_client_closes_only_its_own_connections() {
        with_clock_stopped(|address| {
            let mut other = connect(address, "127.0.0.1");
            let mut flood: Vec<TcpStream> =
                (0..MAX_CONNECTIONS * 4).map(|_| connect(address, "127.0.0.2")).collect();
            assert!(probe(address).ends_with("ok"));
            assert!(is_open(&mut other));
            let open = flood.iter_mut().map(is_open).filter(|open| *open).count();
            assert_eq!(open, MAX_PER_CLIENT);
        })
        .await;
    }
}
