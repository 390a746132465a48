//! The agent's identity at the API server: the kubelet's kubeconfig, or the pod's service account.
//!
//! The files are read again before each connection and whenever a request is refused as unauthorised, so a rotated
//! certificate, token or CA needs no restart. Only the named CA is trusted; the host's own roots are never loaded.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use secrecy::{ExposeSecret, SecretString};

use super::error::KubeError;
use super::validity::Validity;
use crate::host::proxy::PROXY_FILE;
use crate::host::{Proxies, Root};
use crate::model::backoff::Backoff;
use crate::model::text::chain;
use crate::model::yaml;
use crate::model::{Sha256, Timestamp, short};

/// Directory of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// As much of a name is shown.
const MAX_NAME: usize = 253;

/// Prefix of the kubelet's user name.
const NODE_USER: &str = "system:node:";

/// Source of the credentials for the API server.
#[derive(Debug, Clone)]
pub struct Identity {
    root: Root,
    source: Source,
    /// The node that the credentials have to be of, if they name one.
    node: Option<Node>,
    /// Proxy by which the server is reached.
    proxies: Option<Proxies>,
    /// Whose API server a service account uses, other than that of the pod's environment.
    at: Option<Box<Identity>>,
}

#[derive(Debug, Clone)]
enum Node {
    /// Assumed while the credentials could not be read.
    Assumed(String),
    /// Given by who starts the agent.
    Given(String),
}

#[derive(Debug, Clone)]
enum Source {
    /// The first of these files that is there.
    Kubeconfig(Vec<PathBuf>),
    ServiceAccount {
        server: String,
    },
}

/// The credentials as read once. `Debug` shows no secret.
pub(super) struct ApiCredentials {
    /// The API server's URL.
    pub(super) server: String,
    /// The name in its certificate, when it is not the URL's.
    pub(super) server_name: Option<String>,
    /// The CA's certificates, PEM.
    pub(super) authority: Vec<u8>,
    /// The client's certificates and key, PEM.
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
    /// The token.
    pub(super) token: Option<SecretString>,
    /// The URL of the proxy that leads to the server.
    pub(super) proxy: Option<String>,
    /// The name of the user in the kubeconfig.
    user: String,
    /// The file that names all others, for errors.
    pub(super) file: String,
}

/// Certificates with their key, and a token.
type Proof = (Option<(Vec<u8>, Vec<u8>)>, Option<SecretString>);

