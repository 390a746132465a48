//! With a policy: canary, waves, soak, halt, return, windows, prefetch.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machine_config_core::model::faults::Causes;
use serde_json::{Value, json};

use super::super::*;
use super::world::*;
use crate::api::pool::Configuration;
use crate::cost::NodeCost;

pub(super) fn with_policy(config: &str, spec: Value) -> Pool {
    let policy = Policy {
        name: "worker".to_owned(),
        generation: Some(1),
        spec: serde_json::from_value(spec).unwrap(),
        ..Policy::default()
    };
    Pool { policies: vec![policy], ..pool(config) }
}

/// Decides and writes until no write is left at this time. Returns the nodes that were given a target.
pub(super) fn settle(pool: &mut Pool, nodes: &mut [Node], now: Timestamp) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..20 {
        let rollout = decide_at(pool, nodes, now);
        let memory = rollout.policy_status.clone();
        let is_written = rollout.patches.is_empty()
            && rollout.status == pool.status
            && pool
                .policies
                .iter()
                .all(|policy| memory.as_ref().is_none_or(|memory| policy.status == *memory));
        if is_written {
            return all;
        }
        all.extend(given(&rollout).into_iter().map(str::to_owned));
        write(&rollout, pool, nodes);
    }
    panic!("it never comes to rest: {:?}", decide_at(pool, nodes, now));
}

fn finish_all(nodes: &mut [Node], names: &[String]) {
    for name in names {
        finish(nodes, name);
    }
}

pub(super) fn phase(pool: &Pool) -> &str {
    pool.policies[0].status.phase.as_deref().unwrap()
}

pub(super) fn minutes(minutes: i64) -> Timestamp {
    now() + SignedDuration::from_mins(minutes)
}

#[test]
fn canary_soaks_then_waves_then_rest() {
    let spec = json!({"canary": {"nodes": 1, "soak": "20m"}, "waves": [{"nodes": "25%"}]});
    let mut pool = Pool { max_unavailable: Some(IntOrString::Int(20)), ..with_policy("b", spec) };
    let mut nodes = nodes(8, "a");
    let canary = settle(&mut pool, &mut nodes, now());
    assert_eq!(canary, ["n00"]);
    assert!(settle(&mut pool, &mut nodes, minutes(60)).is_empty(), "it is at work");
    finish_all(&mut nodes, &canary);
    assert!(settle(&mut pool, &mut nodes, minutes(61)).is_empty());
    assert_eq!(phase(&pool), "Soaking");
    // Woken as often as it asks for, it goes on after the soak and not before.
    let mut at = minutes(61);
    let wave = loop {
        at = decide_at(&pool, &nodes, at).wake.expect("a soak ends by time alone");
        let wave = settle(&mut pool, &mut nodes, at);
        if !wave.is_empty() {
            break wave;
        }
    };
    assert!(at >= minutes(81) && at < minutes(83), "{at}");
    assert_eq!(wave, ["n01", "n02"]);
    finish_all(&mut nodes, &wave);
    let rest = settle(&mut pool, &mut nodes, at);
    assert_eq!(rest.len(), 5);
    finish_all(&mut nodes, &rest);
    settle(&mut pool, &mut nodes, at);
    assert_eq!(phase(&pool), "Complete");
    assert_eq!(pool.policies[0].status.last_good.as_ref().unwrap().config, "b");
}

/// A clock that jumps ahead skips no soak; one that was ahead when it was recorded wedges none.
#[test]
fn clock_jumps_neither_skip_nor_wedge_soak() {
    let spec = json!({"canary": {"nodes": 1, "soak": "10h"}});
    let mut pool = with_policy("b", spec);
    let mut nodes = nodes(3, "a");
    let canary = settle(&mut pool, &mut nodes, now());
    finish_all(&mut nodes, &canary);
    settle(&mut pool, &mut nodes, now());
    assert!(settle(&mut pool, &mut nodes, now() + SignedDuration::from_hours(24 * 365)).is_empty());
    assert_eq!(phase(&pool), "Soaking");
    // Back again: the record is a year ahead.
    let mut at = minutes(1);
    let mut rounds = 0;
    while settle(&mut pool, &mut nodes, at).is_empty() {
        at = decide_at(&pool, &nodes, at).wake.unwrap();
        rounds += 1;
        assert!(rounds < 1000, "wedged");
    }
    let watched = at.duration_since(minutes(1));
    assert!(
        watched >= SignedDuration::from_mins(570) && watched <= SignedDuration::from_mins(610),
        "{watched}"
    );
}

