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
use crate::model::ObservedFile;
use crate::model::users::CORE;
use crate::plan::{Step, Undo};

use super::error::ApplyError;
use super::run_steps::{ApplyContext, directory_stays, left_as_it_is, run_step, together};
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
    let all: Vec<Change<'_>> = both.map(|(original, attributes)| original.put_back(attributes)).collect();
    let (mut changes, mut refused): (Vec<Change<'_>>, _) = (Vec::new(), None);
    for change in &all {
        let obstacle = if durable::leads_elsewhere(&host.root, change, &all).map_err(failed())? {
            None
        } else {
            durable::obstacle(&host.root, change).map_err(failed())?
        };
        match obstacle {
            None => changes.push(change.clone()),
            Some(_) if durable::is_in_sync(&host.root, change).unwrap_or(false) => {}
            // Its file is no config's, and gone.
            Some(obstacle) if change.is_hard_link() => left_as_it_is(intent, change.path(), &obstacle),
            Some(obstacle) if change.trusted() == 0 => refused = Some(obstacle),
            Some(obstacle) => left_as_it_is(intent, change.path(), &obstacle),
        }
    }
    let full: Vec<Change<'_>> =
        changes.iter().filter(|change| is_full(host, change, &changes)).cloned().collect();
    changes.retain(|change| !full.iter().any(|full| full.path() == change.path()));
    let done = durable::apply_changes(&host.root, &changes, Attempt::Again, &host.fail_points);
    for path in done.map_err(failed())?.left.iter().map(String::as_str).chain(full.iter().map(Change::path)) {
        directory_stays(intent, path);
    }
    if let Some(hash) = &preimages.password
        && accounts::password(&host.root, CORE).map_err(failed())?.is_some()
    {
        accounts::set_password(&host.root, CORE, hash, Attempt::Again, &host.fail_points).map_err(failed())?;
    }
    refused.map_or(Ok(()), |obstacle| Err(failed()(obstacle)))
}

/// Returns true if a directory that the batch made holds what is not of the batch: nothing takes its place.
fn is_full(host: &Host, change: &Change<'_>, all: &[Change<'_>]) -> bool {
    let found = host.root.observe(change.path());
    if !change.replaces_directory() || !matches!(found, Ok(ObservedFile::Directory { .. })) {
        return false;
    }
    let names = host.root.list(change.path());
    let ours = |name: &String| {
        if name.ends_with(durable::DRAFT_SUFFIX) {
            return true;
        }
        let path = format!("{}/{name}", change.path());
        all.iter().any(|other| other.path() == path && other.is_removal())
    };
    names.is_ok_and(|names| !names.iter().all(ours))
}
