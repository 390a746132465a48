//! The workload: its leave before the first disruptive step, its return once the node runs its desired state.
//!
//! The answers come as changes of the control plane, so a new target is noticed while one waits. An answer that is
//! late makes the node Degraded with the cause; it is waited for all the same (DRN-006).

use tracing::info;

use super::errors::log_fault;
use super::{Agent, AgentError};
use crate::control::{ControlPlane, DrainStatus, UncordonStatus};
use crate::decide::action::Meanwhile;
use crate::decide::answer::WorkloadRequest;
use crate::model::message;
use crate::plan::Drain;
use crate::report::Event;
use crate::update::{Begun, Phase, Record, Transition};

impl<C: ControlPlane> Agent<C> {
    /// Reports the phase after the staging: the drain, or the steps.
    pub(super) async fn leave_staging(&mut self, record: &Record, event: &Transition) {
        if !matches!(record.phase, Phase::Planned | Phase::Staging) {
            return;
        }
        if record.first_applied() > 0 {
            let image = record.to.image.clone();
            self.control.emit(&Event::OsUpdateStaged { image }).await;
        }
        if *event == Transition::Drain {
            self.control.emit(&Event::Cordon).await;
            self.control.emit(&Event::Drain).await;
        } else if record.plan.drain() != Drain::NotNeeded {
            self.control.emit(&Event::DrainSkipped).await;
        }
    }

    /// Requests the drain; records the begin of the wait, and its object.
    pub(super) async fn request_drain(&mut self) -> Result<DrainStatus, AgentError> {
        let Some(record) = self.journal.record().cloned() else { return Ok(DrainStatus::NotRequested) };
        let drained = self.control.drain(&record.to).await?;
        let DrainStatus::Waiting { why } = &drained else {
            self.journal.note(|record| (record.waiting, record.draining) = (None, None))?;
            self.answered();
            return Ok(drained);
        };
        let begun = record.draining.filter(|begun| begun.boot_id == record.boot_id);
        let since = self.host.clock.monotonic_micros();
        let begun = begun.unwrap_or_else(|| Begun { boot_id: record.boot_id.clone(), since });
        self.journal.note(|record| {
            record.waiting = Some(why.clone());
            record.draining = Some(begun);
        })?;
        self.note_pending(why);
        Ok(drained)
    }

    /// Requests the uncordon.
    pub(super) async fn request_uncordon(&mut self) -> Result<UncordonStatus, AgentError> {
        let Some(committed) = self.journal.current().cloned() else { return Ok(UncordonStatus::Yes) };
        let released = self.control.uncordon(&committed).await?;
        match &released {
            UncordonStatus::Yes => self.answered(),
            UncordonStatus::Again => {
                self.control.emit(&Event::Uncordon { config: committed.config }).await;
                self.answered();
            }
            UncordonStatus::Waiting { why } => self.note_pending(why),
        }
        Ok(released)
    }

    /// Ends a wait, with its answer or without one: the next wait is reported again.
    pub(super) fn answered(&mut self) {
        self.health.waiting = None;
        self.emitted_late = false;
    }

    /// Logs the awaited object, once.
    fn note_pending(&mut self, why: &str) {
        if self.health.waiting.as_deref() != Some(why) {
            info!(MESSAGE_ID = message::WAITING, "Waiting: {why}");
        }
        self.health.waiting = Some(why.to_owned());
    }

    /// Records and reports the state of a wait.
    pub(super) async fn meanwhile(&mut self, meanwhile: Meanwhile) -> Result<(), AgentError> {
        match meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::Late(answer, fault) => {
                let cause = fault.message.clone();
                self.health.fault = Some(fault);
                self.emit_late(&match answer {
                    WorkloadRequest::Drain => Event::FailedToDrain { cause },
                    WorkloadRequest::Uncordon => Event::FailedToUncordon { cause },
                })
                .await;
            }
            Meanwhile::LeftToPerson => self.note_reboot_left()?,
            Meanwhile::Undoing(fault) => self.journal.fault(fault, self.host.clock.now())?,
        }
        Ok(())
    }

    /// Emits once that an answer is late.
    async fn emit_late(&mut self, event: &Event) {
        if !std::mem::replace(&mut self.emitted_late, true) {
            if let Some(fault) = &self.health.fault {
                log_fault(fault, None, self.mode);
            }
            self.control.emit(event).await;
        }
    }
}
