//! Steps that the policy and the pool allow now, and the causes that limit them.

use super::capacity::max_unavailable;
use super::census::Tally;
use super::course::{Course, MAX_NAMED, progress};
use super::phase::{Mistake, Phase};
use super::policy::Rules;
use super::pools::Conflict;
use super::{BuildState, Layering, RolloutInput, gates, orphan};
use crate::model::ImageRef;

/// Decides what a rollout may do.
pub(super) fn course(
    input: &RolloutInput<'_>,
    census: &Tally<'_>,
    rules: Result<Option<Rules>, String>,
) -> Course {
    let mistakes = mistakes(input, census, rules.as_ref().err());
    let fatal = mistakes.iter().find(|(mistake, _)| mistake.is_fatal());
    let unread = input.pool.unread.as_ref().map(|message| (Phase::Unread, message.clone()));
    let contested = input.pool.contested.as_ref().map(|message| (Phase::Contested, message.clone()));
    let stop = unread.or(contested).or_else(|| fatal.map(|(_, message)| (Phase::Invalid, message.clone())));
    let stop = stop.or_else(|| self::stop(input, census));
    let rules = rules.ok().flatten();
    let mut course = match (&rules, &*input.pool.policies) {
        (Some(rules), [policy]) => gates::course(input, census, policy, rules, stop),
        (None, [policy]) => {
            let mut course = orphan::halt(Course::from_stop(stop, census, input), input, census);
            let mut memory = policy.status.clone();
            memory.observed_generation = policy.generation;
            memory.pool = Some(input.pool.name.clone());
            memory.phase = Some(course.phase.as_str().to_owned());
            memory.invalid = Some(course.message.clone());
            course.memory = Some(memory);
            course
        }
        _ => orphan::halt(Course::from_stop(stop, census, input), input, census),
    };
    orphan::hold(&mut course, input.pool);
    course.mistakes = mistakes;
    if let Some(left) = left(input, course.phase) {
        course.message.push_str(&left);
    }
    course
}

impl Course {
    fn from_stop(stop: Option<(Phase, String)>, census: &Tally<'_>, input: &RolloutInput<'_>) -> Self {
        match stop {
            Some((phase, message)) => Self::stop(phase, message),
            None if census.updated == census.len() => {
                let config = input.pool.configuration.name.as_deref().unwrap_or_default();
                Self::stop(Phase::Complete, format!("all {} nodes have {config}", census.updated))
            }
            None => Self { limit: usize::MAX, ..Self::stop(Phase::Updating, progress(input, census)) },
        }
    }
}

/// Names the nodes that left the pool while they were at work for it, where the message of the phase does not: the rest of the pool may be
/// complete.
fn left(input: &RolloutInput<'_>, phase: Phase) -> Option<String> {
    let left = &input.pool.left;
    let (first, is_named) = (left.first.first()?, phase == Phase::Updating);
    // What is known of other pools is old, or nothing.
    if is_named || phase.is_fault() {
        return None;
    }
    let others = match left.count.saturating_sub(1) {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let (name, now) = first;
    Some(format!("; it was left during an update by node {name} ({now}){others}"))
}

/// Returns the cause that nothing is to be done, whatever a policy allows.
fn stop(input: &RolloutInput<'_>, census: &Tally<'_>) -> Option<(Phase, String)> {
    let pool = input.pool;
    let name = &pool.name;
    if pool.configuration.name.as_deref().is_none_or(str::is_empty) {
        return Some((Phase::NotRendered, format!("pool {name} has no rendered config yet")));
    }
    if census.is_empty() {
        let message = match input.conflicts.first() {
            Some(conflict) => format!("pool {name} has no node of its own: {}", conflict.text()),
            None => format!(
                "pool {name} has no node: its nodeSelector matches none, or only nodes of custom pools; label a node to match it, correct the \
                 selector, or delete the pool"
            ),
        };
        return Some((Phase::NoNodes, message));
    }
    if pool.paused {
        let next = "set spec.paused to false to go on";
        return Some((Phase::Paused, format!("pool {name} is paused; {next}")));
    }
    if let Some(message) = &pool.unrecorded {
        return Some((Phase::Unrecorded, message.clone()));
    }
    if census.target.is_none() {
        let what = match &pool.layering {
            Layering::Waiting { machine_os_config } => {
                format!("MachineOSConfig {machine_os_config} has no build for it yet")
            }
            Layering::Build { machine_os_build, state: BuildState::Failed | BuildState::Interrupted } => {
                format!("MachineOSBuild {machine_os_build} failed; check its conditions")
            }
            Layering::Build { machine_os_build, .. } => {
                format!("MachineOSBuild {machine_os_build} has not published it yet")
            }
            Layering::None => "no target".to_owned(),
        };
        return Some((Phase::Building, format!("pool {name} waits for its image: {what}")));
    }
    None
}

fn mistakes(input: &RolloutInput<'_>, census: &Tally<'_>, policy: Option<&String>) -> Vec<(Mistake, String)> {
    let pool = input.pool;
    let name = &pool.name;
    let mut mistakes = Vec::new();
    if let Some(error) = &pool.selector_error {
        mistakes.push((Mistake::NodeSelector, format!("pool {name}: {error}")));
    }
    if let Err(cause) = max_unavailable(input, census) {
        let next = "write a number, or a percentage such as 10%";
        mistakes
            .push((Mistake::MaxUnavailable, format!("pool {name}: spec.maxUnavailable: {cause}; {next}")));
    }
    let image = census.target.as_ref().and_then(|target| target.image.as_deref());
    if let Some(Err(error)) = image.map(ImageRef::parse) {
        let error = error.in_field("status.currentImagePullSpec of its MachineOSConfig", "");
        let next = "name the image by digest in the status of the MachineOSConfig";
        mistakes.push((Mistake::Image, format!("pool {name}: {error}; {next}")));
    }
    if let Some(cause) = policy {
        mistakes.push((Mistake::Policy, cause.clone()));
    }
    let conflicts = input.conflicts.iter().take(MAX_NAMED).map(Conflict::text);
    mistakes.extend(conflicts.map(|message| (Mistake::NodeInTwoPools, message)));
    mistakes
}
