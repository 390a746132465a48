//! Pools and their rollouts, on one screen. Pure.
//!
//! [`view`] counts by the nodes themselves, as the rollout does, and quotes the controllers' messages: where the two differ,
//! no controller is at work. All texts of nodes are cleaned of control characters, which a terminal would follow.

mod build;
mod clean;
mod estimate;
mod input;
mod node;
mod screen;
mod step;
mod text;

use std::collections::BTreeMap;

use jiff::Timestamp;

pub use build::{BuildRow, BuildStep, ObservedBuild};
pub use estimate::Estimate;
pub use input::{ObservedNode, ViewInput};
pub use screen::{NodeRow, PoolView, View, Wave};
pub use step::{Progress, Step};
pub use text::{text, text_on};

use crate::api::rollout_policy::HaltStatus;
use crate::drain;
use crate::rollout::{Membership, Node, Pool, PrefetchProgress, first_config};
use clean::clean;

/// Makes the screen.
pub fn view(input: &ViewInput<'_>) -> View {
    let mut members: BTreeMap<&str, Vec<&ObservedNode<'_>>> = BTreeMap::new();
    let mut homeless: Vec<(String, &ObservedNode<'_>)> = Vec::new();
    for node in &input.nodes {
        if is_unlabeled(input, node.node) {
            homeless.push((String::new(), node));
            continue;
        }
        match input.selectors.membership(node.node) {
            Membership::Pool(pool) => members.entry(pool).or_default().push(node),
            Membership::None => homeless.push((String::new(), node)),
            Membership::Conflict(pools) => homeless.push((pools.join(","), node)),
        }
    }
    let nodes_without_pool = homeless.len();
    let mut rows = Vec::new();
    let mut pools = Vec::new();
    for (name, pool) in &input.pools {
        let nodes = members.get(name).map(Vec::as_slice).unwrap_or_default();
        pools.push(match pool {
            Ok(pool) => pool_view(pool, nodes),
            Err(cause) => unreadable(name, cause),
        });
        rows.extend(nodes.iter().filter_map(|node| Some(((*name).to_owned(), *node, node::step(node)?))));
    }
    // A node that left its pool has its update all the same.
    let has_update = |node: &Node| node.is_in_flight() || node.is_degraded();
    let homeless = homeless.into_iter().filter(|(_, observed)| has_update(observed.node));
    rows.extend(homeless.filter_map(|(pools, observed)| Some((pools, observed, node::step(observed)?))));
    // Those that need a person, and those that take longest.
    rows.sort_by_key(|(_, node, at)| {
        (at.step.class(), at.since.unwrap_or(Timestamp::MAX), node.node.name.clone())
    });
    let more_nodes = rows.len().saturating_sub(input.limit);
    let rows = rows.into_iter().take(input.limit).map(|(pool, node, at)| NodeRow {
        name: clean(&node.node.name),
        pool: clean(&pool),
        step: at.step,
        since: at.since.map(|since| since.to_string()),
        detail: clean(&at.detail),
    });
    let target = |name: &str| {
        let pool = input.pools.get(name)?.as_ref().ok()?;
        pool.configuration.name.as_deref()
    };
    let builds = build::rows(&input.builds, target);
    View {
        at: input.now.round(jiff::Unit::Second).unwrap_or(input.now).to_string(),
        stale: input.stale.iter().map(|text| clean(text)).collect(),
        pools,
        builds,
        nodes: rows.collect(),
        more_nodes,
        nodes_without_pool,
    }
}

/// Returns true if a node waits for the labels of its custom pool, as that one says: it is of no pool yet.
fn is_unlabeled(input: &ViewInput<'_>, node: &Node) -> bool {
    let named = first_config(node).and_then(|first| first.strip_prefix("rendered-")?.rsplit_once('-'));
    let Some((name, Some(Ok(pool)))) = named.map(|(name, _)| (name, input.pools.get(name))) else {
        return false;
    };
    let mut conditions = pool.status.conditions.iter().flatten();
    let found = conditions.find(|one| one.type_ == "RolloutNodesNotWritten" && one.status == "True");
    let words = format!("labeling for pool {name}");
    found.and_then(|found| found.message.as_deref()).is_some_and(|message| message.contains(&words))
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
    for observed in nodes {
        let node = observed.node;
        let is_given = target.as_ref() == Some(&node.desired);
        let is_drained = drain::request(&observed.drain) == Some(drain::Request::Drain);
        view.updated += usize::from(is_given && node.is_done());
        view.prefetching += usize::from(node.prefetch == Some(PrefetchProgress::Running));
        view.drains_blocked += usize::from(is_drained && observed.drain.blocked.is_some());
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
    let counts = estimate::Counts {
        left: view.waiting + view.at_work,
        out_of_service: view.degraded + view.out_of_service,
    };
    view.estimate = estimate::estimate(pool, &view.state, counts, nodes);
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
    let kinds = [
        "RenderDegraded",
        "ImageBuildDegraded",
        "RolloutInvalid",
        "RolloutNodesNotWritten",
        "UnknownFields",
        "FieldsNotApplied",
    ];
    let bad = kinds.iter().filter_map(|kind| {
        let mut all = conditions.iter();
        let found = all.find(|condition| condition.type_ == *kind && condition.status == "True")?;
        Some(clean(&format!("{kind}: {}", found.message.as_deref().unwrap_or_default())))
    });
    let mut problems: Vec<String> = bad.collect();
    if pool
        .status
        .observed_generation
        .is_some_and(|observed| pool.generation.is_some_and(|now| observed < now))
    {
        problems.push("the controller has not acted on the last change of the pool yet".to_owned());
    }
    problems
}

#[cfg(test)]
mod tests;
