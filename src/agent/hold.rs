//! What went wrong, and what ends it: errors of a pass and of a wait, and the hold of a target that failed.
//!
//! What is decided is in `update::ending`; here is who asks, and the time.

use tracing::{error, info, warn};

use super::stop::Word;
use super::{Agent, AgentError, Turn};
use crate::control::{ControlError, ControlPlane};
use crate::decide::hold::Next;
use crate::model::text::chain;
use crate::model::{Class, ModelError, message};
use crate::plan::differences::differences;
use crate::report::Occurrence;
use crate::update::ending::{SOON, is_retried_on_change, what_ends};
use crate::update::resume::{held, is_unproven};
use crate::update::{Ending, Fault, Record};

/// What was wrong at the last report. Another fault has another time.
#[derive(Debug, Default)]
pub(super) struct Dated {
    fault: Option<Fault>,
    beside: (bool, Option<Fault>),
}

impl<C: ControlPlane> Agent<C> {
    /// Takes an error of a pass. While the machine goes down on the agent's own request, what it asks goes away: that is
    /// no fault.
    pub(super) async fn bear_or_end(&mut self, error: AgentError) -> Result<Turn, AgentError> {
        if error.class() != Class::Fatal
            && let Some(turn) = self.going_down().await?
        {
            info!("The machine is going down, so this is no fault: {}", chain(&error));
            return Ok(turn);
        }
        self.bear(error).await
    }

    /// Notes since when what is wrong is wrong.
    pub(super) fn date_faults(&mut self) {
        let now = self.host.clock.now();
        if self.dated.fault != self.health.fault {
            self.dated.fault.clone_from(&self.health.fault);
            self.health.fault_since = self.health.fault.as_ref().map(|_| now);
        }
        let duty = self.health.duty.as_ref().or(self.health.unwatched.as_ref()).cloned();
        let beside = (!self.health.drift.is_empty(), duty);
        if self.dated.beside != beside {
            self.health.beside_since = (beside.0 || beside.1.is_some()).then_some(now);
            self.dated.beside = beside;
        }
    }

    /// Takes an error: a broken state ends the agent, all else is told and waited out.
    pub(super) async fn bear(&mut self, error: AgentError) -> Result<Turn, AgentError> {
        if let AgentError::Control(away) = &error
            && away.is_away()
        {
            // The node is none the worse for it: what needs the control plane waits, and its return is a change.
            let why = chain(away);
            // Each try says the same.
            if self.told_away.as_ref() != Some(&why) {
                warn!(MESSAGE_ID = message::WAITING, MCA_FAULT = away.reason(), "{why}");
                self.told_away = Some(why.clone());
            }
            self.health.awaited = Some(why);
            return Ok(Turn::Wait(Some(self.backoff.next_wait())));
        }
        let fault = error.fault();
        if fault.class == Class::Fatal {
            return Err(error);
        }
        log_fault(&fault, None);
        let delay = Ending::of(&fault).longest().map(|longest| self.backoff.next_wait_up_to(longest));
        self.tell_refusal(&error).await;
        self.health.fault = Some(fault);
        Ok(Turn::Wait(delay))
    }

    /// Takes an error of a wait: what it came from would end the next wait, too, so it is paused for.
    pub(super) async fn bear_in_wait(&mut self, error: AgentError) -> Result<(), AgentError> {
        self.bear(error).await?;
        self.publish().await;
        let pause = self.backoff.next_wait_up_to(SOON);
        tokio::select! {
            // Each only waits. The pause has an end of its own, so it is a sign of life.
            word = self.stop.heard() => if word == Word::Reload { self.reload()? },
            () = self.telemetry.notify.idle() => {}
            () = tokio::time::sleep(pause) => {}
        }
        Ok(())
    }

    /// Tells why an update was not begun: once for each cause.
    async fn tell_refusal(&mut self, error: &AgentError) {
        let cause = chain(error);
        let occurrence = match error {
            AgentError::Irreconcilable(_) | AgentError::Config(ModelError::Unreachable { .. }) => {
                Occurrence::FailedToReconcile { cause: cause.clone() }
            }
            AgentError::Drifted { .. } => Occurrence::PreflightDrift { cause: cause.clone() },
            AgentError::Control(ControlError::NotCordoned { .. }) => {
                Occurrence::FailedToDrain { cause: cause.clone() }
            }
            AgentError::Journal(_)
            | AgentError::Observe(_)
            | AgentError::Control(_)
            | AgentError::Host(_)
            | AgentError::Apply(_)
            | AgentError::Config(_) => return,
        };
        if self.told_fault.as_ref() != Some(&cause) {
            self.control.tell(&occurrence).await;
            self.told_fault = Some(cause);
        }
    }

    /// Waits with a target that failed: for another one, for a mended host, or for the next try.
    pub(super) async fn hold(&mut self) -> Result<Turn, AgentError> {
        let Some(record) = self.journal.record() else { return Ok(Turn::Again) };
        if held(record) {
            return self.hold_as_it_came_up().await;
        }
        if record.is_repair() {
            return self.leave_drift();
        }
        let now = self.host.clock.monotonic();
        let next = self.retry.look(record, self.until, &mut self.backoff, now);
        let Next::Wait(left) = next else { return self.archive() };
        if is_retried_on_change(record)
            && let Some(spec) = self.journal.target_spec().cloned()
        {
            self.watch_over(&spec)?;
        }
        Ok(Turn::Wait(left))
    }

    /// Waits with a node that came up wrong: it is looked at again whenever something changes there.
    async fn hold_as_it_came_up(&mut self) -> Result<Turn, AgentError> {
        if self.is_forced()? {
            return self.begin().await;
        }
        if self.journal.record().is_some_and(is_unproven) {
            return Ok(Turn::Wait(None));
        }
        let Some(spec) = self.journal.target_spec().cloned() else { return Ok(Turn::Wait(None)) };
        self.watch_over(&spec)?;
        let seen = self.look(&spec).await?;
        if differences(&spec, &seen).is_empty() {
            self.journal.note(|record| record.fault = None)?;
            return Ok(Turn::Again);
        }
        Ok(Turn::Wait(None))
    }
}

/// Logs a fault; `update`: the update that has failed with it. The catalog's text needs each of the fields.
pub(super) fn log_fault(fault: &Fault, update: Option<&Record>) {
    let Fault { reason, message, next, .. } = fault;
    let ends = what_ends(fault, update);
    if update.is_some() {
        error!(
            MESSAGE_ID = message::FAULT,
            MCA_FAULT = reason,
            MCA_CAUSE = message,
            MCA_ENDED_BY = ends,
            MCA_NEXT = next,
            "{fault}"
        );
    } else {
        warn!(
            MESSAGE_ID = message::FAULT,
            MCA_FAULT = reason,
            MCA_CAUSE = message,
            MCA_ENDED_BY = ends,
            MCA_NEXT = next,
            "{fault}"
        );
    }
}
