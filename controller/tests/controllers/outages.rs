//! Outages of the API server, of one watch, and of one object: how soon the others, and the whole, go on, and what is told meanwhile.

use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Connections, Fault, MachineConfigBuilder, create_node, node_api, node_until, own_only};
use crate::connections::behind_proxy;
use crate::process::{Cluster, Controller, condition};
use crate::proxy::{Failing, Proxy, Seam};
use crate::refusals::{get, listener, page_until, until_has};
use crate::restored::cut;
use crate::rollout::{Agents, ready_node};
use crate::seams::drain::until_event;
use crate::seams::refused::os_config;

fn contents(pool: &str, text: &str) -> MachineConfigBuilder {
    MachineConfigBuilder::new(&format!("50-{pool}")).file("/etc/a.conf", 0o644, text)
}

/// The pauses between the tries have grown in the outage, and the server that comes back knows none of the versions that watches go on from:
/// its first answer has all of them tried at once, and the list follows at once.
#[tokio::test]
async fn watches_come_back_soon_after_outage() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", contents("worker", "1")).await;
    let mut controller = cluster.start("a", &[]);
    let listener = listener(&mut controller).await;
    let first = cluster.until_target("worker", "").await;
    cut(&proxy);
    cluster.bench.restart();
    cluster.served().await;
    cluster.config("worker", contents("worker", "2")).await;
    // Four tries of each watch: the next pauses are of eight seconds and more.
    proxy.failed(60).await;
    let mended = Instant::now();
    proxy.mend();
    cluster.until_target("worker", &first).await;
    let all_up = |_, body: &str| {
        let mut watches = body.lines().filter(|line| line.starts_with("machine_config_controller_watch_up{"));
        watches.all(|line| line.ends_with(" 1"))
    };
    page_until(listener, "/metrics", "all watches are up", all_up).await;
    assert!(mended.elapsed() < Duration::from_secs(8), "{:?}", mended.elapsed());
}

/// A server that has just started refuses everything until it has read its roles: that is no refusal, nobody is told to grant anything, and
/// nothing waits for longer pauses because of it.
#[tokio::test]
async fn roles_that_are_read_late_are_waited_for() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", contents("worker", "1")).await;
    let mut controller = cluster.start("a", &[]);
    let listener = listener(&mut controller).await;
    let first = cluster.until_target("worker", "").await;
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    cut(&proxy);
    cluster.config("worker", contents("worker", "2")).await;
    cluster.bench.connections(Connections::Dropped);
    proxy.failed(60).await;
    proxy.mend();
    for method in [Method::PUT, Method::PATCH, Method::POST, Method::DELETE, Method::GET] {
        proxy.fail(Seam::new(method, &[]), Failing::Refuses(403, "roles are not read yet"));
    }
    // The first of them is the read of the Lease, once a second.
    proxy.failed(3).await;
    let mended = Instant::now();
    proxy.mend();
    cluster.until_target("worker", &first).await;
    assert!(mended.elapsed() < Duration::from_secs(8), "{:?}", mended.elapsed());
    controller.line("Watched again").await;
    let lines = controller.lines();
    assert!(!lines.iter().any(|line| line.contains("; grant ")), "{lines:#?}");
}

/// The same for Leases: that of the leader, which renews it meanwhile, and those of the operator.
#[tokio::test]
async fn leases_that_are_refused_while_server_starts_name_no_right() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", contents("worker", "1")).await;
    let times = ["--lease-duration", "60", "--lease-renew-deadline", "50", "--lease-retry-period", "2"];
    let mut controller = cluster.start("a", &times);
    let listener = listener(&mut controller).await;
    let first = cluster.until_target("worker", "").await;
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    cut(&proxy);
    cluster.bench.connections(Connections::Dropped);
    proxy.failed(30).await;
    proxy.mend();
    proxy.fail(Seam::new(Method::PUT, &["/leases/"]), Failing::Refuses(403, "roles are not read yet"));
    proxy.fail(Seam::new(Method::GET, &["/leases?"]), Failing::Refuses(403, "roles are not read yet"));
    proxy.all_failed().await;
    proxy.failed(2).await;
    let (_, text) = get(listener, "/readyz");
    proxy.mend();
    cluster.config("worker", contents("worker", "2")).await;
    cluster.until_target("worker", &first).await;
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    let lines = controller.lines();
    let named: Vec<&String> = lines.iter().filter(|line| line.contains("; grant ")).collect();
    assert!(named.is_empty() && !text.contains("; grant "), "{named:#?} {text}");
}

