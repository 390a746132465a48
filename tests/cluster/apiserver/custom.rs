//! Custom resources: refusals of their schemas and rules, and dropped fields.

use kube::Client;
use serde_json::{Value, json};

use super::shared;
use crate::cluster::{Bench, MachineConfigBuilder, call, create_object};

const MACHINE_CONFIG: &str = "/apis/machineconfiguration.openshift.io/v1";

/// A MachineConfigNode as it may be.
fn node_spec(node: &str) -> Value {
    json!({ "node": { "name": node }, "pool": { "name": "worker" }, "configVersion": { "desired": "not-yet-set" } })
}

async fn accepted(client: &Client, plural: &str, name: &str, fields: Value) {
    create_object(client, plural, name, fields).await.unwrap();
}

/// The server's reason for refusing it as invalid.
async fn refused(client: &Client, plural: &str, name: &str, fields: Value) -> String {
    match create_object(client, plural, name, fields).await {
        Err(kube::Error::Api(status)) if status.code == 422 => status.message,
        other => panic!("{plural}/{name} should be invalid: {other:?}"),
    }
}

/// Applies a status as the agent does: server-side, through the subresource.
async fn apply_status(client: &Client, name: &str, status: Value) -> (u16, Value) {
    let path = format!(
        "{MACHINE_CONFIG}/machineconfignodes/{name}/status?fieldManager=machine-config-agent&force=true"
    );
    let body = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigNode",
        "metadata": { "name": name },
        "status": status,
    });
    call(client, "PATCH", &path, Some(("application/apply-patch+yaml", body))).await
}

fn condition(kind: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": "True", "reason": reason, "message": "as it is",
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

#[tokio::test]
async fn machine_config_node_is_named_as_its_node() {
    let client = shared().client("admin").await;
    accepted(&client, "machineconfignodes", "named-as", json!({ "spec": node_spec("named-as") })).await;
    let why =
        refused(&client, "machineconfignodes", "named-1", json!({ "spec": node_spec("named-2") })).await;
    assert!(why.contains("spec.node.name"), "{why}");
}

#[tokio::test]
async fn machine_config_node_names_pool_and_config_by_dns_1123() {
    let client = shared().client("admin").await;
    for (field, value) in
        [("configVersion", json!({ "desired": "" })), ("pool", json!({ "name": "Not_A_Pool" }))]
    {
        let mut spec = node_spec("dns-names");
        spec[field] = value;
        let why = refused(&client, "machineconfignodes", "dns-names", json!({ "spec": spec })).await;
        assert!(why.contains(&format!("spec.{field}")), "{why}");
    }
}

#[tokio::test]
async fn observed_generation_of_machine_config_node_never_falls() {
    let client = shared().client("admin").await;
    accepted(&client, "machineconfignodes", "falling", json!({ "spec": node_spec("falling") })).await;
    assert_eq!(apply_status(&client, "falling", json!({ "observedGeneration": 2 })).await.0, 200);
    let (code, why) = apply_status(&client, "falling", json!({ "observedGeneration": 1 })).await;
    assert_eq!(code, 422, "{why}");
}

#[tokio::test]
async fn condition_is_complete() {
    let client = shared().client("admin").await;
    accepted(&client, "machineconfignodes", "conditions", json!({ "spec": node_spec("conditions") })).await;
    let (code, why) =
        apply_status(&client, "conditions", json!({ "conditions": [condition("Updated", "Updated")] })).await;
    assert_eq!(code, 200, "{why}");
    for (field, value) in
        [("reason", json!("")), ("message", Value::Null), ("lastTransitionTime", Value::Null)]
    {
        let mut bad = condition("Updated", "Updated");
        bad[field] = value;
        let (code, why) = apply_status(&client, "conditions", json!({ "conditions": [bad] })).await;
        assert_eq!(code, 422, "{field}: {why}");
    }
}

#[tokio::test]
async fn pinned_image_sets_of_node_count_upwards_and_explain_failures() {
    let client = shared().client("admin").await;
    accepted(&client, "machineconfignodes", "pinned", json!({ "spec": node_spec("pinned") })).await;
    let set = |fields: Value| {
        let mut set = json!({ "name": "set" });
        set.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "pinnedImageSets": [set] })
    };
    let good = set(json!({ "currentGeneration": 1, "desiredGeneration": 2 }));
    assert_eq!(apply_status(&client, "pinned", good).await.0, 200);
    let behind = set(json!({ "currentGeneration": 3, "desiredGeneration": 2 }));
    assert_eq!(apply_status(&client, "pinned", behind).await.0, 422);
    let unexplained = set(json!({ "desiredGeneration": 2, "lastFailedGeneration": 1 }));
    assert_eq!(apply_status(&client, "pinned", unexplained).await.0, 422);
    let explained = set(
        json!({ "desiredGeneration": 2, "lastFailedGeneration": 1, "lastFailedGenerationError": "no space" }),
    );
    let (code, why) = apply_status(&client, "pinned", explained).await;
    assert_eq!(code, 200, "{why}");
}

