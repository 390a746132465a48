//! Pods that leave, stay, are kept and do not end.

use std::time::Duration;

use super::*;
use crate::model::Timestamp;

const RETRY: Duration = Duration::from_secs(60);

fn seen(name: &str) -> PodSeen {
    PodSeen {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("u-{name}"),
        ..PodSeen::default()
    }
}

fn ends(name: &str, due: u64, finalizers: &[&str]) -> PodSeen {
    let finalizers = finalizers.iter().map(|&one| one.to_owned()).collect();
    PodSeen { terminating: Some(Terminating { due: second(due), finalizers }), ..seen(name) }
}

fn second(second: u64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn unknown(_: &Pod) -> KnownBudgets {
    KnownBudgets::Unknown
}

fn budget(name: &str, version: &str, allowed: Option<u32>) -> Budget {
    Budget { name: name.to_owned(), version: version.to_owned(), allowed }
}

fn refused(message: &str) -> Outcome {
    Outcome::of_refusal(Answer { code: 429, budget: Some(message), ..Answer::default() }, RETRY)
}

fn to_evict(pods: &Pods, now: Duration) -> Vec<String> {
    pods.to_evict(now).into_iter().map(|pod| pod.name).collect()
}

/// A pod of a Deployment that tolerates the cordon comes back after each eviction: each is another pod.
#[test]
fn pods_that_come_to_cordoned_node_are_named_and_left() {
    let mut pods = Pods::default();
    assert!(!pods.is_drained(), "nothing was listed yet");
    assert!(pods.list([seen("a"), PodSeen { stays: true, ..seen("ds") }]));
    assert_eq!(to_evict(&pods, at(0)), ["a"]);
    pods.answered("u-a", Outcome::Evicted, KnownBudgets::Unknown, at(0));
    let mut evictions = 1;
    for round in 0..100 {
        pods.put(seen(&format!("again-{round:02}")));
        evictions += to_evict(&pods, at(round)).len();
    }
    assert_eq!(evictions, 1);
    assert!(pods.remove("u-a") && pods.is_drained());
    let late = pods.late().unwrap();
    assert!(
        late.starts_with("pods shop/again-00, shop/again-01, ") && late.contains(" and 95 more came to"),
        "{late}"
    );
    // The watch begins anew: the list has the late ones only.
    pods.list([seen("again-99")]);
    assert!(pods.is_drained() && to_evict(&pods, at(200)).is_empty());
    assert!(pods.late().unwrap().starts_with("pods shop/again-99 came to"));
    assert!(pods.remove("u-again-99"));
    assert_eq!(pods.late(), None);
}

/// Another process goes on with the drain: what came to the cordoned node is neither evicted nor waited for.
#[test]
fn pods_created_after_recorded_ones_came_to_cordoned_node() {
    let created = |name: &str, at: u64| PodSeen { created: Some(second(at)), ..seen(name) };
    let mut first = Pods::default();
    first.go_on(None);
    first.list([created("a", 100), created("b", 90), PodSeen { stays: true, ..created("ds", 300) }]);
    assert_eq!(first.newest(), Some(second(100)));
    let mut next = Pods::default();
    next.go_on(first.newest());
    // One of the same second may have been there.
    next.list([created("b", 90), created("c", 100), created("again", 101), seen("undated")]);
    assert_eq!(to_evict(&next, at(0)), ["b", "c", "undated"]);
    assert!(next.late().unwrap().starts_with("pods shop/again came to the cordoned node"));
    next.go_on(None);
    next.put(created("again", 101));
    assert!(!to_evict(&next, at(0)).contains(&"again".to_owned()), "the first list counts");
    assert_eq!(Pods::default().newest(), None);
}

#[test]
fn new_list_keeps_state_and_drops_pods_that_are_gone() {
    let mut pods = Pods::default();
    pods.list([seen("a"), seen("b"), seen("c")]);
    pods.answered("u-a", refused("no"), KnownBudgets::Unknown, at(0));
    pods.answered("u-b", Outcome::Evicted, KnownBudgets::Unknown, at(0));
    assert!(!pods.list([seen("a"), seen("b"), seen("c")]), "the same again");
    assert!(pods.list([seen("a"), seen("b")]), "one is gone");
    assert_eq!((to_evict(&pods, at(1)), pods.due()), (Vec::new(), Some(at(60))));
    assert_eq!(to_evict(&pods, at(60)), ["a"]);
    // The watch is faster than the answer.
    pods.put(ends("b", 30, &[]));
    pods.answered("u-b", Outcome::Evicted, KnownBudgets::Unknown, at(1));
    assert!(pods.overdue_at(second(10)) == Some(at(50)));
    pods.answered("u-b", Outcome::Gone, KnownBudgets::Unknown, at(1));
    pods.answered("u-b", refused("no"), KnownBudgets::Unknown, at(1));
    assert_eq!(pods.overdue_at(second(10)), None);
}

/// No list of budgets (403), a late one, and one that is behind: no request is sent before the wait is over.
#[test]
fn budget_that_is_not_known_is_not_free() {
    let mut pods = Pods::default();
    pods.list([seen("a")]);
    pods.answered("u-a", refused("it needs 1"), KnownBudgets::Unknown, at(0));
    assert!(!pods.budgets_changed(unknown, at(1)));
    let behind = KnownBudgets::All(vec![budget("keep", "1", None)]);
    assert!(!pods.budgets_changed(|_| behind.clone(), at(1)));
    let full = KnownBudgets::All(vec![budget("keep", "2", Some(0))]);
    assert!(!pods.budgets_changed(|_| full.clone(), at(1)));
    let free = KnownBudgets::All(vec![budget("keep", "3", Some(1))]);
    assert!(pods.budgets_changed(|_| free.clone(), at(1)));
    assert_eq!(to_evict(&pods, at(1)), ["a"]);
    // Refused by a budget that seems free: the time of the server counts, until the budget changes.
    let answer =
        Answer { code: 429, budget: Some("still being processed"), retry_after: 10, ..Answer::default() };
    pods.answered("u-a", Outcome::of_refusal(answer, RETRY), free.clone(), at(1));
    assert!(!pods.budgets_changed(|_| free.clone(), at(2)));
    assert_eq!((to_evict(&pods, at(10)).len(), to_evict(&pods, at(11))), (0, vec!["a".to_owned()]));
    let other = KnownBudgets::All(vec![budget("keep", "4", Some(1))]);
    assert!(pods.budgets_changed(|_| other.clone(), at(3)) && pods.due() == Some(at(3)));
    // Of a pod with two, none is evicted whatever they allow; when one goes, it is requested again.
    let two = KnownBudgets::All(vec![budget("also", "1", Some(1)), budget("keep", "4", Some(1))]);
    pods.answered("u-a", refused("more than one"), two.clone(), at(4));
    assert!(!pods.budgets_changed(|_| two.clone(), at(5)));
    let blocker = pods.blocker(|_| two.clone(), second(0)).unwrap();
    assert_eq!((blocker.pod.as_str(), blocker.budget.as_str()), ("shop/a", "shop/also,shop/keep"));
    assert!(
        blocker.text.contains("kept by 2 PodDisruptionBudgets, shop/also and shop/keep"),
        "{}",
        blocker.text
    );
    assert!(pods.budgets_changed(|_| other.clone(), at(6)));
    assert!(!pods.budgets_changed(|_| other.clone(), at(6)), "once");
}

#[test]
fn pod_that_does_not_end_is_named_with_what_holds_it() {
    let mut pods = Pods::default();
    pods.list([ends("a", 100, &["example.test/b", "example.test/a"]), ends("b", 90, &[]), seen("c")]);
    assert_eq!(pods.blocker(unknown, second(119)), None, "each has its grace period, and a moment");
    assert_eq!(pods.overdue_at(second(119)), Some(at(1)));
    let text = |pods: &Pods, now| pods.blocker(unknown, second(now)).unwrap().text;
    let kubelet =
        "pod shop/b should have ended at 1970-01-01T00:01:30Z, and its kubelet has not reported that";
    assert!(text(&pods, 121).starts_with(kubelet), "{}", text(&pods, 121));
    assert_eq!(
        text(&pods, 130),
        "pod shop/a should have ended at 1970-01-01T00:01:40Z, and is held by finalizers: example.test/a, \
         example.test/b; check their controllers (also blocking: shop/b)"
    );
    // One that may not leave comes first.
    pods.answered("u-c", refused("it needs 1"), KnownBudgets::Unknown, at(0));
    assert!(text(&pods, 130).starts_with(
        "pod shop/c is kept by its PodDisruptionBudget: it needs 1 (also blocking: shop/a, shop/b)"
    ));
    // A clock that was set back makes none overdue.
    pods.remove("u-c");
    assert_eq!(pods.blocker(unknown, second(0)), None);
}

/// Answers of a kube-apiserver.
#[test]
fn answers_are_read_apart() {
    let of = |code, message, budget, retry_after| {
        Outcome::of_refusal(Answer { code, message, budget, retry_after }, RETRY)
    };
    let refusal = |cause, message: &str, wait| {
        Outcome::Refused(Refusal { cause, is_deletion: false, message: message.to_owned(), wait: at(wait) })
    };
    let two =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let changed = "the object has been modified; please apply your changes to the latest version";
    let other = "Precondition failed: UID in precondition: a, UID in object meta: b";
    let table = [
        (of(404, "pods \"a\" not found", None, 0), Outcome::Gone),
        (of(409, other, None, 0), Outcome::Gone),
        (of(409, changed, None, 0), refusal(Cause::Refused, &format!("{changed} (409)"), 5)),
        (of(429, "no", Some("it needs 1"), 0), refusal(Cause::Budget, "it needs 1", 60)),
        (
            of(429, "no", Some("still being processed"), 10),
            refusal(Cause::Budget, "still being processed", 10),
        ),
        (of(500, two, None, 0), refusal(Cause::Budget, two, 60)),
        // Priority and fairness, not a budget.
        (of(429, "slow down", None, 1), refusal(Cause::Busy, "slow down (429)", 1)),
        (of(503, "etcd has no leader", None, 0), refusal(Cause::Busy, "etcd has no leader (503)", 5)),
        (of(500, "a webhook failed", None, 0), refusal(Cause::Failed, "a webhook failed (500)", 5)),
        (of(502, "<html>Bad Gateway</html>", None, 0), refusal(Cause::Failed, "HTTP status 502", 5)),
        (of(504, "", None, 0), refusal(Cause::Failed, "HTTP status 504", 5)),
        (of(403, "a webhook says no", None, 0), refusal(Cause::Refused, "a webhook says no (403)", 5)),
        (Outcome::of_failure("timed out"), refusal(Cause::Unanswered, "timed out", 5)),
    ];
    for (found, expected) in table {
        assert_eq!(found, expected);
    }
}

/// A server that is busy or fails says nothing of the pod; one that refuses does, and so does a budget. A pod that may leave at any moment is
/// named last.
#[test]
fn words_are_those_of_the_cause() {
    let text = |outcome: Outcome| {
        let mut pods = Pods::default();
        pods.list([seen("a"), seen("b")]);
        pods.answered("u-a", outcome, KnownBudgets::Unknown, at(0));
        let alone = pods.blocker(unknown, second(0)).unwrap().text;
        pods.answered("u-b", refused("it needs 1"), KnownBudgets::Unknown, at(0));
        (alone, pods.blocker(unknown, second(0)).unwrap().pod)
    };
    let of = |code, message| Outcome::of_refusal(Answer { code, message, ..Answer::default() }, RETRY);
    let again = "; its eviction is requested again";
    let table = [
        (of(429, "slow"), format!("pod shop/a is not evicted yet: the API server is busy: slow (429){again}"), "shop/b"),
        (of(503, "slow"), format!("pod shop/a is not evicted yet: the API server is busy: slow (503){again}"), "shop/b"),
        (of(500, "oops"), format!("pod shop/a is not evicted yet: the API server failed: oops (500){again}"), "shop/b"),
        (of(504, ""), format!("pod shop/a is not evicted yet: the API server failed: HTTP status 504{again}"), "shop/b"),
        (Outcome::of_failure("no answer"), format!("pod shop/a is not evicted yet: no answer{again}"), "shop/b"),
        (of(403, "no"), "pod shop/a can't be evicted: no (403)".to_owned(), "shop/a"),
        (of(403, "no").of_deletion(), "pod shop/a can't be deleted: no (403)".to_owned(), "shop/a"),
        (
            of(503, "slow").of_deletion(),
            "pod shop/a is not deleted yet: the API server is busy: slow (503); its deletion is requested again".to_owned(),
            "shop/b",
        ),
    ];
    for (outcome, expected, first) in table {
        assert_eq!(text(outcome), (expected, first.to_owned()));
    }
}

/// 404 for a pod that runs is a refusal: a webhook or a proxy may answer so.
#[test]
fn pod_that_is_said_to_be_gone_is_looked_at() {
    let still = refused_of("the API server reports that the pod is gone, but it exists");
    assert_eq!(Outcome::Gone.confirmed("u-a", Some("u-a")), still);
    assert_eq!(Outcome::Gone.confirmed("u-a", Some("u-b")), Outcome::Gone);
    assert_eq!(Outcome::Gone.confirmed("u-a", None), Outcome::Gone);
    assert_eq!(Outcome::Evicted.confirmed("u-a", Some("u-a")), Outcome::Evicted);
    assert_eq!(still.clone().confirmed("u-a", Some("u-a")), still);
}

fn refused_of(message: &str) -> Outcome {
    let (cause, message) = (Cause::Refused, message.to_owned());
    Outcome::Refused(Refusal { cause, is_deletion: false, message, wait: at(5) })
}

/// `kubectl drain --skip-wait-for-delete-timeout`, and Cluster API's rule `Skip`: they are not waited for, and do not come back as
/// late ones.
#[test]
fn skipped_pods_are_neither_evicted_nor_waited_for() {
    let mut pods = Pods::default();
    pods.list([seen("a"), seen("agent"), ends("stuck", 100, &["x/y"]), ends("ending", 100, &[])]);
    let is_agent = |pod: &Pod| pod.name == "agent";
    pods.skip(is_agent, Some(at(60)), second(130));
    assert_eq!((to_evict(&pods, at(0)), pods.is_drained()), (vec!["a".to_owned()], false));
    assert_eq!(pods.skipped_at(at(60), second(130)), Some(at(30)));
    assert_eq!(pods.skipped().unwrap(), "pods shop/agent were skipped, and are still on the node");
    assert!(!pods.put(seen("agent")) && pods.late().is_none());
    pods.remove("u-a");
    pods.skip(is_agent, None, second(1000));
    assert!(!pods.is_drained(), "without the rule stuck pods are waited for");
    pods.skip(is_agent, Some(at(60)), second(160));
    assert_eq!((pods.is_drained(), pods.skipped_at(at(60), second(160))), (true, None));
    assert_eq!(
        pods.skipped().unwrap(),
        "pods shop/agent, shop/ending, shop/stuck were skipped, and are still on the node"
    );
    pods.list([seen("agent")]);
    assert_eq!(pods.skipped().unwrap(), "pods shop/agent were skipped, and are still on the node");
}

#[test]
fn refused_pods_are_due_at_once_when_they_are_to_be_deleted() {
    let mut pods = Pods::default();
    pods.list([seen("a"), ends("b", 100, &[])]);
    pods.answered("u-a", refused("needs 1"), KnownBudgets::Unknown, at(0));
    assert!(to_evict(&pods, at(1)).is_empty());
    pods.retry_refused();
    assert_eq!(to_evict(&pods, at(1)), ["a"]);
}
