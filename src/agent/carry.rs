//! An open update: its batches, its drain, its verification, its roll-back.

use std::time::Duration;

use tokio::time::timeout;
use tracing::{info, warn};

use super::hold::log_fault;
use super::trial::Proven;
use super::{Agent, AgentError, Turn};
use crate::apply::apply;
use crate::control::ControlPlane;
use crate::host::finalisation;
use crate::host::os::OsProgress;
use crate::journal::{JournalError, Outcome};
use crate::model::Observation;
use crate::model::message;
use crate::model::text::chain;
use crate::model::text::counted;
use crate::plan::differences::differences;
use crate::plan::{After, Batch, Op, ServiceVerb};
use crate::report::{Health, Occurrence, Progress, report};
use crate::update::record::StagedOs;
use crate::update::resume::{BOOT_FAILED, NOT_FINALISED, is_on_trial, os_in_place, way_out};
use crate::update::{Begun, Decision, Event, Fault, Phase, Record, not_finalised, verdict};

/// Between the fault that began a roll-back and the one that stands in its way.
const UNDOING: &str = "; undoing it failed too: ";

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
                if !staged {
                    self.begin_staging(seen)?;
                    if self.carry_out(&record, seen).await? == Carried::Not {
                        return Ok(Turn::Again);
                    }
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

    pub(super) fn tell_phase(&self) {
        let Some(record) = self.journal.record() else { return };
        let phase = record.phase.word();
        info!(MESSAGE_ID = message::PHASE, MCA_UPDATE = %record.id, MCA_PHASE = phase, MCA_CONFIG = %record.to.config,
            MCA_IMAGE = record.to.image.as_ref().map(tracing::field::display), "update {} to {}: {phase}", record.id, record.to.config);
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

    /// Writes down when the staging began, and counts what earlier processes have spent on it: its limit is one of the
    /// work, not of a process.
    fn begin_staging(&mut self, seen: &Observation) -> Result<(), AgentError> {
        let now = self.host.clock.monotonic_micros();
        let begun = self.journal.record().and_then(|record| record.staging.clone());
        let begun = begun.filter(|begun| begun.boot_id == seen.boot_id);
        self.host.spent =
            Duration::from_micros(now.saturating_sub(begun.as_ref().map_or(now, |begun| begun.since)));
        if begun.is_none() {
            let begun = Begun { boot_id: seen.boot_id.clone(), since: now };
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
        info!(MCA_CONFIG = %record.to.config, "Left the staging for {}: another target is wanted", record.to.config);
        tokio::select! {
            // What it left running is ended; what can't be ended now is met by the undoing that follows.
            ended = timeout(self.host.limits.stall, self.host.os.abandon()) => {
                if let Ok(Err(error)) = ended {
                    warn!("what the staging left running can't be ended: {}", chain(&error));
                }
            }
            () = self.stop.asked() => {}
        }
        Ok(Carried::Not)
    }

    async fn advance_meanwhile(&mut self, record: &Record) -> Result<Carried, AgentError> {
        let staging = record.phase == Phase::Staging;
        let mut followed = staging;
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
                () = stop.asked(), if staging => return Ok(Carried::Not),
                // Cancel-safe: it only waits. The staging has limits of its own, so waiting for it is a sign of life:
                // bootc tells nothing where systemd passes no pipe.
                () = telemetry.notify.idle(), if staging => {}
                // Cancel-safe: what was not returned comes again.
                changed = control.changed(), if followed => {
                    // One that can't be followed now is looked at after the batch.
                    followed = changed.is_ok();
                    if control.wanted().await.is_ok_and(|wanted| wanted.is_some_and(|wanted| wanted != record.to)) {
                        return Ok(Carried::Superseded);
                    }
                    // What was due, and the change may have been that.
                    drop(control.publish(&report(Some(record), health)).await);
                }
                () = on_duty.changed() => on_duty.attend_meanwhile(host, health),
                changed = progress.changed() => {
                    if changed.is_ok() {
                        let step = progress.borrow_and_update().clone();
                        health.progress = step.as_ref().map(|step| shown(record, step));
                        tell_wait(health, step.as_ref().and_then(OsProgress::waits_for));
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
                // The first one stays the first, however often the undoing fails.
                if let Some(first) =
                    record.fault.as_ref().and_then(|first| first.message.split(UNDOING).next())
                {
                    fault.message = format!("{first}{UNDOING}{}", fault.message);
                }
                self.journal.fault(fault, self.host.clock.now())?;
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
                MCA_IMAGE = record.to.image.as_ref().map(tracing::field::display), "update {} to {}: somebody else rebooted the machine, as it was to be", record.id, record.to.config);
            let ended = record.boot_id.clone();
            self.journal.step(&Event::Reboot { boot_id: ended }, self.host.clock.now())?;
        }
        if !matches!(record.phase, Phase::Verifying) {
            self.journal.note(|record| record.waiting = None)?;
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
        let record = self.journal.record().cloned();
        self.journal.give_up(fault, self.host.clock.now())?;
        if let Some(record) = &record {
            self.count_end(record, Outcome::Faulted);
        }
        Ok(Turn::Again)
    }

    /// Makes the new spec the committed one.
    pub(super) async fn commit(&mut self) -> Result<Turn, AgentError> {
        let now = self.host.clock.now();
        let record = self.journal.record().cloned();
        if record.as_ref().is_some_and(|record| record.staged_os() != StagedOs::None) {
            self.end_count();
        }
        self.journal.commit(now)?;
        // Only what is committed is told as done, and once.
        if let Some(record) = &record {
            self.tell_services(record).await;
            let seconds = now.since(record.started).as_secs_f64();
            info!(MESSAGE_ID = message::COMMITTED, MCA_UPDATE = %record.id, MCA_CONFIG = %record.to.config,
                "update {} to {} is done: {}, {}, {seconds:.1} s", record.id, record.to.config,
                counted(record.plan.steps().len(), "step"), counted(record.reboots, "reboot"));
            self.count_end(record, Outcome::Committed);
        }
        self.health.since = now;
        self.backoff.reset();
        Ok(Turn::Again)
    }

    /// Tells what was done in place of a reboot.
    async fn tell_services(&mut self, record: &Record) {
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
        log_fault(&fault, self.journal.record());
        self.tell_failed_service(&fault).await;
        // A wait that ended before is not the pause after this fault.
        self.retry.end();
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
}

/// Whether a batch came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carried {
    /// It is done and on disk.
    Out,
    /// It failed, or was left for a signal.
    Not,
    /// It was left for another target.
    Superseded,
}

/// Tells what the batch under way waits for, once.
fn tell_wait(health: &mut Health, what: Option<&str>) {
    if let Some(what) = what.filter(|what| health.waiting.as_deref() != Some(what)) {
        info!(MESSAGE_ID = message::WAITING, "Waiting for {what}");
    }
    health.waiting = what.map(str::to_owned);
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
