//! The node's installation, compared with its cluster: the storage of its config, and the name of its config.

use serde_json::{Value, json};

use crate::cluster::scene::{QUIET, Scene};
use crate::cluster::{Bench, annotation, call, create_object, retarget};
use crate::mcn_asserts::MCN;

/// Config that a machine-config-server leaves on the node.
const SERVED: &str = "/etc/mcs-machine-config-content.json";

fn changes(mcn: &Value) -> &Value {
    &mcn["status"]["irreconcilableChanges"]
}

/// The config `a` as an installation served it, with other storage.
fn served(scene: &Scene<'_>, storage: &Value) -> String {
    let mut config = scene.builder("a", "a", "a").object();
    let of = config["spec"]["config"]["storage"].as_object_mut().unwrap();
    of.extend(storage.as_object().unwrap().clone());
    config.to_string()
}

/// MCD-251: storage that differs from the installation's is listed; null once nothing differs, whichever program wrote it.
#[tokio::test]
async fn storage_difference_from_installation_is_reported() {
    let scene = Scene::set(Bench::shared(), "installed-storage", &[]).await;
    scene.write(SERVED, &served(&scene, &json!({ "disks": [{ "device": "/dev/sda", "wipeTable": true }] })));
    let agent = scene.agent(&[]);
    let mcn = scene.mcn("the changes", |mcn| changes(mcn).is_array()).await;
    let expected = json!([{
        "fieldPath": "spec.config.storage.disks",
        "diff": r#"- [{"device":"/dev/sda","wipeTable":true}]"#,
    }]);
    assert_eq!(changes(&mcn), &expected);
    assert_eq!(agent.terminate().await.code(), Some(0));
    // Once more of MCD, which writes by update.
    let patch = json!({ "status": { "irreconcilableChanges": [{ "fieldPath": "spec.config.storage.raid", "diff": "x" }] } });
    let path = format!("{MCN}/{}/status?fieldManager=machine-config-operator", scene.name);
    let written = call(&scene.client, "PATCH", &path, Some(("application/merge-patch+json", patch))).await;
    assert_eq!(written.0, 200, "{}", written.1);
    scene.write(SERVED, &served(&scene, &json!({})));
    let _again = scene.agent(&[]);
    let mcn = scene.mcn("no changes", |mcn| changes(mcn).is_null()).await;
    assert!(mcn["status"]["conditions"].is_array(), "{mcn}");
}

/// An unreadable file is reported, and nothing else of the node suffers.
#[tokio::test]
async fn unreadable_installation_is_reported_and_ignored() {
    let scene = Scene::set(Bench::shared(), "installed-rubbish", &[]).await;
    scene.write(SERVED, "{");
    let mut agent = scene.agent(&[]);
    let line = agent.line("it is ignored", |line| line.contains("Ignored")).await;
    assert!(line.contains(SERVED), "{line}");
    assert!(changes(&scene.updated("a").await).is_null());
}

/// BOOT-016, MCD-230: a rendered config that the cluster does not know is the own copy where the config of the pool has the same
/// content, and is reported with its differences where not.
#[tokio::test]
async fn config_unknown_to_cluster_is_compared_with_its_pools() {
    let scene = Scene::set(Bench::shared(), "installed-unknown", &[]).await;
    let pool = scene.name.clone();
    let unknown = format!("rendered-{pool}-{}", "0a".repeat(16));
    let renamed = |name: &str| {
        let mut config = scene.builder("a", "a", "a").object();
        config["metadata"]["name"] = json!(name);
        config.to_string()
    };
    let spec = json!({ "spec": { "configuration": { "name": scene.config("a") } } });
    create_object(&scene.client, "machineconfigpools", &pool, spec).await.unwrap();
    scene.write(SERVED, &renamed(&unknown));
    retarget(&scene.client, &scene.name, &unknown, None).await;
    let agent = scene.agent(&[]);
    let is = |node: &k8s_openapi::api::core::v1::Node| {
        annotation(node, "state") == Some("Done")
            && annotation(node, "currentConfig") == Some(unknown.as_str())
    };
    scene.until("Done with a config of its own", is).await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("a"));
    assert_eq!(agent.terminate().await.code(), Some(0));
    // Another content: it is waited for, and said what the pool has.
    scene.builder("b", "b", "a").create(&scene.client).await;
    let path = format!("/apis/machineconfiguration.openshift.io/v1/machineconfigpools/{pool}");
    let patch = json!({ "spec": { "configuration": { "name": scene.config("b") } } });
    let written = call(&scene.client, "PATCH", &path, Some(("application/merge-patch+json", patch))).await;
    assert_eq!(written.0, 200, "{}", written.1);
    let other = format!("rendered-{pool}-{}", "0b".repeat(16));
    scene.write(SERVED, &renamed(&other));
    retarget(&scene.client, &scene.name, &other, None).await;
    let _again = scene.agent(&[]);
    let expected = format!(
        "MachineConfigPool {pool} has {}, to which it would take: write-file {QUIET}/{pool}",
        scene.config("b")
    );
    scene.status(|text| text.contains(&expected)).await;
    assert_eq!(scene.on_disk(QUIET).as_deref(), Some("a"));
}