impl Identity {
    /// Takes the first of these kubeconfigs that is there. It is looked for and read when it is needed.
    pub fn kubeconfig(paths: &[PathBuf]) -> Result<Self, KubeError> {
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|error| wrong(&path.display(), error.to_string()))
        };
        Ok(Self::new(machine()?, Source::Kubeconfig(paths.iter().map(absolute).collect::<Result<_, _>>()?)))
    }

    /// Takes a kubeconfig of the host, which a container may have entered.
    pub fn host_kubeconfig(host: &Root, path: &Path) -> Self {
        Self::new(host.clone(), Source::Kubeconfig(vec![path.to_owned()]))
    }

    fn new(root: Root, source: Source) -> Self {
        Self { root, source, node: None, proxies: None, at: None }
    }

    /// Takes the service account of the pod; `None` when none is mounted.
    pub fn service_account(host: &str, port: &str) -> Result<Option<Self>, KubeError> {
        let root = machine()?;
        let token = format!("{SERVICE_ACCOUNT}/token");
        if !root.exists(&token).map_err(|error| wrong(&token, error.to_string()))? {
            return Ok(None);
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let server = format!("https://{host}:{port}");
        Ok(Some(Self::new(root, Source::ServiceAccount { server })))
    }

    /// Returns the node's name, if the identity has it: a kubelet's does.
    pub fn node_name(&self) -> Result<Option<String>, KubeError> {
        named(&self.read()?)
    }

    /// Assumes a name for a node whose credentials can't be read yet: no other node is ever connected as.
    #[must_use]
    pub fn assuming(self, node: &str) -> Self {
        Self { node: Some(Node::Assumed(node.to_owned())), ..self }
    }

    /// Takes the name that a person gives: another node's credentials are never used for it.
    #[must_use]
    pub fn given(self, node: &str) -> Self {
        Self { node: Some(Node::Given(node.to_owned())), ..self }
    }

    /// Uses the API server of another identity, where this one is a service account: that of the pod's environment is
    /// reached only once the cluster's network is up.
    #[must_use]
    pub fn at_server_of(self, other: Self) -> Self {
        Self { at: Some(Box::new(other)), ..self }
    }

    /// Takes the proxies for the server, if the kubeconfig names none.
    #[must_use]
    pub fn through(self, proxies: Proxies) -> Self {
        Self { proxies: Some(proxies), ..self }
    }

    /// Returns the URL of the proxy to a server that the credentials name no proxy to.
    pub(super) fn proxy_to(&self, (host, port): &(String, u16)) -> Result<Option<String>, KubeError> {
        let Some(proxies) = &self.proxies else { return Ok(None) };
        let settings = proxies.for_cluster().map_err(|error| wrong(&PROXY_FILE, chain(&error)))?;
        Ok(settings.for_https(host, *port).map(str::to_owned))
    }

    /// Waits until the credentials can be read and name another node than was assumed; returns that name.
    pub async fn renamed(&self) -> String {
        let Some(Node::Assumed(assumed)) = &self.node else { return std::future::pending().await };
        let mut backoff = Backoff::for_requests(assumed);
        loop {
            match self.node_name() {
                Ok(Some(name)) if name != *assumed => return name,
                Ok(_) => return std::future::pending().await,
                Err(_) => tokio::time::sleep(backoff.next_wait()).await,
            }
        }
    }

    /// Tells the validity of the client certificate as it is on disk at a time; `None` where there is none to be read.
    pub(super) fn certificate_told(&self, now: Timestamp) -> Option<String> {
        let credentials = self.read().ok()?;
        let (certificate, _) = credentials.client.as_ref()?;
        let ders = super::pem::certificates(certificate, &credentials.file).ok()?;
        let told = Validity::of_certificate(ders.first()?)?.told(now);
        Some(format!("the client certificate of {} {told}", credentials.file))
    }

    /// Reads the credentials to connect with.
    pub(super) fn credentials(&self) -> Result<ApiCredentials, KubeError> {
        let credentials = self.read()?;
        let Some(found) = named(&credentials)? else { return Ok(credentials) };
        match &self.node {
            Some(Node::Assumed(assumed)) if *assumed != found => Err(wrong(
                &credentials.file,
                format!("it names node {found}, and {assumed} was assumed without it"),
            )),
            Some(Node::Given(given)) if *given != found => {
                Err(KubeError::OtherNode { file: credentials.file, found, given: given.clone() })
            }
            Some(_) | None => Ok(credentials),
        }
    }

    /// Reads the files.
    pub(super) fn read(&self) -> Result<ApiCredentials, KubeError> {
        match &self.source {
            Source::Kubeconfig(paths) => self.read_kubeconfig(self.first_kubeconfig(paths)?),
            Source::ServiceAccount { server } => {
                let token = self.token(Path::new(&format!("{SERVICE_ACCOUNT}/token")))?;
                let other = self.at.as_ref().map(|other| other.read()).transpose()?;
                let (server, server_name, proxy) = other.map_or_else(
                    || (server.clone(), None, None),
                    |other| (other.server, other.server_name, other.proxy),
                );
                Ok(ApiCredentials {
                    server,
                    server_name,
                    authority: self.bytes(Path::new(&format!("{SERVICE_ACCOUNT}/ca.crt")))?,
                    client: None,
                    token: Some(token),
                    proxy,
                    user: String::new(),
                    file: SERVICE_ACCOUNT.to_owned(),
                })
            }
        }
    }

    /// Returns the first kubeconfig. A file of another kind is none: OpenShift's `kubelet.conf` is not what kubeadm's is.
    fn first_kubeconfig<'a>(&self, paths: &'a [PathBuf]) -> Result<&'a Path, KubeError> {
        let mut causes = Vec::new();
        for path in paths {
            let name = path.display().to_string();
            let read = self.root.read(&name).map_err(|error| wrong(&name, error.to_string()))?;
            match read.map(|bytes| kind(&bytes)) {
                None => causes.push(format!("{name} does not exist")),
                Some(Some(kind)) if kind != "Config" => {
                    causes.push(format!("{name} is a {}", short(&kind, MAX_NAME)));
                }
                Some(_) => return Ok(path),
            }
        }
        Err(KubeError::NoKubeconfig { cause: causes.join(", ") })
    }

    fn read_kubeconfig(&self, path: &Path) -> Result<ApiCredentials, KubeError> {
        let wrong = |cause: String| wrong(&path.display(), cause);
        let (cluster, user, name) = selected(&self.text(path)?, path)?;
        let data = cluster.certificate_authority_data.as_deref();
        let file = cluster.certificate_authority.as_deref();
        let authority = self.material(path, "certificate-authority", data, file)?;
        let authority =
            authority.ok_or_else(|| wrong("the cluster names no certificate-authority".to_owned()))?;
        let (client, token) = self.proof(path, &user)?;
        if client.is_none() && token.is_none() {
            let plugin = user.exec.is_some() || user.auth_provider.is_some();
            let how = if plugin { "only by a plugin, which is not supported" } else { "by nothing" };
            return Err(wrong(format!("the user is known {how}; name a client certificate or a token")));
        }
        Ok(ApiCredentials {
            server: cluster.server.ok_or_else(|| wrong("the cluster names no server".to_owned()))?,
            server_name: cluster.tls_server_name,
            authority,
            client,
            token,
            proxy: cluster.proxy_url.filter(|proxy| !proxy.is_empty()),
            user: name,
            file: path.display().to_string(),
        })
    }

    /// Returns the proof of the user's identity: certificates with their key, and a token.
    fn proof(&self, path: &Path, user: &AuthInfo) -> Result<Proof, KubeError> {
        let data = user.client_certificate_data.as_deref();
        let certificate =
            self.material(path, "client-certificate", data, user.client_certificate.as_deref())?;
        let data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
        let key = self.material(path, "client-key", data, user.client_key.as_deref())?;
        let given = user.token.clone().filter(|token| !token.expose_secret().is_empty());
        let token = match (given, &user.token_file) {
            (Some(token), _) => Some(token),
            (None, Some(file)) => {
                let bytes = self.named(path, "tokenFile", file)?;
                let text = String::from_utf8(bytes)
                    .map_err(|_| wrong(&path.display(), format!("its tokenFile {file} is not text")))?;
                Some(SecretString::from(text.trim()))
            }
            (None, None) => None,
        };
        Ok((certificate.zip(key), token))
    }

    fn token(&self, path: &Path) -> Result<SecretString, KubeError> {
        Ok(SecretString::from(self.text(path)?.trim()))
    }

    /// Returns the inline data, or that of the named file.
    fn material(
        &self,
        kubeconfig: &Path,
        field: &str,
        data: Option<&str>,
        file: Option<&str>,
    ) -> Result<Option<Vec<u8>>, KubeError> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let decoded = base64::engine::general_purpose::STANDARD.decode(data.trim());
            let bytes = decoded
                .map_err(|_| wrong(&kubeconfig.display(), format!("its {field}-data is not base64")))?;
            return Ok(Some(bytes));
        }
        let Some(file) = file.filter(|file| !file.is_empty()) else { return Ok(None) };
        self.named(kubeconfig, field, file).map(Some)
    }

    /// Reads a file that the kubeconfig names, relative to it.
    fn named(&self, kubeconfig: &Path, field: &str, file: &str) -> Result<Vec<u8>, KubeError> {
        let path = kubeconfig.parent().unwrap_or(Path::new("/")).join(file);
        let name = path.display().to_string();
        let wrong = |cause: String| wrong(&kubeconfig.display(), format!("its {field} {name} {cause}"));
        let read = self.root.read(&name).map_err(|error| wrong(format!("can't be read: {error}")))?;
        read.ok_or_else(|| wrong("does not exist".to_owned()))
    }

    fn bytes(&self, path: &Path) -> Result<Vec<u8>, KubeError> {
        let name = path.display().to_string();
        let read = self.root.read(&name).map_err(|error| wrong(&name, error.to_string()))?;
        read.ok_or_else(|| wrong(&name, "it does not exist".to_owned()))
    }

    fn text(&self, path: &Path) -> Result<String, KubeError> {
        String::from_utf8(self.bytes(path)?).map_err(|_| wrong(&path.display(), "it is not text".to_owned()))
    }
}

