//! Nodes and the other core kinds: patches, subresources, conflicts.

use serde_json::{Value, json};

use super::shared;
use crate::cluster::{annotation, call, create_node, key, retarget};

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json-patch+json";

#[tokio::test]
async fn node_controllers_patch_sets_config_and_image_at_once_and_null_deletes() {
    let client = shared().client("admin").await;
    create_node(&client, "retargeted", &[("desiredConfig", "rendered-a"), ("state", "Done")]).await;
    let node = retarget(&client, "retargeted", "rendered-b", Some("example.com/os@sha256:1")).await;
    assert_eq!(annotation(&node, "desiredConfig"), Some("rendered-b"));
    assert_eq!(annotation(&node, "desiredImage"), Some("example.com/os@sha256:1"));
    let node = retarget(&client, "retargeted", "rendered-c", None).await;
    assert_eq!(annotation(&node, "desiredImage"), None);
    assert_eq!(annotation(&node, "state"), Some("Done"));
}

#[tokio::test]
async fn strategic_merge_patch_merges_keyed_lists_and_replaces_others() {
    let client = shared().client("admin").await;
    create_node(&client, "merged", &[]).await;
    for one in ["one", "two"] {
        let patch = json!({ "spec": { "taints": [{ "key": one, "effect": "NoSchedule" }] } });
        let (code, node) = call(&client, "PATCH", "/api/v1/nodes/merged", Some((STRATEGIC, patch))).await;
        assert_eq!(code, 200, "{node}");
        let patch = json!({ "status": { "conditions": [{ "type": one, "status": "True" }] } });
        let (code, node) =
            call(&client, "PATCH", "/api/v1/nodes/merged/status", Some((STRATEGIC, patch))).await;
        assert_eq!(code, 200, "{node}");
    }
    let (_, node) = call(&client, "GET", "/api/v1/nodes/merged", None).await;
    let named = |list: &Value, key: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(named(&node["status"]["conditions"], "type").len(), 2, "{node}");
    assert_eq!(named(&node["spec"]["taints"], "key"), ["two"], "{node}");
}

#[tokio::test]
async fn json_patch_tests_before_it_writes() {
    let client = shared().client("admin").await;
    create_node(&client, "patched", &[("state", "Done")]).await;
    let path = "/metadata/annotations/machineconfiguration.openshift.io~1state";
    let patch = |from: &str| json!([{ "op": "test", "path": path, "value": from }, { "op": "replace", "path": path, "value": "Working" }]);
    let (code, _) = call(&client, "PATCH", "/api/v1/nodes/patched", Some((JSON, patch("Degraded")))).await;
    assert_eq!(code, 422);
    let (code, node) = call(&client, "PATCH", "/api/v1/nodes/patched", Some((JSON, patch("Done")))).await;
    assert_eq!((code, &node["metadata"]["annotations"][key("state")]), (200, &json!("Working")));
}

#[tokio::test]
async fn write_of_old_version_is_conflict() {
    let client = shared().client("admin").await;
    let node = create_node(&client, "conflicting", &[]).await;
    let version = node.metadata.resource_version.unwrap();
    retarget(&client, "conflicting", "rendered-a", None).await;
    let patch = json!({ "metadata": { "resourceVersion": version, "annotations": { "one": "two" } } });
    let (code, why) = call(&client, "PATCH", "/api/v1/nodes/conflicting", Some((MERGE, patch))).await;
    assert_eq!((code, &why["reason"]), (409, &json!("Conflict")));
}

#[tokio::test]
async fn status_of_node_is_resource_of_its_own() {
    let client = shared().client("admin").await;
    create_node(&client, "split", &[]).await;
    let both = json!({ "spec": { "unschedulable": true }, "status": { "phase": "Running" } });
    let (_, node) = call(&client, "PATCH", "/api/v1/nodes/split/status", Some((MERGE, both.clone()))).await;
    assert_eq!((node["spec"].get("unschedulable"), &node["status"]["phase"]), (None, &json!("Running")));
    let gone = json!({ "spec": { "unschedulable": true }, "status": { "phase": null } });
    let (_, node) = call(&client, "PATCH", "/api/v1/nodes/split", Some((MERGE, gone))).await;
    assert_eq!((&node["spec"]["unschedulable"], &node["status"]["phase"]), (&json!(true), &json!("Running")));
}

#[tokio::test]
async fn event_is_written_and_counted_up() {
    let client = shared().client("admin").await;
    let path = "/api/v1/namespaces/default/events";
    let event = json!({
        "metadata": { "name": "node-x.1", "namespace": "default" }, "reason": "Reboot", "type": "Normal", "count": 1,
        "message": "Node will reboot into config rendered-b",
        "involvedObject": { "kind": "Node", "name": "node-x" }, "source": { "component": "machineconfigdaemon" },
    });
    assert_eq!(call(&client, "POST", path, Some(("application/json", event))).await.0, 200);
    let again = Some((STRATEGIC, json!({ "count": 2 })));
    assert_eq!(call(&client, "PATCH", &format!("{path}/node-x.1"), again).await.1["count"], json!(2));
    let (_, found) = call(&client, "GET", &format!("{path}?fieldSelector=reason%3DReboot"), None).await;
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}
