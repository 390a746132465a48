//! The handshake as a table, and pods that stay, leave and are kept.

use serde_json::{Value, json};

use machine_config_core::drain::{Budget, KnownBudgets};

use super::*;

const NOW: &str = "2026-03-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn annotations(all: &[(&'static str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn step(all: &[(&'static str, &str)], unschedulable: bool, pods: &Pods) -> Step {
    ruled(all, unschedulable, pods, &DrainRules::default())
}

fn ruled(all: &[(&'static str, &str)], unschedulable: bool, pods: &Pods, rules: &DrainRules) -> Step {
    next(&NodeView::new(&annotations(all), unschedulable), pods, rules, now(), Duration::ZERO)
}

fn rules(spec: Value) -> Result<DrainRules, String> {
    DrainRules::new(Some(&serde_json::from_value(spec).unwrap()))
}

/// Nothing was listed.
fn unlisted() -> Pods {
    Pods::default()
}

fn listed(names: &[&str]) -> Pods {
    let mut pods = Pods::default();
    pods.list(names.iter().map(|name| pods::seen(pod(name, &json!({})))));
    pods
}

fn patch(annotations: &[(&'static str, Option<&str>)], unschedulable: Option<bool>) -> Patch {
    let annotations = annotations.iter().map(|(key, value)| (*key, value.map(str::to_owned))).collect();
    Patch { annotations, unschedulable, ..Patch::default() }
}

fn pod(name: &str, more: &Value) -> kube::core::ObjectMeta {
    let mut metadata =
        json!({ "name": name, "namespace": "shop", "uid": format!("u-{name}"), "labels": { "app": name } });
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(metadata).unwrap()
}

/// A budget of generation 2, whose status is of a generation.
fn budget(
    name: &str,
    app: &str,
    allowed: i32,
    observed: i64,
) -> k8s_openapi::api::policy::v1::PodDisruptionBudget {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "shop", "resourceVersion": "1", "generation": 2 },
        "spec": { "selector": { "matchLabels": { "app": app } } },
        "status": { "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
                    "observedGeneration": observed },
    }))
    .unwrap()
}

#[test]
fn nothing_is_done_without_open_request() {
    assert_eq!(step(&[], false, &unlisted()), Step::Nothing);
    assert_eq!(step(&[(DESIRED, ""), (LAST_APPLIED, "")], false, &unlisted()), Step::Nothing);
    assert_eq!(step(&[(DESIRED, "drain-b"), (LAST_APPLIED, "drain-b")], true, &unlisted()), Step::Nothing);
    for rubbish in ["drain", "drain-", "reboot-b", "uncordon"] {
        assert!(matches!(step(&[(DESIRED, rubbish)], false, &unlisted()), Step::Refuse(_)), "{rubbish}");
    }
}

/// DRN-001 and DRN-002 from the other side: the answer of another config is none.
#[test]
fn drain_cordons_waits_for_pods_and_answers() {
    let since = format!("drain-b {NOW}");
    let begun = [(DESIRED, "drain-b"), (LAST_APPLIED, "uncordon-a")];
    let expected =
        patch(&[(SINCE, Some(&since)), (CORDONED_BY, Some("machine-config-controller"))], Some(true));
    assert_eq!(step(&begun, false, &unlisted()), Step::Cordon(expected));
    let cordoned = [&begun[..], &[(SINCE, &since), (CORDONED_BY, "machine-config-controller")]].concat();
    assert_eq!(step(&cordoned, true, &unlisted()), Step::ListPods);
    let done = patch(&[(LAST_APPLIED, Some("drain-b")), (SINCE, None), (BLOCKED, None)], None);
    assert_eq!(step(&cordoned, true, &listed(&[])), Step::Acknowledge(done));
    let Step::Evict { pods: evicted, again: None } = step(&cordoned, true, &listed(&["a"])) else {
        panic!("evicts")
    };
    assert_eq!(evicted[0].name, "a");
    // Uncordoned in the middle: cordoned again, whatever the pods are.
    assert_eq!(step(&cordoned, false, &listed(&[])), Step::Cordon(patch(&[], Some(true))));
    // Another config in the middle: its drain starts over, and the cordon is still the controller's.
    let other = [&cordoned[1..], &[(DESIRED, "drain-c")]].concat();
    let expected = patch(&[(SINCE, Some(&format!("drain-c {NOW}")))], None);
    assert_eq!(step(&other, true, &listed(&[])), Step::Cordon(expected));
}