/// All connections break at once, and come back: the log has one line with all kinds, and one when it is over. No line names a page for those who
/// program.
#[tokio::test]
async fn outage_is_one_line_and_its_end_another_one() {
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", contents("worker", "1")).await;
    let mut controller = cluster.start("a", &[]);
    let listener = listener(&mut controller).await;
    cluster.until_target("worker", "").await;
    controller.line("The controller of pools that opt in runs").await;
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    let before = controller.lines().len();
    cluster.bench.stop();
    let down = controller.line("the controller retries automatically").await;
    cluster.bench.start();
    let over = controller.line("Watched again").await;
    let kinds = [
        "machineconfigpools",
        "machineconfigs",
        "nodes",
        "customresourcedefinitions",
        "secrets",
        "configmaps",
        "leases",
    ];
    for line in [&down, &over] {
        assert!(kinds.iter().all(|kind| line.contains(kind)), "{line}");
    }
    let lines = controller.lines();
    let about = |part: &str| lines[before..].iter().filter(|line| line.contains(part)).count();
    assert_eq!((about("can't be read"), about("Watched again")), (1, 1), "{lines:#?}");
    for part in ["can't be watched", "recovered", "docs.rs", "configmaps can't"] {
        assert_eq!(about(part), 0, "{part}: {lines:#?}");
    }
}

/// A watch that has been down for half a minute: what is read before is used, and the replica says that it is not ready, and why.
#[tokio::test]
async fn watch_that_is_down_makes_replica_not_ready() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", contents("worker", "1")).await;
    proxy.fail(Seam::new(Method::GET, &["/nodes?", "watch="]), Failing::AnswersSomethingElse);
    let mut controller = cluster.start("a", &[]);
    let listener = listener(&mut controller).await;
    let first = cluster.until_target("worker", "").await;
    page_until(listener, "/readyz", "ready at first", |code, _| code == 200).await;
    let named = |code, text: &str| {
        code == 503 && text.starts_with("nodes have not been watched for 3") && text.lines().count() == 1
    };
    page_until(listener, "/readyz", "the watch is named", named).await;
    cluster.config("worker", contents("worker", "2")).await;
    cluster.until_target("worker", &first).await;
    proxy.mend();
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
}

/// A watch that is answered well and ends at once, each time: it is asked for again after pauses, and told as each other watch that fails.
#[tokio::test]
async fn watch_that_ends_at_once_pauses_and_is_told() {
    let (cluster, proxy) = behind_proxy().await;
    cluster.pool("worker").await;
    cluster.config("worker", contents("worker", "1")).await;
    for path in ["/nodes?", "/leases?"] {
        proxy.fail(Seam::new(Method::GET, &[path, "watch="]), Failing::EndsAtOnce);
    }
    let mut controller = cluster.start("a", &[]);
    let listener = listener(&mut controller).await;
    let first = cluster.until_target("worker", "").await;
    let line = controller.line("nodes").await;
    assert!(line.contains("can't be read: the API server ends each watch at once"), "{line}");
    let is_down = "machine_config_controller_watch_up{resource=\"nodes\"} 0";
    page_until(listener, "/metrics", "the watch is down", |_, body| body.contains(is_down)).await;
    let named = |code, text: &str| code == 503 && text.contains("nodes have not been watched for 3");
    page_until(listener, "/readyz", "the watch is named", named).await;
    // Three Leases are watched.
    let asked = proxy.mend();
    assert!(asked.iter().zip([40, 120]).all(|(asked, most)| asked < &most), "{asked:?}");
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
    cluster.config("worker", contents("worker", "2")).await;
    cluster.until_target("worker", &first).await;
}