#[test]
fn failed_canary_halts_with_its_cause_until_corrected() {
    let mut pool = with_policy("b", json!({"canary": {"nodes": 1}}));
    let mut nodes = nodes(4, "a");
    settle(&mut pool, &mut nodes, now());
    fail(&mut nodes, "n00", "unit app.service failed");
    assert!(settle(&mut pool, &mut nodes, minutes(1)).is_empty());
    assert_eq!(phase(&pool), "Halted");
    let (status, reason, message) = condition(&decide(&pool, &nodes), "RolloutHalted");
    assert_eq!((&*status, &*reason), ("True", "TooManyFailures"));
    assert!(message.contains("first node n00: unit app.service failed;"), "{message}");
    // It stays halted when the node recovers, and is over when nothing is left to halt.
    finish(&mut nodes, "n00");
    assert!(settle(&mut pool, &mut nodes, minutes(2)).is_empty());
    assert_eq!(phase(&pool), "Halted");
    pool.configuration.name = Some("c".to_owned());
    assert_eq!(settle(&mut pool, &mut nodes, minutes(3)).len(), 1);
    assert_eq!(condition(&decide_at(&pool, &nodes, minutes(3)), "RolloutHalted").0, "False");
}

/// Another program sets the target back to the config that the nodes had: with the own one it is as it was.
#[test]
fn target_of_another_program_ends_no_halt() {
    let mut pool = with_policy("b", json!({"canary": {"nodes": 1}}));
    let mut nodes = nodes(4, "a");
    settle(&mut pool, &mut nodes, now());
    fail(&mut nodes, "n00", "unit app.service failed");
    assert!(settle(&mut pool, &mut nodes, minutes(1)).is_empty());
    let halt = pool.policies[0].status.halt.clone();
    assert!(halt.is_some());
    pool.configuration.name = Some("a".to_owned());
    pool.contested = Some("another program".to_owned());
    assert!(settle(&mut pool, &mut nodes, minutes(2)).is_empty());
    assert_eq!(phase(&pool), "Contested");
    let rollout = decide_at(&pool, &nodes, minutes(2));
    assert_eq!(condition(&rollout, "RolloutHalted").0, "True");
    assert!(rollout.patches.is_empty(), "{:?}", rollout.patches);
    pool.configuration.name = Some("b".to_owned());
    pool.contested = None;
    assert!(settle(&mut pool, &mut nodes, minutes(3)).is_empty());
    assert_eq!(phase(&pool), "Halted");
    assert_eq!(pool.policies[0].status.halt, halt);
}

#[test]
fn halt_is_resumed_once_by_each_value_or_by_more_allowed_failures() {
    let mut pool = with_policy("b", json!({}));
    pool.max_unavailable = Some(IntOrString::Int(2));
    let mut nodes = nodes(5, "a");
    settle(&mut pool, &mut nodes, now());
    fail(&mut nodes, "n00", "x");
    finish(&mut nodes, "n01");
    assert!(settle(&mut pool, &mut nodes, now()).is_empty());
    pool.policies[0].resume = Some("1".to_owned());
    assert_eq!(settle(&mut pool, &mut nodes, now()), ["n02"]);
    fail(&mut nodes, "n02", "y");
    assert!(settle(&mut pool, &mut nodes, now()).is_empty());
    assert_eq!(phase(&pool), "Halted", "the value was followed before");
    assert_eq!(pool.policies[0].status.halt.as_ref().unwrap().failed, 2);
    pool.max_unavailable = Some(IntOrString::Int(3));
    pool.policies[0].spec.allowed_failures = Some(IntOrString::Int(2));
    pool.policies[0].generation = Some(2);
    assert_eq!(settle(&mut pool, &mut nodes, now()), ["n03"]);
}

