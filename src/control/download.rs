//! A document from a web server, for a verb that is run once. The daemon never comes here.
//!
//! The server is verified by the host's trust store, or the document by the caller's digest: without TLS that has to be
//! given.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Proxy, Url};

use super::kube::untrusted;
use crate::model::ProxySettings;
use crate::model::text::chain;

/// Time limit of the connection to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit in total: a document of a few MiB over a slow line.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(120);

/// Most redirects of a download.
const MAX_REDIRECTS: usize = 5;

/// The step where the address is wrong.
const CORRECT_ADDRESS: &str = "Check the address.";

/// The step where the server gives no answer.
const CHECK_SERVER: &str =
    "Check the address, the server, and the proxy (HTTPS_PROXY, the node's proxy); `curl -v` shows more.";

/// A document that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("{url} can't be read: {cause}")]
pub struct DownloadError {
    /// Its URL, without user and password.
    pub url: String,
    /// The observed cause.
    pub cause: String,
    /// The next step.
    pub next: &'static str,
}

/// Returns true if a text names a document on a web server.
pub fn is_url(text: &str) -> bool {
    text.starts_with("https://") || text.starts_with("http://")
}

/// Reads a document of at most `limit` bytes.
pub async fn download(url: &str, proxies: &ProxySettings, limit: u64) -> Result<Vec<u8>, DownloadError> {
    // Another part of the process may have set one: any will do.
    drop(rustls::crypto::ring::default_provider().install_default());
    let parsed =
        Url::parse(url).map_err(|error| unread(&without_user(url), error.to_string(), CORRECT_ADDRESS))?;
    let shown = shown(&parsed);
    let failed = |error: reqwest::Error| {
        let cause = cause(&error.without_url());
        let next = untrusted::next_of_web(&cause).unwrap_or(CHECK_SERVER);
        unread(&shown, cause, next)
    };
    let client = client(parsed.scheme() == "https", proxies).map_err(failed)?;
    let mut response = client.get(parsed).send().await.map_err(failed)?;
    if !response.status().is_success() {
        let next = if response.status().is_server_error() { CHECK_SERVER } else { CORRECT_ADDRESS };
        return Err(unread(&shown, format!("the server answers {}", response.status()), next));
    }
    let mut bytes = Vec::new();
    while let Some(part) = response.chunk().await.map_err(failed)? {
        bytes.extend_from_slice(&part);
        if u64::try_from(bytes.len()).map_or(true, |length| length > limit) {
            return Err(unread(&shown, format!("it is larger than {limit} bytes"), CORRECT_ADDRESS));
        }
    }
    Ok(bytes)
}

fn client(is_https: bool, proxies: &ProxySettings) -> Result<Client, reqwest::Error> {
    let proxies = proxies.clone();
    let proxy = Proxy::custom(move |url| {
        let port = url.port_or_known_default().unwrap_or_default();
        proxies.for_server(url.scheme(), url.host_str().unwrap_or_default(), port).map(str::to_owned)
    });
    Client::builder()
        .user_agent(concat!("machine-config-agent/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TOTAL_TIMEOUT)
        .redirect(Policy::limited(MAX_REDIRECTS))
        // Also after a redirect.
        .https_only(is_https)
        .proxy(proxy)
        .build()
}

fn unread(url: &str, cause: String, next: &'static str) -> DownloadError {
    DownloadError { url: url.to_owned(), cause, next }
}

/// Returns what kept a request from its answer: what TLS found, else the last of the chain, which has the system's words.
fn cause(error: &reqwest::Error) -> String {
    if let Some(tls) = untrusted::of_web(error) {
        return tls;
    }
    if error.is_timeout() {
        return "the server does not answer in time".to_owned();
    }
    let mut last: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = last.source() {
        last = source;
    }
    chain(last)
}

/// Shows an address without the secrets that may be in it.
pub fn without_secrets(text: &str) -> String {
    Url::parse(text).map_or_else(|_| without_user(text), |url| shown(&url))
}

/// Shows a URL without the secrets that may be in it: user, password, query.
fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// Cuts a text that is no URL after all.
fn without_user(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.rsplit('@').next().unwrap_or_default().split('?').next().unwrap_or_default();
    crate::model::text::short(&format!("{scheme}://{rest}"), 200)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::one_answer::answering;

    #[tokio::test]
    async fn document_is_bounded_and_status_named() {
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec();
        let (address, _task) = answering(ok.clone()).await;
        let url = format!("http://{address}/a.ign");
        assert_eq!(download(&url, &ProxySettings::default(), 5).await.unwrap(), b"hello");
        let (address, _task) = answering(ok).await;
        let url = format!("http://u:geheim@{address}/a.ign?token=geheim");
        let error = download(&url, &ProxySettings::default(), 4).await.unwrap_err().to_string();
        assert_eq!(error, format!("http://{address}/a.ign can't be read: it is larger than 4 bytes"));
        let (address, _task) =
            answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()).await;
        let url = format!("http://{address}/a.ign?token=geheim");
        let error = download(&url, &ProxySettings::default(), 5).await.unwrap_err().to_string();
        assert!(error.contains("404 Not Found") && !error.contains("geheim"), "{error}");
    }

    /// A redirect from TLS to plain text is refused where TLS was requested; a proxy gets the request.
    #[tokio::test]
    async fn proxy_is_used_by_its_rules() {
        let (address, task) = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx".to_vec()).await;
        let proxy = format!("http://us%65r:ge%40heim@{address}");
        let settings = ProxySettings::new(Some(proxy), None, Some("b.test".to_owned())).unwrap();
        assert_eq!(download("http://a.test/a.ign", &settings, 5).await.unwrap(), b"x");
        let head = task.await.unwrap().to_lowercase();
        assert!(
            head.starts_with("get http://a.test/a.ign ") && head.contains("proxy-authorization: basic "),
            "{head}"
        );
        let error = download("http://b.test:1/a.ign", &settings, 5).await.unwrap_err().to_string();
        assert!(!error.contains(&address.to_string()), "{error}");
    }
}
