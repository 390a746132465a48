//! An open update: its batches, its drain, its verification, its roll-back.

use tracing::{error, info, warn};

use super::trial::Proven;
use super::{Agent, AgentError, Turn};
use crate::apply::apply;
use crate::control::ControlPlane;
use crate::host::finalisation;
use crate::host::os::OsProgress;
use crate::journal::{JournalError, Outcome};
use crate::model::message;
use crate::model::{Class, Observation};
use crate::plan::differences::differences;
use crate::plan::listing::counted;
use crate::plan::{After, Batch, Op, ServiceVerb};
use crate::report::{Occurrence, Progress, report};
use crate::update::record::{StagedOs, chain};
use crate::update::resume::{
    BOOT_FAILED, NOT_FINALISED, held, is_on_trial, is_unproven, os_in_place, way_out,
};
use crate::update::{Decision, Event, Fault, Phase, Record, not_finalised, verdict};

impl<C: ControlPlane> Agent<C> {
    /// Does what the phase stands at.
    pub(super) async fn go_on(&mut self, seen: &Observation) -> Result<Turn, AgentError> {
        let boot_id = seen.boot_id.clone();
        self.journal.note(|record| record.boot_id = boot_id)?;
        let Some(record) = self.journal.record().cloned() else { return Ok(Turn::Again) };
        match &record.phase {
            Phase::Planned if record.first_applied() > 0 => self.move_on(&Event::Stage),
            Phase::Planned => self.leave_staging(&record).await,
            Phase::Staging => {
                let staged = record.first_applied() == 0 || os_in_place(&record, seen);
                if !staged && self.carry_out(&record, seen).await? == Carried::Not {
                    return Ok(Turn::Again);
                }
                self.leave_staging(&record).await
            }
            Phase::Draining => self.drain(&record).await,
            Phase::Applying { next } if record.plan.batch(*next).is_some() => {
                self.carry_out(&record, seen).await?;
                Ok(Turn::Again)
            }
            Phase::Applying { .. } => match record.plan.after() {
                After::Reboot { .. } => self.reboot(seen).await,
                After::Nothing | After::Services { .. } => self.move_on(&Event::Verify),
            },
            Phase::RollingBack { .. } => self.take_back(&record, seen).await,
            Phase::Rebooting { .. } | Phase::Verifying | Phase::FallingBack { .. } => Ok(Turn::Again),
        }
    }

    pub(super) fn move_on(&mut self, event: &Event) -> Result<Turn, AgentError> {
        self.journal.step(event, self.host.clock.now())?;
        self.tell_phase();
        Ok(Turn::Again)
    }

    fn tell_phase(&self) {
        let Some(record) = self.journal.record() else { return };
        let phase = record.phase.word();
        info!(MESSAGE_ID = message::PHASE, MCA_UPDATE = %record.id, MCA_PHASE = phase, MCA_CONFIG = %record.to.config,
            "update {} to {}: {phase}", record.id, record.to.config);
    }

    /// Carries out one batch. A failed step becomes the record's fault; the error has been dealt with then.
    async fn carry_out(&mut self, record: &Record, seen: &Observation) -> Result<Carried, AgentError> {
        match self.advance(record).await {
            Ok(carried) => Ok(carried),
            Err(AgentError::Apply(error)) => {
                self.fail(AgentError::from(error).fault(), seen).await?;
                Ok(Carried::Not)
            }
            Err(error) => Err(error),
        }
    }

    /// Runs the batch inside the journal, and publishes its progress meanwhile.
    async fn advance(&mut self, record: &Record) -> Result<Carried, AgentError> {
        let Self { journal, host, control, health, stop, telemetry, on_duty, .. } = self;
        let (sender, mut progress) = tokio::sync::watch::channel(None::<OsProgress>);
        let told = |step: OsProgress| drop(sender.send_replace(Some(step)));
        let work = journal.advance(|| host.clock.now(), async |intent| apply(intent, host, &told).await);
        tokio::pin!(work);
        loop {
            tokio::select! {
                // The work is polled until it ends; only a pull, which can be begun again, is left for a signal.
                done = &mut work => {
                    // A stop ends the workers of this service, too: that they failed is no fault then.
                    if done.is_err() && stop.is_asked() {
                        return Ok(Carried::Not);
                    }
                    done?;
                    break;
                }
                () = stop.asked(), if record.phase == Phase::Staging => return Ok(Carried::Not),
                () = on_duty.changed() => on_duty.attend_meanwhile(host, health),
                changed = progress.changed() => {
                    if changed.is_ok() {
                        health.progress = progress.borrow_and_update().as_ref().map(|step| shown(record, step));
                        let report = report(Some(record), health);
                        telemetry.progress(&report);
                        // A report that can't be published now is published after the batch.
                        drop(control.publish(&report).await);
                    }
                }
            }
        }
        self.health.progress = None;
        Ok(Carried::Out)
    }

