//! The gates of a policy: halt, prefetch, windows, waves and soak.
//!
//! Their state is kept in the policy's status. A gate that opens is recorded before anything is done behind it: the call
//! that opens it gives no node a target. A gate that closes holds at once, recorded or not.
//!
//! Time that a wave is watched is counted between calls, and never more than a step of it at once: a clock that jumps ahead
//! skips nothing, and one that jumps back starts the step again. Timeouts of nodes count by [`super::Clock`].

use jiff::{SignedDuration, Timestamp};

use super::census::Tally;
use super::course::{Course, PrefetchOrder, progress};
use super::orphan::{ROLLOUT_OF, nodes_failed};
use super::phase::Phase;
use super::policy::Rules;
use super::{Node, Pair, Policy, PrefetchProgress, RolloutInput, orphan, patch};
use crate::api::RolloutPolicyStatus;
use crate::api::rollout_policy::{HaltStatus, OnFailure, PolicyTarget, SoakStatus};
use crate::model::ImageRef;

/// The longest step in which watched time is counted.
const MAX_STEP: SignedDuration = SignedDuration::from_mins(5);

/// A reason that is quoted is cut here.
const MAX_CAUSE: usize = 500;

/// Decides for a pool with a policy. `stop` is the cause that nothing is to be done, whatever the policy allows.
pub(super) fn course(
    input: &RolloutInput<'_>,
    census: &Tally<'_>,
    policy: &Policy,
    rules: &Rules,
    stop: Option<(Phase, String)>,
) -> Course {
    let mut gates = Gates { input, census, policy, rules, memory: policy.status.clone(), is_opened: false };
    let mut course = gates.pass(stop);
    let mut memory = gates.memory;
    memory.observed_generation = policy.generation;
    memory.pool = Some(input.pool.name.clone());
    memory.phase = Some(course.phase.as_str().to_owned());
    memory.waves = Some(number(rules.waves.len().saturating_add(1)));
    memory.invalid = (course.phase == Phase::Invalid).then(|| course.message.clone());
    course.memory = Some(memory);
    if gates.is_opened {
        course.limit = 0;
        course.wake_at(input.now);
    }
    course
}

struct Gates<'a> {
    input: &'a RolloutInput<'a>,
    census: &'a Tally<'a>,
    policy: &'a Policy,
    rules: &'a Rules,
    memory: RolloutPolicyStatus,
    /// A gate opened in this call.
    is_opened: bool,
}

