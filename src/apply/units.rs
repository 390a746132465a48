//! Enabling, disabling, masking and presets: links, worked out in memory and changed in one durable batch.

use crate::host::systemd::UnitLinks;
use crate::host::{Host, HostError, durable};
use crate::journal::Intent;
use crate::plan::{Op, Step};

use super::ApplyError;

/// Carries out the steps of one batch of links.
pub(super) fn carry(intent: &Intent<'_>, host: &Host, steps: &[Step]) -> Result<(), ApplyError> {
    let mut links = UnitLinks::load(&host.root).map_err(ApplyError::host("the links of units"))?;
    for step in steps {
        match change(&mut links, step) {
            Some(done) => done.map_err(ApplyError::host(step.to_string()))?,
            None => return Err(super::files::not_in(step, intent.to())),
        }
    }
    let originals = || ApplyError::originals("the links of units");
    let earlier = intent.originals().load(&host.root).map_err(originals())?;
    let earlier: Vec<String> = earlier.into_iter().flat_map(|all| all.paths).map(|one| one.path).collect();
    let changes = links.changes(&earlier);
    let run = intent.originals().save(&host.root, &changes, None).map_err(originals())?;
    host.points.hit("originals-saved");
    let done = durable::carry_out(&host.root, &changes, run, &host.points);
    done.map(|_| ()).map_err(ApplyError::host("the links of units"))
}

fn change(links: &mut UnitLinks<'_>, step: &Step) -> Option<Result<(), HostError>> {
    match &step.op {
        Op::MaskUnit { unit } => {
            links.mask(unit);
            Some(Ok(()))
        }
        Op::UnmaskUnit { unit } => {
            links.unmask(unit);
            Some(Ok(()))
        }
        Op::EnableUnit { unit } => Some(links.enable(unit)),
        Op::DisableUnit { unit } => Some(links.disable(unit)),
        Op::PresetUnit { unit } => Some(links.preset(unit)),
        Op::LinkPullSecret { .. }
        | Op::StageOs { .. }
        | Op::SetKargs { .. }
        | Op::InstallExtensions { .. }
        | Op::SwitchKernel { .. }
        | Op::WriteFile { .. }
        | Op::RemoveFile { .. }
        | Op::RestoreFile { .. }
        | Op::WriteUnit { .. }
        | Op::RemoveUnit { .. }
        | Op::WriteDropin { .. }
        | Op::RemoveDropin { .. }
        | Op::SetSshKeys
        | Op::SetPassword
        | Op::DaemonReload
        | Op::ReloadUnit { .. }
        | Op::RestartUnit { .. } => None,
    }
}
