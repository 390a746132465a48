//! The stages of an image-based upgrade, beside the updates: decided by `core/`, carried out as the verbs do.
//!
//! # Decisions
//! 1. It is a task of its own, with the records and locks of the verbs: updates go on meanwhile. Only a reboot into another
//!    stateroot waits for the end of an update.
//! 2. State and conditions are written down before an action, and handed to the other stateroot before a reboot: after it,
//!    neither the cluster's object nor the file of this system is there.
//! 3. A desire that changes is compared at once. The same action goes on; for another one the work is dropped, which is as a
//!    kill for it, and what was done is undone by the next action.
//! 4. systemd ends this process with a requested reboot. One that was taken back, was not begun or does not end the boot is
//!    requested again, as an update's; until then it can be superseded.
//! 5. Nothing is polled: the desire, and the records of the trial and of updates, are watched. A failure that may pass is tried
//!    again ever less often.

mod generation;
mod generation_work;
mod hooks;
mod host;
mod wait;
mod work;

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tracing::{info, warn};

use super::AgentError;
use super::shutdown_listener::reboot_in_vain;
use crate::control::lifecycle::{LifecycleLink, LifecycleReport};
use crate::decide::stage::StageRetry;
use crate::host::watch::Watch;
use crate::host::{Rebooting, Root};
use crate::journal::lifecycle::{LifecycleJournal, has_stages};
use crate::model::ids::STATE_DIR;
use crate::model::message;
use crate::stateroot::Job;
use crate::stateroot::lifecycle::{
    Conditions, Lifecycle, LifecycleAction, ObservedStateroots, Source, decide,
};
use crate::update::Fault;

pub use generation::GenerationWorker;
pub use host::LifecycleHost;
use work::{Outcome, depart, observe, open_record, perform};

/// Files below the state's directory whose change may be what a stage waits for.
const AWAITED: [&str; 5] =
    ["stateroot.json", "stateroot-trial.json", "stateroot-return.json", "record.json", "seed.json"];

/// End of the stages in this boot.
pub type LifecycleEnd = Rebooting;

/// Carries out stages.
#[derive(Debug)]
pub struct LifecycleWorker {
    host: Rc<LifecycleHost>,
    link: LifecycleLink,
    journal: Option<LifecycleJournal>,
    watch: Option<Watch>,
    retry: StageRetry,
    /// The stateroot that runs, as last seen.
    running: String,
    /// The last failure that was logged.
    logged: Option<Fault>,
}

/// Watches what a stage or a seed waits for.
fn watch_awaited(root: &Root) -> Result<Watch, AgentError> {
    let paths = AWAITED.map(|name| format!("{STATE_DIR}/{name}"));
    Ok(Watch::new(root, paths.iter().map(String::as_str), [])?)
}

/// Continuation after a pass.
enum PassEnd {
    Requeue,
    Wait(Option<Duration>),
    GoesDown,
}

impl LifecycleWorker {
    /// Takes the host and where stages are desired. Nothing is read yet.
    pub fn new(host: LifecycleHost, link: LifecycleLink, node: &str) -> Self {
        let retry = StageRetry::new(node);
        let (running, host) = (String::new(), Rc::new(host));
        Self { host, link, journal: None, watch: None, retry, running, logged: None }
    }

    /// Works until the machine goes down.
    pub async fn run(mut self) -> LifecycleEnd {
        loop {
            let end = match Box::pin(self.pass()).await {
                Ok(turn) => turn,
                Err(error) => {
                    self.fail(&error);
                    PassEnd::Wait(Some(self.retry.fail()))
                }
            };
            match end {
                PassEnd::Requeue => {}
                PassEnd::Wait(delay) => self.wait(delay).await,
                PassEnd::GoesDown => return Rebooting::Exit,
            }
        }
    }

