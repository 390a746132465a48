//! The API server as this agent's identity reaches it: one HTTP/2 connection, made when it is needed.
//!
//! Invariant: each try of a request ends within the limit of `patience`, and there are at most [`TRIES`]. What is
//! written in `call` decides what an answer means; here it is sent, and sent again where that is safe.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flate2::read::GzDecoder;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use secrecy::ExposeSecret as _;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::error::KubeError;
use super::identity::{Access, Identity};
use super::patience::Patience;
use super::tls::{Connection, Place, connect};
use super::traffic::Traffic;
use crate::model::{Sha256, message};

pub(super) use super::call::Call;
use super::call::{Answer, Tries, is_busy, retry_after};

/// How often an API server that is busy is asked.
const TRIES: u32 = 4;

/// The longest wait between two tries: the loop waits for the request. Who was asked to wait longer fails meanwhile.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(5);

/// The first wait for a busy API server that does not say how long; doubled each time.
const SHORT_WAIT: Duration = Duration::from_millis(250);

/// The largest answer: etcd's objects end at 1.5 MiB, and a server that sends more without end is cut off.
const LARGEST: usize = 16 * 1024 * 1024;

/// How an answer may be compressed.
const GZIP: &str = "gzip";

/// Who asks, as the audit log shows it.
const USER_AGENT: &str = concat!("machine-config-agent/", env!("CARGO_PKG_VERSION"));

/// The API server as this agent's identity reaches it: one HTTP/2 connection.
#[derive(Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    identity: Identity,
    open: Mutex<Option<Open>>,
    opened: AtomicU64,
    traffic: Arc<Traffic>,
    patience: Patience,
    busy: std::sync::Mutex<Busy>,
}

/// What a busy API server asked for.
#[derive(Debug, Default)]
struct Busy {
    /// It was logged.
    told: bool,
    /// No request before this.
    until: Option<Instant>,
}

/// A connection, with what it was made of.
#[derive(Clone)]
struct Open {
    connection: Connection,
    place: Place,
    print: Sha256,
    bearer: Option<HeaderValue>,
    number: u64,
}

/// An exchange that did not come to an answer.
struct Lost {
    unsent: bool,
    cause: String,
}

