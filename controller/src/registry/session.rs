//! The requests of one question, with its authentication.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_auth::ChallengeRef;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Method, Response, StatusCode, Url};
use serde::Deserialize;

use super::credentials::{Account, Credentials};
use super::failure::Failure;
use super::options::{Options, TIMEOUT};
use super::reference::Reference;

/// Time limit of a connection's setup.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time that a registry can ask to stay away for.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Largest number of redirects.
const MAX_REDIRECTS: usize = 3;

/// The longest answer of a token server.
const MAX_TOKEN: usize = 64 << 10;

/// The requests of one question.
pub(super) struct Session<'a> {
    http: reqwest::Client,
    reference: &'a Reference,
    account: Option<&'a Account>,
    base: Url,
    authorization: Option<HeaderValue>,
}

/// A token server's answer; both names are in use.
#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

impl<'a> Session<'a> {
    /// Prepares to ask a registry.
    pub(super) fn new(
        reference: &'a Reference,
        credentials: &'a Credentials,
        options: &Options,
        writes: bool,
    ) -> Result<Self, Failure> {
        let registry = reference.host();
        let is_plain = options.insecure.iter().any(|host| host == registry);
        let scheme = if is_plain { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{}/v2/", reference.server()));
        let base = base.map_err(|_| Failure::Reference {
            image: registry.to_owned(),
            rule: "its registry is not a host",
        })?;
        let http = client(reference, options, is_plain, writes)
            .map_err(|error| Failure::Trust { registry: registry.to_owned(), cause: chain(error) })?;
        let account = credentials.account(registry, reference.repository());
        Ok(Self { http, reference, account, base, authorization: None })
    }

    /// Returns the registry's name.
    pub(super) fn host(&self) -> &str {
        self.reference.host()
    }

    /// Sends a request below the repository; once more with authentication, where the registry requests that.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
    ) -> Result<Response, Failure> {
        let path = format!("{}/{path}", self.reference.repository());
        let answer = self.once(method.clone(), &path, headers).await?;
        if answer.status() != StatusCode::UNAUTHORIZED || !self.authenticate(&answer).await? {
            return Ok(answer);
        }
        self.once(method, &path, headers).await
    }

    async fn once(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
    ) -> Result<Response, Failure> {
        let wrong = |_| self.unusable("its address");
        let mut request = self.http.request(method, self.base.join(path).map_err(wrong)?);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.send().await.map_err(|error| self.unreachable(error))
    }

    /// Deletes an upload that was begun, where it is on the same server: the credentials are for no other.
    pub(super) async fn cancel(&self, place: &str) {
        let Ok(url) = self.base.join(place) else { return };
        if url.origin() == self.base.origin() {
            drop(self.once(Method::DELETE, url.as_str(), &[]).await);
        }
    }

    /// Returns an error unless who said 404 is a registry.
    pub(super) async fn ensure_registry(&self) -> Result<(), Failure> {
        let answer = self.once(Method::GET, "", &[]).await?;
        let status = answer.status();
        match status {
            StatusCode::OK if is_page(&answer) => {
                Err(Failure::NoRegistry { registry: self.host().to_owned(), status: status.as_u16() })
            }
            StatusCode::OK | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Ok(()),
            _ => Err(Failure::NoRegistry { registry: self.host().to_owned(), status: status.as_u16() }),
        }
    }

