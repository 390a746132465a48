//! The server as a node, a stranger and an administrator meet it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

mod cluster;

/// Whatever no file and no answer to a stranger may hold.
const SECRET: &str = "g3heim-g3heim-g3heim";

const NODE: &str = "Accept: application/vnd.coreos.ignition+json;version=3.3.0, */*;q=0.1\r\n";

#[expect(clippy::disallowed_methods, reason = "a test: it writes what a bootstrap leaves")]
fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn rendered(name: &str, ignition: &Value) -> Value {
    json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": { "name": name },
        "spec": { "config": ignition } })
}

/// A directory as a bootstrap leaves it, with a custom pool and one of a config that an old node can't read.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let plain = json!({ "ignition": { "version": "3.5.0" }, "storage": { "files": [
        { "path": "/etc/secret", "contents": { "source": format!("data:,{SECRET}") } }] } });
    let late = json!({ "ignition": { "version": "3.5.0" }, "storage": { "luks": [{ "discard": true, "device": "/dev/vdb", "name": "a" }] } });
    for (pool, ignition) in [("worker", &plain), ("infra.gpu", &plain), ("late", &late)] {
        let name = format!("rendered-{pool}-1");
        let configuration = json!({ "configuration": { "name": name } });
        let object = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": { "name": pool }, "spec": configuration, "status": configuration });
        write(&directory.path().join(format!("machine-pools/{pool}.yaml")), &object.to_string());
        let config = rendered(&name, ignition).to_string();
        write(&directory.path().join(format!("machine-configs/{name}.yaml")), &config);
    }
    write(&directory.path().join("kubeconfig"), &first_contact(SECRET));
    directory
}

/// A kubeconfig with this token.
fn first_contact(token: &str) -> String {
    json!({ "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": "https://api.test:6443" } }],
        "users": [{ "name": "a", "user": { "token": token } }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }] })
    .to_string()
}

fn answers(directory: &TempDir) -> Answers {
    let kubeconfig = Kubeconfig::File(directory.path().join("kubeconfig"));
    Answers::new(Source::Directory(Directory::new(directory.path())), kubeconfig)
}

/// BOOT-014: the certificates of the `ControllerConfig` that a bootstrap put beside its pools.
#[tokio::test]
async fn certificates_come_from_directory() {
    let directory = directory();
    let joining = async |directory: &TempDir| Directory::new(directory.path()).joining("worker").await;
    assert_eq!(joining(&directory).await.unwrap().authorities, BTreeMap::new());
    let path = directory.path().join("controller-config/machine-config-controller.yaml");
    // "new" in base64.
    let object = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": { "name": "machine-config-controller" },
        "spec": { "kubeAPIServerServingCAData": "bmV3", "cloudProviderCAData": null, "clusterDNSIP": "10.0.0.1" } });
    write(&path, &object.to_string());
    let expected = BTreeMap::from([(authorities::KUBELET_CA.to_owned(), "new".to_owned())]);
    assert_eq!(joining(&directory).await.unwrap().authorities, expected);
    write(&path, &format!("spec: [{SECRET}"));
    let refused = format!("{:?}", joining(&directory).await.unwrap_err());
    assert!(refused.contains("machine-config-controller.yaml") && !refused.contains(SECRET), "{refused}");
}

/// Runs a client against a listener of its own thread.
async fn with_server<T: Send + 'static>(
    tls: Option<TlsFiles>,
    answers: Answers,
    client: impl FnOnce(SocketAddr) -> T + Send + 'static,
) -> T {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), tls, answers).await.unwrap();
    let address = listener.address();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(listener.serve(async { drop(ended.await) }));
    let result = tokio::task::spawn_blocking(move || client(address)).await.unwrap();
    drop(end);
    server.await.unwrap();
    result
}

