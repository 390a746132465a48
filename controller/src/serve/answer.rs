//! A request to its answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::accept::{self, Version};
use super::files;
use super::guard::Tokens;
use super::kubeconfig::Kubeconfig;
use super::no_config::NoConfig;
use super::source::Source;

/// The largest file of tokens.
const MAX_TOKENS: u64 = 256 * 1024;

/// The answers that are made at a time: each has a config in memory several times.
const MAX_AT_A_TIME: usize = 4;

/// Most answers in the cache, so that many downloads of one document need its memory once.
const MAX_CACHED: usize = 32;

/// Interval of logged refusals: any client that reaches the port can cause one.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(1);

/// Sources and limits of the answers.
#[derive(Debug)]
pub struct Answers {
    source: Source,
    kubeconfig: Kubeconfig,
    guard: Guard,
    turns: Semaphore,
    cached: Mutex<BTreeMap<(String, Version), Bytes>>,
    refusals: Mutex<Refusals>,
}

/// Credentials that a client has to show.
#[derive(Debug, Default)]
struct Guard {
    tokens: Option<PathBuf>,
    certificates: bool,
}

#[derive(Debug, Default)]
struct Refusals {
    last: Option<Instant>,
    silent: u64,
}

/// The parts of a request that are read.
#[derive(Debug)]
pub(super) struct RequestView<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) peer: SocketAddr,
    /// It has shown a certificate of a client authority.
    pub(super) is_certified: bool,
}

/// An answer that is no config.
struct Refusal {
    status: StatusCode,
    text: String,
    header: Option<(HeaderName, &'static str)>,
}

impl Refusal {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), header: None }
    }

    /// Returns a 503: an administrator can repair the cause while the node retries.
    fn later(text: impl Into<String>) -> Self {
        Self { header: Some((RETRY_AFTER, "10")), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text) }
    }
}

impl Answers {
    /// Answers from a source to everybody.
    pub fn new(source: Source, kubeconfig: Kubeconfig) -> Self {
        let turns = Semaphore::new(MAX_AT_A_TIME);
        let (cached, refusals) = (Mutex::default(), Mutex::default());
        Self { source, kubeconfig, guard: Guard::default(), turns, cached, refusals }
    }

    /// Answers only clients that show a token of this file, or a certificate where clients' are checked.
    #[must_use]
    pub fn guarded(mut self, tokens: Option<PathBuf>, certificates: bool) -> Self {
        self.guard = Guard { tokens, certificates };
        self
    }

    /// Returns true if every client gets a config.
    pub(super) fn is_open(&self) -> bool {
        self.guard.tokens.is_none() && !self.guard.certificates
    }

    pub(super) async fn answer(&self, request: RequestView<'_>) -> Response<Full<Bytes>> {
        match self.found(&request).await {
            Ok((body, kind)) => response(StatusCode::OK, body, (CONTENT_TYPE, kind)),
            Err(refusal) => {
                self.log(&request, &refusal);
                let Refusal { status, text, header } = refusal;
                let header = header.unwrap_or((CONTENT_TYPE, "text/plain; charset=utf-8"));
                response(status, Bytes::from(text + "\n"), header)
            }
        }
    }

    async fn found(&self, request: &RequestView<'_>) -> Result<(Bytes, &'static str), Refusal> {
        if request.method != Method::GET && request.method != Method::HEAD {
            let header = Some((ALLOW, "GET, HEAD"));
            return Err(Refusal {
                header,
                ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD")
            });
        }
        match request.path {
            "/healthz" => Ok((Bytes::from_static(b"ok\n"), "text/plain")),
            "/readyz" if self.source.is_ready() => Ok((Bytes::from_static(b"ok\n"), "text/plain")),
            "/readyz" => Err(Refusal::later("the pools are not known yet")),
            path => match path.strip_prefix("/config/").filter(|pool| super::is_name(pool)) {
                Some(pool) => Ok((self.config(request, pool).await?, "application/json")),
                None => {
                    Err(Refusal::new(StatusCode::NOT_FOUND, "there are /config/POOL, /healthz and /readyz"))
                }
            },
        }
    }