impl ApiCredentials {
    /// Returns a digest of all that a connection is made of; a token is sent with each request.
    pub(super) fn fingerprint(&self) -> Sha256 {
        let (certificate, key) = self.client.as_ref().map(|(a, b)| (&**a, &**b)).unwrap_or_default();
        let name = self.server_name.as_deref().unwrap_or_default();
        let proxy = self.proxy.as_deref().unwrap_or_default();
        let (server, name, proxy) = (self.server.as_bytes(), name.as_bytes(), proxy.as_bytes());
        let parts: [&[u8]; 6] = [server, name, proxy, &self.authority, certificate, key];
        let digests: String = parts.into_iter().map(|part| Sha256::digest(part).to_string()).collect();
        Sha256::digest(digests.as_bytes())
    }
}

impl std::fmt::Debug for ApiCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApiCredentials({}, from {})", self.server, self.file)
    }
}

/// Returns the kind of a document.
fn kind(bytes: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Document {
        kind: Option<String>,
    }
    yaml::strings::<Document>(&String::from_utf8_lossy(bytes)).ok()?.kind
}

/// Returns cluster and user of the current context, and the user's name.
pub(super) fn selected(text: &str, path: &Path) -> Result<(Cluster, AuthInfo, String), KubeError> {
    let wrong = |cause: String| wrong(&path.display(), cause);
    // The parser's text is left out: it quotes the document, and that may hold a key.
    let read: Kubeconfig = yaml::strings(text).map_err(|_| wrong("it is not a kubeconfig".to_owned()))?;
    let missing = |what: &str, name: &str| wrong(format!("it has no {what} {:?}", short(name, MAX_NAME)));
    let desired = read.current_context.unwrap_or_default();
    let context = read.contexts.into_iter().find(|context| context.name == desired);
    let context = context.and_then(|named| named.context).ok_or_else(|| missing("context", &desired))?;
    let cluster = read.clusters.into_iter().find(|cluster| cluster.name == context.cluster);
    let cluster =
        cluster.and_then(|named| named.cluster).ok_or_else(|| missing("cluster", &context.cluster))?;
    let name = context.user.unwrap_or_default();
    let user = read.auth_infos.into_iter().find(|user| user.name == name);
    let user = user.ok_or_else(|| missing("user", &name))?.auth_info.unwrap_or_default();
    if cluster.insecure_skip_tls_verify.unwrap_or_default() {
        return Err(wrong("insecure-skip-tls-verify is set; name a certificate-authority".to_owned()));
    }
    Ok((cluster, user, name))
}