    /// Undoes one batch. What can't be undone now is tried again, and told with the fault that began it.
    async fn take_back(&mut self, record: &Record, seen: &Observation) -> Result<Turn, AgentError> {
        match self.advance(record).await {
            Ok(_) => {
                let undone = self.journal.record().is_some_and(Record::is_undone);
                if undone {
                    warn!(MESSAGE_ID = message::ROLLED_BACK, MCA_UPDATE = %record.id, MCA_CONFIG = %record.to.config,
                        "what update {} to {} had done is undone (boot {})", record.id, record.to.config, seen.boot_id);
                }
                Ok(Turn::Again)
            }
            Err(AgentError::Apply(error)) => {
                let mut fault = AgentError::from(error).fault();
                if let Some(first) = &record.fault
                    && !first.message.contains("; undoing it failed too: ")
                {
                    fault.message = format!("{}; undoing it failed too: {}", first.message, fault.message);
                }
                self.journal.fault(fault)?;
                Ok(Turn::Wait(Some(self.backoff.next_wait())))
            }
            Err(error) => Err(error),
        }
    }

    /// Stages once more and goes through the batches again: they find most of their work done.
    pub(super) fn restage(&mut self, seen: &Observation) -> Result<Turn, AgentError> {
        let boot_id = seen.boot_id.clone();
        self.journal.note(|record| record.boot_id = boot_id)?;
        self.move_on(&Event::Stage)
    }

    /// Finds out why the node came up in its old deployment, counts it, and stages once more or gives up.
    pub(super) async fn inquire(&mut self, seen: &Observation) -> Result<Turn, AgentError> {
        let ended = finalisation::outcome(&self.host.root).await;
        self.journal.note(|record| record.came_back(&ended, &seen.boot_id))?;
        let Some(record) = self.journal.record() else { return Ok(Turn::Again) };
        if let Decision::Fault(fault) = not_finalised(record, &ended) {
            return self.fail(fault, seen).await;
        }
        let config = &record.to.config;
        let cause = format!("the node came up in its old deployment, not in {config}'s: {ended}");
        warn!(
            MESSAGE_ID = message::RESTAGED,
            MCA_FAULT = NOT_FINALISED,
            MCA_CONFIG = %config,
            "{cause}; staging it again"
        );
        self.control.tell(&Occurrence::FailedFinalization { cause }).await;
        self.restage(seen)
    }

    /// Compares the host with the new spec, has a new deployment prove itself, and commits.
    pub(super) async fn verify(&mut self) -> Result<Turn, AgentError> {
        let Some(record) = self.journal.record().cloned() else { return Ok(Turn::Again) };
        if matches!(record.phase, Phase::Applying { .. }) {
            info!(MESSAGE_ID = message::PHASE, MCA_UPDATE = %record.id, MCA_PHASE = "rebooting", MCA_CONFIG = %record.to.config,
                "update {} to {}: somebody else rebooted the machine, as it was to be", record.id, record.to.config);
            let ended = record.boot_id.clone();
            self.journal.step(&Event::Reboot { boot_id: ended }, self.host.clock.now())?;
        }
        if !matches!(record.phase, Phase::Verifying) {
            return self.move_on(&Event::Verify);
        }
        let (mut seen, mut decision) = self.compare(&record).await?;
        if decision == Decision::Commit && is_on_trial(&record) {
            match self.prove(&record, &seen).await? {
                Proven::AtOnce => {}
                // A unit or a check may have written where the config says something.
                Proven::Yes => (seen, decision) = self.compare(&record).await?,
                Proven::Left => return Ok(Turn::Again),
                Proven::No(fault) => return self.fail(fault, &seen).await,
            }
        }
        match decision {
            Decision::Commit => self.commit().await,
            Decision::Replan(fault) => self.replan(fault),
            Decision::Fault(fault) => self.fail(fault, &seen).await,
            Decision::Watch
            | Decision::Begin
            | Decision::Continue
            | Decision::Supersede
            | Decision::Restage
            | Decision::Inquire
            | Decision::Reboot
            | Decision::Verify
            | Decision::FallBack
            | Decision::TakeBack
            | Decision::Hold
            | Decision::Archive => Ok(Turn::Again),
        }
    }

    /// Looks at the host, and says what the differences from the new spec lead to.
    async fn compare(&self, record: &Record) -> Result<(Observation, Decision), AgentError> {
        let Some(spec) = self.journal.target_spec() else {
            return Err(JournalError::NoUpdate { what: "verify" }.into());
        };
        let seen = self.look(spec).await?;
        let mut found = differences(spec, &seen);
        if record.is_repair() {
            found.retain(|difference| record.plan.mends(difference));
        }
        Ok((seen, verdict(record, &found)))
    }

    /// Ends the update with its effects in place; the next pass plans from what is seen.
    pub(super) fn replan(&mut self, fault: Fault) -> Result<Turn, AgentError> {
        warn!(
            MESSAGE_ID = message::REPLANNED,
            MCA_FAULT = fault.reason,
            "{}; replanning from the observed state",
            fault.message
        );
        self.count_end(Outcome::Faulted);
        self.journal.give_up(fault, self.host.clock.now())?;
        Ok(Turn::Again)
    }