    async fn config(&self, request: &RequestView<'_>, pool: &str) -> Result<Bytes, Refusal> {
        self.admit(request, pool)?;
        let accept = text(request.headers, &ACCEPT);
        let version = accept::version(accept)
            .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        let closed = |_| Refusal::later("the server ends");
        let _turn = self.turns.acquire().await.map_err(closed)?;
        let mut joining = self.source.joining(pool).await.map_err(|error| match error {
            NoConfig::NoPool { .. } => Refusal::new(StatusCode::NOT_FOUND, error.to_string()),
            NoConfig::NotYet(_) => Refusal::later(error.to_string()),
        })?;
        joining.kubeconfig = self.kubeconfig.read().map_err(Refusal::later)?;
        if self.kubeconfig.is_missing() && !joining.brings_first_contact() {
            return Err(Refusal::later(
                "the node would have no kubeconfig for its first contact; start serve with --bootstrap-kubeconfig or \
                 --bootstrap-token-dir, add /etc/kubernetes/kubeconfig to the config, or allow it with --without-first-contact",
            ));
        }
        let document = joining
            .document(version)
            .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        info!(
            "Serving {} of pool {pool} to {}: Ignition {version}, {} bytes",
            joining.name(),
            request.peer,
            document.len()
        );
        Ok(self.shared(pool, version, document))
    }

    /// Returns these bytes, once in memory.
    fn shared(&self, pool: &str, version: Version, document: Vec<u8>) -> Bytes {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (pool.to_owned(), version);
        if let Some(known) = cached.get(&key).filter(|known| ***known == *document) {
            return known.clone();
        }
        if cached.len() >= MAX_CACHED {
            cached.clear();
        }
        let document = Bytes::from(document);
        cached.insert(key, document.clone());
        document
    }

    fn admit(&self, request: &RequestView<'_>, pool: &str) -> Result<(), Refusal> {
        if self.is_open() || request.is_certified {
            return Ok(());
        }
        if let Some(path) = &self.guard.tokens {
            // A file that can't be read opens nothing; it may be back in a moment.
            let tokens = files::text(path, MAX_TOKENS).and_then(|text| {
                Tokens::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
            });
            match tokens {
                Ok(tokens) if tokens.permits(text(request.headers, &AUTHORIZATION), pool) => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    warn!("No token is accepted: {error}");
                    return Err(Refusal::later("the server can't read its tokens"));
                }
            }
        }
        let message = match (self.guard.tokens.is_some(), self.guard.certificates) {
            (true, true) => "a bearer token of this pool or a client certificate is needed",
            (true, false) => "a bearer token of this pool is needed",
            (false, _) => "a client certificate is needed",
        };
        Err(Refusal {
            header: Some((WWW_AUTHENTICATE, "Bearer")),
            ..Refusal::new(StatusCode::UNAUTHORIZED, message)
        })
    }

    fn log(&self, request: &RequestView<'_>, refusal: &Refusal) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.last.is_some_and(|last| last.elapsed() < REFUSAL_INTERVAL) {
            refusals.silent += 1;
            return;
        }
        let silent = std::mem::take(&mut refusals.silent);
        refusals.last = Some(Instant::now());
        let more = if silent == 0 { String::new() } else { format!(" ({silent} more were not logged)") };
        // The path is anybody's text.
        let path: String = request.path.chars().take(100).collect();
        warn!("Refused {path:?} to {}: {} {}{more}", request.peer, refusal.status.as_u16(), refusal.text);
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn response(status: StatusCode, body: Bytes, header: (HeaderName, &'static str)) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header.0, HeaderValue::from_static(header.1));
    response
}
