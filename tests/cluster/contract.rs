//! The contract with the cluster's controllers and its administrators, against a real API server: start states of a node,
//! the drain, metrics, and secrets.

use std::process::Command;

use crate::cluster::scene::{DRAINED, QUIET, Scene};
use crate::cluster::{
    self, Agent, Behaviour, Bench, DrainController, Identity, annotation, call, key, own_only,
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The address that the agent listens on, from its own line.
pub(crate) async fn listening(agent: &mut Agent) -> String {
    let line = agent.line("the address of the metrics", |line| line.contains("metrics and health on")).await;
    line.rsplit(' ').next().unwrap().to_owned()
}

/// One answer of a plain listener: its status line and its body.
pub(crate) async fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// MCD-036, MCD-041: a matching node is left alone, with and without a state in its annotations.
#[tokio::test]
async fn matching_node_is_unchanged() {
    let scene = Scene::with_drained(Bench::shared(), "contract-right", &[]).await;
    let agent = scene.agent(&[]);
    scene.settled("a").await;
    assert!(agent.terminate().await.success());
    scene.patch(json!({"metadata": {"annotations": {key("state"): ""}}})).await;
    let mark = scene.bench.mark().await;
    let _agent = scene.agent(&[]);
    scene.done("a").await;
    let written = scene.written(mark).await;
    assert!(
        written.iter().all(|patch| patch.get("state").is_none_or(|state| state == "Done")),
        "{written:?}"
    );
    let states = written.iter().filter(|patch| patch.contains_key("state")).count();
    assert_eq!(states, 1, "{written:?}");
}

/// MCD-037, MCD-038, MCD-039: what is committed on the host is true; an annotation that says otherwise, and a state
/// that is not Done, are put right without an update.
#[tokio::test]
async fn stale_annotation_on_correct_host() {
    let scene = Scene::with_drained(Bench::shared(), "contract-wrong", &[]).await;
    let agent = scene.agent(&[]);
    scene.settled("a").await;
    assert!(agent.terminate().await.success());
    let wrong = json!({ key("currentConfig"): "rendered-contract-wrong-b", key("state"): "Degraded" });
    scene.patch(json!({"metadata": {"annotations": wrong}})).await;
    let inode = || {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(scene.path(&format!("{QUIET}/{}", scene.name))).unwrap().ino()
    };
    let before = inode();
    let _agent = scene.agent(&[]);
    let node = scene.done("a").await;
    assert_eq!(annotation(&node, "reason").unwrap_or_default(), "");
    assert_eq!(inode(), before, "nothing was written anew");
}

/// A user that the installation left with neither a key nor a password is none of an update's business: a node that is
/// taken over from MCD is Done, with MCD's `currentconfig` on disk and without it, and its account stays as it is.
#[tokio::test]
async fn user_without_fields_is_imported() {
    const KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";
    for (name, stored) in [("contract-user", false), ("contract-user-stored", true)] {
        let scene = Scene::set(Bench::shared(), name, &[("controlPlaneTopology", "SingleReplica")]).await;
        scene.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n");
        scene.write("/etc/group", "root:x:0:\ncore:x:1000:\n");
        scene.write("/etc/shadow", "root:*:19000:0:99999:7:::\ncore:$6$a$b:19000:0:99999:7:::\n");
        std::fs::create_dir_all(scene.path(KEYS).parent().unwrap()).unwrap();
        scene.write(KEYS, "ssh-ed25519 by-ignition\n");
        for letter in ["b", "c"] {
            let quiet = if letter == "b" { "a" } else { "c" };
            scene.builder(letter, quiet, "a").empty_user().create(&scene.client).await;
        }
        if stored {
            std::fs::create_dir_all(scene.path("/etc/machine-config-daemon")).unwrap();
            let object = scene.builder("b", "a", "a").empty_user().object();
            scene.write("/etc/machine-config-daemon/currentconfig", &object.to_string());
        }
        scene.want("b").await;
        let _agent = scene.agent(&[]);
        scene.settled("b").await;
        scene.want("c").await;
        let node = scene.settled("c").await;
        assert_eq!(annotation(&node, "reason").unwrap_or_default(), "", "{name}");
        assert_eq!(std::fs::read_to_string(scene.path(KEYS)).unwrap(), "ssh-ed25519 by-ignition\n");
        assert!(std::fs::read_to_string(scene.path("/etc/shadow")).unwrap().contains("core:$6$a$b:"));
        // MCD refuses the way back: keys that are set can't all be removed. The agent removes its own.
        scene.builder("d", "c", "a").ssh_key("ssh-ed25519 d").create(&scene.client).await;
        scene.want("d").await;
        scene.settled("d").await;
        assert!(std::fs::read_to_string(scene.path(KEYS)).unwrap().contains("ssh-ed25519 d"));
        scene.want("c").await;
        let node = scene.settled("c").await;
        assert_eq!(annotation(&node, "reason").unwrap_or_default(), "", "{name}");
        let kept = std::fs::read_to_string(scene.path(KEYS)).unwrap_or_default();
        assert!(!kept.contains("ssh-ed25519 d"), "{name}: {kept}");
    }
}

/// DRN-001, DRN-002, DRN-003, MCD-059: in the order of the audit log; the agent itself neither cordons nor evicts.
#[tokio::test]
async fn only_controller_drains() {
    let scene = Scene::with_drained(Bench::shared(), "contract-drain", &[]).await;
    let agent = scene.agent(&[]);
    scene.settled("a").await;
    scene
        .patch(json!({"metadata": {"annotations": {key("lastAppliedDrain"): "drain-rendered-other"}}}))
        .await;
    let mark = scene.bench.mark().await;
    let mut controller = DrainController::start(scene.bench, &scene.name, Behaviour::Delay).await;
    scene.want("b").await;
    controller.until(&format!("drain-{}", scene.config("b"))).await;
    assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("a"), "written before the node was drained");
    controller.release();
    controller.until(&format!("uncordon-{}", scene.config("b"))).await;
    assert_eq!(scene.on_disk(DRAINED).as_deref(), Some("later"));
    controller.release();
    scene.settled("b").await;
    let written = scene.written(mark).await;
    let order: Vec<&str> = written
        .iter()
        .filter_map(|patch| patch.get("desiredDrain").or_else(|| patch.get("state"))?.as_str())
        .collect();
    let (drain, uncordon) =
        (format!("drain-{}", scene.config("b")), format!("uncordon-{}", scene.config("b")));
    assert_eq!(order, ["Working", &*drain, &*uncordon, "Done"]);
    for request in scene.requests(mark).await {
        assert!(request.subresource != "eviction", "{request:?}");
        let body = request.body.clone().unwrap_or_default();
        assert!(request.resource != "nodes" || body.pointer("/spec").is_none(), "{request:?}");
    }
    drop(agent);
}

