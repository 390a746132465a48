//! Without a policy: the operator's algorithm.

use k8s_openapi::api::core::v1::{Node as KubeNode, Taint};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::super::*;
use super::world::*;
use crate::api::MachineConfigPool;

fn percent(text: &str) -> IntOrString {
    IntOrString::String(text.to_owned())
}

#[test]
fn capacity_is_max_unavailable_at_least_one() {
    let table = [
        (None, 1),
        (Some(IntOrString::Int(0)), 1),
        (Some(IntOrString::Int(3)), 3),
        (Some(percent("25%")), 5),
        (Some(percent("9%")), 1),
        (Some(percent("100%")), 20),
        (Some(IntOrString::Int(50)), 20),
    ];
    for (max_unavailable, expected) in table {
        let pool = Pool { max_unavailable: max_unavailable.clone(), ..pool("b") };
        assert_eq!(given(&decide(&pool, &nodes(20, "a"))).len(), expected, "{max_unavailable:?}");
    }
}

#[test]
fn nodes_go_by_zone_and_age_and_without_zone_last() {
    let mut nodes = nodes(6, "a");
    let zones = [None, Some("b"), Some("a"), Some("b"), None, Some("a")];
    for ((node, zone), age) in nodes.iter_mut().zip(zones).zip([9, 1, 5, 2, 3, 7]) {
        node.zone = zone.map(str::to_owned);
        node.created = now() - jiff::SignedDuration::from_hours(age);
    }
    let pool = Pool { max_unavailable: Some(IntOrString::Int(6)), ..pool("b") };
    assert_eq!(given(&decide(&pool, &nodes)), ["n05", "n02", "n03", "n01", "n00", "n04"]);
    let pool = Pool { max_unavailable: Some(IntOrString::Int(3)), ..pool };
    assert_eq!(given(&decide(&pool, &nodes)), ["n05", "n02", "n03"]);
}

#[test]
fn unavailable_nodes_use_up_capacity() {
    let mut nodes = nodes(5, "a");
    nodes[0].ready = false;
    nodes[1].unschedulable = true;
    let pool = Pool { max_unavailable: Some(IntOrString::Int(3)), ..pool("b") };
    assert_eq!(given(&decide(&pool, &nodes)), ["n02"]);
    nodes[2].desired = Pair::new("b", None);
    assert!(given(&decide(&pool, &nodes)).is_empty());
    assert_eq!(decide(&pool, &nodes).status.unavailable_machine_count, Some(3));
}

/// A node that fails this target counts; one that failed another one is given this one, first, and costs what it occupies.
#[test]
fn failed_nodes_get_corrected_target_first() {
    let mut nodes = nodes(4, "a");
    nodes[3].desired = Pair::new("b", None);
    fail(&mut nodes, "n03", "no space");
    assert!(given(&decide(&pool("b"), &nodes)).is_empty());
    assert_eq!(given(&decide(&pool("c"), &nodes)), ["n03"]);
    nodes[3].ready = false;
    assert_eq!(given(&decide(&pool("c"), &nodes)), ["n03"], "out of service already");
}

#[test]
fn node_at_work_follows_new_target_at_once() {
    let mut nodes = nodes(3, "a");
    nodes[1].desired = Pair::new("b", None);
    nodes[1].state = AgentState::Working;
    nodes[1].unschedulable = true;
    assert_eq!(given(&decide(&pool("c"), &nodes)), ["n01"]);
}

/// BOOT: all nodes of a new pool serve, though their agents have nothing yet.
#[test]
fn nodes_without_first_target_are_no_outage() {
    let mut nodes = nodes(3, "a");
    for node in &mut nodes {
        *node = Node {
            current: Pair::default(),
            desired: Pair::default(),
            state: AgentState::Unknown,
            ..node.clone()
        };
    }
    assert_eq!(given(&decide(&pool("a"), &nodes)), ["n00"]);
}

#[test]
fn control_plane_goes_one_at_time_and_own_node_last() {
    let mut nodes = nodes(3, "a");
    for node in &mut nodes {
        node.control_plane = true;
    }
    nodes[0].runs_controller = true;
    let mut pool = Pool { max_unavailable: Some(IntOrString::Int(3)), ..pool("b") };
    for name in ["n01", "n02", "n00"] {
        let rollout = decide(&pool, &nodes);
        assert_eq!(given(&rollout), [name]);
        write(&rollout, &mut pool, &mut nodes);
        assert!(given(&decide(&pool, &nodes)).is_empty());
        finish(&mut nodes, name);
    }
    let elsewhere = Pool { unavailable_elsewhere: 1, ..super::world::pool("c") };
    assert!(given(&decide(&elsewhere, &nodes)).is_empty());
}

