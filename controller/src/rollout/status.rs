//! The pool's status: counts and conditions.

use jiff::Timestamp;

use super::census::Tally;
use super::course::Course;
use super::orphan::{self, ANNOTATED, POLICY_FOLLOWED};
use super::phase::{HALTED, Phase, RESUMED};
use super::pools::Conflict;
use super::writes::{Answer, Unwritten};
use super::{BuildState, Layering, Pool, RolloutInput, Undrained, patch, plan};
use crate::api::pool::Condition;
use crate::api::{MachineConfigPool, MachineConfigPoolStatus};

/// Condition: the rollout goes on by itself. Its reason is the phase.
pub(super) const PROGRESSING: &str = "RolloutProgressing";
/// Condition: a person has to correct something.
pub(super) const INVALID: &str = "RolloutInvalid";
/// Condition: drains wait for pods that may not leave.
pub(super) const DRAIN_BLOCKED: &str = "RolloutDrainBlocked";
/// The reason of [`DRAIN_BLOCKED`].
pub(super) const EVICTION_REFUSED: &str = "EvictionRefused";
/// Condition: nodes are not written to as they should be.
pub(super) const NOT_WRITTEN: &str = "RolloutNodesNotWritten";

/// Nodes whose reasons are quoted; the number is always given.
const MAX_QUOTED: usize = 10;

/// A reason that is quoted is cut here.
const MAX_REASON: usize = 500;

/// Returns the whole status.
pub(super) fn status(
    input: &RolloutInput<'_>,
    census: &Tally<'_>,
    course: &Course,
) -> MachineConfigPoolStatus {
    let pool = input.pool;
    let count = |number: usize| Some(i32::try_from(number).unwrap_or(i32::MAX));
    let machines = census.len();
    let mut status = MachineConfigPoolStatus {
        observed_generation: pool.generation,
        machine_count: count(machines),
        updated_machine_count: count(census.updated),
        ready_machine_count: count(census.ready),
        unavailable_machine_count: count(census.unavailable),
        degraded_machine_count: count(census.degraded.len()),
        ..pool.status.clone()
    };
    let mut conditions = Conditions { list: status.conditions.take().unwrap_or_default(), input };
    let is_done = pool.unread.is_none()
        && pool.contested.is_none()
        && census.target.is_some()
        && census.updated == machines
        && census.ready == machines
        && census.unavailable == 0;
    // Nodes that another pool selects, too, are not counted.
    let in_two_pools = input.conflicts.first().filter(|_| is_done);
    let is_updated = is_done && in_two_pools.is_none();
    if is_updated {
        status.configuration = Some(pool.configuration.clone());
    }
    let followed = orphan::followed(input, census);
    rollout(&mut conditions, course, followed);
    drains(&mut conditions, census);
    unwritten(&mut conditions, census);
    degraded(&mut conditions, census, course);
    updating(&mut conditions, pool, is_updated, in_two_pools);
    status.conditions = Some(conditions.list);
    status.plan = pool.has_plan.then(|| plan::plan(input, census)).flatten();
    status
}

/// Returns the status of a pool of which nothing more is known than the API server's last answer: the counts stay.
pub fn unread_status(
    pool: &MachineConfigPoolStatus,
    message: &str,
    now: Timestamp,
) -> MachineConfigPoolStatus {
    let mut list = pool.conditions.clone().unwrap_or_default();
    let reason = Phase::Unread.as_str();
    for (type_, status, reason, message) in [
        ("Updated", false, "", ""),
        ("Updating", false, "", message),
        (PROGRESSING, false, reason, message),
        ("Degraded", true, reason, message),
    ] {
        set_condition(&mut list, now, type_, status, reason, message.to_owned());
    }
    MachineConfigPoolStatus { conditions: Some(list), ..pool.clone() }
}

