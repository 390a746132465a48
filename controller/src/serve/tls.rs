//! The server's certificate, as it is in its files: a renewed one is served to the next connection.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tracing::{info, warn};

use super::files;

/// The largest file of certificates.
const MAX_BYTES: u64 = 1 << 20;

/// The files.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Authorities of clients, PEM.
    pub client_authorities: Option<PathBuf>,
}

/// TLS config of the files, from their last readable version.
#[derive(Debug)]
pub(super) struct Tls {
    files: TlsFiles,
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    contents: Contents,
    config: Arc<ServerConfig>,
    /// The last error that was logged.
    error: Option<String>,
}

/// As they were read.
#[derive(PartialEq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authorities: Option<Vec<u8>>,
}

/// A key is in it.
impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contents").finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files; an error ends the start.
    pub(super) fn open(files: TlsFiles) -> Result<Self, String> {
        let contents = Contents::read(&files)?;
        let config = contents.config()?;
        Ok(Self { files, last: Mutex::new(Last { contents, config, error: None }) })
    }

    /// Returns the configuration of the next connection. Files that can't be used leave the last one in service.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let read = Contents::read(&self.files).and_then(|contents| {
            if contents == last.contents {
                return Ok(None);
            }
            contents.config().map(|config| Some((contents, config)))
        });
        match read {
            Ok(None) => last.error = None,
            Ok(Some((contents, config))) => {
                info!("serving the certificate that is now in {}", self.files.certificate.display());
                *last = Last { contents, config, error: None };
            }
            Err(error) => {
                if last.error.as_ref() != Some(&error) {
                    warn!("the last certificate stays in service: {error}");
                }
                last.error = Some(error);
            }
        }
        Arc::clone(&last.config)
    }
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Self, String> {
        let read = |path: &PathBuf| files::read(path, MAX_BYTES);
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            client_authorities: files.client_authorities.as_ref().map(read).transpose()?,
        })
    }

    /// The error never shows the key.
    fn config(&self) -> Result<Arc<ServerConfig>, String> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| format!("the key is not PEM: {error}"))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS can't be served: {error}"))?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(authorities)? {
                    roots.add(authority).map_err(|error| format!("not a CA certificate: {error}"))?;
                }
                // One without a certificate may have a token, or ask for its health.
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| format!("the client CAs can't be used: {error}"))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| format!("the certificate and the key can't be served: {error}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("a file of certificates has none".to_owned()),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("a certificate is not PEM: {error}")),
    }
}
