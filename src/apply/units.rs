//! Enabling, disabling, masking and presets: links, worked out in memory and changed in one durable batch.

use std::collections::BTreeMap;

use crate::host::durable::{Change, DesiredPath};
use crate::host::saved::PathSnapshot;
use crate::host::systemd::{ConfigUnits, LinkVerb, ServiceOutcome, UnitLinks};
use crate::host::{Host, durable};
use crate::journal::{Intent, Original};
use crate::model::UnitName;
use crate::model::ids::UNIT_DIR;
use crate::plan::{BatchOp, LinkOp, Step};

use super::ApplyError;

/// Carries out the steps of one batch of links. A running systemd makes them itself; the originals of its
/// changes were saved before, and its changes are synced after.
pub(super) async fn apply_batch(intent: &Intent<'_>, host: &Host, steps: &[Step]) -> Result<(), ApplyError> {
    let failed = || ApplyError::host("the links of units");
    let originals = || ApplyError::originals("the links of units");
    let units = ConfigUnits::new(intent.from(), intent.to());
    let mut links = UnitLinks::load(&host.root).map_err(failed())?.of_configs(units);
    let mut desired = Vec::new();
    for step in steps {
        let BatchOp::Link(op, unit) = step.op.in_batch() else {
            return Err(ApplyError::foreign(step, intent.to().name.as_str()));
        };
        desired.push((verb(op), unit, step));
    }
    desired.sort_by_key(|(verb, unit, _)| (*verb, links.is_preset(unit)));
    for (verb, unit, step) in desired {
        links.make(verb, unit).map_err(ApplyError::host(step.to_string()))?;
    }
    let earlier = intent.originals().load(&host.root, &BTreeMap::new()).map_err(originals())?;
    let earlier = earlier.into_iter().flat_map(|all| all.paths);
    // Directories that were made for the links are none of them.
    let is_link = |one: &Original| !one.directory && !matches!(one.saved, PathSnapshot::Directory { .. });
    let earlier: Vec<String> = earlier.filter(is_link).map(|one| one.path).collect();
    let mut changes = links.changes(&earlier);
    let emptied = links.emptied(&earlier).map_err(failed())?.into_iter();
    let emptied = emptied.filter(|path| !intent.to().directories.contains_key(path));
    changes.extend(emptied.map(|path| Change::new(path.to_string(), 0, DesiredPath::NoDirectory)));
    let run = intent.originals().save(&host.root, &changes, &BTreeMap::new(), None).map_err(originals())?;
    host.fail_points.hit("originals-saved");
    match host.systemd.make_links(links.calls()).await.map_err(failed())? {
        ServiceOutcome::NoSystemd => {
            durable::apply_changes(&host.root, &changes, run, &host.fail_points).map_err(failed())?;
        }
        ServiceOutcome::Done => {
            host.fail_points.hit("links-made");
            let after = UnitLinks::load(&host.root).map_err(failed())?;
            let settled = links.settled(&after, &earlier);
            intent.originals().add(&host.root, settled.unforeseen).map_err(originals())?;
            let run = durable::Attempt::Again;
            durable::apply_changes(&host.root, &settled.changes, run, &host.fail_points).map_err(failed())?;
            // systemd makes and removes directories of links in it.
            durable::sync_directory(&host.root, UNIT_DIR).map_err(failed())?;
        }
    }
    Ok(())
}

/// Returns the changes of links among the steps of a plan.
pub fn link_verbs(steps: &[Step]) -> Vec<(LinkVerb, UnitName)> {
    let of_links = |step: &Step| match step.op.in_batch() {
        BatchOp::Link(op, unit) => Some((verb(op), unit.clone())),
        BatchOp::Os(_)
        | BatchOp::File(_)
        | BatchOp::Account(..)
        | BatchOp::User(..)
        | BatchOp::Service(_) => None,
    };
    steps.iter().filter_map(of_links).collect()
}

fn verb(op: LinkOp) -> LinkVerb {
    match op {
        LinkOp::Mask => LinkVerb::Mask,
        LinkOp::Unmask => LinkVerb::Unmask,
        LinkOp::Enable => LinkVerb::Enable,
        LinkOp::Disable => LinkVerb::Disable,
        LinkOp::Preset => LinkVerb::Preset,
    }
}
