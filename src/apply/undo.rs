//! Taking back: originals are put back exactly, the staged deployment is dropped, services see their old files again.
//!
//! A path that can't be reached any more (a directory on the way became another user's, or no directory) does not keep
//! the others from being put back. One that is as it was saved was never changed, or is back. One that is not, in
//! directories of another user, is left and reported: a user who moves his own directory must not hold the node. In
//! directories of root it is an error, and tried again.

use crate::host::durable::{self, Attempt, Change};
use crate::host::os::OsChange;
use crate::host::{Host, OsProgress, accounts, etc_merge, next_root};
use crate::journal::Intent;
use crate::model::users::CORE;
use crate::plan::{Step, Undo};

use super::error::ApplyError;
use super::run_steps::{ApplyContext, left_as_it_is, run_step, together};
use super::services;

/// Carries out one undo step; each may be repeated.
pub(super) async fn apply_batch(
    intent: &Intent<'_>,
    host: &Host,
    undo: &Undo,
    steps: &[Step],
    progress: &dyn Fn(OsProgress),
) -> Result<(), ApplyError> {
    match undo {
        Undo::UnstageOs => {
            let failed = || ApplyError::host("the old deployment");
            let dropped = async {
                // Before the mount goes: `systemctl reboot` takes that way by itself.
                next_root::drop(&host.root, &host.systemd).await.map_err(failed())?;
                host.change_deployments(OsChange::Unstage, progress).await.map_err(failed())?;
                etc_merge::forget(&host.root).map_err(failed())
            };
            together(intent, steps, "taking back ", dropped).await
        }
        Undo::RestoreOriginals { .. } => {
            together(intent, steps, "taking back ", async { put_back(intent, host) }).await
        }
        Undo::RepeatServices { .. } => {
            for (index, step) in steps.iter().enumerate() {
                // The files are back, which matters most; a service that fails now also failed on the way, and its
                // error is in the log.
                let place = ApplyContext::new(intent, index, steps);
                drop(run_step(step, place, services::apply_batch(host, step)).await);
                host.fail_points.hit("service");
            }
            Ok(())
        }
    }
}

fn put_back(intent: &Intent<'_>, host: &Host) -> Result<(), ApplyError> {
    let loaded = intent.originals().load(&host.root).map_err(ApplyError::originals("a batch"))?;
    // A batch that saved nothing changed nothing.
    let Some(preimages) = loaded else { return Ok(()) };
    let attributes: Vec<_> = preimages.paths.iter().map(|original| original.saved.attributes()).collect();
    let both = preimages.paths.iter().zip(&attributes);
    let failed = || ApplyError::host("the originals");
    let (mut changes, mut refused): (Vec<Change<'_>>, _) = (Vec::new(), None);
    for (original, attributes) in both {
        let change = original.saved.put_back(&original.path, original.trusted, attributes);
        match durable::obstacle(&host.root, &change).map_err(failed())? {
            None => changes.push(change),
            Some(_) if durable::is_in_sync(&host.root, &change).unwrap_or(false) => {}
            Some(obstacle) if change.trusted() == 0 => refused = Some(obstacle),
            Some(obstacle) => left_as_it_is(intent, change.path(), &obstacle),
        }
    }
    durable::apply_changes(&host.root, &changes, Attempt::Again, &host.fail_points).map_err(failed())?;
    if let Some(hash) = &preimages.password
        && accounts::password(&host.root, CORE).map_err(failed())?.is_some()
    {
        accounts::set_password(&host.root, CORE, hash, Attempt::Again, &host.fail_points).map_err(failed())?;
    }
    refused.map_or(Ok(()), |obstacle| Err(failed()(obstacle)))
}
