//! A halt outlives its policy's time with another pool, with a second policy, without a spec that can be followed, and contests.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::super::*;
use super::policy::{minutes, phase, settle, with_policy};
use super::world::*;
use crate::api::pool::Configuration;

fn spec() -> Value {
    json!({ "canary": { "nodes": 1 }, "onFailure": "RollBack" })
}

/// A pool whose canary failed `b` and returned to `a`.
fn halted() -> (Pool, Vec<Node>) {
    let mut pool = with_policy("b", spec());
    pool.status.configuration = Some(Configuration { name: Some("a".to_owned()), source: None });
    let mut nodes = nodes(3, "a");
    assert_eq!(settle(&mut pool, &mut nodes, now()), ["n00"]);
    fail(&mut nodes, "n00", "disk full");
    settle(&mut pool, &mut nodes, now());
    finish(&mut nodes, "n00");
    assert_eq!(settle(&mut pool, &mut nodes, now()), [""; 0]);
    assert_eq!(halt(&pool, &nodes), ("True".to_owned(), "TooManyFailures".to_owned()));
    (pool, nodes)
}

/// Status and reason of the condition.
fn halt(pool: &Pool, nodes: &[Node]) -> (String, String) {
    let (status, reason, _) = condition(&decide_at(pool, nodes, minutes(1)), "RolloutHalted");
    (status, reason)
}

fn another_policy(name: &str) -> Policy {
    Policy { name: name.to_owned(), ..with_policy("b", spec()).policies.remove(0) }
}

/// The pool is decided for at least once, and stays halted without another write to a node.
fn stays_halted(pool: &mut Pool, nodes: &mut [Node]) {
    assert_eq!(settle(pool, nodes, minutes(1)), [""; 0]);
    assert_eq!(halt(pool, nodes), ("True".to_owned(), "TooManyFailures".to_owned()), "{pool:?}");
}

#[test]
fn halt_outlives_time_of_policy_with_another_pool() {
    let (mut pool, mut nodes) = halted();
    let mut other = Pool {
        name: "other".to_owned(),
        policies: std::mem::take(&mut pool.policies),
        ..super::world::pool("o2")
    };
    let mut others = super::world::nodes(2, "o1");
    settle(&mut other, &mut others, now());
    assert_eq!(other.policies[0].status.target.as_ref().unwrap().config, "o2");
    assert_eq!(halt(&other, &others).0, "False");
    stays_halted(&mut pool, &mut nodes);
    pool.policies = std::mem::take(&mut other.policies);
    stays_halted(&mut pool, &mut nodes);
    assert_eq!(phase(&pool), "Halted");
    let message = condition(&decide(&pool, &nodes), "RolloutHalted").2;
    assert!(message.contains("came to this pool"), "{message}");
    // As docs/rollouts.md says: a new value resumes, and another target ends it.
    let mut resumed = pool.clone();
    resumed.policies[0].resume = Some("1".to_owned());
    assert_eq!(settle(&mut resumed, &mut nodes.clone(), minutes(2)), ["n00"]);
    pool.configuration.name = Some("c".to_owned());
    assert_eq!(settle(&mut pool, &mut nodes, minutes(2)), ["n00"]);
}

/// The policy had no time to follow the other pool, or a pool that does not exist.
#[test]
fn halt_outlives_moment_of_policy_with_another_pool() {
    let (mut pool, mut nodes) = halted();
    pool.policies[0].status.pool = Some("other".to_owned());
    stays_halted(&mut pool, &mut nodes);
    pool.policies[0].status.target =
        Some(crate::api::rollout_policy::PolicyTarget { config: "o".to_owned(), image: None });
    pool.policies[0].status.halt = None;
    stays_halted(&mut pool, &mut nodes);
}

