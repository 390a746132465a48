//! The drain controller's half of the handshake: an agent's requests for its node, and the next write. Pure.
//!
//! The agent writes `desiredDrain` (`drain-<config>` or `uncordon-<config>`) and waits until `lastAppliedDrain` has the same
//! value. All that a drain remembers is on the Node: since when it lasts, who cordoned, what blocks it. A controller that is
//! killed is replaced by one that goes on.
//!
//! # Decisions
//!
//! - A node that another actor cordoned before the drain stays cordoned after it: [`CORDONED_BY`] names the actor. The
//!   Machine Config Operator uncordons it, also at each start of an agent.
//! - The creation of the newest pod that leaves is recorded before the first eviction: the next process evicts none that came to the
//!   cordoned node.
//! - `lastAppliedDrain` is written onto the version of the Node that was cordoned: a concurrent uncordon has the write
//!   refused, and the node is cordoned again.
//! - A refused eviction is requested again when its budget or its pods change, not in a fixed rhythm; after a minute at
//!   the latest, after five once the drain lasts ten minutes, as the Machine Config Operator does. Which pods leave, and what
//!   the drain waits for, decides [`machine_config_core::drain`].
//! - A drain that failed by the rules of its pool is over when its pods leave anyway, when the rules change, or when the agent
//!   asks for something else. Until then [`FAILED`] is on the Node, and nothing is evicted.
//! - A label of a person is never removed: [`EXCLUDED`] says that it is ours.

pub mod budgets;
pub mod pods;
mod rules;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use machine_config_core::model::Timestamp as Creation;

pub use budgets::Budgets;
pub use pods::{Pod, Pods};
pub use rules::DrainRules;

use crate::api::OnTimeout;

/// The agent's request.
pub const DESIRED: &str = "machineconfiguration.openshift.io/desiredDrain";

/// The request that was completed last.
pub const LAST_APPLIED: &str = "machineconfiguration.openshift.io/lastAppliedDrain";

/// The actor that cordoned the node.
pub const CORDONED_BY: &str = "machine-config-agent.io/cordoned-by";

/// Request and start of the drain, and, once the pods are listed, the creation of the newest one that leaves:
/// `<desiredDrain> <time>[ <time>]`.
pub const SINCE: &str = "machine-config-agent.io/drain-since";

/// The pod and the budget that the drain waits for.
pub const BLOCKED: &str = machine_config_core::model::annotations::DRAIN_BLOCKED;

/// Request, and why its drain failed: `<desiredDrain> <text>`.
pub const FAILED: &str = "machine-config-agent.io/drain-failed";

/// Time at which this controller set [`EXCLUDE`].
pub const EXCLUDED: &str = "machine-config-agent.io/excluded-from-load-balancers";

/// The label of nodes that load balancers of the cloud leave out.
pub const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The value of [`CORDONED_BY`] for this controller.
const CONTROLLER: &str = "machine-config-controller";

/// The value of [`CORDONED_BY`] for all other actors.
const OTHER: &str = "other";

/// Age of a slow drain: its retries become rarer, and an Event names its blocker.
pub const SLOW_AFTER: Duration = Duration::from_secs(600);

/// Age of a failed drain: an alert is due. The drain continues.
pub const FAILED_AFTER: Duration = Duration::from_secs(3600);

/// Longest wait of a refused eviction for a change.
const RETRY: Duration = Duration::from_secs(60);

/// The same, once the drain is slow.
const SLOW_RETRY: Duration = Duration::from_secs(300);

/// Fields of a Node that decide the next step.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeView<'a> {
    /// [`DESIRED`].
    pub desired: Option<&'a str>,
    /// [`LAST_APPLIED`].
    pub applied: Option<&'a str>,
    /// [`CORDONED_BY`].
    pub cordoned_by: Option<&'a str>,
    /// [`SINCE`].
    pub since: Option<&'a str>,
    /// [`BLOCKED`].
    pub blocked: Option<&'a str>,
    /// [`FAILED`].
    pub failed: Option<&'a str>,
    /// [`EXCLUDED`].
    pub excluded: Option<&'a str>,
    /// It has the label [`EXCLUDE`].
    pub is_excluded: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
}

