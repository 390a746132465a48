//! Conditions of a MachineConfigNode, write by write.

use serde_json::{Value, json};

use crate::cluster::scene::{Scene, condition, status};
use crate::cluster::{Bench, Request};

pub const MCN: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfignodes";
pub const APPLY: &str = "application/apply-patch+yaml";

/// A node with two more configs: `b` has another file in the given directory, `bad` can't be reached.
pub async fn scene<'b>(bench: &'b Bench, name: &str, directory: &str) -> Scene<'b> {
    let scene = Scene::set(bench, name, &[]).await;
    let second = scene.builder("b", "a", "a").file(&format!("{directory}/{name}-2"), 0o644, "b");
    second.create(&scene.client).await;
    scene.builder("bad", "a", "a").field("fips", json!(true)).create(&scene.client).await;
    scene
}

/// The bodies of the applied statuses that the server took.
pub fn statuses(requests: &[Request]) -> Vec<Value> {
    let applied = |request: &&Request| {
        request.resource == "machineconfignodes"
            && request.subresource == "status"
            && request.code == Some(200)
    };
    requests.iter().filter(applied).map(|request| request.body.clone().unwrap()).collect()
}

pub fn lines(requests: &[Request]) -> String {
    let line = |request: &Request| format!("{} {:?} {}", request.line(), request.code, request.uri);
    requests.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Asserts that conditions reach True in this order, and that no time goes back.
pub fn in_order(statuses: &[Value], kinds: &[&str]) {
    let first = |kind: &str| {
        let reached = statuses.iter().position(|one| status(one, kind) == "True");
        reached.unwrap_or_else(|| panic!("{kind} was never True: {statuses:#?}"))
    };
    let order: Vec<usize> = kinds.iter().map(|kind| first(kind)).collect();
    assert!(order.is_sorted(), "{kinds:?}: {order:?}");
    let updated = first("Updated");
    assert!(order.iter().rev().skip(1).all(|at| *at < updated), "{kinds:?}: {order:?}");
    for kind in kinds {
        let times: Vec<&str> =
            statuses.iter().filter_map(|one| condition(one, kind)["lastTransitionTime"].as_str()).collect();
        assert!(times.is_sorted(), "{kind}: {times:?}");
    }
}
