//! An open update: its edges, its batches, its verification.

use std::time::Duration;

use tokio::time::timeout;
use tracing::{info, warn};

use super::fields::update_line;
use super::parts::{Next, Pass};
use super::service::judge;
use super::{Agent, AgentError};
use crate::apply::apply;
use crate::control::ControlPlane;
use crate::host::finalization;
use crate::host::os::OsProgress;
use crate::journal::{JournalError, origin};
use crate::model::observation::Finalization;
use crate::model::text::chain;
use crate::model::{Observation, message};
use crate::plan::differences::{Difference, differences};
use crate::plan::is_gone_with_boot;
use crate::report::{Event, Progress, report};
use crate::update::resume::{DEPLOYMENT_GONE, NOT_FINALIZED};
use crate::update::{Begun, Phase, Record, Transition};

impl<C: ControlPlane> Agent<C> {
    /// Applies a transition to the record and reports it.
    pub(super) async fn move_along(
        &mut self,
        event: &Transition,
        observed: &Observation,
    ) -> Result<(), AgentError> {
        let Some(record) = self.journal.record().cloned() else { return Ok(()) };
        match event {
            Transition::Drain | Transition::Apply { .. } => self.leave_staging(&record, event).await,
            Transition::Verify => self.journal.note(|record| record.waiting = None)?,
            Transition::Reboot { .. } => {
                self.log_transition("rebooting", "the machine was rebooted, not by the agent");
                return Ok(self.journal.step(event, self.host.clock.now())?);
            }
            Transition::Stage => return self.enter_staging(observed),
            Transition::BatchDone
            | Transition::FallBack { .. }
            | Transition::RollBack
            | Transition::UndoDone => {}
        }
        self.step(event)
    }

    pub(super) fn step(&mut self, event: &Transition) -> Result<(), AgentError> {
        self.journal.step(event, self.host.clock.now())?;
        self.log_phase();
        Ok(())
    }

    pub(super) fn log_phase(&self) {
        let Some(phase) = self.journal.record().map(|record| record.phase.as_str()) else { return };
        self.log_transition(phase, phase);
    }

    /// Logs the phase that the update enters.
    pub(super) fn log_transition(&self, phase: &str, words: &str) {
        let Some(record) = self.journal.record() else { return };
        let (id, config) = (&record.id, &record.to.config);
        update_line!(
            info,
            Some(record),
            MESSAGE_ID = message::PHASE,
            MCA_PHASE = phase,
            "Update {id} to {config}: {words}"
        );
    }

    /// Carries out the batch that stages.
    pub(super) async fn stage(&mut self, pass: &mut Pass) -> Result<Next, AgentError> {
        self.begin_staging(&pass.observed)?;
        self.execute(pass).await
    }

    /// Carries out the batch or the undo step of the record's phase. Its fault is an answer.
    pub(super) async fn execute(&mut self, pass: &mut Pass) -> Result<Next, AgentError> {
        let Some(record) = self.journal.record().cloned() else { return Ok(Next::Requeue) };
        if !matches!(record.phase, Phase::RollingBack { .. }) {
            // What is done has to be recorded. An undo is worth it all the same.
            origin::check_writable(&self.host.root)?;
        }
        match self.advance(&record).await {
            Ok(Carried::Out) if record.phase == Phase::Staging => {
                pass.answers.is_staged = true;
                Ok(Next::Decide)
            }
            Ok(Carried::Out | Carried::Not | Carried::Superseded) => {
                self.log_undone(&pass.observed);
                Ok(Next::Requeue)
            }
            Err(AgentError::Apply(error)) => {
                pass.answers.failed = Some(AgentError::from(error).fault());
                Ok(Next::Decide)
            }
            Err(error) => Err(error),
        }
    }

    fn log_undone(&self, observed: &Observation) {
        if let Some(record) = self.journal.record().filter(|record| record.is_undone()) {
            let (id, config, boot) = (&record.id, &record.to.config, &observed.boot_id);
            update_line!(
                warn,
                Some(record),
                MESSAGE_ID = message::ROLLED_BACK,
                "Rolled back update {id} to {config} (boot {boot})"
            );
        }
    }