impl<'a> NodeView<'a> {
    /// Selects the Node's annotations.
    pub fn new(annotations: &'a BTreeMap<String, String>, unschedulable: bool) -> Self {
        let get = |key: &str| annotations.get(key).map(String::as_str).filter(|value| !value.is_empty());
        Self {
            desired: get(DESIRED),
            applied: get(LAST_APPLIED),
            cordoned_by: get(CORDONED_BY),
            since: get(SINCE),
            blocked: get(BLOCKED),
            failed: get(FAILED),
            excluded: get(EXCLUDED),
            is_excluded: false,
            unschedulable,
        }
    }

    /// Adds what its labels say.
    #[must_use]
    pub fn with_labels(self, labels: &BTreeMap<String, String>) -> Self {
        Self { is_excluded: labels.contains_key(EXCLUDE), ..self }
    }

    /// Returns why the drain that is requested failed, if it did.
    pub fn failure(&self) -> Option<&'a str> {
        let (desired, why) = self.failed?.split_once(' ')?;
        (self.desired == Some(desired) && request(self) == Some(Request::Drain)).then_some(why)
    }
}

/// An agent's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Cordon the node and evict its pods.
    Drain,
    /// Uncordon the node.
    Uncordon,
    /// Unknown: the value has another form.
    Unknown,
}

/// Returns the open request of the agent.
pub fn request(node: &NodeView<'_>) -> Option<Request> {
    let desired = node.desired?;
    let request = match desired.split_once('-') {
        Some(("drain", config)) if !config.is_empty() => Request::Drain,
        Some(("uncordon", config)) if !config.is_empty() => Request::Uncordon,
        _ => Request::Unknown,
    };
    // The target went back before its drain was answered: the request is the one that was answered last, and the node has the marks of that
    // drain.
    let is_of_other = |since: &str| since.split_once(' ').is_none_or(|(of, _)| of != desired);
    let is_taken_back = request != Request::Unknown && node.since.is_some_and(is_of_other);
    (node.applied != Some(desired) || is_taken_back).then_some(request)
}

/// Changes of a Node, written in one patch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// Annotations; `None` removes one.
    pub annotations: BTreeMap<&'static str, Option<String>>,
    /// Labels; `None` removes one.
    pub labels: BTreeMap<&'static str, Option<String>>,
    /// `spec.unschedulable`; `None` leaves it.
    pub unschedulable: Option<bool>,
}

impl Patch {
    /// Names what the patch is about, for people. Cordon, answer and uncordon are one: they follow one another, also of one config, and
    /// none of them comes twice in a row by itself.
    pub fn field(&self) -> &'static str {
        let is_answer = self.unschedulable.is_some() || self.annotations.contains_key(LAST_APPLIED);
        let is_record = self.annotations.len() == 1 && self.annotations.contains_key(SINCE);
        match (is_answer, is_record) {
            (true, _) => "spec.unschedulable or annotation lastAppliedDrain",
            (false, true) => SINCE,
            (false, false) => BLOCKED,
        }
    }

    /// Returns the fields that it changes on the way, beside that one.
    pub fn changed_beside(&self) -> impl Iterator<Item = &'static str> {
        let is_beside = |key: &&'static str| *key != self.field() && self.annotations.contains_key(key);
        [BLOCKED, SINCE].into_iter().filter(is_beside)
    }

    /// Returns what it writes, without what differs each time.
    pub fn content(&self) -> String {
        let mut steady = self.clone();
        // The first cordon begins the drain and says who cordoned.
        steady.annotations.retain(|key, _| ![SINCE, EXCLUDED, CORDONED_BY].contains(key));
        format!("{steady:?}")
    }
}

/// The next step of a node's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// There is no request.
    Nothing,
    /// The request can't be read; the next request is waited for.
    Refuse(String),
    /// Cordon: the drain begins, or the node was uncordoned in its middle.
    Cordon(Patch),
    /// List the pods before anything else.
    ListPods,
    /// Record which of them leave.
    Record(Patch),
    /// Evict these; then wait for a change, at most so long.
    Evict {
        /// Pods to evict now.
        pods: Vec<Pod>,
        /// Time of the next request.
        again: Option<Duration>,
    },
    /// The drain took too long, and its rules say so: delete these; then wait.
    Delete {
        /// Pods to delete now.
        pods: Vec<Pod>,
        /// Time of the next request.
        again: Option<Duration>,
    },
    /// The drain took too long: report it, and wait for a change.
    Fail,
    /// Acknowledge the request.
    Acknowledge(Patch),
}