#[test]
fn failed_nodes_return_to_last_good_config() {
    let mut pool = with_policy("a", json!({"onFailure": "RollBack"}));
    let mut nodes = nodes(4, "a");
    settle(&mut pool, &mut nodes, now());
    pool.configuration.name = Some("b".to_owned());
    assert_eq!(settle(&mut pool, &mut nodes, now()), ["n00"]);
    fail(&mut nodes, "n00", "x");
    assert_eq!(settle(&mut pool, &mut nodes, now()), ["n00"]);
    assert_eq!(nodes[0].desired, Pair::new("a", None));
    finish(&mut nodes, "n00");
    assert!(settle(&mut pool, &mut nodes, now()).is_empty());
    assert_eq!(phase(&pool), "Halted");
}

/// Nodes that returned fail nothing any more: an edit alone would begin the bad config again at the canary.
#[test]
fn edit_of_policy_after_return_ends_no_halt() {
    let mut pool = with_policy("b", json!({ "canary": { "nodes": 1 }, "onFailure": "RollBack" }));
    pool.status.configuration = Some(Configuration { name: Some("a".to_owned()), source: None });
    let mut nodes = nodes(3, "a");
    settle(&mut pool, &mut nodes, now());
    fail(&mut nodes, "n00", "disk full");
    settle(&mut pool, &mut nodes, now());
    assert_eq!(nodes[0].desired, Pair::new("a", None));
    finish(&mut nodes, "n00");
    settle(&mut pool, &mut nodes, now());
    for (generation, spec) in [
        (2, json!({ "canary": { "nodes": 2 }, "onFailure": "RollBack" })),
        (3, json!({ "canary": { "nodes": 1 }, "onFailure": "Halt", "nodeTimeout": "9h" })),
        (4, json!({ "allowedFailures": 0 })),
    ] {
        pool.policies[0].generation = Some(generation);
        pool.policies[0].spec = serde_json::from_value(spec).unwrap();
        assert_eq!(settle(&mut pool, &mut nodes, now()), [""; 0], "{generation}");
        assert_eq!(phase(&pool), "Halted", "{generation}");
    }
    // As docs/rollouts.md says: at least the failed nodes.
    pool.policies[0].generation = Some(5);
    pool.policies[0].spec = serde_json::from_value(json!({ "allowedFailures": 1 })).unwrap();
    assert_eq!(settle(&mut pool, &mut nodes, now()).len(), 1);
}

