//! Pools and their rollouts, on one screen. Pure.
//!
//! [`view`] counts by the nodes themselves, as the rollout does, and quotes the controllers' messages: where the two differ,
//! no controller is at work. All texts of nodes are cleaned of control characters, which a terminal would follow.

mod build;
mod estimate;
mod step;
mod text;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

pub use build::{BuildRow, BuildStep, ObservedBuild};
pub use estimate::Estimate;
pub use step::{Progress, Step};
pub use text::text;

use crate::api::rollout_policy::HaltStatus;
use crate::drain::{self, NodeView};
use crate::rollout::{Membership, Node, Pool, PrefetchProgress, Selectors};

/// The longest text that is quoted.
const MAX_TEXT: usize = 1000;

/// Observed objects.
#[derive(Debug)]
pub struct ViewInput<'a> {
    /// The pools by name; one that can't be read with the cause.
    pub pools: BTreeMap<&'a str, Result<Pool, String>>,
    /// Their selectors.
    pub selectors: Selectors,
    /// All nodes.
    pub nodes: Vec<ObservedNode<'a>>,
    /// All builds.
    pub builds: Vec<ObservedBuild>,
    /// Kinds that can't be read now: shown as last read.
    pub stale: Vec<String>,
    /// The most nodes that are shown.
    pub limit: usize,
    /// The wall clock.
    pub now: Timestamp,
}

/// A node as it was read.
#[derive(Debug, Clone, Copy)]
pub struct ObservedNode<'a> {
    /// As the rollout sees it.
    pub node: &'a Node,
    /// Its drain.
    pub drain: NodeView<'a>,
    /// Its MachineConfigNode.
    pub progress: Option<&'a Progress>,
}

/// Content of the screen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Time of the reading.
    pub at: String,
    /// Kinds that can't be read now, shown as last read.
    pub stale: Vec<String>,
    /// The pools by name.
    pub pools: Vec<PoolView>,
    /// Builds that have not succeeded, those that need a person first.
    pub builds: Vec<BuildRow>,
    /// Nodes that are not done, those that need a person first.
    pub nodes: Vec<NodeRow>,
    /// So many more nodes are not done.
    pub more_nodes: usize,
    /// Nodes that no pool updates.
    pub nodes_without_pool: usize,
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// The rendered config that its nodes are to have.
    pub target: String,
    /// The image of it, in image mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The reason of its condition `RolloutProgressing`; `Unreadable` where the pool can't be read.
    pub state: String,
    /// The message of that condition.
    pub message: String,
    /// Other conditions that a person has to see to.
    pub problems: Vec<String>,
    /// A person paused it.
    pub paused: bool,
    /// Its nodes.
    pub nodes: usize,
    /// Have the target.
    pub updated: usize,
    /// Were given something, and have not finished.
    pub at_work: usize,
    /// Will be given the target.
    pub waiting: usize,
    /// Report that they failed.
    pub degraded: usize,
    /// Do nothing, and are cordoned or not Ready.
    pub out_of_service: usize,
    /// Download the image ahead.
    pub prefetching: usize,
    /// Are drained, and a pod may not leave.
    pub drains_blocked: usize,
    /// Progress of its policy's waves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<Wave>,
    /// Cause of the halt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted: Option<HaltStatus>,
    /// Next time at which nodes may get the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_window: Option<String>,
    /// Time of the rest, where nodes were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
}

/// Progress of a policy's waves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// The present one, from 1; the canary is the first where there is one.
    pub number: i32,
    /// Number of waves.
    pub of: i32,
    /// So long it has been watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched_seconds: Option<i64>,
}

/// A node that is not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Its step, or its fault.
    pub step: Step,
    /// Since when, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The cause, or the object that it waits for.
    pub detail: String,
}

/// Makes the screen.
pub fn view(seen: &ViewInput<'_>) -> View {
    let mut members: BTreeMap<&str, Vec<&ObservedNode<'_>>> = BTreeMap::new();
    let mut nodes_without_pool = 0;
    for node in &seen.nodes {
        match seen.selectors.membership(node.node) {
            Membership::Pool(pool) => members.entry(pool).or_default().push(node),
            Membership::None | Membership::Conflict(_) => nodes_without_pool += 1,
        }
    }
    let mut rows = Vec::new();
    let mut pools = Vec::new();
    for (name, pool) in &seen.pools {
        let nodes = members.get(name).map(Vec::as_slice).unwrap_or_default();
        pools.push(match pool {
            Ok(pool) => pool_view(pool, nodes),
            Err(cause) => unreadable(name, cause),
        });
        rows.extend(nodes.iter().filter_map(|node| Some((*name, *node, step::step(node)?))));
    }
    // Those that need a person, and those that take longest.
    rows.sort_by_key(|(_, node, at)| {
        (at.step.class(), at.since.unwrap_or(Timestamp::MAX), node.node.name.clone())
    });
    let more_nodes = rows.len().saturating_sub(seen.limit);
    let rows = rows.into_iter().take(seen.limit).map(|(pool, node, at)| NodeRow {
        name: clean(&node.node.name),
        pool: clean(pool),
        step: at.step,
        since: at.since.map(|since| since.to_string()),
        detail: clean(&at.detail),
    });
    let target = |name: &str| {
        let pool = seen.pools.get(name)?.as_ref().ok()?;
        pool.configuration.name.as_deref()
    };
    let builds = build::rows(&seen.builds, target);
    View {
        at: seen.now.round(jiff::Unit::Second).unwrap_or(seen.now).to_string(),
        stale: seen.stale.iter().map(|text| clean(text)).collect(),
        pools,
        builds,
        nodes: rows.collect(),
        more_nodes,
        nodes_without_pool,
    }
}