/// The next process evicts none that came to the cordoned node meanwhile.
#[test]
fn newest_pod_that_leaves_is_recorded_before_evictions() {
    let created = |name, at: &str| pods::seen(pod(name, &json!({ "creationTimestamp": at })));
    let first = || [created("a", "2026-03-01T11:59:58Z"), created("b", "2026-03-01T11:00:00Z")];
    let begun = format!("drain-b {NOW}");
    let recorded = format!("{begun} 2026-03-01T11:59:58Z");
    let with = |since| [(DESIRED, "drain-b"), (SINCE, since), (CORDONED_BY, CONTROLLER)];
    let mut pods = Pods::default();
    pods.list(first());
    let expected = patch(&[(SINCE, Some(&recorded))], None);
    assert_eq!(step(&with(&begun), true, &pods), Step::Record(expected));
    assert!(matches!(step(&with(&recorded), true, &pods), Step::Evict { pods, .. } if pods.len() == 2));
    let all = annotations(&with(&recorded));
    let view = NodeView::new(&all, true);
    assert_eq!(since(&view), Some(now()));
    let mut next = Pods::default();
    next.go_on(leaves_until(&view));
    next.list(first().into_iter().chain([created("again", "2026-03-01T12:00:01Z")]));
    let Step::Evict { pods: evicted, .. } = step(&with(&recorded), true, &next) else { panic!("evicts") };
    assert_eq!(evicted.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["a", "b"]);
    // Uncordoned in the middle: what came meanwhile leaves, too. Another request begins anew.
    let again = patch(&[(SINCE, Some(&begun))], Some(true));
    assert_eq!(step(&with(&recorded), false, &pods), Step::Cordon(again));
    let other = NodeView { desired: Some("drain-c"), ..view };
    assert_eq!((since(&other), leaves_until(&other)), (None, None));
    let Step::Record(record) = step(&with(&begun), true, &pods) else { panic!("records") };
    let uncordoned = NodeView { unschedulable: false, ..view };
    let cordon = cordon(&uncordoned, "drain-b", &DrainRules::default(), now());
    assert_eq!(cordon.changed_beside().collect::<Vec<_>>(), [record.field()]);
    assert_eq!(record.changed_beside().count(), 0);
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
        assert_eq!(step(before, unschedulable, &unlisted()), Step::Acknowledge(expected), "{before:?}");
    }
    // Patch for the drain of a node that was cordoned before.
    let before = [(DESIRED, "drain-b")];
    let Step::Cordon(cordon) = step(&before, true, &unlisted()) else { panic!("begins") };
    assert_eq!((cordon.annotations[CORDONED_BY].as_deref(), cordon.unschedulable), (Some("other"), None));
}

/// A write that is made again although nobody asked for anything else is counted as another program's doing.
/// The target goes back to the node's config before the drain is answered: the agent asks for what was answered last.
#[test]
fn drain_that_is_taken_back_before_its_answer_is_uncordoned() {
    let uncordon = "uncordon-rendered-a";
    let drain = format!("drain-rendered-b {NOW}");
    let taken_back =
        |by| [(DESIRED, uncordon), (LAST_APPLIED, uncordon), (SINCE, &*drain), (CORDONED_BY, by)];
    let done = [(LAST_APPLIED, Some(uncordon)), (SINCE, None), (CORDONED_BY, None)];
    let of_controller = step(&taken_back(CONTROLLER), true, &unlisted());
    assert_eq!(of_controller, Step::Acknowledge(patch(&done, Some(false))));
    // Who cordoned before the drain keeps the cordon.
    assert_eq!(step(&taken_back(OTHER), true, &unlisted()), Step::Acknowledge(patch(&done, None)));
    assert_eq!(step(&[(DESIRED, uncordon), (LAST_APPLIED, uncordon)], true, &unlisted()), Step::Nothing);
}

/// The agent goes on by the answer that it has; what is left is of the other drain.
#[test]
fn drain_that_is_taken_back_to_answered_one_leaves_no_marks() {
    let other = format!("drain-rendered-b {NOW}");
    let answered =
        [(DESIRED, "drain-rendered-a"), (LAST_APPLIED, "drain-rendered-a"), (CORDONED_BY, CONTROLLER)];
    let marked = [&answered[..], &[(SINCE, &*other), (BLOCKED, "pod a")]].concat();
    let cleared = [(LAST_APPLIED, Some("drain-rendered-a")), (SINCE, None), (BLOCKED, None)];
    assert_eq!(step(&marked, true, &unlisted()), Step::Acknowledge(patch(&cleared, None)));
    assert_eq!(step(&answered, true, &unlisted()), Step::Nothing);
}