/// The nodes that a canary keeps back would all get the target at once.
#[test]
fn policy_deleted_in_rollout_halts_it_until_a_person_decides() {
    let start = || {
        let mut pool = with_policy("b", json!({ "canary": { "nodes": 1, "soak": "1h" } }));
        let mut nodes = nodes(4, "a");
        assert_eq!(settle(&mut pool, &mut nodes, now()), ["n00"]);
        finish(&mut nodes, "n00");
        settle(&mut pool, &mut nodes, minutes(1));
        assert_eq!(phase(&pool), "Soaking");
        let policies = std::mem::take(&mut pool.policies);
        assert_eq!(settle(&mut pool, &mut nodes, minutes(2)), [""; 0]);
        (pool, nodes, policies)
    };
    let (mut pool, mut nodes, policies) = start();
    let (status, reason, message) = condition(&decide_at(&pool, &nodes, minutes(3)), "RolloutHalted");
    assert_eq!((&*status, &*reason), ("True", "PolicyDeleted"));
    assert!(message.contains("machine-config-agent.io/resume=\"b $(date)\""), "{message}");
    // Without nodes for a moment: none of them has the target.
    let mut none = Vec::new();
    settle(&mut pool, &mut none, minutes(3));
    assert_eq!(condition(&decide_at(&pool, &none, minutes(3)), "RolloutHalted").1, "PolicyDeleted");
    assert_eq!(settle(&mut pool, &mut nodes, minutes(3)), [""; 0]);
    // Another value is about another target.
    pool.resume = Some("a".to_owned());
    assert_eq!(settle(&mut pool, &mut nodes, minutes(4)), [""; 0]);
    pool.resume = Some("b".to_owned());
    assert_eq!(settle(&mut pool, &mut nodes, minutes(5)), ["n01"]);
    assert_eq!(condition(&decide_at(&pool, &nodes, minutes(5)), "RolloutHalted").0, "False");
    // It is created again: its gates hold.
    let (mut pool, mut nodes, _) = start();
    pool.policies = policies;
    assert_eq!(settle(&mut pool, &mut nodes, minutes(6)), [""; 0]);
    assert_eq!(phase(&pool), "Soaking");
    // Another target without a policy follows the operator's rules.
    let (mut pool, mut nodes, _) = start();
    pool.configuration.name = Some("c".to_owned());
    assert_eq!(settle(&mut pool, &mut nodes, minutes(7)).len(), 1);
    // A policy that is deleted after its rollout asks nothing.
    let mut pool = with_policy("b", json!({ "canary": { "nodes": 1, "soak": "1h" } }));
    let mut all = super::world::nodes(2, "b");
    settle(&mut pool, &mut all, now());
    pool.policies.clear();
    pool.configuration.name = Some("d".to_owned());
    assert_eq!(settle(&mut pool, &mut all, now()).len(), 1);
}

/// The pool's condition makes a rollout halt without its policy: before the API server has it, no node is given the target.
#[test]
fn no_node_gets_target_before_pool_says_that_policy_is_followed() {
    let mut pool = with_policy("b", json!({ "canary": { "nodes": 1, "soak": "1h" } }));
    let nodes = nodes(4, "a");
    let unwritten = pool.status.clone();
    for _ in 0..5 {
        let rollout = decide(&pool, &nodes);
        assert_eq!(given(&rollout), [""; 0]);
        assert_eq!(condition(&rollout, "RolloutHalted").1, "PolicyFollowed");
        write(&rollout, &mut pool, &mut nodes.clone());
        pool.status = unwritten.clone();
    }
    assert_eq!(phase(&pool), "Updating");
    pool.is_status_failing = true;
    let rollout = decide(&pool, &nodes);
    assert_eq!(rollout.policy_status.as_ref().unwrap().phase.as_deref(), Some("Unrecorded"));
    assert_eq!(
        condition(&rollout, "RolloutProgressing").1,
        "Updating",
        "its status is written, or says nothing"
    );
    // What was decided counts as well: this process knows of the policy.
    let halted = rollout.status.conditions.iter().flatten().find(|one| one.type_ == "RolloutHalted").cloned();
    let deleted = Pool { policies: Vec::new(), halted, ..pool.clone() };
    let rollout = decide(&deleted, &nodes);
    assert_eq!((given(&rollout).len(), &*condition(&rollout, "RolloutHalted").1), (0, "PolicyDeleted"));
    // The condition of an earlier rollout is not about this one.
    let mut nodes = nodes;
    pool.is_status_failing = false;
    assert_eq!(settle(&mut pool, &mut nodes, now()), ["n00"]);
    pool.configuration.name = Some("c".to_owned());
    let before = pool.status.clone();
    for _ in 0..5 {
        let rollout = decide(&pool, &nodes);
        assert_eq!(given(&rollout), [""; 0]);
        write(&rollout, &mut pool, &mut nodes);
        pool.status = before.clone();
    }
}