    async fn pass(&mut self) -> Result<PassEnd, AgentError> {
        let desire = self.link.desired.borrow_and_update().clone();
        let now = self.now();
        let host = Rc::clone(&self.host);
        if self.journal.is_none() {
            if desire.is_none() && !has_stages(&host.root)? {
                self.link.report.send_modify(|known| known.is_read = true);
                return Ok(PassEnd::Wait(None));
            }
            self.journal = Some(LifecycleJournal::open(host.root.clone(), host.fail_points.clone())?);
        }
        let known = self.journal.as_ref().and_then(|journal| journal.current()).cloned();
        let first = desire.as_deref().map(|desire| match desire.source {
            Source::Cluster => Lifecycle::new(desire.clone(), Conditions::default()),
            Source::File => Lifecycle::idle(desire.clone(), &now),
        });
        let Some(state) = known.or(first) else { return Ok(PassEnd::Wait(None)) };
        let observed = observe(&host).await?;
        let (next, action) = decide(&state, desire.as_deref(), &observed, &now);
        self.running.clone_from(&observed.running);
        let is_under_way = next.stage_in_progress().is_some();
        self.record(next)?;
        if let Some(action) = action {
            return Box::pin(self.act(&action, &observed)).await;
        }
        self.succeed();
        if is_under_way == self.watch.is_some() {
            return Ok(PassEnd::Wait(None));
        }
        self.watch = if is_under_way { Some(watch_awaited(&self.host.root)?) } else { None };
        // Watched first, then seen.
        Ok(if is_under_way { PassEnd::Requeue } else { PassEnd::Wait(None) })
    }

    async fn act(
        &mut self,
        action: &LifecycleAction,
        observed: &ObservedStateroots,
    ) -> Result<PassEnd, AgentError> {
        let host = Rc::clone(&self.host);
        let Some(ended) = self
            .unless_superseded(action, observed, Box::pin(perform(&host, action, &observed.running)))
            .await?
        else {
            return Ok(PassEnd::Requeue);
        };
        let ended = match ended {
            Ok(Outcome::Leaves(job)) => {
                self.leave(&job, observed).await?;
                match self.depart(action, &job, observed).await? {
                    Some(ended) => ended,
                    None => return Ok(PassEnd::Requeue),
                }
            }
            ended => ended,
        };
        self.conclude(action, ended.unwrap_or_else(|error| Outcome::of_error(&error)))
    }

    /// Writes down how an action ended.
    fn conclude(&mut self, action: &LifecycleAction, ended: Outcome) -> Result<PassEnd, AgentError> {
        let Some(state) = self.state() else { return Ok(PassEnd::Requeue) };
        let (now, stage) = (self.now(), action.stage().as_str());
        match ended {
            Outcome::Done => {
                self.succeed();
                self.record(state.done(action, &now))?;
                info!(MESSAGE_ID = message::STAGE, MCA_STAGE = stage, "Stage {stage} completed");
                Ok(PassEnd::Requeue)
            }
            Outcome::Failed(why) => {
                warn!(MESSAGE_ID = message::STAGE_FAILED, MCA_STAGE = stage, "Stage {stage} failed: {why}");
                self.record(state.failed(action, &why, &now))?;
                Ok(PassEnd::Requeue)
            }
            Outcome::Retry(fault) => {
                self.record(state.progressed(&fault.message, &now))?;
                self.log(&fault);
                Ok(PassEnd::Wait(Some(self.retry.fail())))
            }
            Outcome::Waits(why) => {
                let is_watched = self.watch.is_some();
                self.record(state.progressed(&why, &now))?;
                if !is_watched {
                    self.watch = Some(watch_awaited(&self.host.root)?);
                }
                Ok(if is_watched { PassEnd::Wait(None) } else { PassEnd::Requeue })
            }
            Outcome::GoesDown => Ok(PassEnd::GoesDown),
            Outcome::Leaves(_) | Outcome::InVain(_) => Ok(PassEnd::Requeue),
        }
    }

    /// Writes down that another stateroot is to boot, there and here. Here it counts from the record of the job on: that shows to a
    /// boot whether the way was cut short.
    async fn leave(&mut self, job: &Job, observed: &ObservedStateroots) -> Result<(), AgentError> {
        let (Some(state), Job::Activate { deployment, .. }) = (self.state(), job) else {
            return Ok(());
        };
        let state = Lifecycle { left_in: Some(observed.boot_id.clone()), ..state };
        self.host.stateroots.hand_over(deployment, state.copied()).await?;
        self.host.fail_points.hit("lifecycle-handed-over");
        open_record(&self.host, job)?;
        self.record(state)
    }