/// A write for one pool hangs, or a read that its target is judged by: another pool is rendered within seconds. A request is given up after 10 s.
#[tokio::test]
async fn hanging_request_of_one_pool_delays_no_other_pool() {
    let (cluster, proxy, _controller, [mut first, mut other]) = two_pools().await;
    let mut slow = Vec::new();
    for what in ["target", "rendered config", "read of the target"] {
        let seam = match what {
            "target" => Seam::new(Method::PATCH, &["/machineconfigpools/infra?"]),
            "rendered config" => Seam::new(Method::POST, &["/machineconfigs?"]).with_body("rendered-infra-"),
            _ => Seam::new(Method::GET, &[&format!("/machineconfigs/{other}")]),
        };
        proxy.fail(seam, Failing::NeverAnswers);
        cluster.config("infra", contents("infra", what)).await;
        proxy.failed(1).await;
        cluster.config("worker", contents("worker", what)).await;
        let start = Instant::now();
        first = cluster.until_target("worker", &first).await;
        if start.elapsed() > Duration::from_secs(4) {
            slow.push((what, start.elapsed()));
        }
        proxy.mend();
        other = cluster.until_target("infra", &other).await;
    }
    assert!(slow.is_empty(), "{slow:?}");
}

/// A write of the build controller for one pool hangs: what it says of another pool is there within seconds.
#[tokio::test]
async fn hanging_write_of_one_build_delays_no_other_pool() {
    let (cluster, proxy) = behind_proxy().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, contents(pool, "0")).await;
    }
    let _controller = cluster.start("a", &[]);
    for pool in ["worker", "infra"] {
        cluster.until_target(pool, "").await;
    }
    let is_told = |pool: &Value| condition(pool, "ImageBuildDegraded")["reason"] == "BuildPending";
    let seam =
        Seam::new(Method::PATCH, &["/machineconfigpools/infra/status?"]).with_body("ImageBuildDegraded");
    proxy.fail(seam, Failing::NeverAnswers);
    os_config(&cluster, "infra", json!({})).await;
    proxy.failed(1).await;
    os_config(&cluster, "worker", json!({})).await;
    let start = Instant::now();
    cluster.until_pool("worker", "what is missing", is_told).await;
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    proxy.mend();
    cluster.until_pool("infra", "what is missing", is_told).await;
}

/// A server that has just started limits requests, and names the time of the next one.
#[tokio::test]
async fn busy_server_is_asked_again_when_it_says() {
    if !own_only("outages::busy_server_is_asked_again_when_it_says") {
        return;
    }
    let cluster = Cluster::new().await;
    cluster.pool("worker").await;
    cluster.config("worker", contents("worker", "1")).await;
    let path = "/api/v1/nodes";
    let busy = Fault::status(429).retry_after(4).path(path).agent("machine-config-controller");
    cluster.bench.fault(&busy);
    let mut controller = cluster.start("a", &[]);
    let listener = listener(&mut controller).await;
    let words = "nodes can't be read yet: the test says so (429); the API server is busy or has just started; the controller retries after the 4 s";
    page_until(listener, "/readyz", words, |code, text| code == 503 && text.contains(words)).await;
    let is_list = |request: &&crate::cluster::Request| {
        request.resource == "nodes" && request.code == Some(429) && request.answered.is_some()
    };
    let times = async {
        loop {
            let all = cluster.bench.audit().all();
            let times: Vec<i64> = all.iter().filter(is_list).filter_map(|request| request.answered).collect();
            if times.len() >= 4 {
                return times;
            }
            tokio::task::yield_now().await;
        }
    };
    let times = crate::cluster::within("four tries", times).await;
    let pauses: Vec<i64> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect();
    assert!(pauses.iter().all(|pause| (3..6).contains(pause)), "{pauses:?}");
    cluster.bench.clear_faults();
    cluster.until_target("worker", "").await;
    page_until(listener, "/readyz", "ready", |code, _| code == 200).await;
}