    /// Makes the new spec the committed one.
    pub(super) async fn commit(&mut self) -> Result<Turn, AgentError> {
        self.tell_services().await;
        let now = self.host.clock.now();
        if let Some(record) = self.journal.record() {
            let seconds = now.since(record.started).as_secs_f64();
            info!(MESSAGE_ID = message::COMMITTED, MCA_UPDATE = %record.id, MCA_CONFIG = %record.to.config,
                "update {} to {} is done: {}, {}, {seconds:.1} s", record.id, record.to.config,
                counted(record.plan.steps().len(), "step"), counted(record.reboots, "reboot"));
        }
        self.count_end(Outcome::Committed);
        if self.journal.record().is_some_and(|record| record.staged_os() != StagedOs::None) {
            self.end_count();
        }
        self.journal.commit(now)?;
        self.health.since = now;
        self.backoff.reset();
        Ok(Turn::Again)
    }

    /// Tells what was done in place of a reboot.
    async fn tell_services(&mut self) {
        let Some(record) = self.journal.record() else { return };
        match record.plan.after().clone() {
            After::Nothing if record.is_repair() => {}
            After::Nothing => self.control.tell(&Occurrence::SkipReboot).await,
            After::Services { actions } => {
                for action in actions {
                    self.control.tell(&Occurrence::Service { action }).await;
                }
            }
            After::Reboot { .. } => {}
        }
    }

    /// Writes the fault down, and takes the update back, or falls back, where that is possible.
    pub(super) async fn fail(&mut self, mut fault: Fault, seen: &Observation) -> Result<Turn, AgentError> {
        if fault.reason == BOOT_FAILED
            && let Err(error) = self.stay(seen).await
        {
            fault.message =
                format!("{}; it is still the first of its menu: {}", fault.message, chain(&error));
        }
        error!(MESSAGE_ID = message::FAULT, MCA_FAULT = fault.reason, "{fault}");
        self.tell_failed_service(&fault).await;
        // A wait that ended before is not the pause after this fault.
        self.retry_due = false;
        let Some(record) = self.journal.record() else { return Ok(Turn::Again) };
        let way = way_out(record, seen, self.tuning.health.roll_back);
        // At once: a fault alone would hold the node where it is.
        self.journal.fail(fault, way.as_ref(), self.host.clock.now())?;
        if way.is_some() {
            self.tell_phase();
        }
        Ok(Turn::Again)
    }

    /// Tells that a service failed, when that is where the update stands.
    async fn tell_failed_service(&mut self, fault: &Fault) {
        let Some(record) = self.journal.record() else { return };
        let Phase::Applying { next } = record.phase else { return };
        let Some(step) = record.plan.batch(next).and_then(<[_]>::first) else { return };
        if step.op.batch() == Batch::Services {
            let verb = if matches!(step.op, Op::RestartUnit { .. }) {
                ServiceVerb::Restart
            } else {
                ServiceVerb::Reload
            };
            self.control.tell(&Occurrence::FailedService { verb, cause: fault.message.clone() }).await;
        }
    }

    /// Waits with a target that failed: for another one, for a mended host, or for the time of the next try.
    pub(super) async fn hold(&mut self) -> Result<Turn, AgentError> {
        let Some(record) = self.journal.record() else { return Ok(Turn::Again) };
        if held(record) {
            if self.is_forced()? {
                return self.begin().await;
            }
            if is_unproven(record) {
                return Ok(Turn::Wait(None));
            }
            let Some(spec) = self.journal.target_spec() else { return Ok(Turn::Wait(None)) };
            let spec = spec.clone();
            self.watch_over(&spec)?;
            let seen = self.look(&spec).await?;
            if differences(&spec, &seen).is_empty() {
                self.journal.note(|record| record.fault = None)?;
                return Ok(Turn::Again);
            }
            return Ok(Turn::Wait(None));
        }
        if record.is_repair() {
            return self.leave_drift();
        }
        let retry = record.fault.as_ref().is_some_and(|fault| fault.class == Class::Retry);
        if retry && std::mem::take(&mut self.retry_due) {
            return self.archive();
        }
        Ok(Turn::Wait(retry.then(|| self.backoff.next_wait())))
    }
}

/// Whether a batch came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carried {
    /// It is done and on disk.
    Out,
    /// It failed, or was left for a signal.
    Not,
}

/// Shows the progress of the batch under way.
fn shown(record: &Record, step: &OsProgress) -> Progress {
    let (before, op) = record.under_way().map_or((0, ""), |(before, step)| (before, step.op.word()));
    Progress {
        step: before + 1,
        of: record.plan.steps().len(),
        op: op.to_owned(),
        target: step.text.clone(),
        percent: step.percent,
    }
}
