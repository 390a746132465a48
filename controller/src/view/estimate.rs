//! Estimated time of the rest of a rollout, from the nodes that are done.

use schemars::JsonSchema;
use serde::Serialize;

use super::input::ObservedNode;
use crate::rollout::{Pool, max_unavailable};

/// Fewer nodes give no estimate.
const MIN_MEASURED: usize = 3;

/// Time of the remaining nodes, if they take as long as those before. Waits between waves, for windows and for prefetches
/// are not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// The remaining time, in seconds.
    pub seconds: u64,
    /// Nodes that don't have the target.
    pub left: usize,
    /// Nodes at a time.
    pub at_once: usize,
    /// Nodes that were measured, from their target to Done.
    pub measured: usize,
    /// The median of these, in seconds.
    pub median_seconds: u64,
    /// The longest of these, in seconds.
    pub longest_seconds: u64,
}

/// Nodes of a pool, counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// Nodes that don't have the target, and do not fail it.
    pub(super) left: usize,
    /// Nodes out of service whose agents do nothing, or fail.
    pub(super) out_of_service: usize,
}

/// Returns an estimate in a state in which nodes are given the target, if enough of them have it.
pub(super) fn estimate(
    pool: &Pool,
    state: &str,
    counts: Counts,
    nodes: &[&ObservedNode<'_>],
) -> Option<Estimate> {
    let target = pool.target()?;
    let left = counts.left;
    if pool.paused || left == 0 || !["Updating", "Soaking"].contains(&state) {
        return None;
    }
    let mut measured: Vec<u64> = nodes
        .iter()
        .filter(|observed| observed.node.desired == target && observed.node.is_done())
        .filter_map(|observed| {
            let progress =
                observed.progress.filter(|progress| Some(&progress.desired) == target.config.as_ref());
            let took = progress?.updated?.duration_since(observed.node.desired_since?);
            u64::try_from(took.as_secs()).ok().filter(|took| *took > 0)
        })
        .collect();
    measured.sort_unstable();
    if measured.len() < MIN_MEASURED {
        return None;
    }
    let is_control_plane = nodes.iter().any(|observed| observed.node.control_plane);
    let most = max_unavailable(pool, nodes.len(), is_control_plane).ok()?;
    // A node out of service keeps its slot.
    let at_once = most.saturating_sub(counts.out_of_service);
    let (median, longest) = (*measured.get(measured.len() / 2)?, *measured.last()?);
    let rounds = u64::try_from(left).ok()?.div_ceil(u64::try_from(at_once).ok().filter(|count| *count > 0)?);
    Some(Estimate {
        seconds: rounds.saturating_mul(median),
        left,
        at_once,
        measured: measured.len(),
        median_seconds: median,
        longest_seconds: longest,
    })
}
