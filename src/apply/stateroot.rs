//! One step of the work on a stateroot becomes an effect.

use std::time::Instant;

use tracing::{error, info};

use super::micros;
use crate::host::os::stateroots::{SeedToFetch, Stateroots};
use crate::host::{AuthFile, Credentials, HostError, OsProgress, Root};
use crate::journal::stateroot::StaterootIntent;
use crate::model::message;
use crate::stateroot::{Findings, Job, StaterootStep};

/// Carries out what the intent allows. Each step may be repeated and finds its own work done.
pub async fn apply_stateroot(
    intent: &StaterootIntent<'_>,
    root: &Root,
    stateroots: &Stateroots,
    progress: &dyn Fn(OsProgress),
) -> Result<Findings, HostError> {
    let (step, on) = (intent.step().as_str(), intent.job().stateroot().as_str());
    let image = match intent.job() {
        Job::Prepare { image, .. } => Some(tracing::field::display(image)),
        Job::Remove { .. } => None,
    };
    info!(
        MESSAGE_ID = message::STEP_STARTED,
        MCA_UPDATE = %intent.id(),
        MCA_IMAGE = image.as_ref(),
        MCA_STEP = step,
        MCA_TARGET = on,
        "{step} {on}"
    );
    let since = Instant::now();
    let done = run(intent, root, stateroots, progress).await;
    let micros = micros(since);
    match &done {
        Ok(_) => info!(
            MESSAGE_ID = message::STEP_DONE,
            MCA_UPDATE = %intent.id(),
            MCA_IMAGE = image.as_ref(),
            MCA_STEP = step,
            MCA_TARGET = on,
            MCA_DURATION_USEC = micros,
            "{step} {on}: done in {} ms",
            micros / 1000
        ),
        Err(error) => error!(
            MESSAGE_ID = message::STEP_FAILED,
            MCA_UPDATE = %intent.id(),
            MCA_IMAGE = image.as_ref(),
            MCA_STEP = step,
            MCA_TARGET = on,
            MCA_DURATION_USEC = micros,
            MCA_FAULT = error.reason(),
            "{step} {on}: not done: {error}"
        ),
    }
    done
}

async fn run(
    intent: &StaterootIntent<'_>,
    root: &Root,
    stateroots: &Stateroots,
    progress: &dyn Fn(OsProgress),
) -> Result<Findings, HostError> {
    match (intent.step(), intent.job()) {
        (StaterootStep::RemoveStateroot, job) => {
            stateroots.remove(job.stateroot(), progress).await.map(|()| Findings::default())
        }
        // A removal has no other step.
        (StaterootStep::FetchSeed | StaterootStep::DeployStateroot, Job::Remove { .. }) => {
            Ok(Findings::default())
        }
        (step, Job::Prepare { stateroot, image, layout, version, carried }) => {
            let credentials = Credentials::there(root, AuthFile::Run)?.map(|found| found.json);
            let seed =
                SeedToFetch { stateroot, image, layout: *layout, credentials, boot_id: intent.boot_id() };
            if step == StaterootStep::FetchSeed {
                let containers = stateroots.fetch(&seed, progress).await?;
                return Ok(Findings { containers, deployment: None });
            }
            let deployment = stateroots.deploy(&seed, version, carried, progress).await?;
            Ok(Findings { containers: Vec::new(), deployment: Some(deployment) })
        }
    }
}
