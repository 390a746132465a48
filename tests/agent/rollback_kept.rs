//! Retention of the deployment before the booted one.

use std::time::Duration;

use crate::drift_env;
use crate::drift_env::Scene;
use crate::test_host::ignition;
use serde_json::{Value, json};

const APP: &str = "/etc/app.conf";

fn spec() -> Value {
    let file = json!({"path": APP, "mode": 0o644, "contents": {"source": "data:,x"}});
    let mut spec = ignition(json!({"storage": {"files": [file]}}));
    spec["osImageURL"] = json!(drift_env::IMAGE);
    spec
}

async fn scene(keep: Option<Duration>) -> Scene {
    let mut scene = Scene::with(&spec(), &[], &[]).await;
    scene.node_settings.keep_rollback = keep;
    scene
}

/// OST-012, MCD-218: it is kept forever by default.
#[tokio::test(flavor = "current_thread")]
async fn previous_deployment_kept_by_default() {
    let mut scene = scene(None).await;
    scene
        .live(async |scene| {
            scene.write(APP, "y");
            scene.until_drift("a change", &[APP]).await;
            scene.write(APP, "x");
            scene.until_done("rendered-a").await;
        })
        .await;
    assert_eq!(scene.dropped.times.get(), 0);
}

/// OST-012: nothing but time has to pass on a healthy node, and it is given up once.
#[tokio::test(flavor = "current_thread")]
async fn healthy_node_gives_it_up_when_time_has_come() {
    let mut scene = scene(Some(Duration::from_millis(20))).await;
    scene
        .live(async |scene| {
            scene.dropped.notify.notified().await;
            scene.write(APP, "y");
            scene.until_drift("a change", &[APP]).await;
            scene.write(APP, "x");
            scene.until_done("rendered-a").await;
        })
        .await;
    assert_eq!(scene.dropped.times.get(), 1);
}

/// OST-012: a node that differs from its config has not proved its new deployment.
#[tokio::test(flavor = "current_thread")]
async fn drifted_node_keeps_previous_deployment() {
    let mut scene = scene(Some(Duration::ZERO)).await;
    scene.write(APP, "y");
    scene
        .live(async |scene| {
            scene.until_drift("a change", &[APP]).await;
            assert_eq!(scene.dropped.times.get(), 0);
            scene.write(APP, "x");
            scene.dropped.notify.notified().await;
        })
        .await;
    assert_eq!(scene.dropped.times.get(), 1);
}