/// To delete it and create it again is no way out of a halt.
#[test]
fn halt_outlives_its_policy() {
    let spec = json!({ "canary": { "nodes": 1 }, "onFailure": "RollBack" });
    let mut pool = with_policy("b", spec.clone());
    pool.status.configuration = Some(Configuration { name: Some("a".to_owned()), source: None });
    let mut nodes = nodes(3, "a");
    settle(&mut pool, &mut nodes, now());
    fail(&mut nodes, "n00", "disk full");
    settle(&mut pool, &mut nodes, now());
    finish(&mut nodes, "n00");
    settle(&mut pool, &mut nodes, now());
    pool.policies.clear();
    assert_eq!(settle(&mut pool, &mut nodes, now()), [""; 0]);
    assert_eq!(condition(&decide(&pool, &nodes), "RolloutHalted").1, "TooManyFailures");
    pool.policies = with_policy("b", spec).policies;
    assert_eq!(settle(&mut pool, &mut nodes, now()), [""; 0]);
    assert_eq!(phase(&pool), "Halted");
    let message = condition(&decide(&pool, &nodes), "RolloutHalted").2;
    assert!(
        message.contains("1 failed nodes, 0 allowed in the rollout of b; it failed before this RolloutPolicy was created, or came to this pool;"),
        "{message}"
    );
    pool.policies[0].resume = Some("1".to_owned());
    assert_eq!(settle(&mut pool, &mut nodes, now()), ["n00"]);
}

#[test]
fn node_past_its_timeout_has_failed() {
    let mut pool = with_policy("b", json!({"nodeTimeout": "1h"}));
    let mut nodes = nodes(3, "a");
    settle(&mut pool, &mut nodes, now());
    nodes[0].state = AgentState::Working;
    assert_eq!(decide(&pool, &nodes).wake, Some(minutes(60)));
    settle(&mut pool, &mut nodes, minutes(59));
    assert_eq!(phase(&pool), "Updating");
    settle(&mut pool, &mut nodes, minutes(60));
    assert_eq!(phase(&pool), "Halted");
    assert!(pool.policies[0].status.halt.as_ref().unwrap().cause.contains("nodeTimeout"));
}

/// A clock that is set ahead makes no node late: the process knows how long it was.
#[test]
fn clock_set_ahead_fails_no_node() {
    let mut pool = with_policy("b", json!({"nodeTimeout": "1h", "onFailure": "RollBack"}));
    let mut nodes = nodes(3, "a");
    let mut clock = Clock::default();
    let minute = |minute: u64| Duration::from_secs(minute * 60);
    clock.observe(now(), minute(0));
    settle(&mut pool, &mut nodes, now());
    nodes[0].state = AgentState::Working;
    // After ten minutes somebody sets it a year ahead.
    let year = 60 * 24 * 365;
    clock.observe(minutes(year + 10), minute(10));
    let rollout = decide_by(&clock, &pool, &nodes, minutes(year + 10));
    assert_eq!(condition(&rollout, "RolloutHalted").0, "False", "{rollout:?}");
    assert_eq!(rollout.wake, Some(minutes(year + 60)), "50 minutes are left");
    // A node that is given its target after that has its own hour.
    assert_eq!(clock.passed(minutes(year + 20), minutes(year + 50)), SignedDuration::from_mins(30));
    let late = decide_by(&clock, &pool, &nodes, minutes(year + 60));
    assert_eq!(condition(&late, "RolloutHalted").0, "True");
    // Set back, in two steps: none of the jumps is time.
    clock.observe(minutes(1000), minute(70));
    assert_eq!(clock.passed(now(), minutes(1000)), SignedDuration::from_mins(70));
    clock.observe(minutes(75), minute(75));
    assert_eq!(clock.passed(now(), minutes(75)), SignedDuration::from_mins(75));
}

/// Times that a wrong clock wrote are corrected.
#[test]
fn start_in_future_is_now() {
    let mut pool = with_policy("b", json!({"nodeTimeout": "1h"}));
    let mut nodes = nodes(3, "a");
    settle(&mut pool, &mut nodes, minutes(60 * 24 * 365));
    settle(&mut pool, &mut nodes, now());
    assert_eq!(nodes[0].desired_since, Some(now()));
}

