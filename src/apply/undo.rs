//! Taking back: originals are put back exactly, the staged deployment is dropped, services see their old files again.

use crate::host::durable::{self, Change, Run};
use crate::host::{Host, accounts, left_behind};
use crate::journal::Intent;
use crate::model::users::CORE;
use crate::plan::{Step, Undo};

use super::{ApplyError, Place, alone, services, together};

/// Carries out one undo step; each may be repeated.
pub(super) async fn carry(
    intent: &Intent<'_>,
    host: &Host,
    undo: &Undo,
    steps: &[Step],
) -> Result<(), ApplyError> {
    match undo {
        Undo::UnstageOs => {
            let failed = || ApplyError::host("the old deployment");
            let dropped = async {
                host.os.unstage().await.map_err(failed())?;
                left_behind::forget(&host.root).map_err(failed())
            };
            together(intent.numbers(), steps, "taking back ", dropped).await
        }
        Undo::PutBack { .. } => {
            together(intent.numbers(), steps, "taking back ", async { put_back(intent, host) }).await
        }
        Undo::RepeatServices { .. } => {
            for (index, step) in steps.iter().enumerate() {
                // The files are back, which matters most; a service that fails now also failed on the way, and its
                // error is in the log.
                let place = Place::of(intent.numbers(), index, steps);
                drop(alone(step, place, services::carry(host, step)).await);
                host.points.hit("service");
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
    let changes: Vec<Change<'_>> = both
        .map(|(original, attributes)| original.saved.put_back(&original.path, original.trusted, attributes))
        .collect();
    let failed = || ApplyError::host("the originals");
    durable::carry_out(&host.root, &changes, Run::Again, &host.points).map_err(failed())?;
    match &preimages.password {
        Some(hash) => {
            accounts::set_password(&host.root, CORE, hash, Run::Again, &host.points).map_err(failed())
        }
        None => Ok(()),
    }
}
