//! Identities that the server knows: its authority, certificates and tokens, and kubeconfigs made of them.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};

/// A client's identity.
#[derive(Debug, Clone)]
pub enum Identity {
    /// Group `system:masters`, under a name that the audit log shows.
    Admin(String),
    /// The kubelet of a node: user `system:node:NAME`, group `system:nodes`.
    Kubelet(String),
    /// A client certificate for any user.
    User { name: String, groups: Vec<String> },
    /// A bearer token within the kubeconfig.
    Token(String),
    /// No credential.
    Anonymous,
    /// A bearer token in a file that may be replaced.
    TokenFile(PathBuf),
}

/// A certificate and its key, as PEM.
#[derive(Debug)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// A server's certificate for these names and addresses.
    pub fn server(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// A client's certificate: the common name is the user, each organisation a group.
    pub fn client(&self, user: &str, groups: &[&str]) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        // A distinguished name holds one organisation here, so one group.
        for group in groups.iter().take(1) {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        assert!(groups.len() <= 1, "{user}: a certificate carries one group here; use a token for more");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

impl Identity {
    /// Returns a kubeconfig's user entry.
    fn user(&self, clients: &Authority) -> Value {
        let pair = |pair: &Pair| {
            json!({
                "client-certificate-data": STANDARD.encode(&pair.certificate),
                "client-key-data": STANDARD.encode(&pair.key),
            })
        };
        match self {
            Self::Admin(name) => pair(&clients.client(name, &["system:masters"])),
            Self::Kubelet(node) => pair(&clients.client(&format!("system:node:{node}"), &["system:nodes"])),
            Self::User { name, groups } => {
                pair(&clients.client(name, &groups.iter().map(String::as_str).collect::<Vec<_>>()))
            }
            Self::Anonymous => json!({}),
            Self::Token(token) => json!({ "token": token }),
            Self::TokenFile(path) => json!({ "tokenFile": path }),
        }
    }

    /// A kubeconfig for it (JSON, which is YAML).
    pub fn kubeconfig(&self, url: &str, servers: &Authority, clients: &Authority) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "clusters": [{ "name": "bench", "cluster": {
                "server": url,
                "certificate-authority-data": STANDARD.encode(&servers.certificate),
            }}],
            "contexts": [{ "name": "bench", "context": { "cluster": "bench", "user": "bench" } }],
            "users": [{ "name": "bench", "user": self.user(clients) }],
        })
    }
}

/// Replaces a file in one step, so that no reader sees half of it.
pub fn replace(path: &Path, contents: &str) {
    let new = path.with_extension("new");
    fs::write(&new, contents).unwrap();
    fs::rename(new, path).unwrap();
}
