//! A server with its storage.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::Signal;
use tempfile::TempDir;

use super::audit::{Audit, Request};
use super::crds::{self, Gates};
use super::identity::{Authority, Identity, replace};
use super::process::{Child, Kept, Start, shown_on_failure};
use super::server::{self, Addresses};

/// The directory of etcd, and its copy.
const DATA: &str = "etcd";
const SAVED: &str = "etcd.saved";

/// The part of a path that marks a position in the audit log.
const MARK: &str = "bench-mark";

/// Rules of the small server for all but administrators; a real one has RBAC instead.
const RULES: &str = "\
# What these may not do is tested on a real server.
system:nodes * *
system:serviceaccounts:openshift-machine-config-operator * *
metrics-reader get /metrics
";

/// An API server with its etcd.
#[derive(Debug)]
pub struct Bench {
    // First, so that nothing runs any more when its directory goes.
    running: Mutex<Running>,
    dir: TempDir,
    addresses: Addresses,
    servers: Mutex<Authority>,
    clients: Authority,
    tokens: Mutex<BTreeMap<String, (String, Vec<String>)>>,
    audit: Audit,
}

/// The API server before etcd: it is stopped first.
#[derive(Debug, Default)]
struct Running {
    api: Option<(Child, Kept)>,
    etcd: Option<(Child, Kept)>,
    data: Option<TempDir>,
}

