//! The API server's new CA while it is rotated: a `ConfigMap` that is read then, and at no other time.
//!
//! The rest of the trust does not wait for it. Only certificates are handed on that a TLS client can use (MCD-240).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::task::AbortHandle;
use tracing::warn;

use super::client::ApiClient;
use super::error::KubeError;
use crate::control::trust::TrustSender;
use crate::model::backoff::Backoff;
use crate::model::certificates::ServerCaRotation;
use crate::model::{ClusterTrust, Contents, message};

/// Path of the object.
const PATH: &str = "/api/v1/namespaces/openshift-machine-config-operator/configmaps/kubeconfig-data";

/// Its name for people.
const OBJECT: &str = "ConfigMap openshift-machine-config-operator/kubeconfig-data";

/// Its key.
const KEY: &str = "ca-bundle.crt";

/// Hands the trust on, and again with the CA.
pub(super) struct ServerCa {
    api: ApiClient,
    sender: Arc<TrustSender>,
    node: String,
    reading: Option<AbortHandle>,
}

impl ServerCa {
    /// Takes the API to read it by, and the receiver of the trust.
    pub(super) fn new(api: ApiClient, sender: Arc<TrustSender>, node: &str) -> Self {
        Self { api, sender, node: node.to_owned(), reading: None }
    }

    /// Hands on the present trust.
    pub(super) fn put(&mut self, trust: Option<ClusterTrust>) {
        if let Some(reading) = self.reading.take() {
            reading.abort();
        }
        self.sender.put(trust.clone());
        let Some(mut trust) = trust.filter(|trust| trust.rotation == ServerCaRotation::On) else { return };
        let (api, sender) = (self.api.clone(), Arc::clone(&self.sender));
        let backoff = Backoff::for_requests(&format!("{}/server-ca", self.node));
        let reading = tokio::spawn(async move {
            trust.server_ca = Some(read_until_present(&api, backoff).await);
            sender.put(Some(trust));
        });
        self.reading = Some(reading.abort_handle());
    }

    /// Marks the value as observed, without a change.
    pub(super) fn observed(&self) {
        self.sender.observed();
    }
}

impl Drop for ServerCa {
    fn drop(&mut self) {
        if let Some(reading) = self.reading.take() {
            reading.abort();
        }
    }
}

async fn read_until_present(api: &ApiClient, mut backoff: Backoff) -> Contents {
    let mut logged = None;
    loop {
        let error = match read(api).await {
            Ok(authority) => return authority,
            Err(error) => error,
        };
        // The Node's watch reports an API server that is away.
        if !error.is_away() && logged.replace(error.reason()) != Some(error.reason()) {
            warn!(
                MESSAGE_ID = message::TRUST_FAILED,
                MCA_TARGET = OBJECT,
                MCA_FAULT = error.reason(),
                "The API server's new CA is not known: {error}. Next: {}",
                error.next()
            );
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

async fn read(api: &ApiClient) -> Result<Contents, KubeError> {
    let invalid = |cause: &str| KubeError::Invalid { object: OBJECT.to_owned(), cause: cause.to_owned() };
    let text = api.get(PATH, OBJECT).await?;
    let object: ConfigMap =
        serde_json::from_str(&text).map_err(|_| invalid("the answer is not a ConfigMap"))?;
    let plain = || {
        let text = object.data.as_ref()?.get(KEY)?;
        // MCO's own has it encoded again.
        let decoded = STANDARD.decode(text.trim()).ok();
        Some(decoded.unwrap_or_else(|| text.clone().into_bytes()))
    };
    let binary = object.binary_data.as_ref().and_then(|data| data.get(KEY)).map(|bytes| bytes.0.clone());
    let bundle = binary.or_else(plain).ok_or_else(|| invalid("it has no key ca-bundle.crt"))?;
    usable(&bundle).ok_or_else(|| invalid("its ca-bundle.crt holds no certificate"))
}

/// Returns the certificates that a TLS client can use, as PEM: up to the first block that is none, as MCD reads them.
fn usable(bundle: &[u8]) -> Option<Contents> {
    let mut pem = String::new();
    for der in CertificateDer::pem_slice_iter(bundle).map_while(Result::ok) {
        let mut roots = RootCertStore::empty();
        if roots.add(der.clone()).is_err() {
            continue;
        }
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(&der);
        let mut rest = encoded.as_str();
        while let Some((line, after)) = rest.split_at_checked(64) {
            pem.push_str(line);
            pem.push('\n');
            rest = after;
        }
        if !rest.is_empty() {
            pem.push_str(rest);
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    (!pem.is_empty()).then(|| Contents::new(pem.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCD-240: a CA that no client can use is not handed on.
    #[test]
    fn malformed_certificates_are_dropped() {
        let pem = || {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::default();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params.self_signed(&key).unwrap().pem().replace('\r', "")
        };
        let (one, two) = (pem(), pem());
        let wrong = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
        let text = |bundle: String| {
            usable(bundle.as_bytes()).map(|pem| String::from_utf8(pem.bytes().to_vec()).unwrap())
        };
        assert_eq!(text(format!("{one}{wrong}{two}")).unwrap(), format!("{one}{two}"));
        assert_eq!(
            text(format!(
                "# comment\n{one}-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n{two}"
            ))
            .unwrap(),
            one
        );
        assert_eq!(text(wrong.to_owned()), None);
        assert_eq!(text(String::new()), None);
    }
}
