//! Connections: their number, their lifetime, and their end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::answer::{Answers, RequestView};
use super::connections::{Connections, Limits};
use super::tls::{Tls, TlsFiles};

/// Maximum open connections: a rack of machines that is switched on.
pub(super) const MAX_CONNECTIONS: usize = 256;

/// As many from one address: a rack may stand behind one (NAT, a load balancer).
const MAX_PER_CLIENT: usize = MAX_CONNECTIONS;

/// Timeout of a TLS handshake and of a request's headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Lifetime of a connection: the largest config over a slow line.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(180);

/// Time that downloads may take after the signal to end.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// Most bytes that are read of a request.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Errors of the listener.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is in use, or not this machine's.
    #[error("can't listen on {address}: {source}; name another one by --listen")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Secrets would go over the network as they are.
    #[error("{address} is not a loopback address: it is served only with --tls-cert and --tls-key")]
    Plain {
        /// The address.
        address: SocketAddr,
    },
    /// The files of the certificate.
    #[error("{0}; correct --tls-cert, --tls-key or --client-ca")]
    Tls(String),
}

/// A listener that is bound.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    answers: Answers,
}

impl Listener {
    /// Binds the address. Within a tokio runtime.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<TlsFiles>,
        answers: Answers,
    ) -> Result<Self, ListenError> {
        if tls.is_none() && !address.ip().is_loopback() {
            return Err(ListenError::Plain { address });
        }
        let tls = tls.map(Tls::open).transpose().map_err(ListenError::Tls)?;
        let bind = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        info!("Serving new nodes on {address}");
        if answers.is_open() {
            warn!(
                "Every client that reaches {address} gets the configs with their secrets; require --token-file or --client-ca"
            );
        }
        Ok(Self { socket, address, tls, answers })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `end`, and then until the downloads end.
    pub async fn serve(self, end: impl Future<Output = ()>) {
        let Self { socket, tls, answers, .. } = self;
        let shared = Arc::new(Shared { tls, answers });
        let limits =
            Limits { total: MAX_CONNECTIONS, per_client: MAX_PER_CLIENT, lifetime: CONNECTION_TIMEOUT };
        let mut connections = Connections::new(limits);
        let mut end = std::pin::pin!(end);
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                () = &mut end => break,
            };
            let Ok((stream, peer)) = accepted else {
                // Out of descriptors, or the peer is gone: the next one may be luckier, but not at once.
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            };
            let has_request = Arc::new(AtomicBool::new(false));
            let talk = Arc::clone(&shared).meet(stream, peer, Arc::clone(&has_request));
            connections.admit(peer.ip(), talk, has_request);
            // A request that is there already is read before the next connection may take its place.
            tokio::task::yield_now().await;
        }
        drop(socket);
        info!("Ending: {} connections are open", connections.len());
        drop(tokio::time::timeout(END_TIMEOUT, connections.ended()).await);
    }
}

/// State that all connections share.
#[derive(Debug)]
struct Shared {
    tls: Option<Tls>,
    answers: Answers,
}

impl Shared {
    async fn meet(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, has_request: Arc<AtomicBool>) {
        let Some(tls) = &self.tls else {
            return self.talk(stream, peer, false, has_request).await;
        };
        let handshake = TlsAcceptor::from(tls.current()).accept(stream);
        if let Ok(Ok(stream)) = tokio::time::timeout(HEADER_TIMEOUT, handshake).await {
            let is_certified = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
            self.talk(stream, peer, is_certified, has_request).await;
        }
    }

    async fn talk(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: SocketAddr,
        is_certified: bool,
        has_request: Arc<AtomicBool>,
    ) {
        let service = service_fn(move |request: Request<Incoming>| {
            let (shared, has_request) = (Arc::clone(&self), Arc::clone(&has_request));
            async move {
                has_request.store(true, Ordering::Relaxed);
                let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
                let answer =
                    shared.answers.answer(RequestView { method, path, headers, peer, is_certified }).await;
                Ok::<_, Infallible>(answer)
            }
        });
        let mut server = hyper::server::conn::http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_HEADER_BYTES)
            .keep_alive(false);
        // A node that went away sends its request again.
        drop(server.serve_connection(TokioIo::new(stream), service).await);
    }
}
