//! The kubeconfig of a node's first contact: a file, or made from the Secret of a service account or bootstrap token.

use std::path::PathBuf;

use super::files;

/// The largest file: certificates of several authorities.
const MAX_BYTES: u64 = 1 << 20;

/// Source of the kubeconfig. It is read for each node: tokens expire and authorities change.
#[derive(Debug, Clone, Default)]
pub enum Kubeconfig {
    /// Nodes get theirs elsewhere.
    #[default]
    None,
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
    /// Returns the text.
    pub(super) fn read(&self) -> Result<Option<String>, String> {
        match self {
            Self::None => Ok(None),
            Self::File(path) => files::text(path, MAX_BYTES).map(Some),
            Self::Secret { directory, server } => {
                let token = files::text(&directory.join("token"), MAX_BYTES)?;
                let authorities = files::read(&directory.join("ca.crt"), MAX_BYTES)?;
                made(server, token.trim(), &authorities).map(Some)
            }
        }
    }
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
        let kubeconfig = Kubeconfig::Secret {
            directory: directory.path().to_owned(),
            server: "https://api.test:6443".to_owned(),
        };
        assert!(kubeconfig.read().unwrap_err().contains("token: "));
        std::fs::write(directory.path().join("token"), "abc.def\n").unwrap();
        std::fs::write(directory.path().join("ca.crt"), "PEM").unwrap();
        let text = kubeconfig.read().unwrap().unwrap();
        let read = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(
            read.clusters[0].cluster.as_ref().unwrap().server.as_deref(),
            Some("https://api.test:6443")
        );
        let authority = read.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.clone();
        assert_eq!(authority.as_deref(), Some("UEVN"));
        assert_eq!(read.current_context.as_deref(), Some("kubelet"));
        assert!(text.contains("\"abc.def\""));
        // Renewed under the running server.
        std::fs::write(directory.path().join("token"), "new").unwrap();
        assert!(kubeconfig.read().unwrap().unwrap().contains("\"new\""));
        let file = Kubeconfig::File(directory.path().join("ca.crt"));
        assert_eq!(file.read(), Ok(Some("PEM".to_owned())));
        assert_eq!(Kubeconfig::None.read(), Ok(None));
    }
}