impl Gates<'_> {
    fn pass(&mut self, stop: Option<(Phase, String)>) -> Course {
        let target = self.census.target.as_ref().filter(|target| self.is_certain(target));
        let Some(target) = target else {
            let (phase, message) = stop.unwrap_or_else(|| (Phase::Building, String::new()));
            return Course { halt: self.kept_halt(), ..Course::stop(phase, message) };
        };
        self.remember(target);
        let is_complete = self.census.updated == self.census.len() && !self.census.is_empty();
        if is_complete {
            self.finish(target);
        }
        let (halt, roll_back) = self.halted(target);
        let windows = self.rules.windows.at(self.input.now);
        self.memory.next_window = windows.next.map(patch::text);
        if let Some((phase, message)) = stop {
            return Course { halt, ..Course::stop(phase, message) };
        }
        if let Some(message) = halt {
            return Course { halt: Some(message.clone()), roll_back, ..Course::stop(Phase::Halted, message) };
        }
        if is_complete {
            let config = target.config.as_deref().unwrap_or_default();
            return Course::stop(Phase::Complete, format!("all {} nodes have {config}", self.census.updated));
        }
        let prefetch = self.prefetch_order(target);
        let mut course = if prefetch.is_some() && self.memory.prefetched != Some(true) {
            self.prefetched(prefetch.as_ref())
        } else if windows.is_open {
            self.wave()
        } else {
            Course::stop(Phase::Closed, self.closed())
        };
        course.prefetch = prefetch;
        if let Some(until) = windows.until {
            course.wake_at(until);
        }
        self.wake_for_timeouts(&mut course);
        course
    }

    /// Returns false if the target may be one of another program: waves and halt are of the own one, and it ends none of them.
    fn is_certain(&self, target: &Pair) -> bool {
        let pool = self.input.pool;
        let is_known = self.memory.target.as_ref().is_none_or(|known| *known == policy_target(target));
        pool.contested.is_none() && (pool.unread.is_none() || is_known)
    }

    /// Returns the halt that holds while nothing is decided by the target: it is not built, or not certain.
    fn kept_halt(&self) -> Option<String> {
        let pool = self.input.pool;
        let is_of_pool = self.memory.pool.as_ref() == Some(&pool.name);
        let remembered = self.memory.target.as_ref().map(|target| &*target.config);
        let is_of_target =
            remembered == pool.own_config() || pool.own_config().is_none() || pool.unread.is_some();
        let halt = self.memory.halt.as_ref().filter(|_| is_of_pool && is_of_target)?;
        Some(self.halt_message(halt, None))
    }

    /// Starts over for a new target.
    fn remember(&mut self, target: &Pair) {
        let target = policy_target(target);
        if self.memory.target.as_ref() == Some(&target) {
            return;
        }
        let halt = orphan::inherited(self.input.pool, self.policy, self.rules.allowed_failures);
        let complete = self.last_complete(&target);
        let last_good = match (self.memory.last_good.take(), complete) {
            // The image is known for certain.
            (Some(good), Some(complete)) if good.config == complete.config => Some(good),
            (good, complete) => complete.or(good),
        };
        self.memory = RolloutPolicyStatus {
            last_good,
            resumed: self.policy.resume.clone(),
            target: Some(target),
            wave: Some(1),
            conditions: self.memory.conditions.take(),
            halt,
            ..RolloutPolicyStatus::default()
        };
    }

    /// Returns the target that all nodes had before the policy came.
    fn last_complete(&self, target: &PolicyTarget) -> Option<PolicyTarget> {
        let config = self.input.pool.status.configuration.as_ref()?.name.clone()?;
        if config.is_empty() || config == target.config {
            return None;
        }
        let mut images = self
            .census
            .nodes
            .iter()
            .filter(|node| node.current.config.as_ref() == Some(&config))
            .map(|node| &node.current.image);
        let image = images.next()?;
        let is_common = images.all(|other| other == image);
        is_common.then(|| PolicyTarget { config, image: image.clone() })
    }

    /// Returns the cause of the halt, and the target that failed nodes return to.
    fn halted(&mut self, target: &Pair) -> (Option<String>, Option<Pair>) {
        let failed = self.failed();
        let allowed = self.allowed();
        let is_too_many = failed > allowed;
        let is_resumed = self.policy.resume.is_some() && self.policy.resume != self.memory.resumed;
        self.memory.resumed.clone_from(&self.policy.resume);
        match self.memory.halt.as_ref().map(|halt| halt.generation) {
            Some(generation) => {
                // Not any edit: returned nodes fail nothing any more, and would get the bad config again.
                let is_allowed = self.memory.halt.as_ref().is_some_and(|halt| number(allowed) >= halt.failed);
                let is_relaxed = generation != self.policy.generation && is_allowed && !is_too_many;
                if is_resumed {
                    self.memory.accepted_failures = Some(number(failed)).filter(|accepted| *accepted > 0);
                }
                if is_resumed || is_relaxed {
                    self.memory.halt = None;
                    self.is_opened = true;
                    return (None, None);
                }
            }
            None if is_too_many => self.memory.halt = Some(self.halt(failed)),
            None => {}
        }
        let Some(halt) = &self.memory.halt else { return (None, None) };
        let last_good =
            self.memory.last_good.as_ref().map(|good| Pair::new(&*good.config, good.image.clone()));
        let roll_back =
            last_good.filter(|good| self.rules.on_failure == OnFailure::RollBack && good != target);
        (Some(self.halt_message(halt, roll_back.as_ref())), roll_back)
    }

    /// Nodes that failed the target.
    fn failed(&self) -> usize {
        self.census.failed().count()
    }

    /// Nodes that may fail: the policy's number, and those that a person accepted as long as they are failed.
    fn allowed(&mut self) -> usize {
        let accepted = self.memory.accepted_failures.and_then(|accepted| usize::try_from(accepted).ok());
        let accepted = accepted.unwrap_or(0).min(self.failed());
        self.memory.accepted_failures = Some(number(accepted)).filter(|accepted| *accepted > 0);
        self.rules.allowed_failures.saturating_add(accepted)
    }

    /// The node that failed first, and its reason.
    fn halt(&self, failed: usize) -> HaltStatus {
        let first = self.census.failed().min_by_key(|node| (node.desired_since, &node.name));
        let cause = first.map(|node| match &node.reason {
            Some(reason) if node.is_degraded() => reason.chars().take(MAX_CAUSE).collect(),
            Some(_) | None if node.is_degraded() => "no reason reported".to_owned(),
            _ => "it has not finished within nodeTimeout".to_owned(),
        });
        HaltStatus {
            at: patch::text(self.input.now),
            node: first.map(|node| node.name.clone()).unwrap_or_default(),
            cause: cause.unwrap_or_default(),
            failed: number(failed),
            allowed: number(self.rules.allowed_failures),
            generation: self.policy.generation,
        }
    }

    fn halt_message(&self, halt: &HaltStatus, roll_back: Option<&Pair>) -> String {
        let returned = match roll_back.and_then(|pair| pair.config.as_deref()) {
            Some(config) => format!("; failed nodes return to {config}"),
            None if self.rules.on_failure == OnFailure::RollBack => {
                "; no config is known to return to".to_owned()
            }
            None => String::new(),
        };
        // A halt that an earlier policy left names no node.
        let first = if halt.node.is_empty() { String::new() } else { format!("first node {}: ", halt.node) };
        let config = self.memory.target.as_ref().map(|target| &*target.config).unwrap_or_default();
        format!(
            "{}, {} allowed in {ROLLOUT_OF}{config}; {first}{}{returned}; correct the MachineConfig, or resume with a new value \
             of the annotation machine-config-agent.io/resume of RolloutPolicy {}",
            nodes_failed(halt.failed),
            halt.allowed,
            halt.cause,
            self.policy.name
        )
    }

    /// All nodes have the target.
    fn finish(&mut self, target: &Pair) {
        self.memory.last_good = Some(policy_target(target));
        self.memory.soak = None;
        self.memory.halt = None;
        // A node that joins later without the target is no canary.
        self.memory.wave = Some(number(self.rules.waves.len().saturating_add(1)));
        self.memory.prefetched = self.rules.prefetch.map(|_| true);
    }

    fn closed(&self) -> String {
        let next = self.memory.next_window.as_deref().unwrap_or_default();
        let left = self.census.waiting.len() + self.census.blocked.len();
        format!("{left} nodes wait for the next window, which opens at {next}")
    }

    /// Returns the prefetch that nodes are given.
    fn prefetch_order(&self, target: &Pair) -> Option<PrefetchOrder> {
        let (at_once, timeout) = self.rules.prefetch?;
        let image = target.image.as_ref().or(self.input.pool.os_image.as_ref())?;
        ImageRef::parse(image).ok()?;
        Some(PrefetchOrder { image: image.clone(), at_once, timeout })
    }

    /// Opens the gate once no prefetch is pending.
    fn prefetched(&mut self, order: Option<&PrefetchOrder>) -> Course {
        // A node that refuses writes keeps nobody: it is not requested to.
        let can_begin = |node: &&Node| node.ready && !self.census.is_held(node, self.input.writes);
        let waiting = self.census.waiting.iter().map(|node| &**node).filter(can_begin);
        let pending = |node: &&Node| order.is_some_and(|order| is_pending(node, order, self.input));
        let pending: Vec<_> = waiting.filter(pending).collect();
        if pending.is_empty() {
            self.memory.prefetched = Some(true);
            self.is_opened = true;
        }
        let message = format!("{} nodes have not downloaded the image yet", pending.len());
        let mut course = Course::stop(Phase::Prefetching, message);
        // A node that waits for its turn has no end of its own; an earlier image's may long be past.
        let running =
            pending.iter().filter(|node| order.is_some_and(|order| is_running(node, order, self.input)));
        let (clock, now) = (self.input.clock, self.input.now);
        let ends = running.filter_map(|node| clock.end(node.prefetch_since?, order?.timeout, now));
        if let Some(end) = ends.min() {
            course.wake_at(end);
        }
        course
    }

    /// Gives nodes of the present wave the target, watches it, or goes on to the next one.
    fn wave(&mut self) -> Course {
        let message = progress(self.input, self.census);
        let wave = self.memory.wave.and_then(|wave| usize::try_from(wave).ok()).unwrap_or(1).max(1);
        let Some(rule) = self.rules.waves.get(wave - 1) else {
            return Course { limit: usize::MAX, ..Course::stop(Phase::Updating, message) };
        };
        let message = format!("wave {wave} of {}: {message}", self.rules.waves.len() + 1);
        let given = self.census.stamped;
        let is_full =
            given >= rule.until || (self.census.waiting.is_empty() && self.census.blocked.is_empty());
        let is_settled = self.census.at_work.len() == self.census.late.len()
            && self.census.unsettled.is_empty()
            && (self.census.down.is_empty() || self.failed() + self.census.down.len() <= self.allowed());
        if !is_full || !is_settled {
            self.memory.soak = None;
            let limit = rule.until.saturating_sub(given);
            return Course { limit, ..Course::stop(Phase::Updating, message) };
        }
        if let Some(again) = self.soak(rule.soak) {
            let message = format!("wave {wave} is watched for {:#}", rule.soak);
            let mut course = Course::stop(Phase::Soaking, message);
            course.wake_at(again);
            return course;
        }
        self.memory.soak = None;
        self.memory.wave = Some(number(wave.saturating_add(1)));
        self.is_opened = true;
        Course::stop(Phase::Updating, message)
    }

    /// Counts watched time. Returns the time of the next count; `None` when it was watched long enough.
    fn soak(&mut self, soak: SignedDuration) -> Option<Timestamp> {
        let now = self.input.now;
        let step = (soak / 20).clamp(SignedDuration::from_secs(1), MAX_STEP);
        let old = self.memory.soak.clone();
        let last = old.as_ref().and_then(|old| old.observed_at.parse::<Timestamp>().ok());
        let counted = SignedDuration::from_secs(old.map_or(0, |old| old.seconds.max(0)));
        let passed = last.map_or(SignedDuration::ZERO, |last| now.duration_since(last));
        let total = counted.saturating_add(passed.clamp(SignedDuration::ZERO, step * 2));
        if total >= soak {
            return None;
        }
        let is_jump = passed.is_negative() || passed > step * 2;
        if last.is_none() || is_jump || passed >= step {
            self.memory.soak = Some(SoakStatus { seconds: total.as_secs(), observed_at: patch::text(now) });
        }
        let again = step.min(soak.saturating_sub(total)).max(SignedDuration::from_secs(1));
        Some(now.checked_add(again).unwrap_or(now))
    }

    fn wake_for_timeouts(&self, course: &mut Course) {
        let Some(timeout) = self.rules.node_timeout else { return };
        let (clock, now) = (self.input.clock, self.input.now);
        let late_at = |node: &Node| clock.end(node.desired_since?, timeout, now);
        let next = self
            .census
            .at_work
            .iter()
            .filter_map(|node| late_at(node))
            .filter(|at| *at > self.input.now)
            .min();
        if let Some(next) = next {
            course.wake_at(next);
        }
    }
}

/// Returns true if a node has yet to download the image, and is waited for.
pub(super) fn is_pending(node: &Node, order: &PrefetchOrder, input: &RolloutInput<'_>) -> bool {
    if node.current.image.as_ref() == Some(&order.image) {
        return false;
    }
    node.prefetch_image.as_ref() != Some(&order.image) || is_running(node, order, input)
}

/// Returns true if a node downloads the image now.
pub(super) fn is_running(node: &Node, order: &PrefetchOrder, input: &RolloutInput<'_>) -> bool {
    let passed = node.prefetch_since.map(|since| input.clock.passed(since, input.now));
    let is_late = passed.is_some_and(|passed| passed >= order.timeout);
    node.prefetch_image.as_ref() == Some(&order.image)
        && matches!(node.prefetch, None | Some(PrefetchProgress::Running))
        && !is_late
}

fn policy_target(pair: &Pair) -> PolicyTarget {
    PolicyTarget { config: pair.config.clone().unwrap_or_default(), image: pair.image.clone() }
}

fn number(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