/// The number of nodes that had failed is not forgotten: fewer allowed ones end no halt.
#[test]
fn halt_without_its_policy_remembers_how_many_failed() {
    let mut pool = with_policy("b", json!({ "canary": { "nodes": 3 }, "allowedFailures": 1 }));
    pool.max_unavailable = Some(IntOrString::Int(3));
    let mut nodes = nodes(5, "a");
    assert_eq!(settle(&mut pool, &mut nodes, now()).len(), 3);
    for name in ["n00", "n01", "n02"] {
        fail(&mut nodes, name, "disk full");
    }
    stays_halted(&mut pool, &mut nodes);
    let policies = std::mem::take(&mut pool.policies);
    stays_halted(&mut pool, &mut nodes);
    let message = condition(&decide(&pool, &nodes), "RolloutHalted").2;
    assert!(
        message.starts_with("3 failed nodes, and the RolloutPolicy of pool worker was deleted"),
        "{message}"
    );
    pool.policies = vec![Policy { status: RolloutPolicyStatus::default(), ..policies[0].clone() }];
    stays_halted(&mut pool, &mut nodes);
    assert_eq!(pool.policies[0].status.halt.as_ref().unwrap().failed, 3);
}

/// Neither of two policies is followed: the halt is of the pool.
#[test]
fn halt_outlives_time_of_two_policies_and_change_to_second_one() {
    let (mut pool, mut nodes) = halted();
    pool.policies.push(another_policy("night"));
    stays_halted(&mut pool, &mut nodes);
    assert_eq!(condition(&decide(&pool, &nodes), "RolloutInvalid").1, "PolicyInvalid");
    pool.policies.remove(0);
    stays_halted(&mut pool, &mut nodes);
    assert_eq!(phase(&pool), "Halted");
    // Another target during that time is not halted.
    let (mut pool, mut nodes) = halted();
    pool.policies.push(another_policy("night"));
    stays_halted(&mut pool, &mut nodes);
    pool.configuration.name = Some("c".to_owned());
    settle(&mut pool, &mut nodes, minutes(1));
    assert_eq!(halt(&pool, &nodes), ("False".to_owned(), "PolicyFollowed".to_owned()));
    pool.policies.remove(0);
    assert_eq!(settle(&mut pool, &mut nodes, minutes(1)), ["n00"]);
}

/// A spec that can't be followed, one that can't be read, and the policy's deletion then.
#[test]
fn halt_outlives_policy_that_is_invalid_when_it_is_deleted() {
    for is_readable in [true, false] {
        let (mut pool, mut nodes) = halted();
        if is_readable {
            pool.policies[0].spec = serde_json::from_value(json!({ "nodeTimeout": "0s" })).unwrap();
        } else {
            pool.policies.clear();
            pool.unreadable_policy = Some("it can't be read".to_owned());
        }
        stays_halted(&mut pool, &mut nodes);
        pool.policies.clear();
        pool.unreadable_policy = None;
        stays_halted(&mut pool, &mut nodes);
        pool.policies = vec![another_policy("worker")];
        stays_halted(&mut pool, &mut nodes);
    }
}

/// In image mode the target is not known for a time.
#[test]
fn halt_outlives_time_of_target_without_image() {
    let (mut pool, mut nodes) = halted();
    pool.layering = Layering::Waiting { machine_os_config: "worker".to_owned() };
    stays_halted(&mut pool, &mut nodes);
    pool.policies.clear();
    stays_halted(&mut pool, &mut nodes);
    pool.policies = vec![another_policy("worker")];
    pool.layering = Layering::None;
    stays_halted(&mut pool, &mut nodes);
}

/// A kind that can't be read now may hide the target of another program.
#[test]
fn target_that_is_not_certain_ends_no_halt() {
    for target in ["a", "c", ""] {
        let (mut pool, mut nodes) = halted();
        pool.unread = Some("nodes can't be read".to_owned());
        pool.configuration.name = Some(target.to_owned());
        stays_halted(&mut pool, &mut nodes);
        let policies = std::mem::take(&mut pool.policies);
        stays_halted(&mut pool, &mut nodes);
        pool.policies = policies;
        pool.unread = None;
        pool.configuration.name = Some("b".to_owned());
        stays_halted(&mut pool, &mut nodes);
    }
}