    /// Moves the record into the staging and records its begin, in one write.
    fn enter_staging(&mut self, observed: &Observation) -> Result<(), AgentError> {
        let begun = Begun { boot_id: observed.boot_id.clone(), since: self.host.clock.monotonic_micros() };
        self.journal.step_with(&Transition::Stage, self.host.clock.now(), |record| {
            if record.staging.as_ref().is_none_or(|staging| staging.boot_id != begun.boot_id) {
                record.staging = Some(begun);
            }
        })?;
        self.log_phase();
        Ok(())
    }

    /// Counts the time that earlier processes have spent on the staging: its limit is one of the work, not of a process. A
    /// staging that goes on in another boot, or after an older agent, begins here.
    fn begin_staging(&mut self, observed: &Observation) -> Result<(), AgentError> {
        self.host.per_object_fsync = self.control.is_control_plane();
        let now = self.host.clock.monotonic_micros();
        let begun = self.journal.record().and_then(|record| record.staging.clone());
        let begun = begun.filter(|begun| begun.boot_id == observed.boot_id);
        self.host.spent =
            Duration::from_micros(now.saturating_sub(begun.as_ref().map_or(now, |begun| begun.since)));
        if begun.is_none() {
            let begun = Begun { boot_id: observed.boot_id.clone(), since: now };
            self.journal.note(|record| record.staging = Some(begun))?;
        }
        Ok(())
    }

    /// Runs the batch inside the journal, and publishes its progress meanwhile. A staging is left for another target.
    async fn advance(&mut self, record: &Record) -> Result<Carried, AgentError> {
        let done = self.advance_meanwhile(record).await;
        self.health.progress = None;
        self.health.waiting = None;
        if !matches!(done, Ok(Carried::Superseded)) {
            return done;
        }
        info!(MCA_CONFIG = %record.to.config, "Left the staging for {}: another target is desired", record.to.config);
        tokio::select! {
            // Work left running is ended; the undo that follows handles the rest.
            ended = timeout(self.host.limits.stall, self.host.os.abandon()) => {
                if let Ok(Err(error)) = ended {
                    warn!("Failed to end what the staging left running: {}", chain(&error));
                }
            }
            () = self.signals.stopped() => {}
        }
        Ok(Carried::Not)
    }

    async fn advance_meanwhile(&mut self, record: &Record) -> Result<Carried, AgentError> {
        let staging = record.phase == Phase::Staging;
        let unstaging = record.is_unstaging();
        let mut followed = staging;
        let Self { journal, host, control, health, signals, telemetry, trust, mode, .. } = self;
        let (sender, mut progress) = tokio::sync::watch::channel(None::<OsProgress>);
        let send_step = |step: OsProgress| drop(sender.send_replace(Some(step)));
        let work = journal.advance(|| host.clock.now(), async |intent| apply(intent, host, &send_step).await);
        tokio::pin!(work);
        loop {
            tokio::select! {
                // The work is polled until it ends; only a pull, which can be begun again, and a wait for another program are
                // left for a signal.
                done = &mut work => {
                    // A stop ends the workers of this service, too: that they failed is no fault then.
                    if done.is_err() && signals.is_stopping() {
                        return Ok(Carried::Not);
                    }
                    done?;
                    break;
                }
                () = signals.stopped(), if staging || health.waiting.is_some() => return Ok(Carried::Not),
                // Cancel-safe: it only waits. The changes of the deployments have limits of their own, so waiting for them is a
                // sign of life: bootc tells nothing where systemd passes no pipe.
                () = telemetry.notify.idle(), if staging || unstaging => {}
                // Cancel-safe: an event that was not returned comes again.
                changed = control.changed(), if followed => {
                    // One that can't be followed now is looked at after the batch.
                    followed = changed.is_ok();
                    let desired = judge(control.desired().await, &mut health.refused, *mode).flatten();
                    if desired.is_some_and(|desired| desired != record.to) {
                        return Ok(Carried::Superseded);
                    }
                    let report = report(Some(record), health);
                    telemetry.progress(&report);
                    // The due report; the change may have been the reason for it.
                    drop(control.publish(&report).await);
                }
                () = trust.changed() => trust.reconcile_meanwhile(host, health),
                changed = progress.changed() => {
                    if changed.is_ok() {
                        let step = progress.borrow_and_update().clone();
                        health.progress = step.as_ref().map(|step| shown(record, step));
                        note_wait(&mut health.waiting, step.as_ref().and_then(OsProgress::waits_for));
                        let report = report(Some(record), health);
                        telemetry.progress(&report);
                        // A report that can't be published now is published after the batch.
                        drop(control.publish(&report).await);
                    }
                }
            }
        }
        Ok(Carried::Out)
    }

