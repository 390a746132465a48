//! The handshake as a table, and pods that stay, leave and are kept.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-03-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn annotations(all: &[(&'static str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn step(all: &[(&'static str, &str)], unschedulable: bool, pods: Option<&Pods>) -> Step {
    next(&NodeView::new(&annotations(all), unschedulable), pods, now(), Duration::ZERO)
}

fn patch(annotations: &[(&'static str, Option<&str>)], unschedulable: Option<bool>) -> Patch {
    let annotations = annotations.iter().map(|(key, value)| (*key, value.map(str::to_owned))).collect();
    Patch { annotations, unschedulable }
}

fn pod(name: &str, more: &Value) -> kube::core::ObjectMeta {
    let mut metadata =
        json!({ "name": name, "namespace": "shop", "uid": format!("u-{name}"), "labels": { "app": name } });
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(metadata).unwrap()
}

fn budget(name: &str, app: &str, allowed: i32) -> k8s_openapi::api::policy::v1::PodDisruptionBudget {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "shop", "resourceVersion": "1" },
        "spec": { "selector": { "matchLabels": { "app": app } } },
        "status": { "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 },
    }))
    .unwrap()
}

fn refused(budget: bool, message: &str, again: Duration) -> EvictionState {
    EvictionState::Refused { budget, message: message.to_owned(), again }
}

#[test]
fn nothing_is_done_without_open_request() {
    assert_eq!(step(&[], false, None), Step::Nothing);
    assert_eq!(step(&[(DESIRED, ""), (LAST_APPLIED, "")], false, None), Step::Nothing);
    assert_eq!(step(&[(DESIRED, "drain-b"), (LAST_APPLIED, "drain-b")], true, None), Step::Nothing);
    for rubbish in ["drain", "drain-", "reboot-b", "uncordon"] {
        assert!(matches!(step(&[(DESIRED, rubbish)], false, None), Step::Refuse(_)), "{rubbish}");
    }
}

/// DRN-001 and DRN-002 from the other side: the answer of another config is none.
#[test]
fn drain_cordons_waits_for_pods_and_answers() {
    let since = format!("drain-b {NOW}");
    let begun = [(DESIRED, "drain-b"), (LAST_APPLIED, "uncordon-a")];
    let expected =
        patch(&[(SINCE, Some(&since)), (CORDONED_BY, Some("machine-config-controller"))], Some(true));
    assert_eq!(step(&begun, false, None), Step::Cordon(expected));
    let cordoned = [&begun[..], &[(SINCE, &since), (CORDONED_BY, "machine-config-controller")]].concat();
    assert_eq!(step(&cordoned, true, None), Step::ListPods);
    let mut pods = Pods::default();
    let done = patch(&[(LAST_APPLIED, Some("drain-b")), (SINCE, None), (BLOCKED, None)], None);
    assert_eq!(step(&cordoned, true, Some(&pods)), Step::Acknowledge(done));
    pods.put(pod("a", &json!({})));
    let Step::Evict { pods: evicted, again: None } = step(&cordoned, true, Some(&pods)) else {
        panic!("evicts")
    };
    assert_eq!(evicted[0].name, "a");
    // Uncordoned in the middle: cordoned again, whatever the pods are.
    assert_eq!(step(&cordoned, false, Some(&Pods::default())), Step::Cordon(patch(&[], Some(true))));
    // Another config in the middle: its drain starts over, and the cordon is still the controller's.
    let other = [&cordoned[1..], &[(DESIRED, "drain-c")]].concat();
    let expected = patch(&[(SINCE, Some(&format!("drain-c {NOW}")))], None);
    assert_eq!(step(&other, true, Some(&Pods::default())), Step::Cordon(expected));
}

type Annotations = [(&'static str, &'static str)];

#[test]
fn uncordon_leaves_cordon_of_others() {
    let request = (DESIRED, "uncordon-b");
    let answer = (LAST_APPLIED, Some("uncordon-b"));
    let table: [(&Annotations, bool, Patch); 6] = [
        // Ours.
        (
            &[request, (LAST_APPLIED, "drain-b"), (CORDONED_BY, "machine-config-controller")],
            true,
            patch(&[answer, (CORDONED_BY, None)], Some(false)),
        ),
        // An administrator's, from before the drain.
        (
            &[request, (LAST_APPLIED, "drain-b"), (CORDONED_BY, "other")],
            true,
            patch(&[answer, (CORDONED_BY, None)], None),
        ),
        // An administrator's; an agent that starts requests nothing but the answer.
        (&[request, (LAST_APPLIED, "uncordon-a")], true, patch(&[answer], None)),
        (&[request], true, patch(&[answer], None)),
        // The Machine Config Operator's drain controller was here before.
        (&[request, (LAST_APPLIED, "drain-b")], true, patch(&[answer], Some(false))),
        (&[request, (LAST_APPLIED, "drain-b")], false, patch(&[answer], None)),
    ];
    for (before, unschedulable, expected) in table {
        assert_eq!(step(before, unschedulable, None), Step::Acknowledge(expected), "{before:?}");
    }
    // Patch for the drain of a node that was cordoned before.
    let before = [(DESIRED, "drain-b")];
    let Step::Cordon(cordon) = step(&before, true, None) else { panic!("begins") };
    assert_eq!((cordon.annotations[CORDONED_BY].as_deref(), cordon.unschedulable), (Some("other"), None));
}

