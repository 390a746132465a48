//! The host as an open update leaves it when it is undone, for a plan that is shown before: its own work is nobody else's.

use super::{BatchOp, Op, Plan};
use crate::model::{Facts, HostSpec, ModelError, Observation, ObservedFile};

/// Takes what an open update has done out of the facts: up to and with the batch that it reached, all is as in the config it
/// comes from. What of the host's own comes back in its place is not looked up.
pub fn take_back(
    facts: &mut Facts,
    plan: &Plan,
    reached: usize,
    origin: &HostSpec,
) -> Result<(), ModelError> {
    let before = Observation::as_specified(origin)?;
    let observed = &mut facts.observed;
    for step in plan.batches().into_iter().take(reached.saturating_add(1)).flatten() {
        if let Some(path) = step.op.path() {
            let found = before.files.get(&path).cloned().unwrap_or(ObservedFile::Absent);
            observed.hard_links.retain(|(link, _)| *link != path);
            observed.hard_links.extend(before.hard_links.iter().filter(|(link, _)| *link == path).cloned());
            facts.obstacles.paths.remove(&path);
            observed.files.insert(path, found);
        }
        if let Op::CreateUser { user } = &step.op {
            observed.accounts.remove(user.as_str());
        }
        if let Op::CreateGroup { group } = &step.op {
            observed.groups.remove(group.as_str());
        }
        if let BatchOp::Link(_, unit) = step.op.in_batch()
            && let Some(state) = before.units.get(unit)
        {
            observed.units.insert(unit.clone(), *state);
        }
    }
    Ok(())
}
