//! An API server that is away, silent, or has forgotten everything: the work that needs none of it goes on, the rest
//! resumes by itself.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it fails by panicking, and looks at the host"
)]

mod cluster;

use cluster::scene::{QUIET, Scene, create_policy};
use cluster::{
    Agent, AgentOptions, Bench, Connections, Gates, annotation, create_node, node_api, node_until, own_only,
    retarget,
};

const SINGLE: [(&str, &str); 1] = [("controlPlaneTopology", "SingleReplica")];

/// CRA-012: an update that was cut off by a crash is carried to its end while nobody answers, and told when somebody does.
#[tokio::test]
async fn an_update_ends_without_an_api_server() {
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
    bench.start();
    let client = bench.client("test-again").await;
    let name = scene.config("b");
    node_until(&client, &scene.name, "Done with b", |node| {
        annotation(node, "state") == Some("Done") && annotation(node, "currentConfig") == Some(name.as_str())
    })
    .await;
}

/// A connection that is open and silent is noticed by its pings, and the next one is used: no request hangs for ever.
#[tokio::test]
async fn a_silent_connection_is_left() {
    if !own_only("a_silent_connection_is_left") {
        return;
    }
    let bench = Bench::private(Gates::Default);
    let scene = Scene::with_drained(&bench, "outage-silent", &SINGLE).await;
    let mut agent = scene.agent(&[]);
    scene.settled("a").await;
    bench.connections(Connections::Hung);
    agent.line("the silence is noticed", |line| line.contains("can't be reached")).await;
    bench.connections(Connections::Resumed);
    let client = bench.client("test-resumed").await;
    retarget(&client, &scene.name, &scene.config("b"), None).await;
    let name = scene.config("b");
    node_until(&client, &scene.name, "Done with b", |node| {
        annotation(node, "currentConfig") == Some(name.as_str())
    })
    .await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("b"));
}

/// A database that was lost: the Node comes back empty, and gets what is committed on the host; nothing is done twice.
#[tokio::test]
async fn an_empty_database_is_told_what_is_committed() {
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
