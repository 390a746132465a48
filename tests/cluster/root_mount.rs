//! `daemon --root-mount`: the agent as a pod runs it. It enters the host's root, and what is the container's stays
//! reachable: the service account's projected volume, also renewed, the listener's certificate, and the second executable.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::cluster::{
    Agent, Bench, Gates, Identity, MachineConfigBuilder, annotation, create_node, create_object, node_until,
    own_only, retarget,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::{Value, json};

const AGENT: &str = env!("CARGO_BIN_EXE_machine-config-agent");
const NAME: &str = "root-mount";
const QUIET: &str = "etc/mca-root-mount";
const ACCOUNT: &str = "system:serviceaccount:openshift-machine-config-operator:machine-config-agent";

const MCD: &str = "system:serviceaccount:openshift-machine-config-operator:machine-config-daemon";

/// The kubelet's part around a container, in a mount namespace of its own: the volume is where a pod has it, and the
/// host's root is a mount. Arguments: the volume, the host's root, the command.
const CONTAINER: &str = r#"set -e
volume=$1 host=$2; shift 2
mount -t tmpfs tmpfs /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
mount --bind "$volume" /run/secrets/kubernetes.io/serviceaccount
mount --bind "$host" "$host"
for place in usr bin lib lib64 dev proc; do
    test -e "/$place" || continue
    mkdir -p "$host/$place"
    mount --rbind "/$place" "$host/$place"
done
exec "$@""#;

/// A projected volume, written as the kubelet writes it: each state is a directory, and one link changes.
struct Volume(tempfile::TempDir);

impl Volume {
    fn new(authority: &[u8], token: &str) -> Self {
        let volume = Self(tempfile::tempdir().unwrap());
        for name in ["token", "ca.crt"] {
            symlink(format!("..data/{name}"), volume.0.path().join(name)).unwrap();
        }
        volume.renew(authority, token);
        volume
    }

    fn renew(&self, authority: &[u8], token: &str) {
        let at = |name: &str| self.0.path().join(name);
        let state = format!("..{token}");
        fs::create_dir(at(&state)).unwrap();
        fs::write(at(&state).join("token"), token).unwrap();
        fs::write(at(&state).join("ca.crt"), authority).unwrap();
        symlink(&state, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
    }

    /// Takes a state away for good, as the kubelet does after a renewal.
    fn drop(&self, token: &str) {
        fs::remove_dir_all(self.0.path().join(format!("..{token}"))).unwrap();
    }
}

/// A host with an SELinux policy: its labels are asked of the second executable. It names none for what is written here.
fn host() -> tempfile::TempDir {
    let host = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = host.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    write("etc/group", "root:x:0:\n");
    write("etc/selinux/config", "SELINUX=permissive\nSELINUXTYPE=test\n");
    write("etc/selinux/test/policy/policy.33", "only its digest is asked for");
    write("etc/selinux/test/contexts/files/file_contexts", "/nowhere -- system_u:object_r:none_t:s0\n");
    fs::create_dir_all(host.path().join("var/lib")).unwrap();
    host
}

async fn cluster(client: &Client) {
    let action = json!([{ "type": "None" }]);
    let policy = json!({ "files": [{ "path": format!("/{QUIET}"), "actions": action }] });
    let spec = json!({ "managementState": "Managed", "nodeDisruptionPolicy": policy });
    create_object(client, "machineconfigurations", "cluster", json!({ "spec": spec })).await.unwrap();
    for letter in ["a", "b"] {
        let config = MachineConfigBuilder::new(&format!("rendered-{letter}"));
        config.file(&format!("/{QUIET}/{NAME}"), 0o644, letter).create(client).await;
    }
    create_node(client, NAME, &[("desiredConfig", "rendered-a")]).await;
}

async fn done(client: &Client, config: &str) {
    let is = |node: &Node| {
        annotation(node, "state") == Some("Done") && annotation(node, "currentConfig") == Some(config)
    };
    node_until(client, NAME, &format!("Done with {config}"), is).await;
}

fn authority(bench: &Bench) -> Vec<u8> {
    let kubeconfig = fs::read(bench.kubeconfig(&Identity::Anonymous)).unwrap();
    let kubeconfig: Value = serde_json::from_slice(&kubeconfig).unwrap();
    let data = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap();
    STANDARD.decode(data).unwrap()
}

/// The listener of the metrics, with its certificate in the container's files.
struct Metrics {
    files: tempfile::TempDir,
    certificate: CertificateDer<'static>,
    address: SocketAddr,
}

impl Metrics {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = tempfile::tempdir().unwrap();
        fs::write(files.path().join("tls.crt"), made.cert.pem()).unwrap();
        fs::write(files.path().join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { files, certificate: made.cert.der().clone(), address }
    }

    /// The answer to a client without a token.
    fn status(&self) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
        let mut tls = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut tcp = TcpStream::connect(self.address).unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8(answer.to_vec()).unwrap()
    }
}

fn container(bench: &Bench, volume: &Volume, metrics: &Metrics, host: &Path) -> Agent {
    let url = bench.url();
    let (address, port) = url.strip_prefix("https://").unwrap().rsplit_once(':').unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", CONTAINER, "sh"]);
    command.arg(volume.0.path()).arg(host).args([AGENT, "daemon", "--root-mount"]).arg(host);
    command.args(["--os-backend", "none", "--reboot-by", "supervisor"]);
    command.arg("--metrics-listen").arg(metrics.address.to_string());
    command.arg("--metrics-tls-cert").arg(metrics.files.path().join("tls.crt"));
    command.arg("--metrics-tls-key").arg(metrics.files.path().join("tls.key"));
    command.env("NODE_NAME", NAME);
    command.env("KUBERNETES_SERVICE_HOST", address).env("KUBERNETES_SERVICE_PORT", port);
    Agent::run(NAME, command)
}