fn request(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

fn read(stream: &mut impl std::io::Read) -> (u16, String) {
    let mut bytes = Vec::new();
    // A server that has said all may close without TLS's own end.
    drop(stream.read_to_end(&mut bytes));
    let text = String::from_utf8(bytes).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    (status, text)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    // For a server that never answers.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn send(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = connect(address);
    stream.write_all(request(method, path, headers).as_bytes()).unwrap();
    read(&mut stream)
}

fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// BOOT-014: configs by pool, custom ones as well; each refusal has its cause.
#[tokio::test]
async fn pools_are_served_and_refusals_name_cause() {
    let directory = directory();
    with_server(None, answers(&directory), |address| {
        let (status, answer) = send(address, "GET", "/config/worker", NODE);
        assert_eq!(status, 200, "{answer}");
        assert!(answer.to_ascii_lowercase().contains("content-type: application/json"), "{answer}");
        let config = body(&answer);
        assert_eq!(config["ignition"]["version"], "3.3.0");
        let files = config["storage"]["files"].as_array().unwrap();
        assert_eq!(files.last().unwrap()["path"], ignition::ENCAPSULATED);
        assert_eq!(body(&send(address, "GET", "/config/infra.gpu", "").1)["ignition"]["version"], "3.5.0");
        let (status, head) = send(address, "HEAD", "/config/worker", NODE);
        assert!(status == 200 && head.ends_with("\r\n\r\n"), "{head}");
        assert!(head.to_ascii_lowercase().contains("content-length: "), "{head}");
        for (method, path, headers, expected, message) in [
            ("GET", "/healthz", "", 200, "ok"),
            ("GET", "/readyz", "", 200, "ok"),
            ("GET", "/config/master", NODE, 404, "there is no pool master in "),
            ("GET", "/config/../worker", NODE, 404, "there are /config/POOL"),
            ("GET", "/config/%2e%2e", NODE, 404, "there are /config/POOL"),
            ("GET", "/config/", NODE, 404, "there are /config/POOL"),
            ("GET", "/", NODE, 404, "there are /config/POOL"),
            ("POST", "/config/worker", NODE, 405, "only GET and HEAD"),
            ("GET", "/config/late", NODE, 500, "rendered-late-1: spec.config.storage.luks.0.discard needs"),
            (
                "GET",
                "/config/worker",
                "Accept: application/vnd.coreos.ignition+json; version=2.4.0\r\n",
                400,
                "2.4.0 is not served",
            ),
        ] {
            let (status, answer) = send(address, method, path, headers);
            assert!(status == expected && answer.contains(message), "{method} {path}: {answer}");
        }
    })
    .await;
}

/// Errors that an administrator can repair are retried: a node's Ignition ends at a status below 500.
#[tokio::test]
async fn repairable_errors_are_retried() {
    let directory = directory();
    let path = directory.path().to_owned();
    with_server(None, answers(&directory), move |address| {
        let get_config = || send(address, "GET", "/config/worker", NODE);
        let broken = |file: &str, text: &str, message: &str| {
            #[expect(clippy::disallowed_methods, reason = "a test: the administrator's hand")]
            let before = std::fs::read_to_string(path.join(file)).unwrap();
            write(&path.join(file), text);
            let (status, answer) = get_config();
            assert!(status == 503 && answer.contains(message), "{answer}");
            assert!(answer.to_ascii_lowercase().contains("retry-after: 10"), "{answer}");
            assert!(!answer.contains(SECRET), "{answer}");
            write(&path.join(file), &before);
            assert_eq!(get_config().0, 200);
        };
        let config = "machine-configs/rendered-worker-1.yaml";
        let pool = |spec: &str| format!("{{metadata: {{name: worker}}, spec: {spec}}}");
        let second = path.join("machine-configs/rendered-worker-1.json");
        write(&second, "{}");
        let (status, answer) = get_config();
        let words = "rendered-worker-1.yaml and rendered-worker-1.json both hold MachineConfig rendered-worker-1; remove one of the two";
        assert!(status == 503 && answer.contains(words), "{answer}");
        #[expect(clippy::disallowed_methods, reason = "a test: the administrator's hand")]
        std::fs::remove_file(second).unwrap();
        let file = "machine-pools/worker.yaml";
        broken(file, &pool("{}"), "names no config");
        broken(file, &pool("{configuration: {name: ../../x}}"), "names no config");
        broken(file, &pool("{configuration: {name: other}}"), "other.yaml: ");
        broken(config, &format!("{{spec: {SECRET}"), "can't be read as its kind");
        broken(config, &format!("{{spec: {{kernelArguments: {SECRET}}}}}"), "can't be read as its kind");
        broken("kubeconfig", "{{{{", "it is not a kubeconfig");
        broken("kubeconfig", &first_contact(""), "names neither a token nor a client certificate");
        #[expect(clippy::disallowed_methods, reason = "a test: the administrator's hand")]
        std::fs::remove_file(path.join("kubeconfig")).unwrap();
        let (status, answer) = get_config();
        assert!(status == 503 && answer.contains("kubeconfig: "), "{answer}");
    })
    .await;
}

/// A bootstrap that has not written yet, and a pool without a first contact.
#[tokio::test]
async fn what_node_needs_is_waited_for() {
    let empty = tempfile::tempdir().unwrap();
    let output = empty.path().join("bootstrap");
    let server = Answers::new(Source::Directory(Directory::new(&output)), Kubeconfig::None);
    with_server(None, server, move |address| {
        let says = |path: &str, expected: u16, words: &str| {
            let (status, answer) = send(address, "GET", path, NODE);
            assert!(status == expected && answer.contains(words), "{path}: {answer}");
        };
        says("/readyz", 503, "not known yet");
        says("/config/worker", 503, "machine-pools has no pool yet; write it with `bootstrap --output ");
        let written = directory().keep();
        #[expect(clippy::disallowed_methods, reason = "a test: a bootstrap's last step")]
        std::fs::rename(&written, &output).unwrap();
        says("/readyz", 200, "ok");
        says(
            "/config/worker",
            503,
            "no kubeconfig for its first contact; start serve with --bootstrap-kubeconfig",
        );
        says("/config/none", 404, "there is no pool none");
        let own = json!({ "ignition": { "version": "3.5.0" }, "storage": { "files": [
            { "path": "/etc/kubernetes/bootstrap-kubelet.conf", "contents": { "source": "data:,a" } }] } });
        let name = "rendered-worker-1";
        write(&output.join(format!("machine-configs/{name}.yaml")), &rendered(name, &own).to_string());
        says("/config/worker", 200, "bootstrap-kubelet.conf");
    })
    .await;
    let directory = directory();
    let server = Answers::new(Source::Directory(Directory::new(directory.path())), Kubeconfig::Elsewhere);
    with_server(None, server, |address| assert_eq!(send(address, "GET", "/config/worker", NODE).0, 200))
        .await;
}

#[tokio::test]
async fn token_opens_its_pool_alone() {
    let directory = directory();
    let file = directory.path().join("tokens");
    write(&file, &format!("worker {SECRET}\n"));
    let answers = answers(&directory).guarded(Some(file.clone()), false);
    with_server(None, answers, move |address| {
        let token = format!("{NODE}Authorization: Bearer {SECRET}\r\n");
        assert_eq!(send(address, "GET", "/config/worker", &token).0, 200);
        assert_eq!(send(address, "GET", "/healthz", "").0, 200);
        for (path, headers) in [
            ("/config/worker", NODE.to_owned()),
            ("/config/infra.gpu", token.clone()),
            // A stranger does not learn which pools there are.
            ("/config/none", token.clone()),
            ("/config/worker", format!("{NODE}Authorization: Bearer wrong-wrong-wrong-wrong\r\n")),
        ] {
            let (status, answer) = send(address, "GET", path, &headers);
            assert!(status == 401 && answer.contains("a bearer token of this pool is needed"), "{answer}");
            assert!(!answer.contains(SECRET), "{answer}");
        }
        // Changed under the running server; one that can't be read opens nothing.
        write(&file, "a b c\n");
        let (status, answer) = send(address, "GET", "/config/worker", &token);
        assert!(status == 503 && answer.contains("can't read its tokens"), "{answer}");
        write(&file, "fedcba9876543210\n");
        assert_eq!(send(address, "GET", "/config/worker", &token).0, 401);
        let new = format!("{NODE}authorization: bearer fedcba9876543210\r\n");
        assert_eq!(send(address, "GET", "/config/infra.gpu", &new).0, 200);
    })
    .await;
}

/// An authority with certificates.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns a certificate and its key, PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn serve_from(&self, directory: &Path, clients: bool) -> TlsFiles {
        let (certificate, key) = self.issue("localhost");
        let files = TlsFiles {
            certificate: directory.join("tls.crt"),
            key: directory.join("tls.key"),
            client_authorities: clients.then(|| directory.join("clients.crt")),
        };
        write(&files.certificate, &certificate);
        write(&files.key, &key);
        files
    }
}

