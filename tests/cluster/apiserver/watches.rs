//! Watches: metadata only, bookmarks, one object, versions that are too old; and what outlives the server.

use std::pin::pin;

use futures_util::{AsyncBufRead, AsyncBufReadExt as _};
use kube::Client;
use serde_json::{Value, json};

use super::shared;
use crate::cluster::{Bench, Gates, call, create_node, retarget, within};

/// The events of a watch that takes only the metadata, as the agent's does.
async fn watch(client: &Client, query: &str) -> impl AsyncBufRead + use<> {
    let request = http::Request::get(format!("/api/v1/nodes?watch=true&{query}"))
        .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
        .body(vec![])
        .unwrap();
    client.request_stream(request).await.unwrap()
}

async fn next(events: &mut (impl AsyncBufRead + Unpin)) -> Value {
    let mut line = String::new();
    within("the next event of the watch", events.read_line(&mut line)).await.unwrap();
    serde_json::from_str(&line).unwrap()
}

/// The version that a list of nodes has now.
async fn version(client: &Client) -> String {
    let (_, list) = call(client, "GET", "/api/v1/nodes?limit=1", None).await;
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn metadata_watch_of_one_node_has_its_annotations_and_no_more() {
    let client = shared().client("admin").await;
    create_node(&client, "watched", &[("state", "Done")]).await;
    let from = version(&client).await;
    let query =
        format!("fieldSelector=metadata.name%3Dwatched&allowWatchBookmarks=true&resourceVersion={from}");
    let mut events = pin!(watch(&client, &query).await);
    create_node(&client, "not-watched", &[]).await;
    retarget(&client, "watched", "rendered-b", None).await;
    let event = next(&mut events).await;
    let object = &event["object"];
    assert_eq!(event["type"], json!("MODIFIED"), "{event}");
    assert_eq!(
        (&object["kind"], &object["metadata"]["name"]),
        (&json!("PartialObjectMetadata"), &json!("watched"))
    );
    assert_eq!(
        object["metadata"]["annotations"]["machineconfiguration.openshift.io/desiredConfig"],
        json!("rendered-b")
    );
    assert_eq!((object.get("spec"), object.get("status")), (None, None));
}

#[tokio::test]
async fn recreated_node_is_another_object() {
    let client = shared().client("admin").await;
    let first = create_node(&client, "again", &[]).await;
    let from = version(&client).await;
    let query = format!("fieldSelector=metadata.name%3Dagain&resourceVersion={from}");
    let mut events = pin!(watch(&client, &query).await);
    assert_eq!(call(&client, "DELETE", "/api/v1/nodes/again", None).await.0, 200);
    let second = create_node(&client, "again", &[]).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    assert_eq!(next(&mut events).await["type"], json!("DELETED"));
    let added = next(&mut events).await;
    assert_eq!(
        (&added["type"], added["object"]["metadata"]["uid"].as_str()),
        (&json!("ADDED"), second.metadata.uid.as_deref())
    );
}

#[tokio::test]
async fn version_from_before_servers_start_is_too_old_for_watch() {
    let bench = Bench::without_crds();
    let client = bench.client("admin").await;
    create_node(&client, "aged", &[]).await;
    let old = version(&client).await;
    for config in ["rendered-b", "rendered-c"] {
        retarget(&client, "aged", config, None).await;
    }
    bench.restart();
    let client = bench.client("admin").await;
    let (_, node) = call(&client, "GET", "/api/v1/nodes/aged", None).await;
    assert_eq!(node["metadata"]["name"], json!("aged"), "the data outlives the server");
    let mut events = pin!(watch(&client, &format!("resourceVersion={old}")).await);
    let event = next(&mut events).await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{event}");
}

#[tokio::test]
async fn empty_database_knows_no_nodes() {
    let bench = Bench::private(Gates::Default);
    create_node(&bench.client("admin").await, "lost", &[]).await;
    bench.lose_everything(Gates::Default);
    let client = bench.client("admin").await;
    assert_eq!(call(&client, "GET", "/api/v1/nodes/lost", None).await.0, 404);
    let (code, pools) =
        call(&client, "GET", "/apis/machineconfiguration.openshift.io/v1/machineconfigpools", None).await;
    assert_eq!((code, pools["items"].as_array().unwrap().len()), (200, 0));
}

#[tokio::test]
async fn audit_log_has_order_and_bodies_of_requests() {
    let bench = shared();
    let client = bench.client("ordered").await;
    let mark = bench.mark().await;
    create_node(&client, "audited", &[]).await;
    retarget(&client, "audited", "rendered-b", None).await;
    call(&client, "GET", "/api/v1/nodes/nowhere", None).await;
    let requests = bench.requests_since(mark).await;
    let own: Vec<_> = requests.iter().filter(|request| request.user == "ordered").collect();
    let lines: Vec<_> = own.iter().map(|request| request.line()).collect();
    assert_eq!(lines, ["create nodes audited", "patch nodes audited", "get nodes nowhere"]);
    let sent = own[1].body.as_ref().unwrap();
    assert_eq!(
        sent["metadata"]["annotations"]["machineconfiguration.openshift.io/desiredConfig"],
        json!("rendered-b")
    );
    let missed =
        bench.audit().until("the answer's code", |request| request.id == own[2].id && request.over).await;
    assert_eq!(missed.code, Some(404));
}

#[tokio::test]
async fn steady_watch_is_one_connection() {
    if !crate::cluster::own_only("steady_watch_is_one_connection") {
        return;
    }
    let bench = shared();
    let client = bench.client("counted").await;
    let events = watch(&client, "resourceVersion=0").await;
    let counted = bench.connected().values().filter(|agent| *agent == "counted").count();
    assert_eq!(counted, 1);
    drop(events);
}
