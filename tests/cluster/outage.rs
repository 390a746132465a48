//! An API server that is away, silent, or has forgotten everything: the work that needs none of it goes on, the rest
//! resumes by itself.

use crate::cluster::scene::{QUIET, Scene, create_policy};
use crate::cluster::{
    Agent, AgentOptions, Bench, Connections, Gates, annotation, create_node, node_api, node_until, own_only,
    retarget, within,
};
use crate::contract::{get, listening};
use machine_config_agent::host::root::Root;
use machine_config_agent::host::watch::Watch;

const SINGLE: [(&str, &str); 1] = [("controlPlaneTopology", "SingleReplica")];

/// CRA-012: an update that was cut off by a crash is completed while the API server is away, and reported once it is back.
#[tokio::test]
async fn update_ends_without_api_server() {
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "outage-crash", &SINGLE).await;
    let agent = scene.agent(&[]);
    scene.settled("a").await;
    assert!(agent.terminate().await.success());
    let options = AgentOptions::new(&scene.kubeconfig, &scene.name, scene.host.path());
    let doomed = Agent::start(&options.env("MCA_FAIL_POINT", "kill:synced"));
    scene.done("a").await;
    scene.want("b").await;
    assert!(!doomed.end().await.success(), "{:?}", doomed.lines());
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("a"));
    bench.stop();
    let mut agent = scene.agent(&[]);
    agent.line("the end of the update", |line| line.contains("is done:")).await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("b"));
    // Nobody knows yet what is desired.
    let status = scene.status(|text| text.contains("waits    for the API server at ")).await;
    assert!(status.contains("is Working"), "{status}");
    bench.start();
    let client = bench.client("test-again").await;
    let name = scene.config("b");
    node_until(&client, &scene.name, "Done with b", |node| {
        annotation(node, "state") == Some("Done") && annotation(node, "currentConfig") == Some(name.as_str())
    })
    .await;
}

/// A kubeconfig that is not there yet, then wrong, then right is retried inside one process until it names the node:
/// reported in the log, in `status` and at a login, with the file that it names.
#[tokio::test]
async fn wrong_kubeconfig_is_retried_and_reported() {
    let bench = Bench::shared();
    let scene = Scene::with_drained(bench, "outage-access", &SINGLE).await;
    let right = std::fs::read_to_string(&scene.kubeconfig).unwrap();
    let mut wrong: serde_json::Value = serde_json::from_str(&right).unwrap();
    wrong["clusters"][0]["cluster"] =
        serde_json::json!({ "server": "https://127.0.0.1:1", "certificate-authority": "/gone/ca.crt" });
    let wrong = wrong.to_string();
    let path = scene.path("kubeconfig");
    let root = Root::open(scene.host.path()).unwrap();
    let mut hint = Watch::new(&root, ["/run/motd.d/90-machine-config-agent.motd"], []).unwrap();
    let start = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_machine-config-agent"));
        command.arg("daemon").arg("--kubeconfig").arg(&path).arg("--root").arg(scene.host.path());
        command.args([
            "--os-backend",
            "none",
            "--reboot-by",
            "supervisor",
            "--metrics-listen",
            "127.0.0.1:0",
        ]);
        Agent::run(&scene.name, command)
    };
    let mut agent = start();
    agent.line("no kubeconfig", |line| line.contains("there is no kubeconfig: ")).await;
    std::fs::write(&path, wrong).unwrap();
    let named = |line: &str| line.contains("its certificate-authority /gone/ca.crt does not exist");
    agent.line("the missing authority", named).await;
    let status = scene.status(|text| text.contains("link     down since") && named(text)).await;
    assert!(status.contains("CredentialsUnusable") && status.contains("next     Correct "), "{status}");
    assert!(status.contains("is Degraded"), "{status}");
    let motd = scene.path("run/motd.d/90-machine-config-agent.motd");
    while !std::fs::read_to_string(&motd).is_ok_and(|text| named(&text)) {
        within("it is told at a login", hint.changed()).await.unwrap();
    }
    std::fs::write(&path, right).unwrap();
    // The host's name is not the node's: one restart, and no other.
    agent.line("the name", |line| line.contains(&format!("names node {}", scene.name))).await;
    assert!(agent.end().await.success(), "{:?}", agent.lines());
    let _agent = start();
    scene.done("a").await;
    assert!(!motd.exists());
}

