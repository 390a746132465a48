//! The kubeconfig of a node's first contact: a file, or made from the Secret of a service account or bootstrap token.

use std::path::PathBuf;

use kube::config::Kubeconfig as Config;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::ExposeSecret as _;

use super::files;

/// The largest file: certificates of several authorities.
const MAX_BYTES: u64 = 1 << 20;

/// Source of the kubeconfig. It is read for each node: tokens expire and authorities change.
#[derive(Debug, Clone, Default)]
pub enum Kubeconfig {
    /// The config has to bring it.
    #[default]
    None,
    /// Nodes get theirs elsewhere.
    Elsewhere,
    /// A file as it is.
    File(PathBuf),
    /// A directory with `token` and `ca.crt`, as a Secret is mounted, and the URL of the API server.
    Secret {
        /// The directory.
        directory: PathBuf,
        /// The URL.
        server: String,
    },
}

impl Kubeconfig {
    /// Returns true if there is none, and nobody said that this is well.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the text. One that no kubelet could use is an error: it would strand the node.
    pub(super) fn read(&self) -> Result<Option<String>, String> {
        let (text, place) = match self {
            Self::None | Self::Elsewhere => return Ok(None),
            Self::File(path) => (files::text(path, MAX_BYTES)?, path),
            Self::Secret { directory, server } => {
                let token = files::text(&directory.join("token"), MAX_BYTES)?;
                let authorities = files::read(&directory.join("ca.crt"), MAX_BYTES)?;
                (made(server, token.trim(), &authorities)?, directory)
            }
        };
        checked(&text).map_err(|cause| format!("{}: {cause}", place.display()))?;
        Ok(Some(text))
    }
}

/// Checks that a kubelet could use a kubeconfig. The parser's words are left out: they quote the document.
fn checked(text: &str) -> Result<(), String> {
    let read = Config::from_yaml(text).map_err(|_| "it is not a kubeconfig".to_owned())?;
    let current = read.current_context.unwrap_or_default();
    let context = read.contexts.into_iter().find(|context| context.name == current);
    let context = context.and_then(|named| named.context).ok_or("its current-context names no context")?;
    let cluster = read.clusters.into_iter().find(|cluster| cluster.name == context.cluster);
    let cluster = cluster.and_then(|named| named.cluster).ok_or("its context names no cluster")?;
    url(cluster.server.as_deref().unwrap_or_default())?;
    if let Some(data) = cluster.certificate_authority_data.filter(|data| !data.is_empty()) {
        let bytes = serde_json::from_value::<k8s_openapi::ByteString>(data.into());
        let bytes = bytes.map_err(|_| "its certificate authority is not base64")?;
        certificates(&bytes.0)?;
    }
    let user = context.user.unwrap_or_default();
    let user = read.auth_infos.into_iter().find(|info| info.name == user).and_then(|named| named.auth_info);
    let user = user.ok_or("its context names no user")?;
    let is_text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let has_token = user.token.as_ref().is_some_and(|token| !token.expose_secret().trim().is_empty());
    let has_certificate = is_text(&user.client_certificate) || is_text(&user.client_certificate_data);
    let has_plugin = user.exec.is_some() || user.auth_provider.is_some();
    if has_token || is_text(&user.token_file) || has_certificate || has_plugin {
        return Ok(());
    }
    Err("its user names neither a token nor a client certificate; the token may be empty".to_owned())
}

/// Checks the URL of an API server.
pub fn url(server: &str) -> Result<(), String> {
    let read = server.parse::<http::Uri>().ok();
    let known = read.filter(|uri| matches!(uri.scheme_str(), Some("https" | "http")) && uri.host().is_some());
    known
        .map(drop)
        .ok_or_else(|| format!("{server:?} is not a URL of an API server; write https://HOST:PORT"))
}

/// Checks that there are certificates.
fn certificates(bytes: &[u8]) -> Result<(), String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let known = read.ok().filter(|found| !found.is_empty());
    known.map(drop).ok_or_else(|| "its certificate authority has no certificate in PEM".to_owned())
}

/// JSON is YAML, and needs no own quoting.
fn made(server: &str, token: &str, authorities: &[u8]) -> Result<String, String> {
    let authorities = serde_json::to_value(k8s_openapi::ByteString(authorities.to_vec()));
    let authorities = authorities.map_err(|error| format!("ca.crt: {error}"))?;
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "local",
            "cluster": { "server": server, "certificate-authority-data": authorities } }],
        "users": [{ "name": "kubelet", "user": { "token": token } }],
        "contexts": [{ "name": "kubelet", "context": { "cluster": "local", "user": "kubelet" } }],
        "current-context": "kubelet",
    });
    Ok(kubeconfig.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test: it writes what a Secret's volume holds")]
    fn secret_becomes_kubeconfig() {
        let directory = tempfile::tempdir().unwrap();
        let secret = |server: &str| Kubeconfig::Secret {
            directory: directory.path().to_owned(),
            server: server.to_owned(),
        };
        let kubeconfig = secret("https://api.test:6443");
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        assert!(kubeconfig.read().unwrap_err().contains("token: "));
        let authority = authority();
        write("token", "abc.def\n");
        write("ca.crt", &authority);
        let text = kubeconfig.read().unwrap().unwrap();
        let read = Config::from_yaml(&text).unwrap();
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://api.test:6443"));
        let data = serde_json::to_value(k8s_openapi::ByteString(authority.clone().into_bytes())).unwrap();
        assert_eq!(cluster.certificate_authority_data.as_deref(), data.as_str());
        assert_eq!(read.current_context.as_deref(), Some("kubelet"));
        assert!(text.contains("\"abc.def\""));
        // Renewed under the running server.
        write("token", "new");
        assert!(kubeconfig.read().unwrap().unwrap().contains("\"new\""));
        for (token, ca, server, cause) in [
            (" \n", &*authority, "https://api.test:6443", "neither a token nor a client certificate"),
            ("new", "x", "https://api.test:6443", "no certificate in PEM"),
            (
                "new",
                &*authority,
                "api.test:6443",
                "\"api.test:6443\" is not a URL of an API server; write https://",
            ),
        ] {
            write("token", token);
            write("ca.crt", ca);
            let error = secret(server).read().unwrap_err();
            assert!(error.contains(cause) && !error.contains("new"), "{error}");
        }
        assert_eq!(Kubeconfig::Elsewhere.read(), Ok(None));
        assert!(Kubeconfig::None.is_missing() && !Kubeconfig::Elsewhere.is_missing());
    }

    fn authority() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new(Vec::<String>::new()).unwrap().self_signed(&key).unwrap().pem()
    }
}
