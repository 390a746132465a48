//! One connection to the API server: TCP, TLS with the named CA only, HTTP/2.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::task::AbortHandle;

use super::error::KubeError;
use super::identity::ApiCredentials;
use super::pem::certificates;
use super::proxy::{Proxy, Tunnel, tcp};
use super::untrusted;

/// Interval of pings on an idle connection. A half-open one, of a load balancer that forgot it, would keep the node
/// from its next target: half a minute, with the timeout below, is about what a kubelet takes to notice. A ping is 17
/// bytes.
const PING: Duration = Duration::from_secs(20);

/// Time limit of a ping's answer: far more than any round trip of an API server that lives.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection, and the task that drives it.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// Sends requests, many side by side.
    pub(super) sender: http2::SendRequest<Body>,
    /// Ends it with all that is open on it.
    pub(super) driver: AbortHandle,
}

/// Endpoint of the API server.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// Host and port, as they are connected to.
    pub(super) address: (String, u16),
    /// The beginning of each request's URI.
    pub(super) base: String,
}

impl Endpoint {
    /// Reads the server's URL.
    pub(super) fn parse(credentials: &ApiCredentials) -> Result<Self, KubeError> {
        let wrong = |cause: &str| KubeError::Config {
            file: credentials.file.clone(),
            cause: format!("its server {:?} {cause}", credentials.server),
        };
        let uri: Uri = credentials.server.parse().map_err(|_| wrong("is not a URL"))?;
        if uri.scheme_str() != Some("https") {
            return Err(wrong("is not https"));
        }
        let host = uri.host().ok_or_else(|| wrong("has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let base = credentials.server.trim_end_matches('/').to_owned();
        Ok(Self { address: (host, uri.port_u16().unwrap_or(443)), base })
    }
}

/// Connects.
pub(super) async fn connect(
    credentials: &ApiCredentials,
    endpoint: &Endpoint,
) -> Result<Connection, KubeError> {
    let away = |cause: String| KubeError::Away { server: credentials.server.clone(), cause };
    let authority = certificates(&credentials.authority, &credentials.file)?;
    let config = Arc::new(client_config(credentials, &authority)?);
    let (host, _) = &endpoint.address;
    let name = credentials.server_name.clone().unwrap_or_else(|| host.clone());
    let name = ServerName::try_from(name).map_err(|error| KubeError::Config {
        file: credentials.file.clone(),
        cause: format!("its server has no name that a certificate can have: {error}"),
    })?;
    let stream: Tunnel = match &credentials.proxy {
        Some(url) => {
            let proxy = Proxy::parse(url, &credentials.file)?;
            proxy.connect(&endpoint.address, &authority).await.map_err(away)?
        }
        None => Box::new(tcp(&endpoint.address).await.map_err(|error| away(error.to_string()))?),
    };
    let tls = tokio_rustls::TlsConnector::from(config).connect(name, stream).await;
    let tls = tls.map_err(|error| away(untrusted::of_connection(&error)))?;
    if tls.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(away(untrusted::NO_HTTP2.to_owned()));
    }
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(CONNECT_TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(tls))
        .await
        .map_err(|error| away(format!("{}: {error}", untrusted::NO_HTTP2)))?;
    // The end of the connection reaches each request on it.
    let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
    Ok(Connection { sender, driver })
}

fn client_config(
    credentials: &ApiCredentials,
    authority: &[CertificateDer<'static>],
) -> Result<ClientConfig, KubeError> {
    let wrong = |cause: String| KubeError::Config { file: credentials.file.clone(), cause };
    let mut roots = RootCertStore::empty();
    for certificate in authority {
        roots
            .add(certificate.clone())
            .map_err(|error| wrong(untrusted::of_file("its certificate-authority", &error)))?;
    }
    if roots.is_empty() {
        return Err(wrong("its certificate-authority holds no certificate".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| wrong(error.to_string()))?.with_root_certificates(roots);
    let mut config = match &credentials.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate, &credentials.file)?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| wrong("its client key is not a PEM key".to_owned()))?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| wrong(untrusted::of_file("its client certificate", &error)))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    // One connection lives long: a session kept for the next is not worth its memory.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}
