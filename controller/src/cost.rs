//! What a change costs the nodes of a pool: the agent's own planner says it, before anything is changed.

use crate::model::Facts;
use crate::model::policy::DisruptionPolicy;
use crate::plan::{Irreconcilable, Plan, plan};
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
    Ok(plan(&from, &to, &facts, policy))
}

/// Says whether the pool's nodes can go from one config to another while they run.
pub fn reconcilable(from: &Rendered, to: &Rendered, policy: &DisruptionPolicy) -> Result<(), RenderError> {
    cost(from, to, policy)?.map(drop).map_err(|refused| RenderError::Irreconcilable {
        config: to.name().to_owned(),
        refused: refused.to_string(),
    })
}
