//! Changes of the Node that are a reason for a pass.

use super::*;

fn snapshot(up: bool, uid: &str, annotation: &str) -> NodeSnapshot {
    let text = format!(
        r#"{{"metadata":{{"name":"a","uid":"{uid}","resourceVersion":"1","annotations":
        {{"machineconfiguration.openshift.io/desiredConfig":"{annotation}"}}}}}}"#
    );
    let node = NodeView::parse(text.as_bytes(), "Node a").unwrap();
    let down = (!up).then(|| KubeError::Away { server: String::new(), cause: String::new() });
    NodeSnapshot { tried: true, up, down, node: Some(node), ..NodeSnapshot::default() }
}

/// ANN-001: a heartbeat is no reason for a pass; an API server that goes away is one, once.
#[test]
fn heartbeat_does_not_trigger_pass() {
    let known = Known::new(&snapshot(true, "u", "a"));
    let mut heartbeat = snapshot(true, "u", "a");
    if let Some(node) = &mut heartbeat.node {
        node.resource_version = "2".to_owned();
    }
    assert!(!known.is_behind(&heartbeat));
    assert!(known.is_behind(&snapshot(false, "u", "a")));
    assert!(!Known::new(&snapshot(false, "u", "a")).is_behind(&snapshot(false, "u", "a")));
    assert!(known.is_behind(&snapshot(true, "u", "b")));
    assert!(known.is_behind(&snapshot(true, "other", "a")));
    assert!(known.is_behind(&NodeSnapshot { node: None, ..snapshot(true, "u", "a") }));
    assert!(Known::new(&snapshot(false, "u", "a")).is_behind(&snapshot(true, "u", "a")));
}