/// Returns the status of a pool that is being deleted: its nodes are given nothing any more. The counts stay.
pub fn deleting_status(pool: &MachineConfigPool, now: Timestamp) -> MachineConfigPoolStatus {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let kept_by = pool.metadata.finalizers.as_deref().unwrap_or_default().join(", ");
    let message = format!(
        "pool {name} is being deleted, so no node is given a target; it is removed once its metadata.finalizers are gone: {kept_by}"
    );
    let status = pool.status.clone().unwrap_or_default();
    let mut list = status.conditions.clone().unwrap_or_default();
    for (type_, reason, message) in [
        ("Updated", "", String::new()),
        ("Updating", "", message.clone()),
        (PROGRESSING, Phase::Deleting.as_str(), message),
    ] {
        set_condition(&mut list, now, type_, false, reason, message);
    }
    MachineConfigPoolStatus { conditions: Some(list), ..status }
}

/// Returns true if a pool's status tells of another program that sets its target back.
pub fn is_contested(status: &MachineConfigPoolStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    let is_it = |reason: &String| reason == Phase::Contested.as_str();
    conditions.any(|one| one.type_ == PROGRESSING && one.reason.as_ref().is_some_and(is_it))
}

/// Returns the status of a pool of which it is not known whether the Machine Config Operator writes it: a condition that is not the
/// operator's says why.
pub fn unknown_status(
    pool: &MachineConfigPoolStatus,
    message: &str,
    now: Timestamp,
) -> MachineConfigPoolStatus {
    let mut list = pool.conditions.clone().unwrap_or_default();
    set_condition(&mut list, now, PROGRESSING, false, Phase::Unread.as_str(), message.to_owned());
    MachineConfigPoolStatus { conditions: Some(list), ..pool.clone() }
}

/// Sets the conditions that the operator does not have.
fn rollout(conditions: &mut Conditions<'_>, course: &Course, followed: Option<String>) {
    let phase = course.phase;
    conditions.set(PROGRESSING, phase.is_progressing(), phase.as_str(), course.message.clone());
    halted(conditions, course, followed);
    let reason = course.mistakes.first().map_or("", |(mistake, _)| mistake.as_str());
    let messages: Vec<&str> = course.mistakes.iter().map(|(_, message)| &**message).collect();
    conditions.set(INVALID, !messages.is_empty(), reason, messages.join("; "));
}

fn halted(conditions: &mut Conditions<'_>, course: &Course, followed: Option<String>) {
    match (&course.halt, followed) {
        (Some(cause), _) => conditions.set(HALTED, true, course.halt_reason, cause.clone()),
        (None, Some(followed)) => conditions.set(HALTED, false, POLICY_FOLLOWED, followed),
        (None, None) if orphan::is_uncertain(conditions.input.pool) && conditions.has(HALTED) => {}
        (None, None) => conditions.set(HALTED, false, "", String::new()),
    }
    match orphan::resumed(conditions.input.pool, course.halt.is_some()) {
        Some((true, message)) => conditions.set(RESUMED, true, ANNOTATED, message),
        Some((false, _)) => conditions.set(RESUMED, false, "", String::new()),
        None => {}
    }
}

/// Names the pods and the budgets that drains wait for.
fn drains(conditions: &mut Conditions<'_>, census: &Tally<'_>) {
    let blocked = &census.drain_blocked;
    let named = blocked.iter().take(MAX_QUOTED).map(|node| {
        let why = node.drain_blocked.as_deref().unwrap_or_default();
        let why: String = why.chars().take(MAX_REASON).collect();
        format!("node {}: {why}", node.name)
    });
    let mut message = named.collect::<Vec<_>>().join("; ");
    if blocked.len() > MAX_QUOTED {
        message.push_str(&format!("; and {} more", blocked.len() - MAX_QUOTED));
    }
    let reason = if blocked.is_empty() { "" } else { EVICTION_REFUSED };
    conditions.set(DRAIN_BLOCKED, !blocked.is_empty(), reason, message);
}

