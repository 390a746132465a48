//! Steps that the policy and the pool allow now, and the causes that limit them.

use jiff::{SignedDuration, Timestamp};

use super::census::Census;
use super::policy::Rules;
use super::{BuildState, Layering, Pair, Seen, choose, gates};
use crate::api::RolloutPolicyStatus;
use crate::model::ImageRef;

/// Nodes that a message names.
const MAX_NAMED: usize = 5;

/// Phase of a pool's rollout. The reason of its condition `RolloutProgressing`, and the phase of its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// All nodes have the target.
    Complete,
    /// Nodes are given the target.
    Updating,
    /// Nodes download its image.
    Prefetching,
    /// A wave is watched.
    Soaking,
    /// No window is open.
    Closed,
    /// A person paused the pool.
    Paused,
    /// Too many nodes failed.
    Halted,
    /// The pool or its policy is invalid.
    Invalid,
    /// The pool has no rendered config yet.
    NotRendered,
    /// The image of the target is not built yet.
    Building,
    /// No node belongs to the pool.
    NoNodes,
}

impl Phase {
    /// All of them: the documentation is compared with it.
    #[cfg(test)]
    pub(super) const ALL: [Self; 11] = [
        Self::Complete,
        Self::Updating,
        Self::Prefetching,
        Self::Soaking,
        Self::Closed,
        Self::Paused,
        Self::Halted,
        Self::Invalid,
        Self::NotRendered,
        Self::Building,
        Self::NoNodes,
    ];

    /// Returns its word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "Complete",
            Self::Updating => "Updating",
            Self::Prefetching => "Prefetching",
            Self::Soaking => "Soaking",
            Self::Closed => "Closed",
            Self::Paused => "Paused",
            Self::Halted => "Halted",
            Self::Invalid => "Invalid",
            Self::NotRendered => "NotRendered",
            Self::Building => "Building",
            Self::NoNodes => "NoNodes",
        }
    }

    /// Returns true if the rollout goes on by itself.
    pub(super) fn is_progressing(self) -> bool {
        matches!(self, Self::Updating | Self::Prefetching | Self::Soaking | Self::Building)
    }
}

/// Invalid input of a person. The reason of `RolloutInvalid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    /// The node selector.
    NodeSelector,
    /// A node belongs to two custom pools.
    NodeInTwoPools,
    /// The number.
    MaxUnavailable,
    /// The target's image is not named by digest.
    Image,
    /// The policy.
    Policy,
}

impl Mistake {
    /// All of them: the documentation is compared with it.
    #[cfg(test)]
    pub(super) const ALL: [Self; 5] =
        [Self::NodeSelector, Self::NodeInTwoPools, Self::MaxUnavailable, Self::Image, Self::Policy];

    /// Returns its word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NodeSelector => "NodeSelectorInvalid",
            Self::NodeInTwoPools => "NodeInTwoPools",
            Self::MaxUnavailable => "MaxUnavailableInvalid",
            Self::Image => "ImageInvalid",
            Self::Policy => "PolicyInvalid",
        }
    }

    /// Returns true if no node of the pool gets another target.
    pub(super) fn is_fatal(self) -> bool {
        self != Self::NodeInTwoPools
    }
}

/// Steps that are allowed now.
#[derive(Debug)]
pub(super) struct Course {
    /// The phase.
    pub(super) phase: Phase,
    /// For people.
    pub(super) message: String,
    /// Further nodes that may be given the target, whatever the capacity.
    pub(super) limit: usize,
    /// Target that failed nodes return to.
    pub(super) roll_back: Option<Pair>,
    /// Prefetch that the nodes are given.
    pub(super) prefetch: Option<PrefetchOrder>,
    /// The status of the policy.
    pub(super) memory: Option<RolloutPolicyStatus>,
    /// Cause of the halt.
    pub(super) halt: Option<String>,
    /// Invalid input, with messages.
    pub(super) mistakes: Vec<(Mistake, String)>,
    /// When time alone changes something.
    pub(super) wake: Option<Timestamp>,
}

/// Prefetch that nodes are given.
#[derive(Debug, Clone)]
pub(super) struct PrefetchOrder {
    /// The image.
    pub(super) image: String,
    /// Nodes at a time.
    pub(super) at_once: usize,
    /// A node is not waited for any longer.
    pub(super) timeout: SignedDuration,
}

impl Course {
    /// Creates a course on which nothing is done.
    pub(super) fn stop(phase: Phase, message: String) -> Self {
        Self {
            phase,
            message,
            limit: 0,
            roll_back: None,
            prefetch: None,
            memory: None,
            halt: None,
            mistakes: Vec::new(),
            wake: None,
        }
    }