#[test]
fn paused_pool_is_unchanged() {
    let pool = Pool { paused: true, ..pool("b") };
    let rollout = decide(&pool, &nodes(3, "a"));
    assert!(rollout.patches.is_empty());
    assert_eq!(condition(&rollout, "Updating").0, "False");
    assert_eq!(condition(&rollout, "Updating").2, "Pool is paused; will not update to MachineConfig b");
}

/// OCL-022: until build and config agree on the image, no node is given a half.
#[test]
fn layered_pools_wait_for_their_image() {
    let image = format!("reg.test/os@sha256:{}", "a".repeat(64));
    let build = |state| Layering::Build { machine_os_build: "worker-1".to_owned(), state };
    let table = [
        (
            Layering::Waiting { machine_os_config: "worker".to_owned() },
            "True",
            "Pool is waiting for a new OS image build to start (mosc: worker)",
        ),
        (build(BuildState::Prepared), "True", "Pool is waiting for OS image build to start (mosb: worker-1)"),
        (
            build(BuildState::Building),
            "True",
            "Pool is waiting for OS image build to complete (mosb: worker-1)",
        ),
        (
            build(BuildState::Failed),
            "False",
            "Pool update stopped due to OS image build failure (mosb: worker-1)",
        ),
        (
            build(BuildState::Unpublished),
            "True",
            "Pool is waiting for nodes to apply OS image (mosb: worker-1)",
        ),
    ];
    let mut nodes = nodes(2, "a");
    for (layering, status, message) in table {
        let rollout = decide(&Pool { layering, ..pool("b") }, &nodes);
        assert!(rollout.patches.is_empty());
        assert_eq!(condition(&rollout, "Updating"), (status.to_owned(), String::new(), message.to_owned()));
    }
    let built = Pool { layering: build(BuildState::Built(image.clone())), ..pool("b") };
    let rollout = decide(&built, &nodes);
    assert_eq!(rollout.patches[0].pair, Some(Pair::new("b", Some(image.clone()))));
    let body = rollout.patches[0].body();
    let annotations = &body["metadata"]["annotations"];
    assert_eq!(annotations["machineconfiguration.openshift.io/desiredConfig"], "b");
    assert_eq!(annotations["machineconfiguration.openshift.io/desiredImage"], image);
    assert_eq!(body["metadata"]["resourceVersion"], "1");
    // OCL-017: leaving image mode removes the annotation in the patch that sets the config.
    for node in &mut nodes {
        node.current.image = Some(image.clone());
        node.desired = node.current.clone();
    }
    let body = decide(&pool("b"), &nodes).patches[0].body();
    let annotations = body["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations["machineconfiguration.openshift.io/desiredImage"], json!(null));
}

/// Nothing is written for what is decided once more, whatever the pool is like: it would be written for ever.
#[test]
fn status_that_is_decided_again_is_same() {
    let image = format!("reg.test/os@sha256:{}", "a".repeat(64));
    let build = |state| Layering::Build { machine_os_build: "worker-1".to_owned(), state };
    let layerings = [
        Layering::None,
        Layering::Waiting { machine_os_config: "worker".to_owned() },
        build(BuildState::Initial),
        build(BuildState::Prepared),
        build(BuildState::Building),
        build(BuildState::Failed),
        build(BuildState::Interrupted),
        build(BuildState::Unpublished),
        build(BuildState::Built(image)),
    ];
    let render = json!({ "type": "RenderDegraded", "status": "True", "message": "50-a: fips" });
    let mut degraded = nodes(2, "a");
    degraded[0].state = AgentState::Degraded;
    for layering in layerings {
        for (is_paused, is_unread, has_render, nodes) in [
            (false, false, false, &nodes(2, "a")),
            (false, false, false, &nodes(0, "a")),
            (true, false, false, &nodes(2, "a")),
            (false, false, true, &nodes(2, "a")),
            (true, false, true, &nodes(2, "a")),
            (false, true, true, &nodes(2, "a")),
            (false, false, false, &degraded),
            (false, false, false, &nodes(2, "b")),
        ] {
            let unread = is_unread.then(|| "nodes can't be read".to_owned());
            let mut pool = Pool { layering: layering.clone(), paused: is_paused, unread, ..pool("b") };
            if has_render {
                pool.status.conditions = Some(vec![serde_json::from_value(render.clone()).unwrap()]);
            }
            pool.status = decide(&pool, nodes).status;
            let later = now() + jiff::SignedDuration::from_secs(1);
            assert_eq!(decide_at(&pool, nodes, later).status, pool.status, "{pool:?}");
        }
    }
}

#[test]
fn only_waiting_nodes_are_tainted() {
    let other = Taint { key: "gpu".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    let mut nodes = nodes(3, "a");
    nodes[1].taints.push(other.clone());
    let mut pool = pool("b");
    let rollout = decide(&pool, &nodes);
    let tainted: Vec<_> =
        rollout.patches.iter().filter(|patch| patch.taints.is_some()).map(|patch| &*patch.node).collect();
    assert_eq!(tainted, ["n01", "n02"]);
    write(&rollout, &mut pool, &mut nodes);
    assert!(decide(&pool, &nodes).patches.is_empty(), "written once");
    assert_eq!(nodes[1].taints.len(), 2);
    finish(&mut nodes, "n00");
    let rollout = decide(&pool, &nodes);
    assert_eq!(rollout.patches[0].taints, Some(vec![other]));
    assert_eq!(given(&rollout), ["n01"]);
}

/// No config is named by its empty name.
#[test]
fn pool_that_was_never_rendered_updates_to_nothing() {
    for is_paused in [false, true] {
        let pool = Pool { paused: is_paused, ..pool("") };
        let updating = condition(&decide(&pool, &nodes(2, "b")), "Updating");
        let message = "Pool worker has no rendered config yet".to_owned();
        assert_eq!(updating, ("False".to_owned(), String::new(), message));
    }
}

/// An image that can't be built yet has not failed: the pool says what is missing.
#[test]
fn image_that_is_not_built_yet_is_named_in_its_own_words() {
    let missing = "The image of pool worker can't be built yet: Secret push is missing";
    for (reason, words) in [("BuildPending", missing), ("BuildFailed", "Custom OS image build failed")] {
        let mut pool = pool("b");
        let of_build =
            json!({ "type": "ImageBuildDegraded", "status": "True", "reason": reason, "message": missing });
        pool.status.conditions = Some(vec![serde_json::from_value(of_build).unwrap()]);
        let degraded = condition(&decide(&pool, &nodes(2, "b")), "Degraded");
        assert_eq!(degraded, ("True".to_owned(), String::new(), words.to_owned()));
    }
}

#[test]
fn counts_and_conditions_are_operators() {
    let mut nodes = nodes(4, "b");
    let mut pool = pool("b");
    let rollout = decide(&pool, &nodes);
    assert_eq!(rollout.status.configuration.as_ref().unwrap().name.as_deref(), Some("b"));
    let text = |value: &str| value.to_owned();
    assert_eq!(
        condition(&rollout, "Updated"),
        (text("True"), text(""), text("All nodes are updated with MachineConfig b"))
    );
    assert_eq!(condition(&rollout, "Updating"), (text("False"), text(""), text("")));
    assert_eq!(condition(&rollout, "Degraded").0, "False");
    pool.status = rollout.status;
    nodes[0].desired = Pair::new("c", None);
    fail(&mut nodes, "n00", "disk \"full\"");
    pool.configuration.name = Some("c".to_owned());
    let rollout = decide_at(&pool, &nodes, now() + jiff::SignedDuration::from_mins(1));
    assert_eq!(
        condition(&rollout, "Updating"),
        (text("True"), text(""), text("All nodes are updating to MachineConfig c"))
    );
    let message = text(r#"Node n00 is reporting: "disk \"full\"""#);
    let reason = text("1 nodes are reporting degraded status on sync");
    assert_eq!(condition(&rollout, "NodeDegraded"), (text("True"), reason, message.clone()));
    assert_eq!(condition(&rollout, "Degraded"), (text("True"), text(""), message));
    let status = &rollout.status;
    assert_eq!(status.configuration.as_ref().unwrap().name.as_deref(), Some("b"), "the last complete one");
    let counts = [
        status.machine_count,
        status.updated_machine_count,
        status.ready_machine_count,
        status.unavailable_machine_count,
        status.degraded_machine_count,
    ];
    assert_eq!(counts, [Some(4), Some(0), Some(0), Some(0), Some(1)]);
    // The same once more is nothing to write.
    pool.status = rollout.status.clone();
    assert_eq!(decide_at(&pool, &nodes, now() + jiff::SignedDuration::from_hours(9)).status, pool.status);
}

/// `Degraded` says what `RenderDegraded` does, which is not this controller's to set.
#[test]
fn pool_that_cannot_be_rendered_says_why_it_is_degraded() {
    let mut pool = pool("b");
    let render = json!({ "type": "RenderDegraded", "status": "True", "message": "50-a: fips" });
    pool.status.conditions = Some(vec![serde_json::from_value(render).unwrap()]);
    let rollout = decide(&pool, &nodes(1, "b"));
    assert_eq!(condition(&rollout, "Degraded").2, "the pool can't be rendered: 50-a: fips");
}

#[test]
fn custom_pool_beats_worker_and_two_are_conflict() {
    let pool = |name: &str, selector: serde_json::Value| -> MachineConfigPool {
        serde_json::from_value(
            json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name}, "spec": {"nodeSelector": selector}}),
        )
        .unwrap()
    };
    let labels = |label: &str| json!({"matchLabels": {label: ""}});
    let pools = [
        pool("worker", labels("w")),
        pool("master", labels("m")),
        pool("infra", labels("i")),
        pool("gpu", labels("g")),
        pool("all", json!({})),
        pool("rubbish", json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})),
    ];
    let selectors = Selectors::new(&pools);
    let member = |labels: &str| {
        let labels = labels.chars().map(|label| (label.to_string(), String::new())).collect();
        format!("{:?}", selectors.membership(&Node { labels, ..Node::default() }))
    };
    assert_eq!(member("w"), r#"Pool("worker")"#);
    assert_eq!(member("wi"), r#"Pool("infra")"#);
    assert_eq!(member("wmig"), r#"Pool("master")"#);
    assert_eq!(member("wig"), r#"Conflict(["gpu", "infra"])"#);
    assert_eq!(member(""), "None");
    let nodes = ["w", "wi", "wmig", "wig", ""].map(|letters| {
        let labels = letters.chars().map(|label| (label.to_string(), String::new())).collect();
        Node { name: format!("node-{letters}"), labels, ..Node::default() }
    });
    let members = Members::new(&pools, &nodes);
    let of = |pool: &str| {
        let members = members.of(pool).unwrap();
        let conflicts = members.conflicts.iter().map(|one| format!("{}: {}", one.node, one.pools.join(", ")));
        (members.nodes.clone(), conflicts.collect::<Vec<_>>())
    };
    let only = |node: &str| (vec![node.to_owned()], Vec::new());
    assert_eq!((of("worker"), of("master")), (only("node-w"), only("node-wmig")));
    let conflict = vec!["node-wig: gpu, infra".to_owned()];
    assert_eq!(of("infra"), (vec!["node-wi".to_owned()], conflict.clone()));
    assert_eq!((of("gpu"), of("all")), ((Vec::new(), conflict), (Vec::new(), Vec::new())));
    assert!(members.of("other").is_none());
    assert_eq!(selectors.error("all"), Some(&SelectorError::Empty));
    assert!(matches!(selectors.error("rubbish"), Some(SelectorError::Invalid(_))));
    // The pool tells, and nodes that it had are not updated by guess.
    for (name, cause) in [("all", "nodeSelector is empty, so"), ("rubbish", "nodeSelector: ")] {
        let wrong = Pool {
            name: name.to_owned(),
            selector_error: selectors.error(name).cloned(),
            ..super::world::pool("b")
        };
        let rollout = decide(&wrong, &[]);
        let (status, reason, message) = condition(&rollout, "RolloutInvalid");
        assert_eq!((&*status, &*reason), ("True", "NodeSelectorInvalid"));
        assert!(message.starts_with(&format!("pool {name}: {cause}")), "{message}");
        let mended = Pool { selector_error: None, ..wrong };
        assert_eq!(condition(&decide(&mended, &[]), "RolloutInvalid").0, "False");
    }
}

/// The pod and the budget of a drain that waits are in the pool's status, in every phase, as long as it waits.
#[test]
fn pool_names_pod_and_budget_of_blocked_drain() {
    let words = "pod shop/cart-0 is kept by PodDisruptionBudget shop/cart: needs 1";
    let drained = |name: &str, applied: &str| {
        let annotations = json!({
            "machineconfiguration.openshift.io/currentConfig": "a",
            "machineconfiguration.openshift.io/desiredConfig": "b",
            "machineconfiguration.openshift.io/state": "Working",
            "machineconfiguration.openshift.io/desiredDrain": "drain-b",
            "machineconfiguration.openshift.io/lastAppliedDrain": applied,
            "machine-config-agent.io/drain-blocked": words,
        });
        let object = json!({ "metadata": { "name": name, "annotations": annotations } });
        Node::from_node(serde_json::from_value::<KubeNode>(object).unwrap())
    };
    let mut pool = pool("b");
    let blocked = drained("n1", "uncordon-a");
    let rollout = decide(&pool, std::slice::from_ref(&blocked));
    let found = condition(&rollout, "RolloutDrainBlocked");
    assert_eq!(found, ("True".to_owned(), "EvictionRefused".to_owned(), format!("node n1: {words}")));
    assert!(condition(&rollout, "RolloutProgressing").2.contains("n1 (drain blocked)"));
    pool.paused = true;
    let many: Vec<Node> = (10..22).map(|number| drained(&format!("n{number}"), "")).collect();
    let message = condition(&decide(&pool, &many), "RolloutDrainBlocked").2;
    assert!(message.starts_with("node n10: ") && message.ends_with("; and 2 more"), "{message}");
    let done = decide(&pool, &[drained("n1", "drain-b")]);
    assert_eq!(condition(&done, "RolloutDrainBlocked"), ("False".to_owned(), String::new(), String::new()));
}

#[test]
fn node_object_is_reduced() {
    let object = json!({
        "metadata": {
            "name": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"topology.kubernetes.io/zone": "z", "node-role.kubernetes.io/control-plane": ""},
            "annotations": {
                "machineconfiguration.openshift.io/currentConfig": "a",
                "machineconfiguration.openshift.io/desiredConfig": "b",
                "machineconfiguration.openshift.io/currentImage": "",
                "machineconfiguration.openshift.io/state": "Unreconcilable",
                "machine-config-agent.io/prefetch-image": "i",
                "machine-config-agent.io/prefetch-status": r#"{"image":"i","state":"Done"}"#,
                "machine-config-agent.io/desired-since": "b 2026-11-23T12:00:00Z"
            }
        },
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "Unknown"}]}
    });
    let mut object: KubeNode = serde_json::from_value(object).unwrap();
    let mut node = Node::from_node(object.clone());
    assert!(!node.ready && node.unschedulable && node.control_plane && node.is_failing());
    assert_eq!((node.zone.as_deref(), node.current.image.as_deref()), (Some("z"), None));
    assert_eq!((node.prefetch, node.desired_since), (Some(PrefetchProgress::Done), Some(now())));
    // A patch changes the reduced node as it changes the object.
    let mut patch = NodePatch::new(&node);
    patch.pair = Some(Pair::new("c", None));
    patch.prefetch = Some(None);
    patch.taint(&node, true);
    patch.apply(&mut node);
    assert_eq!(node.desired, Pair::new("c", None));
    assert!(node.is_tainted() && node.prefetch_image.is_none());
    // A stamp is of one target; earlier versions wrote the time alone.
    let mut stamped = |stamp: &str| {
        let annotations = object.metadata.annotations.as_mut().unwrap();
        annotations.insert(DESIRED_SINCE.to_owned(), stamp.to_owned());
        Node::from_node(object.clone()).desired_since
    };
    assert_eq!(stamped("a 2026-11-23T12:00:00Z"), None);
    assert_eq!(stamped("2026-11-23T12:00:00Z"), Some(now()));
    assert_eq!(stamped("b yesterday"), None);
}

/// Also without a policy: what is left of a rollout is reckoned from it.
#[test]
fn node_is_stamped_with_its_target_and_time() {
    let mut nodes = nodes(2, "a");
    let rollout = decide(&pool("b"), &nodes);
    let body = rollout.patches[0].body();
    assert_eq!(body["metadata"]["annotations"][DESIRED_SINCE], format!("b {NOW}"));
    // A person gave the second one the target.
    nodes[1].desired = Pair::new("b", None);
    let rollout = decide(&pool("b"), &nodes);
    let by_hand = rollout.patches.iter().find(|patch| patch.node == "n01").unwrap();
    assert_eq!((&by_hand.pair, &by_hand.since), (&None, &Some(Since { config: "b".to_owned(), at: now() })));
}