#[tokio::test]
async fn pod_enters_host_and_keeps_its_account() {
    if !own_only("pod_enters_host_and_keeps_its_account") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let client = bench.client("test-root-mount").await;
    cluster(&client).await;
    bench.set_token("geheim-one", ACCOUNT, &["system:serviceaccounts:openshift-machine-config-operator"]);
    let volume = Volume::new(&authority(&bench), "geheim-one");
    let host = host();
    let metrics = Metrics::new();
    let agent = container(&bench, &volume, &metrics, host.path());
    done(&client, "rendered-a").await;
    let written = format!("{QUIET}/{NAME}");
    assert_eq!(fs::read(host.path().join(&written)).unwrap(), b"a");
    // Its root is the host's: nothing was written to this machine, and its view ends there.
    assert!(!Path::new("/").join(&written).exists());
    let root = fs::read_link(format!("/proc/{}/root", agent.pid())).unwrap();
    assert_eq!(root, fs::canonicalize(host.path()).unwrap());
    bench.set_token("geheim-two", ACCOUNT, &["system:serviceaccounts:openshift-machine-config-operator"]);
    volume.renew(&authority(&bench), "geheim-two");
    volume.drop("geheim-one");
    bench.revoke_token("geheim-one");
    retarget(&client, NAME, "rendered-b", None).await;
    done(&client, "rendered-b").await;
    assert_eq!(fs::read(host.path().join(&written)).unwrap(), b"b");
    assert_eq!(metrics.status(), "HTTP/1.1 401");
    let lines = agent.lines().join("\n");
    assert!(!lines.contains("geheim"), "{lines}");
    assert!(agent.terminate().await.success());
}

/// MCD's DaemonSet with only the image replaced: its command, its arguments, and its account, which reads all and may write
/// no Node. The Node is written by the kubelet's credentials, whose files are the host's, at the kubelet's API server.
#[tokio::test]
async fn daemonset_of_mcd_runs_with_another_image() {
    if !own_only("daemonset_of_mcd_runs_with_another_image") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let client = bench.client("test-mcd-pod").await;
    cluster(&client).await;
    bench.set_token("geheim-mcd", MCD, &["system:serviceaccounts:openshift-machine-config-operator"]);
    let volume = Volume::new(&authority(&bench), "geheim-mcd");
    let host = host();
    fs::create_dir_all(host.path().join("var/lib/kubelet/pki")).unwrap();
    let kubeconfig = bench.kubeconfig(&Identity::Kubelet(NAME.to_owned()));
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(kubeconfig).unwrap()).unwrap();
    // As the kubelet has it: the pair is in a file that its rotation replaces by a link.
    let user = &mut kubeconfig["users"][0]["user"];
    let pem = |data: &Value| STANDARD.decode(data.as_str().unwrap()).unwrap();
    let pair = [pem(&user["client-certificate-data"]), pem(&user["client-key-data"])].concat();
    let current = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    *user = json!({ "client-certificate": current, "client-key": current });
    let host_path = |path: &str| host.path().join(path.trim_start_matches('/'));
    fs::write(host_path("/var/lib/kubelet/pki/kubelet-client-1.pem"), pair).unwrap();
    symlink("/var/lib/kubelet/pki/kubelet-client-1.pem", host_path(current)).unwrap();
    fs::write(host_path("/var/lib/kubelet/kubeconfig"), kubeconfig.to_string()).unwrap();

    let image = tempfile::tempdir().unwrap();
    let program = image.path().join("machine-config-daemon");
    symlink(AGENT, &program).unwrap();
    let mark = bench.mark().await;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", CONTAINER, "sh"]);
    command.arg(volume.0.path()).arg(host.path()).arg(program);
    command.args(["start", "--payload-version=4.20.1", "--v=2", "--tls-min-version=VersionTLS12"]);
    command.args(["--tls-cipher-suites=TLS_AES_128_GCM_SHA256", "--metrics-url=127.0.0.1:0", "--root-mount"]);
    // The cluster's network is not up: the address of its service does not answer.
    command.arg(host.path()).env("NODE_NAME", NAME);
    command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", "1");
    let agent = Agent::run(NAME, command);
    done(&client, "rendered-a").await;
    assert!(agent.terminate().await.success());

    let requests = bench.requests_since(mark).await;
    let of = |user: &str| requests.iter().filter(|request| request.user == user).collect::<Vec<_>>();
    let written = of(&format!("system:node:{NAME}"));
    assert!(written.len() >= 2 && written.iter().all(|request| request.line().starts_with("patch nodes ")));
    let read = of(MCD);
    assert!(read.iter().any(|request| request.line() == "get machineconfigs rendered-a"));
    assert!(!read.iter().any(|request| request.line().starts_with("patch nodes ")));
}

#[test]
fn directory_without_host_is_not_entered() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (place, cause) in [(directory.path().join("none"), "No such file"), (empty.clone(), "without /proc")]
    {
        let mut command = Command::new(AGENT);
        command
            .args(["daemon", "--node-name", NAME, "--kubeconfig", "/etc/none", "--root-mount"])
            .arg(&place);
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(102), "{told}");
        for part in [cause, place.to_str().unwrap(), "HostToContainer"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
    let mut command = Command::new(AGENT);
    command.args(["daemon", "--root", "/tmp", "--kubeconfig", "/etc/none", "--root-mount", "/"]);
    assert_eq!(command.output().unwrap().status.code(), Some(2));
}