impl Link {
    /// Takes an identity. Nothing is read or connected yet.
    pub(super) fn new(identity: Identity) -> Self {
        let (open, opened) = (Mutex::new(None), AtomicU64::new(0));
        let shared = Shared {
            identity,
            open,
            opened,
            traffic: Arc::default(),
            patience: Patience::default(),
            busy: std::sync::Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns what goes over it.
    pub(super) fn traffic(&self) -> &Arc<Traffic> {
        &self.shared.traffic
    }

    /// Sends one request and returns the response's body. Bounded in time; 429 and 5xx are tried again a few times,
    /// honouring Retry-After.
    pub(super) async fn send(&self, call: &Call) -> Result<Vec<u8>, KubeError> {
        let (response, server) = self.ask(call).await?;
        self.in_time(call, collect(response, &server)).await?.judge(call, &server)
    }

    /// Begins a watch.
    pub(super) async fn follow(&self, call: &Call) -> Result<Lines, KubeError> {
        let (response, server) = self.ask(call).await?;
        if response.status().is_success() {
            self.shared.traffic.watching();
            return Ok(Lines { body: response.into_body(), read: Vec::new(), server });
        }
        let status = response.status().as_u16();
        match self.in_time(call, collect(response, &server)).await?.judge(call, &server) {
            Err(error) => Err(error),
            Ok(_) => Err(KubeError::Away { server, cause: format!("it answers {status} to a watch") }),
        }
    }

    /// Bounds a part of a request.
    async fn in_time<T>(
        &self,
        call: &Call,
        part: impl Future<Output = Result<T, KubeError>>,
    ) -> Result<T, KubeError> {
        let (patience, began) = (&self.shared.patience, Instant::now());
        let timeout = patience.timeout();
        let Ok(done) = tokio::time::timeout(timeout, part).await else {
            patience.exceeded();
            return Err(self.late(call, timeout));
        };
        if done.is_ok() {
            patience.answered(began.elapsed());
        }
        done
    }

    /// Asks until the API server is not busy.
    async fn ask(&self, call: &Call) -> Result<(Response<Incoming>, String), KubeError> {
        let mut tries = 1;
        loop {
            self.not_too_soon(call).await?;
            let (response, server) = self.in_time(call, self.exchange(call)).await?;
            let busy = call.tries == Tries::Several && is_busy(response.status(), response.headers());
            if !busy {
                *self.busy() = Busy::default();
                return Ok((response, server));
            }
            let after = retry_after(response.headers()).unwrap_or(SHORT_WAIT * (1 << tries));
            self.was_busy(call, response.status(), after);
            if tries >= TRIES {
                return Ok((response, server));
            }
            tries += 1;
        }
    }

    /// Waits for as long as a busy API server asked for; an error where that is too long to wait for.
    async fn not_too_soon(&self, call: &Call) -> Result<(), KubeError> {
        let until = self.busy().until;
        let Some(until) = until.filter(|until| *until > Instant::now()) else { return Ok(()) };
        if until.duration_since(Instant::now()) <= MAX_RETRY_WAIT {
            tokio::time::sleep_until(until).await;
            return Ok(());
        }
        let seconds = until.duration_since(Instant::now()).as_secs();
        let cause = format!("it is busy; {} is requested in {seconds} s, as it asked", call.object());
        Err(KubeError::Away { server: self.shared.identity.access()?.server, cause })
    }

    /// Notes that the API server is busy, and logs it once.
    fn was_busy(&self, call: &Call, status: StatusCode, after: Duration) {
        let mut busy = self.busy();
        busy.until = Some(Instant::now() + after);
        if !std::mem::replace(&mut busy.told, true) {
            warn!(
                MESSAGE_ID = message::WAITING,
                "The API server is busy ({}); requesting {} again in {} ms",
                status.as_u16(),
                call.object(),
                after.as_millis()
            );
        }
    }

    fn busy(&self) -> std::sync::MutexGuard<'_, Busy> {
        self.shared.busy.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sends a request, once more on another connection where the first was lost or its credentials were old.
    async fn exchange(&self, call: &Call) -> Result<(Response<Incoming>, String), KubeError> {
        let mut first = true;
        loop {
            let open = self.open().await?;
            let server = open.place.base.clone();
            self.shared.traffic.sent();
            match exchange_on(&open, call).await {
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED && first => {
                    if !self.renew(&open).await? {
                        return Ok((response, server));
                    }
                }
                Ok(response) => return Ok((response, server)),
                Err(lost) => {
                    self.forget(&open).await;
                    if !(first && (lost.unsent || call.is_repeatable())) {
                        return Err(KubeError::Away { server, cause: lost.cause });
                    }
                }
            }
            first = false;
        }
    }

    /// Returns the connection, a new one when there is none or it is closed. The credentials are read for each.
    async fn open(&self) -> Result<Open, KubeError> {
        let mut open = self.shared.open.lock().await;
        if let Some(open) = open.as_ref().filter(|open| !open.connection.sender.is_closed()) {
            return Ok(open.clone());
        }
        let access = self.shared.identity.access()?;
        let place = Place::parse(&access)?;
        let connection = connect(&access, &place).await?;
        let number = self.shared.opened.fetch_add(1, Ordering::Relaxed);
        let made = Open { connection, place, print: access.print(), bearer: bearer(&access)?, number };
        *open = Some(made.clone());
        Ok(made)
    }

    /// Reads the credentials after a refusal and says whether there are others now. A token is taken over; what the
    /// connection is made of makes another connection, and the old one ends with the watch on it.
    async fn renew(&self, old: &Open) -> Result<bool, KubeError> {
        let access = self.shared.identity.access()?;
        let bearer = bearer(&access)?;
        let mut open = self.shared.open.lock().await;
        let Some(current) = open.as_mut().filter(|open| open.number == old.number) else { return Ok(true) };
        if current.print != access.print() {
            current.connection.driver.abort();
            *open = None;
            return Ok(true);
        }
        let other = bearer != old.bearer;
        current.bearer = bearer;
        Ok(other)
    }

    /// Takes no further requests to a connection that lost one. What is still open on it may end by itself.
    async fn forget(&self, lost: &Open) {
        let mut open = self.shared.open.lock().await;
        if open.as_ref().is_some_and(|open| open.number == lost.number) {
            *open = None;
        }
    }

    fn late(&self, call: &Call, timeout: Duration) -> KubeError {
        let server = match self.shared.identity.read() {
            Ok(access) => access.server,
            Err(error) => return error,
        };
        let cause = format!("no answer for {} within {} s", call.object(), timeout.as_secs());
        KubeError::Away { server, cause }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({:?})", self.shared.identity)
    }
}

/// The body of a watch, line by line.
#[derive(Debug)]
pub(super) struct Lines {
    body: Incoming,
    read: Vec<u8>,
    server: String,
}

impl Lines {
    /// Returns the next line; `None` when the server ended the watch. Cancel-safe: what was read stays read.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, KubeError> {
        let away = |server: &str, cause: String| KubeError::Away { server: server.to_owned(), cause };
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.read, rest)));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(away(&self.server, text(&error))),
                Some(Ok(frame)) => self.read.extend(frame.into_data().unwrap_or_default()),
            }
            if self.read.len() > LARGEST {
                return Err(away(&self.server, "it sends an endless line".to_owned()));
            }
        }
    }
}