#[test]
fn image_is_prefetched_before_first_drain() {
    let image = format!("reg.test/os@sha256:{}", "c".repeat(64));
    let spec = json!({"prefetch": {"concurrency": 2, "timeout": "30m"}});
    let mut pool = with_policy("b", spec);
    pool.os_image = Some(image.clone());
    let mut nodes = nodes(5, "a");
    nodes[4].ready = false;
    assert!(settle(&mut pool, &mut nodes, now()).is_empty());
    let requested = |nodes: &[Node]| nodes.iter().filter(|node| node.prefetch_image.is_some()).count();
    assert_eq!((requested(&nodes), phase(&pool)), (2, "Prefetching"));
    nodes[0].prefetch = Some(PrefetchProgress::Done);
    nodes[1].prefetch = Some(PrefetchProgress::Failed);
    assert!(settle(&mut pool, &mut nodes, minutes(1)).is_empty());
    assert_eq!(requested(&nodes), 4);
    nodes[2].prefetch = Some(PrefetchProgress::Done);
    // An agent that can't prefetch never answers: it is not waited for longer than the timeout.
    let wake = decide_at(&pool, &nodes, minutes(2)).wake;
    assert_eq!(wake, Some(minutes(31)));
    assert!(settle(&mut pool, &mut nodes, minutes(31)).is_empty());
    nodes[4].ready = true;
    nodes[4].prefetch_image = Some(image);
    nodes[4].prefetch = Some(PrefetchProgress::Done);
    assert_eq!(settle(&mut pool, &mut nodes, minutes(32)), ["n00"]);
    finish(&mut nodes, "n00");
    settle(&mut pool, &mut nodes, minutes(33));
    assert!(nodes[0].prefetch_image.is_none(), "the agent drops what it does not need");
}

#[test]
fn nodes_get_target_in_windows_only() {
    // 2026-11-23 is a Monday.
    let spec = json!({"windows": [{"days": ["Tuesday"], "start": "02:00", "length": "2h", "timeZone": "Europe/Berlin"}]});
    let mut pool = with_policy("b", spec);
    let mut nodes = nodes(2, "a");
    assert!(settle(&mut pool, &mut nodes, now()).is_empty());
    assert_eq!(phase(&pool), "Closed");
    let opens: Timestamp = "2026-11-24T01:00:00Z".parse().unwrap();
    assert_eq!(pool.policies[0].status.next_window.as_deref(), Some("2026-11-24T01:00:00Z"));
    assert_eq!(decide(&pool, &nodes).wake, Some(opens));
    assert_eq!(settle(&mut pool, &mut nodes, opens), ["n00"]);
    finish(&mut nodes, "n00");
    assert!(settle(&mut pool, &mut nodes, opens + SignedDuration::from_hours(2)).is_empty());
    assert_eq!(phase(&pool), "Closed");
}

#[test]
fn windows_follow_clock_of_their_zone() {
    let open = |window: Value, at: &str| {
        let windows: Vec<crate::api::rollout_policy::Window> =
            serde_json::from_value(json!([window])).unwrap();
        let found = windows::Windows::collect(Some(&windows), &mut Causes::default()).at(at.parse().unwrap());
        (found.is_open, found.until.map(|at| at.to_string()).unwrap_or_default())
    };
    let night = || json!({"start": "02:30", "length": "1h", "timeZone": "Europe/Berlin"});
    // Clocks go from 02:00 to 03:00: it opens after the jump, as 03:30.
    assert_eq!(open(night(), "2026-03-29T01:29:59Z"), (false, "2026-03-29T01:30:00Z".to_owned()));
    assert_eq!(open(night(), "2026-03-29T01:30:00Z"), (true, "2026-03-29T02:30:00Z".to_owned()));
    // Clocks go back at 03:00: it opens once, at the first 02:30.
    assert!(open(night(), "2026-10-25T00:30:00Z").0);
    assert!(!open(night(), "2026-10-25T01:30:00Z").0);
    // Over midnight, over the end of the week, and windows that touch.
    let long = || json!({"days": ["Sunday"], "start": "22:00", "length": "6h"});
    assert_eq!(open(long(), "2026-11-23T03:59:59Z"), (true, "2026-11-23T04:00:00Z".to_owned()));
    assert_eq!(open(long(), "2026-11-23T04:00:00Z"), (false, "2026-11-29T22:00:00Z".to_owned()));
    assert!(open(json!({"start": "00:00", "length": "24h"}), "2026-11-23T04:00:00Z").0);
    assert!(open(json!({"days": ["Monday"], "start": "00:00", "length": "168h"}), "2026-11-29T23:59:59Z").0);
}

