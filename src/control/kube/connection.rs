//! The API server as this agent's identity reaches it: one HTTP/2 connection, made when it is needed.
//!
//! The credentials are read for each connection and after a refusal. A request that was lost with its connection is
//! sent again where that is safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use kube::client::Body;
use secrecy::ExposeSecret as _;
use tokio::sync::Mutex;

use super::error::KubeError;
use super::identity::{ApiCredentials, Identity};
use super::request::RequestInfo;
use super::tls::{Connection, Endpoint, connect};
use super::traffic::Traffic;
use crate::host::clock::Clock;
use crate::model::Sha256;
use crate::model::text::chain;

/// The user agent, as the audit log shows it.
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("machine-config-agent/", env!("CARGO_PKG_VERSION")));

/// The way to the API server.
pub(super) struct Connector {
    identity: Identity,
    open: Mutex<Option<Open>>,
    opened: AtomicU64,
    pub(super) traffic: Arc<Traffic>,
}

/// A connection, with its credentials.
#[derive(Clone)]
struct Open {
    connection: Connection,
    endpoint: Endpoint,
    fingerprint: Sha256,
    bearer: Option<HeaderValue>,
    number: u64,
}

/// A request that was lost with its connection.
struct Lost {
    unsent: bool,
    cause: String,
}

impl Connector {
    /// Takes an identity. Nothing is read or connected yet.
    pub(super) fn new(identity: Identity) -> Self {
        Self { identity, open: Mutex::new(None), opened: AtomicU64::new(0), traffic: Arc::default() }
    }

    /// Counts together with another connection.
    pub(super) fn counting(self, traffic: &Arc<Traffic>) -> Self {
        Self { traffic: Arc::clone(traffic), ..self }
    }

    /// Sends a request, again on another connection where the first was lost or its credentials were old.
    pub(super) async fn exchange(
        &self,
        request: Request<Body>,
        purpose: &RequestInfo,
    ) -> Result<(Response<Incoming>, String), KubeError> {
        let (parts, body) = request.into_parts();
        let mut first = true;
        loop {
            let open = self.open().await?;
            let server = open.endpoint.base.clone();
            self.traffic.sent();
            // Only an answer's body can't be had twice.
            let body = body.try_clone().unwrap_or_else(Body::empty);
            match send_on(&open, &parts, body).await {
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED && first => {
                    if !self.renew(&open).await? {
                        return Ok((response, server));
                    }
                }
                Ok(response) => return Ok((response, server)),
                Err(lost) => {
                    self.forget(&open).await;
                    if !(first && (lost.unsent || purpose.repeatable)) {
                        return Err(KubeError::Away { server, cause: lost.cause });
                    }
                }
            }
            first = false;
        }
    }

    /// Returns the API server's URL as the files name it now.
    pub(super) fn server(&self) -> Result<String, KubeError> {
        Ok(self.identity.read()?.server)
    }

    /// Tells of the client certificate on disk whether it can be the cause of an answer 401.
    pub(super) fn certificate_told(&self) -> Option<String> {
        self.identity.certificate_told(Clock::system().now())
    }

    /// Reads the credentials, and the proxy that leads to its server.
    fn credentials(&self) -> Result<(ApiCredentials, Endpoint), KubeError> {
        let mut credentials = self.identity.credentials()?;
        let endpoint = Endpoint::parse(&credentials)?;
        if credentials.proxy.is_none() {
            credentials.proxy = self.identity.proxy_to(&endpoint.address)?;
        }
        Ok((credentials, endpoint))
    }

    /// Returns the connection, a new one when there is none or it is closed. The credentials are read for each.
    async fn open(&self) -> Result<Open, KubeError> {
        let mut open = self.open.lock().await;
        if let Some(open) = open.as_ref().filter(|open| !open.connection.sender.is_closed()) {
            return Ok(open.clone());
        }
        let (credentials, endpoint) = self.credentials()?;
        let connection = connect(&credentials, &endpoint).await?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let made = Open {
            connection,
            endpoint,
            fingerprint: credentials.fingerprint(),
            bearer: bearer(&credentials)?,
            number,
        };
        *open = Some(made.clone());
        Ok(made)
    }

    /// Reads the credentials after a refusal and returns true if they changed. A token is replaced; credentials of
    /// the connection make another connection, and the old one ends with the watch on it.
    async fn renew(&self, old: &Open) -> Result<bool, KubeError> {
        let (credentials, _) = self.credentials()?;
        let bearer = bearer(&credentials)?;
        let mut open = self.open.lock().await;
        let Some(current) = open.as_mut().filter(|open| open.number == old.number) else { return Ok(true) };
        if current.fingerprint != credentials.fingerprint() {
            current.connection.driver.abort();
            *open = None;
            return Ok(true);
        }
        let other = bearer != old.bearer;
        current.bearer = bearer;
        Ok(other)
    }

    /// Takes no further requests to a connection that lost one. Open requests on it may end by themselves.
    async fn forget(&self, lost: &Open) {
        let mut open = self.open.lock().await;
        if open.as_ref().is_some_and(|open| open.number == lost.number) {
            *open = None;
        }
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connector({:?})", self.identity)
    }
}

async fn send_on(open: &Open, parts: &http::request::Parts, body: Body) -> Result<Response<Incoming>, Lost> {
    let unsent = |cause: String| Lost { unsent: true, cause };
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::builder().method(&parts.method).uri(format!("{}{path}", open.endpoint.base));
    if let Some(headers) = request.headers_mut() {
        headers.clone_from(&parts.headers);
        headers.insert(header::USER_AGENT, USER_AGENT);
        if let Some(bearer) = &open.bearer {
            headers.insert(header::AUTHORIZATION, bearer.clone());
        }
    }
    let request = request.body(body).map_err(|error| unsent(error.to_string()))?;
    let mut sender = open.connection.sender.clone();
    sender.ready().await.map_err(|error| unsent(chain(&error)))?;
    sender
        .try_send_request(request)
        .await
        .map_err(|error| Lost { unsent: error.message().is_some(), cause: chain(error.error()) })
}

fn bearer(credentials: &ApiCredentials) -> Result<Option<HeaderValue>, KubeError> {
    let Some(token) = &credentials.token else { return Ok(None) };
    let value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()));
    let mut value = value.map_err(|_| KubeError::Config {
        file: credentials.file.clone(),
        cause: "its token is not a valid token".into(),
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}