    /// Stages again and goes through the batches again: they find most of their work done.
    pub(super) async fn restage(&mut self, pass: &Pass) -> Result<(), AgentError> {
        if let (Some(ended), Some(record)) = (&pass.answers.finalization, self.journal.record()) {
            let config = &record.to.config;
            let cause = format!("the node came up in its old deployment, not in {config}'s: {ended}");
            update_line!(
                warn,
                Some(record),
                MESSAGE_ID = message::RESTAGED,
                MCA_FAULT = NOT_FINALIZED,
                "{cause}; staging again"
            );
            self.control.emit(&Event::FailedFinalization { cause }).await;
        }
        let boot_id = pass.observed.boot_id.clone();
        self.journal.note(|record| record.boot_id = boot_id)?;
        self.enter_staging(&pass.observed)
    }

    /// Stages again what another program has dropped in this boot. The time for it begins anew.
    pub(super) fn restage_dropped(&mut self, observed: &Observation) -> Result<(), AgentError> {
        if let Some(record) = self.journal.record() {
            let next = observed.os.staged().or_else(|| observed.os.next());
            let next = next.map_or("the running deployment", |next| next.deployment.as_str());
            update_line!(
                warn,
                Some(record),
                MESSAGE_ID = message::STAGED_DROPPED,
                MCA_FAULT = DEPLOYMENT_GONE,
                "Another program dropped the staged deployment of {}: {next} would boot; staging again",
                record.to.config
            );
        }
        let begun = Begun { boot_id: observed.boot_id.clone(), since: self.host.clock.monotonic_micros() };
        self.journal.step_with(&Transition::Stage, self.host.clock.now(), |record| {
            record.dropped += 1;
            (record.staging, record.waiting) = (Some(begun), None);
        })?;
        self.log_phase();
        Ok(())
    }

    /// Finds out why the node came up in its old deployment, and counts it.
    pub(super) async fn check_finalization(
        &mut self,
        observed: &Observation,
    ) -> Result<Finalization, AgentError> {
        let ended = finalization::outcome(&self.host.root).await;
        self.journal.note(|record| record.came_back(&ended, &observed.boot_id))?;
        Ok(ended)
    }

    /// Compares the host with the new spec; a repair answers for its own paths.
    pub(super) fn compare(&self, machine: Observation) -> Result<Vec<Difference>, AgentError> {
        let (Some(spec), Some(record)) = (self.journal.target_spec(), self.journal.record()) else {
            return Err(JournalError::NoUpdate { what: "verify" }.into());
        };
        let mut found = differences(spec, &self.observe_for(spec, machine)?);
        found.retain(|difference| !is_gone_with_boot(difference));
        if record.is_repair() {
            found.retain(|difference| record.plan.mends(difference));
        }
        Ok(found)
    }
}

/// Completion of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carried {
    /// It is done and on disk.
    Out,
    /// It failed, or was left for a signal.
    Not,
    /// It was left for another target.
    Superseded,
}

/// Notes the awaited object of the running work, and logs it once.
pub(super) fn note_wait(waiting: &mut Option<String>, what: Option<&str>) {
    if let Some(what) = what.filter(|what| waiting.as_deref() != Some(what)) {
        info!(MESSAGE_ID = message::WAITING, "Waiting for {what}");
    }
    *waiting = what.map(str::to_owned);
}

/// Shows the progress of the batch under way.
fn shown(record: &Record, step: &OsProgress) -> Progress {
    let (before, op) = record.under_way().map_or((0, ""), |(before, step)| (before, step.op.as_str()));
    Progress {
        step: before + 1,
        of: record.plan.steps().len(),
        op: op.to_owned(),
        target: step.text.clone(),
        percent: step.percent,
    }
}