/// Decides. `pods` are those of the node, listed after it was cordoned; `uptime` is the clock of their retries.
pub fn next(node: &NodeView<'_>, pods: &Pods, rules: &DrainRules, now: Timestamp, uptime: Duration) -> Step {
    let Some(request) = request(node) else { return Step::Nothing };
    let desired = node.desired.unwrap_or_default();
    match request {
        Request::Unknown => Step::Refuse(format!(
            "desiredDrain is {desired:?}; drain-<config> or uncordon-<config> is expected"
        )),
        Request::Uncordon => Step::Acknowledge(uncordon(node, desired)),
        // Its agent goes on: the marks are of another one.
        Request::Drain if node.applied == Some(desired) => Step::Acknowledge(drained(node)),
        Request::Drain if !node.unschedulable || since(node).is_none() => {
            Step::Cordon(cordon(node, desired, rules, now))
        }
        Request::Drain if !pods.is_listed() => Step::ListPods,
        Request::Drain => match (record(node, pods), load_balancers(node, rules, now)) {
            (Some(patch), _) => Step::Record(patch),
            (None, Some(left)) => Step::Evict { pods: Vec::new(), again: Some(uptime + left) },
            (None, None) => empty(node, pods, rules, now, uptime),
        },
    }
}

/// Returns the patch that records which pods leave, unless the Node has it already, or none does.
fn record(node: &NodeView<'_>, pods: &Pods) -> Option<Patch> {
    let newest = pods.newest().filter(|_| leaves_until(node).is_none())?;
    let since = format!("{} {newest}", node.since?);
    Some(Patch { annotations: BTreeMap::from([(SINCE, Some(since))]), ..Patch::default() })
}

/// Decides on the pods of a cordoned node.
fn empty(node: &NodeView<'_>, pods: &Pods, rules: &DrainRules, now: Timestamp, uptime: Duration) -> Step {
    if pods.is_drained() {
        return Step::Acknowledge(drained(node));
    }
    let is_late = rules.timeout.is_some_and(|timeout| lasts(node, now) >= timeout);
    let (leaving, again) = (pods.to_evict(uptime), pods.due());
    match (is_late, rules.on_timeout) {
        (false, _) => Step::Evict { pods: leaving, again },
        (true, OnTimeout::DeletePods) => Step::Delete { pods: leaving, again },
        (true, OnTimeout::Fail) => Step::Fail,
    }
}

/// Returns the time that load balancers still have to leave the node out. A clock that was set back makes it no longer than
/// the rule.
fn load_balancers(node: &NodeView<'_>, rules: &DrainRules, now: Timestamp) -> Option<Duration> {
    let since: Timestamp = node.excluded?.parse().ok()?;
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    rules.load_balancer_wait?.checked_sub(passed).filter(|left| !left.is_zero())
}

/// Returns since when the request is worked on, if it is.
pub fn since(node: &NodeView<'_>) -> Option<Timestamp> {
    let (desired, times) = node.since?.split_once(' ')?;
    let time = times.split_once(' ').map_or(times, |(time, _)| time);
    if node.desired == Some(desired) { time.parse().ok() } else { None }
}

/// Returns the creation of the newest pod that leaves, as it was recorded for this request.
pub fn leaves_until(node: &NodeView<'_>) -> Option<Creation> {
    let newest = node.since?.split(' ').nth(2)?;
    since(node).and_then(|_| Creation::read(newest))
}

/// Returns how long the drain lasts. A clock that was set back makes none last less than nothing.
pub fn lasts(node: &NodeView<'_>, now: Timestamp) -> Duration {
    let since = since(node).map(|since| now.duration_since(since));
    since.and_then(|lasts| Duration::try_from(lasts).ok()).unwrap_or_default()
}

/// Returns how long a refused eviction waits for a change at most.
pub fn retry(lasts: Duration) -> Duration {
    if lasts < SLOW_AFTER { RETRY } else { SLOW_RETRY }
}

