//! A rollout whose policy is gone: a person deleted it while the rollout followed it, or gave it to another pool.
//!
//! Without a policy the operator's rules hold, so the nodes that a canary, a window or a halt kept back would all get the target at
//! once. It halts instead, and asks. What it remembers is in the pool's condition `RolloutHalted`: the policy's status went with it. So a
//! policy gives no node a target before the API server has that condition, and has no failed node return before it says so: a node that
//! returned shows nothing of its failure. While there is a policy, its status remembers the halt as well.
//!
//! The annotation that ends a halt counts once: the condition `RolloutResumed` remembers its value for as long as the pool has it.

use std::borrow::Cow;

use super::census::Census;
use super::course::Course;
use super::input::{Policy, Pool, RolloutInput};
use super::phase::{HALTED, Phase, RESUMED, TOO_MANY_FAILURES};
use crate::api::RolloutPolicyStatus;
use crate::api::pool::Condition;
use crate::api::rollout_policy::{HaltStatus, RESUME};

/// Reason of `RolloutHalted` while it is False: a rollout that is not complete follows a policy.
pub(super) const POLICY_FOLLOWED: &str = "PolicyFollowed";

/// Reason of `RolloutHalted`: the policy is gone.
pub(super) const POLICY_DELETED: &str = "PolicyDeleted";

/// Reason of `RolloutResumed`: the annotation of the pool was followed.
pub(super) const ANNOTATED: &str = "Annotated";

/// Returns a condition as the API server has it.
fn stored<'a>(pool: &'a Pool, type_: &str) -> Option<&'a Condition> {
    pool.status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// Returns the condition of the halt as it was decided last, whether or not the API server has it; where it tells of no failure, that of a
/// policy that does.
fn condition<'a>(pool: &'a Pool, config: &str) -> Option<Cow<'a, Condition>> {
    let known = pool.halted.as_ref().or_else(|| stored(pool, HALTED));
    let failed = || pool.memories().find_map(|memory| failed_by(memory, &pool.name, config)).map(Cow::Owned);
    match known {
        Some(known) if is_failed(known, config) => Some(Cow::Borrowed(known)),
        Some(_) | None => failed().or(known.map(Cow::Borrowed)),
    }
}

/// Returns the condition of the halt that a policy remembers of a pool's rollout.
fn failed_by(memory: &RolloutPolicyStatus, pool: &str, config: &str) -> Option<Condition> {
    let is_of_pool = memory.pool.as_deref() == Some(pool);
    let is_of_target = memory.target.as_ref().is_some_and(|target| target.config == config);
    let halt = memory.halt.as_ref().filter(|_| is_of_pool && is_of_target)?;
    let message = format!(
        "{}, {} allowed in {ROLLOUT_OF}{config}; {}",
        nodes_failed(halt.failed),
        halt.allowed,
        halt.cause
    );
    Some(Condition {
        type_: HALTED.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(halt.at.clone()),
        reason: Some(TOO_MANY_FAILURES.to_owned()),
        message: Some(message),
    })
}

/// Returns true if a rollout with this condition halts once its policy is gone.
fn outlasts_policy(old: &Condition, config: &str) -> bool {
    let is_own = is_reason(old, POLICY_FOLLOWED) || is_reason(old, POLICY_DELETED);
    (is_own && names(old, config)) || is_failed(old, config)
}

/// Gives no node a target before the API server has the condition by which the rollout halts without its policy, and has none return
/// before that tells of the failure.
pub(super) fn hold(course: &mut Course, pool: &Pool) {
    let config = pool.configuration.name.as_deref().unwrap_or_default();
    let old = stored(pool, HALTED);
    let mut is_cut = false;
    if has_policy(pool) && !old.is_some_and(|old| outlasts_policy(old, config)) {
        is_cut = std::mem::take(&mut course.limit) > 0;
    }
    if !old.is_some_and(|old| is_failed(old, config)) {
        is_cut |= course.roll_back.take().is_some();
    }
    // The pool can't say it: its status is what fails.
    if let Some(memory) = course.memory.as_mut().filter(|_| is_cut && pool.is_status_failing) {
        memory.phase = Some(Phase::Unrecorded.as_str().to_owned());
    }
}

