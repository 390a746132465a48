//! Behaviours of the drain controller.

use kube::Client;
use serde_json::json;

use super::shared;
use crate::cluster::{Behaviour, DrainController, annotation, create_node, key, node_api, node_until};
use kube::api::{Patch, PatchParams};

/// Writes the agent's drain request.
async fn ask(client: &Client, node: &str, request: &str) {
    let patch = json!({ "metadata": { "annotations": { key("desiredDrain"): request } } });
    node_api(client).patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits for an answer; returns whether the node is cordoned with it.
async fn answered(client: &Client, node: &str, answer: &str) -> bool {
    let is = |node: &_| annotation(node, "lastAppliedDrain") == Some(answer);
    let node = node_until(client, node, &format!("the answer {answer}"), is).await;
    node.spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
}

async fn start(node: &str, behaviour: Behaviour) -> (Client, DrainController) {
    let bench = shared();
    let client = bench.client("admin").await;
    create_node(&client, node, &[]).await;
    (client, DrainController::start(bench, node, behaviour).await)
}

#[tokio::test]
async fn echo_cordons_answers_and_uncordons() {
    let (client, _drains) = start("drain-echo", Behaviour::Echo).await;
    ask(&client, "drain-echo", "drain-rendered-b").await;
    assert!(answered(&client, "drain-echo", "drain-rendered-b").await);
    ask(&client, "drain-echo", "uncordon-rendered-b").await;
    assert!(!answered(&client, "drain-echo", "uncordon-rendered-b").await);
}

#[tokio::test]
async fn delay_answers_on_request_of_test() {
    let (client, mut drains) = start("drain-delay", Behaviour::Delay).await;
    ask(&client, "drain-delay", "drain-rendered-b").await;
    drains.until("drain-rendered-b").await;
    let node = node_api(&client).get("drain-delay").await.unwrap();
    assert_eq!(annotation(&node, "lastAppliedDrain"), None);
    assert_eq!(node.spec.unwrap().unschedulable, Some(true));
    drains.release();
    assert!(answered(&client, "drain-delay", "drain-rendered-b").await);
}

#[tokio::test]
async fn refuse_answers_uncordons_only() {
    let (client, mut drains) = start("drain-refuse", Behaviour::Refuse).await;
    ask(&client, "drain-refuse", "drain-rendered-b").await;
    drains.until("drain-rendered-b").await;
    ask(&client, "drain-refuse", "uncordon-rendered-a").await;
    assert!(!answered(&client, "drain-refuse", "uncordon-rendered-a").await);
    assert_eq!(drains.requests(), ["drain-rendered-b", "uncordon-rendered-a"]);
}

#[tokio::test]
async fn stale_answers_another_request_first() {
    let (client, drains) = start("drain-stale", Behaviour::Stale).await;
    ask(&client, "drain-stale", "drain-rendered-b").await;
    assert!(answered(&client, "drain-stale", "drain-rendered-of-another-time").await);
    drains.release();
    assert!(answered(&client, "drain-stale", "drain-rendered-b").await);
}

#[tokio::test]
async fn late_answers_old_request_when_there_is_new_one() {
    let (client, mut drains) = start("drain-late", Behaviour::Late).await;
    ask(&client, "drain-late", "drain-rendered-b").await;
    drains.until("drain-rendered-b").await;
    ask(&client, "drain-late", "drain-rendered-c").await;
    assert!(answered(&client, "drain-late", "drain-rendered-c").await);
    let requests = shared().requests_since(0).await;
    let answers = requests.iter().filter(|request| request.name == "drain-late").filter_map(|request| {
        request.body.as_ref()?["metadata"]["annotations"][key("lastAppliedDrain")].as_str()
    });
    assert_eq!(answers.collect::<Vec<_>>(), ["drain-rendered-b", "drain-rendered-c"]);
}

#[tokio::test]
async fn administrator_uncordons_before_answer() {
    let (client, _drains) = start("drain-undone", Behaviour::AdminUncordons).await;
    ask(&client, "drain-undone", "drain-rendered-b").await;
    assert!(!answered(&client, "drain-undone", "drain-rendered-b").await);
}