/// Bad input: the condition names the object, the cause and the next step, and no node is touched.
#[test]
fn invalid_policy_is_reported_and_stops_rollout() {
    let table = [
        (
            json!({"windows": [{"start": "25:00", "length": "1h"}]}),
            "RolloutPolicy worker: spec.windows[0] never opens: start \"25:00\" is not a time; write it as 22:00",
        ),
        (json!({"windows": [{"start": "22:00", "length": "0s"}]}), "length \"0s\" is not 1m to 168h"),
        (
            json!({"windows": [{"start": "22:00", "length": "1h", "timeZone": "Mars/Base"}]}),
            "timeZone \"Mars/Base\" is unknown",
        ),
        (json!({"windows": [{"start": "22:00", "length": "1h", "days": []}]}), "days is empty"),
        (json!({"windows": []}), "spec.windows is empty, so it never opens"),
        (
            json!({"canary": {"nodes": "many"}}),
            "spec.canary.nodes: \"many\" is neither a number nor a percentage",
        ),
        (
            json!({"waves": [{"nodes": 1, "soak": "soon"}]}),
            "spec.waves[0]: \"soon\" is not a duration; write it as 2h30m",
        ),
        (json!({"nodeTimeout": "0s"}), "spec.nodeTimeout: it is zero"),
        (json!({"allowedFailures": -1}), "spec.allowedFailures: -1 is neither a number"),
    ];
    for (spec, expected) in table {
        let mut pool = with_policy("b", spec);
        let mut nodes = nodes(2, "a");
        assert!(settle(&mut pool, &mut nodes, now()).is_empty());
        let (status, reason, message) = condition(&decide(&pool, &nodes), "RolloutInvalid");
        assert_eq!((&*status, &*reason), ("True", "PolicyInvalid"));
        assert!(message.contains(expected), "{message}");
        assert!(pool.policies[0].status.invalid.as_ref().unwrap().contains(expected));
        assert_eq!(condition(&decide(&pool, &nodes), "Degraded").0, "True");
    }
}

#[test]
fn policies_of_which_none_can_be_followed_stop_rollout() {
    let cause = "RolloutPolicy worker can't be read: spec.windows: no list; correct it, or delete it";
    let unreadable = Pool { unreadable_policy: Some(cause.to_owned()), ..pool("b") };
    let rollout = decide(&unreadable, &nodes(2, "a"));
    let (status, reason, message) = condition(&rollout, "RolloutInvalid");
    assert!(rollout.patches.is_empty() && status == "True" && reason == "PolicyInvalid");
    assert_eq!(message, cause);
    let mut two = with_policy("b", json!({}));
    two.policies.push(Policy { name: "other".to_owned(), ..Policy::default() });
    let rollout = decide(&two, &nodes(2, "a"));
    assert!(rollout.patches.is_empty() && rollout.policy_status.is_none());
    assert!(
        condition(&rollout, "RolloutInvalid")
            .2
            .contains("RolloutPolicy worker and RolloutPolicy other are both for pool worker")
    );
    let tag = BuildState::Built("reg.test/os:latest".to_owned());
    let tagged =
        Pool { layering: Layering::Build { machine_os_build: "b".to_owned(), state: tag }, ..pool("b") };
    let rollout = decide(&tagged, &nodes(2, "a"));
    assert!(rollout.patches.is_empty());
    assert_eq!(condition(&rollout, "RolloutInvalid").1, "ImageInvalid");
    let wrong = Pool { max_unavailable: Some(IntOrString::String("some".to_owned())), ..pool("b") };
    let rollout = decide(&wrong, &nodes(2, "a"));
    assert!(rollout.patches.is_empty());
    assert!(condition(&rollout, "RolloutInvalid").2.contains("pool worker: spec.maxUnavailable: \"some\""));
    let none = decide(&pool("b"), &[]);
    assert_eq!(
        (&*condition(&none, "RolloutProgressing").1, &*condition(&none, "Degraded").0),
        ("NoNodes", "False")
    );
}