#[test]
fn clock_jumps_neither_fail_nor_end_drain() {
    let since = format!("drain-b {NOW}");
    let all = annotations(&[(DESIRED, "drain-b"), (SINCE, &since)]);
    let node = NodeView::new(&all, true);
    let at = |text: &str| lasts(&node, text.parse().unwrap());
    assert_eq!(at("2026-03-01T12:30:00Z"), Duration::from_secs(1800));
    assert_eq!(at("2020-03-01T12:30:00Z"), Duration::ZERO);
    assert_eq!(retry(at("2026-03-01T12:09:00Z")), Duration::from_secs(60));
    assert_eq!(retry(at("2026-03-01T12:10:00Z")), Duration::from_secs(300));
}

#[test]
fn daemon_and_mirror_pods_stay() {
    let table = [
        (json!({}), true),
        (json!({ "annotations": { "kubernetes.io/config.mirror": "x" } }), false),
        (
            json!({ "ownerReferences": [{ "kind": "DaemonSet", "controller": true, "apiVersion": "apps/v1", "name": "a", "uid": "b" }] }),
            false,
        ),
        (
            json!({ "ownerReferences": [{ "kind": "DaemonSet", "apiVersion": "apps/v1", "name": "a", "uid": "b" }] }),
            true,
        ),
    ];
    for (more, leaves) in table {
        assert_eq!(Pods::default().put(pod("a", &more)), leaves, "{more}");
    }
}

#[test]
fn refused_pod_names_its_budgets_and_is_asked_when_they_allow_it() {
    let (mut pods, mut budgets) = (Pods::default(), Budgets::default());
    for name in ["a", "b"] {
        pods.put(pod(name, &json!({})));
    }
    let later = Duration::from_secs(60);
    pods.answered("u-a", Some(EvictionState::Leaving));
    pods.answered("u-b", Some(refused(true, "it needs 1 healthy pods and has 1 currently", later)));
    budgets.put(budget("keep", "b", 0));
    budgets.put(budget("else", "a", 0));
    let blocked = pods.blocked(&budgets).unwrap();
    assert_eq!((blocked.pod.as_str(), blocked.budget.as_str()), ("shop/b", "shop/keep"));
    assert_eq!(
        blocked.text,
        "pod shop/b is kept by PodDisruptionBudget shop/keep: it needs 1 healthy pods and has 1 currently"
    );
    assert!(!pods.budgets_changed(&budgets) && pods.to_evict(Duration::ZERO).is_empty());
    assert_eq!(pods.due(), Some(later));
    budgets.put(budget("keep", "b", 1));
    assert!(pods.budgets_changed(&budgets));
    assert_eq!(pods.to_evict(Duration::ZERO)[0].name, "b");
    // Two of them: the API server evicts no such pod, whatever they allow.
    budgets.put(budget("also", "b", 1));
    pods.answered("u-b", Some(refused(true, "This pod has more than one PodDisruptionBudget", later)));
    assert!(!pods.budgets_changed(&budgets));
    let blocked = pods.blocked(&budgets).unwrap();
    assert_eq!(blocked.budget, "shop/also,shop/keep");
    assert!(
        blocked.text.contains("kept by 2 PodDisruptionBudgets, shop/also and shop/keep"),
        "{}",
        blocked.text
    );
    // One of them goes.
    budgets.remove("shop", "also");
    assert!(pods.budgets_changed(&budgets));
    assert!(!pods.budgets_changed(&budgets), "once");
}

#[test]
fn terminating_pod_is_awaited_and_new_list_forgets() {
    let mut pods = Pods::default();
    assert!(pods.put(pod("a", &json!({ "deletionTimestamp": NOW }))));
    assert_eq!((pods.to_evict(Duration::MAX).len(), pods.due(), pods.is_empty()), (0, None, false));
    assert_eq!(pods.blocked(&Budgets::default()), None);
    // The same again is no news; a new pod is.
    assert!(!pods.put(pod("a", &json!({ "deletionTimestamp": NOW }))));
    assert!(pods.put(pod("b", &json!({}))));
    pods.retain(&std::collections::BTreeSet::from(["u-b".to_owned()]));
    assert!(!pods.remove("u-a") && pods.remove("u-b") && pods.is_empty());
}

#[test]
fn blocked_is_written_once_and_bounded() {
    let all = annotations(&[(DESIRED, "drain-b"), (BLOCKED, "why")]);
    let node = NodeView::new(&all, true);
    assert_eq!(blocked(&node, Some("why")), None);
    assert_eq!(blocked(&node, None), Some(patch(&[(BLOCKED, None)], None)));
    let long = "x".repeat(5000);
    let patch = blocked(&node, Some(&long)).unwrap();
    assert_eq!(patch.annotations[BLOCKED].as_ref().unwrap().len(), MAX_BLOCKED);
}
