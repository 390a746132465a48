//! Condition `Accepted` of a policy.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::*;
use super::world::{decide, node, now, pool};
use crate::api::RolloutPolicy;

fn policy(name: &str, spec: &serde_json::Value) -> RolloutPolicy {
    serde_json::from_value(json!({ "metadata": { "name": name, "generation": 3 }, "spec": spec })).unwrap()
}

/// Status, reason and message.
fn accepted(status: &RolloutPolicyStatus) -> (&str, &str, &str) {
    let found = status.conditions.iter().flatten().find(|one| one.type_ == ACCEPTED).unwrap();
    (&found.status, found.reason.as_deref().unwrap(), found.message.as_deref().unwrap())
}

#[test]
fn policy_without_pool_names_next_step() {
    let pools = BTreeSet::from(["worker"]);
    let named = policy("night", &json!({ "poolRef": { "name": "wroker" } }));
    let (by_name, followed) = (policy("gpu", &json!({})), policy("worker", &json!({})));
    let found = unfollowed(&[&named, &by_name, &followed], &[], &pools, now());
    let names: Vec<_> = found.iter().map(|(policy, _)| policy.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["gpu", "night"]);
    let expected = [
        "RolloutPolicy gpu is for pool gpu, which does not exist; set spec.poolRef.name, create the pool, or delete the policy",
        "RolloutPolicy night is for pool wroker, which does not exist; correct spec.poolRef.name, create the pool, or delete the policy",
    ];
    for ((_, status), message) in found.iter().zip(expected) {
        assert_eq!(accepted(status), ("False", "PoolNotFound", message));
        assert_eq!((status.phase.as_deref(), status.invalid.as_deref()), (Some("Invalid"), Some(message)));
        assert_eq!(status.observed_generation, Some(3));
    }
}

/// The status that is written is decided again: it is not written for ever.
#[test]
fn refused_policy_is_written_once() {
    let mut refused = policy("gpu", &json!({}));
    let first = unfollowed(&[&refused], &[], &BTreeSet::new(), now()).remove(0).1;
    refused.status = Some(first.clone());
    // The clock goes on, or is set back.
    for hours in [1, -8760] {
        let then = now() + jiff::SignedDuration::from_hours(hours);
        assert_eq!(unfollowed(&[&refused], &[], &BTreeSet::new(), then).remove(0).1, first);
    }
}

#[test]
fn policies_of_one_pool_name_each_other() {
    let pools = BTreeSet::from(["worker"]);
    let (one, other) =
        (policy("worker", &json!({})), policy("night", &json!({ "poolRef": { "name": "worker" } })));
    let found = unfollowed(&[&one, &other], &[], &pools, now());
    assert_eq!(found.len(), 2);
    for (_, status) in &found {
        let (status, reason, message) = accepted(status);
        assert_eq!((status, reason), ("False", "PolicyInvalid"));
        assert!(message.starts_with("RolloutPolicy worker and RolloutPolicy night are both for pool worker"));
    }
    // Without a pool, that is the first thing to mend.
    let found = unfollowed(&[&one, &other], &[], &BTreeSet::new(), now());
    assert!(found.iter().all(|(_, status)| accepted(status).1 == "PoolNotFound"));
}

/// It ends when the pool is decided for, and stays through a new target.
#[test]
fn policy_of_pool_is_accepted() {
    let mut refused = policy("worker", &json!({}));
    refused.status = Some(unfollowed(&[&refused], &[], &BTreeSet::new(), now()).remove(0).1);
    let pool = Pool { policies: vec![Policy::from_policy(&refused)], ..pool("b") };
    let status = decide(&pool, &[node("n", "a")]).policy_status.unwrap();
    assert_eq!(accepted(&status), ("True", "PoolFound", ""));
    assert_eq!((status.phase.as_deref(), status.invalid), (Some("Updating"), None));
    let wrong = Policy {
        spec: serde_json::from_value(json!({ "nodeTimeout": "0s" })).unwrap(),
        ..Policy::from_policy(&refused)
    };
    let pool = Pool { policies: vec![wrong], ..pool };
    let status = decide(&pool, &[node("n", "a")]).policy_status.unwrap();
    let (is_accepted, reason, message) = accepted(&status);
    assert_eq!((is_accepted, reason), ("False", "PolicyInvalid"));
    assert!(message.starts_with("RolloutPolicy worker: spec.nodeTimeout: it is zero"), "{message}");
}

/// Only its pool and its status are known. It is refused even where its pool is not known to exist.
#[test]
fn unreadable_policy_is_refused_and_written_once() {
    let mut night = policy("night", &json!({ "poolRef": { "name": "gpu" } }));
    let cause = "a field is not a sequence";
    let refused = |night: &RolloutPolicy, hours: i64| {
        let later = now() + jiff::SignedDuration::from_hours(hours);
        unfollowed(&[], &[(night, cause)], &BTreeSet::from(["worker"]), later).remove(0).1
    };
    let first = refused(&night, 0);
    let message = "RolloutPolicy night can't be read: a field is not a sequence; correct it, or delete it";
    assert_eq!(accepted(&first), ("False", "PolicyInvalid", message));
    night.status = Some(first.clone());
    assert_eq!(refused(&night, 1), first);
}
