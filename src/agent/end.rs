//! The ends of an update: committed, archived, planned for again; and the fault that leads to one.

use super::deployments::ChangeEnd;
use super::errors::log_fault;
use super::fields::update_line;
use super::{Agent, AgentError, RunMode};
use crate::control::ControlPlane;
use crate::journal::{JournalError, Outcome};
use crate::model::text::{chain, counted};
use crate::model::{Observation, message};
use crate::report::Event;
use crate::telemetry::metrics::SwitchResult;
use crate::update::record::StagedOs;
use crate::update::resume::{BOOT_FAILED, runs_another};
use crate::update::{Fault, Record, Transition};

impl<C: ControlPlane> Agent<C> {
    /// Makes the new spec the committed one.
    pub(super) async fn commit(&mut self) -> Result<(), AgentError> {
        let now = self.host.clock.now();
        let record = self.journal.record().cloned();
        if record.as_ref().is_some_and(|record| record.staged_os() != StagedOs::None) {
            self.end_count();
        }
        if let Err(error) = self.journal.commit(now) {
            return self.undo_uncommitted(error);
        }
        if self.mode == RunMode::FirstBoot {
            self.provisioned = record.as_ref().map(|record| record.to.clone());
        }
        // Only a committed update is reported as done, and once.
        if let Some(record) = &record {
            for event in Event::for_commit(record) {
                self.control.emit(&event).await;
            }
            let seconds = now.since(record.started).as_secs_f64();
            let (id, config) = (&record.id, &record.to.config);
            let (steps, reboots) =
                (counted(record.plan.steps().len(), "step"), counted(record.reboots, "reboot"));
            update_line!(
                info,
                Some(record),
                MESSAGE_ID = message::COMMITTED,
                "Update {id} to {config} is done: {steps}, {reboots}, {seconds:.1} s"
            );
            self.count_end(record, Outcome::Committed);
        }
        self.health.since = now;
        self.memory.backoff.reset();
        Ok(())
    }

    /// Undoes an update whose commit found no space, where only files were changed: another target is not held by it then. A commit that
    /// came through but for what follows it is repeated.
    fn undo_uncommitted(&mut self, error: JournalError) -> Result<(), AgentError> {
        let error = AgentError::from(error);
        let is_committed =
            || self.journal.record().is_some_and(|record| self.journal.current() == Some(&record.to));
        let has_os = || self.journal.record().is_none_or(|record| record.staged_os() != StagedOs::None);
        if !error.is_of_full_disk() || is_committed() || has_os() {
            return Err(error);
        }
        let fault = error.fault();
        log_fault(&fault, self.journal.record(), self.mode);
        self.journal.fail(fault, Some(&Transition::RollBack), self.host.clock.now())?;
        self.log_phase();
        Ok(())
    }

    /// Ends the update with its effects in place; the next pass plans from the observation.
    pub(super) fn replan(&mut self, fault: Fault) -> Result<(), AgentError> {
        let record = self.journal.record().cloned();
        update_line!(
            warn,
            record.as_ref(),
            MESSAGE_ID = message::REPLANNED,
            MCA_FAULT = fault.reason,
            "{}; replanning from the observed state",
            fault.message
        );
        self.journal.archive_faulted(fault, self.host.clock.now())?;
        if let Some(record) = &record {
            self.count_end(record, Outcome::Faulted);
        }
        Ok(())
    }

    /// Ends an undone update: its target is no longer the desired one, or its next try is due.
    pub(super) fn archive(&mut self, observed: &Observation) -> Result<(), AgentError> {
        let record = self.journal.record().cloned();
        let faulted = record.as_ref().is_some_and(|record| record.fault.is_some());
        let outcome = if faulted { Outcome::RolledBack } else { Outcome::Superseded };
        let now = self.host.clock.now();
        if record.as_ref().is_some_and(|record| runs_another(record, observed)) {
            self.journal.archive_booted(outcome, now)?;
        } else {
            self.journal.archive(outcome, now)?;
        }
        if let Some(record) = &record {
            self.count_end(record, outcome);
        }
        self.health.since = self.host.clock.now();
        Ok(())
    }

    /// Undoes an update that is no longer desired.
    pub(super) fn supersede(&mut self) -> Result<(), AgentError> {
        self.log_transition("rolling-back", "rolling back, since another target is desired");
        self.answered();
        Ok(self.journal.step(&Transition::RollBack, self.host.clock.now())?)
    }

    /// Writes the fault down, and moves along the edge that leads out of it.
    pub(super) async fn fail(
        &mut self,
        mut fault: Fault,
        way: Option<&Transition>,
        observed: &Observation,
    ) -> Result<(), AgentError> {
        if fault.reason == BOOT_FAILED {
            match self.stay(observed).await {
                Ok(ChangeEnd::Done) => {}
                // The next process decides the same again.
                Ok(ChangeEnd::Left(_)) => return Ok(()),
                Err(error) => {
                    fault.message =
                        format!("{}; it is still the first of its menu: {}", fault.message, chain(&error));
                }
            }
        }
        log_fault(&fault, self.journal.record(), self.mode);
        if let Some(event) =
            self.journal.record().and_then(|record| Event::for_failed_service(record, &fault))
        {
            self.control.emit(&event).await;
        }
        // At once: a fault alone would hold the node where it is.
        self.journal.fail(fault, way, self.host.clock.now())?;
        if way.is_some() {
            self.log_phase();
        }
        Ok(())
    }

    /// Counts an update that has ended.
    fn count_end(&self, record: &Record, outcome: Outcome) {
        self.telemetry.metrics.ended(outcome.as_str(), &record.durations);
        if record.staged_os() != StagedOs::None {
            let result =
                if outcome == Outcome::Committed { SwitchResult::Succeeded } else { SwitchResult::Failed };
            self.telemetry.metrics.switched(result);
        }
    }
}