/// Returns the patch that names the drain's blocker, unless the Node has it already.
pub fn blocked(node: &NodeView<'_>, why: Option<&str>) -> Option<Patch> {
    let why = why.map(|why| why.chars().take(MAX_BLOCKED).collect::<String>());
    let mut annotations = BTreeMap::new();
    if node.blocked != why.as_deref() {
        annotations.insert(BLOCKED, why);
    }
    // The rules have changed, and the drain goes on.
    if node.failed.is_some() {
        annotations.insert(FAILED, None);
    }
    (!annotations.is_empty()).then(|| Patch { annotations, ..Patch::default() })
}

/// Returns the patch that reports a failed drain, unless the Node has it already.
pub fn failed(node: &NodeView<'_>, why: &str) -> Option<Patch> {
    let why: String = why.chars().take(MAX_BLOCKED).collect();
    let annotations = BTreeMap::from([
        (FAILED, Some(format!("{} {why}", node.desired.unwrap_or_default()))),
        (BLOCKED, Some(why.clone())),
    ]);
    let is_there = node.failure() == Some(&why) && node.blocked == Some(&why);
    (!is_there).then(|| Patch { annotations, ..Patch::default() })
}

/// The longest text in an annotation.
const MAX_BLOCKED: usize = 1000;

fn cordon(node: &NodeView<'_>, desired: &str, rules: &DrainRules, now: Timestamp) -> Patch {
    let now = now.round(jiff::Unit::Second).unwrap_or(now);
    let mut annotations = BTreeMap::new();
    match since(node) {
        None => drop(annotations.insert(SINCE, Some(format!("{desired} {now}")))),
        // What came while the node was not cordoned leaves, too.
        Some(since) if leaves_until(node).is_some() => {
            drop(annotations.insert(SINCE, Some(format!("{desired} {since}"))));
        }
        Some(_) => {}
    }
    // First actor: a second config in the middle of a drain finds the controller's own cordon.
    match node.cordoned_by {
        None if node.unschedulable && !left_cordoned(node) => {
            annotations.insert(CORDONED_BY, Some(OTHER.to_owned()))
        }
        None => annotations.insert(CORDONED_BY, Some(CONTROLLER.to_owned())),
        // The node was uncordoned: the next cordon is the controller's.
        Some(OTHER) if !node.unschedulable => annotations.insert(CORDONED_BY, Some(CONTROLLER.to_owned())),
        Some(_) => None,
    };
    let mut labels = BTreeMap::new();
    if rules.load_balancer_wait.is_some() && !node.is_excluded {
        labels.insert(EXCLUDE, Some(String::new()));
        annotations.insert(EXCLUDED, Some(now.to_string()));
    }
    Patch { annotations, labels, unschedulable: (!node.unschedulable).then_some(true) }
}

/// Returns true if another drain controller cordoned for an agent, and left its mark alone.
fn left_cordoned(node: &NodeView<'_>) -> bool {
    node.applied.is_some_and(|applied| applied.starts_with("drain-"))
}

fn drained(node: &NodeView<'_>) -> Patch {
    let mut annotations =
        BTreeMap::from([(LAST_APPLIED, node.desired.map(str::to_owned)), (SINCE, None), (BLOCKED, None)]);
    if node.failed.is_some() {
        annotations.insert(FAILED, None);
    }
    Patch { annotations, ..Patch::default() }
}

fn uncordon(node: &NodeView<'_>, desired: &str) -> Patch {
    let mut annotations = BTreeMap::from([(LAST_APPLIED, Some(desired.to_owned()))]);
    let present = [
        (CORDONED_BY, node.cordoned_by),
        (SINCE, node.since),
        (BLOCKED, node.blocked),
        (FAILED, node.failed),
        (EXCLUDED, node.excluded),
    ];
    let labels = node.excluded.map(|_| (EXCLUDE, None)).into_iter().collect();
    annotations.extend(present.into_iter().filter(|(_, value)| value.is_some()).map(|(key, _)| (key, None)));
    let ours = match node.cordoned_by {
        Some(by) => by != OTHER,
        None => left_cordoned(node),
    };
    Patch { annotations, labels, unschedulable: (ours && node.unschedulable).then_some(false) }
}

#[cfg(test)]
mod tests;
