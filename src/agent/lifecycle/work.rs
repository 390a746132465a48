//! Actions of stages on this host: the programs around it, and the work of the verbs.

use tracing::debug;

use super::super::shutdown_listener::ShutdownListener;
use super::super::stateroot_prepare::{Preparation, SeedRequest, preparation};
use super::super::{AgentError, StaterootEnd, StaterootWorker};
use super::hooks::Hook;
use super::host::LifecycleHost;
use crate::host::Rebooting;
use crate::journal::JournalError;
use crate::journal::stateroot::{StaterootJournal, load_prepared, load_record, load_return, load_trial};
use crate::journal::{seed, stored};
use crate::model::{FaultClass, ImageRef};
use crate::stateroot::lifecycle::{LifecycleAction, ObservedStateroots, SeedRef, Stage};
use crate::stateroot::{Job, StaterootName, Version};
use crate::update::Fault;

/// End of an action.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is done.
    Done,
    /// It failed, for this reason.
    Failed(String),
    /// It may pass by itself.
    Retry(Fault),
    /// Something else has to end first.
    Waits(String),
    /// A supervisor plays the reboot: this process ends.
    GoesDown,
    /// The requested reboot has come to nothing: how.
    InVain(&'static str),
    /// This job leads into another stateroot, once that is written down.
    Leaves(Job),
}

impl Outcome {
    /// Takes an error of the work.
    pub(super) fn of_error(error: &AgentError) -> Self {
        let fault = error.fault();
        let is_locked = matches!(error, AgentError::Journal(JournalError::StaterootLocked { .. }));
        let may_pass = is_locked || error.class() == FaultClass::Retry;
        if may_pass { Self::Retry(fault) } else { Self::Failed(fault.message) }
    }

    fn of_end(end: StaterootEnd) -> Self {
        match end {
            StaterootEnd::Done(_) => Self::Done,
            StaterootEnd::GoesDown(_) => Self::GoesDown,
            StaterootEnd::Open(fault) if fault.class == FaultClass::Retry => Self::Retry(fault),
            StaterootEnd::Open(fault) | StaterootEnd::Undone(fault) => Self::Failed(fault.message),
        }
    }
}

/// Observes the stateroots.
pub(super) async fn observe(host: &LifecycleHost) -> Result<ObservedStateroots, AgentError> {
    let boots = host.stateroots.boots().await?;
    let boot_id = host.power.boot_id()?;
    let open = load_record(&host.root)?.map(|record| {
        let has_ended = record.came_back(&boot_id);
        (record.job, has_ended)
    });
    let trial = load_trial(&host.root)?.filter(|trial| trial.deployment == boots.booted);
    let running = crate::stateroot::stateroot_of(&boots.booted).to_owned();
    Ok(ObservedStateroots { running, boot_id, open, trial, returned: load_return(&host.root)? })
}

/// Carries out an action, up to what leads from the running stateroot into another one. Dropped, it is as after a kill: the same
/// again goes on.
pub(super) async fn perform(
    host: &LifecycleHost,
    action: &LifecycleAction,
    running: &str,
) -> Result<Outcome, AgentError> {
    match action {
        LifecycleAction::Prepare(seed) => prepare(host, seed).await,
        LifecycleAction::Activate { stateroot, trial } => {
            leave(host, Some(Hook::BeforeActivate), stateroot, Some(trial.clone())).await
        }
        LifecycleAction::RollBack { to } => {
            leave(host, Some(Hook::BeforeRollBack), &StaterootName::new(to)?, None).await
        }
        // As the return of a system that does not prove itself, it waits for no program.
        LifecycleAction::Return { to } => leave(host, None, &StaterootName::new(to)?, None).await,
        LifecycleAction::Conclude(stage) => {
            let hook = if *stage == Stage::Upgrade { Hook::AfterActivate } else { Hook::AfterRollBack };
            Ok(run_hook(host, hook, running).await?.unwrap_or(Outcome::Done))
        }
        LifecycleAction::CleanUp { prepared, image, left } => {
            clean_up(host, prepared.as_ref(), image, left.as_deref()).await
        }
    }
}

/// Opens the record of a job that leads into another stateroot.
pub(super) fn open_record(host: &LifecycleHost, job: &Job) -> Result<(), AgentError> {
    let mut journal = StaterootJournal::open(host.root.clone(), host.fail_points.clone())?;
    worker(host)?.begin(&mut journal, job)
}

fn worker(host: &LifecycleHost) -> Result<StaterootWorker<'_>, AgentError> {
    Ok(StaterootWorker {
        root: &host.root,
        stateroots: &host.stateroots,
        clock: &host.clock,
        power: &*host.power,
        boot_id: host.power.boot_id()?,
    })
}

/// Executes a job that leads into another stateroot. A reboot that is requested ends this process, or has come to nothing when
/// this returns.
pub(super) async fn depart(host: &LifecycleHost, job: &Job) -> Result<Outcome, AgentError> {
    if let Some(waits) = others(host)? {
        return Ok(waits);
    }
    // Before the request: what comes of it is not missed.
    let mut shutdowns = ShutdownListener::default();
    shutdowns.listen(&*host.power).await;
    let end = execute_to_end(host, job).await?;
    if end == StaterootEnd::GoesDown(Rebooting::Requested) {
        return Ok(Outcome::InVain(shutdowns.until_in_vain(&host.clock).await));
    }
    Ok(Outcome::of_end(end))
}

