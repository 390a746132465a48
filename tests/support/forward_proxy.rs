//! A forward proxy with a password, the only one who knows names of `.test`: each is a port of this machine.
//!
//! `CONNECT` makes a tunnel. A request for a whole URL goes on as it is: every HTTP/1.1 server takes that form. It may
//! also be one that clients speak TLS to.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

/// A name in the URL and nowhere else.
pub const PASSWORD: &str = "proxy-geheim";

#[derive(Debug)]
pub struct ForwardProxy {
    pub port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    /// The certificate that clients have to trust, PEM; without one it speaks no TLS.
    certificate: Option<String>,
}

impl ForwardProxy {
    /// Starts one before the servers at this address.
    pub fn start(servers: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                // A client that leaves in the middle is not the test's business.
                std::thread::spawn(move || drop(serve(tcp, servers, &seen)));
            }
        });
        Self { port, asked, certificate: None }
    }

    /// Starts one that clients speak TLS to, with a certificate of its own.
    pub fn start_tls(servers: Ipv4Addr) -> Self {
        let plain = Self::start(servers);
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![certified.cert.der().clone()], key).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || decrypt(listener, Arc::new(config), plain.port));
        Self { port, asked: plain.asked, certificate: Some(certified.cert.pem()) }
    }

    /// Returns the certificate of one that speaks TLS.
    pub fn certificate(&self) -> &str {
        self.certificate.as_deref().unwrap()
    }

    pub fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://user:{PASSWORD}@127.0.0.1:{}", self.port)
    }

    /// The first lines of the requests that it let through, and `407` for each other.
    pub fn requests(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut client: TcpStream, servers: Ipv4Addr, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let head = read_head(&mut client)?;
    let text = String::from_utf8_lossy(&head).into_owned();
    let credentials = STANDARD.encode(format!("user:{PASSWORD}"));
    if !text.contains(&credentials) {
        seen.lock().unwrap().push("407".to_owned());
        return client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    }
    let line = text.lines().next().unwrap_or_default().to_owned();
    seen.lock().unwrap().push(line.clone());
    let target = line.split(' ').nth(1).unwrap_or_default();
    let authority = target.strip_prefix("http://").unwrap_or(target).split('/').next().unwrap_or_default();
    let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80);
    let mut server = TcpStream::connect((servers, port))?;
    if line.starts_with("CONNECT ") {
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    } else {
        server.write_all(&head)?;
    }
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let up = std::thread::spawn(move || {
        drop(std::io::copy(&mut from_client, &mut to_server));
        drop(to_server.shutdown(Shutdown::Write));
    });
    drop(std::io::copy(&mut server, &mut client));
    drop(client.shutdown(Shutdown::Write));
    drop(up.join());
    Ok(())
}

/// Passes on what clients send over TLS to a port of this machine, and its answers.
fn decrypt(listener: TcpListener, config: Arc<ServerConfig>, port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        listener.set_nonblocking(true).unwrap();
        let (listener, acceptor) =
            (tokio::net::TcpListener::from_std(listener).unwrap(), TlsAcceptor::from(config));
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust it, or leaves in the middle, is not the test's business.
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut server = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
            });
        }
    });
}

fn read_head(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(head)
}