/// Two pools, one of two nodes and one of one, all up to date.
async fn two_pools() -> (Cluster, Proxy, Controller, [String; 2]) {
    let (cluster, proxy) = behind_proxy().await;
    for pool in ["worker", "infra"] {
        cluster.pool(pool).await;
        cluster.config(pool, contents(pool, "0")).await;
    }
    let controller = cluster.start("a", &[]);
    let worker = cluster.until_target("worker", "").await;
    let infra = cluster.until_target("infra", "").await;
    ready_node(&cluster.client, "w1", &worker).await;
    ready_node(&cluster.client, "w2", &worker).await;
    ready_node(&cluster.client, "i1", &infra).await;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "node-role.kubernetes.io/infra": "" } } }));
    node_api(&cluster.client).patch("i1", &PatchParams::default(), &label).await.unwrap();
    for (pool, count) in [("worker", 2), ("infra", 1)] {
        cluster.until_pool(pool, "its nodes", |pool| pool["status"]["readyMachineCount"] == count).await;
    }
    (cluster, proxy, controller, [worker, infra])
}

/// A write of one object that hangs: the nodes of another pool have their config within seconds. A request is given up after 10 s.
#[tokio::test]
async fn hanging_write_of_one_object_delays_no_node() {
    let (cluster, proxy, _controller, [mut worker, infra]) = two_pools().await;
    let _agents = Agents::start(&cluster.bench).await;
    let mut slow = Vec::new();
    for (what, seam) in [
        ("labels of a new node", Seam::new(Method::PATCH, &["/api/v1/nodes/new?"])),
        ("status of the other pool", Seam::new(Method::PATCH, &["/machineconfigpools/infra/status?"])),
        ("Events", Seam::new(Method::POST, &["/events?"])),
    ] {
        proxy.fail(seam, Failing::NeverAnswers);
        match what {
            "labels of a new node" => {
                let annotations = [
                    ("currentConfig", &*infra),
                    ("desiredConfig", &*infra),
                    ("firstPivotConfig", &*infra),
                    ("state", "Done"),
                ];
                create_node(&cluster.client, "new", &annotations).await;
                proxy.failed(1).await;
            }
            "status of the other pool" => {
                cluster.patch_pool("infra", json!({ "spec": { "paused": true } })).await;
                proxy.failed(1).await;
            }
            _ => {}
        }
        cluster.config("worker", contents("worker", what)).await;
        worker = cluster.until_target("worker", &worker).await;
        let start = Instant::now();
        until_has(&cluster, "w1", &worker).await;
        until_has(&cluster, "w2", &worker).await;
        if start.elapsed() > Duration::from_secs(4) {
            slow.push((what, start.elapsed()));
        }
        proxy.mend();
        cluster.until_pool("worker", "updated", |pool| pool["status"]["updatedMachineCount"] == 2).await;
    }
    assert!(slow.is_empty(), "{slow:?}");
    let has_label = |node: &Node| node.labels().contains_key("node-role.kubernetes.io/infra");
    node_until(&cluster.client, "new", "the label of its pool", has_label).await;
    let is_paused = |pool: &Value| {
        pool["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter().any(|one| one["type"] == "RolloutProgressing" && one["reason"] == "Paused")
        })
    };
    cluster.until_pool("infra", "its status", is_paused).await;
}

/// The status of a pool is answered with an error of the server: an Event says so, and it is written after growing pauses, whatever the nodes
/// report meanwhile.
#[tokio::test]
async fn status_of_pool_that_fails_is_told_and_tried_rarely() {
    let (cluster, proxy, _controller, [worker, _]) = two_pools().await;
    let seam = Seam::new(Method::PATCH, &["/machineconfigpools/worker/status?"]);
    proxy.fail(seam, Failing::Refuses(503, "etcd has no leader"));
    let nodes = node_api(&cluster.client);
    let start = Instant::now();
    for change in 0..16 {
        let status = if change % 2 == 0 { "False" } else { "True" };
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        nodes.patch_status("w1", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let words = "The status of MachineConfigPool worker is not written: etcd has no leader (503)";
    until_event(&cluster.client, "StatusNotWritten", "worker", words).await;
    let (tries, lasted) = (proxy.mend().iter().sum::<u64>(), start.elapsed().as_secs());
    assert!((2..=4).contains(&tries), "{tries} in {lasted} s");
    let updated = |pool: &Value| pool["status"]["readyMachineCount"] == 2;
    let pool = cluster.until_pool("worker", "its status", updated).await;
    assert_eq!(crate::process::target(&pool), worker);
}