async fn exchange_on(open: &Open, call: &Call) -> Result<Response<Incoming>, Lost> {
    let unsent = |cause: String| Lost { unsent: true, cause };
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(format!("{}{}", open.place.base, call.path))
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, call.accept);
    if !call.body.is_empty() {
        request = request.header(header::CONTENT_TYPE, call.content);
    }
    // The API server compresses what is larger than 128 KiB.
    if call.may_be_compressed() {
        request = request.header(header::ACCEPT_ENCODING, GZIP);
    }
    if let Some(bearer) = &open.bearer {
        request = request.header(header::AUTHORIZATION, bearer.clone());
    }
    let request = request.body(Full::new(Bytes::from(call.body.clone())));
    let request = request.map_err(|error| unsent(error.to_string()))?;
    let mut sender = open.connection.sender.clone();
    sender.ready().await.map_err(|error| unsent(text(&error)))?;
    sender
        .try_send_request(request)
        .await
        .map_err(|error| Lost { unsent: error.message().is_some(), cause: text(error.error()) })
}

async fn collect(response: Response<Incoming>, server: &str) -> Result<Answer, KubeError> {
    let away = |cause: String| KubeError::Away { server: server.to_owned(), cause };
    let status = response.status();
    let compressed = response.headers().get(header::CONTENT_ENCODING).is_some_and(|value| value == GZIP);
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| away(error.to_string()))?.to_bytes();
    let body = if compressed { unpacked(&body, LARGEST).map_err(away)? } else { body.to_vec() };
    Ok(Answer { status, body })
}

/// Unpacks an answer, which is bounded as one that was not compressed is.
fn unpacked(body: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = GzDecoder::new(body).take(bound).read_to_end(&mut unpacked);
    read.map_err(|error| format!("its answer is no gzip: {error}"))?;
    if unpacked.len() > limit {
        return Err(format!("its answer is larger than {limit} bytes"));
    }
    Ok(unpacked)
}

fn bearer(access: &Access) -> Result<Option<HeaderValue>, KubeError> {
    let Some(token) = &access.token else { return Ok(None) };
    let value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()));
    let mut value = value.map_err(|_| KubeError::Config {
        file: access.file.clone(),
        cause: "its token is no token".into(),
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Returns an error with its causes: hyper's own text is one word.
fn text(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text += &format!(": {source}");
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// The bound is that of the contents: a few bytes can unpack to gigabytes.
    #[test]
    fn compressed_answer_is_unpacked_within_its_limit() {
        assert_eq!(unpacked(&packed(b"answer"), 6).unwrap(), b"answer");
        assert!(unpacked(&packed(b"answers"), 6).unwrap_err().contains("larger than 6 bytes"));
        let bomb = packed(&vec![0; LARGEST + 1]);
        assert!(bomb.len() < 200_000);
        assert!(unpacked(&bomb, LARGEST).unwrap_err().contains("larger than"));
        assert!(unpacked(b"plain", LARGEST).unwrap_err().contains("no gzip"));
        let cut = packed(b"answer");
        assert!(unpacked(&cut[..cut.len() - 4], LARGEST).is_err());
    }
}
