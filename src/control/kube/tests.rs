//! Changes of the Node that are a reason for a pass.

use super::*;

fn unread(snapshot: &NodeSnapshot) -> Option<Unread> {
    super::unread(snapshot, "a")
}

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

/// Issue 33: a node whose API server never answered does not know what is desired; wrong access is its fault.
#[test]
fn node_that_was_never_seen_is_unread() {
    let never = |down| NodeSnapshot { tried: true, down, ..NodeSnapshot::default() };
    let away =
        |cause: &str| KubeError::Away { server: "https://api.test".to_owned(), cause: cause.to_owned() };
    let awaited = |what: &str| Some(Unread::Awaited(what.to_owned()));
    assert_eq!(unread(&never(None)), awaited("the API server"));
    assert_eq!(unread(&never(Some(away("refused")))), awaited("the API server at https://api.test: refused"));
    let (file, cause) = ("kubeconfig".to_owned(), "it is empty".to_owned());
    for (error, reason) in [
        (away("its certificate expired"), "ApiServerUnreachable"),
        (KubeError::Config { file, cause }, "CredentialsUnusable"),
    ] {
        let message = error.to_string();
        let Some(Unread::Refused(fault)) = unread(&never(Some(error))) else { panic!("{message}") };
        assert_eq!((fault.reason.as_str(), fault.message), (reason, message));
    }
    // What was seen once is known.
    assert_eq!(unread(&snapshot(false, "u", "a")), None);
}

/// Issue 33: a cluster that answers and has no such Node, never or not any more, tells the node nothing: it is not Done.
#[test]
fn node_that_cluster_lacks_is_awaited() {
    let absent = NodeSnapshot { tried: true, up: true, ..NodeSnapshot::default() };
    let Some(Unread::Awaited(what)) = super::unread(&absent, "worker-0") else { panic!("it is known") };
    assert!(what.starts_with("Node worker-0, which is not in the cluster"), "{what}");
    assert!(what.contains("systemctl status kubelet"), "no next step: {what}");
    assert_eq!(super::unread(&snapshot(true, "u", "a"), "worker-0"), None);
}
