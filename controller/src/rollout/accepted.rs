//! Condition `Accepted` of a policy: the rollout of its pool follows it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::course::Course;
use super::phase::{Mistake, Phase};
use super::policy::two_policies;
use super::status::set_condition;
use crate::api::{RolloutPolicy, RolloutPolicyStatus};

/// The condition.
pub const ACCEPTED: &str = "Accepted";
/// Reason: the rollout of its pool follows it.
pub(super) const POOL_FOUND: &str = "PoolFound";
/// Reason: it is for a pool that does not exist.
pub(super) const POOL_NOT_FOUND: &str = "PoolNotFound";

/// Sets the condition of a policy whose pool is decided for.
pub(super) fn judge(course: &mut Course, now: Timestamp) {
    let invalid = course.mistakes.iter().find(|(mistake, _)| *mistake == Mistake::Policy);
    let (reason, message) = match invalid {
        Some((mistake, message)) => (mistake.as_str(), message.clone()),
        None => (POOL_FOUND, String::new()),
    };
    let is_accepted = invalid.is_none();
    if let Some(status) = &mut course.memory {
        set_condition(status.conditions.get_or_insert_default(), now, ACCEPTED, is_accepted, reason, message);
    }
}

/// Returns the policies that no rollout follows, with their whole status: they can't be read, or their pool does not exist or
/// has several of them.
pub fn unfollowed<'a>(
    policies: &[&'a RolloutPolicy],
    unreadable: &[(&'a RolloutPolicy, &str)],
    pools: &BTreeSet<&str>,
    now: Timestamp,
) -> Vec<(&'a RolloutPolicy, RolloutPolicyStatus)> {
    let mut by_pool: BTreeMap<&str, Vec<&'a RolloutPolicy>> = BTreeMap::new();
    for policy in policies {
        by_pool.entry(policy.pool()).or_default().push(policy);
    }
    let refuse_unreadable = |&(policy, cause): &(&'a RolloutPolicy, &str)| {
        (policy, refuse(policy, Mistake::Policy.as_str(), self::unreadable(policy, cause), now))
    };
    let mut found: Vec<_> = unreadable.iter().map(refuse_unreadable).collect();
    for (pool, policies) in by_pool {
        let several = match &*policies {
            [one, other, ..] => Some(two_policies(name_of(one), name_of(other), pool)),
            _ => None,
        };
        for policy in policies {
            let (reason, message) = match &several {
                _ if !pools.contains(pool) => (POOL_NOT_FOUND, pool_not_found(policy)),
                Some(several) => (Mistake::Policy.as_str(), several.clone()),
                None => continue,
            };
            found.push((policy, refuse(policy, reason, message, now)));
        }
    }
    found
}

/// Returns the message on a policy that can't be read.
pub fn unreadable(policy: &RolloutPolicy, cause: &str) -> String {
    format!("RolloutPolicy {} can't be read: {cause}; correct it, or delete it", name_of(policy))
}

fn name_of(policy: &RolloutPolicy) -> &str {
    policy.metadata.name.as_deref().unwrap_or_default()
}

fn pool_not_found(policy: &RolloutPolicy) -> String {
    let (name, pool) = (name_of(policy), policy.pool());
    let field =
        if policy.spec.pool_ref.is_some() { "correct spec.poolRef.name" } else { "set spec.poolRef.name" };
    format!(
        "RolloutPolicy {name} is for pool {pool}, which does not exist; {field}, create the pool, or delete the policy"
    )
}

/// Returns the status of a policy that is not followed. The state of a rollout stays in it.
fn refuse(policy: &RolloutPolicy, reason: &str, message: String, now: Timestamp) -> RolloutPolicyStatus {
    let mut status = policy.status.clone().unwrap_or_default();
    status.observed_generation = policy.metadata.generation;
    status.pool = Some(policy.pool().to_owned());
    status.phase = Some(Phase::Invalid.as_str().to_owned());
    status.next_window = None;
    status.invalid = Some(message.clone());
    set_condition(status.conditions.get_or_insert_default(), now, ACCEPTED, false, reason, message);
    status
}