    /// Comes back at a time, or earlier.
    pub(super) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// Decides.
pub(super) fn course(seen: &Seen<'_>, census: &Census<'_>, rules: Result<Option<Rules>, String>) -> Course {
    let mistakes = mistakes(seen, census, rules.as_ref().err());
    let fatal = mistakes.iter().find(|(mistake, _)| mistake.is_fatal());
    let stop = fatal.map(|(_, message)| (Phase::Invalid, message.clone())).or_else(|| stop(seen, census));
    let rules = rules.ok().flatten();
    let mut course = match (&rules, &*seen.pool.policies) {
        (Some(rules), [policy]) => gates::course(seen, census, policy, rules, stop),
        (None, [policy]) => {
            let mut course = Course::from_stop(stop, census, seen);
            let mut memory = policy.status.clone();
            memory.observed_generation = policy.generation;
            memory.pool = Some(seen.pool.name.clone());
            memory.phase = Some(course.phase.as_str().to_owned());
            memory.invalid = Some(course.message.clone());
            course.memory = Some(memory);
            course
        }
        _ => Course::from_stop(stop, census, seen),
    };
    course.mistakes = mistakes;
    course
}

impl Course {
    fn from_stop(stop: Option<(Phase, String)>, census: &Census<'_>, seen: &Seen<'_>) -> Self {
        match stop {
            Some((phase, message)) => Self::stop(phase, message),
            None if census.updated == seen.nodes.len() => {
                let config = seen.pool.configuration.name.as_deref().unwrap_or_default();
                Self::stop(Phase::Complete, format!("all {} nodes have {config}", census.updated))
            }
            None => Self { limit: usize::MAX, ..Self::stop(Phase::Updating, progress(seen, census)) },
        }
    }
}

/// Returns the cause that nothing is to be done, whatever a policy allows.
fn stop(seen: &Seen<'_>, census: &Census<'_>) -> Option<(Phase, String)> {
    let pool = seen.pool;
    let name = &pool.name;
    if pool.configuration.name.as_deref().is_none_or(str::is_empty) {
        return Some((Phase::NotRendered, format!("pool {name} has no rendered config yet")));
    }
    if seen.nodes.is_empty() {
        let next = "label a node as its nodeSelector says, correct the selector, or delete the pool";
        return Some((Phase::NoNodes, format!("pool {name} selects no node; {next}")));
    }
    if pool.paused {
        let next = "set spec.paused to false to go on";
        return Some((Phase::Paused, format!("pool {name} is paused; {next}")));
    }
    if census.target.is_none() {
        let what = match &pool.layering {
            Layering::Waiting { machine_os_config } => {
                format!("MachineOSConfig {machine_os_config} has no build for it yet")
            }
            Layering::Build { machine_os_build, state: BuildState::Failed | BuildState::Interrupted } => {
                format!("MachineOSBuild {machine_os_build} failed; look at its conditions")
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

fn mistakes(seen: &Seen<'_>, census: &Census<'_>, policy: Option<&String>) -> Vec<(Mistake, String)> {
    let pool = seen.pool;
    let name = &pool.name;
    let mut mistakes = Vec::new();
    if let Some(error) = &pool.selector_error {
        mistakes.push((Mistake::NodeSelector, format!("pool {name}: {error}")));
    }
    if let Err(cause) = choose::max_unavailable(seen, census) {
        let next = "write a number, or a percentage such as 10%";
        mistakes
            .push((Mistake::MaxUnavailable, format!("pool {name}: spec.maxUnavailable: {cause}; {next}")));
    }
    let image = census.target.as_ref().and_then(|target| target.image.as_deref());
    if let Some(Err(error)) = image.map(ImageRef::parse) {
        let next = "name the image by digest in the status of the MachineOSConfig";
        mistakes.push((Mistake::Image, format!("pool {name}: {error}; {next}")));
    }
    if let Some(cause) = policy {
        mistakes.push((Mistake::Policy, cause.clone()));
    }
    for conflict in seen.conflicts.iter().take(MAX_NAMED) {
        let message = format!(
            "node {} belongs to the custom pools {}, so none of them updates it; remove the label of all but one",
            conflict.node,
            conflict.pools.join(" and ")
        );
        mistakes.push((Mistake::NodeInTwoPools, message));
    }
    mistakes
}

/// Returns the progress as text, with the nodes that are waited for.
pub(super) fn progress(seen: &Seen<'_>, census: &Census<'_>) -> String {
    let machines = seen.nodes.len();
    let target = seen.pool.configuration.name.as_deref().unwrap_or_default();
    let mut text = format!("{} of {machines} nodes have {target}", census.updated);
    let failing = census.failing.iter().map(|node| (&*node.name, "failing"));
    let blocked = census.blocked.iter().map(|node| (&*node.name, choose::obstacle(node)));
    let down = census.down.iter().map(|node| (&*node.name, choose::obstacle(node)));
    let at_work = census
        .at_work
        .iter()
        .map(|node| (&*node.name, if node.drain_blocked.is_some() { "drain blocked" } else { "at work" }));
    let mut waited: Vec<_> = failing.chain(blocked).chain(down).chain(at_work).collect();
    waited.sort_by_key(|(name, what)| (*what == "at work", *name));
    let names = waited.iter().take(MAX_NAMED).map(|(name, what)| format!("{name} ({what})"));
    let names = names.collect::<Vec<_>>().join(", ");
    match waited.len() {
        0 => {}
        count if count > MAX_NAMED => {
            text.push_str(&format!("; waiting for nodes {names} and {} more", count - MAX_NAMED));
        }
        _ => text.push_str(&format!("; waiting for nodes {names}")),
    }
    text
}