#[tokio::test]
async fn status_sent_through_main_resource_is_dropped_in_silence() {
    let client = shared().client("admin").await;
    let fields = json!({ "spec": node_spec("dropped"), "status": { "observedGeneration": 7 } });
    accepted(&client, "machineconfignodes", "dropped", fields).await;
    let path = format!("{MACHINE_CONFIG}/machineconfignodes/dropped");
    let patch = json!({ "status": { "observedGeneration": 8 } });
    let (code, node) = call(&client, "PATCH", &path, Some(("application/merge-patch+json", patch))).await;
    assert_eq!((code, node.get("status")), (200, None));
}

#[tokio::test]
async fn machine_configs_and_pinned_image_sets_have_no_status_subresource() {
    let client = shared().client("admin").await;
    MachineConfigBuilder::new("without-status").file("/etc/one", 0o644, "one\n").create(&client).await;
    let images = json!([{ "name": format!("example.com/one@sha256:{}", "ab".repeat(32)) }]);
    accepted(&client, "pinnedimagesets", "without-status", json!({ "spec": { "pinnedImages": images } }))
        .await;
    for plural in ["machineconfigs", "pinnedimagesets"] {
        let path = format!("{MACHINE_CONFIG}/{plural}/without-status");
        assert_eq!(call(&client, "GET", &path, None).await.0, 200);
        assert_eq!(call(&client, "GET", &format!("{path}/status"), None).await.0, 404, "{plural}");
    }
}

#[tokio::test]
async fn pinned_images_are_named_by_digest() {
    let client = shared().client("admin").await;
    let by_tag = json!({ "spec": { "pinnedImages": [{ "name": "example.com/one:latest" }] } });
    let why = refused(&client, "pinnedimagesets", "by-tag", by_tag).await;
    assert!(why.contains("pinnedImages"), "{why}");
}

/// `cluster` is the only name that a MachineConfiguration may have, so these are one test.
#[tokio::test]
async fn node_disruption_policies_are_checked() {
    let client = shared().client("admin").await;
    let policy = |actions: Value| {
        let files = json!([{ "path": "/etc/one", "actions": actions }]);
        json!({ "spec": { "managementState": "Managed", "nodeDisruptionPolicy": { "files": files } } })
    };
    let restart = |name: &str| json!({ "type": "Restart", "restart": { "serviceName": name } });
    for bad in [
        json!([{ "type": "None" }, { "type": "DaemonReload" }]),
        json!([{ "type": "Reboot" }, restart("one.service")]),
        json!([{ "type": "Restart" }]),
        json!([restart("one")]),
        json!([{ "type": "Reload", "reload": { "serviceName": "one.unit" } }]),
    ] {
        refused(&client, "machineconfigurations", "cluster", policy(bad)).await;
    }
    let good = json!([{ "type": "DaemonReload" }, restart("one.service")]);
    accepted(&client, "machineconfigurations", "cluster", policy(good)).await;
}

#[tokio::test]
async fn only_technology_preview_knows_image_of_machine_config_node() {
    let image = format!("example.com/os@sha256:{}", "ab".repeat(32));
    for (bench, known) in [(shared(), false), (Bench::shared_preview(), true)] {
        let client = bench.client("admin").await;
        accepted(&client, "machineconfignodes", "imaged", json!({ "spec": node_spec("imaged") })).await;
        let path = format!("{MACHINE_CONFIG}/machineconfignodes/imaged");
        let patch = json!({ "spec": { "configImage": { "desiredImage": image } } });
        let (code, node) = call(&client, "PATCH", &path, Some(("application/merge-patch+json", patch))).await;
        assert_eq!((code, node["spec"].get("configImage").is_some()), (200, known), "{node}");
    }
}

#[tokio::test]
async fn two_appliers_of_status_keep_each_others_conditions() {
    let client = shared().client("admin").await;
    accepted(&client, "machineconfignodes", "shared", json!({ "spec": node_spec("shared") })).await;
    let ours = json!({ "conditions": [condition("Updated", "Updated")] });
    assert_eq!(apply_status(&client, "shared", ours).await.0, 200);
    let path =
        format!("{MACHINE_CONFIG}/machineconfignodes/shared/status?fieldManager=machine-config-controller");
    let theirs = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode",
        "metadata": { "name": "shared" },
        "status": { "conditions": [condition("Drained", "UpdateExecutedDrained")] },
    });
    let (code, node) = call(&client, "PATCH", &path, Some(("application/apply-patch+yaml", theirs))).await;
    let kinds: Vec<_> =
        node["status"]["conditions"].as_array().unwrap().iter().map(|one| &one["type"]).collect();
    assert_eq!((code, kinds), (200, vec![&json!("Updated"), &json!("Drained")]));
}