    /// Passes an answer on that is one.
    pub(super) fn checked(&self, answer: Response) -> Result<Response, Failure> {
        let (registry, status) = (self.host().to_owned(), answer.status());
        if status.is_success() && is_page(&answer) {
            return Err(Failure::Page { registry });
        }
        if status.is_success() {
            return Ok(answer);
        }
        let after = retry_after(&answer);
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::Denied {
                registry,
                repository: self.reference.repository().to_owned(),
                status: status.as_u16(),
                had_account: self.account.is_some(),
            },
            StatusCode::TOO_MANY_REQUESTS => Failure::TooManyRequests { registry, after },
            _ if status.is_server_error() => Failure::Server { registry, status: status.as_u16(), after },
            _ => Failure::Unexpected { registry, status: status.as_u16() },
        })
    }

    /// Reads a body of at most `limit` bytes.
    pub(super) async fn read(&self, mut answer: Response, limit: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|error| self.unreachable(error))? {
            bytes.extend_from_slice(&part);
            if bytes.len() > limit {
                return Err(self.unusable("its answer is too large"));
            }
        }
        Ok(bytes)
    }

    /// Does what the registry requests; returns false if it can't be done.
    async fn authenticate(&mut self, answer: &Response) -> Result<bool, Failure> {
        let headers = answer.headers().get_all(WWW_AUTHENTICATE).iter();
        let headers: Vec<String> = headers.filter_map(|text| text.to_str().ok().map(str::to_owned)).collect();
        let challenges: Vec<ChallengeRef<'_>> =
            headers.iter().filter_map(|text| http_auth::parse_challenges(text).ok()).flatten().collect();
        let named = |scheme: &str| challenges.iter().find(|each| each.scheme.eq_ignore_ascii_case(scheme));
        let value = if let Some(bearer) = named("bearer") {
            let parameter = |name: &str| {
                let found = bearer.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            let realm = parameter("realm").and_then(|realm| Url::parse(&realm).ok());
            let realm = realm.ok_or_else(|| self.unusable("it names no token server"))?;
            format!("Bearer {}", self.token(realm, parameter("service"), parameter("scope")).await?)
        } else if let (Some(_), Some(Account::Password { user, password })) = (named("basic"), self.account) {
            basic(user, password)
        } else {
            return Ok(false);
        };
        self.authorization = Some(secret(&value).ok_or_else(|| self.unusable("its token"))?);
        Ok(true)
    }

    /// Requests a token of a token server.
    async fn token(
        &self,
        mut realm: Url,
        service: Option<String>,
        scope: Option<String>,
    ) -> Result<String, Failure> {
        let parameters = service.map(|service| ("service", service)).into_iter();
        let parameters: Vec<(&str, String)> = parameters.chain(scope.map(|scope| ("scope", scope))).collect();
        let request = if let Some(Account::Refresh(refresh)) = self.account {
            let fixed = [("grant_type", "refresh_token"), ("client_id", env!("CARGO_PKG_NAME"))];
            let mut form = Url::parse("form:").map_err(|_| self.unusable("it names no token server"))?;
            form.query_pairs_mut()
                .extend_pairs(fixed)
                .append_pair("refresh_token", refresh)
                .extend_pairs(&parameters);
            let body = form.query().unwrap_or_default().to_owned();
            self.http.post(realm).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body)
        } else {
            realm.query_pairs_mut().extend_pairs(&parameters);
            let request = self.http.get(realm);
            match self.account {
                Some(Account::Password { user, password }) => {
                    let value = secret(&basic(user, password)).ok_or_else(|| self.unusable("the account"))?;
                    request.header(AUTHORIZATION, value)
                }
                Some(Account::Refresh(_)) | None => request,
            }
        };
        let answer = request.send().await.map_err(|error| self.unreachable(error))?;
        let bytes = self.read(self.checked(answer)?, MAX_TOKEN).await?;
        // Not what could not be read: it may be a token.
        let token: Token =
            serde_json::from_slice(&bytes).map_err(|_| self.unusable("its token server gives none"))?;
        let token = if token.token.is_empty() { token.access_token } else { token.token };
        if token.is_empty() { Err(self.unusable("its token server gives none")) } else { Ok(token) }
    }

    fn unusable(&self, what: &'static str) -> Failure {
        Failure::Answer { registry: self.host().to_owned(), what }
    }

    fn unreachable(&self, error: reqwest::Error) -> Failure {
        Failure::Unreachable { registry: self.host().to_owned(), cause: chain(error) }
    }
}

fn client(
    reference: &Reference,
    options: &Options,
    is_plain: bool,
    writes: bool,
) -> Result<reqwest::Client, reqwest::Error> {
    // Another part of the process may have set one: any will do.
    drop(rustls::crypto::ring::default_provider().install_default());
    // A deletion or an upload must not become a question on the way.
    let keeps_method = move |status: u16| !writes || matches!(status, 307 | 308);
    let policy = Policy::custom(move |attempt| {
        let goes_on = attempt.previous().len() <= MAX_REDIRECTS && keeps_method(attempt.status().as_u16());
        if goes_on { attempt.follow() } else { attempt.stop() }
    });
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TIMEOUT)
        .redirect(policy)
        // Also the token server, and after a redirect.
        .https_only(!is_plain);
    if is_plain {
        builder = builder.tls_certs_only([]);
    } else if !options.trust.is_empty() {
        builder = builder.tls_certs_merge(Certificate::from_pem_bundle(&options.trust)?);
    }
    if reference.is_loopback() {
        builder = builder.no_proxy();
    }
    builder.build()
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn secret(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// An error with its causes, without the address: that of a token server has the account in it.
fn chain(error: reqwest::Error) -> String {
    machine_config_core::model::text::chain(&error.without_url())
}

/// Returns true for a page for people: whoever sent it, no registry answered.
fn is_page(answer: &Response) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("text/html")
}

/// Returns the wait that the server requests, where it is in seconds.
fn retry_after(answer: &Response) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}
