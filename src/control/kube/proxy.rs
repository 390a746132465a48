//! The way to the API server through a proxy: a `CONNECT` or SOCKS5, and TLS to the API server within it. To an `https://`
//! proxy there is TLS around the tunnel, too.
//!
//! Only the proxy's host and port are ever shown: its URL may hold a password. The client's certificate is for the API
//! server alone: a proxy gets none.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::error::KubeError;
use super::socks;
use super::untrusted;
use crate::model::text::chain;

/// The largest head of an answer: a proxy's has some hundred bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// A stream of bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// The way to a server: a connection of its own, or one within that to a proxy.
pub(super) type Tunnel = Box<dyn Duplex>;

/// Connects to a host.
pub(super) async fn tcp((host, port): &(String, u16)) -> std::io::Result<TcpStream> {
    let tcp = TcpStream::connect((host.as_str(), *port)).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// A proxy.
#[derive(Debug, Clone)]
pub(super) struct Proxy {
    address: (String, u16),
    protocol: Protocol,
}

/// Protocol of the proxy, with its credentials.
#[derive(Debug, Clone)]
enum Protocol {
    Http(Option<HeaderValue>),
    Https(Option<HeaderValue>),
    Socks5(Option<(String, SecretString)>),
}

impl Proxy {
    /// Reads a proxy's URL, which `source` names.
    pub(super) fn parse(url: &str, source: &str) -> Result<Self, KubeError> {
        let wrong = |cause: &str| KubeError::Config {
            file: source.to_owned(),
            cause: format!("{cause} (proxy-url, HTTPS_PROXY or /etc/mco/proxy.env)"),
        };
        let any = Uri::from_static("https://any.invalid/");
        let known = Matcher::builder().all(url.to_owned()).build().intercept(&any);
        let known = known
            .ok_or_else(|| wrong("the proxy to its server is not a URL of the form http://HOST:PORT"))?;
        let (protocol, default_port) = match known.uri().scheme_str() {
            Some("http") => (Protocol::Http(known.basic_auth().cloned()), 80),
            Some("https") => (Protocol::Https(known.basic_auth().cloned()), 443),
            Some("socks5" | "socks5h") => {
                let login = known.raw_auth().map(|(user, password)| (user.to_owned(), password.into()));
                (Protocol::Socks5(login), 1080)
            }
            Some(_) | None => {
                return Err(wrong(
                    "the proxy to its server is neither an http://, https:// nor socks5:// one, and no other leads to the API \
                     server; name such a proxy, or add the API server to NO_PROXY",
                ));
            }
        };
        let named = known.uri().host().unwrap_or_default();
        let host = named.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("the proxy to its server has no host"));
        }
        let port = match known.uri().port_u16() {
            Some(port) => port,
            None if known.uri().authority().is_some_and(|authority| authority.as_str() == named) => {
                default_port
            }
            None => return Err(wrong("the proxy to its server has a port that is not a number")),
        };
        Ok(Self { address: (host.to_owned(), port), protocol })
    }

    /// Connects to a server through the proxy. `authority` are the certificates that the server is verified by; an
    /// `https://` proxy is verified by them and by the host's trust store.
    pub(super) async fn connect(
        &self,
        server: &(String, u16),
        authority: &[CertificateDer<'static>],
    ) -> Result<Tunnel, String> {
        let failed = |cause: String| format!("the proxy {self}: {cause}");
        let mut tcp = tcp(&self.address).await.map_err(|error| failed(error.to_string()))?;
        match &self.protocol {
            Protocol::Http(authorization) => self.tunnel(Box::new(tcp), server, authorization.as_ref()).await,
            Protocol::Https(authorization) => {
                let tls = self.encrypted(tcp, authority).await.map_err(failed)?;
                self.tunnel(tls, server, authorization.as_ref()).await
            }
            Protocol::Socks5(login) => {
                let login = login.as_ref().map(|(user, password)| (user.as_str(), password.expose_secret()));
                socks::connect(&mut tcp, server, login).await.map_err(failed)?;
                Ok(Box::new(tcp))
            }
        }
    }

    /// Starts TLS with the proxy itself.
    async fn encrypted(
        &self,
        tcp: TcpStream,
        authority: &[CertificateDer<'static>],
    ) -> Result<Tunnel, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authority.iter().cloned());
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?.with_root_certificates(roots);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        let name = ServerName::try_from(self.address.0.clone()).map_err(|error| error.to_string())?;
        let tls = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
        Ok(Box::new(tls.map_err(|error| {
            format!(
                "TLS to it: {}; a CA of the host's trust store or of the kubeconfig has to sign it",
                untrusted::of_connection(&error)
            )
        })?))
    }

    /// Requests a connection of an HTTP proxy.
    async fn tunnel(
        &self,
        stream: Tunnel,
        (host, port): &(String, u16),
        authorization: Option<&HeaderValue>,
    ) -> Result<Tunnel, String> {
        let failed = |cause: String| format!("the proxy {self}: {cause}");
        let server = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let request = Request::builder().method(Method::CONNECT).uri(&server).header(header::HOST, &server);
        let request = match authorization {
            Some(value) => request.header(header::PROXY_AUTHORIZATION, value),
            None => request,
        };
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(error.to_string()))?;
        let handshake = http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|error| failed(chain(&error)))?;
        let driver = tokio::spawn(connection.with_upgrades());
        let answer = sender.send_request(request).await;
        let answer = match answer {
            Ok(answer) if answer.status().is_success() => answer,
            other => {
                driver.abort();
                return Err(failed(match other {
                    Ok(answer) if answer.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                        "it wants a user and a password: 407; name them in the proxy's URL".to_owned()
                    }
                    Ok(answer) => format!("it does not connect to {server}: {}", answer.status()),
                    Err(error) => chain(&error),
                }));
            }
        };
        let upgraded = hyper::upgrade::on(answer).await.map_err(|error| failed(chain(&error)))?;
        let parts = upgraded.downcast::<TokioIo<Tunnel>>();
        let parts = parts.map_err(|_| failed("the connection is lost".to_owned()))?;
        if parts.read_buf.is_empty() {
            Ok(parts.io.into_inner())
        } else {
            Err(failed("it sends bytes before the API server can".to_owned()))
        }
    }
}

impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (host, port) = &self.address;
        write!(f, "{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::one_answer::answering;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn target() -> (String, u16) {
        ("api.test".to_owned(), 6443)
    }

    #[tokio::test]
    async fn connect_names_server_and_user() {
        let (address, task) = answering(b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec()).await;
        let proxy = Proxy::parse(&format!("http://us%65r:ge%40heim@{address}/"), "kubeconfig").unwrap();
        drop(proxy.connect(&target(), &[]).await.unwrap());
        let head = task.await.unwrap().to_lowercase();
        assert!(head.starts_with("connect api.test:6443 http/1.1\r\n"), "{head}");
        // user:ge@heim
        assert!(head.contains("proxy-authorization: basic dxnlcjpnzubozwlt\r\n"), "{head}");
        assert!(head.contains("host: api.test:6443\r\n"), "{head}");
        assert!(!format!("{proxy:?} {proxy}").contains("heim"));
    }

    #[tokio::test]
    async fn refusals_name_proxy_and_cause_without_password() {
        let flood = [&b"HTTP/1.1 200 OK\r\nA: "[..], &vec![b'a'; 1 << 20]].concat();
        let rows: [(Vec<u8>, &str); 6] = [
            (b"HTTP/1.1 407 Auth\r\n\r\n".to_vec(), "407"),
            (
                b"HTTP/1.1 403 Forbidden\r\n\r\n".to_vec(),
                "it does not connect to api.test:6443: 403 Forbidden",
            ),
            (b"HTTP/1.1 200 OK\r\n\r\nhello".to_vec(), "before the API server can"),
            (b"SSH-2.0-OpenSSH\r\n\r\n".to_vec(), "127.0.0.1"),
            (flood, "too large"),
            (Vec::new(), ""),
        ];
        for (answer, expected) in rows {
            let is_end = answer.is_empty();
            let (address, task) = answering(answer).await;
            if is_end {
                task.abort();
            }
            let proxy = Proxy::parse(&format!("http://user:geheim@{address}"), "kubeconfig").unwrap();
            let error = proxy.connect(&target(), &[]).await.err().unwrap();
            assert!(error.contains(&format!("the proxy {address}: ")), "{error}");
            assert!(error.contains(expected) && !error.contains("geheim"), "{error}");
        }
    }

    /// A proxy that speaks TLS by this certificate and refuses each request; returns its address.
    async fn encrypted(certified: rcgen::CertifiedKey<rcgen::KeyPair>) -> std::net::SocketAddr {
        let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = builder.with_single_cert(vec![certified.cert.der().clone()], key).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (tcp, _) = listener.accept().await.unwrap();
            let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(tcp).await;
            // A client that does not trust it has left.
            let Ok(mut tls) = tls else { return };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(tls.read_u8().await.unwrap());
            }
            drop(tls.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await);
            drop(tls.read(&mut [0]).await);
        });
        address
    }

    /// A proxy that no CA vouches for is given no password; the CA of the API server may vouch for it, as with Go's
    /// clients.
    #[tokio::test]
    async fn https_proxy_is_verified_before_its_password_is_sent() {
        for (name, is_trusted, expected) in [
            ("127.0.0.1", true, "it does not connect to api.test:6443: 403 Forbidden"),
            ("127.0.0.1", false, "TLS to it: its certificate is of another CA"),
            ("other.test", true, "TLS to it: its certificate is of another name than 127.0.0.1: other.test"),
        ] {
            let certified = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            let authority = certified.cert.der().clone();
            let address = encrypted(certified).await;
            let proxy = Proxy::parse(&format!("https://user:geheim@{address}"), "kubeconfig").unwrap();
            let authority = if is_trusted { vec![authority] } else { Vec::new() };
            let error = proxy.connect(&target(), &authority).await.err().unwrap();
            assert!(error.starts_with(&format!("the proxy {address}: {expected}")), "{error}");
            assert!(!error.contains("geheim"), "{error}");
            assert_eq!(error.contains("trust store"), expected.contains("TLS"), "{error}");
        }
    }

    #[test]
    fn urls_of_proxies() {
        let read = |url: &str| Proxy::parse(url, "/f").map(|proxy| proxy.to_string());
        assert_eq!(read("http://proxy.test:3128").unwrap(), "proxy.test:3128");
        assert_eq!(read("proxy.test:3128").unwrap(), "proxy.test:3128");
        assert_eq!(read("http://proxy.test").unwrap(), "proxy.test:80");
        assert_eq!(read("socks5://proxy.test").unwrap(), "proxy.test:1080");
        assert_eq!(read("http://[fd00::1]:3128/").unwrap(), "fd00::1:3128");
        assert_eq!(read("https://u:p@proxy.test").unwrap(), "proxy.test:443");
        for url in ["socks4://u:geheim@p:1", "http://", "u:geheim", "http://u:geheim@:1", "ftp://p"] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.starts_with("/f can't be used") && !error.contains("geheim"), "{url}: {error}");
        }
    }
}
