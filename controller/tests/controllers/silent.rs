//! A connection to the API server that stays open and brings nothing, as of a server or load balancer that is gone without a word.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::{Identity, MachineConfigBuilder};
use crate::process::Cluster;
use crate::refusals::{listener, page_until, until_has};
use crate::rollout::{Agents, ready_node};

/// Time in which a dead connection is noticed: a probe after 30 s, its answer after 15 s, and what a loaded machine adds.
const NOTICED: Duration = Duration::from_secs(60);

/// A wire before the API server: what it speaks passes as it is, TLS and HTTP/2.
struct Wire {
    /// Silences the connections that are open, by true; none while new ones are not served.
    open: Arc<Mutex<Option<watch::Sender<bool>>>>,
    accepting: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Wire {
    /// Has the controllers that start from now on come through it.
    async fn before(cluster: &mut Cluster) -> Self {
        let path = cluster.bench.kubeconfig(&Identity::Admin("controller".to_owned()));
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let server = &mut config["clusters"][0]["cluster"]["server"];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let behind = server.as_str().unwrap().strip_prefix("https://").unwrap().to_owned();
        *server = json!(format!("https://{}", listener.local_addr().unwrap()));
        // The certificate is for the server itself.
        let host = behind.rsplit_once(':').unwrap().0;
        config["clusters"][0]["cluster"]["tls-server-name"] = json!(host);
        fs::write(&path, config.to_string()).unwrap();
        cluster.kubeconfig = path;
        let open = Arc::new(Mutex::new(Some(watch::channel(false).0)));
        let served = Arc::clone(&open);
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let silenced = served.lock().unwrap().as_ref().map(watch::Sender::subscribe);
                // What is not served is closed at once.
                let Some(silenced) = silenced else { continue };
                tokio::spawn(pass(client, behind.clone(), silenced));
            }
        });
        Self { open, accepting }
    }

    /// From now on nothing passes what is open, and nothing else is opened.
    fn silence(&self) {
        let open = self.open.lock().unwrap().take().unwrap();
        open.send_replace(true);
    }

    /// New connections are served again. Those that were silenced stay so.
    fn resume(&self) {
        *self.open.lock().unwrap() = Some(watch::channel(false).0);
    }
}

async fn pass(mut client: TcpStream, behind: String, mut silenced: watch::Receiver<bool>) {
    let mut server = TcpStream::connect(behind).await.unwrap();
    let is_silenced = tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => false,
        silenced = silenced.wait_for(|silenced| *silenced) => silenced.is_ok(),
    };
    if is_silenced {
        // Both stay open.
        std::future::pending::<()>().await;
    }
}

/// The watches of all kinds share the connection: the metric says that they are down, and what changed meanwhile is rendered and given out
/// once there is another one.
#[tokio::test]
async fn silent_connection_is_noticed_and_replaced() {
    let mut cluster = Cluster::new().await;
    let wire = Wire::before(&mut cluster).await;
    let config = |contents: &str| MachineConfigBuilder::new("50-a").file("/etc/a.conf", 0o644, contents);
    cluster.pool("worker").await;
    cluster.config("worker", config("1")).await;
    // Its Lease outlasts the silence.
    let mut controller = cluster.start("a", &["--lease-duration", "600"]);
    let listener = listener(&mut controller).await;
    let first = cluster.until_target("worker", "").await;
    ready_node(&cluster.client, "n1", &first).await;
    cluster.until_pool("worker", "its node", |pool| pool["status"]["readyMachineCount"] == 1).await;
    let kinds = ["machineconfigpools.", "machineconfigs.", "nodes"];
    let is = |body: &str, kind: &str, up: &str| {
        let start = format!("machine_config_controller_watch_up{{resource=\"{kind}");
        body.lines().any(|line| line.starts_with(&start) && line.ends_with(up))
    };
    let all = |up: &'static str| move |_, body: &str| kinds.iter().all(|kind| is(body, kind, up));
    page_until(listener, "/metrics", "all are up", all(" 1")).await;
    let _agents = Agents::start(&cluster.bench).await;
    let start = Instant::now();
    wire.silence();
    cluster.config("worker", config("2")).await;
    page_until(listener, "/metrics", "all are down", all(" 0")).await;
    assert!(start.elapsed() < NOTICED, "{:?}", start.elapsed());
    wire.resume();
    let second = cluster.until_target("worker", &first).await;
    until_has(&cluster, "n1", &second).await;
    page_until(listener, "/metrics", "all are up again", all(" 1")).await;
}