fn is_reason(condition: &Condition, reason: &str) -> bool {
    condition.reason.as_deref() == Some(reason)
}

/// Words before the config that a message of the condition is about, and that no other text follows than after a `;`.
pub(super) const ROLLOUT_OF: &str = "the rollout of ";

/// Returns true if the message of [`followed`], [`halt`] or a policy's halt is about a config.
fn names(condition: &Condition, config: &str) -> bool {
    let of = format!("{ROLLOUT_OF}{config}");
    let is_about = |message: &String| message.ends_with(&of) || message.contains(&format!("{of};"));
    condition.message.as_ref().is_some_and(is_about)
}

fn has_policy(pool: &Pool) -> bool {
    !pool.policies.is_empty() || pool.unreadable_policy.is_some()
}

/// Returns true if all nodes have a config; false where there is none: nothing is known of no nodes.
fn is_over(input: &RolloutInput<'_>, census: &Census, config: &str) -> bool {
    let have_own = || census.nodes.iter().all(|node| node.current.config.as_deref() == Some(config));
    // The counts are of the target of the other program.
    let have = if input.pool.contested.is_some() { have_own() } else { census.updated == census.len() };
    !census.is_empty() && have
}

/// Returns the message of a pool whose rollout follows a policy, whatever the policy allows now.
pub(super) fn followed(input: &RolloutInput<'_>, census: &Census) -> Option<String> {
    let config = input.pool.own_config()?;
    // Of no nodes nothing is known: what was remembered stays.
    let is_remembered = || condition(input.pool, config).is_some_and(|old| outlasts_policy(&old, config));
    let is_open = if census.is_empty() { is_remembered() } else { !is_over(input, census, config) };
    (has_policy(input.pool) && is_open).then(|| format!("a RolloutPolicy rules {ROLLOUT_OF}{config}"))
}

/// Returns true if the condition may have to stay as it is: by what is known now, neither a halt ends nor one begins.
pub(super) fn is_uncertain(pool: &Pool) -> bool {
    pool.contested.is_some() || pool.unread.is_some() || pool.own_config().is_none()
}

/// Halts a rollout that was begun with a policy, and has none to follow now. It ends with all nodes at the target, another target, a policy
/// that can be followed, or the annotation that names the target.
pub(super) fn halt(course: Course, input: &RolloutInput<'_>, census: &Census) -> Course {
    let pool = input.pool;
    let Some(config) = pool.own_config() else { return course };
    let old = condition(pool, config).filter(|old| outlasts_policy(old, config));
    let Some(old) = old else { return course };
    if has_policy(pool) {
        return keep(course, input, census, &old);
    }
    // Policies that can't be read are not deleted.
    if pool.unread.is_some() || is_over(input, census, config) || resumes(pool, config).is_some() {
        return course;
    }
    let (reason, failed) = if is_failed(&old, config) {
        let failed = failed_nodes(&old).map_or("too many nodes failed".to_owned(), nodes_failed);
        (TOO_MANY_FAILURES, format!("{failed}, and "))
    } else {
        (POLICY_DELETED, String::new())
    };
    let name = &pool.name;
    let message = format!(
        "{failed}the RolloutPolicy of pool {name} was deleted, or given to another pool, during {ROLLOUT_OF}{config}; create it again, or go \
         on without one: kubectl annotate machineconfigpool {name} --overwrite {RESUME}=\"{config} $(date)\""
    );
    let halted =
        if course.phase == Phase::Updating { Course::stop(Phase::Halted, message.clone()) } else { course };
    Course { halt: Some(message), halt_reason: reason, ..halted }
}