fn unreadable(name: &str, cause: &str) -> PoolView {
    let message = clean(&format!("MachineConfigPool {name} can't be read: {cause}; correct it"));
    PoolView { name: clean(name), state: "Unreadable".to_owned(), message, ..PoolView::default() }
}

fn pool_view(pool: &Pool, nodes: &[&ObservedNode<'_>]) -> PoolView {
    let target = pool.target();
    let (state, message) = state(pool);
    let policy = match &*pool.policies {
        [policy] => Some(&policy.status),
        _ => None,
    };
    let wave = policy.and_then(|policy| {
        let watched_seconds = policy.soak.as_ref().map(|soak| soak.seconds);
        Some(Wave { number: policy.wave?, of: policy.waves?, watched_seconds })
    });
    let halt = policy.and_then(|policy| policy.halt.as_ref());
    let mut view = PoolView {
        name: clean(&pool.name),
        target: clean(pool.configuration.name.as_deref().unwrap_or_default()),
        image: target.as_ref().and_then(|target| target.image.as_deref()).map(clean),
        message: clean(&message),
        problems: problems(pool),
        paused: pool.paused,
        nodes: nodes.len(),
        wave: wave.filter(|wave| wave.of > 1),
        halted: halt.map(|halt| HaltStatus {
            node: clean(&halt.node),
            cause: clean(&halt.cause),
            ..halt.clone()
        }),
        next_window: policy.and_then(|policy| policy.next_window.as_deref()).map(clean),
        state,
        ..PoolView::default()
    };
    for seen in nodes {
        let node = seen.node;
        let is_given = target.as_ref() == Some(&node.desired);
        let is_drained = drain::request(&seen.drain) == Some(drain::Request::Drain);
        view.updated += usize::from(is_given && node.is_done());
        view.prefetching += usize::from(node.prefetch == Some(PrefetchProgress::Running));
        view.drains_blocked += usize::from(is_drained && seen.drain.blocked.is_some());
        if node.is_degraded() {
            view.degraded += 1;
        } else if node.is_in_flight() || is_drained {
            view.at_work += 1;
        } else if !node.is_schedulable() {
            view.out_of_service += 1;
        } else if !is_given {
            view.waiting += 1;
        }
    }
    view.estimate = estimate::estimate(pool, &view, nodes);
    view
}

/// Returns the state of the rollout from the controller's condition; from the operator's where that one is at work.
fn state(pool: &Pool) -> (String, String) {
    let conditions = pool.status.conditions.as_deref().unwrap_or_default();
    let find = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    if let Some(progress) = find("RolloutProgressing") {
        return (
            clean(progress.reason.as_deref().unwrap_or_default()),
            progress.message.clone().unwrap_or_default(),
        );
    }
    let states = [("Degraded", "Degraded"), ("Updating", "Updating"), ("Updated", "Complete")];
    for (type_, state) in states {
        if let Some(condition) = find(type_).filter(|condition| condition.status == "True") {
            return (state.to_owned(), condition.message.clone().unwrap_or_default());
        }
    }
    if pool.paused {
        return ("Paused".to_owned(), "set spec.paused to false to go on".to_owned());
    }
    let next = "see that machine-config-controller runs and leads";
    ("Unknown".to_owned(), format!("no controller has written the pool's status yet; {next}"))
}

/// Returns problems that a person has to solve besides.
fn problems(pool: &Pool) -> Vec<String> {
    let conditions = pool.status.conditions.as_deref().unwrap_or_default();
    let kinds = ["RenderDegraded", "ImageBuildDegraded", "RolloutInvalid"];
    let bad = kinds.iter().filter_map(|kind| {
        let mut all = conditions.iter();
        let found = all.find(|condition| condition.type_ == *kind && condition.status == "True")?;
        Some(clean(&format!("{kind}: {}", found.message.as_deref().unwrap_or_default())))
    });
    let mut problems: Vec<String> = bad.collect();
    if pool.status.observed_generation.is_some_and(|seen| pool.generation.is_some_and(|now| seen < now)) {
        problems.push("the controller has not acted on the last change of the pool yet".to_owned());
    }
    problems
}

/// Returns a text that a terminal only prints: one line, without characters that change its direction.
fn clean(text: &str) -> String {
    let plain = |one: char| match one {
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => ' ',
        one if one.is_control() => ' ',
        one => one,
    };
    text.chars().take(MAX_TEXT).map(plain).collect()
}

#[cfg(test)]
mod tests;