/// DRN-004, DRN-005, MCD-053, MCD-054: no request where the plan needs no drain, nor on a single-replica topology;
/// an unknown topology is drained like any other.
#[tokio::test]
async fn no_drain_without_need_or_on_single_replica() {
    let single = [("controlPlaneTopology", "SingleReplica")];
    let scene = Scene::with_drained(Bench::shared(), "contract-single", &single).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    let mark = scene.bench.mark().await;
    scene.want("b").await;
    scene.settled("b").await;
    scene.want("c").await;
    scene.settled("c").await;
    assert!(scene.written(mark).await.iter().all(|patch| !patch.contains_key("desiredDrain")));
    let skipped = scene.requests(mark).await.into_iter().filter_map(|request| request.body);
    assert!(skipped.into_iter().any(|event| event["message"] == "Drain not required, skipping"));
    let strange = [("controlPlaneTopology", "Strange")];
    let scene = Scene::with_drained(Bench::shared(), "contract-strange", &strange).await;
    let mut controller = DrainController::start(scene.bench, &scene.name, Behaviour::Echo).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    scene.want("b").await;
    controller.until(&format!("drain-{}", scene.config("b"))).await;
    scene.settled("b").await;
}

/// OBS-004, MCD-012: MCD's names and labels, one series for the state, also after a restart; three paths and no other.
#[tokio::test]
async fn metrics_report_state() {
    let scene = Scene::with_drained(Bench::shared(), "contract-metrics", &[]).await;
    let mut agent = scene.agent(&[]);
    scene.settled("a").await;
    for round in 0..2 {
        let address = listening(&mut agent).await;
        let (status, text) = get(&address, "/metrics").await;
        assert!(status.contains("200"), "{status}");
        let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
        assert_eq!(series("mcd_state{").len(), 1, "{text}");
        assert!(series("mcd_state{")[0].contains("state=\"Done\",reason=\"\""), "{text}");
        let config = format!("config=\"MachineConfig: {}\",err=\"\"", scene.config("a"));
        assert!(series("mcd_update_state{")[0].contains(&config), "{text}");
        for name in [
            "mcd_host_os_and_version",
            "mcd_config_drift",
            "mcd_reboots_failed_total",
            "mcd_pivot_errors_total",
            "machine_config_agent_watch_up 1",
            "process_resident_memory_bytes",
        ] {
            assert_eq!(series(name).len(), 1, "{name} in round {round}: {text}");
        }
        assert_eq!(get(&address, "/healthz").await.1, "ok\n");
        assert_eq!(get(&address, "/readyz").await.1, "ok\n");
        assert!(get(&address, "/debug").await.0.contains("404"));
        assert!(agent.terminate().await.success());
        agent = scene.agent(&[]);
        agent.line("connected", |line| line.contains("Connected to the API server")).await;
        scene.done("a").await;
        agent.line("ready", |line| line.contains("desired:")).await;
        scene.updated("a").await;
    }
}