/// Names the nodes that are not written to, with the API server's words.
fn unwritten(conditions: &mut Conditions<'_>, census: &Tally<'_>) {
    let input = conditions.input;
    let (nodes, undrained) = (census.unwritten(), &input.pool.undrained);
    let first = nodes.first().map(|(_, first, _)| *first);
    let Some(first) = first.or_else(|| undrained_reason(undrained)) else {
        // Of another leader: it holds until a write shows that it does no more.
        if !names_untried(conditions, census) {
            conditions.set(NOT_WRITTEN, false, "", String::new());
        }
        return;
    };
    let cut = |cause: &str| -> String { cause.chars().take(MAX_REASON).collect() };
    let named = nodes.iter().map(|(name, why, cause)| {
        let cause = cut(cause);
        match why {
            Unwritten::Refused => format!("node {name} can't be written: {cause}"),
            Unwritten::Unanswered => format!("a write to node {name} got no answer: {cause}"),
            Unwritten::SetBack | Unwritten::Alternates => format!("node {name}: {cause}"),
        }
    });
    let named =
        named.chain(undrained.iter().map(|one| undrained_text(&one.node, one.answer, &cut(&one.cause))));
    let mut message = named.take(MAX_QUOTED).collect::<Vec<_>>().join("; ");
    let count = nodes.len().saturating_add(undrained.len());
    if count > MAX_QUOTED {
        message.push_str(&format!("; and {} more", count - MAX_QUOTED));
    }
    // An update that is under way keeps its place, too.
    message.push_str(&match (census.unsure().saturating_add(undrained.len()), count) {
        (0, _) => "; they take no place of maxUnavailable".to_owned(),
        (1, 1) => "; the node takes a place of maxUnavailable".to_owned(),
        (1, _) => "; 1 of these nodes takes a place of maxUnavailable".to_owned(),
        (taken, _) => format!("; {taken} of these nodes take places of maxUnavailable"),
    });
    let is_awaited = |one: &Undrained| !matches!(one.answer, Answer::Refused | Answer::Failed);
    if nodes.is_empty() && undrained.iter().all(is_awaited) {
        return conditions.set(NOT_WRITTEN, true, first.as_str(), message);
    }
    let is_rare = |why: &Unwritten| matches!(why, Unwritten::Alternates | Unwritten::Unanswered);
    let minutes = if nodes.iter().any(|(_, why, _)| is_rare(why)) { 30 } else { 5 };
    message
        .push_str(&format!("; the controller retries when a node changes, after {minutes} minutes at most"));
    conditions.set(NOT_WRITTEN, true, first.as_str(), message);
}

/// Returns true if the condition names a node that is to get the target, and that this process has not given it: another leader found that it
/// can't be written.
fn names_untried(conditions: &Conditions<'_>, census: &Tally<'_>) -> bool {
    let (Some(words), Some(target)) = (conditions.message_if(NOT_WRITTEN), &census.target) else {
        return false;
    };
    if conditions.input.pool.paused {
        return false;
    }
    // As `unwritten` writes it; drains have sentences of their own.
    let named = |part: &'_ str| -> Option<String> {
        let refused = || part.strip_prefix("node ")?.split_once(" can't be written: ");
        let unanswered = || part.strip_prefix("a write to node ")?.split_once(" got no answer: ");
        refused().or_else(unanswered).map(|(name, _)| name.to_owned())
    };
    let mut nodes = words.split("; ").filter_map(named).filter_map(|name| census.nodes.get(&*name));
    nodes.any(|node| node.desired != *target && !conditions.input.writes.has_given(node, target))
}

/// Returns the reason of the condition by writes of drains alone: a refusal has to be mended, a server that does not answer may do so again.
fn undrained_reason(undrained: &[Undrained]) -> Option<Unwritten> {
    let why = |one: &Undrained| match one.answer {
        Answer::Refused | Answer::Failed => Unwritten::Refused,
        Answer::Unreadable | Answer::Missing | Answer::Unsent => Unwritten::Unanswered,
    };
    let is_refused = undrained.iter().any(|one| why(one) == Unwritten::Refused);
    if is_refused { Some(Unwritten::Refused) } else { undrained.first().map(why) }
}

/// Returns the words about a node whose writes of a drain are not made.
pub fn undrained_text(node: &str, answer: Answer, cause: &str) -> String {
    match answer {
        Answer::Refused | Answer::Failed => {
            format!(
                "node {node} can't be cordoned or uncordoned, or its agent's request can't be answered: {cause}"
            )
        }
        Answer::Unreadable | Answer::Missing | Answer::Unsent => format!(
            "node {node}: the API server did not answer its cordon, its uncordon or the answer to its agent's request: {cause}; the drain \
             sends it again within 30 s"
        ),
    }
}