/// Two pools for one node: both name it, and go on with their other nodes.
#[test]
fn node_in_two_pools_is_named_and_others_continue() {
    let conflict = Conflict { node: "n9".to_owned(), pools: vec!["gpu".to_owned(), "infra".to_owned()] };
    let (pool, nodes) = (pool("b"), nodes(2, "a"));
    let input = RolloutInput {
        pool: &pool,
        conflicts: &[conflict],
        costs: &BTreeMap::new(),
        now: now(),
        clock: &Clock::default(),
        writes: &NodeWrites::default(),
    };
    let rollout = rollout(&input, &mut Census::new(&nodes));
    assert_eq!(given(&rollout), ["n00"]);
    let (_, reason, message) = condition(&rollout, "RolloutInvalid");
    assert_eq!(reason, "NodeInTwoPools");
    assert!(message.contains("node n9 belongs to the custom pools gpu and infra"), "{message}");
}

/// Nodes that another pool selects, too, are not updated: neither is a pool that has no others.
#[test]
fn pool_whose_nodes_another_one_selects_is_not_updated() {
    let conflict = Conflict { node: "n9".to_owned(), pools: vec!["gpu".to_owned(), "infra".to_owned()] };
    let words = "node n9 belongs to the custom pools gpu and infra";
    for nodes in [nodes(0, "b"), nodes(2, "b")] {
        let pool = pool("b");
        let input = RolloutInput {
            pool: &pool,
            conflicts: std::slice::from_ref(&conflict),
            costs: &BTreeMap::new(),
            now: now(),
            clock: &Clock::default(),
            writes: &NodeWrites::default(),
        };
        let rollout = rollout(&input, &mut Census::new(&nodes));
        assert_eq!(condition(&rollout, "Updated").0, "False");
        let (status, _, message) = condition(&rollout, "Updating");
        assert!(status == "False" && message.contains(words), "{message}");
        let message = condition(&rollout, "RolloutProgressing").2;
        assert!(nodes.len() == 2 || message.contains(words), "{message}");
    }
}

#[test]
fn plan_sums_remaining_nodes() {
    let reboots =
        NodeCost { drain: true, reboot_because: vec!["kernelArguments".to_owned()], services: Vec::new() };
    let path = "/etc/containers/policy.json".to_owned();
    let reloads = NodeCost {
        services: vec![("reload", Some("crio.service".to_owned()), vec![path.clone()])],
        ..NodeCost::default()
    };
    let costs = BTreeMap::from([("a".to_owned(), reboots), ("b".to_owned(), reloads)]);
    let mut nodes = nodes(3, "a");
    nodes.extend([node("m0", "b"), node("m1", "gone"), node("m2", "c")]);
    let pool = Pool { has_plan: true, ..pool("c") };
    let input = RolloutInput {
        pool: &pool,
        conflicts: &[],
        costs: &costs,
        now: now(),
        clock: &Clock::default(),
        writes: &NodeWrites::default(),
    };
    let plan = rollout(&input, &mut Census::new(&nodes)).status.plan.unwrap();
    assert_eq!((plan.nodes, plan.drains, plan.reboots, plan.unknown), (5, 3, 3, Some(1)));
    assert_eq!(plan.reboot_because.unwrap(), ["kernelArguments"]);
    let services = plan.services.unwrap();
    assert_eq!((&*services[0].action, services[0].nodes, &services[0].because), ("reload", 1, &vec![path]));
}