/// Lets the user of the reader's token read: the bench's own server has it in its rules.
async fn let_read_metrics(scene: &Scene<'_>) {
    if !cluster::is_real() {
        return;
    }
    let (group, name) = ("rbac.authorization.k8s.io", "metrics-reader");
    let role = json!({ "metadata": { "name": name }, "rules": [{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }] });
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": name }],
    });
    for (kinds, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("/apis/{group}/v1/{kinds}");
        let (code, answer) = call(&scene.client, "POST", &path, Some(("application/json", object))).await;
        assert_eq!(code, 200, "{answer}");
    }
}

/// Beyond loopback the API server decides who reads: over TLS, by TokenReview and SubjectAccessReview.
#[tokio::test]
async fn metrics_are_reviewed() {
    let scene = Scene::with_drained(Bench::shared(), "contract-review", &[]).await;
    let_read_metrics(&scene).await;
    let refused = scene.agent(&["--metrics-listen", "0.0.0.0:0"]);
    assert_eq!(refused.end().await.code(), Some(102), "{:?}", refused.lines());
    let (certificate, key) = scene.bench.server_certificate(&["localhost"]);
    scene.write("/tls.crt", &certificate);
    scene.write("/tls.key", &key);
    let path = |name: &str| scene.path(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("tls.crt"), path("tls.key"));
    let mut agent = scene.agent(&[
        "--metrics-listen",
        "0.0.0.0:0",
        "--metrics-tls-cert",
        &certificate,
        "--metrics-tls-key",
        &key,
    ]);
    let address = listening(&mut agent).await;
    scene.settled("a").await;
    let port = address.rsplit(':').next().unwrap();
    scene.write("/ca.crt", &scene.bench.authority());
    let mark = scene.bench.mark().await;
    let ask = async |token: Option<&str>| {
        let mut curl = tokio::process::Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", &path("ca.crt")]);
        curl.args(["--max-time", "30", &format!("https://localhost:{port}/metrics")]);
        if let Some(token) = token {
            curl.args(["-H", &format!("Authorization: Bearer {token}")]);
        }
        String::from_utf8(curl.output().await.unwrap().stdout).unwrap()
    };
    assert_eq!(ask(None).await, "401");
    assert_eq!(ask(Some("metrics-reader-token")).await, "200");
    assert_eq!(ask(Some("metrics-reader-token")).await, "200");
    assert_eq!(ask(Some("nobody-token")).await, "403");
    assert_eq!(ask(Some("no-such-token")).await, "401");
    let reviews = scene.requests(mark).await;
    let of = |resource: &str| reviews.iter().filter(|request| request.resource == resource).count();
    // The second scrape of a known reader causes no review.
    assert_eq!((of("tokenreviews"), of("subjectaccessreviews")), (3, 2));
}