impl Bench {
    /// The server that the tests of one binary share, with the CRDs of the default feature set.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Bench> = OnceLock::new();
        SHARED.get_or_init(|| Self::private(Gates::Default))
    }

    /// As [`Bench::shared`], with the CRDs of the technology preview.
    pub fn shared_preview() -> &'static Self {
        static SHARED: OnceLock<Bench> = OnceLock::new();
        SHARED.get_or_init(|| Self::private(Gates::TechPreview))
    }

    /// A server of one's own, for tests that break it.
    pub fn private(gates: Gates) -> Self {
        let bench = Self::without_crds();
        bench.blocking(async |client| crds::apply(&client, gates).await);
        bench
    }

    /// A server that knows none of the CRDs.
    pub fn without_crds() -> Self {
        let addresses = Addresses::new();
        let bench = Self {
            dir: own_dir(),
            addresses,
            servers: Mutex::new(Authority::new("bench-servers")),
            clients: Authority::new("bench-clients"),
            tokens: Mutex::default(),
            audit: Audit::new(),
            running: Mutex::default(),
        };
        bench.write("client-ca.crt", &bench.clients.certificate);
        bench.set_rules(RULES);
        bench.write_server_certificate();
        // A real server reads its tokens once, so these are there from the start.
        bench.set_token("metrics-reader-token", "metrics-reader", &[]);
        bench.set_token("nobody-token", "nobody", &[]);
        bench.start();
        bench.blocking(async |client| crds::namespaces(&client).await);
        bench
    }

    /// Runs something on a runtime of its own: these are also called within one.
    fn blocking<T: Send>(&self, work: impl AsyncFnOnce(Client) -> T + Send) -> T {
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async { work(self.client("bench-setup").await).await })
            });
            done.join().unwrap()
        })
    }

    fn write(&self, name: &str, contents: &str) {
        replace(&self.dir.path().join(name), contents);
    }

    fn write_server_certificate(&self) {
        let host = self.addresses.host.to_string();
        let pair = self.servers.lock().unwrap().server(&[&host, "localhost", "kubernetes.default.svc"]);
        self.write("server.key", &pair.key);
        self.write("server.crt", &pair.certificate);
    }

    /// Starts what does not run.
    pub fn start(&self) {
        let mut running = self.running.lock().unwrap();
        let dir = self.dir.path();
        if running.etcd.is_none() {
            let data = running.data.get_or_insert_with(|| tempfile::tempdir_in(dir).unwrap());
            let (stderr, kept) = shown_on_failure("etcd");
            let notify = dir.join("etcd.ready");
            drop(fs::remove_file(&notify));
            let command = server::etcd(self.addresses, data.path());
            let child =
                Child::start(Start { name: "etcd", command, notify: Some(&notify), stdout: None, stderr });
            running.etcd = Some((child, kept));
        }
        if running.api.is_none() {
            let (stderr, kept) = shown_on_failure("the API server");
            let notify = dir.join("api.ready");
            drop(fs::remove_file(&notify));
            let audit = self.audit.clone();
            let command = server::api(self.addresses, dir);
            let child = Child::start(Start {
                name: "the API server",
                command,
                notify: Some(&notify),
                stdout: Some(Box::new(move |line| audit.line(&line))),
                stderr,
            });
            running.api = Some((child, kept));
            drop(running);
            self.blocking(async |client| ready(&client).await);
        }
    }

    /// The API server goes, as in an outage; its data stays.
    pub fn stop(&self) {
        self.running.lock().unwrap().api = None;
    }

    /// The API server goes and comes back.
    pub fn restart(&self) {
        self.stop();
        self.start();
    }

    /// The API server comes back with an empty database; the CRDs are applied again.
    pub fn lose_everything(&self, gates: Gates) {
        {
            let mut running = self.running.lock().unwrap();
            running.api = None;
            running.etcd = None;
            running.data = None;
        }
        self.start();
        self.blocking(async |client| {
            crds::namespaces(&client).await;
            crds::apply(&client, gates).await;
        });
    }

    /// Copies the database, as a backup; the server is away meanwhile.
    pub fn save(&self) {
        self.swap_data(DATA, SAVED);
    }

    /// Puts the database of the last backup in the place of the present one: versions go back.
    pub fn restore(&self) {
        self.swap_data(SAVED, DATA);
    }

    fn swap_data(&self, from: &str, to: &str) {
        {
            let mut running = self.running.lock().unwrap();
            running.api = None;
            running.etcd = None;
            let data = running.data.as_ref().expect("the server has run").path();
            let (from, to) = (data.join(from), data.join(to));
            drop(fs::remove_dir_all(&to));
            let copied = std::process::Command::new("cp").arg("-r").args([&from, &to]).status().unwrap();
            assert!(copied.success());
        }
        self.start();
    }

    /// Stops the API server's process: connections stay, and get no answer.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// The API server goes on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        self.running.lock().unwrap().api.as_ref().expect("the API server runs").0.signal(signal);
    }

    /// The API server's process id, for readings in `/proc`.
    pub fn pid(&self) -> u32 {
        self.running.lock().unwrap().api.as_ref().expect("the API server runs").0.pid()
    }

    /// The server's authority is another one from now on; kubeconfigs written before do not trust it.
    pub fn rotate_authority(&self) {
        *self.servers.lock().unwrap() = Authority::new("bench-servers-rotated");
        self.write_server_certificate();
        self.restart();
    }

    /// URL of the API.
    pub fn url(&self) -> String {
        self.addresses.url()
    }

    /// The fault switches' address.
    pub(super) fn admin(&self) -> (std::net::Ipv4Addr, u16) {
        (self.addresses.host, self.addresses.admin)
    }

    /// The authority of the server, as PEM.
    pub fn authority(&self) -> String {
        self.servers.lock().unwrap().certificate.clone()
    }

    /// A certificate of the server's authority for some other server, such as the agent's metrics: certificate, key.
    pub fn server_certificate(&self, names: &[&str]) -> (String, String) {
        let pair = self.servers.lock().unwrap().server(names);
        (pair.certificate, pair.key)
    }

    /// Adds a token, or changes its user. A real server knows only those it started with.
    pub fn set_token(&self, token: &str, user: &str, groups: &[&str]) {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        self.tokens.lock().unwrap().insert(token.to_owned(), (user.to_owned(), groups));
        self.write_tokens();
    }

    /// Makes a token unknown.
    pub fn revoke_token(&self, token: &str) {
        self.tokens.lock().unwrap().remove(token);
        self.write_tokens();
    }

    fn write_tokens(&self) {
        let tokens = self.tokens.lock().unwrap();
        let line = |(token, (user, groups)): (&String, &(String, Vec<String>))| {
            format!("{token},{user},uid-of-{user},\"{}\"\n", groups.join(","))
        };
        self.write("tokens.csv", &tokens.iter().map(line).collect::<String>());
    }

    /// Sets the rules of the small server, in the lines of `tests/apiserver/auth.go`.
    pub fn set_rules(&self, rules: &str) {
        self.write("rules", rules);
    }

    /// Writes a kubeconfig for an identity.
    pub fn write_kubeconfig(&self, path: &Path, identity: &Identity) {
        let config = identity.kubeconfig(&self.url(), &self.servers.lock().unwrap(), &self.clients);
        replace(path, &serde_json::to_string_pretty(&config).unwrap());
    }

    /// A kubeconfig for an identity, in the bench's own directory.
    pub fn kubeconfig(&self, identity: &Identity) -> PathBuf {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let path = self.dir.path().join(format!("{}.kubeconfig", COUNT.fetch_add(1, Ordering::Relaxed)));
        self.write_kubeconfig(&path, identity);
        path
    }

    /// An administrator's client; the name is its user and its user agent. It belongs to the runtime that asks for it.
    pub async fn client(&self, name: &str) -> Client {
        self.client_as(&Identity::Admin(name.to_owned()), name).await
    }

    /// A client with an identity. It does not retry by itself: a test sees the server's answer.
    pub async fn client_as(&self, identity: &Identity, agent: &str) -> Client {
        let config = identity.kubeconfig(&self.url(), &self.servers.lock().unwrap(), &self.clients);
        let config: Kubeconfig = serde_json::from_value(config).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(config, &options).await.unwrap();
        config.headers.push((USER_AGENT, HeaderValue::from_str(agent).unwrap()));
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    /// The audit log as it comes in.
    pub const fn audit(&self) -> &Audit {
        &self.audit
    }

    /// A position in the audit log: all that the server had received before is before it.
    pub async fn mark(&self) -> usize {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("/version?{MARK}={}", COUNT.fetch_add(1, Ordering::Relaxed));
        let request = http::Request::get(&mark).body(vec![]).unwrap();
        self.client(MARK).await.request_text(request).await.unwrap();
        self.audit.until("the mark in the audit log", |request| request.uri == mark).await;
        self.audit.count()
    }

    /// Requests since a mark, all of them answered but for watches. Not while a fault holds a request.
    pub async fn requests_since(&self, mark: usize) -> Vec<Request> {
        let now = self.mark().await;
        self.audit.settled(mark..now).await;
        let mut all = self.audit.all();
        all.truncate(now);
        all.drain(..mark);
        all.retain(|request| request.agent != MARK);
        all
    }
}

/// A directory that bears this process's id. Those of processes that are gone are removed: a bench that a whole test
/// binary shares is never dropped.
fn own_dir() -> TempDir {
    const PREFIX: &str = "machine-config-agent-bench-";
    for entry in fs::read_dir(std::env::temp_dir()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another test binary may be at it too.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
    let prefix = format!("{PREFIX}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir().unwrap()
}

/// A server says READY when it listens, and what is done after that has no event: its own answer is asked for, at most
/// until the limit.
async fn ready(client: &Client) {
    let asking = async {
        loop {
            let request = http::Request::get("/readyz").body(vec![]).unwrap();
            match client.request_text(request).await {
                Ok(text) if text == "ok" => return,
                Ok(_) | Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    super::within("the API server is ready", asking).await;
}