/// Returns the node that the credentials name: a kubelet's does.
fn named(credentials: &ApiCredentials) -> Result<Option<String>, KubeError> {
    if let Some(name) = credentials.user.strip_prefix(NODE_USER) {
        return Ok(Some(name.to_owned()));
    }
    let Some((certificate, _)) = &credentials.client else { return Ok(None) };
    let ders = super::pem::certificates(certificate, &credentials.file)?;
    Ok(ders.first().and_then(|der| common_name(der)))
}

fn machine() -> Result<Root, KubeError> {
    Root::open(Path::new("/")).map_err(|error| wrong(&"/", error.to_string()))
}

fn wrong(file: &dyn std::fmt::Display, cause: String) -> KubeError {
    KubeError::Config { file: file.to_string(), cause }
}

/// Finds the node's name in the subject of a kubelet's certificate: the value of a common name (object identifier
/// 2.5.4.3) that begins as a node's user does. An issuer's name never does.
pub(super) fn common_name(der: &[u8]) -> Option<String> {
    const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
    let mut rests = der.windows(COMMON_NAME.len()).enumerate().filter(|(_, window)| *window == COMMON_NAME);
    rests.find_map(|(at, _)| {
        // A string's tag, its length in one byte, or in one more from 128 on, its bytes.
        let rest = der.get(at + COMMON_NAME.len() + 1..)?;
        let rest = rest.strip_prefix(&[0x81]).unwrap_or(rest);
        let (length, rest) = rest.split_first()?;
        let value = std::str::from_utf8(rest.get(..usize::from(*length))?).ok()?;
        value.strip_prefix(NODE_USER).map(str::to_owned)
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test plays the kubelet, which writes these files")]
mod tests {
    use super::*;

    fn subject(name: &str) -> Vec<u8> {
        let mut der = vec![0x30, 0x10, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c];
        if name.len() > 127 {
            der.push(0x81);
        }
        der.push(u8::try_from(name.len()).unwrap());
        der.extend(name.as_bytes());
        der
    }

    #[test]
    fn certificate_names_node() {
        let mut der = subject("kube-csr-signer_@1700000000");
        der.extend(subject("system:node:worker-0.example.com"));
        assert_eq!(common_name(&der).as_deref(), Some("worker-0.example.com"));
        let long = format!("system:node:{}", "a".repeat(180));
        assert_eq!(common_name(&subject(&long)), Some("a".repeat(180)));
        assert_eq!(common_name(&subject("kubelet")), None);
        assert_eq!(common_name(&[0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x7f, b's']), None);
    }

    fn kubeconfig(directory: &Path, user: &str, cluster: &str) -> Identity {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: \
             'system:node:w'}}}}]\nclusters: [{{name: k, cluster: {{server: 'https://api.test:6443'{cluster}}}}}]\n\
             users: [{{name: 'system:node:w', user: {{{user}}}}}]\n"
        );
        let path = directory.join("kubeconfig");
        std::fs::write(&path, text).unwrap();
        Identity::kubeconfig(&[path]).unwrap()
    }

    fn token(credentials: &ApiCredentials) -> Option<&str> {
        credentials.token.as_ref().map(ExposeSecret::expose_secret)
    }

    /// Files are named relative to the kubeconfig, as the kubelet's are, and are read again each time.
    #[test]
    fn kubeconfig_names_changing_files() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.crt"), "CA").unwrap();
        std::fs::write(directory.path().join("token"), "one\n").unwrap();
        let identity = kubeconfig(directory.path(), "tokenFile: token", ", certificate-authority: ca.crt");
        let first = identity.read().unwrap();
        assert_eq!(token(&first), Some("one"));
        assert_eq!(identity.node_name().unwrap().as_deref(), Some("w"));
        std::fs::write(directory.path().join("token"), "two\n").unwrap();
        let second = identity.read().unwrap();
        assert_eq!(token(&second), Some("two"));
        assert_eq!(first.fingerprint(), second.fingerprint());
        std::fs::write(directory.path().join("ca.crt"), "OTHER").unwrap();
        assert_ne!(identity.read().unwrap().fingerprint(), second.fingerprint());
        assert!(!format!("{second:?}").contains("two"));
    }

    /// The kubelet of a new node writes its kubeconfig late, and kubeadm's has the name of another file of OpenShift.
    #[test]
    fn first_kubeconfig_that_is_there_counts() {
        let directory = tempfile::tempdir().unwrap();
        let [kubelet, kubeadm] = ["kubeconfig", "kubelet.conf"].map(|name| directory.path().join(name));
        let identity = Identity::kubeconfig(&[kubelet.clone(), kubeadm.clone()]).unwrap();
        let missing = identity.node_name().unwrap_err();
        let [first, second] = [&kubelet, &kubeadm].map(|path| path.display().to_string());
        assert_eq!(
            missing.to_string(),
            format!("there is no kubeconfig: {first} does not exist, {second} does not exist")
        );
        assert!(missing.next().starts_with("On a new node, wait"), "{}", missing.next());
        std::fs::write(&kubeadm, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
            .unwrap();
        let other = identity.node_name().unwrap_err().to_string();
        assert!(other.ends_with(&format!("{second} is a KubeletConfiguration")), "{other}");
        drop(kubeconfig(directory.path(), "token: x", ", certificate-authority-data: eA=="));
        std::fs::rename(&kubelet, &kubeadm).unwrap();
        assert_eq!(identity.node_name().unwrap().as_deref(), Some("w"));
        // One that can't be read is no reason to take another identity.
        std::fs::write(&kubelet, "kind: Config\n").unwrap();
        let broken = identity.node_name().unwrap_err().to_string();
        assert!(broken.starts_with(&first), "{broken}");
    }

    #[test]
    fn unusable_kubeconfig_names_cause_without_secret() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.crt"), "CA").unwrap();
        let ca = ", certificate-authority: ca.crt";
        let cause = |user: &str, cluster: &str| {
            kubeconfig(directory.path(), user, cluster).read().unwrap_err().to_string()
        };
        assert!(cause("token: geheim", "").contains("no certificate-authority"));
        assert!(cause("token: geheim", ", insecure-skip-tls-verify: true").contains("insecure"));
        assert!(cause("exec: {command: x}", ca).contains("plugin"));
        assert!(cause("auth-provider: {name: x}", ca).contains("plugin"));
        let missing = cause("tokenFile: none", ca);
        let path = directory.path().join("none").display().to_string();
        assert!(missing.contains(&format!("its tokenFile {path} does not exist")), "{missing}");
        let missing = cause("token: geheim", ", certificate-authority: gone/ca.crt");
        let path = directory.path().join("gone/ca.crt").display().to_string();
        assert!(missing.contains(&format!("its certificate-authority {path} does not exist")), "{missing}");
        assert!(missing.contains("kubeconfig can't be used"), "{missing}");
        let broken = cause("token: geheim, token: [", ca);
        assert!(broken.contains("kubeconfig") && !broken.contains("geheim"), "{broken}");
    }
}