#[test]
fn cordon_of_another_request_is_another_write() {
    let of = |patch: &Patch| (patch.field(), patch.content());
    let first = cordon(&NodeView::default(), "drain-b", &DrainRules::default(), now());
    let since = format!("drain-b {}", now());
    let view = NodeView { since: Some(&since), cordoned_by: Some(CONTROLLER), ..NodeView::default() };
    let view = NodeView { desired: Some("drain-b"), ..view };
    let again = cordon(&view, "drain-b", &DrainRules::default(), now());
    assert_ne!(first, again);
    assert_eq!(of(&first), of(&again));
    let back = uncordon(&NodeView { unschedulable: true, ..view }, "uncordon-b");
    assert_eq!(of(&back).0, of(&first).0, "it lies between two cordons");
    assert_ne!(of(&back).1, of(&first).1);
    assert_ne!(blocked(&view, Some("a")).unwrap().field(), first.field());
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
        assert_eq!(!pods::seen(pod("a", &more)).stays, leaves, "{more}");
    }
}

/// Before the first list, and while a status is behind, nobody knows what a budget allows. A new list does not empty the old one.
#[test]
fn budgets_are_unknown_until_listed_and_current() {
    let mut budgets = Budgets::default();
    let pod = listed(&["a"]).to_evict(Duration::ZERO).remove(0);
    budgets.put(budget("early", "a", 1, 2));
    assert_eq!(budgets.of(&pod), KnownBudgets::Unknown);
    budgets.begin_list();
    budgets.list(budget("keep", "a", 1, 2));
    budgets.list(budget("other", "b", 1, 2));
    assert_eq!(budgets.of(&pod), KnownBudgets::Unknown, "the list is not complete");
    budgets.end_list();
    let known = |name: &str, allowed| Budget { name: name.to_owned(), version: "1".to_owned(), allowed };
    let one = KnownBudgets::All(vec![known("keep", Some(1))]);
    assert_eq!(budgets.of(&pod), one);
    budgets.begin_list();
    assert_eq!(budgets.of(&pod), one);
    budgets.put(budget("behind", "a", 1, 1));
    assert_eq!(budgets.of(&pod), KnownBudgets::All(vec![known("behind", None), known("keep", Some(1))]));
    budgets.remove("shop", "behind");
    budgets.end_list();
    assert_eq!(budgets.of(&pod), KnownBudgets::All(Vec::new()));
}

