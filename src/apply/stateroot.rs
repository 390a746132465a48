//! One step of the work on a stateroot becomes an effect.

use std::fmt::Display;

use super::single_step::SingleStep;
use crate::host::os::stateroots::{SeedToFetch, Stateroots};
use crate::host::{AuthFile, Credentials, HostError, OsProgress, Root};
use crate::journal::stateroot::{StaterootIntent, load_prepared};
use crate::stateroot::{Findings, Job, StaterootStep, StaterootTrial, TrialRules};

/// Carries out what the intent allows. Each step may be repeated and finds its own work done.
pub async fn apply_stateroot(
    intent: &StaterootIntent<'_>,
    root: &Root,
    stateroots: &Stateroots,
    progress: &dyn Fn(OsProgress),
) -> Result<Findings, HostError> {
    let image: Option<&(dyn Display + Sync)> = match intent.job() {
        Job::Prepare { image, .. } => Some(image),
        Job::Remove { .. } | Job::Activate { .. } => None,
    };
    let (name, target) = (intent.step().as_str(), intent.job().stateroot().as_str());
    SingleStep { id: intent.id(), image, name, target }.run(run(intent, root, stateroots, progress)).await
}

async fn run(
    intent: &StaterootIntent<'_>,
    root: &Root,
    stateroots: &Stateroots,
    progress: &dyn Fn(OsProgress),
) -> Result<Findings, HostError> {
    match intent.job() {
        Job::Remove { stateroot } => {
            // What can't be read names no image; its deployment does.
            let prepared = load_prepared(root).ok().and_then(|mut all| all.remove(stateroot.as_str()));
            let image = prepared.map(|prepared| prepared.image);
            stateroots.remove(stateroot, image, progress).await.map(|()| Findings::default())
        }
        Job::Activate { deployment, previous, trial, .. } => {
            let switch = Switch { deployment, previous, trial: trial.as_ref() };
            switch.run(intent.step(), stateroots).await.map(|()| Findings::default())
        }
        Job::Prepare { stateroot, image, layout, version, carried } => {
            if intent.step() == StaterootStep::RemoveStateroot {
                let image = Some(image.clone());
                return stateroots.remove(stateroot, image, progress).await.map(|()| Findings::default());
            }
            let credentials = Credentials::there(root, AuthFile::Run)?.map(|found| found.json);
            let seed =
                SeedToFetch { stateroot, image, layout: *layout, credentials, boot_id: intent.boot_id() };
            if intent.step() == StaterootStep::FetchSeed {
                let containers = stateroots.fetch(&seed, progress).await?;
                return Ok(Findings { containers, deployment: None });
            }
            let deployment = stateroots.deploy(&seed, version, carried, progress).await?;
            Ok(Findings { containers: Vec::new(), deployment: Some(deployment) })
        }
    }
}

/// The way into another stateroot.
struct Switch<'a> {
    deployment: &'a str,
    previous: &'a str,
    trial: Option<&'a TrialRules>,
}

impl Switch<'_> {
    async fn run(&self, step: StaterootStep, stateroots: &Stateroots) -> Result<(), HostError> {
        match step {
            StaterootStep::ArmTrial => {
                let trial = self
                    .trial
                    .map(|rules| StaterootTrial::new(self.deployment, self.previous, rules.clone()));
                stateroots.arm(self.deployment, trial).await
            }
            StaterootStep::SetDefault => stateroots.set_default(self.deployment).await,
            StaterootStep::RestoreDefault => stateroots.restore(self.deployment, self.previous).await,
            // The reboot is whoever's who goes down with it; the others are of other work.
            StaterootStep::RequestReboot
            | StaterootStep::FetchSeed
            | StaterootStep::DeployStateroot
            | StaterootStep::RemoveStateroot => Ok(()),
        }
    }
}