/// Executes a job of the verbs.
async fn execute(host: &LifecycleHost, job: &Job) -> Result<Outcome, AgentError> {
    execute_to_end(host, job).await.map(Outcome::of_end)
}

async fn execute_to_end(host: &LifecycleHost, job: &Job) -> Result<StaterootEnd, AgentError> {
    let mut journal = StaterootJournal::open(host.root.clone(), host.fail_points.clone())?;
    let worker = worker(host)?;
    let log_progress = |step| debug!("{step}");
    Box::pin(worker.execute(&mut journal, job, &log_progress)).await
}

/// Runs the programs of a hook; returns its failure.
async fn run_hook(host: &LifecycleHost, hook: Hook, stateroot: &str) -> Result<Option<Outcome>, AgentError> {
    Ok(hook.run(&host.root, &host.systemd, stateroot).await?.map(Outcome::Failed))
}

async fn prepare(host: &LifecycleHost, seed: &SeedRef) -> Result<Outcome, AgentError> {
    let image =
        ImageRef::parse(&seed.image).map_err(|error| error.in_field("spec.seedImageRef.image", ""))?;
    let version = Version::new(&seed.version)?;
    let stateroot = StaterootName::from_version(&version);
    if let Some(failed) = run_hook(host, Hook::BeforePrepare, stateroot.as_str()).await? {
        return Ok(failed);
    }
    let open = load_record(&host.root)?;
    let request = SeedRequest { image, version, carried: Vec::new() };
    let outcome = match preparation(&host.root, &host.stateroots, open.as_ref(), request).await? {
        Preparation::Made(_) => Outcome::Done,
        Preparation::Job(job) => execute(host, &job).await?,
    };
    if !matches!(outcome, Outcome::Done) {
        return Ok(outcome);
    }
    Ok(run_hook(host, Hook::AfterPrepare, stateroot.as_str()).await?.unwrap_or(Outcome::Done))
}

/// Returns other work that has to end before a reboot into another stateroot.
fn others(host: &LifecycleHost) -> Result<Option<Outcome>, AgentError> {
    // Its reboot would be that into the other stateroot.
    if let Some(record) = stored::load_record(&host.root)? {
        let (id, config) = (record.id, record.to.config);
        return Ok(Some(Outcome::Waits(format!("Waiting for the end of the update {id} to {config}"))));
    }
    // So would it be the end of a seed.
    let seed = seed::load_record(&host.root)?;
    Ok(seed.map(|record| Outcome::Waits(format!("Waiting for the end of the seed {}", record.image))))
}

/// Makes the job that leads into another stateroot; `trial` is that of a new system.
async fn leave(
    host: &LifecycleHost,
    hook: Option<Hook>,
    stateroot: &StaterootName,
    trial: Option<crate::stateroot::TrialRules>,
) -> Result<Outcome, AgentError> {
    if let Some(waits) = others(host)? {
        return Ok(waits);
    }
    if let Some(hook) = hook
        && let Some(failed) = run_hook(host, hook, stateroot.as_str()).await?
    {
        return Ok(failed);
    }
    let deployment = host.stateroots.deployment(stateroot).await?;
    let previous = host.stateroots.boots().await?.booted;
    let stateroot = stateroot.clone();
    Ok(Outcome::Leaves(Job::Activate { stateroot, deployment, previous, trial, reboot: true }))
}

async fn clean_up(
    host: &LifecycleHost,
    prepared: Option<&StaterootName>,
    image: &str,
    left: Option<&str>,
) -> Result<Outcome, AgentError> {
    let open = load_record(&host.root)?.map(|record| record.job.stateroot().clone());
    if let Some(name) = prepared {
        let made = load_prepared(&host.root)?.remove(name.as_str());
        let is_made =
            made.is_some_and(|made| ImageRef::parse(image).is_ok_and(|image| image.is_same(&made.image)));
        if open.as_ref() == Some(name) || is_made {
            let outcome = remove(host, name, open.as_ref() == Some(name)).await?;
            if !matches!(outcome, Outcome::Done) {
                return Ok(outcome);
            }
        }
    }
    match left {
        Some(name) => {
            let name = StaterootName::new(name)?;
            remove(host, &name, open.as_ref() == Some(&name)).await
        }
        None => Ok(Outcome::Done),
    }
}

/// Removes a stateroot; a missing one is ignored.
async fn remove(host: &LifecycleHost, name: &StaterootName, is_open: bool) -> Result<Outcome, AgentError> {
    // Work that was cut short may have left no more than files of its own.
    if !is_open {
        if host.stateroots.list().await?.iter().all(|one| one.name != name.as_str()) {
            return Ok(Outcome::Done);
        }
        host.stateroots.ensure_removable(name).await?;
    }
    execute(host, &Job::Remove { stateroot: name.clone() }).await
}