#[test]
fn grace_period_and_finalizers_of_pod_are_read() {
    let seen = pods::seen(pod("a", &json!({ "deletionTimestamp": NOW, "finalizers": ["example.test/a"] })));
    let terminating = seen.terminating.unwrap();
    assert_eq!(
        (terminating.due.to_string().as_str(), &*terminating.finalizers),
        (NOW, &["example.test/a".to_owned()][..])
    );
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

/// Without rules a drain lasts for as long as it takes; with them it fails, or deletes, and not before.
#[test]
fn drain_that_takes_too_long_fails_or_deletes() {
    let node = |since: &str| {
        [(DESIRED, "drain-b"), (CORDONED_BY, CONTROLLER), (SINCE, &*format!("drain-b {since}").leak())]
    };
    let (fail, delete) = (
        rules(json!({ "timeout": "1h" })).unwrap(),
        rules(json!({ "timeout": "1h", "onTimeout": "DeletePods" })).unwrap(),
    );
    let (late, early) = ("2026-03-01T11:00:00Z", "2026-03-01T11:00:01Z");
    let pods = listed(&["a"]);
    let all = pods.to_evict(Duration::ZERO);
    for (since, rules, step) in [
        (late, &DrainRules::default(), Step::Evict { pods: all.clone(), again: None }),
        (early, &fail, Step::Evict { pods: all.clone(), again: None }),
        (late, &fail, Step::Fail),
        (early, &delete, Step::Evict { pods: all.clone(), again: None }),
        (late, &delete, Step::Delete { pods: all.clone(), again: None }),
    ] {
        assert_eq!(ruled(&node(since), true, &pods, rules), step, "{since} {rules:?}");
    }
    // Its pods left by themselves: the mark goes with the answer.
    let mut failed = node(late).to_vec();
    failed.push((FAILED, "drain-b the drain took longer than 60 min: pod shop/a"));
    let done = [(LAST_APPLIED, Some("drain-b")), (SINCE, None), (BLOCKED, None), (FAILED, None)];
    assert_eq!(ruled(&failed, true, &listed(&[]), &fail), Step::Acknowledge(patch(&done, None)));
    // The mark counts for this request alone, and goes when the rules have changed.
    let all = annotations(&failed);
    let view = NodeView::new(&all, true);
    assert_eq!(view.failure(), Some("the drain took longer than 60 min: pod shop/a"));
    assert_eq!(NodeView { desired: Some("drain-c"), ..view }.failure(), None);
    assert_eq!(NodeView { applied: Some("drain-b"), ..view }.failure(), None);
    assert_eq!(super::blocked(&view, None), Some(patch(&[(FAILED, None)], None)));
}

/// The label is set with the cordon, waited for, and removed with it, if it is ours.
#[test]
fn node_leaves_load_balancers_before_first_eviction() {
    let rules = rules(json!({ "excludeFromLoadBalancers": { "wait": "30s" } })).unwrap();
    let Step::Cordon(cordon) = ruled(&[(DESIRED, "drain-b")], false, &unlisted(), &rules) else { panic!() };
    assert_eq!(cordon.labels, BTreeMap::from([(EXCLUDE, Some(String::new()))]));
    assert_eq!(cordon.annotations[EXCLUDED].as_deref(), Some(NOW));
    let since = "drain-b 2026-03-01T11:59:00Z";
    let node = |at| [(DESIRED, "drain-b"), (CORDONED_BY, CONTROLLER), (SINCE, since), (EXCLUDED, at)];
    for (at, left) in [
        ("2026-03-01T11:59:40Z", Some(10)),
        ("2026-03-01T11:59:30Z", None),
        ("2026-03-01T13:00:00Z", Some(30)),
    ] {
        let step = ruled(&node(at), true, &listed(&["a"]), &rules);
        let Step::Evict { pods, again } = step else { panic!("{step:?}") };
        assert_eq!((pods.len(), again), (usize::from(left.is_none()), left.map(Duration::from_secs)), "{at}");
    }
    let asked = [(DESIRED, "uncordon-b"), (CORDONED_BY, CONTROLLER), (EXCLUDED, NOW)];
    let Step::Acknowledge(uncordon) = step(&asked, true, &unlisted()) else { panic!() };
    assert_eq!(
        (uncordon.labels.get(EXCLUDE), uncordon.annotations.get(EXCLUDED)),
        (Some(&None), Some(&None))
    );
    // A label that was there before is a person's.
    let labels = BTreeMap::from([(EXCLUDE.to_owned(), String::new())]);
    let all = annotations(&[(DESIRED, "drain-b")]);
    let view = NodeView::new(&all, false).with_labels(&labels);
    let Step::Cordon(cordon) = next(&view, &unlisted(), &rules, now(), Duration::ZERO) else { panic!() };
    assert!(cordon.labels.is_empty() && !cordon.annotations.contains_key(EXCLUDED));
    let Step::Acknowledge(uncordon) =
        step(&[(DESIRED, "uncordon-b"), (CORDONED_BY, CONTROLLER)], true, &unlisted())
    else {
        panic!()
    };
    assert!(uncordon.labels.is_empty());
}

#[test]
fn rules_that_cannot_work_are_refused() {
    for (spec, message) in [
        (
            json!({ "timeout": "0s" }),
            "spec.drain.timeout: it is zero; write it as 2h30m, or remove the field",
        ),
        (json!({ "timeout": "soon" }), "spec.drain.timeout: \"soon\" is not a duration; write it as 2h30m"),
        (
            json!({ "onTimeout": "DeletePods" }),
            "spec.drain.onTimeout: there is no timeout; set spec.drain.timeout, or remove the field",
        ),
        (
            json!({ "skip": { "podSelector": { "matchLabels": {} } } }),
            "spec.drain.skip.podSelector is empty, so no pod would be evicted; name the labels of the pods to skip",
        ),
        (
            json!({ "timeout": "30s", "excludeFromLoadBalancers": { "wait": "30s" } }),
            "spec.drain.excludeFromLoadBalancers.wait is not less than spec.drain.timeout, so that each drain would time out before its first eviction; shorten it",
        ),
    ] {
        assert_eq!(rules(spec).unwrap_err(), message);
    }
    let rules = rules(json!({ "skip": { "podSelector": { "matchLabels": { "app": "logs" } }, "terminatingLongerThan": "10m" } })).unwrap();
    let labels = |app: &str| BTreeMap::from([("app".to_owned(), app.to_owned())]);
    assert!(rules.skips(&labels("logs")) && !rules.skips(&labels("shop")));
    assert_eq!(rules.skip_terminating, Some(Duration::from_secs(600)));
    assert!(!DrainRules::default().skips(&labels("logs")));
}