/// Returns the annotation that has the rollout of a target go on without its policy, unless it did so before.
fn resumes<'a>(pool: &'a Pool, config: &str) -> Option<&'a str> {
    let value = pool.resume.as_deref()?;
    let names_target = value.split_whitespace().next() == Some(config);
    (names_target && !was_followed(pool, value)).then_some(value)
}

/// Returns true if an annotation with this value has ended a halt.
fn was_followed(pool: &Pool, value: &str) -> bool {
    let known = pool.resumed.as_ref().or_else(|| stored(pool, RESUMED));
    known.is_some_and(|known| known.status == "True" && known.message.as_ref() == Some(&followed_text(value)))
}

fn followed_text(value: &str) -> String {
    format!("the annotation {RESUME}={value:?} of the pool was followed; a new value resumes again")
}

/// Returns the condition that remembers the annotation, true with its message: it has ended a halt, or the rollout of its target goes on
/// without a policy now. `None` where nothing is to be remembered.
pub(super) fn resumed(pool: &Pool, is_halted: bool) -> Option<(bool, String)> {
    let is_known = pool.resumed.is_some() || stored(pool, RESUMED).is_some();
    let forgotten = is_known.then(|| (false, String::new()));
    let Some(value) = pool.resume.as_deref() else { return forgotten };
    let goes_on = !is_halted && !has_policy(pool) && !is_uncertain(pool);
    let follows = pool.own_config().is_some_and(|config| goes_on && resumes(pool, config).is_some());
    if follows || was_followed(pool, value) { Some((true, followed_text(value))) } else { forgotten }
}

/// Keeps the halt of a rollout whose policy can't be followed now: it is invalid, or there are two.
fn keep(course: Course, input: &RolloutInput<'_>, census: &Census, old: &Condition) -> Course {
    let config = input.pool.own_config().unwrap_or_default();
    let is_kept = is_failed(old, config) && !is_over(input, census, config);
    let halt = old.message.clone().filter(|_| is_kept);
    Course { halt, halt_reason: TOO_MANY_FAILURES, ..course }
}

/// Returns true if a policy halted the rollout of this target.
fn is_failed(old: &Condition, config: &str) -> bool {
    let is_of_any = !old.message.as_ref().is_some_and(|message| message.contains(ROLLOUT_OF));
    old.status == "True" && is_reason(old, TOO_MANY_FAILURES) && (is_of_any || names(old, config))
}

/// Returns the first words of a halt's message. [`failed_nodes`] reads them.
pub(super) fn nodes_failed(failed: i32) -> String {
    format!("{failed} failed nodes")
}

fn failed_nodes(halt: &Condition) -> Option<i32> {
    let (number, _) = halt.message.as_ref()?.split_once(" failed nodes")?;
    number.parse().ok()
}

/// Returns the halt of the target that a policy finds which has another one, or none, in its memory: it is new, or was for another pool
/// meanwhile. To delete it and create it again ends no halt.
pub(super) fn inherited(pool: &Pool, policy: &Policy, allowed: usize) -> Option<HaltStatus> {
    let config = pool.own_config()?;
    let remembered = policy.status.target.as_ref();
    if remembered.is_some_and(|target| target.config == config) {
        return None;
    }
    let old = condition(pool, config).filter(|old| is_failed(old, config))?;
    // The message of an earlier version of this program names no config: it may be about the one that was remembered.
    if remembered.is_some() && !names(&old, config) {
        return None;
    }
    let allowed = i32::try_from(allowed).unwrap_or(i32::MAX);
    Some(HaltStatus {
        at: old.last_transition_time.clone().unwrap_or_default(),
        node: String::new(),
        cause: "it failed before this RolloutPolicy was created, or came to this pool".to_owned(),
        failed: failed_nodes(&old).unwrap_or(0).max(allowed.saturating_add(1)),
        allowed,
        generation: policy.generation,
    })
}