/// Sets `Updated` and `Updating`, in the operator's own words.
fn updating(conditions: &mut Conditions<'_>, pool: &Pool, is_updated: bool, in_two_pools: Option<&Conflict>) {
    let line = update_line(pool);
    let of_name = || pool.configuration.name.as_deref().is_none_or(str::is_empty);
    let not_rendered = || of_name().then(|| format!("Pool {} has no rendered config yet", pool.name));
    // What is known is old, or a part; or the target is one moment this, and that the next.
    let withheld = pool.unread.clone().or_else(|| pool.contested.clone()).or_else(not_rendered);
    let withheld = withheld.or_else(|| in_two_pools.map(Conflict::text));
    if let Some(why) = withheld {
        conditions.set("Updated", false, "", String::new());
        conditions.set("Updating", false, "", why);
        return;
    }
    let (is_updating, message) = match build(pool, is_updated) {
        Some(_) if !pool.paused && (conditions.is("RenderDegraded") || conditions.is("NodeDegraded")) => {
            (false, "Pool update paused due to degraded condition".to_owned())
        }
        Some(of_build) => of_build,
        None if is_updated => (false, String::new()),
        None if pool.paused => (false, format!("Pool is paused; will not update to {line}")),
        None => (true, format!("All nodes are updating to {line}")),
    };
    // Each once: a condition that is set twice has a new time of transition with each decision, and the status is written for ever.
    let updated = if is_updated { format!("All nodes are updated with {line}") } else { String::new() };
    conditions.set("Updated", is_updated, "", updated);
    conditions.set("Updating", is_updating, "", message);
}

fn update_line(pool: &Pool) -> String {
    let config = pool.configuration.name.as_deref().unwrap_or_default();
    match &pool.layering {
        Layering::Build { state: BuildState::Built(image), .. } => {
            format!("MachineConfig {config} / Image {image}")
        }
        Layering::None | Layering::Waiting { .. } | Layering::Build { .. } => {
            format!("MachineConfig {config}")
        }
    }
}

/// Returns the condition `Updating` during the build of an image.
fn build(pool: &Pool, is_updated: bool) -> Option<(bool, String)> {
    let (machine_os_build, state) = match &pool.layering {
        Layering::None => return None,
        Layering::Waiting { machine_os_config } if pool.paused => {
            let message = format!(
                "Pool is paused; waiting for a new OS image build to start (mosc: {machine_os_config})"
            );
            return Some((true, message));
        }
        Layering::Waiting { machine_os_config } => {
            let message =
                format!("Pool is waiting for a new OS image build to start (mosc: {machine_os_config})");
            return Some((true, message));
        }
        Layering::Build { machine_os_build, state } => (machine_os_build, state),
    };
    let (is_updating, text) = match (state, pool.paused) {
        (BuildState::Initial, true) => {
            (true, "Pool is paused; OS image build has been created but not yet started")
        }
        (BuildState::Prepared, true) => {
            (true, "Pool is paused; OS image build has been prepared but will not rollout")
        }
        (BuildState::Building, true) => (true, "Pool is paused; OS image build in progress"),
        (BuildState::Unpublished | BuildState::Built(_), true) => {
            (false, "Pool is paused; OS image build completed successfully")
        }
        (BuildState::Failed, true) => (false, "Pool is paused; OS image build failed"),
        (BuildState::Interrupted, true) => (false, "Pool is paused; OS image build was interrupted"),
        (BuildState::Initial | BuildState::Prepared, false) => {
            (true, "Pool is waiting for OS image build to start")
        }
        (BuildState::Building, false) => (true, "Pool is waiting for OS image build to complete"),
        (BuildState::Built(_), false) if is_updated => return None,
        (BuildState::Unpublished | BuildState::Built(_), false) => {
            (true, "Pool is waiting for nodes to apply OS image")
        }
        (BuildState::Failed, false) => (false, "Pool update stopped due to OS image build failure"),
        (BuildState::Interrupted, false) => {
            (false, "Pool update stopped due to OS image build being interrupted")
        }
    };
    Some((is_updating, format!("{text} (mosb: {machine_os_build})")))
}

