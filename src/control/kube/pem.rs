//! Certificates as PEM: the proofs of the node's and of the API server's identity.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::error::KubeError;

/// Reads the certificates of a PEM text.
pub(super) fn certificates(pem: &[u8], file: &str) -> Result<Vec<CertificateDer<'static>>, KubeError> {
    let wrong =
        |_| KubeError::Config { file: file.to_owned(), cause: "a certificate is not PEM text".to_owned() };
    CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(wrong)
}