/// OBS-005, ANN-007, MCD-030: no content of a config is in any output of the agent.
#[tokio::test]
async fn outputs_contain_no_secrets() {
    const SECRET: &str = "hunter2-is-a-secret";
    let scene = Scene::set(Bench::shared(), "contract-secret", &[]).await;
    let pull = json!({"auths": {"registry": {"auth": SECRET}}}).to_string();
    let with_secret = |letter: &str| {
        let config = scene.builder(letter, SECRET, "a");
        config.file(&format!("{QUIET}/pull.json"), 0o600, &pull).ssh_key(&format!("ssh-ed25519 {SECRET}"))
    };
    with_secret("b").create(&scene.client).await;
    let bad = with_secret("bad").field("fips", json!(true));
    bad.create(&scene.client).await;
    let mark = scene.bench.mark().await;
    let mut agent = scene.agent(&[]);
    let address = listening(&mut agent).await;
    scene.settled("a").await;
    scene.want("b").await;
    agent.line("an end of the update", |line| line.contains("rendered-contract-secret-b")).await;
    scene.until("an answer", |node| matches!(annotation(node, "state"), Some("Done" | "Degraded"))).await;
    scene.want("bad").await;
    scene.until("Unreconcilable", |node| annotation(node, "state") == Some("Unreconcilable")).await;
    scene.want("b").await;
    // Drift of a secret shows a difference, not the contents.
    scene.until("an answer", |node| annotation(node, "state") != Some("Unreconcilable")).await;
    std::fs::write(scene.path(&format!("{QUIET}/pull.json")), format!("{SECRET} changed")).unwrap();
    let node = scene.until("drift", |node| annotation(node, "state") == Some("Degraded")).await;
    let reason = annotation(&node, "reason").unwrap();
    assert!(!reason.is_empty() && reason.chars().count() <= 2000);
    let metrics = get(&address, "/metrics").await.1;
    let told = scene.requests(mark).await.iter().map(|request| format!("{request:?}")).collect::<Vec<_>>();
    for text in told.iter().chain(&agent.lines()).chain([&metrics, &reason.to_owned()]) {
        assert!(!text.contains("hunter2"), "{text}");
    }
    let status = Command::new(env!("CARGO_BIN_EXE_machine-config-agent"))
        .args(["status", "--output", "json", "--root"])
        .arg(scene.host.path())
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&status.stdout).contains("hunter2"));
}

/// OBS-006: the node's state can be read on the node while the API server is away.
#[tokio::test]
async fn status_needs_no_api_server() {
    if !own_only("status_needs_no_api_server") {
        return;
    }
    let bench = Bench::private(cluster::Gates::Default);
    let scene = Scene::with_drained(&bench, "contract-status", &[]).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    bench.stop();
    let output = Command::new(env!("CARGO_BIN_EXE_machine-config-agent"))
        .args(["status", "--output", "json", "--root"])
        .arg(scene.host.path())
        .output()
        .unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["state"], "Done", "{status}");
    assert_eq!(status["current"]["config"], scene.config("a"));
}

/// A token serves as well as a kubelet's certificate: the DaemonSet's way.
#[tokio::test]
async fn connects_with_bearer_token() {
    if !own_only("connects_with_bearer_token") {
        return;
    }
    let scene = Scene::with_drained(Bench::shared(), "contract-token", &[]).await;
    let file = scene.path("token");
    scene.bench.set_token(
        "agents-token",
        "system:serviceaccount:openshift-machine-config-operator:agent",
        &["system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator"],
    );
    std::fs::write(&file, "agents-token").unwrap();
    let kubeconfig = scene.bench.kubeconfig(&Identity::TokenFile(file));
    let scene = Scene { kubeconfig, ..scene };
    let agent = scene.agent(&[]);
    scene.done("a").await;
    drop(agent);
}