/// An agent that is told to be another node than its credentials are of says so, and never works as either.
#[tokio::test]
async fn credentials_of_another_node_are_named() {
    let bench = Bench::shared();
    let scene = Scene::with_drained(bench, "outage-other-node", &SINGLE).await;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_machine-config-agent"));
    command.arg("daemon").arg("--kubeconfig").arg(&scene.kubeconfig).arg("--root").arg(scene.host.path());
    command.args(["--node-name", "elsewhere", "--os-backend", "none", "--reboot-by", "supervisor"]);
    command.args(["--metrics-listen", "127.0.0.1:0"]);
    let mut agent = Agent::run(&scene.name, command);
    let named = format!("is of node {}, and the agent is to be node elsewhere", scene.name);
    agent.line("the other node", |line| line.contains(&named)).await;
    let status = scene.status(|text| text.contains("link     down since") && text.contains(&named)).await;
    let next = format!("next     Start the agent as node {} (--node-name, or NODE_NAME)", scene.name);
    assert!(status.contains("CredentialsUnusable") && status.contains(&next), "{status}");
    assert!(agent.terminate().await.success(), "{:?}", agent.lines());
}

/// While its MachineConfig is not there yet the node is Working towards the new target, here and in the cluster; an API
/// server that goes away is reported with its time.
#[tokio::test]
async fn awaited_config_and_lost_link_are_reported() {
    if !own_only("awaited_config_and_lost_link_are_reported") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "outage-awaited", &SINGLE).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    scene.want("late").await;
    scene.until("Working", |node| annotation(node, "state") == Some("Working")).await;
    let awaited = format!("waits    for MachineConfig {}", scene.config("late"));
    let status = scene.status(|text| text.contains(&awaited)).await;
    assert!(status.contains("is Working"), "{status}");
    assert!(status.contains(&format!("desired  {}", scene.config("late"))), "{status}");
    scene.builder("late", "late", "a").create(&scene.client).await;
    scene.settled("late").await;
    let status = scene.status(|text| text.contains("is Done")).await;
    assert!(!status.contains("waits"), "{status}");
    bench.stop();
    let status = scene.status(|text| text.contains("link     down since")).await;
    assert!(status.contains("ApiServerUnreachable") && status.contains("is Done"), "{status}");
    bench.start();
    scene.status(|text| !text.contains("link     down")).await;
}

/// A connection that is open and silent is noticed by its pings, and the next one is used: no request hangs for ever.
#[tokio::test]
async fn hung_connection_is_replaced() {
    if !own_only("hung_connection_is_replaced") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "outage-silent", &SINGLE).await;
    let mut agent = scene.agent(&[]);
    scene.settled("a").await;
    let address = listening(&mut agent).await;
    let is_up = async || {
        let (_, text) = get(&address, "/metrics").await;
        let value = text.lines().find_map(|line| line.strip_prefix("machine_config_agent_watch_up "));
        value.unwrap().starts_with('1')
    };
    assert!(is_up().await);
    bench.connections(Connections::Hung);
    agent.line("the silence is noticed", |line| line.contains("can't be reached")).await;
    // What the alert MachineConfigAgentWatchDown reads.
    assert!(!is_up().await);
    bench.connections(Connections::Resumed);
    let client = bench.client("test-resumed").await;
    retarget(&client, &scene.name, &scene.config("b"), None).await;
    let name = scene.config("b");
    node_until(&client, &scene.name, "Done with b", |node| {
        annotation(node, "currentConfig") == Some(name.as_str())
    })
    .await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("b"));
    assert!(is_up().await);
}

/// A database that was lost: the Node comes back empty, and gets what is committed on the host; nothing is done twice.
#[tokio::test]
async fn empty_database_gets_report_of_current_config() {
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "outage-empty", &SINGLE).await;
    let _agent = scene.agent(&[]);
    scene.settled("a").await;
    scene.want("b").await;
    scene.settled("b").await;
    bench.lose_everything(Gates::Default);
    let client = bench.client("test-anew").await;
    create_policy(&client).await;
    create_node(&client, &scene.name, &[]).await;
    let name = scene.config("b");
    let node = node_until(&client, &scene.name, "Done with what is committed", |node| {
        annotation(node, "state") == Some("Done") && annotation(node, "currentConfig") == Some(name.as_str())
    })
    .await;
    assert_eq!(annotation(&node, "reason").unwrap_or_default(), "");
    // A target whose MachineConfig is not there yet is waited for, and the node is none the worse for it.
    retarget(&client, &scene.name, &scene.config("c"), None).await;
    scene.builder("c", "c", "later").create(&client).await;
    let name = scene.config("c");
    node_until(&client, &scene.name, "Done with c", |node| {
        assert_ne!(annotation(node, "state"), Some("Degraded"), "{:?}", annotation(node, "reason"));
        annotation(node, "currentConfig") == Some(name.as_str())
    })
    .await;
    assert!(node_api(&client).get(&scene.name).await.is_ok());
}