/// The contest began before a node had the target, or before the pool said that a policy rules its rollout.
#[test]
fn policy_deleted_in_contest_halts_rollout() {
    for target in ["a", "b"] {
        let mut pool = with_policy("a", json!({ "canary": { "nodes": 1, "soak": "1h" } }));
        let mut nodes = nodes(3, "a");
        settle(&mut pool, &mut nodes, now());
        pool.configuration.name = Some(target.to_owned());
        pool.contested = Some("another program".to_owned());
        pool.own_target = Some("b".to_owned());
        assert_eq!(settle(&mut pool, &mut nodes, minutes(1)), [""; 0]);
        assert_eq!(halt(&pool, &nodes), ("False".to_owned(), "PolicyFollowed".to_owned()));
        pool.policies.clear();
        assert_eq!(settle(&mut pool, &mut nodes, minutes(2)), [""; 0]);
        assert_eq!(halt(&pool, &nodes), ("True".to_owned(), "PolicyDeleted".to_owned()));
        // A new process does not know its own target yet.
        pool.own_target = None;
        assert_eq!(settle(&mut pool, &mut nodes, minutes(2)), [""; 0]);
        assert_eq!(halt(&pool, &nodes), ("True".to_owned(), "PolicyDeleted".to_owned()));
        (pool.contested, pool.configuration.name) = (None, Some("b".to_owned()));
        assert_eq!(settle(&mut pool, &mut nodes, minutes(3)), [""; 0]);
        assert_eq!(halt(&pool, &nodes), ("True".to_owned(), "PolicyDeleted".to_owned()));
        pool.resume = Some("b".to_owned());
        assert_eq!(settle(&mut pool, &mut nodes, minutes(4)), ["n00"]);
    }
}

/// Nothing is under way where all nodes have the own target.
#[test]
fn policy_deleted_in_contest_of_complete_rollout_halts_nothing() {
    let mut pool = with_policy("b", json!({ "canary": { "nodes": 1 } }));
    let mut nodes = nodes(3, "b");
    settle(&mut pool, &mut nodes, now());
    pool.configuration.name = Some("a".to_owned());
    pool.contested = Some("another program".to_owned());
    pool.own_target = Some("b".to_owned());
    settle(&mut pool, &mut nodes, minutes(1));
    pool.policies.clear();
    settle(&mut pool, &mut nodes, minutes(1));
    assert_eq!(halt(&pool, &nodes).0, "False");
}

/// A halt in a contest stays with its own target, and ends with a new own one.
#[test]
fn halt_outlives_policy_that_is_deleted_in_contest() {
    let (mut pool, mut nodes) = halted();
    pool.configuration.name = Some("a".to_owned());
    pool.contested = Some("another program".to_owned());
    pool.own_target = Some("b".to_owned());
    stays_halted(&mut pool, &mut nodes);
    pool.policies.clear();
    stays_halted(&mut pool, &mut nodes);
    (pool.contested, pool.configuration.name) = (None, Some("b".to_owned()));
    stays_halted(&mut pool, &mut nodes);
    pool.policies = vec![another_policy("worker")];
    stays_halted(&mut pool, &mut nodes);
}

/// The rollout of `b` goes on without its policy, by an annotation of the pool, and then again with one whose nodes fail.
fn resumed_and_halted_again() -> (Pool, Vec<Node>) {
    let (mut pool, mut nodes) = halted();
    pool.policies.clear();
    stays_halted(&mut pool, &mut nodes);
    pool.resume = Some("b".to_owned());
    assert_eq!(settle(&mut pool, &mut nodes, minutes(2)), ["n00"]);
    assert_eq!(halt(&pool, &nodes).0, "False");
    finish(&mut nodes, "n00");
    pool.policies = vec![another_policy("worker")];
    // The second one is the canary of the policy.
    assert_eq!(settle(&mut pool, &mut nodes, minutes(3)), ["n01"]);
    fail(&mut nodes, "n01", "disk full");
    settle(&mut pool, &mut nodes, minutes(4));
    finish(&mut nodes, "n01");
    stays_halted(&mut pool, &mut nodes);
    (pool, nodes)
}

