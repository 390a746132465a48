//! A rollout whose policy is gone: a person deleted it while the rollout followed it.
//!
//! Without a policy the operator's rules hold, so the nodes that a canary, a window or a halt kept back would all get the target at
//! once. It halts instead, and asks. What it remembers is in the pool's condition `RolloutHalted`: the policy's status went with it. So a
//! policy gives no node a target before the API server has that condition.

use super::census::Census;
use super::course::Course;
use super::input::{Pool, RolloutInput};
use super::phase::{HALTED, Phase, TOO_MANY_FAILURES};
use crate::api::pool::Condition;
use crate::api::rollout_policy::{HaltStatus, RESUME};

/// Reason of `RolloutHalted` while it is False: a rollout that is not complete follows a policy.
pub(super) const POLICY_FOLLOWED: &str = "PolicyFollowed";

/// Reason of `RolloutHalted`: the policy is gone.
pub(super) const POLICY_DELETED: &str = "PolicyDeleted";

/// Returns the condition as the API server has it.
fn stored(pool: &Pool) -> Option<&Condition> {
    let mut conditions = pool.status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == HALTED)
}

/// Returns the condition as it was decided last, whether or not the API server has it.
fn condition(pool: &Pool) -> Option<&Condition> {
    pool.halted.as_ref().or_else(|| stored(pool))
}

/// Returns true if a rollout with this condition halts once its policy is gone.
fn outlasts_policy(old: &Condition, config: &str) -> bool {
    let is_own = is_reason(old, POLICY_FOLLOWED) || is_reason(old, POLICY_DELETED);
    (is_own && names(old, config)) || is_failed(old, config)
}

/// Gives no node a target before the API server has the condition by which the rollout halts without its policy.
pub(super) fn hold(course: &mut Course, pool: &Pool) {
    let config = pool.configuration.name.as_deref().unwrap_or_default();
    if !has_policy(pool) || stored(pool).is_some_and(|old| outlasts_policy(old, config)) {
        return;
    }
    let is_cut = std::mem::take(&mut course.limit) > 0;
    // The pool can't say it: its status is what fails.
    if let Some(memory) = course.memory.as_mut().filter(|_| is_cut && pool.is_status_failing) {
        memory.phase = Some(Phase::Unrecorded.as_str().to_owned());
    }
}

fn is_reason(condition: &Condition, reason: &str) -> bool {
    condition.reason.as_deref() == Some(reason)
}

/// Returns true if the message of [`followed`] or [`halt`] is about a config.
fn names(condition: &Condition, config: &str) -> bool {
    let of = format!("the rollout of {config}");
    let is_about = |message: &String| message.ends_with(&of) || message.contains(&format!("{of};"));
    condition.message.as_ref().is_some_and(is_about)
}

fn has_policy(pool: &Pool) -> bool {
    !pool.policies.is_empty() || pool.unreadable_policy.is_some()
}

/// Returns the message of a pool whose rollout follows a policy, whatever the policy allows now.
pub(super) fn followed(input: &RolloutInput<'_>, census: &Census) -> Option<String> {
    let config = input.pool.configuration.name.as_deref().filter(|config| !config.is_empty())?;
    // Of no nodes nothing is known: what was remembered stays.
    let is_remembered = || condition(input.pool).is_some_and(|old| outlasts_policy(old, config));
    let is_open = if census.is_empty() { is_remembered() } else { census.updated < census.len() };
    (has_policy(input.pool) && is_open).then(|| format!("a RolloutPolicy rules the rollout of {config}"))
}

/// Halts a rollout without a policy that was begun with one. It ends with all nodes at the target, another target, a policy, or the
/// annotation that names the target.
pub(super) fn halt(course: Course, input: &RolloutInput<'_>, census: &Census) -> Course {
    let pool = input.pool;
    let config = pool.configuration.name.as_deref().unwrap_or_default();
    let is_resumed = pool.resume.as_deref() == Some(config);
    // A pool that is without nodes for a moment has none at the target.
    let is_over = !census.is_empty() && census.updated == census.len();
    if has_policy(pool) || config.is_empty() || is_over || is_resumed {
        return course;
    }
    let Some(old) = condition(pool) else { return course };
    if !outlasts_policy(old, config) {
        return course;
    }
    let (reason, failed) = if is_failed(old, config) {
        (TOO_MANY_FAILURES, "too many nodes failed, and ")
    } else {
        (POLICY_DELETED, "")
    };
    let name = &pool.name;
    let message = format!(
        "{failed}the RolloutPolicy of pool {name} {GONE} {config}; create it again, or go on without one: kubectl annotate \
         machineconfigpool {name} --overwrite {RESUME}={config}"
    );
    let halted =
        if course.phase == Phase::Updating { Course::stop(Phase::Halted, message.clone()) } else { course };
    Course { halt: Some(message), halt_reason: reason, ..halted }
}

/// Words of a message that names the target that it is about.
const GONE: &str = "was deleted during the rollout of";

/// Returns true if a policy halted the rollout of this target. Its own message does not name the target.
fn is_failed(old: &Condition, config: &str) -> bool {
    let is_own = old.message.as_ref().is_some_and(|message| message.contains(GONE));
    old.status == "True" && is_reason(old, TOO_MANY_FAILURES) && (!is_own || names(old, config))
}

/// Returns the halt that a new policy finds: one that is deleted and created again ends none.
pub(super) fn inherited(pool: &Pool, generation: Option<i64>, allowed: usize) -> Option<HaltStatus> {
    let config = pool.configuration.name.as_deref().filter(|config| !config.is_empty())?;
    let old = condition(pool).filter(|old| is_failed(old, config))?;
    let allowed = i32::try_from(allowed).unwrap_or(i32::MAX);
    Some(HaltStatus {
        at: old.last_transition_time.clone().unwrap_or_default(),
        node: String::new(),
        cause: "it failed before this RolloutPolicy was created".to_owned(),
        failed: allowed.saturating_add(1),
        allowed,
        generation,
    })
}
