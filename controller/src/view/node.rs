//! Step of one node, from its object, its drain and its MachineConfigNode.

use jiff::Timestamp;

use super::input::ObservedNode;
use super::step::Step;
use crate::drain::{self, Request};
use crate::rollout::AgentState;

/// Step of a node, with its start and its detail.
#[derive(Debug)]
pub(super) struct At {
    pub(super) step: Step,
    pub(super) since: Option<Timestamp>,
    pub(super) detail: String,
}

/// Returns the step of a node; `None` if it serves and has nothing to do.
pub(super) fn step(observed: &ObservedNode<'_>) -> Option<At> {
    let node = observed.node;
    let at = |step, since, detail: String| Some(At { step, since, detail });
    let ready = if node.ready { "" } else { "the node is not Ready" };
    if node.is_degraded() {
        let is_refused = node.state == AgentState::Unreconcilable;
        let step = if is_refused { Step::Unreconcilable } else { Step::Degraded };
        let since = observed.progress.and_then(|progress| progress.degraded);
        return at(step, since, node.reason.clone().unwrap_or_else(|| "no reason reported".to_owned()));
    }
    let current =
        observed.progress.filter(|progress| Some(&progress.desired) == node.desired.config.as_ref());
    let under_way = current.and_then(|progress| progress.under_way.clone());
    match (drain::request(&observed.drain), observed.drain.blocked) {
        (Some(Request::Drain), Some(why)) => {
            return at(Step::DrainBlocked, drain::since(&observed.drain), why.to_owned());
        }
        (Some(Request::Drain), None) => {
            return at(Step::Draining, drain::since(&observed.drain), ready.to_owned());
        }
        (Some(Request::Uncordon), _) => {
            let since = under_way.filter(|(step, ..)| *step == Step::Uncordoning).and_then(|found| found.1);
            return at(Step::Uncordoning, since, ready.to_owned());
        }
        (Some(Request::Unknown) | None, _) => {}
    }
    match under_way {
        _ if !node.is_in_flight() && !node.ready => at(Step::NotReady, None, String::new()),
        _ if !node.is_in_flight() && node.unschedulable => at(Step::Cordoned, None, String::new()),
        _ if !node.is_in_flight() => None,
        // Announced as the next step while the image is staged; no drain is requested yet.
        Some((Step::Draining, since, _)) => at(Step::Preparing, since, ready.to_owned()),
        Some((step, since, detail)) => at(step, since, detail),
        None if node.state == AgentState::Working => at(Step::Working, node.desired_since, ready.to_owned()),
        None => at(Step::Starting, node.desired_since, ready.to_owned()),
    }
}