/// An annotation that a person left on the pool ends the halt that it was for, and none after it: also for a new process, and after another
/// target.
#[test]
fn annotation_of_pool_resumes_once() {
    let (mut pool, mut nodes) = resumed_and_halted_again();
    pool.policies.clear();
    stays_halted(&mut pool, &mut nodes);
    let rollout = decide_at(&pool, &nodes, minutes(5));
    assert_eq!(condition(&rollout, "RolloutResumed").0, "True");
    // The command of the message has another value each time.
    let message = condition(&rollout, "RolloutHalted").2;
    assert!(message.ends_with("machine-config-agent.io/resume=\"b $(date)\""), "{message}");
    for (value, is_followed) in [("b", false), ("a 2", false), ("bb", false), ("b 2", true)] {
        let (mut pool, mut nodes) = (pool.clone(), nodes.clone());
        pool.resume = Some(value.to_owned());
        assert_eq!(!settle(&mut pool, &mut nodes, minutes(6)).is_empty(), is_followed, "{value}");
    }
    // Removed, and set again: a person has looked.
    let (mut again, mut other) = (pool.clone(), nodes.clone());
    again.resume = None;
    stays_halted(&mut again, &mut other);
    assert_eq!(condition(&decide(&again, &other), "RolloutResumed").0, "False");
    again.resume = Some("b".to_owned());
    assert!(!settle(&mut again, &mut other, minutes(7)).is_empty());
    // Another target, and this one again.
    pool.configuration.name = Some("c".to_owned());
    settle(&mut pool, &mut nodes, minutes(8));
    assert_eq!(condition(&decide(&pool, &nodes), "RolloutResumed").0, "True");
}

/// A status that is refused loses no annotation that was followed.
#[test]
fn followed_annotation_is_remembered_without_status() {
    let (mut pool, nodes) = halted();
    pool.policies.clear();
    settle(&mut pool, &mut nodes.clone(), minutes(1));
    pool.resume = Some("b".to_owned());
    for _ in 0..3 {
        let rollout = decide_at(&pool, &nodes, minutes(2));
        assert_eq!(condition(&rollout, "RolloutHalted").0, "False");
        assert_eq!(condition(&rollout, "RolloutResumed").0, "True");
        let of = |type_| rollout.status.conditions.iter().flatten().find(|one| one.type_ == type_).cloned();
        (pool.halted, pool.resumed) = (of("RolloutHalted"), of("RolloutResumed"));
    }
}

/// The pool's status is refused at the moment of the halt, and the process begins again: what the policies remember holds.
#[test]
fn halt_outlives_refused_status_and_new_process() {
    let mut pool = with_policy("b", spec());
    pool.status.configuration = Some(Configuration { name: Some("a".to_owned()), source: None });
    let mut nodes = nodes(3, "a");
    assert_eq!(settle(&mut pool, &mut nodes, now()), ["n00"]);
    fail(&mut nodes, "n00", "disk full");
    let before = pool.status.clone();
    let refused = |pool: &mut Pool, nodes: &mut [Node]| {
        let rollout = decide_at(pool, nodes, minutes(1));
        write(&rollout, pool, nodes);
        pool.status = before.clone();
        rollout
    };
    for _ in 0..3 {
        refused(&mut pool, &mut nodes);
    }
    // A node that returned would show nothing of its failure.
    assert_eq!(nodes[0].desired, Pair::new("b", None));
    assert!(pool.policies[0].status.halt.is_some());
    pool.is_status_failing = true;
    let rollout = refused(&mut pool, &mut nodes);
    assert_eq!(rollout.policy_status.as_ref().unwrap().phase.as_deref(), Some("Unrecorded"));
    let is_halted = |pool: &Pool| halt(pool, &nodes) == ("True".to_owned(), "TooManyFailures".to_owned());
    // The policy is deleted, and made again: the failure is seen.
    let mut again = Pool { policies: Vec::new(), ..pool.clone() };
    assert_eq!(halt(&again, &nodes).1, "PolicyDeleted");
    again.policies = vec![another_policy("worker")];
    assert_eq!(settle(&mut again, &mut nodes.clone(), minutes(2)), ["n00"]);
    assert!(is_halted(&again));
    // It can't be followed, or not be read, or is one of two.
    let mut invalid = pool.clone();
    invalid.policies[0].spec = serde_json::from_value(json!({ "nodeTimeout": "0s" })).unwrap();
    assert!(is_halted(&invalid));
    let memory = Some(pool.policies[0].status.clone());
    let unreadable = Pool {
        policies: Vec::new(),
        unreadable_policy: Some("it can't be read".to_owned()),
        unreadable_memory: memory,
        ..pool.clone()
    };
    assert!(is_halted(&unreadable));
    let mut two = pool.clone();
    two.policies.push(another_policy("night"));
    assert!(is_halted(&two));
    // It is written at last.
    pool.is_status_failing = false;
    assert_eq!(settle(&mut pool, &mut nodes, minutes(3)), ["n00"]);
    assert_eq!(nodes[0].desired, Pair::new("a", None));
}