/// Sets `NodeDegraded` and `Degraded`. `RenderDegraded` and `ImageBuildDegraded` are others' to set.
fn degraded(conditions: &mut Conditions<'_>, census: &Tally<'_>, course: &Course) {
    let nodes = node_degraded(conditions, census);
    let mistake = course.mistakes.iter().find(|(mistake, _)| mistake.is_fatal());
    let phase = course.phase;
    let unwritten = conditions.list.iter().find(|one| one.type_ == NOT_WRITTEN && one.status == "True");
    let unwritten = unwritten.and_then(|one| Some((one.reason.clone()?, one.message.clone()?)));
    let causes = [
        nodes,
        image_build(conditions),
        conditions.message_if("RenderDegraded").map(|cause| format!("the pool can't be rendered: {cause}")),
        course.halt.clone(),
        mistake.map(|(_, message)| message.clone()),
    ];
    let causes = causes.into_iter().flatten().map(|message| (String::new(), message));
    let fault = phase.is_fault().then(|| (phase.as_str().to_owned(), course.message.clone()));
    let first = causes.chain(fault).chain(unwritten).next();
    let is_degraded = first.is_some();
    let (reason, message) = first.unwrap_or_default();
    conditions.set("Degraded", is_degraded, &reason, message);
}

/// Returns why the pool's image is not there: one that can't be built yet has not failed.
fn image_build(conditions: &Conditions<'_>) -> Option<String> {
    let own = conditions.list.iter().find(|one| one.type_ == "ImageBuildDegraded" && one.status == "True")?;
    let is_pending = own.reason.as_deref() == Some("BuildPending");
    let message = own.message.clone().filter(|message| is_pending && !message.is_empty());
    Some(message.unwrap_or_else(|| "Custom OS image build failed".to_owned()))
}

fn node_degraded(conditions: &mut Conditions<'_>, census: &Tally<'_>) -> Option<String> {
    let nodes = &census.degraded;
    if nodes.is_empty() {
        conditions.set("NodeDegraded", false, "", String::new());
        return None;
    }
    let quoted = nodes.iter().take(MAX_QUOTED).map(|node| {
        let reason = node.reason.as_deref().unwrap_or_default();
        let reason: String = reason.chars().take(MAX_REASON).collect();
        format!("Node {} is reporting: {reason:?}", node.name)
    });
    let mut message = quoted.collect::<Vec<_>>().join(", ");
    if nodes.len() > MAX_QUOTED {
        message.push_str(&format!(", and {} more", nodes.len() - MAX_QUOTED));
    }
    let reason = format!("{} nodes are reporting degraded status on sync", nodes.len());
    conditions.set("NodeDegraded", true, &reason, message.clone());
    Some(message)
}

/// The conditions of a pool; those of others stay.
pub(super) struct Conditions<'a> {
    list: Vec<Condition>,
    input: &'a RolloutInput<'a>,
}

impl Conditions<'_> {
    /// Returns true if there is a condition, whether it holds or not.
    fn has(&self, type_: &str) -> bool {
        self.list.iter().any(|condition| condition.type_ == type_)
    }

    /// Returns true if a condition holds.
    fn is(&self, type_: &str) -> bool {
        self.list.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
    }

    /// Returns the message of a condition that holds.
    fn message_if(&self, type_: &str) -> Option<&str> {
        let found = self.list.iter().find(|one| one.type_ == type_ && one.status == "True")?;
        Some(found.message.as_deref().unwrap_or_default())
    }

    /// Sets a condition.
    fn set(&mut self, type_: &str, status: bool, reason: &str, message: String) {
        set_condition(&mut self.list, self.input.now, type_, status, reason, message);
    }
}

/// Sets a condition of a list. Its time is that of the last change between True and False.
pub(super) fn set_condition(
    list: &mut Vec<Condition>,
    now: Timestamp,
    type_: &str,
    status: bool,
    reason: &str,
    message: String,
) {
    let status = if status { "True" } else { "False" };
    let old = list.iter_mut().find(|condition| condition.type_ == type_);
    let since = match &old {
        Some(old) if old.status == status => old.last_transition_time.clone(),
        _ => Some(patch::text(now)),
    };
    let condition = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        last_transition_time: since,
        reason: Some(reason.to_owned()),
        message: Some(message),
    };
    match old {
        Some(old) => *old = condition,
        None => list.push(condition),
    }
}
