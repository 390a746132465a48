//! Start of etcd and the API server: ours, or a real kube-apiserver.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use rcgen::{KeyPair, PublicKeyData as _};

/// The directory with a real `kube-apiserver` and `etcd`, if there is one.
pub fn assets() -> Option<PathBuf> {
    env::var_os("KUBEBUILDER_ASSETS").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// Addresses of a bench. A loopback address of its own keeps the ports free while its servers are down.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    pub host: Ipv4Addr,
    pub api: u16,
    pub admin: u16,
    pub etcd: u16,
    pub peer: u16,
}

impl Addresses {
    pub fn new() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let [.., high, low] = std::process::id().to_be_bytes();
        let host = Ipv4Addr::new(127, COUNT.fetch_add(1, Ordering::Relaxed), high, low.max(1));
        // All held at once, so that they differ.
        let held = [(); 4].map(|()| TcpListener::bind((host, 0)).unwrap());
        let [api, admin, etcd, peer] = held.each_ref().map(|one| one.local_addr().unwrap().port());
        Self { host, api, admin, etcd, peer }
    }

    pub fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.api)
    }
}

/// `etcd` on a directory of its own.
pub fn etcd(addresses: Addresses, data: &Path) -> Command {
    let program = assets().map_or_else(|| built("etcd"), |dir| dir.join("etcd"));
    let client = format!("http://{}:{}", addresses.host, addresses.etcd);
    let peer = format!("http://{}:{}", addresses.host, addresses.peer);
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(data.join("etcd")).args(["--log-level=warn", "--unsafe-no-fsync"]).args([
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]);
    command
}

/// Nothing of the server's own housekeeping; what writes to the objects that the agent writes to with its body.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  users: [\"system:apiserver\"]
- level: Request
  verbs: [create, update, patch, delete]
  resources:
  - group: \"\"
    resources: [nodes, nodes/status, events, pods/eviction]
  - group: machineconfiguration.openshift.io
    resources: [machineconfignodes, machineconfignodes/status]
- level: Metadata
";

/// The API server: ours, or kube-apiserver as a cluster runs it. Its files are in `dir`, its audit log on its output.
pub fn api(addresses: Addresses, dir: &Path) -> Command {
    let policy = dir.join("audit-policy.yaml");
    fs::write(&policy, AUDIT_POLICY).unwrap();
    let file = |flag: &str, name: &str| format!("--{flag}={}", dir.join(name).display());
    let etcd = format!("http://{}:{}", addresses.host, addresses.etcd);
    let Some(assets) = assets() else {
        let mut command = Command::new(built("apiserver"));
        command.args([
            format!("--etcd={etcd}"),
            format!("--address={}:{}", addresses.host, addresses.api),
            format!("--admin={}:{}", addresses.host, addresses.admin),
            file("tls-cert", "server.crt"),
            file("tls-key", "server.key"),
            file("client-ca", "client-ca.crt"),
            file("tokens", "tokens.csv"),
            file("rules", "rules"),
            file("audit-policy", "audit-policy.yaml"),
            "--audit-log=-".to_owned(),
        ]);
        return command;
    };
    let accounts = KeyPair::generate().unwrap();
    fs::write(dir.join("accounts.key"), accounts.serialize_pem()).unwrap();
    fs::write(dir.join("accounts.pub"), accounts.public_key_pem()).unwrap();
    let mut command = Command::new(assets.join("kube-apiserver"));
    command.args([
        format!("--etcd-servers={etcd}"),
        format!("--bind-address={}", addresses.host),
        format!("--secure-port={}", addresses.api),
        format!("--advertise-address={}", addresses.host),
        format!("--cert-dir={}", dir.display()),
        file("tls-cert-file", "server.crt"),
        file("tls-private-key-file", "server.key"),
        file("client-ca-file", "client-ca.crt"),
        file("token-auth-file", "tokens.csv"),
        format!("--service-account-issuer={}/", addresses.url()),
        file("service-account-key-file", "accounts.pub"),
        file("service-account-signing-key-file", "accounts.key"),
        file("audit-policy-file", "audit-policy.yaml"),
    ]);
    command.args([
        "--audit-log-path=-",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        // No controller makes the default service accounts here.
        "--disable-admission-plugins=ServiceAccount",
        "--anonymous-auth=true",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        "--endpoint-reconciler-type=none",
        "--shutdown-delay-duration=0s",
    ]);
    command
}

/// Returns a file that `tests/apiserver/build` makes in `apiserver` of cargo's target directory; it is made if it is missing,
/// so that a bench or one test runs in a fresh clone.
pub fn built(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let path = target.join("apiserver").join(name);
    if !path.exists() {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("tests/apiserver/build"));
        let script = script.into_iter().find(|script| script.exists()).unwrap();
        let made = Command::new(&script).env("CARGO_TARGET_DIR", target).status().unwrap();
        assert!(made.success() && path.exists(), "{} made no {}", script.display(), path.display());
    }
    path
}