/// Sends a request over TLS; returns nothing where the server's certificate is not of the authority.
fn send_tls(
    address: SocketAddr,
    authority: &str,
    identity: Option<&(String, String)>,
    headers: &str,
) -> Option<(u16, String)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(client, connect(address));
    stream.write_all(request("GET", "/config/worker", headers).as_bytes()).ok()?;
    let (status, answer) = read(&mut stream);
    (status != 0).then_some((status, answer))
}

#[tokio::test]
async fn client_certificate_opens_as_well_as_token() {
    let directory = directory();
    let (authority, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let tls = authority.serve_from(directory.path(), true);
    write(&directory.path().join("clients.crt"), &clients.pem());
    write(&directory.path().join("tokens"), &format!("{SECRET}\n"));
    let answers = answers(&directory).guarded(Some(directory.path().join("tokens")), true);
    with_server(Some(tls), answers, move |address| {
        let send = |identity: Option<(String, String)>, headers: &str| {
            send_tls(address, &authority.pem(), identity.as_ref(), headers)
        };
        assert_eq!(send(Some(clients.issue("a")), NODE).unwrap().0, 200);
        assert_eq!(send(None, &format!("{NODE}Authorization: Bearer {SECRET}\r\n")).unwrap().0, 200);
        let (status, answer) = send(None, NODE).unwrap();
        assert!(status == 401 && answer.contains("or a client certificate is needed"), "{answer}");
        assert_eq!(send(Some(strangers.issue("a")), NODE), None, "not of the authority");
    })
    .await;
}

#[tokio::test]
async fn renewed_certificate_is_served_and_broken_one_is_not() {
    let directory = directory();
    let (old, new) = (Authority::new(), Authority::new());
    let tls = old.serve_from(directory.path(), false);
    let path = directory.path().to_owned();
    with_server(Some(tls.clone()), answers(&directory), move |address| {
        assert_eq!(send_tls(address, &old.pem(), None, NODE).unwrap().0, 200);
        write(&tls.certificate, "rubbish");
        assert_eq!(send_tls(address, &old.pem(), None, NODE).unwrap().0, 200, "the last one stays");
        drop(new.serve_from(&path, false));
        assert_eq!(send_tls(address, &new.pem(), None, NODE).unwrap().0, 200);
        assert_eq!(send_tls(address, &old.pem(), None, NODE), None);
    })
    .await;
}

#[tokio::test]
async fn secrets_do_not_leave_without_tls() {
    let directory = directory();
    let outside = "0.0.0.0:0".parse().unwrap();
    let error = Listener::bind(outside, None, answers(&directory)).await.unwrap_err().to_string();
    assert!(error.contains("is served only with --tls-cert and --tls-key"), "{error}");
    let tls = TlsFiles {
        certificate: directory.path().join("none.crt"),
        key: directory.path().join("none.key"),
        client_authorities: None,
    };
    let error = Listener::bind(outside, Some(tls), answers(&directory)).await.unwrap_err().to_string();
    assert!(error.contains("none.crt: ") && error.contains("correct --tls-cert"), "{error}");
}

/// The clock stands still while the client runs, so nothing is closed for its age.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn silent_connections_and_large_headers_are_bounded() {
    let directory = directory();
    with_server(None, answers(&directory), |address| {
        let half = request("GET", "/healthz", "");
        let mut silent: Vec<TcpStream> = (0..listen::MAX_CONNECTIONS).map(|_| connect(address)).collect();
        for stream in &mut silent {
            stream.write_all(&half.as_bytes()[..half.len() - 1]).unwrap();
        }
        assert_eq!(send(address, "GET", "/healthz", "").0, 200);
        let mut first = [0; 1];
        assert_eq!(silent[0].read(&mut first).unwrap_or(0), 0, "the oldest one is closed");
        let mut stream = connect(address);
        stream.write_all(b"GET /healthz HTTP/1.1\r\nX: ").unwrap();
        // The server stops reading, closes, and the rest may meet a reset.
        drop(stream.write_all(&vec![b'x'; 64 * 1024]));
        let (status, _) = read(&mut stream);
        assert!(matches!(status, 431 | 0), "{status}");
    })
    .await;
}