    /// Goes into another stateroot, or returns why not. A reboot that came to nothing is requested again, ever less often.
    async fn depart(
        &mut self,
        action: &LifecycleAction,
        job: &Job,
        observed: &ObservedStateroots,
    ) -> Result<Option<Result<Outcome, AgentError>>, AgentError> {
        let host = Rc::clone(&self.host);
        loop {
            let ended = self.unless_superseded(action, observed, Box::pin(depart(&host, job))).await?;
            let Some(Ok(Outcome::InVain(how))) = ended else { return Ok(ended) };
            let again = self.retry.fail();
            let told = reboot_in_vain(job.stateroot().as_str(), how, again);
            if let Some(state) = self.state() {
                self.record(state.progressed(&told, &self.now()))?;
            }
            if self.unless_superseded(action, observed, tokio::time::sleep(again)).await?.is_none() {
                return Ok(None);
            }
        }
    }

    /// Works until the end, or until something else is desired.
    async fn unless_superseded<T>(
        &mut self,
        action: &LifecycleAction,
        observed: &ObservedStateroots,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, AgentError> {
        let mut work = pin!(work);
        loop {
            let desire = tokio::select! {
                // The same future is polled until it ends.
                ended = &mut work => return Ok(Some(ended)),
                // Cancel-safe: what changed stays changed until it is read.
                changed = self.link.desired.changed() => match changed {
                    Ok(()) => self.link.desired.borrow_and_update().clone(),
                    // Nobody desires anything any more.
                    Err(_) => return Ok(Some(work.await)),
                },
            };
            let Some(state) = self.state() else { return Ok(None) };
            let (next, wanted) = decide(&state, desire.as_deref(), observed, &self.now());
            self.record(next)?;
            if wanted.as_ref() != Some(action) {
                info!("Stage {} is superseded", action.stage().as_str());
                return Ok(None);
            }
        }
    }

    fn state(&self) -> Option<Lifecycle> {
        self.journal.as_ref().and_then(|journal| journal.current()).cloned()
    }

    fn now(&self) -> String {
        self.host.clock.now().to_string()
    }

    /// Writes the state down, and reports it.
    fn record(&mut self, state: Lifecycle) -> Result<(), AgentError> {
        if let Some(journal) = &mut self.journal {
            journal.record(state.clone())?;
        }
        let valid = state.valid_next_stages(&self.running);
        self.report(LifecycleReport { state, valid, fault: None });
        Ok(())
    }

    fn report(&self, report: LifecycleReport) {
        self.link.publish(self.journal.is_some(), Some(report));
    }

    /// Reports why nothing goes on.
    fn fail(&mut self, error: &AgentError) {
        let fault = error.fault();
        self.log(&fault);
        let desire = self.link.desired.borrow().clone();
        let first = || Some(Lifecycle::new(desire?.as_ref().clone(), Conditions::default()));
        let Some(state) = self.state().or_else(first) else { return };
        let valid = if self.running.is_empty() { Vec::new() } else { state.valid_next_stages(&self.running) };
        self.report(LifecycleReport { state, valid, fault: Some(fault) });
    }

    /// Takes a success: the same failure is news from now on.
    fn succeed(&mut self) {
        self.retry.succeed();
        self.logged = None;
    }

    /// Logs a failure once.
    fn log(&mut self, fault: &Fault) {
        if self.logged.as_ref() != Some(fault) {
            warn!(
                MESSAGE_ID = message::STAGE_FAILED,
                MCA_FAULT = fault.reason,
                "Stages of stateroots wait: {}. Next: {}",
                fault.message,
                fault.next
            );
            self.logged = Some(fault.clone());
        }
    }

    async fn wait(&mut self, delay: Option<Duration>) {
        wait::wait(&mut self.link.desired, &mut self.watch, delay).await;
    }
}
