//! The workload: its leave before the first disruptive step, its return once the node runs what it should.
//!
//! The answers come as changes of the control plane, so a new target is noticed while one waits. An answer that is
//! late makes the node Degraded with the cause; it is waited for all the same (DRN-006).

use std::time::Duration;

use tracing::info;

use super::hold::log_fault;
use super::{Agent, AgentError, Turn};
use crate::control::{ControlPlane, Drained, Released};
use crate::decide::answer::{Answer, Unanswered};
use crate::model::Target;
use crate::model::message;
use crate::plan::Drain;
use crate::report::Occurrence;
use crate::update::{Begun, Event, Record};

impl<C: ControlPlane> Agent<C> {
    /// Leaves the staging: to the drain where the plan needs one and somebody can be asked, else to the steps.
    pub(super) async fn leave_staging(&mut self, record: &Record) -> Result<Turn, AgentError> {
        if record.first_applied() > 0 {
            let image = record.to.image.clone();
            self.control.tell(&Occurrence::OsUpdateStaged { image }).await;
        }
        if record.plan.drain() == Drain::NotNeeded {
            return self.move_on(&Event::Apply { first: record.first_applied() });
        }
        if !self.control.drains() {
            self.control.tell(&Occurrence::DrainSkipped).await;
            return self.move_on(&Event::Apply { first: record.first_applied() });
        }
        self.control.tell(&Occurrence::Cordon).await;
        self.control.tell(&Occurrence::Drain).await;
        self.move_on(&Event::Drain)
    }

    /// Waits for the drain, and then goes to the steps.
    pub(super) async fn drain(&mut self, record: &Record) -> Result<Turn, AgentError> {
        match self.drained(record).await? {
            None => self.move_on(&Event::Apply { first: record.first_applied() }),
            Some(turn) => Ok(turn),
        }
    }

    /// Says how to wait when the workload has not left yet, or has come back (W-8).
    pub(super) async fn drained(&mut self, record: &Record) -> Result<Option<Turn>, AgentError> {
        if !record.drained {
            return Ok(None);
        }
        let Drained::Waiting { why } = self.control.drain(&record.to).await? else {
            self.journal.note(|record| (record.waiting, record.draining) = (None, None))?;
            self.answered();
            return Ok(None);
        };
        let now = self.host.clock.monotonic_micros();
        let begun = record.draining.clone().filter(|begun| begun.boot_id == record.boot_id);
        let begun = begun.unwrap_or_else(|| Begun { boot_id: record.boot_id.clone(), since: now });
        let since = Duration::from_micros(begun.since);
        self.journal.note(|record| {
            record.waiting = Some(why.clone());
            record.draining = Some(begun);
        })?;
        Ok(Some(self.wait_for_answer(Answer::Drain, since, why).await))
    }

    /// Lets the workload come back; says how to wait when the control plane has not answered yet.
    pub(super) async fn release(&mut self, committed: &Target) -> Result<Option<Turn>, AgentError> {
        match self.control.release(committed).await? {
            Released::Yes => {}
            Released::Again => {
                let config = committed.config.clone();
                self.control.tell(&Occurrence::Uncordon { config }).await;
            }
            Released::Waiting { why } => {
                let now = self.host.clock.monotonic();
                let asked = *self.release_asked.get_or_insert(now);
                return Ok(Some(self.wait_for_answer(Answer::Release, asked, why).await));
            }
        }
        self.answered();
        Ok(None)
    }

    /// Ends a wait, with its answer or without one: the next wait is told anew.
    pub(super) fn answered(&mut self) {
        self.health.waiting = None;
        self.release_asked = None;
        self.told_late = false;
    }

    /// Says how to wait for an answer. One that is late is a fault, and told once.
    async fn wait_for_answer(&mut self, answer: Answer, since: Duration, why: String) -> Turn {
        let after = match answer.unanswered(since, self.host.clock.monotonic(), &why) {
            Unanswered::Patient(left) => Some(left),
            Unanswered::Late(fault) => {
                let cause = fault.message.clone();
                self.health.fault = Some(fault);
                self.tell_late(&match answer {
                    Answer::Drain => Occurrence::FailedToDrain { cause },
                    Answer::Release => Occurrence::FailedToUncordon { cause },
                })
                .await;
                None
            }
        };
        if self.health.waiting.as_ref() != Some(&why) {
            info!(MESSAGE_ID = message::WAITING, "waiting: {why}");
        }
        self.health.waiting = Some(why);
        Turn::Wait(after)
    }

    /// Tells once that an answer is late.
    async fn tell_late(&mut self, occurrence: &Occurrence) {
        if !std::mem::replace(&mut self.told_late, true) {
            if let Some(fault) = &self.health.fault {
                log_fault(fault, None);
            }
            self.control.tell(occurrence).await;
        }
    }
}
