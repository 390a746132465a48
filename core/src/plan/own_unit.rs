//! Entries that keep the agent itself from starting: applied as all others, and warned of, since nothing on the host follows a config
//! after them.

use super::input::PlanInput;
use super::warnings::Warning;
use super::{Op, Step};
use crate::model::ids::AGENT_UNIT;
use crate::model::paths::LinkTarget;
use crate::model::{ManagedPath, PathSpec, UnitName};

/// Directories of units, of an administrator, a package and a boot.
const UNIT_DIRS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/usr/local/lib/systemd/system",
    "/lib/systemd/system",
];

const MASKED: &str =
    "the agent's own unit is masked: the agent will not start again once it stops; remove the entry";

/// Returns the warnings about steps that change the unit of the agent.
pub(super) fn warnings(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Warning> {
    steps.iter().filter_map(|step| warning(input, &step.op)).collect()
}

fn warning(input: &PlanInput<'_>, op: &Op) -> Option<Warning> {
    let of_unit = |part: &str, message: &str| {
        Some(Warning { field: format!("systemd.units {AGENT_UNIT:?}{part}"), message: message.to_owned() })
    };
    if let Op::MaskUnit { unit } = op
        && is_agent(unit)
    {
        return of_unit(" mask", MASKED);
    }
    if let Op::DisableUnit { unit } = op
        && is_agent(unit)
    {
        let message = "the agent's own unit is disabled: the agent will not start after the next boot; set `enabled: true`";
        return of_unit(" enabled", message);
    }
    let path = op.path().filter(is_of_agent)?;
    let Some(entry) = input.new_entry(&path) else {
        let message = "it is the unit file of the agent, which is removed: the agent will not start after the next boot; keep the entry";
        let is_lost = matches!(op, Op::RemoveUnit { .. } | Op::RemoveFile { .. } | Op::RemoveLink { .. })
            && !input.restorable(&path);
        return if is_lost { of_unit("", message) } else { None };
    };
    let is_mask =
        matches!(entry, PathSpec::Link(link) if link.target == LinkTarget::Soft("/dev/null".to_owned()));
    let message = if is_mask {
        MASKED
    } else {
        "it takes the place of the agent's own unit file: if it does not start the agent, nothing on this host follows a config any more; \
         change single settings by a drop-in"
    };
    let is_listed = input.to.is_listed(&path);
    let field = if is_listed {
        format!("{} {:?}", entry.section(), path.as_str())
    } else {
        format!("systemd.units {AGENT_UNIT:?}")
    };
    Some(Warning { field, message: message.to_owned() })
}

fn is_agent(unit: &UnitName) -> bool {
    unit.as_str() == AGENT_UNIT
}

fn is_of_agent(path: &ManagedPath) -> bool {
    let (directory, name) = path.as_str().rsplit_once('/').unwrap_or_default();
    name == AGENT_UNIT && UNIT_DIRS.contains(&directory)
}
