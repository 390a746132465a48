//! Cost of a change for the nodes of a pool, from the agent's own planner, before any write.

use crate::model::Facts;
use crate::model::policy::DisruptionPolicy;
use crate::plan::{Drain, Irreconcilable, Plan, PostActions, ServiceAction, ServiceVerb, plan_assumed};
use crate::render::{RenderError, Rendered};

/// Plans the way of a node from one rendered config to another. The host is assumed to be as the first one says; where
/// that leaves something open, the plan has what costs most.
pub fn cost(
    from: &Rendered,
    to: &Rendered,
    policy: &DisruptionPolicy,
) -> Result<Result<Plan, Irreconcilable>, RenderError> {
    let (from, to) = (from.host_spec()?, to.host_spec()?);
    let facts = Facts::assumed(&from, &to)?;
    Ok(plan_assumed(&from, &to, &facts, policy))
}

/// Returns an error if the pool's nodes can't go from one config to another while they run. What only the host decides is assumed
/// here, and not refused: one named owner that no config makes would stop a pool whose nodes have the account.
pub fn reconcilable(from: &Rendered, to: &Rendered, policy: &DisruptionPolicy) -> Result<(), RenderError> {
    match cost(from, to, policy)?.err().and_then(Irreconcilable::of_configs) {
        Some(refused) => Err(RenderError::Irreconcilable { config: to.name().to_owned(), refused }),
        None => Ok(()),
    }
}

/// Disruption of a node between two rendered configs, as far as a pool's status reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeCost {
    /// It is drained.
    pub drain: bool,
    /// It reboots, because of these fields, paths and units; empty: it does not.
    pub reboot_because: Vec<String>,
    /// Services that are reloaded or restarted: the action, the unit, and the cause.
    pub services: Vec<(&'static str, Option<String>, Vec<String>)>,
}

impl NodeCost {
    /// Reads it from the agent's own plan.
    pub fn new(plan: &Plan) -> Self {
        let drain = plan.drain() == Drain::Needed;
        match plan.after() {
            PostActions::Nothing => Self { drain, ..Self::default() },
            PostActions::Reboot { because, .. } => {
                Self { drain, reboot_because: because.clone(), ..Self::default() }
            }
            PostActions::Services { actions } => {
                let service = |action: &ServiceAction| {
                    let verb = match action.action {
                        ServiceVerb::DaemonReload => "daemon-reload",
                        ServiceVerb::Reload => "reload",
                        ServiceVerb::Restart => "restart",
                    };
                    (verb, action.unit.as_ref().map(ToString::to_string), action.because.clone())
                };
                Self { drain, services: actions.iter().map(service).collect(), ..Self::default() }
            }
        }
    }
}
